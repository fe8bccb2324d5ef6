package raftlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// keyed returns a fake engine that removes keys one by one.
func keyed() *fakeEngine {
	st := newFakeEngine()
	st.Native = false
	return st
}

// fill stores the entries from 1 to n in term 1.
func fill(t testing.TB, s *raftlog.Store, n uint64) {
	t.Helper()
	for at := uint64(1); at <= n; at += 1000 {
		store(t, s, entries(at, min(at+999, n), 1)...)
	}
}

// TestOthersComeBetweenChunks holds a long deletion between any two of its chunks and calls everything else, which must
// come through without the rest of it: each needs no more receipts than those of the chunk under way and its own.
func TestOthersComeBetweenChunks(t *testing.T) {
	const n = 20 * chunks.Keys
	others := map[string]func(s *raftlog.Store) error{
		"suffix":           func(s *raftlog.Store) error { return s.DeleteRange(n+50, n+100) },
		"long suffix":      func(s *raftlog.Store) error { return s.DeleteRange(n+20, 2*n) },
		"more of the same": func(s *raftlog.Store) error { return s.DeleteRange(0, n+10) },
		"middle":           func(s *raftlog.Store) error { return s.DeleteRange(n+10, n+20) },
		"overwrite":        func(s *raftlog.Store) error { return s.StoreLogs(entries(n+50, n+60, 2)) },
		"append":           func(s *raftlog.Store) error { return s.StoreLogs(entries(n+101, n+110, 2)) },
		"gap":              func(s *raftlog.Store) error { return s.StoreLogs(entries(n+110, n+120, 2)) },
		"set":              func(s *raftlog.Store) error { return s.Set([]byte("k"), []byte("v")) },
		"get": func(s *raftlog.Store) error {
			_, err := s.Get([]byte("cold"))
			return errors.Join(err, s.GetLog(n+1, new(raft.Log)))
		},
	}
	for name, other := range others {
		t.Run(name, func(t *testing.T) {
			bubbles(t, func(t *testing.T, st *fakeEngine) {
				st.Native = false
				s := openStore(t, st, inMemory)
				fill(t, s, n+100)
				set(t, s, "cold", "v")
				closeStore(t, s)
				s = openStore(t, st, inMemory) // without the value in memory
				st.Hold()
				before := st.Applied
				long := async(func() error { return s.DeleteRange(0, n) })
				st.AwaitApplied(before + 1)
				st.Release(1) // it has its effect
				st.AwaitApplied(before + 2)
				call := async(func() error { return other(s) })
				synctest.Wait() // for its turn
				released := 0
				for done := false; !done; {
					select {
					case err := <-call:
						if done = true; err != nil {
							t.Fatal(err)
						}
					case err := <-long:
						if long = nil; err != nil || name != "more of the same" {
							t.Fatalf("the long deletion came to its end (%v) before the call", err)
						}
					default:
						st.Locked(func() {
							if st.Settled < st.Applied {
								st.Settle()
								released++
							}
						})
						synctest.Wait()
					}
				}
				left := 0
				lo, hi := []byte("r\x00l"), []byte("r\x00m")
				// which returns when all of it is gone, whichever of the two removes it
				if left = storetest.Keys(st, holdfast.Range{Lo: lo, Hi: hi}); left < 5*chunks.Keys && name != "more of the same" {
					t.Fatalf("%d keys were left when the call had come through, after %d receipts", left, released)
				}
				st.Release(-1)
				if long != nil {
					finished(t, nil, long)
				}
				first, _ := s.FirstIndex()
				last, _ := s.LastIndex()
				if want := uint64(n + 1); first != want && !(name == "more of the same" && first == n+11) {
					t.Fatalf("the first index is %d, want %d", first, want)
				}
				if got := storetest.Keys(st, holdfast.Range{Lo: lo, Hi: hi}); uint64(got) > last-first+1 {
					t.Fatalf("%d keys are left of a log from %d to %d", got, first, last)
				}
				closeStore(t, s)
			})
		})
	}
}

