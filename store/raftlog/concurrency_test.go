package raftlog_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// busy is a fake engine whose receipts come in late, one by one, and which remembers what each batch
// wrote: the term of an entry, and the number of a vote, are those of their write alone.
type busy struct {
	*fakeEngine
	of   sync.Map // of what was written to the token of its batch
	stop chan struct{}
	done chan struct{}
}

func newBusy(late bool) *busy {
	b := &busy{fakeEngine: newFakeEngine(), stop: make(chan struct{}), done: make(chan struct{})}
	b.Late = late
	b.Hold()
	go func() {
		defer close(b.done)
		r := rand.New(rand.NewPCG(1, 1))
		for {
			select {
			case <-b.stop:
				b.Release(-1)
				return
			default:
			}
			b.Locked(func() {
				for b.Settled < b.Applied && r.IntN(4) > 0 {
					b.Settle()
				}
			})
			runtime.Gosched()
		}
	}()
	return b
}

func (b *busy) Apply(batch *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	// One batch at a time, so that it is known before it is applied, and so before it can be seen.
	var token uint64
	b.Locked(func() { token = b.Applied + 1 })
	prefix := format.NewPrefix("")
	for op := range batch.Ops() {
		if index, ok := prefix.Number(op.Key); ok && op.Kind == holdfast.KindSet {
			var log raft.Log
			if format.DecodeLog(op.Key, op.Value, index, &log) {
				b.of.Store(fmt.Sprintf("%d %d", index, log.Term), token)
			}
		}
		if v, ok := format.DecodeStable(op.Key, op.Value); ok && op.Kind == holdfast.KindSet {
			b.of.Store(string(v), token)
		}
	}
	return b.fakeEngine.Apply(batch, level)
}

// durable reports whether what was written with that name has reached the level.
func (b *busy) durable(name string) error {
	token, ok := b.of.Load(name)
	var settled uint64
	b.Locked(func() { settled = b.Settled })
	if !ok || token.(uint64) > settled {
		return fmt.Errorf("%s was seen and is not durable", name)
	}
	return nil
}

// TestNothingIsSeenTooEarly writes from several goroutines, deletes and overwrites meanwhile, and
// checks of everything that readers see that it is durable.
func TestNothingIsSeenTooEarly(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			b := newBusy(late)
			s := openStore(t, b, inMemory)
			var reads, terms, votes atomic.Uint64
			entryTerm := func(i uint64) *raft.Log { return &raft.Log{Index: i, Term: terms.Add(1)} }
			drive(t, "append", 400, func() bool { return reads.Load() > 0 }, map[string]func(r *rand.Rand) error{
				"append": func(r *rand.Rand) error {
					last, _ := s.LastIndex() // it fails only once the store is closed
					var logs []*raft.Log
					term := terms.Add(1)
					for i := range 1 + r.Uint64N(3) {
						logs = append(logs, &raft.Log{Index: last + 1 + i, Term: term})
					}
					return s.StoreLogs(logs)
				},
				"append more": func(r *rand.Rand) error {
					last, _ := s.LastIndex()
					return s.StoreLog(entryTerm(last + 2 + r.Uint64N(3)))
				},
				"overwrite": func(r *rand.Rand) error {
					last, _ := s.LastIndex()
					return s.StoreLog(entryTerm(last - min(last, r.Uint64N(5))))
				},
				"suffix": func(r *rand.Rand) error {
					last, _ := s.LastIndex()
					return s.DeleteRange(last-min(last, r.Uint64N(6)), last+r.Uint64N(3))
				},
				"prefix": func(r *rand.Rand) error {
					first, _ := s.FirstIndex()
					return s.DeleteRange(0, first+r.Uint64N(6))
				},
				"vote": func(r *rand.Rand) error {
					return s.Set(fmt.Append(nil, r.IntN(4)), fmt.Appendf(nil, "vote %d", votes.Add(1)))
				},
				"read": func(r *rand.Rand) error {
					first, _ := s.FirstIndex()
					last, _ := s.LastIndex()
					if first > 0 && last < first {
						last = first + 10 // deleted in between
					}
					at := first
					if last-first < 1<<40 {
						at += r.Uint64N(last - first + 3)
					}
					var log raft.Log
					if err := s.GetLog(at, &log); err != nil {
						if err == raft.ErrLogNotFound {
							return nil
						}
						return err
					}
					reads.Add(1)
					return b.durable(fmt.Sprintf("%d %d", at, log.Term))
				},
				"stable": func(r *rand.Rand) error {
					v, err := s.Get(fmt.Append(nil, r.IntN(4)))
					if err == raftlog.ErrKeyNotFound {
						return nil
					}
					if err != nil {
						return err
					}
					return b.durable(string(v))
				},
				"last": func(r *rand.Rand) error {
					last, err := s.LastIndex()
					if err != nil || last == 0 {
						return err
					}
					if err := s.GetLog(last, new(raft.Log)); err != nil && err != raft.ErrLogNotFound {
						return err
					}
					return nil
				},
			})
			closeStore(t, s)
			close(b.stop)
			<-b.done
			// What is in the engine is a store.
			s = openStore(t, b.fakeEngine, inMemory)
			closeStore(t, s)
		})
	}
}

