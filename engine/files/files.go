// Package files is an engine that keeps each key in a file of its own, so that ls, grep, cp and backup programs work on
// the data.
//
//	engine, err := files.Open("/var/lib/settings", holdfast.Options{Level: holdfast.Power})
//
// The folder data of a directory has one file for each key. Its name is the key as far as that is plain text, and it
// has the value and one more line, with a checksum: see name.go and record.go. Do not change or remove files while
// the engine is open.
//
// A commit writes each value to a hidden file, and renames the files to their keys' names in the order of the
// operations. So a crash leaves every value whole; but of the last batch it can leave the first operations alone:
// [holdfast.Capabilities].AtomicBatches is false, and stores refuse the engine. While the engine is open, readers see
// batches whole.
//
// A directory is bound to a level when it is made, by [holdfast.Options.Level]:
//
//   - power (the default): the files of a group of batches are synced, then renamed, then the folder is synced,
//     whatever level its batches ask for.
//   - process (also made by memory): nothing is synced before the rename. The file system decides in which order names
//     and contents reach the device, so a power cut may leave any file that was replaced after the last sync empty or
//     damaged, and what it replaced is lost. Commits at Power are refused: the next commit to the same key would put
//     them at risk.
//
// The keys are in memory, in order: about 100 bytes each and the key itself. Opening reads the folder's names.
//
// How it is built: files.go opens the directory, commits groups of batches and syncs; name.go turns keys into names
// and back; record.go is the content of a file; read.go finds the files that a Get, a snapshot or an iterator sees,
// and keeps replaced ones for them under other names.
package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/internal/treap"
)

// Name is the engine's name in engine/all.
const Name = "files"

const (
	format  = 1
	dataDir = "data"

	maxBatchSize = 128 << 20
	// maxGroupSize and maxGroupOps bound what is merged: how long readers may wait while files are renamed.
	maxGroupSize = 8 << 20
	maxGroupOps  = 256
	// syncsAtOnce is how many files are synced at a time: a file system makes one write of its journal for many.
	syncsAtOnce = 16
	// heapPerKey is what the index takes for a key, beside its bytes; TestHeap measures it.
	heapPerKey = 100
)

// file is one version of a key.
type file struct {
	since  uint64      // the first state that shows it
	kept   uint64      // the number of its name .old-NUMBER since it was replaced, 0 while it has the key's
	synced atomic.Bool // or being synced; only in directories made for process
}

type node = treap.Node[*file]

// hooks are asked before files are written or renamed, and before files and the folder are synced. They are set by
// tests.
type hooks struct{ write, sync func(path string) error }

// engine implements [driver.Core]. The index is a persistent tree: who has its root sees one state, whatever is
// changed later.
type engine struct {
	driver.Engine[*view]
	datadir   *datadir.Handle
	data      *os.Root // the folder: what is done by name is done there, whatever becomes of its path
	folder    *os.File // the same, to be synced
	level     holdfast.Level
	readOnly  bool
	hooks     hooks
	committer *groupcommit.Committer
	window    *losswindow.Window

	// mu is held for writing while files get other names, and for reading while one is found and opened.
	mu    sync.RWMutex
	index *node  // all keys; state is its number
	state uint64 // grows with each group
	views []seen // the states that snapshots and iterators see, oldest first
	kept  []old  // what they see and is replaced, in the order of until

	settling sync.Mutex // one sync of the loss window or by Sync at a time
	torn     int64
	number   uint64 // of the last hidden file; only the committer's leader uses it
	syncs    atomic.Int64
	written  atomic.Int64
}

// Open opens or makes the store in dir. o.Level binds a new directory; an old one must be opened with the level it was
// made for, or the error is ErrForeign.
func Open(dir string, o holdfast.Options) (holdfast.Engine, error) {
	none := func(string) error { return nil }
	return openWith(dir, o, hooks{none, none})
}

