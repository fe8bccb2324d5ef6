package pebble

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfastdb/holdfast"
)

// disk is the file system that Pebble sees. It counts, it decides which syncs of the log
// are real (see log), and it keeps a failed write from becoming a hang or a lie.
//
// Pebble answers a failed write of its log by panicking with its mutexes held, a failed write of its manifest by
// ending the process, and a failed flush by trying again forever while writers wait. So it is not told. The first
// failure freezes the disk:
//
//   - the engine is poisoned with the cause, before Pebble's call returns;
//   - nothing below changes any more, so that what is on the device is what a crash at
//     the moment of the failure would have left, and reopening is ordinary recovery;
//   - what Pebble writes from then on goes to memory or nowhere. Its flushes succeed,
//     a call that waits for one goes on and returns the poison, and reads see everything.
//
// A table that was being written when the disk froze is the exception: its writer gets
// the error, and writes it again, to memory.
type disk struct {
	vfs.FS // below
	dir    string
	check  func() error // see datadir.Handle.Check

	cause atomic.Pointer[holdfast.Error] // what froze the disk; set under ack

	ack  sync.Mutex
	safe uint64 // the highest end of a commit that settle has found good
	// memory holds what is created after freezing.
	memory *vfs.MemFS

	// mu guards what decides about compactions once the disk is frozen; see merge.
	mu      sync.Mutex
	changed sync.Cond
	stalled int
	phase   phase
	made    []string // tables that Open has made, see abandon; nil once the manifest has changed

	froze    chan struct{} // closed when the disk has frozen
	poisoned func(error)   // is told of the poison before froze is closed

	stalls  atomic.Int64
	syncs   atomic.Int64
	written atomic.Int64

	demand demand
}

// phase is what the database on the disk is doing.
type phase int

const (
	opening   phase = iota // lib.Open has not returned
	serving                // until Close
	closing                // no call but Pebble's Close comes any more
	abandoned              // lib.Open failed: nothing can be called, and what it has begun may still be running
)

// newDisk returns a working disk over below, in the phase opening. The caller sets poisoned before Pebble gets the
// disk.
func newDisk(below vfs.FS, dir string, check func() error) *disk {
	d := &disk{FS: below, dir: dir, check: check, memory: vfs.NewMem(), froze: make(chan struct{}),
		poisoned: func(error) {}}
	d.changed.L = &d.mu

	return d
}

// fail freezes the disk; the first cause stays.
func (d *disk) fail(op, path string, cause error) {
	d.ack.Lock()

	// Under ack no commit is found good between the cause and the closing of froze; see settle.
	defer d.ack.Unlock()
	poison := &holdfast.Error{Op: op, Engine: Name, Path: path, Class: holdfast.ErrPoisoned, Cause: cause,
		Remedy: "nothing is acknowledged any more; fix the cause and reopen"}
	if d.cause.CompareAndSwap(nil, poison) {
		d.poisoned(poison)
		close(d.froze)
	}
}

// frozen reports whether a failure has frozen the disk. Without a lock its answer can be out of date at once; settle,
// which must not err, holds ack.
func (d *disk) frozen() bool { return d.cause.Load() != nil }

// lost freezes the disk if the directory's name now leads to another, and reports whether the disk is frozen. It is
// asked before anything is done to a file by its name.
func (d *disk) lost() bool {
	if !d.frozen() {
		// A frozen disk is not changed by anybody, so the name no longer matters.
		if err := d.check(); err != nil {
			d.fail("check", d.dir, err)
		}
	}

	return d.frozen()
}

// poison is what froze the disk, nil while it works.
func (d *disk) poison() error {
	if e := d.cause.Load(); e != nil {
		<-d.froze // nobody learns of it sooner than those who wait for it
		return e
	}

	return nil
}

// settle decides about a commit that Pebble takes to be settled. end is the sequence number
// after its last one, or 0 if it has none that is known to be its own.
//
// Before the disk froze every such commit is good. Afterwards one is if a later one has
// been found good, so that what is acknowledged is a prefix, whichever call asks first; of the
// others nothing is known.
func (d *disk) settle(end uint64) error {
	d.ack.Lock()
	defer d.ack.Unlock()

	// poison does not block here: fail closes froze before it gives ack back.
	if d.frozen() && (end == 0 || end > d.safe) {
		return d.poison()
	}
	d.safe = max(d.safe, end)

	return nil
}

// Wait makes the disk the waiter of receipts that have nothing left to wait for but the
// poison.
func (d *disk) Wait(uint64) error { return d.poison() }

// stall notes that a writer began (1) or ceased (-1) to wait for a flush or compaction.
func (d *disk) stall(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stalled += n
	if n > 0 {
		d.stalls.Add(1)
	}
	d.changed.Broadcast()
}

// enter begins the next phase.
func (d *disk) enter(p phase) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.phase = p
	d.changed.Broadcast()
}

