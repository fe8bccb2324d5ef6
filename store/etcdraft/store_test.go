package etcdraft_test

import (
	"bytes"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/etcdraft"
)

// watched is an engine that notes the levels of batches, and counts reads. Where it is strict, it syncs at every level.
type watched struct {
	holdfast.Engine
	strict bool
	levels []holdfast.Level
	reads  atomic.Int64
	held   bool   // receipts do not come in
	first  func() // before the next scan
}

func (w *watched) Capabilities() holdfast.Capabilities {
	c := w.Engine.Capabilities()
	if w.strict {
		c.Memory.Given, c.Process.Given = holdfast.Power, holdfast.Power
	}
	return c
}

func (w *watched) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	w.levels = append(w.levels, level)
	r, err := w.Engine.Apply(b, level)
	if w.held {
		return holdfast.NewReceipt(never{}, 1), err
	}
	return r, err
}

func (w *watched) Get(dst, key []byte) ([]byte, error) {
	w.reads.Add(1)
	return w.Engine.Get(dst, key)
}

func (w *watched) Scan(r holdfast.Range) holdfast.Iterator {
	w.reads.Add(1)
	if first := w.first; first != nil {
		w.first = nil
		first()
	}
	return w.Engine.Scan(r)
}

// never is what receipts wait for that must not be waited for.
type never struct{}

var errWaited = errors.New("a receipt was waited for")

func (never) Wait(uint64) error { return errWaited }

// What raft must not forget is synced, whatever MustSync says; a new commit index is not.
func TestLevels(t *testing.T) {
	for _, strict := range []bool{false, true} {
		tg := storetest.NewTarget(t, storetest.Engines()[0], holdfast.Power)
		w := &watched{Engine: tg.Engine, strict: strict}
		s := openStore(t, w, etcdraft.Options{})
		lazy := holdfast.Process
		if strict {
			lazy = holdfast.Memory
		}
		for i, c := range []struct {
			rd   raft.Ready
			want holdfast.Level
		}{
			{raft.Ready{HardState: hardState(1, 0, 0)}, holdfast.Power},
			{raft.Ready{HardState: hardState(1, 2, 0)}, holdfast.Power},
			{raft.Ready{Entries: entries(1, 1, 1)}, holdfast.Power},
			{raft.Ready{HardState: hardState(1, 2, 1)}, lazy},
			{raft.Ready{HardState: hardState(1, 2, 2), MustSync: true}, holdfast.Power},
			{raft.Ready{HardState: hardState(1, 2, 9), Snapshot: snapshot(9, 1, 1)}, holdfast.Power},
			{raft.Ready{}, 0},
			{raft.Ready{MustSync: true, SoftState: &raft.SoftState{}}, 0},
		} {
			w.levels = nil
			w.held = strict && c.want == lazy
			try(t, s.Save(c.rd))
			w.held = false
			var want []holdfast.Level
			if c.want != 0 {
				want = append(want, c.want)
			}
			if !slices.Equal(w.levels, want) {
				t.Errorf("strict=%v, Ready %d: written at %v, want %v", strict, i, w.levels, want)
			}
		}
		if hard, _, err := s.InitialState(); err != nil || hard.GetCommit() != 9 {
			t.Error(hard, err)
		}
		w.held = true
		if err := s.Save(raft.Ready{Entries: entries(10, 1)}); err != errWaited {
			t.Error("entries are acknowledged before they are durable:", err)
		}
		storetest.WantError(t, s.Close(), errWaited)
		tg.Close(t)
	}
}

// The newest entries are read without asking the engine, and only so many are kept.
func TestCache(t *testing.T) {
	w := &watched{Engine: mem.New()}
	o := inMemory
	o.CacheBytes = 10 * proto.Size(&raftpb.Entry{Index: new(uint64(100)), Term: new(uint64(1)), Data: make([]byte, 100)})
	s := openStore(t, w, o)
	storetest.CloseAtEnd(t, s)
	for i := range uint64(100) {
		e := &raftpb.Entry{Index: new(i + 1), Term: new(uint64(1)), Data: make([]byte, 100)}
		try(t, s.Save(raft.Ready{Entries: []*raftpb.Entry{e}}))
	}
	reads := func(lo, hi uint64) int64 {
		before := w.reads.Load()
		got, err := s.Entries(lo, hi, math.MaxUint64)
		if err != nil || uint64(len(got)) != hi-lo {
			t.Fatal(len(got), err)
		}
		_, err = s.Term(lo)
		try(t, err)
		return w.reads.Load() - before
	}
	if n := reads(92, 101); n != 0 {
		t.Errorf("%d reads of the newest entries", n)
	}
	if n := reads(80, 101); n == 0 {
		t.Error("more is kept in memory than was asked for")
	}
	try(t, s.Compact(95))
	if n := reads(96, 101); n != 0 {
		t.Errorf("%d reads of the newest entries after compaction", n)
	}
}