// openWith is Open with hooks. It gives back what it has opened if it fails.
func openWith(dir string, o holdfast.Options, k hooks) (_ holdfast.Engine, err error) {
	defer func() { err = datadir.Full(err) }()
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if err := driver.CheckLevel(Describe(), dir, o.Level); err != nil {
		return nil, err
	}
	e := &engine{level: max(o.Level, holdfast.Process), readOnly: o.ReadOnly, hooks: k}
	e.datadir, err = datadir.Open(dir, datadir.Spec{Engine: Name, Format: format, Level: e.level, Keeps: dataDir,
		ReadOnly: o.ReadOnly})
	if err != nil {
		return nil, err
	}
	if err := e.open(); err != nil {
		return nil, errors.Join(e.fail("open", dataDir, err), e.release())
	}
	e.committer = groupcommit.New(Name, maxGroupSize, e.commit)
	e.committer.OnPoison(e.Life.Poison)
	e.committer.LimitOps(maxGroupOps)
	e.window = losswindow.New(o.SyncEvery, e.Settle)
	e.Init(e, e.describe(), e.datadir.Dir)

	return e, nil
}

// open opens the folder, reads its names into the index, and syncs it.
func (e *engine) open() (err error) {
	path := filepath.Join(e.datadir.Dir, dataDir)
	if e.datadir.New {
		// A crash may have left the folder of a directory that was not finished.
		if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}

		// The folder's own name must be on the device before any file in it counts.
		if err := datadir.SyncDir(e.datadir.Dir); err != nil {
			return err
		}
	}
	if e.data, err = os.OpenRoot(path); err != nil {
		return err
	}
	if e.folder, err = e.data.Open("."); err != nil {
		return err
	}
	if err := e.list(); err != nil {
		return err
	}
	if e.readOnly {
		return nil
	}
	// A process that died in the middle of a commit may have left names in the page cache alone.
	if err := e.syncFolder(); err != nil {
		return err
	}

	return e.datadir.Made()
}

// list makes the index from the folder's names, and removes what a crash has left.
func (e *engine) list() error {
	for {
		names, err := e.folder.Readdirnames(4096)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}

		// Names may be listed while hidden ones are removed; those that are left out are of no key.
		for _, name := range names {
			if strings.HasPrefix(name, ".") {
				if err := e.removeHidden(name); err != nil {
					return err
				}
				continue
			}
			key, long, ok := keyOf(name)
			if long {
				key, err = e.longKey(name)
				if err != nil {
					return e.unreadable("open", name, err)
				}
			} else if !ok {
				return e.corrupt("open", name, errors.New("no key has this name"))
			}

			// A new file has been there since state 0, so that every view sees it.
			e.index = e.index.Set(key, new(file), int64(len(key)))
		}
	}
}

// removeHidden removes a hidden file that is the engine's.
func (e *engine) removeHidden(name string) error {
	if e.readOnly || !strings.HasPrefix(name, newPrefix) && !strings.HasPrefix(name, oldPrefix) {
		return nil
	}

	// What was being written counts as cut off. What was kept for a reader does not: it was replaced on purpose.
	if st, err := e.data.Stat(name); err == nil && strings.HasPrefix(name, newPrefix) {
		e.torn += st.Size()
	}

	return e.data.Remove(name)
}

// longKey reads the key from the file that has it.
func (e *engine) longKey(name string) ([]byte, error) {
	f, err := e.data.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	return readKey(f, name)
}