// note notes that a file is made or written to. While the database is opened, tables are made of its logs, which the
// manifest names when all are there.
func (d *disk) note(name string, made bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	// A manifest that changes names the tables made so far, so that they must stay from then on.
	switch {
	case d.phase != opening:
	case strings.HasPrefix(d.PathBase(name), "MANIFEST-"):
		d.made = nil
	case made && isTable(name):
		d.made = append(d.made, name)
	}
}

// abandon ends the opening of a database that has failed for want of room, on the frozen disk. It removes the tables
// that were made: the manifest does not name them, and they would take the room that is made for the next Open.
func (d *disk) abandon() {
	// From here on note takes no more names.
	d.enter(abandoned)
	if d.check() != nil {
		return // the name leads to another directory
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range d.made {
		_ = d.FS.Remove(name)
	}
}

// logBytes is how large the logs are, which become tables when the database is opened.
func (d *disk) logBytes() (n int64) {
	names, _ := d.FS.List(d.dir)
	for _, name := range names {
		if info, err := d.FS.Stat(d.PathJoin(d.dir, name)); err == nil && strings.HasSuffix(name, ".log") {
			n += info.Size()
		}
	}
	return n
}

// merge decides about a compaction that wants to make a file when the disk is frozen, and returns the error that it
// then fails with, nil if it may go on in memory.
//
// It would fill memory with data that needs no rewriting, so it goes on only if a writer waits for it, and otherwise
// waits: Pebble would try a failed one again at once. But it must not wait while Pebble's Open or Close wait for it.
// Open begins no other then, and the database closes when Open returns.
func (d *disk) merge() error {
	d.mu.Lock()
	defer d.mu.Unlock()

	// It is looked at again when a writer begins to wait, and when the phase changes.
	for d.phase == serving && d.stalled == 0 || d.phase == abandoned {
		d.changed.Wait()
	}

	// Here a writer waits, or the database is being opened or closed.
	if d.phase == serving {
		return nil
	}

	return d.poison()
}

// elsewhere reports whether a file or directory belongs to a checkpoint in the making: what fails there does not freeze
// the disk.
func (d *disk) elsewhere(name string) bool {
	rest, ok := strings.CutPrefix(name, d.dir)
	return !ok || rest != "" && !os.IsPathSeparator(rest[0])
}

// Create implements [vfs.FS].
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if d.elsewhere(name) {
		return d.FS.Create(name, category)
	}
	if !d.lost() {
		f, err := d.FS.Create(name, category)
		if err == nil {
			d.note(name, true)
			return d.wrap(f, name, category), nil
		}

		// Pebble is not told: it gets a file in memory and goes on.
		d.fail("create", name, err)
	}

	return d.substitute(name, category)
}

// ReuseForWrite implements [vfs.FS]; Pebble calls it for logs.
func (d *disk) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if !d.lost() {
		f, err := d.FS.ReuseForWrite(oldname, newname, category)
		if err == nil {
			return d.wrap(f, newname, category), nil
		}
		d.fail("rename", newname, err)
	}

	return d.substitute(newname, category)
}

// OpenReadWrite implements [vfs.FS].
func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if !d.lost() {
		f, err := d.FS.OpenReadWrite(name, category, opts...)
		if err == nil {
			return d.wrap(f, name, category), nil
		}
		d.fail("open", name, err)
	}

	return d.substitute(name, category)
}

// OpenDir implements [vfs.FS]. A directory is opened to sync it, which can fail like any write.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	if err != nil || d.elsewhere(name) {
		return f, err
	}

	return &file{File: f, d: d, path: name}, nil
}

// Pebble says with a category what a file is for. Those of logs and of compactions matter here.
const (
	categoryLog        = "pebble-wal"
	categoryCompaction = "pebble-compaction"
	categoryBlob       = "pebble-blob-file-rewrite"
)

// wrap returns f as Pebble gets it. A log decides by itself which of its syncs are real.
func (d *disk) wrap(f vfs.File, name string, category vfs.DiskWriteCategory) vfs.File {
	w := file{File: f, d: d, path: name, table: isTable(name)}
	if category == categoryLog {
		return &log{file: w}
	}

	return &w
}

// isTable reports whether Pebble reads the file back while it is open.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// substitute makes a file for Pebble to write after the disk is frozen.
func (d *disk) substitute(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	switch category {
	case categoryLog:
		// A log is not read while the engine is open.
		return d.wrap(vfs.NewMemFile(nil), name, category), nil
	case categoryCompaction, categoryBlob:
		if err := d.merge(); err != nil {
			return nil, err
		}
	}

	// The files in memory have the same paths as on the device: held finds them by name.
	if err := d.memory.MkdirAll(d.memory.PathDir(name), 0o755); err != nil {
		return nil, err
	}

	return d.memory.Create(name, category)
}

// held reports whether name was created after freezing.
func (d *disk) held(name string) bool {
	// Nothing is in memory before the disk freezes.
	if !d.frozen() {
		return false
	}
	_, err := d.memory.Stat(name)

	return err == nil
}

// Open implements [vfs.FS].
func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if d.held(name) {
		return d.memory.Open(name, opts...)
	}

	// Files are opened and then the directory is checked: the other way round it could be replaced in between.
	f, err := d.FS.Open(name, opts...)
	if err := d.check(); err != nil { // what was opened may be another's
		if f != nil {
			_ = f.Close()
		}
		d.fail("check", d.dir, err)

		return nil, err
	}

	return f, err
}

