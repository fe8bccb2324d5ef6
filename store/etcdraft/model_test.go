package etcdraft_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/etcdraft"
	"github.com/holdfastdb/holdfast/vfs"
)

// model is what a store should be: raft's own storage, and the conf state that the application keeps.
type model struct {
	*raft.MemoryStorage
	conf *raftpb.ConfState
}

func newModel() *model { return &model{MemoryStorage: raft.NewMemoryStorage()} }

func (m *model) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, conf, err := m.MemoryStorage.InitialState()
	if m.conf != nil {
		conf = m.conf
	}
	return hard, conf, err
}

func (m *model) bounds() (first, last uint64) {
	first, _ = m.FirstIndex()
	last, _ = m.LastIndex()
	return first, last
}

// save does what Save should: nothing, if it is refused.
func (m *model) save(rd raft.Ready) error {
	_, last := m.bounds()
	if !raft.IsEmptySnap(rd.Snapshot) {
		last = rd.Snapshot.GetMetadata().GetIndex()
		if err := m.ApplySnapshot(proto.CloneOf(rd.Snapshot)); err != nil {
			return err
		}
		m.conf = nil
	}
	if len(rd.Entries) > 0 && rd.Entries[0].GetIndex() > last+1 {
		return holdfast.ErrBadOption // draws do not bring a snapshot with it
	}
	if !raft.IsEmptyHardState(rd.HardState) {
		_ = m.SetHardState(rd.HardState)
	}
	return m.Append(rd.Entries)
}

// operation is one of a history, for a store and for its model, which answer the same.
type operation struct {
	name  string
	store func(holdfast.Engine, *etcdraft.Store) error
	model func(*model) error
	// parts are what else a crash in the middle can leave.
	parts []func(*model) error
	// lazy says that a power cut can take it back although it has returned.
	lazy bool
}