// Describe says what the engine gives; what an open one gives depends on its directory.
func Describe() holdfast.Capabilities {
	return holdfast.Capabilities{
		Engine: Name,
		Memory: holdfast.Promise{Given: holdfast.Process,
			How: "a file is written and renamed, in a directory made for process",
			Why: "a file is written before the key is visible", CutMayCorrupt: true},
		Process: holdfast.Promise{Given: holdfast.Process, CutMayCorrupt: true,
			How: "a file is written and renamed, in a directory made for process"},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "files are written, synced and renamed, and their folder is synced once per group; in a directory made for " +
				"power"},

		Checksums:    true,
		ReadOnly:     true,
		MaxKeySize:   holdfast.MaxKeySize,
		MaxValueSize: holdfast.MaxValueSize,
		MaxBatchSize: maxBatchSize,
		Caveats: []string{
			"A batch of several keys is not atomic in a crash: the last one may be there in part, from its first operation " +
				"on. Stores refuse the engine.",
			"A directory is made for level process or for level power, and stays so.",
			"In a directory made for process a power cut may leave files empty or damaged that were replaced since the last " +
				"sync, also where their old values had been synced: they read as ErrCorrupt.",
			"The keys are in memory, about 100 bytes each and the key. Opening reads the name of every file, and of keys over " +
				"some 70 to 140 bytes the file's end.",
			"A missing file is a missing key: who removes one has deleted the key, and no error says so.",
			"While snapshots or iterators are open, what they see and is replaced is kept as a hard link, which the file " +
				"system must have.",
		},
	}
}

// describe says what the open engine gives.
func (e *engine) describe() holdfast.Capabilities {
	c := Describe()
	c.LossWindow, c.Lost, c.Accepted = e.window.Every(), e.datadir.Lost, e.datadir.Accepted
	if e.readOnly {
		c = c.ForReading()
	} else if e.level == holdfast.Power {
		const why = "the directory was made for power: without a sync, a power cut could damage what a commit replaces"
		c.Memory, c.Process = c.Power, c.Power
		c.Memory.Why, c.Process.Why = why, why
	} else {
		c.Power = holdfast.Promise{Why: "the directory was made for process: the next commit could put a synced one at risk"}
	}
	c.Settings = []holdfast.Setting{
		{Name: "level", Value: e.level.String()},
		{Name: "syncs_at_once", Value: strconv.Itoa(syncsAtOnce)},
		{Name: "memory_budget", Value: "none: the index has every key, and values are read through the page cache"},
	}

	return c
}

// Write implements [driver.Core].
func (e *engine) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	r, err := e.committer.Apply(b, level)
	if err == nil {
		e.window.Dirty() // also at power: the receipt may never be waited for
	}

	return r, err
}

// commit carries out a group of batches.
func (e *engine) commit(b *holdfast.Batch, _ holdfast.Level) error {
	// Names are used from here on; the directory must still be at its path.
	if err := e.datadir.Check(); err != nil {
		return err
	}

	// All values are written and synced before the first rename, so a failure here leaves every key as it was.
	var sets []holdfast.Op
	for op := range b.Ops() {
		if op.Kind == holdfast.KindSet {
			sets = append(sets, op)
		}
	}
	first := e.number + 1
	e.number += uint64(len(sets))
	err := e.each(len(sets), func(i int) error { return e.write(newName(first+uint64(i)), sets[i]) })
	if err == nil {
		err = e.install(b, first)
	}

	// The files that were renamed already are not found under their hidden names; the others are removed.
	if err != nil {
		for i := range sets {
			_ = e.data.Remove(newName(first + uint64(i))) // or the next Open does
		}

		return e.fail("commit", dataDir, err)
	}

	// One sync of the folder makes all renames of the group durable.
	if e.level == holdfast.Power && b.Len() > 0 {
		if err := e.syncFolder(); err != nil {
			return e.fail("sync", dataDir, err)
		}
	}

	return e.datadir.Check()
}

// newName and oldName are the names of hidden files.
func newName(n uint64) string { return newPrefix + strconv.FormatUint(n, 10) }
func oldName(n uint64) string { return oldPrefix + strconv.FormatUint(n, 10) }

// each calls f for 0 to n-1, several at once where files are synced, and returns the first error.
func (e *engine) each(n int, f func(int) error) (err error) {
	if e.level < holdfast.Power || n == 1 {
		for i := 0; i < n && err == nil; i++ {
			err = f(i)
		}

		return err
	}

	return parallel(n, f)
}