// Readers see what is durable only, and never what is being replaced.
func TestUnderWay(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, e *storetest.FakeEngine) {
		s := openStore(t, e, etcdraft.Options{Level: holdfast.Memory, CacheBytes: -1})
		storetest.CloseAtEnd(t, s)
		want := func(first, last uint64, terms ...uint64) {
			t.Helper()
			f, err := s.FirstIndex()
			try(t, err)
			l, err := s.LastIndex()
			try(t, err)
			if f != first || l != last {
				t.Fatalf("the log goes from %d to %d, want %d to %d", f, l, first, last)
			}
			if len(terms) > 0 {
				got, err := s.Entries(first, last+1, math.MaxUint64)
				try(t, err)
				try(t, same(got, entries(first, terms...)))
			}
			if _, err := s.Term(last + 1); err != raft.ErrUnavailable {
				t.Fatal(err)
			}
		}
		held := func(f func() error, meanwhile func()) {
			t.Helper()
			e.Hold()
			done := storetest.Async(f)
			e.AwaitWaiters(1)
			meanwhile()
			e.Release(-1)
			storetest.Finished(t, nil, done)
		}
		try(t, s.Save(raft.Ready{Entries: entries(1, 1, 1, 1, 1)}))
		held(func() error { return s.Save(raft.Ready{Entries: entries(5, 1), HardState: hardState(1, 1, 5)}) }, func() {
			want(1, 4, 1, 1, 1, 1)
			if hard, _, err := s.InitialState(); err != nil || hard != nil {
				t.Fatal(hard, err)
			}
		})
		held(func() error { return s.Save(raft.Ready{Entries: entries(3, 2)}) }, func() { want(1, 2, 1, 1) })
		want(1, 3, 1, 1, 2)

		held(func() error { _, err := s.CreateSnapshot(2, nil, nil); return err }, func() {
			if snap, err := s.Snapshot(); err != nil || snap.GetMetadata().GetIndex() != 0 {
				t.Fatal(snap, err)
			}
		})
		held(func() error { return s.Save(raft.Ready{Snapshot: snapshot(9, 2, 1)}) }, func() {
			want(1, 0)
			switch snap, err := s.Snapshot(); {
			case e.Late && (err != nil || snap.GetMetadata().GetIndex() != 2):
				t.Fatal(snap, err)
			case !e.Late && err != raft.ErrSnapshotTemporarilyUnavailable:
				t.Fatal(snap, err)
			}
		})
		want(10, 9)
		if snap, err := s.Snapshot(); err != nil || snap.GetMetadata().GetIndex() != 9 {
			t.Fatal(snap, err)
		}
		try(t, s.Save(raft.Ready{Entries: entries(10, 3, 3, 3)}))
		held(func() error { return s.Compact(11) }, func() { want(12, 12, 3) })
	})
}

// A reader that has begun gets one log, not the beginning of a newer one and the end of an older.
func TestReplacedMeanwhile(t *testing.T) {
	w := &watched{Engine: mem.New()}
	s := openStore(t, w, etcdraft.Options{Level: holdfast.Memory, CacheBytes: -1})
	storetest.CloseAtEnd(t, s)
	try(t, s.Save(raft.Ready{Entries: entries(1, 1, 1, 1, 1, 1)}))
	w.first = func() { try(t, s.Save(raft.Ready{Entries: entries(2, 2, 2, 2, 2)})) }
	got, err := s.Entries(1, 6, math.MaxUint64)
	try(t, err)
	try(t, same(got, entries(1, 1, 2, 2, 2, 2)))
	w.first = func() { try(t, s.Compact(2)) }
	if _, err := s.Entries(1, 6, math.MaxUint64); err != raft.ErrCompacted {
		t.Error(err)
	}
	w.first = func() { try(t, s.Save(raft.Ready{Entries: entries(3, 3)})) }
	if _, err := s.Entries(3, 6, math.MaxUint64); err != raft.ErrUnavailable {
		t.Error(err)
	}
}

