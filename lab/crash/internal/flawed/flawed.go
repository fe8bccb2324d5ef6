// Package flawed holds a small engine that keeps the rules of durable files, and versions of it that each break one. A
// run of the crash lab states with them what it would find.
//
// The engine keeps everything in memory and in a log:
//
//	000001.log  records: length, checksum, batch; zeros follow, so that appending changes no length
//	MANIFEST    the number of the last log file, replaced by rename
//	INDEX       how many records were synced, written in place after the sync
//
// What is in the log as far as INDEX says must be there; what is whole behind it is taken too.
package flawed

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/vfs"
)

// Flaw is the rule that an engine breaks, in words.
type Flaw string

// The flaws.
const (
	None       Flaw = ""
	Skips      Flaw = "skips syncs"
	EarlyAck   Flaw = "acknowledges before the sync"
	WrongFile  Flaw = "syncs the wrong file"
	IndexFirst Flaw = "writes its index before the log is synced"
	NoDirSync  Flaw = "renames without a sync of the directory"
	NoFileSync Flaw = "renames a file that is not synced"
	NoChecksum Flaw = "has no checksums in its log"
	Trusts     Flaw = "checks nothing of what it reads"
	Retries    Flaw = "tries a failed sync again"
	Ignores    Flaw = "takes a failed sync for a good one"
	GoesOn     Flaw = "goes on after a failed sync"
	Buffers    Flaw = "holds writes back in the process"
	InPlace    Flaw = "rewrites its manifest in place"
	Unread     Flaw = "takes a failed read for the end of its log"
)

const (
	fileSize   = 256 << 10 // of a log file in bytes, if no record is larger
	wideSize   = 8 << 20   // of IndexFirst
	headSize   = 8
	bufferSize = 64 << 10 // that is held back in bytes, by Buffers
)

// engine is an open engine. Its reads are those of the engine in memory.
type engine struct {
	holdfast.Engine
	dir   string
	flaw  Flaw
	every uint64 // of so many syncs or writes, Skips and Buffers break the rule in one
	fsys  vfs.FS
	index vfs.File

	mu      sync.Mutex // covers what follows
	log     vfs.File
	number  int   // of log
	size    int64 // of log
	end     int64 // of the records in log
	records uint64
	held    []byte // not yet written, by Buffers
	failed  error  // nothing is taken any more

	ended lifecycle.Ending

	syncing sync.Mutex // covers synced; taken before mu
	synced  uint64     // records
}

// Describe says what the engine claims.
func Describe() holdfast.Capabilities {
	c := mem.Describe()
	c.Process, c.Power = holdfast.Promise{Given: holdfast.Process}, holdfast.Promise{Given: holdfast.Power}

	return c
}

// Open opens or makes the engine in dir. Of so many syncs or writes, Skips and Buffers break the rule in one, by chance
// and by number; of the other flaws, every is 1.
func Open(dir string, flaw Flaw, every uint64) (_ holdfast.Engine, err error) {
	e := &engine{Engine: mem.New(), dir: dir, flaw: flaw, every: every, fsys: vfs.OS()}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.closeFiles(), e.Engine.Close())
		}
	}()
	if err := e.fsys.MkdirAll(dir); err != nil {
		return nil, err
	}

	// The directory's own name is made durable before anything in it is promised.
	if err := errors.Join(e.fsys.SyncDir(filepath.Dir(dir)), e.fsys.SyncDir(dir)); err != nil {
		return nil, err
	}
	if e.index, err = openOrCreate(e.fsys, filepath.Join(dir, "INDEX")); err != nil {
		return nil, err
	}
	text, err := vfs.ReadFile(e.fsys, filepath.Join(dir, "MANIFEST"))
	if errors.Is(err, fs.ErrNotExist) {
		return e, e.rotate(0)
	}
	if err != nil {
		return nil, err
	}
	last, err := strconv.Atoi(string(text))
	if err != nil {
		return nil, fmt.Errorf("%w: MANIFEST: %w", holdfast.ErrCorrupt, err)
	}

	return e, e.recover(last)
}

// openOrCreate opens a file for writing, and makes it if it is not there.
func openOrCreate(fsys vfs.FS, name string) (vfs.File, error) {
	f, err := fsys.OpenWrite(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fsys.Create(name)
	}

	return f, err
}

// recover reads the log, whose last file is given, and makes that ready for more.
func (e *engine) recover(last int) error {
	for e.number < last {
		e.number++
		text, err := vfs.ReadFile(e.fsys, e.name(e.number))
		if err != nil && e.flaw != Unread {
			return fmt.Errorf("%w: %w", holdfast.ErrCorrupt, err)
		}
		if e.end, err = e.replay(text); err != nil {
			return err
		}
		e.size = int64(len(text))

	}
	// What may have torn must not be found behind a record of the same length later.
	f, err := e.fsys.OpenWrite(e.name(e.number))
	if err != nil {
		return err
	}
	e.log = f
	if _, err := f.WriteAt(make([]byte, e.size-e.end), e.end); err != nil {
		return err
	}

	// The index counts records that were synced. Fewer in the log than that is damage, which two of the flaws do not look
	// for.
	page := make([]byte, 8)
	n, _ := e.index.ReadAt(page, 0)
	fewer := n == len(page) && binary.BigEndian.Uint64(page) > e.records
	if fewer && e.flaw != Unread && e.flaw != Trusts {
		return fmt.Errorf("%w: the index has %d records of log, and %d are there", holdfast.ErrCorrupt,
			binary.BigEndian.Uint64(page), e.records)
	}

	return e.Sync()
}

