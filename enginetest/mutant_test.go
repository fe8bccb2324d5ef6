//go:build unix

package enginetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// mutant is a small engine: an append-only log of frames, and its state in memory. Without a flaw it keeps all nine
// laws. What a flaw does wrong is marked in the code by its name.
//
//	log     frames: length of the body 4, CRC32C of the body 4, body (Batch.Bytes)
//	clean   length and CRC32C of the log, as text; there only after a clean Close
type mutant struct {
	holdfast.Engine // a mem: the state; its views are the mutant's
	flaw            string
	dir             string
	o               holdfast.Options
	file, lock      *os.File
	lost            string // by a repair
	faults          *Faults

	mu      sync.Mutex
	buf     []byte // frames that are not written yet
	applied uint64 // batches
	written uint64
	synced  uint64
	length  int64 // of the log
	torn    int64
	syncs   int64
	failed  error
	ended   lifecycle.Ending
	closing bool // no sync may begin between the last one and closed
	closed  bool
	timer   *time.Timer
	syncing bool // a sync is running, without mu
	settled sync.Cond
	held    *holdfast.Batch // "shows out of order" hides this batch, until
	heldAt  uint64          // it or a later one is waited for
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func describeMutant(flaw string) holdfast.Capabilities {
	c := holdfast.Capabilities{
		Engine:        "mutant",
		Memory:        holdfast.Promise{Given: holdfast.Memory, How: "appended to a buffer"},
		Process:       holdfast.Promise{Given: holdfast.Process, How: "written to the log"},
		Power:         holdfast.Promise{Given: holdfast.Power, How: "written to the log, synced"},
		AtomicBatches: true,
		Checksums:     true,
		ShownAtApply:  true,
		ReadOnly:      true,
		MaxKeySize:    holdfast.MaxKeySize,
		MaxValueSize:  holdfast.MaxValueSize,
		MaxBatchSize:  holdfast.MaxBatchSize,
	}
	if flaw != "" {
		c.Engine = "mutant that " + flaw
	}
	c.AtomicBatches = flaw != "tears from the end"
	if flaw == "gives less than asked" {
		c.Power.Given = holdfast.Process
	}
	return c
}

func openMutant(flaw, dir string, o holdfast.Options, faults *Faults) (holdfast.Engine, error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(describeMutant(flaw), dir, o.Level); err != nil && flaw != "opens at any level" {
		return nil, err
	}
	lock, lost, err := openMarked(flaw, dir, o.ReadOnly)
	if err != nil {
		return nil, err
	}
	t := &mutant{Engine: mem.New(), flaw: flaw, dir: dir, o: o, lock: lock, lost: lost, faults: faults}
	t.settled.L = &t.mu
	if err := t.recover(); err != nil {
		lock.Close()
		return nil, err
	}
	if flaw == "lets Close wait" {
		return &patient{mutant: t}, nil
	}
	return t, nil
}

// patient is a mutant whose Compact, which changes nothing, goes on though Close waits for it.
type patient struct {
	*mutant
	inside sync.RWMutex
}

// Compact implements [holdfast.Compactor].
func (p *patient) Compact(ctx context.Context, _ holdfast.Range) error {
	p.inside.RLock()
	defer p.inside.RUnlock()
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return holdfast.ErrClosed
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	default:
		return nil
	}
}

func (p *patient) Close() error {
	p.inside.Lock()
	defer p.inside.Unlock()
	return p.mutant.Close()
}

