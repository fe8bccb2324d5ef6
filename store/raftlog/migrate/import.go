// Package migrate copies what a Raft server has in a raft-boltdb or a raft-wal into a raftlog store.
//
//	result, err := migrate.Import(ctx, "/var/lib/app/raft.db", engine, migrate.Options{})
package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// Options are how a source is imported. The zero value is a safe choice.
type Options struct {
	// Name is that of the store to make, as in raftlog.Options.
	Name string

	// Scratch is a directory that Import makes for a copy of the source, and removes. Empty means one in os.TempDir.
	Scratch string

	// Numbers and Bytes name stable keys of a raft-wal whose values have 8 bytes and are, or are not, numbers that
	// were stored with SetUint64: raft-wal does not tell, and stores them the other way round. The keys of
	// hashicorp/raft itself are known. An 8-byte value of any other key that is in neither list is ErrBadOption.
	Numbers, Bytes []string

	// DropTorn leaves out the end of a raft-wal if it was not written whole, as raft-wal does when it is opened. Without
	// it such an end is ErrCorrupt, because a torn batch, which was never acknowledged, looks like a damaged one, which
	// may have been. Where other batches seem to follow, it is damage, and ErrCorrupt in any case.
	DropTorn bool

	// Progress, unless it is nil, is called now and then, from the goroutine of Import. done counts bytes of the source
	// where of is 0, and else entries.
	Progress func(phase string, done, of int64)
}

// Result is what was imported.
type Result struct {
	Kind        string // of the source, "raft-boltdb" or "raft-wal"
	Entries     int64
	First, Last uint64   // indexes; 0 without entries
	Gaps        int64    // places between First and Last at which indexes are missing
	Bytes       int64    // of the entries' data and extensions
	Keys        []string // names of the stable keys, ascending
	CurrentTerm uint64   // 0 if the source has none
	LastTerm    uint64   // of the last entry
	Dropped     string   // what was left out because of DropTorn; empty if nothing was
	Notes       []string // what else the reader should know, sentences
	Took        time.Duration
}

// batchBytes is how many bytes of entries are stored at once, about.
var batchBytes int64 = 4 << 20

// Import copies the log and the stable keys of a raft-boltdb file or a raft-wal directory into the raftlog store
// o.Name of eng, and compares every entry and key with the source. A directory may hold the wal-meta.db of a raft-wal
// or the raft.db of a raft-boltdb. The source is locked against writers and only read: it is copied to o.Scratch, and
// the copy is opened by the library that wrote it.
//
// The store must not be there yet, or be empty; everything is stored at Power. Until all is compared, whatever becomes
// of the process, raftlog.Open refuses the store with ErrCorrupt. If Import fails or ctx ends, it removes what it has
// stored; if the process ends, the next Import of that store does, and o.Scratch is left.
//
// Every checksum in a raft-wal's segments is compared, so an entry is copied exactly or not at all. A raft-boltdb has
// no checksums but on two pages, and the metadata of a raft-wal, with its stable keys, is such a file: damage that
// turns a value into another plausible one is copied as it is. docs/decisions/0023-migration-by-libraries.md says what
// is found.
//
// Errors: ErrCorrupt names the file and, where it can, the index of what is damaged; ErrLocked: a process has the
// source open for writing, or the store is open in this engine; ErrForeign: it is no source; ErrVersion: its entries
// have a format that raft-wal does not know itself; ErrBadOption: the store is not empty, o.Scratch is there, or a
// stable key is ambiguous; ErrTooLarge: the engine cannot take an entry, which is named; ErrLevel; what ended ctx.
func Import(ctx context.Context, path string, eng holdfast.Engine, o Options) (_ *Result, err error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	im := &importer{ctx: ctx, eng: eng, o: o, keys: format.NewPrefix(o.Name), src: source{path: path}}
	if err := im.prepare(); err != nil {
		return nil, err
	}

	for _, do := range []func() error{im.openSource, im.copy, im.verify, im.store.Close, im.finish} {
		if err = do(); err != nil {
			_ = im.store.Close() // it may be closed
			err = join(err, im.remove())
			break
		}
	}
	err = join(err, im.src.close())
	if err != nil {
		return nil, err
	}
	r := im.src.result
	r.Took = time.Since(began)

	return &r, nil
}

// join returns err alone if nothing else went wrong afterwards.
func join(err, later error) error {
	if later == nil {
		return err
	}

	return errors.Join(err, later)
}

type importer struct {
	ctx   context.Context
	eng   holdfast.Engine
	o     Options
	keys  format.Prefix
	store *raftlog.Store
	src   source
}

func (im *importer) fail(class error, remedy, detail string, args ...any) error {
	return failure.New("import", im.eng.Capabilities().Engine, class, nil, remedy, detail, args...)
}

// prepare opens the store, which must be empty, and marks it as one whose import is not finished.
func (im *importer) prepare() (err error) {
	im.store, err = raftlog.Open(im.eng, raftlog.Options{Name: im.o.Name})
	if errors.Is(err, holdfast.ErrCorrupt) {
		if _, absent := im.eng.Get(nil, im.keys.Import()); absent == nil { // an interrupted import left it
			if err = im.remove(); err == nil {
				im.store, err = raftlog.Open(im.eng, raftlog.Options{Name: im.o.Name})
			}
		}
	}
	if err != nil {
		return err
	}
	if err = im.empty(); err == nil {
		var b holdfast.Batch
		b.Set(im.keys.Import(), nil)
		err = holdfast.Commit(im.eng, &b, holdfast.Power)
	}
	if err != nil {
		err = join(err, im.store.Close())
	}

	return err
}