// replay applies the records of a file, and returns where they end.
func (e *engine) replay(text []byte) (end int64, err error) {
	// The file ends in zeros, so a length of 0 ends the records. A record that is cut or torn ends them too.
	for rest := text; len(rest) > headSize; rest = text[end:] {
		size, sum := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		if size == 0 || uint64(len(rest)) < headSize+uint64(size) {
			break
		}
		body := rest[headSize : headSize+size]
		if e.flaw != NoChecksum && e.flaw != Trusts && crc32.ChecksumIEEE(body) != sum {
			break
		}
		b, err := decode(body)
		if err != nil && (e.flaw != Trusts || b.Err() != nil) {
			return 0, err
		}
		if _, err := e.Engine.Apply(b, holdfast.Memory); err != nil {
			return 0, err
		}
		e.records++
		end += headSize + int64(size)
	}

	return end, nil
}

// name is the path of a log file.
func (e *engine) name(number int) string {
	return filepath.Join(e.dir, fmt.Sprintf("%06d.log", number))
}

// rotate begins a new log file that takes a record of so many bytes at least.
func (e *engine) rotate(size int64) error {
	// What the last file holds is durable before the manifest names the next one: recovery reads it as a whole.
	if e.log != nil {
		if err := errors.Join(e.write(), e.log.Sync(), e.log.Close()); err != nil {
			return err
		}
	}
	number, size := e.number+1, max(size, fileSize)
	f, err := openOrCreate(e.fsys, e.name(number)) // a crash may have left one
	if err != nil {
		return err
	}
	e.log = f
	if err := f.Truncate(0); err != nil {
		return err
	}
	if e.flaw == IndexFirst { // few files, so that the index is often among those that are written back
		size = max(size, wideSize)
		err = f.Truncate(size)
	} else {
		_, err = f.WriteAt(make([]byte, size), 0)
	}
	if err != nil {
		return err
	}

	// The new file is whole and has its name before the manifest names it. A crash before that leaves the old manifest.
	if err := errors.Join(f.Sync(), e.fsys.SyncDir(e.dir), e.point(number)); err != nil {
		return err
	}
	e.number, e.size, e.end = number, size, 0

	return nil
}

// point makes the manifest name the last log file.
func (e *engine) point(number int) error {
	name := filepath.Join(e.dir, "MANIFEST")
	to := name + ".new"
	if e.flaw == InPlace {
		to = name
	}
	f, err := openOrCreate(e.fsys, to)
	if err != nil {
		return err
	}

	// In place the manifest is empty for a moment, and a crash then leaves it so.
	if err = f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(number)), 0)
	}
	if e.flaw != NoFileSync {
		err = errors.Join(err, f.Sync())
	}
	if err = errors.Join(err, f.Close()); err != nil || e.flaw == InPlace {
		return err
	}
	if err := e.fsys.Rename(to, name); err != nil || e.flaw == NoDirSync {
		return err
	}

	return e.fsys.SyncDir(e.dir)
}

// Capabilities implements [holdfast.Engine]: a flawed engine claims what the sound one keeps.
func (e *engine) Capabilities() holdfast.Capabilities { return Describe() }

// Apply puts a batch into the log, and then into memory, where it is visible.
func (e *engine) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}

	// The record is made before the lock, as its place does not matter for it.
	record := binary.BigEndian.AppendUint32(nil, uint32(b.Size()))
	record = binary.BigEndian.AppendUint32(record, crc32.ChecksumIEEE(b.Bytes()))
	record = append(record, b.Bytes()...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.failed != nil {
		return holdfast.Receipt{}, e.failed
	}
	if b.Len() == 0 {
		return holdfast.NewReceipt(e, token(e.records, level)), nil
	}

	// What is held back counts: it goes to the same file as this record.
	if e.end+int64(len(e.held)+len(record)) > e.size {
		if err := e.rotate(int64(len(record))); err != nil {
			return holdfast.Receipt{}, e.poison(err)
		}
	}
	e.held = append(e.held, record...)

	if hold := e.flaw == Buffers && e.records%e.every == 0; !hold || len(e.held) >= bufferSize {
		if err := e.write(); err != nil {
			return holdfast.Receipt{}, e.poison(err)
		}
	}
	e.records++
	if e.flaw == IndexFirst {
		if err := e.count(e.records); err != nil {
			return holdfast.Receipt{}, e.poison(err)
		}
	}

	// The log comes first. The other way round a reader could see a batch that is refused then.
	if _, err := e.Engine.Apply(b, holdfast.Memory); err != nil {
		return holdfast.Receipt{}, err
	}

	return holdfast.NewReceipt(e, token(e.records, level)), nil
}