// parallel calls f for 0 to n-1, up to syncsAtOnce at a time, and returns an error if one did.
func parallel(n int, f func(int) error) error {
	// next is the index that the next goroutine takes. The first error sets it to n, so that no more calls begin.
	var (
		next   atomic.Int64
		failed = make(chan error, 1)
		wg     sync.WaitGroup
	)
	for range min(n, syncsAtOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					select {
					case failed <- err:
					default:
					}
					next.Store(int64(n))
				}
			}
		})
	}
	wg.Wait()
	close(failed)

	return <-failed
}

// write makes a hidden file with what op sets.
func (e *engine) write(name string, op holdfast.Op) (err error) {
	if err := e.hooks.write(name); err != nil {
		return err
	}
	f, err := e.data.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, long := nameOf(op.Key)
	var room [1024]byte
	text, end := op.Value, room[:0]

	// A small record is put together first, which saves a system call. A large value is not copied.
	if len(op.Value)+len(op.Key)+endSize <= len(room) { // in one call
		text = append(end, op.Value...)
		text, end = appendEnd(text, op.Key, op.Value, long), nil
	} else {
		end = appendEnd(end, op.Key, op.Value, long)
	}

	for _, part := range [][]byte{text, end} {
		if len(part) > 0 {
			if _, err := f.Write(part); err != nil {
				return err
			}
			e.written.Add(int64(len(part)))
		}
	}
	if e.level < holdfast.Power {
		return nil
	}

	return e.syncFile(name, f)
}

// syncFile syncs f, which hooks and errors call name.
func (e *engine) syncFile(name string, f *os.File) error {
	if err := e.hooks.sync(name); err != nil {
		return err
	}
	e.syncs.Add(1)

	return f.Sync()
}

// syncFolder makes durable which names the folder has.
func (e *engine) syncFolder() error {
	if err := e.hooks.sync(dataDir); err != nil {
		return err
	}
	if e.syncs.Add(1); runtime.GOOS == "windows" {
		return nil // it has no sync of a directory, and NTFS logs its entries
	}

	return e.folder.Sync()
}

