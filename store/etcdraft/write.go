package etcdraft

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/etcdraft/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// Save stores what rd says is to be stored: the snapshot first, which replaces the log, then the entries, which replace
// those there are from the first of them on, and the hard state. It returns when they survive what the store's level
// names. The entries must not be changed afterwards. Where nothing is to be stored, nothing is written.
//
// A Ready with only a new commit index need not be synced, see the package. One with a snapshot must, although its
// MustSync does not say so: the leader is told of it. With raft.Config.AsyncStorageWrites, the fields of a
// MsgStorageAppend are saved as those of a Ready; its responses are sent when Save has returned.
//
// Errors: raft.ErrSnapOutOfDate as it is; ErrBadOption for entries with a gap between them, or to the log; ErrTooLarge
// for an entry or a snapshot over the engine's limits, ErrFull, ErrClosed; ErrPoisoned means that the outcome is
// unknown until the engine is opened again. After the others nothing is stored, but for the first entries if there
// were too many for a batch.
func (s *Store) Save(rd raft.Ready) error {
	c := change{entries: rd.Entries, sync: rd.MustSync}
	if !raft.IsEmptyHardState(rd.HardState) {
		c.hard = rd.HardState
	}
	if !raft.IsEmptySnap(rd.Snapshot) {
		c.snapshot = rd.Snapshot
	}

	return s.save("save", c)
}

// ApplySnapshot makes snap the snapshot, and empties the log up to it, as Save does with a Ready that has nothing
// else. A group is begun with one: its conf state is the members', and its index, on all of them, above 0; or 0, and
// then raft takes up the members from the conf state alone.
//
// Errors: as those of Save; raft.ErrSnapOutOfDate also for one of index 0 when the log has begun, which it would empty.
func (s *Store) ApplySnapshot(snap *raftpb.Snapshot) error {
	if snap == nil {
		return s.fail("apply snapshot", holdfast.ErrBadOption, nil, "", "the snapshot is nil")
	}
	return s.save("apply snapshot", change{snapshot: snap})
}

// change is what a Save stores.
type change struct {
	snapshot *raftpb.Snapshot
	entries  []*raftpb.Entry
	hard     *raftpb.HardState
	sync     bool
}

func (s *Store) save(op string, c change) error {
	if err := s.life.Enter(); err != nil {
		return err
	}
	defer s.life.Leave()
	s.writing.Lock()
	defer s.writing.Unlock()

	if c.snapshot != nil {
		index := c.snapshot.GetMetadata().GetIndex()
		if s.state.HasSnapshot && s.state.Snapshot != 0 && index <= s.state.Snapshot {
			return raft.ErrSnapOutOfDate
		}

		// It begins a group. A program that did so at each start would empty the log each time.
		if index == 0 && s.state.Last > 0 {
			return raft.ErrSnapOutOfDate
		}
		c.snapshot = raftpb.EnsureSnapshot(proto.CloneOf(c.snapshot))
	}
	if err := s.fit(op, &c); err != nil {
		return err
	}

	// What is too much for one batch is several, each of which leaves a state that raft could have had.
	for most := len(c.entries); c.snapshot != nil || c.hard != nil || len(c.entries) > 0; {
		part := c
		part.entries = s.thatFit(c, most)
		if rest := len(c.entries) - len(part.entries); rest > 0 && c.hard != nil {
			last := c.entries[0].GetIndex() - 1
			if n := len(part.entries); n > 0 {
				last = part.entries[n-1].GetIndex()
			}
			part.hard = proto.CloneOf(c.hard)
			part.hard.Commit = new(min(c.hard.GetCommit(), last))
		}
		switch err := s.store(op, part); {
		case err == nil:
			c.snapshot, c.entries = nil, c.entries[len(part.entries):]
			if len(c.entries) == 0 {
				return nil
			}
		case errors.Is(err, holdfast.ErrTooLarge) && len(part.entries) > 1: // the engine has a limit of its own
			most = len(part.entries) / 2
		default:
			return err
		}
	}

	return nil
}