// empty checks that the store has nothing but its description.
func (im *importer) empty() error {
	lo, hi := im.keys.Bounds()
	it := im.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()

	for it.Next() {
		if !bytes.Equal(it.Key(), im.keys.Meta()) {
			return im.fail(holdfast.ErrBadOption, "name another store (--name), or another directory",
				"the store %q is not empty; %s", im.o.Name, raftlog.OtherStores(im.eng))
		}
	}

	return it.Err()
}

// remove takes away the store with all that is in it.
func (im *importer) remove() error {
	var b holdfast.Batch
	b.DeleteRange(im.keys.Bounds())
	if err := holdfast.Commit(im.eng, &b, holdfast.Power); err != nil {
		return fmt.Errorf("what was copied is still there, and unfinished: %w", err)
	}

	return nil
}

// progress returns what counts the bytes or entries of a phase, reports them now and then, and ends it when ctx does.
func (im *importer) progress(phase string, of int64) func(done, bytes int64) error {
	var total, untold int64

	return func(done, bytes int64) error {
		total += done
		if untold += bytes; untold < 1<<18 && (of == 0 || total < of) {
			return nil
		}
		untold = 0
		if im.o.Progress != nil {
			im.o.Progress(phase, total, of)
		}

		return im.ended()
	}
}

// ended returns the error for a ctx that has ended.
func (im *importer) ended() error {
	if im.ctx.Err() == nil {
		return nil
	}

	return &holdfast.Error{Op: "import", Path: im.src.path, Cause: context.Cause(im.ctx)}
}

func (im *importer) openSource() (err error) {
	if im.o.Scratch == "" {
		im.src.scratch, err = os.MkdirTemp("", "holdfast-import-*")
	} else if err = os.Mkdir(im.o.Scratch, 0o700); err == nil {
		im.src.scratch = im.o.Scratch
	}

	switch {
	case errors.Is(err, fs.ErrExist):
		return im.fail(holdfast.ErrBadOption, "remove it if an interrupted import has left it",
			"the copy of the source: %v", err)
	case err != nil:
		return &holdfast.Error{Op: "import", Path: im.o.Scratch, Detail: "the copy of the source", Cause: err}
	}

	return im.src.open(&im.o, im.progress("copy the source", 0))
}

// walk calls do for every entry of the source, in order.
func (im *importer) walk(phase string, do func(*raft.Log) error) error {
	p := im.progress(phase, im.src.result.Entries)

	return im.src.walk(func(log *raft.Log) error {
		if err := do(log); err != nil {
			return err
		}

		return p(1, size(log)+256)
	})
}

// copy stores the entries and the stable keys.
func (im *importer) copy() error {
	var batch []*raft.Log
	held := int64(0)
	err := im.walk("copy", func(log *raft.Log) (err error) {
		if held += format.LogSize(log); held > batchBytes {
			err = im.store.StoreLogs(batch)
			batch, held = batch[:0], format.LogSize(log)
		}
		batch = append(batch, log)

		return err
	})
	if err == nil {
		err = im.store.StoreLogs(batch)
	}

	for _, k := range im.src.keys {
		if err == nil {
			err = im.store.Set(k.name, k.value)
		}
	}

	return err
}

// verify compares every entry and stable key of the source with what the engine has, and looks for others.
func (im *importer) verify() error {
	if err := im.walk("verify", func(log *raft.Log) error {
		var got raft.Log
		if err := im.store.GetLog(log.Index, &got); err != nil {
			return im.wrong("index %d: %v", log.Index, err)
		}
		if log.AppendedAt = log.AppendedAt.UTC(); !reflect.DeepEqual(*log, got) {
			return im.wrong("index %d differs", log.Index)
		}

		return nil
	}); err != nil {
		return err
	}

	for _, k := range im.src.keys {
		key := im.keys.Stable(nil, k.name)
		stored, err := im.eng.Get(nil, key) // the store has it in memory
		if value, ok := format.DecodeStable(key, stored); err != nil || !ok || !bytes.Equal(value, k.value) {
			return im.wrong("the stable key %+q is missing or differs", k.name)
		}
	}
	lo, hi := im.keys.Bounds()
	it := im.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()

	there, want := int64(0), 2+im.src.result.Entries+int64(len(im.src.keys)) // with the description and the mark
	for it.Next() {
		there++
	}
	if there != want && it.Err() == nil {
		return im.wrong("it has %d keys in the engine, and should have %d", there, want)
	}

	return it.Err()
}

func (im *importer) wrong(detail string, args ...any) error {
	return im.fail(holdfast.ErrCorrupt, "check the engine's device", "the copy: "+detail, args...)
}

// finish makes of it a store that can be opened, and opens it as raft will.
func (im *importer) finish() error {
	if err := im.ended(); err != nil {
		return err
	}
	var b holdfast.Batch
	b.Delete(im.keys.Import())
	if err := holdfast.Commit(im.eng, &b, holdfast.Power); err != nil {
		return err
	}
	in, err := raftlog.Inspect(im.eng, im.o.Name, false)
	if err != nil {
		return err
	}
	if want := &im.src.result; in.First != want.First || in.Last != want.Last {
		return im.wrong("it goes from index %d to %d, and should from %d to %d",
			in.First, in.Last, want.First, want.Last)
	}

	return nil
}