// openMarked marks and locks the directory. It also returns what a repair that made it has lost.
func openMarked(flaw, dir string, reads bool) (_ *os.File, lost string, err error) {
	fail := func(class error, detail string, cause error) error {
		return &holdfast.Error{Op: "open", Engine: "mutant", Path: dir, Class: class, Detail: detail, Cause: cause}
	}
	if dir == "" {
		return nil, "", fail(holdfast.ErrBadOption, "no directory is named", nil)
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, "", fail(holdfast.ErrForeign, "it is a file", nil)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fail(nil, "", err)
	}
	marked := exists(filepath.Join(dir, markName))
	if len(entries) > 0 && !marked && flaw != "takes over directories" {
		return nil, "", fail(holdfast.ErrForeign, "it holds "+entries[0].Name(), nil)
	}
	flag, how := os.O_CREATE|os.O_RDWR, syscall.LOCK_EX
	if reads {
		flag, how = os.O_RDONLY, syscall.LOCK_SH
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", fail(nil, "", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "LOCK"), flag, 0o644)
	if err != nil {
		return nil, "", fail(nil, "", err)
	}
	if err := syscall.Flock(int(lock.Fd()), how|syscall.LOCK_NB); err != nil && flaw != "locks nothing" {
		lock.Close()
		return nil, "", fail(holdfast.ErrLocked, "", err)
	}
	if !marked {
		err = os.WriteFile(filepath.Join(dir, markName), []byte("holdfast 1\nengine mutant\nformat 1\n"), 0o644)
	} else {
		lost, err = readMark(dir, fail)
	}
	if err != nil {
		lock.Close()
		return nil, "", err
	}
	return lock, lost, nil
}

func readMark(dir string, fail func(error, string, error) error) (lost string, _ error) {
	text, err := os.ReadFile(filepath.Join(dir, markName))
	if err != nil {
		return "", fail(nil, "", err)
	}
	if i := bytes.Index(text, []byte("lost ")); i >= 0 {
		text, lost = text[:i], string(bytes.TrimSpace(text[i+5:]))
	}
	var version, format int
	var engine string
	if n, err := fmt.Sscanf(string(text), "holdfast %d\nengine %s\nformat %d\n", &version, &engine, &format); n < 3 ||
		bytes.Count(text, []byte("\n")) != 3 {
		return "", fail(holdfast.ErrCorrupt, markName, err)
	}
	switch {
	case version < 1 || format < 1:
		return "", fail(holdfast.ErrCorrupt, markName, nil)
	case version > 1 || format > 1:
		return "", fail(holdfast.ErrVersion, "it is newer", nil)
	case engine != "mutant":
		return "", fail(holdfast.ErrForeign, "it was made by "+engine, nil)
	}
	return lost, nil
}

// recover reads the log, tells damage from a torn tail, and makes the log ready for more.
func (t *mutant) recover() error {
	name, clean := filepath.Join(t.dir, "log"), filepath.Join(t.dir, "clean")
	damage := func(at int, detail string) error {
		return &holdfast.Error{Op: "open", Engine: "mutant", Path: name, Offset: int64(at), Class: holdfast.ErrCorrupt,
			Detail: detail}
	}
	log, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := os.ReadFile(clean)
	settled := err == nil
	if want := cleanMark(log); settled && string(text) != want && t.flaw != "checks no sums" &&
		t.flaw != "takes damage for tearing" {
		return damage(0, "it is not as it was closed")
	}
	var batches []*holdfast.Batch
	at := 0
	for at < len(log) {
		body, ok := frameOf(log[at:])
		if !ok && t.flaw != "checks no sums" {
			break
		}
		if body == nil {
			break
		}
		b, err := batchOf(body)
		if err != nil {
			return damage(at, err.Error())
		}
		batches = append(batches, b)
		at += 8 + len(body)
	}
	for later := at + 1; later < len(log) && t.flaw != "takes damage for tearing" && t.flaw != "checks no sums"; later++ {
		if _, ok := frameOf(log[later:]); ok {
			return damage(at, "a bad frame before a good one")
		}
	}
	for i, b := range batches {
		if t.flaw == "recovers out of order" && i^1 < len(batches) {
			b = batches[i^1]
		}
		if err := holdfast.Commit(t.Engine, b, holdfast.Memory); err != nil {
			return damage(at, err.Error())
		}
	}
	t.torn, t.length = int64(len(log)-at), int64(at)
	if t.o.ReadOnly && t.flaw != "writes though it only reads" {
		return nil
	}
	if err := os.Remove(clean); settled && err != nil {
		return err
	}
	if t.file, err = os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return err
	}
	err = t.file.Truncate(t.length)
	if err == nil {
		_, err = t.file.Seek(t.length, io.SeekStart)
	}
	if err == nil {
		err = t.faults.Sync(name)
	}
	if err == nil {
		err = t.file.Sync()
	}
	if err != nil {
		t.file.Close()
		return &holdfast.Error{Op: "open", Engine: "mutant", Path: name, Cause: err}
	}
	return nil
}