// What an engine refuses has no effect; after what fails later nothing is written, and reads go on.
func TestFailures(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, e *storetest.FakeEngine) {
		s := openStore(t, e, inMemory)
		m := newModel()
		rd := raft.Ready{Entries: entries(1, 1, 1, 1), HardState: hardState(1, 1, 1)}
		try(t, errors.Join(s.Save(rd), m.save(rd)))
		e.Locked(func() { e.Refuse = holdfast.ErrFull })
		storetest.WantError(t, s.Save(raft.Ready{Entries: entries(2, 2), HardState: hardState(2, 2, 2)}), holdfast.ErrFull)
		storetest.WantError(t, s.Save(raft.Ready{Snapshot: snapshot(9, 9, 1)}), holdfast.ErrFull)
		storetest.WantError(t, s.Compact(2), holdfast.ErrFull)
		_, err := s.CreateSnapshot(2, nil, nil)
		storetest.WantError(t, err, holdfast.ErrFull)
		try(t, differs(s, m))
		e.Locked(func() { e.Refuse = nil })
		rd = raft.Ready{Entries: entries(3, 2), HardState: hardState(2, 2, 2)}
		try(t, errors.Join(s.Save(rd), m.save(rd)))
		try(t, differs(s, m))

		storetest.WantError(t, s.Save(raft.Ready{Entries: []*raftpb.Entry{
			{Index: new(uint64(4)), Data: make([]byte, 1<<18)}}}), holdfast.ErrTooLarge)
		storetest.WantError(t, s.Save(raft.Ready{Snapshot: &raftpb.Snapshot{Data: make([]byte, 1<<18),
			Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(9))}}}), holdfast.ErrTooLarge)
		try(t, differs(s, m))

		e.Hold()
		done := storetest.Async(func() error { return s.Save(raft.Ready{Entries: entries(3, 3)}) })
		e.AwaitWaiters(1)
		e.Locked(func() { e.Fail = errors.New("the device is gone") })
		storetest.Finished(t, holdfast.ErrPoisoned, done)
		storetest.WantError(t, s.Save(raft.Ready{Entries: entries(3, 4)}), holdfast.ErrPoisoned)
		got, err := s.Entries(1, 3, math.MaxUint64)
		try(t, err)
		try(t, same(got, entries(1, 1, 1)))
		if term, err := s.Term(3); err != raft.ErrUnavailable { // which of two is not known
			t.Error(term, err)
		}
		storetest.WantError(t, s.Close(), holdfast.ErrPoisoned)
	})
}

// A value with a damaged byte, that of another key, or a missing one is ErrCorrupt, never a wrong answer.
func TestDamage(t *testing.T) {
	e := mem.New()
	s := openStore(t, e, inMemory)
	try(t, s.Save(raft.Ready{Entries: entries(1, 1, 1, 1, 1, 1), HardState: hardState(1, 1, 1)}))
	_, err := s.CreateSnapshot(2, &raftpb.ConfState{Voters: []uint64{1}}, []byte("data"))
	try(t, err)
	var b holdfast.Batch
	try(t, s.PutConfState(&b, &raftpb.ConfState{Voters: []uint64{1, 2}}))
	try(t, holdfast.Commit(e, &b, holdfast.Memory))
	try(t, s.Close())
	type pair struct{ key, value []byte }
	var all []pair
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		all = append(all, pair{slices.Clone(it.Key()), slices.Clone(it.Value())})
	}
	try(t, it.Close())
	if len(all) != 8 {
		t.Fatal(len(all))
	}
	look := func() error {
		s, err := etcdraft.Open(e, inMemory)
		if err != nil {
			return err
		}
		defer s.Close()
		_, err = s.Entries(1, 6, math.MaxUint64)
		_, snapErr := s.Snapshot()
		return errors.Join(err, snapErr)
	}
	put := func(p pair, value []byte) {
		var b holdfast.Batch
		if value == nil {
			b.Delete(p.key)
		} else {
			b.Set(p.key, value)
		}
		try(t, holdfast.Commit(e, &b, holdfast.Memory))
	}
	try(t, look())
	for i, p := range all {
		for at := range p.value {
			damaged := slices.Clone(p.value)
			damaged[at] ^= 0x10
			put(p, damaged)
			storetest.WantError(t, look(), holdfast.ErrCorrupt)
		}
		put(p, all[(i+1)%len(all)].value)
		storetest.WantError(t, look(), holdfast.ErrCorrupt)
		if !bytes.Equal(p.key[2:], []byte("c")) { // without a conf state the snapshot's is one
			put(p, nil)
			storetest.WantError(t, look(), holdfast.ErrCorrupt)
		}
		put(p, p.value)
		try(t, look())
	}
}