// token names a record and the level of its batch.
func token(record uint64, level holdfast.Level) uint64 { return record<<8 | uint64(level) }

// write appends what is held back. A record takes two calls, as where a header is written by itself.
func (e *engine) write() error {
	held := e.held
	e.held = held[:0]

	for _, part := range [][]byte{held[:min(len(held), headSize)], held[min(len(held), headSize):]} {
		if len(part) == 0 {
			continue
		}
		if _, err := e.log.WriteAt(part, e.end); err != nil {
			return err
		}
		e.end += int64(len(part))
	}

	return nil
}

// count says in the index how many records there are.
func (e *engine) count(records uint64) error {
	_, err := e.index.WriteAt(binary.BigEndian.AppendUint64(nil, records), 0)
	return err
}

// poison ends writing.
func (e *engine) poison(err error) error {
	e.failed = errors.Join(holdfast.ErrPoisoned, err)
	e.ended.End(e.failed)
	return e.failed
}

// commitDelay is how long the first waiter waits for others, which share its sync.
const commitDelay = 4 * time.Millisecond

// indexDelay is longer: the index may be written back meanwhile.
const indexDelay = 15 * time.Millisecond

// Wait implements holdfast.Waiter.
func (e *engine) Wait(token uint64) error {
	if holdfast.Level(token&0xff) < holdfast.Power {
		return nil
	}
	if e.flaw == EarlyAck {
		go e.sync(token >> 8)
		return nil
	}

	return e.sync(token >> 8)
}

// sync returns when so many records are synced.
func (e *engine) sync(records uint64) error {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	if e.synced >= records {
		return nil
	}

	switch {
	case e.flaw == IndexFirst:
		time.Sleep(indexDelay)
	case records > 0:
		time.Sleep(commitDelay)
	}
	e.mu.Lock()
	if e.failed != nil {
		defer e.mu.Unlock()
		return e.failed
	}

	// All that was applied until now is synced, for this waiter and all others.
	err := e.write()
	// A descriptor of its own: the file may be full and closed meanwhile, and was synced then.
	f, opened := e.fsys.OpenWrite(e.name(e.number))
	end := e.records
	e.mu.Unlock()
	if err = errors.Join(err, opened); err == nil {
		err = errors.Join(e.syncFile(f), f.Close())
	}
	if err != nil {
		if e.flaw == GoesOn {
			e.synced = end // nobody asks for these again
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()

		return e.poison(err)
	}
	if e.synced = end; e.flaw == IndexFirst {
		return nil
	}

	return e.count(end)
}

// syncFile syncs the last log file.
func (e *engine) syncFile(f vfs.File) error {
	switch {
	case e.flaw == Skips && rand.Uint64N(e.every) == 0: // a count would begin anew with each opening
		return nil
	case e.flaw == WrongFile:
		f = e.index
	}

	err := f.Datasync()
	switch {
	case err == nil || e.flaw == Ignores:
		return nil
	case e.flaw == Retries:
		return f.Datasync() // the pages that could not be written are clean now
	}

	return err
}

// Sync makes durable what was applied before the call.
func (e *engine) Sync() error {
	e.mu.Lock()
	records := e.records
	e.mu.Unlock()

	return e.sync(records)
}

// Done implements [holdfast.Engine].
func (e *engine) Done() <-chan struct{} { return e.ended.Done() }

// Err implements [holdfast.Engine].
func (e *engine) Err() error { return e.ended.Err() }

// Close syncs everything, and closes the files in any case.
func (e *engine) Close() error {
	err := errors.Join(e.Sync(), e.index.Sync(), e.closeFiles(), e.Engine.Close())
	e.ended.End(holdfast.ErrClosed)
	return err
}

// closeFiles closes what is open: an Open that failed may have only one of the two.
func (e *engine) closeFiles() (err error) {
	for _, f := range []vfs.File{e.index, e.log} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}

	return err
}

// decode reads the bytes of a batch.
func decode(text []byte) (*holdfast.Batch, error) {
	b := &holdfast.Batch{}

	// A length beyond the text empties it, which ends the loop. The batch's own checks then refuse what was built.
	field := func() []byte {
		size, n := binary.Uvarint(text)
		if n <= 0 || size > uint64(len(text)-n) {
			text = nil
			return nil
		}
		value := text[n : n+int(size)]
		text = text[n+int(size):]

		return value
	}
	for len(text) > 0 {
		kind := holdfast.Kind(text[0])
		text = text[1:]

		switch key := bytes.Clone(field()); kind {
		case holdfast.KindSet:
			b.Set(key, field())
		case holdfast.KindDelete:
			b.Delete(key)
		case holdfast.KindDeleteRange:
			b.DeleteRange(key, field())
		default:
			return b, fmt.Errorf("%w: an operation of kind %d in the log", holdfast.ErrCorrupt, kind)
		}
	}

	return b, b.Err()
}