func cleanMark(log []byte) string {
	return fmt.Sprintf("%d %08x\n", len(log), crc32.Checksum(log, castagnoli))
}

// frameOf returns the body of the frame at the beginning of b, and whether its sum is right.
func frameOf(b []byte) ([]byte, bool) {
	if len(b) < 8 {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n == 0 || n > len(b)-8 {
		return nil, false
	}
	return b[8 : 8+n], crc32.Checksum(b[8:8+n], castagnoli) == binary.LittleEndian.Uint32(b[4:])
}

func appendFrame(buf, body []byte) []byte {
	buf = binary.LittleEndian.AppendUint32(buf, uint32(len(body)))
	buf = binary.LittleEndian.AppendUint32(buf, crc32.Checksum(body, castagnoli))
	return append(buf, body...)
}

// batchOf reads what Batch.Bytes wrote.
func batchOf(body []byte) (*holdfast.Batch, error) {
	var b holdfast.Batch
	chunk := func() []byte {
		n, w := binary.Uvarint(body)
		if w <= 0 || n > uint64(len(body)-w) {
			body = nil
			return nil
		}
		c := body[w : w+int(n)]
		body = body[w+int(n):]
		return c
	}
	for len(body) > 0 {
		kind := holdfast.Kind(body[0])
		body = body[1:]
		key := chunk()
		switch kind {
		case holdfast.KindSet:
			b.Set(key, chunk())
		case holdfast.KindDelete:
			b.Delete(key)
		case holdfast.KindDeleteRange:
			b.DeleteRange(key, chunk())
		default:
			return nil, errors.New("an unknown operation")
		}
	}
	return &b, b.Err()
}

func (t *mutant) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := b.Err(); err != nil && t.flaw == "looks at the batch first" {
		return holdfast.Receipt{}, err
	}
	if t.closed {
		if t.flaw == "panics after Close" {
			panic("closed")
		}
		return holdfast.Receipt{}, holdfast.ErrClosed
	}
	if !level.Valid() && t.flaw == "takes any level" {
		level = holdfast.Memory
	}
	if err := t.Capabilities().CheckLevel(level); err != nil {
		return holdfast.Receipt{}, err
	}
	if t.flaw == "trips over a nil batch" && b.Len() == 0 {
		return holdfast.Receipt{}, nil
	}
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	if t.failed != nil {
		if t.flaw != "keeps its poison to itself" {
			t.ended.End(t.failed)
		}
		return holdfast.Receipt{}, t.failed
	}
	if b.Len() > 0 {
		t.applied++
		if t.tears() {
			at := len(t.buf)
			for op := range b.Ops() {
				if t.flaw == "tears from the end" {
					t.buf = slices.Insert(t.buf, at, appendFrame(nil, one(op).Bytes())...)
				} else {
					t.buf = appendFrame(t.buf, one(op).Bytes())
				}
			}
		} else {
			t.buf = appendFrame(t.buf, b.Bytes())
		}
		t.show(b)
	}
	if t.timer == nil && t.o.SyncEvery > 0 && level < holdfast.Power {
		t.timer = time.AfterFunc(t.o.SyncEvery, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.timer = nil
			if !t.closed {
				_ = t.store(holdfast.Power)
			}
		})
	}
	return holdfast.NewReceipt(t, t.applied<<2|uint64(level)), nil
}

