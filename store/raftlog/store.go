package raftlog

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// Store is an open Raft store. All methods may be called from many goroutines at once.
//
// There are two kinds of writes to the log. An append adds entries above the last one; any number
// of them can be in progress. An edit is everything else: a deletion, or an overwrite. There is one at
// a time, which the lock editing ensures, and readers know which indexes it touches. The entries that
// a large deletion leaves in dead spans are removed in chunks, each of which is an edit of its own.
//
// Invariants: begin and end bound what readers see; all entries within are durable and visible in
// the engine unless the edit in progress touches them. planned is what begin and end will be once
// everything applied so far is durable. An entry exists at either end of both.
type Store struct {
	eng       holdfast.Engine
	caps      holdfast.Capabilities
	level     holdfast.Level
	monotonic bool
	keys      format.Prefix
	metaKey   []byte
	commitKey []byte
	lease     registry.Lease

	maxValue int64 // bytes of an entry's value
	maxBatch int64 // bytes, without what order adds

	encoders sync.Pool // of *encoder
	getters  sync.Pool // of *getter

	// What readers see. It changes under mu; version is odd meanwhile.
	version atomic.Uint64
	begin   atomic.Uint64 // first index
	end     atomic.Uint64 // last index + 1; 0 without entries
	commit  atomic.Uint64 // the commit index as it is stored
	dead    atomic.Pointer[spans]

	edit      atomic.Pointer[edit] // the edit in progress, or the one that failed
	editing   turns                // held by an edit from its first look to the end
	chunkKeys int                  // keys that are removed at a time; changes under editing
	removing  atomic.Bool          // a call is about to remove all dead entries

	// mu covers order alone: it is never held while waiting for a receipt.
	mu        sync.Mutex
	planned   bounds
	seq       uint64           // of the last write to the log applied
	published uint64           // of the last write to the log that readers see
	receipt   holdfast.Receipt // of the last batch applied
	err       error            // the first failed Wait: the engine is poisoned

	staged atomic.Uint64 // commit index to be stored + 1, 0 for none

	stable stable
	// life is entered by calls that use the engine without mu, and shut under mu. After a failed write reads go on.
	life lifecycle.Life
}

// bounds is the state of the log without its entries.
type bounds struct {
	begin, end uint64 // as in Store
	commit     uint64
	dead       *spans // deleted, but not removed yet; changes under editing

	// void is a span behind the last entry, or was: it has no live entries, but many may have been deleted there,
	// which the search for the last entry must not walk over. nil for none.
	void *format.Span
}

func (b bounds) empty() bool  { return b.end == 0 }
func (b bounds) last() uint64 { return b.end - 1 } // not of an empty log

func (b bounds) meta() format.Meta {
	return format.Meta{Entries: !b.empty(), First: b.begin, Void: b.void, Dead: b.dead.list()}
}

// holes are the spans without live entries.
func (b bounds) holes() []format.Span {
	if b.void == nil {
		return b.dead.list()
	}

	return b.dead.with(*b.void).list()
}

// voidStep is by how many indexes, at least, the void span shrinks, so that few appends change it.
const voidStep = 1 << 10

// fill takes out of the void what is stored in span, and all below it.
func (b *bounds) fill(span format.Span) {
	if b.void == nil || !b.void.Meets(span) {
		return
	}
	if b.void.Hi <= span.Hi || b.void.Hi-span.Hi < voidStep {
		b.void = nil
		return
	}
	b.void = &format.Span{Lo: span.Hi + voidStep, Hi: b.void.Hi}
}

// reserve is an upper bound of what the description and the commit index take in a batch, in bytes.
const reserve = 1 << 10