// bubbles is fakeEngines, with each engine in a bubble of its own.
func bubbles(t *testing.T, f func(t *testing.T, st *fakeEngine)) {
	fakeEngines(t, func(t *testing.T, st *fakeEngine) {
		synctest.Test(t, func(t *testing.T) { f(t, st) })
	})
}

// TestCloseBetweenChunks: Close does not wait for the rest of a long deletion, which is over for readers; the next
// deletion after the store is opened again goes on with it, unless it is one of the end of the log, which removes what
// is its own.
func TestCloseBetweenChunks(t *testing.T) {
	const n = 20 * chunks.Keys
	for _, name := range []string{"nothing", "prefix", "suffix"} {
		t.Run(name, func(t *testing.T) {
			fakeEngines(t, func(t *testing.T, st *fakeEngine) {
				st.Native = false
				s := openStore(t, st, inMemory)
				fill(t, s, n+100)
				st.Hold()
				before := st.Applied
				long := async(func() error { return s.DeleteRange(0, n) })
				st.AwaitApplied(before + 1)
				st.Release(1)
				st.AwaitApplied(before + 2)
				closing := async(s.Close)
				st.AwaitWaiters(2)
				st.Release(-1)
				finished(t, nil, closing)
				finished(t, nil, long) // it has its effect
				if left := storetest.Keys(st, holdfast.Range{}); left < n/2 {
					t.Fatalf("%d keys are left: Close has waited for more than a chunk", left)
				}
				s = openStore(t, st, inMemory)
				defer closeStore(t, s)
				wantBounds(t, s, n+1, n+100)
				wantNone(t, s, 1, n)
				switch name {
				case "nothing":
					remove(t, s, 2, 1)
				case "prefix":
					remove(t, s, 0, n)
				case "suffix":
					before = st.Applied
					remove(t, s, n+91, n+100)
					if took := st.Applied - before; took != 1 {
						t.Fatalf("a short deletion of the end took %d batches", took)
					}
					wantBounds(t, s, n+1, n+90)
					if left := storetest.Keys(st, holdfast.Range{}); left < n/2 {
						t.Fatalf("%d keys are left", left)
					}
					return
				}
				if left := storetest.Keys(st, holdfast.Range{}); left != 101 {
					t.Fatalf("%d keys are left", left)
				}
			})
		})
	}
}

// A chunk is bounded by bytes too.
func TestChunksOfLargeEntries(t *testing.T) {
	st := keyed()
	st.MaxBatch, st.Record = 1<<22, true
	s := openStore(t, st, inMemory)
	defer closeStore(t, s)
	const n, size = 64, 1 << 17
	for i := uint64(1); i <= n; i++ {
		store(t, s, &raft.Log{Index: i, Term: 1, Data: make([]byte, size)})
	}
	before := st.Applied
	remove(t, s, 0, n)
	if took, least := st.Applied-before, uint64(n*size/chunks.Bytes); took < least {
		t.Fatalf("%d MiB went in %d chunks, want %d or more", n*size>>20, took, least)
	}
	wantLog(t, s)
	if left := storetest.Keys(st, holdfast.Range{}); left != 1 {
		t.Fatalf("%d keys are left", left)
	}
}

// TestInterrupted does random things to a store and to its model, on an engine that refuses now and then in the middle
// of a deletion, so that there is nearly always something dead in the way of the next operation, at either end of the
// log or within it. A deletion has happened as a whole or not at all, and at the end nothing is left of any.
func TestInterrupted(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprintf("chunks of %d", size), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { interrupted(rt, size) })
		})
	}
}

