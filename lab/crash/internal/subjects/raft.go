package subjects

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// Raft is a store for hashicorp/raft, ours on an engine or a peer's own, worked as raft works it: one goroutine
// writes terms, votes and entries, another deletes what is in a snapshot, and others read.
var Raft = Subject{
	Name: "raft", About: "the Raft store: terms, votes, entries, conflicts, snapshots, wipes, gaps",
	begin: raftBegin, work: raftWork, read: raftRead, judge: raftJudge,
}

// tracking is what a store has that keeps the commit index.
type tracking interface {
	StageCommitIndex(uint64) error
	GetCommitIndex() (uint64, error)
}

// openRaft opens the store that there is on an engine.
func openRaft(s protocol.Spec, e holdfast.Engine) (contender.RaftStore, func() error, error) {
	store, closeStore, err := contender.OpenRaft(e, raftlog.Options{Level: s.Level, Monotonic: s.Monotonic})
	if err != nil {
		return nil, nil, fmt.Errorf("opening the store: %w", err)
	}

	return store, closeStore, nil
}

// raftBegin enters what a judge must know of the store.
func raftBegin(h *protocol.History, engine string, peer bool) {
	if peer {
		h.Monotonic = contender.Monotonic(engine)
		return
	}
	h.Monotonic = commits.Mix(h.Seed, 78)%2 == 0
}

// raftVictim works on an open store.
type raftVictim struct {
	*worker
	store contender.RaftStore
	given holdfast.Level
	peer  bool

	state sync.Mutex // covers what follows
	model *raftState
	busy  []*raftOp // under way
	moves int       // of the model, and of busy
}

// raftWork works as raft does: one goroutine writes, others read, until stop is closed.
func raftWork(w *worker, e holdfast.Engine, stop <-chan struct{}) (err error) {
	store, closeStore, err := openRaft(w.spec, e)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := closeStore(); closeErr != nil && !w.refused(closeErr) {
			err = errors.Join(err, fmt.Errorf("closing the store: %w", closeErr))
		}
	}()

	// The model outlives an opening. After a crash it is folded from the history.
	if w.model == nil {
		h := &protocol.History{Seed: w.spec.Seed, Segments: w.spec.Segments, Skipped: w.spec.Skipped,
			Monotonic: w.spec.Monotonic}
		w.model = raftFold(h, w.next-1, nil, nil)
	}
	_, peer := e.(contender.RaftEngine)
	given := e.Capabilities().Promise(w.spec.Level).Given
	v := &raftVictim{worker: w, store: store, given: given, peer: peer, model: w.model}
	if m, ok := store.(raft.MonotonicLogStore); (ok && m.IsMonotonic()) != w.spec.Monotonic {
		w.wrong("the store does not say that it is monotonic, or wrongly so")
	}
	// The store is closed before it is opened again, or a check has seen what is there.
	found, err := raftAll(store, w.wrong)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}

	// Nothing is under way here, so all that is there follows from the model.
	if want := v.model.entries(tracks(store)); !slices.Equal(found, want) {
		w.wrong("opened again, the store holds something else: %s", commits.Difference(found, want))
		return nil
	}

	var group sync.WaitGroup
	for i := range uint64(2) {
		r := rand.New(rand.NewPCG(commits.Mix(w.spec.Seed, 6), commits.Mix(w.next, i)))

		// The readers are started before the writer: if that fails at once, it ends them too.
		w.start(&group, func() error {
			for w.rest(stop, 2*time.Millisecond) {
				if err := v.look(r); err != nil {
					return w.failure(err, "reading")
				}
			}

			return nil
		})
	}
	w.start(&group, func() error { return v.write(stop) }) // which readers must not outlast if it fails
	group.Wait()

	return nil
}

