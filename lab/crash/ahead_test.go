package crash

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
)

// The two of [logged].
const (
	logFirst   = "writes its log first"
	indexFirst = "writes its index first"
)

// logged is an engine that keeps everything in memory and in a log, with an index page that says how much of the log is
// there. The page is written in place once the log is synced to there, or, in the mutant, before.
type logged struct {
	holdfast.Engine // in memory
	ahead           bool
	log, index      *os.File

	mu  sync.Mutex
	end int64
}

// openLogged opens one: what the index says is there must be there, and what is whole behind it is taken too.
func openLogged(dir string, ahead bool) (_ holdfast.Engine, err error) {
	e := &logged{Engine: mem.New(), ahead: ahead}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.log.Close(), e.index.Close())
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for name, to := range map[string]**os.File{"log": &e.log, "index": &e.index} {
		if *to, err = os.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
			return nil, err
		}
	}
	page := make([]byte, 8)
	if _, err := e.index.ReadAt(page, 0); err != nil && err != io.EOF {
		return nil, err
	}
	whole := int64(binary.BigEndian.Uint64(page))
	text, err := io.ReadAll(e.log)
	if err != nil {
		return nil, err
	}
	for rest := text; len(rest) >= 8; {
		size, sum := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		if uint64(len(rest)) < 8+uint64(size) || crc32.ChecksumIEEE(rest[8:8+size]) != sum || size == 0 {
			break
		}
		var ops []holdfast.Op
		if err := json.Unmarshal(rest[8:8+size], &ops); err != nil {
			return nil, err
		}
		var b holdfast.Batch
		for _, op := range ops {
			switch op.Kind {
			case holdfast.KindSet:
				b.Set(op.Key, op.Value)
			case holdfast.KindDelete:
				b.Delete(op.Key)
			default:
				b.DeleteRange(op.Key, op.Value)
			}
		}
		if _, err := e.Engine.Apply(&b, holdfast.Memory); err != nil {
			return nil, err
		}
		e.end += 8 + int64(size)
		rest = rest[8+size:]
	}
	if e.end < whole {
		return nil, fmt.Errorf("%w: the index has %d bytes of log, and %d are there", holdfast.ErrCorrupt, whole, e.end)
	}
	if err := e.log.Truncate(e.end); err != nil {
		return nil, err
	}
	if err := e.log.Sync(); err != nil {
		return nil, err
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		f, err := os.Open(d)
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return nil, err
		}
	}
	return e, e.point(e.end)
}

// point writes the index in place.
func (e *logged) point(end int64) error {
	_, err := e.index.WriteAt(binary.BigEndian.AppendUint64(nil, uint64(end)), 0)
	return err
}

func describeLogged() holdfast.Capabilities {
	c := mem.Describe()
	c.AtomicBatches = false // one operation each: no directory is aged, which would only take time here
	c.Process, c.Power = holdfast.Promise{Given: holdfast.Process}, holdfast.Promise{Given: holdfast.Power}
	return c
}

func (e *logged) Capabilities() holdfast.Capabilities { return describeLogged() }

func (e *logged) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	var ops []holdfast.Op
	for op := range b.Ops() {
		ops = append(ops, holdfast.Op{Kind: op.Kind, Key: bytes.Clone(op.Key), Value: bytes.Clone(op.Value)})
	}
	text, err := json.Marshal(ops)
	if err != nil {
		return holdfast.Receipt{}, err
	}
	record := binary.BigEndian.AppendUint32(nil, uint32(len(text)))
	record = append(binary.BigEndian.AppendUint32(record, crc32.ChecksumIEEE(text)), text...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.log.WriteAt(record, e.end); err != nil {
		return holdfast.Receipt{}, err
	}
	e.end += int64(len(record))
	if e.ahead {
		err = e.point(e.end)
	}
	if _, applied := e.Engine.Apply(b, holdfast.Memory); err != nil || applied != nil {
		return holdfast.Receipt{}, errors.Join(err, applied)
	}
	return holdfast.NewReceipt(e, uint64(level)), nil
}

// Wait implements holdfast.Waiter.
func (e *logged) Wait(level uint64) error {
	if holdfast.Level(level) < holdfast.Power {
		return nil
	}
	time.Sleep(15 * time.Millisecond) // for others, which share the sync
	return e.Sync()
}

func (e *logged) Sync() error {
	e.mu.Lock()
	end := e.end
	e.mu.Unlock()
	if err := e.log.Sync(); err != nil || e.ahead {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.point(end)
}

func (e *logged) Close() error {
	return errors.Join(e.Sync(), e.index.Sync(), e.log.Close(), e.index.Close(), e.Engine.Close())
}

// TestWriteBackFindsBrokenOrder: an index page that is written before the log that it speaks of is synced shows only
// where pages reach the disk that nobody has synced. The test goes on until it is found, most often on the first disk.
// The right order is not found fault with.
func TestWriteBackFindsBrokenOrder(t *testing.T) {
	needsDisk(t)
	if testing.Short() {
		t.Skip("the race detector finds nothing in victims; TestPower runs the same code")
	}
	dir := t.TempDir()
	r, err := newRunner(labs()[uncontrolled], Place{Dir: dir, Keep: t.TempDir(), Child: victims(uncontrolled, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	broken := func(name string, seed uint64) bool {
		c := row(Power, holdfast.Power)
		c.Engine, c.Level, c.Mounts, c.Capabilities = name, holdfast.Power, blockdev.Mounts("")[:1], describeLogged()
		tally := newTally(c, seed)
		tally.keep = r.evidenceDir
		if err := r.kinds.Session(t.Context(), c, seed, 0, 5, 0, tally); err != nil {
			t.Fatal(err)
		}
		result := tally.finish()
		if result.Verdict == Broken && !strings.Contains(result.Why, "the index has") {
			t.Fatalf("%s: %s", name, result.Why)
		}
		return result.Verdict == Broken
	}
	const first = 2 // pages are written back with this seed
	if broken(logFirst, first) {
		t.Errorf("%s, and is BROKEN", logFirst)
	}
	for seed := uint64(first); !broken(indexFirst, seed); seed++ {
		if seed == 100 {
			t.Fatalf("%s, and was not found out on %d disks", indexFirst, seed)
		}
	}
}
