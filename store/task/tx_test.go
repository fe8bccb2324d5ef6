package task_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

var errUndone = errors.New("undone")

// update runs a transaction of the store's database.
func (b *bench) update(f func(tx *kv.Tx) error) error { return b.DB().Update(ctx, f) }

// onFakes runs a test on engines that show batches at once, and late.
func onFakes(t *testing.T, test func(b *bench, eng *storetest.FakeEngine)) {
	storetest.FakeEngines(t, func(t *testing.T, eng *storetest.FakeEngine) {
		b := &bench{t: t, eng: eng, c: newClock()}
		b.open()
		test(b, eng)
		b.examine()
		storetest.Close(t, b.Store)
	})
}

// A transaction that fails, whatever the reason, leaves nothing of tasks: in the engine, in memory, for those who come
// next, and for a store that is opened again.
func TestTransactionsThatFail(t *testing.T) {
	for name, fail := range map[string]func(eng *storetest.FakeEngine) error{
		"error": func(*storetest.FakeEngine) error { return errUndone },
		"panic": func(*storetest.FakeEngine) error { panic(errUndone) },
		"goexit": func(*storetest.FakeEngine) error {
			runtime.Goexit()
			return nil
		},
		"refused": func(eng *storetest.FakeEngine) error {
			eng.Locked(func() { eng.Refuse, eng.Spare = errUndone, 0 })
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			onFakes(t, func(b *bench, eng *storetest.FakeEngine) {
				b.add(task.Spec{Kind: "k", ID: "runs", Priority: 9}, task.Spec{Kind: "k", ID: "there", Sequence: "s"},
					task.Spec{Kind: "k", ID: "next", Sequence: "s"}, task.Spec{Kind: "k", ID: "behind", After: []string{"runs"}})
				held := b.claimN(1, "runs")[0]
				told := 0
				stop := b.Watch(held, func() { told++ })
				defer stop()
				before, err := commits.Contents(eng.Engine, holdfast.Range{})
				b.ok(err)

				done := make(chan error)
				go func() {
					err := errUndone
					defer func() {
						_ = recover()
						done <- err
					}()
					err = b.update(func(tx *kv.Tx) error {
						s := b.In(tx)
						b.ok(tx.Bucket("b").Put([]byte("key"), nil))
						_, err := s.Enqueue(task.Spec{Kind: "k", ID: "new", Unique: "u", Sequence: "s"},
							task.Spec{Kind: "k", Delay: time.Second, Queue: "other", Payload: make([]byte, 2000)})
						b.ok(err)
						_, err = s.Complete(held, task.Spec{Kind: "k", ID: "then"})
						b.ok(err)
						b.ok(s.Delete("there"))
						b.ok(s.Cancel("next"))
						return fail(eng)
					})
				}()
				b.is(<-done, errUndone)
				eng.Locked(func() { eng.Refuse = nil })

				after, err := commits.Contents(eng.Engine, holdfast.Range{})
				if b.ok(err); fmt.Sprint(after) != fmt.Sprint(before) {
					t.Error("the engine has changed")
				}
				if told != 0 {
					t.Error("who watches the task was told that it has ended")
				}
				queues, err := b.Queues(ctx)
				if b.ok(err); len(queues) != 1 || queues[0].Counts[task.Running] != 1 || queues[0].Counts[task.Waiting] != 1 ||
					queues[0].Counts[task.Blocked] != 2 || queues[0].Counts[task.Completed] != 0 {
					t.Errorf("%+v", queues)
				}
				for range 2 {
					for id, state := range map[string]task.State{"runs": task.Running, "there": task.Waiting,
						"next": task.Blocked, "behind": task.Blocked, "new": 0, "then": 0} {
						b.state(id, state)
					}
					b.examine()
					b.reopen()
				}
				b.pass(time.Minute) // leases are longer across a restart
				b.ok(b.Complete(ctx, b.claim("runs", "there")...))
				b.ok(b.Complete(ctx, b.claim("next", "behind")...))
				b.add(task.Spec{Kind: "k", ID: "new", Unique: "u", Sequence: "s"}, task.Spec{Kind: "k", ID: "then"})
				b.claim("new", "then")
			})
		})
	}
}