func interrupted(rt *rapid.T, size int) {
	full := errors.New("no space left on device")
	st := keyed()
	open := func() *raftlog.Store {
		s, err := raftlog.Open(st, inMemory)
		if err != nil {
			rt.Fatal(err)
		}
		s.SmallChunks(size)
		return s
	}
	w := &work{newModel(), open()}
	defer func() { _ = w.s.Close() }()
	// try does something that may be refused on the way, to the store, and then to the model if it has happened.
	try := func(rt *rapid.T, do func() error, also func(*model) error) {
		st.Refuse, st.Spare = full, rapid.IntRange(0, 8).Draw(rt, "batches")
		err := do()
		st.Refuse = nil
		if err != nil && !errors.Is(err, full) {
			rt.Fatal(err)
		}
		after := w.model.clone()
		if also(after) != nil {
			rt.Fatal("the model refuses")
		}
		if err != nil && w.model.differs(w.s) == nil {
			if after.differs(w.s) != nil {
				return // it has not happened
			}
			if err := do(); err != nil { // it cannot be told: the commit index may have gone down
				rt.Fatal(err)
			}
		}
		w.model = after
	}
	actions := w.actions()
	actions["delete, interrupted"] = func(rt *rapid.T) {
		lo, hi := w.drawIndex(rt, "lo"), w.drawIndex(rt, "hi")
		try(rt, func() error { return w.s.DeleteRange(lo, hi) }, func(m *model) error { return m.remove(lo, hi) })
	}
	actions["store, interrupted"] = func(rt *rapid.T) {
		if logs := w.drawLogs(rt); len(logs) > 0 {
			try(rt, func() error { return w.s.StoreLogs(logs) }, func(m *model) error { return m.store(logs) })
		}
	}
	actions["append many"] = func(rt *rapid.T) {
		_, last := w.bounds()
		logs := entries(last+1, last+rapid.Uint64Range(1, 100).Draw(rt, "number"), rapid.Uint64().Draw(rt, "term"))
		if err := errors.Join(w.s.StoreLogs(logs), w.store(logs)); err != nil {
			rt.Fatal(err)
		}
	}
	actions["reopen"] = func(rt *rapid.T) {
		if err := w.s.Close(); err != nil {
			rt.Fatal(err)
		}
		w.staged, w.s = nil, open()
	}
	rt.Repeat(actions)
	if err := w.s.DeleteRange(1, 0); err != nil {
		rt.Fatal(err)
	}
	if err := w.differs(w.s); err != nil {
		rt.Fatal(err)
	}
	// The description, perhaps the commit index, and what the model has.
	if got, want := storetest.Keys(st, holdfast.Range{}), 1+len(w.logs)+len(w.stable); got != want && got != want+1 {
		rt.Fatalf("there are %d keys, want %d", got, want)
	}
}