// fit checks the entries and drops those that were compacted, as raft.MemoryStorage does.
func (s *Store) fit(op string, c *change) error {
	if len(c.entries) == 0 {
		return nil
	}
	index, last := s.state.Index, s.state.Last
	if c.snapshot != nil {
		index = c.snapshot.GetMetadata().GetIndex()
		last = index
	}
	first := c.entries[0].GetIndex()
	for i, e := range c.entries {
		if want := first + uint64(i); e.GetIndex() != want || want > format.MaxIndex {
			return s.fail(op, holdfast.ErrBadOption, nil, "save what raft says", "entry %d where %d is next", e.GetIndex(), want)
		}
		if size := int64(proto.Size(e)) + format.Overhead; size > s.maxValue {
			return s.fail(op, holdfast.ErrTooLarge, nil, "bound what is proposed", "entry %d takes %d bytes, the limit is %d",
				e.GetIndex(), size, s.maxValue)
		}
	}
	if first > last+1 {
		return s.fail(op, holdfast.ErrBadOption, nil, "save what raft says", "entry %d, and the log ends at %d", first, last)
	}
	if first <= index {
		c.entries = c.entries[min(index+1-first, uint64(len(c.entries))):]
	}

	return nil
}

// thatFit returns the first entries that fit into a batch with the rest of c, at most so many.
func (s *Store) thatFit(c change, most int) []*raftpb.Entry {
	var size int64
	if c.snapshot != nil {
		size = int64(proto.Size(c.snapshot)+len(s.keys.Prefix)) + valueReserve
	}
	for i, e := range c.entries {
		size += int64(proto.Size(e)+len(s.keys.Prefix)) + format.Overhead + 32 // and what is around a key
		if i >= most || size > s.maxBatch && (i > 0 || c.snapshot != nil) {
			return c.entries[:i]
		}
	}

	return c.entries
}

// store stores c, which fits into a batch. It is called with writing held.
func (s *Store) store(op string, c change) error {
	s.batch.Reset()
	old, next := s.shown.Load(), *s.shown.Load()
	state := s.state
	hidden := next
	edit := false

	if c.snapshot != nil {
		meta := c.snapshot.GetMetadata()
		if err := s.putSnapshot(op, &state, c.snapshot); err != nil {
			return err
		}
		s.batch.Delete(s.keys.Conf())
		state.Index, state.Term, state.Last = meta.GetIndex(), meta.GetTerm(), meta.GetIndex()
		state.High = max(state.High, state.Last)
		s.clear(&state)
		next.index, next.term, next.last, next.tail, next.size = state.Index, state.Term, state.Last, nil, 0
		next.snapshot, next.conf = meta, nil
		edit, hidden.replacing = true, true
		hidden.last, hidden.tail, hidden.size = hidden.index, nil, 0
	}
	if n := len(c.entries); n > 0 {
		if first := c.entries[0].GetIndex(); first <= state.Last {
			edit = true
			next.cut(first)
			hidden.cut(first)
		}
		for _, e := range c.entries {
			s.key = s.keys.Entry(s.key, e.GetIndex())
			if err := s.put(op, s.key, e); err != nil {
				return err
			}
		}
		state.Last = c.entries[n-1].GetIndex()
		state.High = max(state.High, state.Last)
		s.clear(&state)
		next.extend(c.entries, s.cache)
	}
	sync := c.sync || c.snapshot != nil || len(c.entries) > 0
	if c.hard != nil {
		sync = sync || c.hard.GetTerm() != state.Hard.GetTerm() || c.hard.GetVote() != state.Hard.GetVote()
		state.Hard = proto.CloneOf(c.hard)
		next.hard = state.Hard
	}
	if edit {
		s.edits++
		hidden.edits, next.edits = s.edits, s.edits
		s.shown.Store(&hidden)
	}

	if sync {
		return s.commit(state, s.lease.Level, true, old, &next)
	}

	return s.commit(state, s.lazy, s.awaits, old, &next)
}

// cut takes the entries from first on out of the view.
func (v *view) cut(first uint64) {
	keep := first - min(first, v.tailFrom())
	for _, e := range v.tail[keep:] {
		v.size -= proto.Size(e)
	}
	v.tail = v.tail[:keep:keep] // what is appended does not overwrite what others see
	v.last = first - 1
}

// extend adds entries to the end of the view, and keeps at least that many bytes of them in memory, and at most twice
// as many, unless it is one entry.
func (v *view) extend(entries []*raftpb.Entry, cache int) {
	for _, e := range entries {
		v.size += proto.Size(e)
	}
	v.tail, v.last = append(v.tail, entries...), entries[len(entries)-1].GetIndex()
	if v.size <= 2*cache {
		return
	}
	from := 0
	for ; from < len(v.tail)-1 && v.size > cache; from++ {
		v.size -= proto.Size(v.tail[from])
	}
	v.tail = append([]*raftpb.Entry(nil), v.tail[from:]...) // so that what is dropped is freed
}