// Stat implements [vfs.FS].
func (d *disk) Stat(name string) (vfs.FileInfo, error) {
	if d.held(name) {
		return d.memory.Stat(name)
	}

	return d.FS.Stat(name)
}

// Remove implements [vfs.FS]. A file that cannot be removed is no failed write: Pebble
// tries again when it is next opened.
func (d *disk) Remove(name string) error {
	if d.held(name) {
		return d.memory.Remove(name)
	}
	if !d.elsewhere(name) && d.lost() {
		return nil
	}

	return d.FS.Remove(name)
}

// Rename implements [vfs.FS]. Pebble renames its options file, in Open, which must come to its end: a database whose
// Open fails cannot be closed, whatever it has begun.
func (d *disk) Rename(oldname, newname string) error {
	if d.held(oldname) {
		return d.memory.Rename(oldname, newname)
	}
	if d.elsewhere(oldname) {
		return d.FS.Rename(oldname, newname)
	}
	if !d.lost() {
		if err := d.FS.Rename(oldname, newname); err != nil {
			d.fail("rename", newname, err)
		}
	}

	return nil
}

// Link implements [vfs.FS].
func (d *disk) Link(oldname, newname string) error {
	// Pebble links tables for a checkpoint, which would lack this one: the caller has to know.
	if d.lost() {
		return d.poison()
	}

	return d.FS.Link(oldname, newname)
}

// RemoveAll implements [vfs.FS].
func (d *disk) RemoveAll(name string) error {
	if !d.elsewhere(name) && d.lost() {
		return nil
	}

	return d.FS.RemoveAll(name)
}

// MkdirAll implements [vfs.FS].
func (d *disk) MkdirAll(dir string, perm os.FileMode) error {
	if !d.elsewhere(dir) && d.lost() {
		return nil
	}

	return d.FS.MkdirAll(dir, perm)
}

// Unwrap implements [vfs.FS].
func (d *disk) Unwrap() vfs.FS { return d.FS }

// file is a file or directory on the disk. What it writes and syncs can freeze the disk.
type file struct {
	vfs.File
	d     *disk
	path  string
	table bool // its writer is told of errors
}

// done freezes the disk if a call failed, and returns what Pebble is told.
func (f *file) done(op string, err error) error {
	if err != nil {
		// The first failure of all counts, whichever file it is of.
		f.d.fail(op, f.path, err)
	}

	// The writer of a table gets the error also when the disk froze elsewhere: Pebble reads tables back, and this one
	// would be incomplete.
	if f.table {
		return f.d.poison()
	}

	return nil
}

// Write implements [vfs.File]. It always says that all of p was written, so that Pebble does not act on a short write.
func (f *file) Write(p []byte) (int, error) {
	// What comes after the failure is dropped: the file stays as a crash would have left it.
	if f.d.frozen() {
		return len(p), f.done("write", nil)
	}
	f.d.note(f.path, false)

	// Noted before the write, which may reach the device even if it fails.
	n, err := f.File.Write(p)
	f.d.written.Add(int64(n))
	if err == nil && n < len(p) {
		err = fmt.Errorf("%d of %d bytes written", n, len(p))
	}

	return len(p), f.done("write", err)
}

// WriteAt implements [vfs.File]; see Write.
func (f *file) WriteAt(p []byte, at int64) (int, error) {
	if f.d.frozen() {
		return len(p), f.done("write", nil)
	}
	n, err := f.File.WriteAt(p, at)
	f.d.written.Add(int64(n))

	return len(p), f.done("write", err)
}

// Sync implements [vfs.File]. A sync that is left out because the disk is frozen is not counted.
func (f *file) Sync() error {
	if f.d.frozen() {
		return f.done("sync", nil)
	}
	f.d.syncs.Add(1)

	return f.done("sync", f.File.Sync())
}

// SyncData implements [vfs.File].
func (f *file) SyncData() error {
	if f.d.frozen() {
		return f.done("sync", nil)
	}
	f.d.syncs.Add(1)

	return f.done("sync", f.File.SyncData())
}

// SyncTo implements [vfs.File]. full says that everything was synced, which is the only kind that is counted.
func (f *file) SyncTo(length int64) (full bool, err error) {
	if f.d.frozen() {
		return false, f.done("sync", nil)
	}
	full, err = f.File.SyncTo(length)
	if full {
		f.d.syncs.Add(1)
	}

	return full, f.done("sync", err)
}

// Preallocate implements [vfs.File].
func (f *file) Preallocate(offset, length int64) error {
	if f.d.frozen() {
		return nil
	}
	// A full disk shows when the space is written to.
	return f.File.Preallocate(offset, length)
}

// Close implements [vfs.File].
func (f *file) Close() error {
	err := f.File.Close()

	// A second Close is a mistake of the caller, not a failure of the disk.
	if errors.Is(err, fs.ErrClosed) {
		return err
	}

	return f.done("close", err)
}
