package raftlog

import (
	"errors"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// getter is the memory that reading one entry needs.
type getter struct{ key []byte }

// FirstIndex is the index of the first entry, 0 if there is none. It costs a few nanoseconds: the
// engine is not asked.
func (s *Store) FirstIndex() (uint64, error) {
	if s.life.Closed() {
		return 0, holdfast.ErrClosed
	}

	return s.shown().begin, nil
}

// LastIndex is the index of the last entry, 0 if there is none. It costs a few nanoseconds: the
// engine is not asked.
func (s *Store) LastIndex() (uint64, error) {
	if s.life.Closed() {
		return 0, holdfast.ErrClosed
	}
	if b := s.shown(); !b.empty() {
		return b.last(), nil
	}

	return 0, nil
}

// GetLog sets log to the entry at index. The caller owns what it sets; Data and Extensions share one
// allocation and have no spare capacity. AppendedAt is returned as UTC, everything else unchanged:
// nil slices as nil, empty ones as empty.
//
// Errors: raft.ErrLogNotFound as it is if there is no such entry; ErrCorrupt, with the index, if it
// is damaged; ErrPoisoned if it was being overwritten or deleted when a write failed, so that its
// state is unknown; ErrClosed. log is then unchanged.
func (s *Store) GetLog(index uint64, log *raft.Log) error {
	if log == nil {
		return s.fail("get", holdfast.ErrBadOption, nil, "pass a *raft.Log", "nowhere to put entry %d", index)
	}
	if err := s.life.Enter(); err != nil {
		return err
	}
	defer s.life.Leave()

	g := s.getters.Get().(*getter)
	defer s.getters.Put(g)
	keyspace.SetNumber(g.key, index)

	for {
		if !s.there(index) {
			return raft.ErrLogNotFound
		}
		value, err := s.eng.Get(nil, g.key)
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}
		// The edit is checked after the engine was read: if it is settled now, so is what was read.
		if e := s.edit.Load(); e != nil && e.Has(index) && !(err == nil && e.keeps) {
			if err := e.wait(); err != nil {
				return err
			}
			continue
		}
		// And the bounds after the edit. If the entry was deleted meanwhile and another one takes
		// its place, it counts only once its append is shown.
		if err != nil || !s.there(index) {
			return raft.ErrLogNotFound
		}
		if !format.DecodeLog(g.key, value, index, log) {
			return s.fail("get", holdfast.ErrCorrupt, nil, damaged, "entry %d does not read back as it was written", index)
		}

		return nil
	}
}

// there reports whether readers may see an entry at index, if one is there.
func (s *Store) there(index uint64) bool {
	b := s.shown()
	return b.begin <= index && index < b.end && !b.dead.has(index)
}

// StageCommitIndex names the commit index that the next StoreLogs stores, in the same batch. Until
// then it is kept in memory only, and a later call replaces it. Deleting the end of the log lowers it
// to what is left.
func (s *Store) StageCommitIndex(index uint64) error {
	if s.life.Closed() {
		return holdfast.ErrClosed
	}
	s.staged.Store(min(index, noEnd-1) + 1)

	return nil
}

// GetCommitIndex is the commit index as it was stored last, but never above the last index; 0 if
// there is none. A deletion that leaves the last index below it lowers it permanently.
func (s *Store) GetCommitIndex() (uint64, error) {
	if s.life.Closed() {
		return 0, holdfast.ErrClosed
	}
	b := s.shown()
	if b.empty() {
		return 0, nil
	}

	return min(b.commit, b.last()), nil
}
