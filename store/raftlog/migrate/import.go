// Package migrate copies what a Raft server has in a raft-boltdb or a raft-wal into a raftlog store.
package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// DefaultBatchBytes is how many bytes of entries are written at once, about, where Options say nothing.
const DefaultBatchBytes = 4 << 20

// Options are how a source is imported. The zero value is a safe choice.
type Options struct {
	// Name is that of the store to make, as in raftlog.Options.
	Name string

	// Numbers and Bytes name stable keys of a raft-wal whose values have 8 bytes and are, or are not, numbers that
	// were stored with SetUint64: raft-wal does not tell, and stores them the other way round. The keys of
	// hashicorp/raft itself are known. An 8-byte value of any other key that is in neither list is ErrBadOption.
	Numbers, Bytes []string

	// DropTorn leaves out the end of a raft-wal if it was not written whole, as raft-wal does when it is opened. Without
	// it such an end is ErrCorrupt, because a torn batch, which nobody was told is safe, looks like a damaged one, which
	// may have been acknowledged. Where sound entries follow, or that cannot be told, it is damage, and ErrCorrupt in any case.
	DropTorn bool

	// BatchBytes is how many bytes of entries are written at once, about; 0 means DefaultBatchBytes. A batch holds one
	// entry at least, and what the engine takes at once at most.
	BatchBytes int

	// Progress is called now and then, from the goroutine of Import; nil is not.
	Progress func(Progress)
}

// Phase is what an import is doing.
type Phase string

// The phases, in their order.
const (
	Checking  Phase = "check"  // the source is read
	Copying   Phase = "copy"   // and copied
	Verifying Phase = "verify" // and compared with the copy
)

// Progress is how far an import is.
type Progress struct {
	Phase   Phase
	Entries int64 // done in this phase
	Of      int64 // of so many; 0 while that is not known
	Bytes   int64 // of the source that were read before its entries can be counted; 0 from then on
}

