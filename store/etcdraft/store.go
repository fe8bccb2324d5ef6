package etcdraft

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/etcdraft/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// Store is an open store of one group. All methods may be called from many goroutines at once.
//
// There is one write at a time. It stores the store's state, in which the ends of the log are, in the same batch as
// what it changes: so what the state does not name counts for nothing, and deleting it can wait. Before a write
// changes what readers see, it hides that from them; when it is done it shows what there is then. Readers look at what
// is shown before they read from the engine and afterwards.
type Store struct {
	eng    holdfast.Engine
	keys   format.Prefix
	meta   []byte // the key of the state
	lease  registry.Lease
	cache  int // bytes
	lazy   holdfast.Level
	awaits bool // a Save at lazy is waited for

	maxValue, maxBatch int64 // bytes
	chunkKeys          int   // removed at a time

	shown atomic.Pointer[view]

	// writing is held by a write from its first look to its end. It covers what follows.
	writing sync.Mutex
	state   format.State // as it is stored
	edits   uint64       // so many writes have hidden something
	batch   holdfast.Batch
	key     []byte
	value   []byte
	receipt holdfast.Receipt // of the last batch

	// life is entered by all calls that use the engine.
	life lifecycle.Life
}

// view is what readers see. It does not change once it is shown.
type view struct {
	index, term, last uint64 // as in format.State
	// tail are the newest entries, up to last; elements behind its length can belong to a later view.
	tail []*raftpb.Entry
	size int // of the tail, in bytes
	// edits differs before and after entries that were shown were replaced, and meanwhile.
	edits uint64

	hard      *raftpb.HardState        // nil for none
	snapshot  *raftpb.SnapshotMetadata // nil for none
	replacing bool                     // the snapshot is being replaced
	conf      *raftpb.ConfState        // nil for that of the snapshot
}

// reserve is an upper bound of what the state, and the deletion of a few keys, take in a batch, and valueReserve of
// what is around a value there, in bytes.
const (
	reserve      = 8 << 10
	valueReserve = 256
)

// Open opens the store of that name in eng, and makes it if it is not there. The engine stays the caller's, and must
// not be closed before the store is.
//
// Open brings what it finds to the store's level. Its time depends neither on the length of the log nor on what was
// deleted, but it reads the snapshot.
//
// Errors: ErrLevel if the engine does not give the level, ErrLocked if the store is open in this engine, ErrVersion if
// a newer program made it, ErrBadOption also for an engine without atomic batches, ErrCorrupt also for an engine with
// [holdfast.Capabilities].Lost, and for a store that was there when a loss was accepted.
func Open(eng holdfast.Engine, o Options) (_ *Store, err error) {
	keys := format.NewPrefix(o.Name)
	lease, err := registry.Claim(eng, registry.Request{
		Kind: "etcdraft", Thing: "store", Name: o.Name, MaxName: MaxNameSize, Level: o.Level,
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

	s := &Store{eng: eng, keys: keys, meta: keys.Meta(), lease: lease, cache: o.CacheBytes, chunkKeys: chunks.Keys}
	if s.cache == 0 {
		s.cache = DefaultCacheBytes
	}
	s.lazy, s.awaits = lazyLevel(lease.Caps, lease.Level)
	s.maxBatch = lease.Caps.MaxBatchSize - reserve
	s.maxValue = min(lease.Caps.MaxValueSize, s.maxBatch-valueReserve)
	if lease.Level < holdfast.Power && o.Logger != nil {
		o.Logger.Warn("etcdraft: unsafe for votes: this level does not survive power loss",
			slog.String("level", lease.Level.String()), slog.String("store", o.Name))
	}
	stale, err := lease.Stale(keys.Prefix)
	if err != nil {
		return nil, err
	}
	if stale {
		return nil, s.fail("open", holdfast.ErrCorrupt, nil, "remove its keys, and make this replica anew from the others "+
			"of its group", "a loss was accepted here: entries and votes that the store has acknowledged may be gone")
	}
	if err := s.load(); err != nil {
		return nil, err
	}

	return s, nil
}

// lazyLevel is the level of a write that need not be synced, in a store at that level, and whether it is waited for:
// not where the engine would sync.
func lazyLevel(caps holdfast.Capabilities, level holdfast.Level) (lazy holdfast.Level, awaits bool) {
	if level <= holdfast.Process {
		return level, true
	}
	if caps.Process.Given == holdfast.Process {
		return holdfast.Process, true
	}
	for _, l := range caps.Levels() { // the weakest
		return l, false
	}

	return level, true
}

// load reads the store, or makes it.
func (s *Store) load() error {
	stored, err := s.eng.Get(nil, s.meta)
	made := errors.Is(err, holdfast.ErrNotFound)
	switch {
	case made:
		s.state = format.State{Low: 1}
		it := s.eng.Scan(s.keys.Log())
		found := it.Next()
		if err := it.Close(); err != nil {
			return err
		}
		if found { // before anything is written, so that a later Open is refused too
			return s.fail("open", holdfast.ErrCorrupt, nil, damaged, "there are entries but no state of the store")
		}
	case err != nil:
		return err
	default:
		if s.state, err = format.DecodeState(s.meta, stored); err != nil {
			return err
		}
	}

	// Everything applied before this commit reaches the level with it and is visible after it: what an earlier process
	// left in the page cache, and what an earlier store of this name applied at a weaker level.
	var b holdfast.Batch
	if s.value, err = format.AppendState(s.value[:0], s.meta, s.state); err != nil {
		return err
	}
	b.Set(s.meta, s.value)
	s.lease.Fresh(&b, s.keys.Prefix)
	full, err := s.lease.Settle(&b)
	if err != nil {
		return err
	}
	if full != nil && made { // otherwise that is there already
		return full
	}

	v := &view{index: s.state.Index, term: s.state.Term, last: s.state.Last, hard: s.state.Hard}
	if s.state.HasSnapshot {
		snap, err := s.readSnapshot(s.state.Snapshot)
		if errors.Is(err, holdfast.ErrNotFound) {
			err = s.fail("open", holdfast.ErrCorrupt, nil, damaged, "there is no snapshot of index %d", s.state.Snapshot)
		}
		if err != nil {
			return err
		}
		v.snapshot = snap.GetMetadata()
	}
	if v.conf, err = s.readConf(); err != nil {
		return err
	}
	if v.last > v.index {
		if _, err := s.readEntry(v.index + 1); err != nil {
			return err
		}
		last, err := s.readEntry(v.last)
		if err != nil {
			return err
		}
		v.extend([]*raftpb.Entry{last}, s.cache)
	}
	s.shown.Store(v)

	return nil
}

// Level is the level the store runs at.
func (s *Store) Level() holdfast.Level { return s.lease.Level }

// Close waits for everything in progress and releases the store's name. The engine stays open. Stop the raft node
// first: it cannot go on without its storage. Close returns the error of what could not be made durable; closing twice
// returns ErrClosed.
func (s *Store) Close() error {
	if !s.life.Shut() {
		return holdfast.ErrClosed
	}
	s.life.Wait()
	err := s.receipt.Wait() // no write is in progress any more
	s.lease.Release()

	return err
}