// install carries out a group, whose values are in hidden files from a number on, in order. Readers see all of it or
// nothing, unless it fails: then they see what is done.
func (e *engine) install(b *holdfast.Batch, next uint64) (err error) {
	if b.Len() == 0 {
		return nil
	}

	// Readers wait from here to the end of the group, so they see it whole.
	e.mu.Lock()
	defer e.mu.Unlock()

	// Also after a failure: what is done so far is a state of its own.
	defer func() { e.state++ }()

	for op := range b.Ops() {
		switch op.Kind {
		case holdfast.KindSet:
			name, _ := nameOf(op.Key)
			err = e.retire(op.Key, name, func() error { return e.data.Rename(newName(next), name) })

			// since is the state that this group makes, so no open view sees the new file.
			if err == nil {
				e.index = e.index.Set(bytes.Clone(op.Key), &file{since: e.state + 1}, int64(len(op.Key)))
			}

			// A hidden file has been made for each set, in this order.
			next++
		case holdfast.KindDelete:
			err = e.remove(op.Key)
		case holdfast.KindDeleteRange:
			// The walk is over the index as it was: the tree that remove makes is another.
			c := e.index.Walk(holdfast.Range{Lo: op.Key, Hi: op.Value})
			for n := c.Next(); n != nil && err == nil; n = c.Next() {
				err = e.remove(n.Key)
			}
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// remove deletes a key, if it is there.
func (e *engine) remove(key []byte) error {
	if _, ok := e.index.Get(key); !ok {
		return nil
	}

	// A file that somebody removed by hand is gone already, which is what is wanted.
	name, _ := nameOf(key)
	err := e.retire(key, name, func() error {
		if err := e.data.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		return nil
	})
	if err == nil {
		e.index = e.index.Delete(key)
	}

	return err
}

// Settle implements [driver.Core]. In a directory made for process, the next commit puts at risk again what Settle made
// safe; see [Describe].
func (e *engine) Settle() error {
	if e.level == holdfast.Power {
		return e.committer.Sync()
	}
	e.settling.Lock()
	defer e.settling.Unlock()

	// What is queued is written first; the sync then covers it.
	if err := e.committer.Flush(); err != nil {
		return err
	}
	if err := e.settle(); err != nil {
		return e.committer.Fail(e.fail("sync", dataDir, err))
	}

	return nil
}

// settle syncs the files that have not been, and the folder, while commits go on.
func (e *engine) settle() error {
	e.mu.RLock()
	index := e.index
	e.mu.RUnlock()

	var keys [][]byte
	c := index.Walk(holdfast.Range{})
	for n := c.Next(); n != nil; n = c.Next() {
		if !n.Value.synced.Load() {
			keys = append(keys, n.Key)
		}

		// Set before the sync, so that the next one does not do it again.
		n.Value.synced.Store(true) // an error poisons
	}
	if err := e.syncKeys(keys); err != nil {
		return err
	}

	// The folder comes after the files: a name must not lead to a file whose content is not there.
	if err := e.syncFolder(); err != nil {
		return err
	}

	return e.datadir.Check()
}

// syncAllFrom is the number of files from which the whole file system is synced instead, where there is a call for it.
const syncAllFrom = 64

// syncKeys syncs the files of keys, or all of the file system if they are many.
func (e *engine) syncKeys(keys [][]byte) error {
	if len(keys) >= syncAllFrom && canSyncAll {
		if err := e.hooks.sync(dataDir); err != nil {
			return err
		}
		e.syncs.Add(1)

		return syncAll(e.folder)
	}

	return parallel(len(keys), func(i int) error {
		name, _ := nameOf(keys[i])

		// Under this name there may be a newer version by now, which does no harm: it is synced too.
		f, err := e.data.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // deleted since
		}
		if err != nil {
			return err
		}

		return errors.Join(e.syncFile(name, f), f.Close())
	})
}

// Measure implements [driver.Core].
func (e *engine) Measure(m *holdfast.Metrics) {
	if !e.readOnly {
		e.committer.Fill(m)
	}
	m.Syncs, m.BytesWritten = e.syncs.Load(), e.written.Load()

	e.mu.RLock()
	defer e.mu.RUnlock()
	const others = 2 // HOLDFAST and LOCK
	m.Files = e.index.Count() + int64(len(e.kept)) + others
	m.MemoryBytes = e.index.Count()*heapPerKey + e.index.Size()
	m.Stalls = 0 // there is no background work
	m.TornBytes = e.torn
}

// Release implements [driver.Core].
func (e *engine) Release(settled error) error {
	e.window.Stop()
	_ = e.committer.Close() // its poison is in settled

	return errors.Join(settled, e.release())
}

// release closes what is open, and gives the lock of the directory back last.
func (e *engine) release() (err error) {
	if e.folder != nil {
		err = e.folder.Close()
	}
	if e.data != nil {
		err = errors.Join(err, e.data.Close())
	}

	return errors.Join(err, e.datadir.Close())
}

// path is the path of a file in the folder, or of the folder itself.
func (e *engine) path(name string) string {
	if name == dataDir {
		return filepath.Join(e.datadir.Dir, dataDir)
	}

	return filepath.Join(e.datadir.Dir, dataDir, name)
}

// unreadable is the error about a file that cannot be read.
func (e *engine) unreadable(op, name string, cause error) error {
	if datadir.OfSystem(cause) {
		return e.fail(op, name, cause)
	}

	return e.corrupt(op, name, cause)
}

// corrupt returns ErrCorrupt for a file of the folder.
func (e *engine) corrupt(op, name string, cause error) error {
	return &holdfast.Error{Op: op, Engine: Name, Path: e.path(name), Class: holdfast.ErrCorrupt, Cause: cause,
		Remedy: "restore the file from a backup, or remove it, which deletes the key"}
}

// fail wraps err in a [holdfast.Error], unless it is one.
func (e *engine) fail(op, name string, err error) error {
	var known *holdfast.Error
	if errors.As(err, &known) {
		return err
	}

	return &holdfast.Error{Op: op, Engine: Name, Path: e.path(name), Cause: err}
}