// An error of one call in a transaction is the function's to handle: what was done before it stays, and nothing of the
// call is there.
func TestTransactionGoesOnAfterAnError(t *testing.T) {
	onFakes(t, func(b *bench, eng *storetest.FakeEngine) {
		b.add(task.Spec{Kind: "k", ID: "taken", Queue: "q"})
		held := b.claim("taken")[0]
		foreign := held
		foreign.Token++
		eng.Hold()
		wait, err := b.DB().Submit(ctx, func(tx *kv.Tx) error {
			s := b.In(tx)
			_, err := s.Enqueue(task.Spec{Kind: "k", ID: "a"})
			b.ok(err)
			// Half of it is decided when it fails.
			_, err = s.Enqueue(task.Spec{Kind: "k", ID: "b", Sequence: "s", Unique: "u"}, task.Spec{Kind: "k", ID: "a"})
			b.is(err, task.ErrExists)
			_, err = s.Enqueue(task.Spec{Kind: "k", ID: "b", Sequence: "s"}, task.Spec{Kind: "k", After: []string{"none"}})
			b.is(err, holdfast.ErrNotFound)
			_, err = s.Enqueue(task.Spec{ID: "without a kind"})
			b.is(err, holdfast.ErrBadOption)
			_, err = s.Complete(held, task.Spec{Kind: "k", ID: "a"}) // completed, and then it fails
			b.is(err, task.ErrExists)
			_, err = s.Complete(foreign)
			b.is(err, task.ErrLeaseLost)
			b.is(s.Fail(held, task.Failure{}, task.FailOptions{RetryIn: -1}), holdfast.ErrBadOption)
			b.is(s.Snooze(held, -1), holdfast.ErrBadOption)
			b.is(s.SetOutput(held, make([]byte, task.MaxPayloadSize+1)), holdfast.ErrTooLarge)
			b.is(s.Retry("taken"), task.ErrState)
			b.is(s.Delete("taken"), task.ErrState)
			b.is(s.Cancel("b"), holdfast.ErrNotFound)
			_, err = s.Get("b")
			b.is(err, holdfast.ErrNotFound)
			if got, err := s.Get("taken"); err != nil || got.State != task.Running {
				t.Error(got, err)
			}
			_, err = s.Enqueue(task.Spec{Kind: "k", ID: "c", Sequence: "s", Unique: "u"})
			return err
		})
		b.ok(err)
		b.state("a", task.Waiting) // before it is durable
		eng.Release(-1)
		b.ok(wait.Wait())
		b.state("b", 0)
		b.state("c", task.Waiting)
		b.ok(b.Complete(ctx, held))
		b.reopen()
		b.claim("a", "c")
	})
}

// All calls in a transaction see what those before have done, and others see all of it or nothing.
func TestTransactionSeesItself(t *testing.T) {
	onFakes(t, func(b *bench, eng *storetest.FakeEngine) {
		b.add(task.Spec{Kind: "k", ID: "a", MaxAttempts: 1}, task.Spec{Kind: "k", ID: "b"}, task.Spec{Kind: "k", ID: "c"},
			task.Spec{Kind: "k", ID: "d"})
		held := b.claim("a", "b", "c", "d")
		told := 0
		defer b.Watch(held[0], func() { told++ })()
		b.ok(b.update(func(tx *kv.Tx) error {
			s := b.In(tx)
			state := func(id string, want task.State) {
				if got, err := s.Get(id); err != nil || got.State != want {
					t.Errorf("%s is %v, want %v: %v", id, got.State, want, err)
				}
			}
			_, err := s.Enqueue(task.Spec{Kind: "k", ID: "after a", After: []string{"a"}, Queue: "q"},
				task.Spec{Kind: "k", ID: "after b", After: []string{"b"}, Queue: "q"})
			b.ok(err)
			state("after b", task.Blocked)
			results, err := s.Complete(held[1], task.Spec{Kind: "k", ID: "then", After: []string{"b"}, Queue: "q"})
			if b.ok(err); len(results) != 1 || results[0].ID != "then" {
				t.Error(results)
			}
			_, err = s.Complete(held[1])
			b.is(err, task.ErrLeaseLost)
			state("b", task.Completed)
			state("after b", task.Waiting)
			state("then", task.Waiting)

			b.ok(s.Fail(held[0], task.Failure{Message: "why"}, task.FailOptions{}))
			state("a", task.Dead)
			state("after a", task.Cancelled)
			b.ok(s.Retry("a"))
			state("a", task.Waiting)
			b.ok(s.Retry("after a"))
			state("after a", task.Waiting)
			b.ok(s.Delete("after a"))
			b.ok(s.SetOutput(held[2], make([]byte, 3000)))
			if got, err := s.Get("c"); err != nil || len(got.Output) != 3000 {
				t.Error(got, err)
			}
			b.ok(s.Snooze(held[2], time.Minute))
			state("c", task.Scheduled)
			b.ok(s.Cancel("d"))
			b.is(s.Fail(held[3], task.Failure{}, task.FailOptions{}), task.ErrCancelled)
			if told != 0 {
				t.Error("who watches is told before the transaction has its place")
			}
			return nil
		}))
		if told != 1 {
			t.Errorf("who watches was told %d times", told)
		}
		b.is(b.Complete(ctx, held[0]), task.ErrLeaseLost)
		b.state("after a", 0)
		b.reopen()
		b.ok(b.Complete(ctx, b.claim("a", "after b", "then")...))
		b.pass(time.Minute)
		b.claim("c")
	})
}