// draw makes an operation for a log that is like the model: below(n) draws a number below n, and term is higher from
// one operation to the next.
func draw(below func(n int) int, m *model, term uint64) operation {
	first, last := m.bounds()
	near := func(index uint64, around int) uint64 { // an index near that one
		return max(index+uint64(below(2*around+1)), uint64(around)) - uint64(around)
	}
	switch what := below(20); {
	case what == 0:
		snap, _ := m.Snapshot()
		index := near(snap.GetMetadata().GetIndex(), 3)
		if below(2) == 0 {
			index = near(last, 3)
		}
		snap = snapshot(index, term, 1, uint64(below(5)))
		if index == 0 {
			snap.Metadata.Term = new(uint64)
		}
		return operation{
			fmt.Sprintf("apply a snapshot of %d", index),
			func(_ holdfast.Engine, s *etcdraft.Store) error { return s.ApplySnapshot(snap) },
			func(m *model) error {
				if end, _ := m.LastIndex(); index == 0 && end > 0 { // raft.MemoryStorage empties the log
					return raft.ErrSnapOutOfDate
				}
				err := m.ApplySnapshot(proto.CloneOf(snap))
				if err == nil {
					m.conf = nil
				}
				return err
			}, nil, false}
	case what < 3:
		index := first + uint64(below(int(last-first+3)))
		var conf *raftpb.ConfState
		if below(2) == 0 {
			conf = &raftpb.ConfState{Voters: []uint64{uint64(below(9))}}
		}
		return operation{
			fmt.Sprintf("create a snapshot of %d", index),
			func(_ holdfast.Engine, s *etcdraft.Store) error {
				_, err := s.CreateSnapshot(index, conf, []byte("data"))
				return err
			},
			func(m *model) error {
				if snap, _ := m.Snapshot(); index <= snap.GetMetadata().GetIndex() {
					return raft.ErrSnapOutOfDate
				}
				if index > last {
					return holdfast.ErrBadOption
				}
				_, err := m.CreateSnapshot(index, conf, []byte("data"))
				return err
			}, nil, false}
	case what < 5:
		index := near(first, 2)
		if below(2) == 0 {
			index = near(last, 2)
		}
		return operation{
			fmt.Sprintf("compact up to %d", index),
			func(_ holdfast.Engine, s *etcdraft.Store) error { return s.Compact(index) },
			func(m *model) error {
				if index > last {
					return holdfast.ErrBadOption
				}
				return m.Compact(index)
			}, nil, true}
	case what == 5:
		conf := &raftpb.ConfState{Voters: []uint64{uint64(below(9))}, AutoLeave: new(bool)}
		return operation{
			"keep a conf state",
			func(e holdfast.Engine, s *etcdraft.Store) error {
				var b holdfast.Batch
				if err := s.PutConfState(&b, conf); err != nil {
					return err
				}
				return holdfast.Commit(e, &b, s.Level())
			},
			func(m *model) error { m.conf = conf; return nil }, nil, false}
	default:
		var rd raft.Ready
		at := last + 1
		switch how := below(12); {
		case what == 6:
			snap, _ := m.Snapshot()
			at = near(last, 2) + 1
			rd.Snapshot = snapshot(at-1, term, 1, uint64(below(5)))
			if old := snap.GetMetadata().GetIndex(); old != 0 && at-1 <= old {
				at = old + 5
			}
		case how == 0:
			at = near(first, 2)
		case how < 4:
			at = near(last, 3)
		}
		if n := below(12); n > 3 || rd.Snapshot == nil {
			if n == 0 {
				n = 40 // so that more are replaced than are deleted by name
			}
			rd.Entries = entries(at, slices.Repeat([]uint64{term}, n)...)
			for i := range rd.Entries {
				if at+uint64(i) == 0 {
					rd.Entries = nil
				}
			}
		}
		if below(2) == 0 {
			rd.HardState = hardState(term-uint64(below(2)), uint64(below(3)), near(first, 5))
			if old, _, _ := m.InitialState(); old != nil && below(2) == 0 {
				rd.HardState.Term, rd.HardState.Vote = old.Term, old.Vote // only the commit index is new
			}
			rd.MustSync = below(2) == 0
		}
		o := operation{
			fmt.Sprintf("save %d entries from %d on, %v, a snapshot of %d", len(rd.Entries), at, rd.HardState,
				rd.Snapshot.GetMetadata().GetIndex()),
			func(_ holdfast.Engine, s *etcdraft.Store) error { return s.Save(rd) },
			func(m *model) error { return m.save(rd) }, nil, false}
		hard, _, _ := m.InitialState()
		o.lazy = !rd.MustSync && rd.Snapshot == nil && (len(rd.Entries) == 0 || at+uint64(len(rd.Entries)) <= first) &&
			(rd.HardState == nil || rd.HardState.GetTerm() == hard.GetTerm() && rd.HardState.GetVote() == hard.GetVote())
		for n := range rd.Entries {
			part := rd
			part.Entries = rd.Entries[:n]
			if part.HardState != nil {
				part.HardState = proto.CloneOf(rd.HardState)
				part.HardState.Commit = new(min(rd.HardState.GetCommit(), at+uint64(n)-1))
			}
			o.parts = append(o.parts, func(m *model) error { return m.save(part) })
		}
		return o
	}
}

// both does an operation to a store and to its model, and reports whether it is done or both have refused it.
func (o operation) both(e holdfast.Engine, s *etcdraft.Store, m *model) (done bool, err error) {
	want := o.model(m)
	if err := o.store(e, s); !errors.Is(err, want) {
		return false, fmt.Errorf("%s: %w, want %w", o.name, err, want)
	}
	return want == nil, nil
}

// history does operations, draws of which below makes, and compares the store with its model after each and after
// reopening.
func history(tg *storetest.Target, o etcdraft.Options, reopen func(), below func(n int) int, operations int) error {
	s, err := etcdraft.Open(tg.Engine, o)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	s.SmallChunks(3)
	m := newModel()
	var names []string
	for term := range uint64(operations) {
		op := draw(below, m, term+1)
		names = append(names, op.name)
		if _, err := op.both(tg.Engine, s, m); err != nil {
			return fmt.Errorf("%q: %w", names, err)
		}
		if below(6) == 0 {
			if err := s.Close(); err != nil {
				return err
			}
			names = append(names, "reopen")
			reopen()
			if s, err = etcdraft.Open(tg.Engine, o); err != nil {
				return fmt.Errorf("%q: %w", names, err)
			}
			s.SmallChunks(3)
		}
		if err := differs(s, m); err != nil {
			return fmt.Errorf("%q: %w", names, err)
		}
	}
	return nil
}