// write does one operation after the other, until stop is closed.
func (v *raftVictim) write(stop <-chan struct{}) error {
	for !stopped(stop) {
		v.pace()
		o := v.begin(v.next)
		if !o.concurrent {
			if ok, err := v.do(o, stop); !ok {
				return err
			}
			v.finish(o)
			continue
		}
		// The deletion that follows a snapshot is raft's own goroutine's. It does not touch what the other writes.
		var (
			ok    bool
			err   error
			other sync.WaitGroup
		)
		other.Go(func() {
			if ok, err = v.do(o, stop); ok {
				v.acked(o.end(), v.given)
			}
		})

		// The model takes the deletion first, so that the next operation is made for the state behind it.
		next := v.begin(o.end() + 1)
		nextOK, nextErr := v.do(next, stop)
		other.Wait()

		// Of the two, one may have been done. The history says so: both were told as begun.
		if !ok || !nextOK {
			return errors.Join(err, nextErr)
		}
		v.finish(next)
	}

	return nil
}

// begin makes and tells the operation at number n. The model has taken the one before already, should that be
// still under way.
func (v *raftVictim) begin(n uint64) *raftOp {
	v.state.Lock()
	defer v.state.Unlock()

	// What is under way counts as done for what is made next.
	for _, o := range v.busy {
		for i := range o.size {
			v.model.step(o, i)
		}
	}
	o := v.model.p.raftOp(v.spec.Gen, n, v.model)

	// Entered under the lock together with the model, so that a reader that looks now knows of it.
	v.busy = append(v.busy, &o)
	v.moves++
	v.report.Send(protocol.TellIssued, o.end(), 0)

	return &o
}

// finish enters that o, and what ran concurrently, is done.
func (v *raftVictim) finish(o *raftOp) {
	v.state.Lock()

	// The deletion that ran concurrently was entered when this operation began.
	for i := range o.size {
		v.model.step(o, i)
	}
	v.busy = nil
	v.moves++
	v.state.Unlock()
	v.mu.Lock() // what Sync and Close promise goes by next
	v.next = o.end() + 1
	v.mu.Unlock()
	v.acked(o.end(), v.given)
}

// do does an operation. One that is refused, where failures are made, is tried again as raft does it, which gets its
// entries again from the leader. It reports whether it was done; if not, the victim was stopped or the error says why.
func (v *raftVictim) do(o *raftOp, stop <-chan struct{}) (bool, error) {
	for {
		err := v.call(o)
		if err == nil {
			return true, nil
		}
		if !v.refused(err) {
			return false, fmt.Errorf("%v: %w", o, err)
		}
		if stopped(stop) {
			return false, nil
		}
	}
}

// call makes the call of an operation, as hashicorp/raft makes it.
func (v *raftVictim) call(o *raftOp) error {
	v.spent.Add(200)

	switch o.kind {
	case raftUint:
		return v.store.SetUint64([]byte(o.key), o.value)
	case raftSet:
		value := v.model.p.raftValue(o.key, raftMark{n: o.n, gen: o.gen})
		v.spent.Add(int64(len(value)))

		return v.store.Set([]byte(o.key), value)
	case raftFront, raftBack:
		return v.store.DeleteRange(o.from, o.to)
	}

	var logs []*raft.Log
	for i := range o.size {
		l := v.model.p.raftLog(o.from+i, raftMark{o.n + i, o.gen, o.term})
		v.spent.Add(int64(len(l.Data) + len(l.Extensions) + 50))
		logs = append(logs, l)
	}

	// The commit index is staged before the entries that it comes with.
	if t, ok := v.store.(tracking); ok && o.commit > 0 {
		if err := t.StageCommitIndex(o.commit); err != nil {
			return err
		}
	}
	if len(logs) == 1 && o.n%2 == 0 {
		return v.store.StoreLog(logs[0])
	}

	return v.store.StoreLogs(logs)
}

// touches reports whether an operation that is under way changes what is at an index.
func (v *raftVictim) touches(index uint64) bool {
	return slices.ContainsFunc(v.busy, func(o *raftOp) bool { return o.from <= index && index <= o.to })
}