// Open opens the store of that name in eng, and makes it if it is not there. The engine stays the
// caller's, and must not be closed before the store is.
//
// Open brings what it finds to the store's level, so that readers see nothing that a crash could
// take back. Its time depends neither on the length of the log nor on what was deleted.
//
// Errors: ErrLevel if the engine does not give the level, ErrLocked if the store is open in this
// engine, ErrVersion if a newer program made it, ErrBadOption also for an engine without atomic
// batches, ErrCorrupt also for an engine with [holdfast.Capabilities].Lost, for a store that was there when a loss was
// accepted, and for one whose import was not finished.
func Open(eng holdfast.Engine, o Options) (_ *Store, err error) {
	keys := format.NewPrefix(o.Name)
	lease, err := registry.Claim(eng, registry.Request{
		Kind: "raftlog", Thing: "store", Name: o.Name, MaxName: MaxNameSize, Level: o.Level,
		Prefix: string(keys.Prefix), KeySize: keyspace.Overhead + len(o.Name),
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lease.Release()
		}
	}()
	s := &Store{
		eng: eng, lease: lease, caps: lease.Caps, level: lease.Level, monotonic: o.Monotonic,
		keys: keys, metaKey: keys.Meta(), commitKey: keys.Commit(),
		editing: make(turns, 1), chunkKeys: chunks.Keys,
	}
	if s.level < holdfast.Power && o.Logger != nil {
		o.Logger.Warn("raftlog: unsafe for votes: this level does not survive power loss",
			slog.String("level", s.level.String()), slog.String("store", o.Name))
	}
	s.encoders.New = func() any { return &encoder{key: s.keys.Log(nil, 0)} }
	s.getters.New = func() any { return &getter{key: s.keys.Log(nil, 0)} }
	s.maxBatch = s.caps.MaxBatchSize - reserve
	s.maxValue = min(s.caps.MaxValueSize, s.maxBatch-reserve) // and its key
	s.stable.init()
	stale, err := lease.Stale(keys.Prefix)
	if err != nil {
		return nil, err
	}
	if stale {
		return nil, s.fail("open", holdfast.ErrCorrupt, nil, "remove its keys, and make this server anew from the others of "+
			"its cluster", "a loss was accepted here: entries and votes that the store has acknowledged may be gone")
	}
	if err := s.load(); err != nil {
		return nil, err
	}

	return s, nil
}

// load reads or makes the store's description and finds the end of the log.
func (s *Store) load() error {
	switch _, err := s.eng.Get(nil, s.keys.Import()); {
	case err == nil:
		return s.fail("open", holdfast.ErrCorrupt, nil, "import it again", "an import into it was not finished")
	case !errors.Is(err, holdfast.ErrNotFound):
		return err
	}
	stored, err := s.eng.Get(nil, s.metaKey)
	made := errors.Is(err, holdfast.ErrNotFound)
	if err != nil && !made {
		return err
	}
	var m format.Meta
	if !made {
		if m, err = format.DecodeMeta(s.metaKey, stored); err != nil {
			return err
		}
	} else if _, found, err := s.edge(0, noEnd, true); err != nil || found {
		// Checked before anything is written, so that a later Open is refused too.
		if err == nil {
			err = s.fail("open", holdfast.ErrCorrupt, nil, damaged, "there are entries but no description of the store")
		}

		return err
	}

	// Everything applied before this commit reaches the level with it and is visible after it:
	// what an earlier process left in the page cache, and what an earlier store of this name applied
	// at a weaker level.
	var b holdfast.Batch
	b.Set(s.metaKey, format.AppendMeta(nil, s.metaKey, m))
	s.lease.Fresh(&b, s.keys.Prefix)
	full, err := s.lease.Settle(&b)
	if err != nil {
		return err
	}
	if full != nil && made { // otherwise that is there already
		return full
	}
	p := bounds{void: m.Void}
	if m.Dead != nil {
		p.dead = (*spans)(&m.Dead)
	}
	if m.Entries {
		p.begin = m.First
		last, err := s.findLast(m, p.holes())
		if err != nil {
			return err
		}
		p.end = last + 1
	}
	if p.commit, err = s.loadCommit(); err != nil {
		return err
	}
	s.planned = p
	s.show(p)

	return nil
}

// findLast returns the last index of a log with that description, which has entries.
func (s *Store) findLast(m format.Meta, holes []format.Span) (uint64, error) {
	first, found, err := s.edge(m.First, noEnd, false)
	if err == nil && (!found || first != m.First) {
		err = s.fail("open", holdfast.ErrCorrupt, nil, damaged,
			"the log begins at index %d, but there is no such entry", m.First)
	}
	if err != nil {
		return 0, err
	}
	last, _, err := s.live(m.First, noEnd, true, holes)
	if err == nil && last == noEnd {
		err = s.fail("open", holdfast.ErrCorrupt, nil, damaged, "there is an entry at index %d, which is never stored", last)
	}

	return last, err
}