// seeds is how many histories of a kind there are: fewer with -short, for the race detector.
func seeds(n uint64) uint64 {
	if testing.Short() {
		return n / 8
	}
	return n
}

func TestModel(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		for seed := range seeds(30) {
			r := rand.New(rand.NewPCG(seed, 1))
			reopen := func() {
				if r.IntN(10) == 0 {
					tg.Reopen(t)
				}
			}
			o := etcdraft.Options{Name: fmt.Sprint(seed), Level: tg.Level, CacheBytes: []int{0, -1, 200}[seed%3]}
			if err := history(tg, o, reopen, r.IntN, 40); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
}

// FuzzHistory draws the operations from bytes.
func FuzzHistory(f *testing.F) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 2))
		data := make([]byte, 120)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, data []byte, native bool) {
		e := storetest.NewFakeEngine()
		e.Native = native
		tg := &storetest.Target{Engine: e, Level: holdfast.Memory}
		below := func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := int(data[0]) % n
			data = data[1:]
			return b
		}
		if err := history(tg, etcdraft.Options{Level: holdfast.Memory, CacheBytes: 100}, func() {}, below,
			min(len(data)/4, 200)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEveryPrefix does random things and then opens what each prefix of the batches leaves, which is what a crash
// leaves: it is the state before an operation or after it, and never between, but for a Save over the engine's limit,
// of which the first entries can be there. Afterwards nothing is left of what was deleted.
func TestEveryPrefix(t *testing.T) {
	for _, native := range []bool{true, false} {
		for _, limit := range []int64{0, 8<<10 + 600} {
			for seed := range seeds(25) {
				if err := everyPrefix(seed, native, limit); err != nil {
					t.Fatalf("native=%v, limit %d, seed %d: %v", native, limit, seed, err)
				}
			}
		}
	}
}

func everyPrefix(seed uint64, native bool, limit int64) error {
	r := rand.New(rand.NewPCG(seed, 3))
	e := storetest.NewFakeEngine()
	e.Record, e.Native, e.MaxBatch = true, native, limit
	s, err := etcdraft.Open(e, inMemory)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	s.SmallChunks(3)
	type path []func(*model) error // to a state
	m, done := newModel(), path{}
	legal := map[int][]path{0: {done}, 1: {done}} // after so many batches
	for term := range uint64(40) {
		op := draw(r.IntN, m, term+1)
		before, from := done, len(e.Batches)
		if _, err := op.both(e, s, m); err != nil {
			return err
		}
		done = append(slices.Clip(done), op.model)
		for n := from; n <= len(e.Batches); n++ {
			if n < len(e.Batches) {
				legal[n] = append(legal[n], before)
				for _, part := range op.parts {
					legal[n] = append(legal[n], append(slices.Clip(before), part))
				}
			}
			legal[n] = append(legal[n], done)
		}
	}

	crashed := mem.New()
	defer crashed.Close()
	for n := 0; ; n++ {
		found, err := etcdraft.Open(crashed, inMemory)
		if err != nil {
			return fmt.Errorf("after %d batches: %w", n, err)
		}
		ok := false
		for _, path := range slices.Backward(legal[n]) {
			m := newModel()
			for _, do := range path {
				_ = do(m)
			}
			if err = differs(found, m); err == nil {
				ok = true
				break
			}
		}
		if !ok {
			return fmt.Errorf("after %d batches of %d the store is in none of %d states: %v", n, len(e.Batches),
				len(legal[n]), err)
		}
		if err := found.Close(); err != nil {
			return err
		}
		if n == len(e.Batches) {
			break
		}
		if err := holdfast.Commit(crashed, e.Batches[n], holdfast.Memory); err != nil {
			return err
		}
	}

	// One more entry is saved and all others are removed, and what is left of others with them.
	_, last := m.bounds()
	if err := s.Save(raft.Ready{Entries: entries(last+1, 99, 99)}); err != nil {
		return err
	}
	if err := s.Compact(last + 1); err != nil {
		return err
	}
	want := 2 // the state and the last entry
	if snap, _ := m.Snapshot(); !proto.Equal(snap, raftpb.EnsureSnapshot(nil)) {
		want++
	}
	if m.conf != nil {
		want++
	}
	if got := storetest.Keys(e, holdfast.Range{}); got != want {
		return fmt.Errorf("there are %d keys, want %d", got, want)
	}
	return nil
}

// TestCrashImages cuts the power under logtree, or kills it, at any moment, and opens what is left: it is the state
// after the operations that were acknowledged, or one more; or fewer, if the last ones need not be durable.
func TestCrashImages(t *testing.T) {
	storetest.CrashImages(t, 60, func(seed uint64, level holdfast.Level) error {
		o := etcdraft.Options{Level: level, CacheBytes: 100}
		next := func(m *model, n uint64) operation {
			return draw(rand.New(rand.NewPCG(seed, n)).IntN, m, n)
		}
		after := func(n uint64) *model {
			m := newModel()
			for i := range n {
				_ = next(m, i+1).model(m)
			}
			return m
		}
		found, durable, acked := uint64(0), uint64(0), uint64(0)
		return storetest.CrashImage(seed, level, func(e holdfast.Engine, _ *rand.Rand) error {
			s, err := etcdraft.Open(e, o)
			if err != nil {
				return err
			}
			durable, acked = found, found
			for m := after(found); ; {
				op := next(m, acked+1)
				done, err := op.both(e, s, m)
				if err != nil {
					return errors.Join(err, s.Close())
				}
				acked++
				if done && !op.lazy || level < holdfast.Power {
					durable = acked
				}
			}
		}, func(e holdfast.Engine) error {
			s, err := etcdraft.Open(e, o)
			if err != nil {
				return err
			}
			var list []error
			for found = acked + 1; ; found-- {
				err := differs(s, after(found))
				if err == nil {
					break
				}
				if list = append(list, err); found == durable {
					return fmt.Errorf("after %d operations, of which %d are durable: %w", acked, durable, errors.Join(list...))
				}
			}
			return s.Close()
		})
	})
}

// TestLazy cuts the power after operations that need not be durable: a cut can take them back, from the last one on,
// and nothing before them.
func TestLazy(t *testing.T) {
	commit := func(index uint64) operation {
		rd := raft.Ready{HardState: hardState(1, 2, index)}
		return operation{
			store: func(_ holdfast.Engine, s *etcdraft.Store) error { return s.Save(rd) },
			model: func(m *model) error { return m.save(rd) },
		}
	}
	compact := func(index uint64) operation {
		return operation{
			store: func(_ holdfast.Engine, s *etcdraft.Store) error { return s.Compact(index) },
			model: func(m *model) error { return m.Compact(index) },
		}
	}
	lazy := []operation{commit(3), compact(2), commit(5), compact(4)}
	first := raft.Ready{Entries: entries(1, 1, 1, 1, 1, 1), HardState: hardState(1, 2, 1), MustSync: true}

	after := func(n int) *model { // n of the lazy operations
		m := newModel()
		try(t, m.save(first))
		for _, op := range lazy[:n] {
			try(t, op.model(m))
		}
		return m
	}
	open := func(fs *vfs.Mem) (holdfast.Engine, *etcdraft.Store) {
		e, err := logtree.OpenMem(fs, "db", holdfast.Options{SyncEvery: -1})
		try(t, err)
		s, err := etcdraft.Open(e, etcdraft.Options{Level: holdfast.Power})
		try(t, err)
		return e, s
	}
	found := func(fs *vfs.Mem) int { // how many of the lazy operations are there
		e, s := open(fs)
		defer e.Close()
		defer s.Close()
		for n := range len(lazy) + 1 {
			if differs(s, after(n)) == nil {
				return n
			}
		}
		t.Fatalf("it is none of the states after the first save: %v", differs(s, after(0)))
		return 0
	}

	fs := vfs.NewMem()
	e, s := open(fs)
	try(t, s.Save(first))
	for _, op := range lazy {
		try(t, op.store(e, s))
	}
	fs.Halt()
	if got := found(fs.CrashNothing()); got != 0 {
		t.Errorf("%d operations that were not synced are there", got)
	}
	if got := found(fs.CrashAll()); got != len(lazy) {
		t.Errorf("%d operations are there, and %d had been written", got, len(lazy))
	}
	for seed := range uint64(50) {
		found(fs.Crash(rand.New(rand.NewPCG(seed, 0))))
	}
	_, _ = s.Close(), e.Close() // the power is gone
}