// look reads here and there, as raft does for its followers, and compares with what there must be.
func (v *raftVictim) look(r *rand.Rand) error {
	v.state.Lock()
	m := v.model

	// What is read below is compared only as far as nothing has changed since; see quiet.
	moves, busy, first, last := v.moves, len(v.busy), m.first, m.last
	least := m.stable[raftTerm].n
	v.state.Unlock()

	for range 4 {
		// A little on either side of the log too, where nothing must be found.
		index := max(first, 10) - 10 + r.Uint64N(last-first+20)
		v.state.Lock()
		mark, there := m.logs[index]
		quiet := !v.touches(index)
		// A peer may go on answering the entries before the first one until it is opened again: raft does not ask for them.
		asked := !v.peer || index >= m.first
		before := v.moves

		// The store is read without the lock, so that the writer goes on meanwhile.
		v.state.Unlock()
		var l raft.Log
		err := v.store.GetLog(index, &l)
		missing := errors.Is(err, raft.ErrLogNotFound)
		if err != nil && !missing {
			return fmt.Errorf("index %d: %w", index, err)
		}
		v.state.Lock()
		now, still := m.logs[index]
		// An index that was touched twice meanwhile may look as if it had not been.
		quiet = quiet && !v.touches(index) && now == mark && still == there && v.moves < before+4
		asked = asked && (!v.peer || index >= m.first)
		v.state.Unlock()

		switch {
		case !missing && l.Index != index:
			v.wrong("index %d was asked for, and %d was read", index, l.Index)
		case !quiet:
		case missing && there:
			v.wrong("index %d had been stored, and is not found", index)
		case !missing && !there && asked:
			v.wrong("index %d is read, and nothing is there", index)
		case there && logEntry(index, &l) != logEntry(index, m.p.raftLog(index, mark)):
			v.wrong("index %d is read as %v", index, logEntry(index, &l))
		}
	}

	gotFirst, err := v.store.FirstIndex()
	if err != nil {
		return err
	}
	gotLast, err := v.store.LastIndex()
	if err != nil {
		return err
	}
	gotTerm, err := storedUint(v.store, raftTerm)
	if err != nil {
		return err
	}
	v.state.Lock()
	defer v.state.Unlock()

	// Bounds that were read while the model moved may be of either state.
	if busy == 0 && moves == v.moves && (gotFirst != first || gotLast != last) {
		v.wrong("the log says it is from index %d to %d, and is from %d to %d", gotFirst, gotLast, first, last)
	}

	// A term that is being set may be read already.
	most := m.stable[raftTerm].n
	for _, o := range v.busy {
		if o.key == raftTerm {
			most = max(most, o.value)
		}
	}
	if gotTerm < least || gotTerm > most {
		v.wrong("the term is read as %d, and must be from %d to %d", gotTerm, least, most)
	}

	return nil
}

// The entries that are neither a key's nor the log's.
const (
	entryLast   = "last"
	entryCommit = "commit"
)

// raftRead opens the store and tells all that is in it.
func raftRead(c *check, e holdfast.Engine, emit func(commits.Found)) error {
	store, closeStore, err := openRaft(c.spec, e)
	if err != nil {
		return err
	}

	found, err := raftAll(store, c.wrong)
	for _, e := range found {
		emit(e)
	}

	return errors.Join(err, closeStore())
}

// The indexes around the log, and keys, that are looked for though nothing should be there.
const (
	raftAround  = 300
	raftLongest = 1 << 20
)

