package etcdraft

import (
	"errors"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/etcdraft/internal/format"
)

// InitialState implements [raft.Storage]: what the last Save had of a hard state, nil if none had, and the conf state
// that was kept by PutConfState, or else that of the snapshot.
func (s *Store) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	if s.life.Closed() {
		return nil, nil, holdfast.ErrClosed
	}
	v := s.shown.Load()
	conf := v.conf
	if conf == nil {
		conf = v.snapshot.GetConfState()
	}
	var hard *raftpb.HardState
	if v.hard != nil {
		hard = proto.Clone(v.hard).(*raftpb.HardState)
	}
	if conf != nil {
		conf = proto.Clone(conf).(*raftpb.ConfState)
	}

	return hard, raftpb.EnsureConfState(conf), nil
}

// FirstIndex implements [raft.Storage].
func (s *Store) FirstIndex() (uint64, error) {
	if s.life.Closed() {
		return 0, holdfast.ErrClosed
	}

	return s.shown.Load().index + 1, nil
}

// LastIndex implements [raft.Storage].
func (s *Store) LastIndex() (uint64, error) {
	if s.life.Closed() {
		return 0, holdfast.ErrClosed
	}

	return s.shown.Load().last, nil
}

// Term implements [raft.Storage]. Errors: raft.ErrCompacted and raft.ErrUnavailable as they are; ErrCorrupt, with the
// index, if the entry is damaged; ErrClosed.
func (s *Store) Term(index uint64) (uint64, error) {
	if err := s.life.Enter(); err != nil {
		return 0, err
	}
	defer s.life.Leave()

	return s.termOf(index)
}

func (s *Store) termOf(index uint64) (uint64, error) {
	for {
		v := s.shown.Load()
		if index == v.index {
			return v.term, nil
		}
		entries, err := s.entries(index, index+1, 0)
		if err == nil {
			return entries[0].GetTerm(), nil
		}
		if err != raft.ErrCompacted || s.shown.Load().index == v.index { // otherwise it was compacted up to there meanwhile
			return 0, err
		}
	}
}

// Entries implements [raft.Storage]: entries from lo to before hi, as many as take maxSize bytes in raft's encoding,
// but one at least. The slice is the caller's, the entries must not be changed.
//
// Errors: raft.ErrCompacted if the entry at lo was compacted and raft.ErrUnavailable if the log ends before hi, as they
// are; ErrCorrupt, with the index, if an entry is damaged; ErrClosed.
func (s *Store) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if err := s.life.Enter(); err != nil {
		return nil, err
	}
	defer s.life.Leave()

	return s.entries(lo, hi, maxSize)
}

func (s *Store) entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	for {
		v := s.shown.Load()
		if err := v.check(lo, hi); err != nil {
			return nil, err
		}
		if lo >= v.tailFrom() || lo == hi {
			return slices.Clone(limit(v.tailOf(lo, hi), maxSize)), nil
		}
		list, err := s.scan(lo, min(hi, v.tailFrom()), maxSize)
		// Whatever was deleted or replaced while the engine was read was hidden before. If nothing was, what was read is
		// what was shown.
		now := s.shown.Load()
		if err := now.check(lo, hi); err != nil {
			return nil, err
		}
		if now.edits != v.edits {
			continue
		}
		if err != nil {
			return nil, err
		}
		if next := lo + uint64(len(list)); next == v.tailFrom() && next < hi {
			list = append(list, v.tailOf(next, hi)...)
		}

		return limit(list, maxSize), nil
	}
}

// check says what is wrong with asking for the entries from lo to before hi.
func (v *view) check(lo, hi uint64) error {
	switch {
	case lo <= v.index:
		return raft.ErrCompacted
	case hi > v.last+1 || lo > hi || v.last == v.index:
		return raft.ErrUnavailable
	}

	return nil
}

// tailFrom is the first index of the tail.
func (v *view) tailFrom() uint64 { return v.last + 1 - uint64(len(v.tail)) }

// tailOf are the entries of the tail from lo to before hi.
func (v *view) tailOf(lo, hi uint64) []*raftpb.Entry {
	if lo == hi {
		return nil
	}

	return v.tail[lo-v.tailFrom() : hi-v.tailFrom()]
}