// put adds one of raft's messages to the batch.
func (s *Store) put(op string, key []byte, m proto.Message) (err error) {
	if s.value, err = format.AppendMessage(s.value[:0], key, m); err != nil {
		return s.fail(op, holdfast.ErrBadOption, err, "", "it cannot be encoded")
	}
	s.batch.Set(key, s.value)

	return nil
}

// putSnapshot adds to the batch that snap replaces the snapshot.
func (s *Store) putSnapshot(op string, state *format.State, snap *raftpb.Snapshot) error {
	index := snap.GetMetadata().GetIndex()
	if size := int64(proto.Size(snap)) + format.Overhead; size > s.maxValue {
		return s.fail(op, holdfast.ErrTooLarge, nil, "keep the data elsewhere, and its name in the snapshot",
			"the snapshot of index %d takes %d bytes, the limit is %d", index, size, s.maxValue)
	}
	if state.HasSnapshot && state.Snapshot != index {
		s.batch.Delete(s.keys.Snapshot(state.Snapshot))
	}
	state.HasSnapshot, state.Snapshot = true, index

	return s.put(op, s.keys.Snapshot(index), snap)
}

// clear adds to the batch the deletion of what is not in the log of that state any more, where that takes little; the
// rest stays until the next Compact.
func (s *Store) clear(state *format.State) {
	if s.remove(state.Low, state.Index) {
		state.Low = state.Index + 1
	}
	if s.remove(state.Last+1, state.High) {
		state.High = state.Last
	}
}

// remove adds the deletion of the entries from lo to hi to the batch, or nothing, and reports which.
func (s *Store) remove(lo, hi uint64) bool {
	switch {
	case lo > hi:
	case hi-lo < chunks.Few:
		for i := lo; i <= hi; i++ {
			s.key = s.keys.Entry(s.key, i)
			s.batch.Delete(s.key)
		}
	case s.lease.Caps.NativeDeleteRange:
		r := s.keys.Entries(lo, hi)
		s.batch.DeleteRange(r.Lo, r.Hi)
	default:
		return false
	}

	return true
}

// commit applies the batch, with the state that is then true, at a level, and shows next when it has it, or at once if
// it is not to be waited for. If it is refused, old is shown again. It is called with writing held.
func (s *Store) commit(state format.State, level holdfast.Level, wait bool, old, next *view) error {
	var err error
	if s.value, err = format.AppendState(s.value[:0], s.meta, state); err == nil {
		s.batch.Set(s.meta, s.value)
		var receipt holdfast.Receipt
		if receipt, err = s.eng.Apply(&s.batch, level); err == nil {
			s.receipt = receipt
		}
	}
	if err != nil {
		s.shown.Store(old)
		return err
	}
	if wait {
		if err := s.receipt.Wait(); err != nil {
			return err // what was hidden stays so: its state is unknown
		}
	}
	s.state = state
	s.shown.Store(next)

	return nil
}

// CreateSnapshot makes a snapshot of the state after the entry at index, which the application has applied, with that
// conf state, nil for the one that the last snapshot had, and data. It is durable when CreateSnapshot returns, and what
// Snapshot answers from then on. The log stays as it is: see Compact.
//
// Errors: raft.ErrSnapOutOfDate if there is a snapshot of that index or a later one, and raft.ErrCompacted, as they
// are; ErrBadOption if the log ends before index; ErrTooLarge, ErrFull, ErrPoisoned, ErrClosed as of Save.
func (s *Store) CreateSnapshot(index uint64, conf *raftpb.ConfState, data []byte) (*raftpb.Snapshot, error) {
	if err := s.life.Enter(); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	s.writing.Lock()
	defer s.writing.Unlock()

	old := s.shown.Load()
	if index <= old.snapshot.GetIndex() {
		return nil, raft.ErrSnapOutOfDate
	}
	if index > old.last {
		return nil, s.fail("create snapshot", holdfast.ErrBadOption, nil, "apply the entry first",
			"a snapshot of index %d, and the log ends at %d", index, old.last)
	}
	term, err := s.termOf(index)
	if err != nil {
		return nil, err
	}
	if conf == nil {
		conf = raftpb.EnsureConfState(proto.CloneOf(old.snapshot.GetConfState()))
	}
	made := &raftpb.Snapshot{
		Data:     data,
		Metadata: &raftpb.SnapshotMetadata{ConfState: proto.CloneOf(conf), Index: &index, Term: &term},
	}
	snap := raftpb.EnsureSnapshot(proto.CloneOf(made))
	s.batch.Reset()
	state, hidden, next := s.state, *old, *old
	if err := s.putSnapshot("create snapshot", &state, snap); err != nil {
		return nil, err
	}
	hidden.replacing = true
	next.snapshot = snap.GetMetadata()
	s.shown.Store(&hidden)
	if err := s.commit(state, s.lease.Level, true, old, &next); err != nil {
		return nil, err
	}

	return made, nil
}