// show makes b visible.
func (t *mutant) show(b *holdfast.Batch) {
	must := func(b *holdfast.Batch) {
		if err := holdfast.Commit(t.Engine, b, holdfast.Memory); err != nil {
			panic(err) // the engine is not closed, and b has been checked
		}
	}
	switch {
	case t.flaw == "tears in view":
		for op := range b.Ops() {
			must(one(op))
			runtime.Gosched()
		}
	case t.held == nil && (t.flaw == "shows out of order" && t.applied%3 == 0 || t.flaw == "shows what is waited for"):
		t.held, t.heldAt = new(holdfast.Batch), t.applied
		t.held.Append(b)
	default:
		must(b)
	}
}

func (t *mutant) showHeld() {
	if b := t.held; b != nil {
		if err := holdfast.Commit(t.Engine, b, holdfast.Memory); err != nil {
			panic(err)
		}
		t.held = nil
	}
}

// one is a batch of one operation.
func one(op holdfast.Op) *holdfast.Batch {
	var b holdfast.Batch
	switch op.Kind {
	case holdfast.KindSet:
		b.Set(op.Key, op.Value)
	case holdfast.KindDelete:
		b.Delete(op.Key)
	case holdfast.KindDeleteRange:
		b.DeleteRange(op.Key, op.Value)
	}
	return &b
}

// Wait makes a mutant the Waiter of its receipts.
func (t *mutant) Wait(token uint64) error {
	if t.flaw == "shows out of order" {
		time.Sleep(time.Millisecond) // while others are shown
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n, level := token>>2, holdfast.Level(token&3)
	if n >= t.heldAt {
		t.showHeld()
	}
	switch {
	case t.flaw == "acknowledges too early":
		return nil
	case t.flaw == "never syncs" && level >= holdfast.Power:
		level = holdfast.Process
	}
	for level >= holdfast.Power && n > t.synced && t.syncing {
		t.settled.Wait()
	}
	if level == holdfast.Memory || level == holdfast.Process && n <= t.written || n <= t.synced {
		return nil
	}
	return t.store(level)
}

// store brings everything applied to level. It is called with mu held, and gives it up while it syncs.
func (t *mutant) store(level holdfast.Level) error {
	for t.syncing {
		t.settled.Wait()
	}
	if t.failed != nil || t.closed {
		return t.failed
	}
	err := t.here()
	if err == nil {
		err = t.write()
	}
	if applied := t.applied; err == nil && level >= holdfast.Power && t.synced < applied {
		t.syncs++
		t.syncing = true
		locked := t.closing || t.flaw == "syncs under its lock"
		if !locked {
			t.mu.Unlock()
		}
		if err = t.faults.Sync(t.file.Name()); err == nil {
			err = t.file.Sync()
		}
		if !locked {
			t.mu.Lock()
		}
		t.syncing = false
		t.settled.Broadcast()
		if t.flaw == "overlooks failed syncs" {
			err = nil
		}
		if err == nil {
			t.synced = applied
		}
	}
	if err != nil {
		poison := &holdfast.Error{Op: "write", Engine: "mutant", Path: t.file.Name(), Class: holdfast.ErrPoisoned, Cause: err}
		if t.flaw == "forgives failures" {
			return poison
		}
		t.failed = poison
		if t.flaw != "keeps its poison to itself" && t.flaw != "tells of its poison when asked" {
			t.ended.End(poison)
		}
	}
	return t.failed
}

// here fails if the directory was replaced.
func (t *mutant) here() error {
	held, err := t.lock.Stat()
	if found, e := os.Stat(t.lock.Name()); err == nil && (e != nil || !os.SameFile(held, found)) &&
		t.flaw != "goes on in a replaced directory" {
		name := map[string]string{"says another name": "another"}[t.flaw]
		err = &holdfast.Error{Op: "check", Engine: cmp.Or(name, "mutant"), Path: t.dir, Class: holdfast.ErrReplaced, Cause: e}
	}
	return err
}

// tears reports whether each operation of a batch is written for itself.
func (t *mutant) tears() bool { return t.flaw == "tears on disk" || t.flaw == "tears from the end" }

func (t *mutant) write() error {
	if len(t.buf) == 0 {
		t.written = t.applied
		return nil
	}
	err := t.faults.Write(t.file.Name())
	if err == nil && t.tears() {
		for len(t.buf) > 0 && err == nil {
			body, _ := frameOf(t.buf)
			_, err = t.file.Write(t.buf[:8+len(body)])
			t.buf = t.buf[8+len(body):]
			time.Sleep(100 * time.Microsecond)
		}
	} else if err == nil {
		_, err = t.file.Write(t.buf)
	}
	if err != nil {
		switch t.flaw {
		case "panics when the disk is full":
			panic(err)
		case "starts anew when the disk is full":
			_ = t.file.Truncate(0)
		case "overlooks failed writes":
			t.buf, t.written = t.buf[:0], t.applied
			return nil
		}
		return err
	}
	t.length += int64(len(t.buf))
	t.buf, t.written = t.buf[:0], t.applied
	return nil
}

func (t *mutant) Sync() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return holdfast.ErrClosed
	}
	if t.o.ReadOnly {
		return t.Capabilities().CheckLevel(holdfast.Power)
	}
	t.showHeld()
	return t.store(holdfast.Power)
}