// What a function keeps waiting waits no longer than its context lasts, and a call that waits for itself says so.
func TestBlockedFunction(t *testing.T) {
	b := newBench(t)
	b.add(task.Spec{Kind: "k", ID: "a"}, task.Spec{Kind: "k", ID: "b"})
	held := b.claimN(1, "a")[0]
	inside, on := make(chan bool), make(chan bool)
	blocked := storetest.Async(func() error {
		return b.update(func(tx *kv.Tx) error {
			_, err := b.In(tx).Complete(held)
			inside <- true
			<-on
			return errors.Join(err, errUndone)
		})
	})
	<-inside
	short, cancel := context.WithCancel(ctx)
	calls := []func() error{
		func() error { _, err := b.Claim(short, task.ClaimOptions{}); return err },
		func() error {
			_, err := b.Claim(short, task.ClaimOptions{Wait: true, Queues: []string{"q"}})
			return err
		},
		func() error { _, err := b.Enqueue(short, task.Spec{Kind: "k"}); return err },
		func() error { return b.Complete(short, held) },
		func() error { _, err := b.Get(short, "a"); return err },
		func() error { _, err := b.Queues(short); return err },
		func() error { _, _, err := b.List(short, task.Filter{}); return err },
		func() error { return b.Tick(short) },
		func() error { return b.Cancel(short, "b") },
		func() error { return b.SetQueue(short, "q", task.QueueOptions{}) },
		func() error { return b.DB().Update(short, func(*kv.Tx) error { return nil }) },
	}
	var waiting []chan error
	for _, call := range calls {
		waiting = append(waiting, storetest.Async(call))
	}
	ended := make(chan bool, 2)
	stop := b.Watch(held, func() { ended <- true }) // does not wait
	b.Watch(held, func() { t.Error("a watch that was stopped is told") })()
	storetest.Unfinished(t, append(waiting, blocked)...)
	cancel()
	for i, err := range waiting {
		if err := <-err; !errors.Is(err, context.Canceled) {
			t.Errorf("%d: %v", i, err)
		}
	}
	close(on)
	b.is(<-blocked, errUndone)
	if len(ended) != 0 {
		t.Error("a watch is told, and the transaction was taken back")
	}
	defer stop()
	b.ok(b.Complete(ctx, held))
	if !<-ended {
		t.Error("a watch is not told")
	}

	// Calls of the store in the function, and its end.
	err := b.update(func(tx *kv.Tx) error {
		_, err := b.In(tx).Enqueue(task.Spec{Kind: "k", ID: "c"})
		b.ok(err)
		_, err = b.Enqueue(ctx, task.Spec{Kind: "k"})
		b.is(err, kv.ErrNested)
		b.is(b.Close(), kv.ErrNested)
		return nil
	})
	b.ok(err)
	b.claim("b", "c")
}