// drive runs all workers, each in a goroutine, until the one that leads has been called n times or
// more and it is enough, and the others at least once.
func drive(t *testing.T, lead string, n int, enough func() bool, workers map[string]func(r *rand.Rand) error) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	var over atomic.Bool
	for k, name := range slices.Sorted(maps.Keys(workers)) {
		r := rand.New(rand.NewPCG(seed, uint64(k)))
		wg.Go(func() {
			for i := 0; i == 0 || !over.Load(); i++ {
				if err := workers[name](r); err != nil {
					t.Errorf("%s: %v", name, err)
					over.Store(true)
				}
				if name == lead && i >= n && enough() {
					over.Store(true)
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
}

// TestConcurrent works as raft does, on every engine: one goroutine appends and resolves conflicts,
// one deletes what a snapshot holds, one votes, others replicate.
func TestConcurrent(t *testing.T) {
	targets(t, func(t *testing.T, tg *target) {
		s := openStore(t, tg.Engine, raftlog.Options{Level: tg.Level})
		s.SmallChunks(2)
		var term, vote uint64
		var last, settled atomic.Uint64 // settled is what no conflict reaches
		drive(t, "main", 100, func() bool { return true }, map[string]func(r *rand.Rand) error{
			"main": func(r *rand.Rand) error {
				term++
				at := last.Load()
				if r.IntN(5) == 0 && at > settled.Load()+3 {
					at -= 1 + r.Uint64N(3)
					if err := s.DeleteRange(at+1, last.Load()); err != nil {
						return err
					}
				}
				n := 1 + r.Uint64N(5)
				if err := s.StoreLogs(entries(at+1, at+n, term)); err != nil {
					return err
				}
				last.Store(at + n)
				if got, err := s.LastIndex(); err != nil || got != at+n {
					return fmt.Errorf("the last index is %d, %v, want %d", got, err, at+n)
				}
				if r.IntN(4) == 0 {
					settled.Store(at)
				}
				return nil
			},
			"snapshot": func(r *rand.Rand) error {
				first, err := s.FirstIndex()
				if err != nil || settled.Load() < 2 {
					return err
				}
				upto := settled.Load() - 1
				if err := s.DeleteRange(first, upto); err != nil {
					return err
				}
				if first, err = s.FirstIndex(); err == nil && first != upto+1 {
					return fmt.Errorf("the first index is %d after everything up to %d was deleted", first, upto)
				}
				return err
			},
			"vote": func(r *rand.Rand) error {
				vote++
				if err := s.SetUint64([]byte("LastVoteTerm"), vote); err != nil {
					return err
				}
				if got, err := s.GetUint64([]byte("LastVoteTerm")); err != nil || got != vote {
					return fmt.Errorf("the vote is %d, %v, want %d", got, err, vote)
				}
				return nil
			},
			"replicate": func(r *rand.Rand) error {
				first, err := s.FirstIndex()
				if err != nil || first == 0 {
					return err
				}
				end, err := s.LastIndex()
				if err != nil || end < first {
					return err
				}
				at := first + r.Uint64N(end-first+1)
				sure := settled.Load() // before it is read: what is settled after that may be missing in between
				var log raft.Log
				if err := s.GetLog(at, &log); errors.Is(err, raft.ErrLogNotFound) {
					if now, _ := s.FirstIndex(); at >= now && at <= sure {
						return fmt.Errorf("entry %d is missing, the log begins at %d", at, now)
					}
					return nil
				} else if err != nil {
					return err
				}
				return same(&log, entry(at, log.Term))
			},
			"candidate": func(r *rand.Rand) error {
				_, err := s.GetUint64([]byte("LastVoteTerm"))
				if err == raftlog.ErrKeyNotFound {
					return nil
				}
				return err
			},
		})
		closeStore(t, s)
	})
}

// A store leaves no goroutines behind, and has none of its own.
func TestNoLeaks(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	s := memStore(t, raftlog.Options{})
	store(t, s, entries(1, 10, 1)...)
	remove(t, s, 1, 3)
	closeStore(t, s)
}

// Close may come at any time: calls that are under way end, and those after it are told.
func TestCloseWhileBusy(t *testing.T) {
	for round := range 20 {
		st := newFakeEngine()
		s := openStore(t, st, inMemory)
		store(t, s, entries(1, 50, 1)...)
		var wg sync.WaitGroup
		var calls atomic.Int64
		for name, f := range map[string]func(i uint64) error{
			"append":    func(i uint64) error { return s.StoreLog(entry(51+i, 2)) },
			"overwrite": func(i uint64) error { return s.StoreLog(entry(i%50, 2)) },
			"delete":    func(i uint64) error { return s.DeleteRange(0, i) },
			"get":       func(i uint64) error { return s.GetLog(40, new(raft.Log)) },
			"set":       func(i uint64) error { return s.SetUint64([]byte("k"), i) },
			"stable":    func(i uint64) error { _, err := s.Get([]byte("k")); return err },
			"keys":      func(i uint64) error { _, err := s.Keys(); return err },
		} {
			wg.Go(func() {
				for i := uint64(0); ; i++ {
					calls.Add(1)
					switch err := f(i); err {
					case nil, raft.ErrLogNotFound, raftlog.ErrKeyNotFound:
					case holdfast.ErrClosed:
						return
					default:
						t.Errorf("%s: %v", name, err)
						return
					}
				}
			})
		}
		for calls.Load() < int64(round*5) && !t.Failed() {
			runtime.Gosched()
		}
		closeStore(t, s)
		var applied, more uint64
		st.Locked(func() { applied = st.Applied })
		closeStore(t, openStore(t, st, inMemory)) // the name is free
		wg.Wait()
		if st.Locked(func() { more = st.Applied - applied - 1 }); more != 0 {
			t.Fatalf("%d batches came after Close", more)
		}
	}
}

// parked is an engine whose next Get comes back only when it is let go.
type parked struct {
	*fakeEngine
	park chan chan struct{} // what is received from it is closed when the value has been read
	free chan struct{}
}

func (p *parked) Get(dst, key []byte) ([]byte, error) {
	value, err := p.fakeEngine.Get(dst, key)
	select {
	case read := <-p.park:
		close(read)
		<-p.free
	default:
	}
	return value, err
}

// TestSlowGetBesideSet: a Get that read the old value from the engine while a Set was under way, and returns after
// it, must not leave the old value in memory.
func TestSlowGetBesideSet(t *testing.T) {
	st := newFakeEngine()
	st.Late = true
	eng := &parked{fakeEngine: st, park: make(chan chan struct{}, 1), free: make(chan struct{})}
	open := func() *raftlog.Store {
		s, err := raftlog.Open(eng, raftlog.Options{Level: holdfast.Memory})
		try(t, err)
		return s
	}
	s := open()
	set(t, s, "vote", "old")
	try(t, s.Close())
	s = open() // without the value in memory
	st.Hold()
	done, got := make(chan error), make(chan error)
	go func() { done <- s.Set([]byte("vote"), []byte("new")) }()
	st.AwaitWaiters(1)
	read := make(chan struct{})
	eng.park <- read
	go func() {
		_, err := s.Get([]byte("vote"))
		got <- err
	}()
	<-read
	st.Release(-1)
	try(t, <-done)
	close(eng.free)
	try(t, <-got)
	if v, err := s.Get([]byte("vote")); err != nil || string(v) != "new" {
		t.Fatalf("after Set returned, Get says %q, %v", v, err)
	}
	try(t, s.Close())
}