// PutConfState adds to b that conf is the conf state, which InitialState answers from now on. The application commits
// b, in which it also stores the index of the entry that it has applied: so what raft begins with next time belongs
// together. Without it, InitialState answers the conf state of the snapshot, and raft.Config.Applied must not be above
// the index of an entry that changes it. A snapshot that is saved later replaces it.
func (s *Store) PutConfState(b *holdfast.Batch, conf *raftpb.ConfState) error {
	if err := s.life.Enter(); err != nil {
		return err
	}
	defer s.life.Leave()
	s.writing.Lock()
	defer s.writing.Unlock()

	conf = raftpb.EnsureConfState(proto.CloneOf(conf))
	key := s.keys.Conf()
	value, err := format.AppendMessage(nil, key, conf)
	if err != nil {
		return s.fail("put conf state", holdfast.ErrBadOption, err, "", "it cannot be encoded")
	}
	b.Set(key, value)
	next := *s.shown.Load()
	next.conf = conf
	s.shown.Store(&next)

	return nil
}

// Compact removes the entries up to index, which must be applied, and in a snapshot if other replicas may still need
// them. It need not be durable: a crash can bring entries back, and the next Compact removes them again. The first
// index is index+1 at once; where an engine removes keys one by one, many of them are removed in chunks, and other
// writes go on between them.
//
// Errors: raft.ErrCompacted, as it is, if they were compacted before; ErrBadOption if the log ends before index;
// ErrFull, ErrPoisoned, ErrClosed. After an error the log is as it was, or the next Compact goes on.
func (s *Store) Compact(index uint64) error {
	if err := s.life.Enter(); err != nil {
		return err
	}
	defer s.life.Leave()
	if err := s.compact(index); err != nil {
		return err
	}

	for keys, more := s.chunkKeys, true; more; {
		if s.life.Closed() {
			return nil
		}
		var err error
		if more, err = s.sweep(keys); errors.Is(err, holdfast.ErrTooLarge) && keys > 1 { // the engine has a limit of its own
			keys, more = keys/2, true
		} else if err != nil {
			return err
		}
	}

	return nil
}

// compact makes the log begin after index.
func (s *Store) compact(index uint64) error {
	s.writing.Lock()
	defer s.writing.Unlock()

	old := s.shown.Load()
	if index <= old.index {
		return raft.ErrCompacted
	}
	if index > old.last {
		return s.fail("compact", holdfast.ErrBadOption, nil, "apply the entry first", "up to %d, and the log ends at %d",
			index, old.last)
	}
	term, err := s.termOf(index)
	if err != nil {
		return err
	}
	next := *old
	next.index, next.term = index, term
	if from := next.tailFrom(); from <= index {
		for _, e := range next.tail[:index+1-from] {
			next.size -= proto.Size(e)
		}
		next.tail = append([]*raftpb.Entry(nil), next.tail[index+1-from:]...)
	}
	s.batch.Reset()
	chunks.Notes(&s.batch, s.meta)
	state := s.state
	state.Index, state.Term = index, term
	s.clear(&state)
	s.shown.Store(&next)

	return s.commit(state, s.lazy, true, old, &next)
}

// sweep removes at most so many entries that were deleted, and reports whether there can be more.
func (s *Store) sweep(keys int) (more bool, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()

	state := s.state
	if state.Low > state.Index && state.High == state.Last {
		return false, nil
	}
	s.batch.Reset()
	below := state.Low <= state.Index
	r := s.keys.Entries(state.Low, state.Index)
	if !below {
		r = s.keys.Entries(state.Last+1, state.High)
		r.Reverse = true
	}
	last, more, err := chunks.Cut(&s.batch, s.eng, r, keys, chunks.Bytes)
	if err != nil {
		return false, err
	}
	at, ok := s.keys.Number(last)
	switch {
	case more && !ok:
		return false, s.fail("compact", holdfast.ErrCorrupt, nil, damaged, "there is a key %q among the entries", last)
	case more && below:
		state.Low = at + 1
	case more:
		state.High = at - 1
	case below:
		state.Low = state.Index + 1
	default:
		state.High = state.Last
	}
	chunks.Notes(&s.batch, s.meta)
	v := s.shown.Load()

	return true, s.commit(state, s.lazy, true, v, v)
}