// limit returns the first entries that take at most so many bytes, but one at least.
func limit(entries []*raftpb.Entry, maxSize uint64) []*raftpb.Entry {
	var size uint64
	for i, e := range entries {
		if size += uint64(proto.Size(e)); size > maxSize && i > 0 {
			return entries[:i]
		}
	}

	return entries
}

// scan reads entries from the engine until they take more than so many bytes.
func (s *Store) scan(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if hi == lo+1 {
		e, err := s.readEntry(lo)
		return []*raftpb.Entry{e}, err
	}
	it := s.eng.Scan(s.keys.Entries(lo, hi-1))
	defer it.Close()

	var list []*raftpb.Entry
	var size uint64
	for it.Next() {
		want := lo + uint64(len(list))
		if index, ok := s.keys.Number(it.Key()); !ok || index != want {
			return nil, s.missing(want)
		}
		e, err := s.decodeEntry(it.Key(), it.Value(), want)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
		if size += uint64(proto.Size(e)); size > maxSize || want+1 == hi {
			return list, nil
		}
	}
	if err := it.Err(); err != nil {
		return nil, err
	}

	return nil, s.missing(lo + uint64(len(list)))
}

func (s *Store) missing(index uint64) error {
	return s.fail("read", holdfast.ErrCorrupt, nil, damaged, "entry %d is not there", index)
}

func (s *Store) readEntry(index uint64) (*raftpb.Entry, error) {
	key := s.keys.Entry(nil, index)
	value, err := s.eng.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, s.missing(index)
	}
	if err != nil {
		return nil, err
	}

	return s.decodeEntry(key, value, index)
}

func (s *Store) decodeEntry(key, value []byte, index uint64) (*raftpb.Entry, error) {
	e := new(raftpb.Entry)
	if !format.DecodeMessage(key, value, e) || e.GetIndex() != index {
		return nil, s.fail("read", holdfast.ErrCorrupt, nil, damaged, "entry %d does not read back as it was written", index)
	}

	return e, nil
}

// Snapshot implements [raft.Storage]: the newest one that was saved, applied or created; an empty one if there is none.
//
// Errors: raft.ErrSnapshotTemporarilyUnavailable, as it is, while a write replaces it; ErrCorrupt; ErrClosed.
func (s *Store) Snapshot() (*raftpb.Snapshot, error) {
	if err := s.life.Enter(); err != nil {
		return nil, err
	}
	defer s.life.Leave()

	for {
		v := s.shown.Load()
		if v.snapshot == nil {
			return raftpb.EnsureSnapshot(nil), nil
		}
		snap, err := s.readSnapshot(v.snapshot.GetIndex())
		if !errors.Is(err, holdfast.ErrNotFound) {
			return snap, err
		}
		switch now := s.shown.Load(); {
		case now.replacing:
			return nil, raft.ErrSnapshotTemporarilyUnavailable
		case now.snapshot.GetIndex() == v.snapshot.GetIndex():
			return nil, s.fail("read", holdfast.ErrCorrupt, nil, damaged, "there is no snapshot of index %d",
				v.snapshot.GetIndex())
		}
	}
}

// readSnapshot returns the snapshot of that index. The error is ErrNotFound if there is none.
func (s *Store) readSnapshot(index uint64) (*raftpb.Snapshot, error) {
	key := s.keys.Snapshot(index)
	value, err := s.eng.Get(nil, key)
	if err != nil {
		return nil, err
	}
	snap := new(raftpb.Snapshot)
	if !format.DecodeMessage(key, value, snap) || snap.GetMetadata().GetIndex() != index {
		return nil, s.fail("read", holdfast.ErrCorrupt, nil, damaged,
			"the snapshot of index %d does not read back as it was written", index)
	}

	return snap, nil
}

// readConf returns the conf state that is kept by itself, nil if none is.
func (s *Store) readConf() (*raftpb.ConfState, error) {
	key := s.keys.Conf()
	value, err := s.eng.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	conf := new(raftpb.ConfState)
	if !format.DecodeMessage(key, value, conf) {
		return nil, s.fail("read", holdfast.ErrCorrupt, nil, damaged, "the conf state does not read back as it was written")
	}

	return conf, nil
}
