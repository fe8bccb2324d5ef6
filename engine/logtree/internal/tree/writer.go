package tree

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/vfs"
)

// Files is where tables are. Its functions are called from many goroutines.
type Files struct {
	FS     vfs.FS
	Open   *files.Set // of the tables, and what else the database reads
	Dir    string
	DB     format.DatabaseID
	Cache  *table.Cache
	Limit  atomic.Int64           // bytes of a file, roughly
	Number func() (uint32, error) // of a new file
	Return func(uint32)           // a number whose file is gone, and never was complete
	Synced func(bytes int64)      // so many were written, and are synced
	Remove func(name string)      // a file that is not needed
	Free   func(*Table)           // see NewTable
	InTurn bool                   // nothing is done beside what calls do
}

// OpenTable opens the table of that number, which is not empty.
func (f *Files) OpenTable(id uint64) (*Table, error) {
	name := format.TableName(f.Dir, id)
	r, err := table.Open(f.FS, f.Open, name, table.Identity{DB: f.DB, ID: id}, f.Cache)
	if err != nil {
		return nil, err
	}
	if r.Info().Entries == 0 {
		_ = r.Close() // nothing was written through it
		return nil, format.Corrupt(name, 0, "it is empty", nil)
	}
	t := NewTable(id, r, f.Free)
	t.mostWear = t.Info.FileBytes + f.Limit.Load()/8

	return t, nil
}

// Writer writes entries to tables of limited size. It is for one goroutine. After an error, and until a version
// has what it wrote, Abandon undoes everything.
type Writer struct {
	Tables []*Table // complete; they and their names are durable after Close

	// Of so many sampled keys that Flush wrote, as many as filters say were there before.
	Sampled, Replaced int64

	files *Files
	w     *table.Writer // nil between files
	file  vfs.File      // of w
	id    uint64        // of file
	done  int64         // bytes of Tables

	syncing []chan error // of Tables, one for each
}

// NewWriter returns a writer that has written nothing.
func (f *Files) NewWriter() *Writer { return &Writer{files: f} }

// Written is about how many bytes were written.
func (w *Writer) Written() int64 {
	if w.w == nil {
		return w.done
	}

	return w.done + w.w.Size()
}

// Add appends an entry; keys ascend.
func (w *Writer) Add(key []byte, e table.Entry) error {
	f := w.files
	if w.w != nil && w.w.Size() >= f.Limit.Load() {
		if err := w.finish(); err != nil {
			return err
		}
	}
	if w.w == nil {
		n, err := f.Number()
		if err != nil {
			return err
		}
		w.id = uint64(n)
		name := format.TableName(f.Dir, w.id)

		// A file of that number can only be left over from a crash: numbers are not given out twice.
		f.FS.Remove(name)
		if w.file, err = f.FS.Create(name); err != nil {
			return format.IOError("create", name, err)
		}
		w.w = table.NewWriter(w.file, table.Identity{DB: f.DB, ID: w.id})
	}
	if err := w.w.Add(key, e); err != nil {
		return format.IOError("write", w.file.Name(), err)
	}

	return nil
}

// finish completes the present file.
func (w *Writer) finish() error {
	if w.w == nil {
		return nil
	}
	info, err := w.w.Finish(0)
	if err != nil {
		return format.IOError("write", w.file.Name(), err)
	}

	// It is opened through the set of files that may be closed.
	t, err := w.files.OpenTable(w.id)
	if err != nil {
		return err
	}
	w.Tables = append(w.Tables, t)
	w.done += info.FileBytes
	w.sync(info.FileBytes)
	w.w, w.file = nil, nil

	return nil
}

// sync has the file synced, and closed, while the caller goes on: Close waits for it.
func (w *Writer) sync(bytes int64) {
	f, done := w.file, make(chan error, 1)
	w.syncing = append(w.syncing, done)
	w.files.Synced(bytes)
	sync := func() {
		err := f.Sync()
		if err != nil {
			err = format.IOError("sync", f.Name(), err)
		}
		_ = f.Close() // what was written is synced
		done <- err
	}
	if w.files.InTurn {
		sync()
	} else {
		go sync()
	}
}

// synced waits until all complete tables are synced.
func (w *Writer) synced() (err error) {
	for _, done := range w.syncing {
		err = errors.Join(err, <-done)
	}
	w.syncing = nil

	return err
}

// Close completes the last file and makes the names durable.
func (w *Writer) Close() error {
	if err := w.finish(); err != nil {
		return err
	}
	if err := w.synced(); err != nil || len(w.Tables) == 0 {
		return err
	}
	w.files.Synced(0)
	if err := w.files.FS.SyncDir(w.files.Dir); err != nil {
		return format.IOError("sync", w.files.Dir, err)
	}

	return nil
}

// Abandon removes what was written.
func (w *Writer) Abandon() {
	_ = w.synced() // it is removed
	if w.w != nil {
		w.file.Close()
		w.files.Remove(format.TableName(w.files.Dir, w.id))
		w.files.Return(uint32(w.id))
	}

	for _, t := range w.Tables {
		t.Close()
		w.files.Remove(format.TableName(w.files.Dir, t.ID))
	}
}

// yieldEvery is how many entries flushes and compactions write before they let others run: commits, whose pauses would
// else be as long as such a goroutine keeps its processor.
const yieldEvery = 256

// Flush writes the newest versions of a memtable's keys, and begins to sync the tables. What a range delete of the same
// memtable or a newer one covers is left out, and so are tombstones of keys that no table of v can have. place says
// where a value of the index's image is.
func (w *Writer) Flush(m Memtable, place func(*memtable.Version) (uint64, error), newer []*RangeTombstones,
	v *Version) error {
	it := m.Index.Iter(math.MaxUint64)
	var x memtable.Version // one for all keys, because place gets a pointer to it, which keeps it on the heap
	entries := 0

	for ok := it.First(); ok; ok = it.Next() {
		it.Expect()
		x = it.Version()

		// One key in yieldEvery is a sample: how often flushes replace what is there tells how much garbage they make.
		if entries++; entries%yieldEvery == 0 {
			runtime.Gosched()
			w.Sampled++
			if v.MayHave(x.Key) {
				w.Replaced++
			}
		}
		if m.Tombstones.Covers(x.Key) > x.Seq ||
			slices.ContainsFunc(newer, func(ts *RangeTombstones) bool { return ts.Find(x.Key) != nil }) {
			continue
		}

		var e table.Entry
		switch {
		// A tombstone is of use only if an older table may have the key.
		case x.Kind == holdfast.KindDelete:
			if !v.MayHave(x.Key) {
				continue
			}
			e.Tombstone = true
		case x.InLog:
			e = table.Entry{Place: x.Pointer.At, Len: x.Pointer.Len, Sum: x.Pointer.Sum}
		default:
			at, err := place(&x)
			if err != nil {
				return err
			}
			e = table.Entry{Place: at, Len: uint32(len(x.Value)), Sum: format.Checksum(x.Value)}
		}
		if err := w.Add(x.Key, e); err != nil {
			return err
		}
	}

	return w.finish()
}