// A store is a part of transactions of its own database alone, for as long as it is open.
func TestTransactionOfAnother(t *testing.T) {
	b := newBench(t)
	other, err := kv.Open(b.eng, kv.Options{Name: "other", Level: holdfast.Memory})
	b.ok(err)
	err = other.Update(ctx, func(tx *kv.Tx) error {
		_, err := b.In(tx).Enqueue(task.Spec{Kind: "k"})
		b.is(err, holdfast.ErrBadOption)
		return nil
	})
	b.is(err, holdfast.ErrBadOption)
	b.ok(kv.UpdateAll(ctx, []*kv.DB{other, b.DB()}, func(txs []*kv.Tx) error {
		_, err := b.In(txs[1]).Enqueue(task.Spec{Kind: "k", ID: "a"})
		return errors.Join(err, txs[0].Bucket("b").Put([]byte("key"), nil))
	}))
	err = b.DB().View(ctx, func(tx *kv.Tx) error {
		_, err := b.In(tx).Get("a")
		return err
	})
	b.is(err, kv.ErrReadOnly)
	if !strings.Contains(err.Error(), "Update only") { // not that it writes
		t.Error(err)
	}
	var late task.Tx
	b.ok(b.update(func(tx *kv.Tx) error {
		late = b.In(tx)
		_, err := late.Get("a")
		return err
	}))
	_, err = late.Get("a")
	b.is(err, kv.ErrTxDone)
	storetest.Close(t, b.Store)
	b.is(b.update(func(tx *kv.Tx) error {
		_, err := b.In(tx).Get("a")
		return err
	}), holdfast.ErrClosed)
	b.open()
	b.claim("a")
}

// Transactions that take tasks over beside workers: every task is done once, and each completion has written its mark.
func TestTransactionsBesideWorkers(t *testing.T) {
	s := openStore(t, mem.New(), newClock().options(holdfast.Memory))
	defer storetest.Close(t, s)
	const n, writers = 50, 3
	var done atomic.Int64
	var workers, group sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	defer stop()
	for i := range 3 {
		workers.Go(func() {
			for {
				leases, err := s.Claim(working, task.ClaimOptions{N: 2, Wait: true})
				if err != nil {
					return
				}
				for _, l := range leases {
					err := s.DB().Update(ctx, func(tx *kv.Tx) error {
						count := tx.Bucket("done", l.Task.ID)
						_, err := count.NextSequence()
						if err == nil {
							_, err = s.In(tx).Complete(l)
						}
						if done.Load()%7 == int64(i) {
							err = errors.Join(err, errUndone)
						}
						return err
					})
					if errors.Is(err, errUndone) {
						if _, err = s.Heartbeat(ctx, l); err == nil { // it is still held
							err = s.DB().Update(ctx, func(tx *kv.Tx) error {
								_, err := tx.Bucket("done", l.Task.ID).NextSequence()
								if err == nil {
									_, err = s.In(tx).Complete(l)
								}
								return err
							})
						}
					}
					if err != nil {
						t.Error(err)
					}
					if done.Add(1) == n*writers {
						stop()
					}
				}
			}
		})
	}
	for w := range writers {
		group.Go(func() {
			for i := range n {
				id := fmt.Sprint(w, "-", i)
				for try := range 2 {
					err := s.DB().Update(ctx, func(tx *kv.Tx) error {
						if _, err := s.In(tx).Enqueue(task.Spec{Kind: "k", ID: id}); err != nil {
							return err
						}
						if err := tx.Bucket("made").Put([]byte(id), nil); err != nil {
							return err
						}
						if try == 0 {
							return errUndone
						}
						return nil
					})
					if try == 0 && !errors.Is(err, errUndone) || try == 1 && err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	workers.Wait()
	if err := s.DB().View(ctx, func(tx *kv.Tx) error {
		for w := range writers {
			for i := range n {
				id := fmt.Sprint(w, "-", i)
				if times, err := tx.Bucket("done", id).Sequence(); times != 1 || err != nil {
					t.Errorf("%s was completed %d times: %v", id, times, err)
				}
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