func (t *mutant) Get(dst, key []byte) ([]byte, error) {
	if len(key) == 0 && t.flaw == "takes empty keys" {
		return dst, holdfast.ErrNotFound
	}
	return t.Engine.Get(dst, key)
}

// liveView is a snapshot that is none.
type liveView struct{ *mutant }

func (liveView) Close() error { return nil }

// blockingView keeps writers out until it is closed.
type blockingView struct {
	holdfast.Snapshot
	release func()
}

func (v blockingView) Close() error {
	v.release()
	return v.Snapshot.Close()
}

func (t *mutant) Snapshot() (holdfast.Snapshot, error) {
	s, err := t.Engine.Snapshot()
	switch {
	case err == nil && t.flaw == "has live snapshots":
		return liveView{t}, s.Close()
	case err == nil && t.flaw == "blocks writers":
		t.mu.Lock()
		return blockingView{s, sync.OnceFunc(t.mu.Unlock)}, nil
	}
	return s, err
}

func (t *mutant) Capabilities() holdfast.Capabilities {
	c := describeMutant(t.flaw)
	c.LossWindow = max(t.o.SyncEvery, 0)
	if t.flaw != "hides what a repair lost" {
		c.Lost = t.lost
	}
	if t.o.ReadOnly {
		c = c.ForReading()
	}
	return c
}

func (t *mutant) Metrics() holdfast.Metrics {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := holdfast.UnknownMetrics()
	state := t.Engine.Metrics()
	m.OpenSnapshots, m.OpenIterators = state.OpenSnapshots, state.OpenIterators
	if t.flaw == "counts no views" {
		m.OpenSnapshots, m.OpenIterators = 0, 0
	}
	m.Syncs, m.TornBytes, m.Poison = t.syncs, t.torn, t.failed
	return m
}

func (t *mutant) Done() <-chan struct{} { return t.ended.Done() }

func (t *mutant) Err() error { return t.ended.Err() }

func (t *mutant) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.flaw != "keeps its end to itself" {
		defer func() {
			if t.closed {
				t.ended.End(holdfast.ErrClosed)
			}
		}()
	}
	if t.closed {
		return holdfast.ErrClosed
	}
	t.showHeld()
	if t.o.ReadOnly {
		if busy := t.Engine.Close(); busy != nil {
			return busy
		}
		t.closed = true
		return t.lock.Close()
	}
	t.closing = true
	defer func() { t.closing = false }()
	var err error
	if t.flaw != "forgets what was not waited for" {
		err = t.store(holdfast.Power)
	}
	if busy := t.Engine.Close(); busy != nil {
		return busy
	}
	t.closed = true
	if err == nil {
		var log []byte
		if log, err = os.ReadFile(t.file.Name()); err == nil {
			err = os.WriteFile(filepath.Join(t.dir, "clean"), []byte(cleanMark(log)), 0o644)
		}
	}
	return errors.Join(err, t.file.Close(), t.lock.Close())
}