// raftAll tells all that is in a store.
func raftAll(store contender.RaftStore, wrong func(format string, args ...any)) (found []commits.Found, err error) {
	first, err := store.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := store.LastIndex()
	if err != nil {
		return nil, err
	}
	found = append(found, commits.Found{Key: entryFirst, N: first}, commits.Found{Key: entryLast, N: last})
	if t, ok := store.(tracking); ok {
		commit, err := t.GetCommitIndex()
		if err != nil {
			return nil, err
		}
		found = append(found, commits.Found{Key: entryCommit, N: commit})
	}

	for _, key := range raftNames() {
		e, err := storedKey(store, key)
		if err != nil {
			return nil, err
		}
		if e.Len > 0 {
			found = append(found, e)
		}
	}
	if k, ok := store.(interface{ Keys() ([][]byte, error) }); ok {
		keys, err := k.Keys()
		if err != nil {
			return nil, err
		}

		for _, key := range keys {
			if !slices.Contains(raftNames(), string(key)) {
				wrong("there is a key %.40q, which was never set", key)
			}
		}
	}

	// A damaged bound would make the walk over the indexes endless.
	if last-first > raftLongest {
		wrong("the log says it is from index %d to %d", first, last)
		return found, nil
	}

	var l raft.Log

	// It looks around the log too: an entry that was deleted must not be found again.
	for index := max(first, raftAround) - raftAround; index <= last+raftAround; index++ {
		l = raft.Log{}
		switch err := store.GetLog(index, &l); {
		case errors.Is(err, raft.ErrLogNotFound):
		case err != nil:
			return nil, fmt.Errorf("index %d: %w", index, err)
		default:
			found = append(found, logEntry(index, &l))
		}
	}

	return found, nil
}

// raftNames lists the keys that operations set.
func raftNames() []string {
	names := []string{raftTerm, raftVoteTerm, raftCandidate}
	for i := range raftKeys {
		names = append(names, fmt.Sprintf("key-%d", i))
	}

	return names
}

// tracks reports whether a store keeps the commit index.
func tracks(store contender.RaftStore) bool {
	_, ok := store.(tracking)
	return ok
}

// storedUint is what GetUint64 answers, 0 if the key is not there.
func storedUint(store contender.RaftStore, key string) (uint64, error) {
	n, err := store.GetUint64([]byte(key))
	if contender.KeyMissing(err) {
		return 0, nil
	}

	return n, err
}

// storedKey tells what a key holds; its length is 0 if it is not there.
func storedKey(store contender.RaftStore, key string) (commits.Found, error) {
	if key == raftTerm || key == raftVoteTerm {
		n, err := storedUint(store, key)
		if n == 0 || err != nil {
			return commits.Found{}, err
		}

		return uintEntry(key, n), nil
	}
	value, err := store.Get([]byte(key))
	if contender.KeyMissing(err) || err == nil && len(value) == 0 {
		return commits.Found{}, nil
	}

	return commits.NewFound(key, value), err
}

// uintEntry describes a key that holds a number.
func uintEntry(key string, n uint64) commits.Found { return commits.Found{Key: key, N: n, Len: 8} }

// logEntry describes what is at an index; its digest covers all fields.
func logEntry(index uint64, l *raft.Log) commits.Found {
	e := commits.NewFound(fmt.Sprintf("l/%d", index), l.Data)

	// An entry too short to name its operation has it in the time.
	if len(l.Data) < commits.HeaderSize {
		e.N, e.Gen = uint64(l.AppendedAt.Unix()), uint32(l.AppendedAt.Nanosecond())
	}
	text := fmt.Appendf(nil, "%d %d %d %d %t %d %d ", l.Index, l.Term, l.Type, l.AppendedAt.UnixNano(),
		l.AppendedAt.IsZero(), len(l.Data), len(l.Extensions))
	e.Sum = commits.DigestOf(bytes.Join([][]byte{text, l.Data, l.Extensions}, nil))

	return e
}

// entries tells what raftAll must find in this state.
func (s *raftState) entries(tracked bool) []commits.Found {
	list := []commits.Found{{Key: entryFirst, N: s.first}, {Key: entryLast, N: s.last}}
	if tracked {
		list = append(list, commits.Found{Key: entryCommit, N: s.committed()})
	}

	for _, key := range raftNames() {
		switch m, ok := s.stable[key]; {
		case !ok:
		case key == raftTerm || key == raftVoteTerm:
			list = append(list, uintEntry(key, m.n))
		default:
			list = append(list, commits.NewFound(key, s.p.raftValue(key, m)))
		}
	}

	for index := s.first; index <= s.last; index++ {
		if m, ok := s.logs[index]; ok {
			list = append(list, logEntry(index, s.p.raftLog(index, m)))
		}
	}

	return list
}