// TestChunksBesideEverything removes prefixes and suffixes chunk by chunk, of one key and a few, while entries are
// appended, overwritten and read, and checks that readers see nothing that is deleted, or another's.
func TestChunksBesideEverything(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			b := newBusy(late)
			b.Native = false
			s := openStore(t, b, inMemory)
			s.SmallChunks(3)
			// A deletion is announced before it begins, under mu, and leaves at least 20 entries. The terms only grow, from one
			// deletion of the end to the next.
			var mu sync.Mutex
			var first, last, term, reads atomic.Uint64
			first.Store(1)
			term.Store(1)
			drive(t, "main", 200, func() bool { return reads.Load() > 100 }, map[string]func(r *rand.Rand) error{
				"main": func(r *rand.Rand) error {
					mu.Lock()
					at := last.Load()
					to, keep := at, first.Load()+20
					if r.IntN(3) == 0 && at > keep {
						to -= r.Uint64N(at - keep)
						last.Store(to)
					}
					mu.Unlock()
					if to < at {
						if err := s.DeleteRange(to+1, at); err != nil {
							return err
						}
						if got, err := s.LastIndex(); err != nil || got != to {
							return fmt.Errorf("the last index is %d, %v, want %d", got, err, to)
						}
						term.Add(1)
						at = to
					}
					n := 1 + r.Uint64N(30)
					if err := s.StoreLogs(entries(at+1, at+n, term.Load())); err != nil {
						return err
					}
					last.Store(at + n)
					var log raft.Log
					if err := s.GetLog(at+1, &log); err != nil {
						return fmt.Errorf("entry %d, which was just stored: %w", at+1, err)
					}
					return same(&log, entry(at+1, term.Load()))
				},
				"snapshot": func(r *rand.Rand) error {
					mu.Lock()
					from, end := first.Load(), last.Load()
					upto := from + r.Uint64N(20)
					if end >= from+60 {
						first.Store(upto + 1)
					}
					mu.Unlock()
					if end < from+60 {
						return nil
					}
					if err := s.DeleteRange(from, upto); err != nil {
						return err
					}
					if got, err := s.FirstIndex(); err != nil || got != upto+1 {
						return fmt.Errorf("the first index is %d, %v, want %d", got, err, upto+1)
					}
					return nil
				},
				"read": func(r *rand.Rand) error {
					from := first.Load()
					at := from + r.Uint64N(40)
					var log raft.Log
					if err := s.GetLog(at, &log); err == raft.ErrLogNotFound {
						return nil
					} else if err != nil {
						return err
					}
					reads.Add(1)
					if log.Term > term.Load() {
						return fmt.Errorf("entry %d has term %d, which is to come", at, log.Term)
					}
					if err := same(&log, entry(at, log.Term)); err != nil {
						return err
					}
					return b.durable(fmt.Sprintf("%d %d", at, log.Term))
				},
				"vote": func(r *rand.Rand) error { return s.SetUint64([]byte("LastVoteTerm"), r.Uint64()) },
			})
			closeStore(t, s)
			close(b.stop)
			<-b.done
			s = openStore(t, b.fakeEngine, inMemory)
			remove(t, s, 1, 0)
			from, _ := s.FirstIndex()
			end, _ := s.LastIndex()
			if got := storetest.Keys(b.fakeEngine, holdfast.Range{Lo: []byte("r\x00l"),
				Hi: []byte("r\x00m")}); uint64(got) != end-from+1 {
				t.Fatalf("%d entries in a log from %d to %d", got, from, end)
			}
			closeStore(t, s)
		})
	}
}

// lazyBad is an engine that finds a value damaged only when it is asked for, and removes keys one by one.
type lazyBad struct {
	holdfast.Engine
	mark []byte // of the damaged value
}

func (e *lazyBad) Capabilities() holdfast.Capabilities {
	c := e.Engine.Capabilities()
	c.NativeDeleteRange = false
	return c
}

func (e *lazyBad) Scan(r holdfast.Range) holdfast.Iterator {
	return &lazyIterator{Iterator: e.Engine.Scan(r), mark: e.mark}
}

type lazyIterator struct {
	holdfast.Iterator
	mark []byte
	err  error
}

func (it *lazyIterator) Next() bool { return it.err == nil && it.Iterator.Next() }

func (it *lazyIterator) Value() []byte {
	v := it.Iterator.Value()
	if bytes.Contains(v, it.mark) {
		it.err = errors.New("the value is damaged")
		return nil
	}
	return v
}

func (it *lazyIterator) Err() error { return it.err }

// TestDeleteDamaged: entries that cannot be read can be deleted, wherever in the deletion they are, and the store opens
// again. A damaged last one once left a dead span that ended before it began, which no Open took.
func TestDeleteDamaged(t *testing.T) {
	for damaged := uint64(1); damaged <= 10; damaged++ {
		for _, span := range [][2]uint64{{1, damaged}, {damaged, 10}, {1, 10}, {damaged, damaged}, {2, 9}} {
			eng := &lazyBad{Engine: mem.New(), mark: fmt.Appendf(nil, "data of %d in", damaged)}
			s := openStore(t, eng, inMemory)
			store(t, s, entries(1, 10, 1)...)
			if err := s.DeleteRange(span[0], span[1]); err != nil {
				t.Fatalf("%d is damaged: DeleteRange(%d, %d): %v", damaged, span[0], span[1], err)
			}
			first, err := s.FirstIndex()
			try(t, err)
			last, err := s.LastIndex()
			try(t, err)
			closeStore(t, s)
			s = openStore(t, eng, inMemory)
			wantBounds(t, s, first, last)
			closeStore(t, s)
		}
	}
}