// Result is what was imported.
type Result struct {
	Kind        Kind
	Source      string
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

// Import copies the log and the stable keys of a raft-boltdb file or a raft-wal directory into the raftlog store o.Name
// of eng, and compares every entry and key with the source. Which of the two source is, and where in a directory, is told by
// what is in it: a directory may hold the wal-meta.db of a raft-wal or the raft.db of a raft-boltdb. The source is only
// read, and locked against writers meanwhile.
//
// The store must not be there yet, or be empty, and nobody may use it until Import returns; the engine must give Power,
// at which everything is stored. The store's description is written last, together with the stable keys: until then, and
// whatever becomes of the process, raftlog.Open refuses the store with ErrCorrupt. If Import fails or ctx ends, it removes
// what it has stored; if the process ends, the next Import of that store does.
//
// Every checksum in a raft-wal's segments is checked, so an entry is copied exactly or not at all; but a last segment that
// holds nothing but zeros is one that was made and never written. A raft-boltdb has no checksums, and neither has the
// metadata of a raft-wal, with its stable keys: whatever breaks the structure of the file or of an entry, the order of
// indexes and terms, or what raft keeps true between its terms and votes, is found, but damage that turns a value into another
// plausible one is copied as it is.
//
// Errors: ErrCorrupt names the index where the source is damaged; ErrLocked: a process has the source open for
// writing, or the store is open in this engine; ErrForeign: it is no source; ErrVersion: it has entries in a
// format that raft-wal does not know itself; ErrBadOption: the store is not empty, or a stable key is ambiguous;
// ErrTooLarge: the engine cannot take an entry, which is named; ErrLevel; what ended ctx.
func Import(ctx context.Context, path string, eng holdfast.Engine, o Options) (_ *Result, err error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	im := importer{ctx: ctx, eng: eng, o: o}
	if err := im.prepare(); err != nil {
		return nil, err
	}
	if im.src, err = openSource(path, &o, im.reading()); err != nil {
		return nil, err
	}
	defer func() {
		if closed := im.src.close(); err == nil && closed != nil {
			err = &holdfast.Error{Op: "import", Path: path, Cause: closed}
		}
	}()
	if err := im.src.check(im.step(Checking)); err != nil {
		return nil, err
	}
	if err := im.begin(); err != nil {
		return nil, err
	}
	for _, do := range []func() error{im.copy, im.verify, im.finish, im.verifyStore} {
		if err := do(); err != nil {
			if left := im.remove(); left != nil {
				err = errors.Join(err, left)
			}
			return nil, err
		}
	}
	return im.result(path, time.Since(began)), nil
}

type importer struct {
	ctx  context.Context
	eng  holdfast.Engine
	o    Options
	src  *source
	caps holdfast.Capabilities
	keys format.Prefix
	mark []byte // the key that says that the store is being imported
}

func (im *importer) fail(class error, remedy, detail string, args ...any) error {
	return &holdfast.Error{Op: "import", Engine: im.caps.Engine, Class: class, Detail: fmt.Sprintf(detail, args...), Remedy: remedy}
}

// markOf returns the key that is there while a store is being imported: behind all entries, and no entry's, so that
// raftlog.Open, which looks for the last entry of a store without a description, refuses it even while there is no other.
func markOf(keys format.Prefix) []byte {
	return append(keys.Log(nil, 1<<64-1), "import"...)
}

// prepare checks everything that does not need the source.
func (im *importer) prepare() error {
	if im.eng == nil {
		return im.fail(holdfast.ErrBadOption, "pass an open engine", "there is no engine")
	}
	im.caps = im.eng.Capabilities()
	switch {
	case len(im.o.Name) > raftlog.MaxNameSize:
		return im.fail(holdfast.ErrBadOption, fmt.Sprintf("use at most %d", raftlog.MaxNameSize), "the name has %d bytes", len(im.o.Name))
	case im.o.BatchBytes < 0:
		return im.fail(holdfast.ErrBadOption, "use 0 for the default", "batches of %d bytes", im.o.BatchBytes)
	case im.caps.Power.Given != holdfast.Power:
		return im.fail(holdfast.ErrLevel, "use an engine that gives power", "a server's votes must survive power loss, and it gives %v", im.caps.Strongest())
	case !im.caps.AtomicBatches:
		return im.fail(holdfast.ErrBadOption, "use another engine", "a crash can tear a batch of this engine")
	}
	for _, name := range im.o.Numbers {
		if slices.Contains(im.o.Bytes, name) {
			return im.fail(holdfast.ErrBadOption, "name it once", "the stable key %s is named as a number and as bytes", quote([]byte(name)))
		}
	}
	if im.o.BatchBytes == 0 {
		im.o.BatchBytes = DefaultBatchBytes
	}
	im.o.BatchBytes = int(min(int64(im.o.BatchBytes), im.caps.MaxBatchSize/2))
	im.keys = format.NewPrefix(im.o.Name)
	im.mark = markOf(im.keys)
	return im.empty()
}

// bounds are those of all keys of the store.
func (im *importer) bounds() (lo, hi []byte) {
	hi = bytes.Clone(im.keys)
	for i := len(hi) - 1; ; i-- { // the first byte is a letter
		if hi[i]++; hi[i] != 0 {
			return im.keys, hi[:i+1]
		}
	}
}

// empty finds out whether the store may be made, without changing what is in it.
func (im *importer) empty() error {
	described, err := has(im.eng, im.keys.Meta())
	if err != nil {
		return err
	}
	marked, err := has(im.eng, im.mark)
	if err != nil {
		return err
	}
	if marked && !described { // what an import has left: nobody could open it since
		return nil
	}
	if described {
		s, err := raftlog.Open(im.eng, raftlog.Options{Name: im.o.Name})
		if err != nil {
			return err
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	lo, hi := im.bounds()
	it := im.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	for it.Next() {
		if !bytes.Equal(it.Key(), im.keys.Meta()) {
			others, err := others(im.eng)
			if err != nil {
				return err
			}
			return im.fail(holdfast.ErrBadOption, "name another store (--name), or another directory", "the store %q is not empty; %s", im.o.Name, others)
		}
	}
	return it.Err()
}

func has(r holdfast.Reader, key []byte) (bool, error) {
	_, err := r.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// begin takes away what an interrupted import has left and marks the store.
func (im *importer) begin() error {
	var b holdfast.Batch
	b.DeleteRange(im.bounds())
	b.Set(im.mark, fmt.Appendf(nil, "import of a %s, not finished", im.src.kind))
	return holdfast.Commit(im.eng, &b, holdfast.Power)
}

// remove takes away what this import has stored.
func (im *importer) remove() error {
	var b holdfast.Batch
	b.DeleteRange(im.bounds())
	if err := holdfast.Commit(im.eng, &b, holdfast.Power); err != nil {
		return fmt.Errorf("what was copied is still there, and unfinished: %w", err)
	}
	return nil
}

// reading returns what a source tells of its reads. It ends them when ctx does, and while there are no entries to be
// counted yet, it says how many bytes were read.
func (im *importer) reading() func(int64) error {
	p := Progress{Phase: Checking}
	var told int64
	return func(n int64) error {
		if im.ctx.Err() != nil {
			return context.Cause(im.ctx)
		}
		if im.src != nil || im.o.Progress == nil {
			return nil
		}
		if p.Bytes += n; p.Bytes-told >= 1<<18 {
			told = p.Bytes
			im.o.Progress(p)
		}
		return nil
	}
}

// step returns what counts the entries of a phase, and ends it when ctx does.
func (im *importer) step(phase Phase) func(*raft.Log) error {
	p := Progress{Phase: phase}
	if phase != Checking {
		p.Of = im.src.entries
	}
	var unseen int64 // bytes since ctx was asked
	return func(log *raft.Log) error {
		p.Entries++
		unseen += size(log) + 256
		if unseen < 1<<18 && p.Entries != p.Of {
			return nil
		}
		unseen = 0
		if im.o.Progress != nil {
			im.o.Progress(p)
		}
		if im.ctx.Err() != nil {
			return &holdfast.Error{Op: "import", Path: im.src.path, Cause: context.Cause(im.ctx)}
		}
		return nil
	}
}

// copy stores the entries. They need not be durable before the last batch is, which makes everything before it so.
func (im *importer) copy() error {
	level := holdfast.Power
	for _, l := range holdfast.Levels() {
		if im.caps.Promise(l).Given != 0 {
			level = l
			break
		}
	}
	var b holdfast.Batch
	flush := func() error {
		if b.Len() == 0 {
			return nil
		}
		err := holdfast.Commit(im.eng, &b, level)
		b.Reset()
		return err
	}
	limit := min(im.caps.MaxValueSize, im.caps.MaxBatchSize-2<<10)
	var key, value []byte
	step := im.step(Copying)
	err := im.src.walk(func(log *raft.Log) error {
		n := format.LogSize(log)
		if n > limit {
			return im.fail(holdfast.ErrTooLarge, "import into an engine that takes larger values", "the entry of index %d takes %d bytes, the limit is %d", log.Index, n, limit)
		}
		if b.Len() > 0 && int64(b.Size())+n > int64(im.o.BatchBytes) {
			if err := flush(); err != nil {
				return err
			}
		}
		key = im.keys.Log(key, log.Index)
		value = format.AppendLog(value[:0], key, log)
		if b.Set(key, value); b.Err() != nil {
			return b.Err()
		}
		if cap(value) > 1<<20 {
			value = nil
		}
		return step(log)
	})
	if err != nil {
		return err
	}
	return flush()
}

// verify compares every entry of the source with what the engine has, and sees that it has no others.
func (im *importer) verify() error {
	lo, hi := im.keys.Logs()
	it := im.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	wrong := func(index uint64, detail string) error {
		return im.fail(holdfast.ErrCorrupt, "check the engine's device", "index %d: the copy %s", index, detail)
	}
	step := im.step(Verifying)
	err := im.src.walk(func(log *raft.Log) error {
		if !it.Next() {
			if err := it.Err(); err != nil {
				return err
			}
			return wrong(log.Index, "is not there")
		}
		var got raft.Log
		index, ok := im.keys.Index(it.Key())
		if !ok || index != log.Index {
			return wrong(log.Index, fmt.Sprintf("is not there; %s is", quote(it.Key())))
		}
		if !format.DecodeLog(it.Key(), it.Value(), index, &got) {
			return wrong(index, "cannot be read")
		}
		if field, ok := same(log, &got); !ok {
			return wrong(index, "differs in "+field)
		}
		return step(log)
	})
	switch {
	case err != nil:
		return err
	case !it.Next() && it.Err() == nil:
		return wrong(im.src.last, "has lost the mark behind it")
	case it.Err() == nil && !bytes.Equal(it.Key(), im.mark) || it.Next():
		return wrong(im.src.last, fmt.Sprintf("has something behind it: %s", quote(it.Key())))
	}
	return it.Err()
}

// finish makes a store of it, durably and at once.
func (im *importer) finish() error {
	if im.ctx.Err() != nil {
		return &holdfast.Error{Op: "import", Path: im.src.path, Cause: context.Cause(im.ctx)}
	}
	var b holdfast.Batch
	for _, k := range im.src.keys {
		key := im.keys.Stable(nil, k.name)
		if int64(len(key)) > im.caps.MaxKeySize {
			return im.fail(holdfast.ErrTooLarge, "import into an engine that takes longer keys", "the stable key %s has %d bytes", quote(k.name), len(k.name))
		}
		b.Set(key, format.AppendStable(nil, key, k.value))
	}
	meta := im.keys.Meta()
	b.Set(meta, format.AppendMeta(nil, meta, format.Meta{Entries: im.src.entries > 0, First: im.src.first}))
	b.Delete(im.mark)
	return holdfast.Commit(im.eng, &b, holdfast.Power)
}

// verifyStore opens the store as raft will, and compares what it says.
func (im *importer) verifyStore() (err error) {
	s, err := raftlog.Open(im.eng, raftlog.Options{Name: im.o.Name})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	wrong := func(detail string, args ...any) error {
		return im.fail(holdfast.ErrCorrupt, "check the engine's device", "the copy: %s", fmt.Sprintf(detail, args...))
	}
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	if first != im.src.first || last != im.src.last {
		return wrong("it goes from index %d to %d, and should from %d to %d", first, last, im.src.first, im.src.last)
	}
	for _, index := range []uint64{first, last} {
		var log raft.Log
		if err := s.GetLog(index, &log); im.src.entries > 0 && (err != nil || log.Index != index) {
			return wrong("index %d: the store says %v", index, err)
		}
	}
	keys, err := s.Keys()
	if err != nil {
		return err
	}
	if len(keys) != len(im.src.keys) {
		return wrong("it has %d stable keys, and should have %d", len(keys), len(im.src.keys))
	}
	for i, k := range im.src.keys {
		got, err := s.Get(k.name)
		if err != nil || !bytes.Equal(keys[i], k.name) || !bytes.Equal(got, k.value) {
			return wrong("the stable key %s differs: %v", quote(k.name), err)
		}
	}
	return nil
}

func (im *importer) result(path string, took time.Duration) *Result {
	r := &Result{
		Kind: im.src.kind, Source: path, Entries: im.src.entries, First: im.src.first, Last: im.src.last, Gaps: im.src.gaps, Bytes: im.src.bytes,
		LastTerm: im.src.term, Notes: im.src.notes, Took: took,
	}
	r.CurrentTerm, _ = im.src.number(currentTerm)
	for _, k := range im.src.keys {
		r.Keys = append(r.Keys, string(k.name))
	}
	if im.src.wal != nil {
		r.Dropped = im.src.wal.dropped
	}
	return r
}