// Groups in one engine do not see each other, and a name is open once.
func TestGroups(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		names := []string{"", "a", "ab", "b"}
		for round := range 2 {
			for i, name := range names {
				s := openStore(t, tg.Engine, etcdraft.Options{Name: name, Level: tg.Level})
				_, err := etcdraft.Open(tg.Engine, etcdraft.Options{Name: name, Level: tg.Level})
				storetest.WantError(t, err, holdfast.ErrLocked)
				last, err := s.LastIndex()
				if want := uint64(round * (i + 1)); err != nil || last != want {
					t.Fatalf("group %q: %d, %v, want %d", name, last, err, want)
				}
				try(t, s.Save(raft.Ready{Entries: entries(1, slices.Repeat([]uint64{uint64(i + 1)}, i+1)...)}))
				try(t, s.Close())
			}
			tg.Reopen(t)
		}
		got, err := etcdraft.Names(tg.Engine)
		if err != nil || !slices.Equal(got, []string{"", "a", "b", "ab"}) {
			t.Fatalf("%q, %v", got, err)
		}
		_, err = etcdraft.Open(tg.Engine, etcdraft.Options{Name: strings.Repeat("n", etcdraft.MaxNameSize+1)})
		storetest.WantError(t, err, holdfast.ErrBadOption)
	})
}

func TestClosed(t *testing.T) {
	s := openStore(t, mem.New(), inMemory)
	try(t, s.Close())
	_, _, initial := s.InitialState()
	_, first := s.FirstIndex()
	_, last := s.LastIndex()
	_, term := s.Term(0)
	_, list := s.Entries(1, 2, 0)
	_, snap := s.Snapshot()
	_, created := s.CreateSnapshot(1, nil, nil)
	var b holdfast.Batch
	for i, err := range []error{initial, first, last, term, list, snap, created, s.Save(raft.Ready{}), s.Compact(1),
		s.ApplySnapshot(snapshot(1, 1)), s.PutConfState(&b, nil), s.Close()} {
		if !errors.Is(err, holdfast.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// A weak level is warned of.
func TestWarning(t *testing.T) {
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	s := openStore(t, mem.New(), etcdraft.Options{Level: holdfast.Memory, Logger: logger})
	if s.Level() != holdfast.Memory || !strings.Contains(text.String(), "unsafe for votes") {
		t.Error(text.String())
	}
	try(t, s.Close())
}

// repaired is an engine in which a loss was accepted.
type repaired struct{ holdfast.Engine }

func (r *repaired) Capabilities() holdfast.Capabilities {
	c := r.Engine.Capabilities()
	c.Accepted = "a loss"
	return c
}

// A store that may have lost a vote does not open; one that is made after the loss does.
func TestAccepted(t *testing.T) {
	e := mem.New()
	try(t, openStore(t, e, inMemory).Close())
	_, err := etcdraft.Open(&repaired{e}, inMemory)
	storetest.WantError(t, err, holdfast.ErrCorrupt)
	made := &repaired{mem.New()}
	for range 2 {
		try(t, openStore(t, made, inMemory).Close())
	}
}

// Readers get parts of a log that there was at one time, while it is appended to, replaced and compacted.
func TestConcurrent(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		s := openStore(t, tg.Engine, etcdraft.Options{Level: tg.Level, CacheBytes: 300})
		s.SmallChunks(3)
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					first, _ := s.FirstIndex()
					last, _ := s.LastIndex()
					got, err := s.Entries(first, last+1, math.MaxUint64)
					if err != nil && err != raft.ErrCompacted && err != raft.ErrUnavailable {
						t.Error(err)
						return
					}
					for i, e := range got { // a log's terms never go down
						if e.GetIndex() != first+uint64(i) || i > 0 && e.GetTerm() < got[i-1].GetTerm() ||
							!proto.Equal(e, entry(e.GetIndex(), e.GetTerm())) {
							t.Errorf("after %v: %v", got[max(i, 1)-1], e)
							return
						}
					}
					if _, err := s.Snapshot(); err != nil && err != raft.ErrSnapshotTemporarilyUnavailable {
						t.Error(err)
						return
					}
					if _, err := s.Term((first + last) / 2); err != nil && err != raft.ErrCompacted && err != raft.ErrUnavailable {
						t.Error(err)
						return
					}
				}
			})
		}
		for term := range uint64(150) {
			first, err := s.FirstIndex()
			try(t, err)
			last, err := s.LastIndex()
			try(t, err)
			at := last + 1
			if term%3 == 0 && last > first {
				at -= min(30, last-first)
			}
			try(t, s.Save(raft.Ready{Entries: entries(at, slices.Repeat([]uint64{term + 1}, 12)...)}))
			if term%10 == 9 {
				_, err := s.CreateSnapshot(at, nil, nil)
				try(t, err)
				try(t, s.Compact(at-8))
			}
			if term%50 == 49 {
				try(t, s.Save(raft.Ready{Snapshot: snapshot(at+1000, term, 1)}))
			}
		}
		close(stop)
		readers.Wait()
		try(t, s.Close())
	})
}