func (s *Store) loadCommit() (uint64, error) {
	stored, err := s.eng.Get(nil, s.commitKey)
	if errors.Is(err, holdfast.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	index, ok := format.DecodeCommit(s.commitKey, stored)
	if !ok {
		return 0, s.fail("open", holdfast.ErrCorrupt, nil, damaged, "the stored commit index is damaged")
	}

	return index, nil
}

// noEnd, as the upper end of a span, means all indexes. No entry has that index.
const noEnd = 1<<64 - 1

// edge returns the first index from lo to hi that has an entry in the engine, or the last.
func (s *Store) edge(lo, hi uint64, last bool) (index uint64, found bool, err error) {
	from, to := s.span(lo, hi)
	it := s.eng.Scan(holdfast.Range{Lo: from, Hi: to, Reverse: last})
	defer it.Close()
	if !it.Next() {
		return 0, false, it.Err()
	}
	index, ok := s.keys.Number(it.Key())
	if !ok {
		return 0, false, s.strange(it.Key())
	}

	return index, true, nil
}

// strange is the error for a key in the table of entries that is not an entry's.
func (s *Store) strange(key []byte) error {
	return s.fail("read", holdfast.ErrCorrupt, nil, damaged, "there is a key %q among the entries", key)
}

// live is edge outside of the holes, which it does not walk over.
func (s *Store) live(lo, hi uint64, last bool, holes []format.Span) (index uint64, found bool, err error) {
	for i := range holes {
		hole := holes[i]
		if last {
			hole = holes[len(holes)-1-i]
		}

		switch {
		case hole.Hi < lo || hole.Lo > hi:
			continue
		case last && hole.Hi < hi:
			index, found, err = s.edge(hole.Hi+1, hi, true)
		case !last && hole.Lo > lo:
			index, found, err = s.edge(lo, hole.Lo-1, false)
		}
		if found || err != nil || last && hole.Lo <= lo || !last && hole.Hi >= hi {
			return index, found, err
		}
		if last {
			hi = hole.Lo - 1
		} else {
			lo = hole.Hi + 1
		}
	}

	return s.edge(lo, hi, last)
}

// span returns the bounds of the keys of the entries from lo to hi.
func (s *Store) span(lo, hi uint64) (from, to []byte) {
	if hi == noEnd {
		_, to = s.keys.Logs()
	} else {
		to = s.keys.Log(nil, hi+1)
	}

	return s.keys.Log(nil, lo), to
}

// IsMonotonic implements [raft.MonotonicLogStore].
func (s *Store) IsMonotonic() bool { return s.monotonic }

// Level is the level the store runs at.
func (s *Store) Level() holdfast.Level { return s.level }

// show makes b what readers see. It is called with mu held, or by Open.
func (s *Store) show(b bounds) {
	s.version.Add(1)
	s.begin.Store(b.begin)
	s.end.Store(b.end)
	s.commit.Store(b.commit)
	s.dead.Store(b.dead)
	s.version.Add(1)
}

// shown returns what readers see.
func (s *Store) shown() bounds {
	v := s.version.Load()
	b := bounds{begin: s.begin.Load(), end: s.end.Load(), commit: s.commit.Load(), dead: s.dead.Load()}
	if v&1 == 0 && s.version.Load() == v {
		return b
	}
	s.mu.Lock() // it is changing: wait for that
	defer s.mu.Unlock()

	return bounds{begin: s.begin.Load(), end: s.end.Load(), commit: s.commit.Load(), dead: s.dead.Load()}
}

// mark is a write to the log that was applied.
type mark struct {
	seq     uint64
	after   bounds
	receipt holdfast.Receipt
}

// applied notes a write to the log, after which its state is b. It is called with mu held.
func (s *Store) applied(receipt holdfast.Receipt, b bounds) {
	s.seq++
	s.planned, s.receipt = b, receipt
}

// mark returns the last write applied. It is called with mu held.
func (s *Store) mark() mark { return mark{s.seq, s.planned, s.receipt} }

// settle waits for m and everything before it, and shows it to readers.
func (s *Store) settle(m mark) error {
	err := m.receipt.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.err == nil {
			s.err = err
		}

		return err
	}
	if m.seq > s.published {
		s.published = m.seq
		s.show(m.after)
	}

	return nil
}

// state returns why the store does nothing more, nil if it works. It is called with mu held.
func (s *Store) state() error {
	if s.life.Closed() {
		return holdfast.ErrClosed
	}

	return s.err
}

// Close waits for everything in progress and releases the store's name. The engine stays open. It returns the error of
// what could not be made durable; closing twice returns ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.life.Shut() {
		s.mu.Unlock()
		return holdfast.ErrClosed
	}
	m := s.mark()
	s.mu.Unlock()
	err := s.settle(m)
	s.life.Wait()
	s.lease.Release()

	return err
}
