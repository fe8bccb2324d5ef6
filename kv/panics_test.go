package kv_test

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// bursting is an engine that panics at one of the calls to come. What stores do in the background it leaves alone:
// there a panic is the end of the program.
type bursting struct {
	holdfast.Engine
	left atomic.Int64 // calls until then; 0 for none
}

func (e *bursting) call() {
	if e.left.Load() > 0 && bytes.Contains(debug.Stack(), []byte("(*bursting).burst(")) && e.left.Add(-1) == 0 {
		panic("of the engine")
	}
}

func (e *bursting) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	e.call()
	return e.Engine.Apply(b, level)
}

func (e *bursting) Get(dst, key []byte) ([]byte, error) {
	e.call()
	return e.Engine.Get(dst, key)
}

func (e *bursting) Scan(r holdfast.Range) holdfast.Iterator {
	e.call()
	return e.Engine.Scan(r)
}

func (e *bursting) Snapshot() (holdfast.Snapshot, error) {
	e.call()
	return e.Engine.Snapshot()
}

// burst calls f, and reports whether the engine has panicked in it, at that call.
func (e *bursting) burst(at int64, f func() error) (burst bool, err error) {
	e.left.Store(at)
	defer e.left.Store(0)
	defer func() {
		if burst = recover() == "of the engine"; burst {
			err = nil
		}
	}()
	return false, f()
}

// stores are a database and a store of each kind in it.
type stores struct {
	db       *kv.DB
	log      *event.Store
	messages *message.Store
	orders   *message.Namespace
	mails    *message.Subscription
	tasks    *task.Store
}

func openStores(engine holdfast.Engine) (s stores, err error) {
	if s.db, err = kv.Open(engine, kv.Options{Level: holdfast.Memory}); err != nil {
		return s, err
	}
	if s.log, err = event.Open(s.db, event.Options{}); err != nil {
		return s, err
	}
	if s.messages, err = message.Open(s.db, message.Options{}); err != nil {
		return s, err
	}
	if s.orders, err = s.messages.Namespace(ctx, message.Default); err != nil {
		return s, err
	}
	if s.mails, err = s.orders.Subscribe(ctx, "mails", message.SubscriptionOptions{}); err != nil {
		return s, err
	}
	s.tasks, err = task.Open(s.db, task.Options{})
	return s, err
}

func (s *stores) close() error {
	return errors.Join(s.mails.Close(), s.log.Close(), s.messages.Close(), s.tasks.Close())
}

// write writes to each.
func (s *stores) write() error {
	_, err := s.log.Append(ctx, event.Event{Type: "x"})
	_, err2 := s.orders.Write(ctx, "order-1", message.Message{Type: "x", Data: []byte("{}")})
	_, err3 := s.tasks.Enqueue(ctx, task.Spec{Kind: "k"}, task.Spec{Kind: "k", Key: "a"})
	err4 := s.db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), nil) })
	other, err5 := s.orders.Subscribe(ctx, "other", message.SubscriptionOptions{})
	if err5 == nil {
		err5 = other.Close()
	}
	return errors.Join(err, err2, err3, err4, err5)
}

// text tells what is there.
func (s *stores) text() (text string, err error) {
	add := func(v any, failed error) {
		text += fmt.Sprintf("%+v\n", v)
		err = errors.Join(err, failed)
	}
	add(s.log.Read(ctx, s.log.First(), 0))
	add(s.log.Subscriptions(ctx))
	for m, err := range s.orders.Read(ctx, message.Query{}) {
		add(m.Global, err)
	}
	add(s.orders.Count(ctx, ""))
	add(s.orders.Streams(ctx, "", "", 0))
	add(s.orders.Subscriptions(ctx, "", 0))
	list, err := s.messages.Namespaces(ctx, "", 0)
	for _, n := range list {
		add(n.ID, nil)
	}
	tasks, _, err := s.tasks.List(ctx, task.Filter{})
	for _, t := range tasks {
		add(fmt.Sprint(t.ID, t.State, t.Attempt), nil)
	}
	add(s.tasks.Queues(ctx))
	add(nil, s.db.Latest(ctx, func(tx *kv.Tx) error {
		for name := range tx.Buckets() {
			for key := range tx.Bucket(name).All() {
				text += fmt.Sprintf("%s %s\n", name, key)
			}
		}
		return nil
	}))
	return text, err
}

// TestPanicsOfAnEngine: whichever call of the engine panics in whichever call of a store, the others of the store go
// on, and what it has in memory is what is in the engine: a server answers on after a panic.
func TestPanicsOfAnEngine(t *testing.T) {
	m := message.Message{Type: "x", Data: []byte("{}")}
	update := func(f func(s *stores, tx *kv.Tx) error) func(s *stores) error {
		return func(s *stores) error { return s.db.Update(ctx, func(tx *kv.Tx) error { return f(s, tx) }) }
	}
	delivered := func(f func(s *stores, d []message.Delivery) error) func(s *stores) error {
		return func(s *stores) error {
			d, err := s.mails.Claim(ctx, 1)
			if err != nil {
				return err
			}
			return f(s, d)
		}
	}
	leased := func(f func(s *stores, l task.Lease) error) func(s *stores) error {
		return func(s *stores) error {
			l, err := s.tasks.Claim(ctx, task.ClaimOptions{Wait: true})
			if err != nil {
				return err
			}
			return f(s, l[0])
		}
	}
	for name, call := range map[string]func(s *stores) error{
		"event: Append": func(s *stores) error {
			_, err := s.log.Append(ctx, event.Event{Type: "x", ID: "a"})
			_, err2 := s.log.Append(ctx, event.Event{Type: "x", ID: "a"})
			return errors.Join(err, err2)
		},
		"event: Import": func(s *stores) error {
			_, err := s.log.Import(ctx, event.Event{Type: "x", Position: 9})
			return err
		},
		"event: Remove":        func(s *stores) error { _, err := s.log.Remove(ctx, 1); return err },
		"event: Subscriptions": func(s *stores) error { _, err := s.log.Subscriptions(ctx); return err },
		"event: Retain": func(s *stores) error {
			_, err := s.log.Retain(ctx, event.Retention{MaxBytes: 1})
			return err
		},
		"event: SaveOffset": func(s *stores) error { return s.log.SaveOffset(ctx, "o", 1) },
		"event: Read":       func(s *stores) error { _, err := s.log.Read(ctx, 1, 0); return err },
		"message: Write": func(s *stores) error { // so many that it stores counts
			_, err := s.orders.Write(ctx, "order-1", slices.Repeat([]message.Message{m}, 5000)...)
			return err
		},
		"message: Truncate":   func(s *stores) error { _, err := s.orders.Truncate(ctx, "order-1", 1); return err },
		"message: Categories": func(s *stores) error { _, err := s.orders.Categories(ctx); return err },
		"message: Create": func(s *stores) error {
			_, err := s.messages.Create(ctx, message.NamespaceOptions{ID: "a"})
			return err
		},
		"message: Namespace": func(s *stores) error {
			_, err := s.messages.Create(ctx, message.NamespaceOptions{ID: "a"})
			_, err2 := s.messages.Namespace(ctx, "a")
			return errors.Join(err, err2)
		},
		"message: Subscribe": func(s *stores) error {
			other, err := s.orders.Subscribe(ctx, "other", message.SubscriptionOptions{})
			if err != nil {
				return err
			}
			defer other.Close() // also if that panics first
			if _, err := other.Claim(ctx, 1); err != nil {
				return err
			}
			return other.Close()
		},
		"message: Ack":   delivered(func(s *stores, d []message.Delivery) error { return s.mails.Ack(ctx, d...) }),
		"message: Park":  delivered(func(s *stores, d []message.Delivery) error { return s.mails.Park(ctx, "no", d...) }),
		"task: Enqueue":  func(s *stores) error { _, err := s.tasks.Enqueue(ctx, task.Spec{Kind: "k", ID: "a"}); return err },
		"task: Complete": leased(func(s *stores, l task.Lease) error { return s.tasks.Complete(ctx, l) }),
		"task: Fail": leased(func(s *stores, l task.Lease) error {
			return s.tasks.Fail(ctx, l, task.Failure{Message: "no"}, task.FailOptions{})
		}),
		"task: Pause": func(s *stores) error { return s.tasks.Pause(ctx, "z") },
		"kv: Update": update(func(s *stores, tx *kv.Tx) error {
			_, err := s.log.In(tx).Append(event.Event{Type: "x", ID: "a"})
			_, err2 := s.messages.In(tx).Create(message.NamespaceOptions{ID: "a"})
			_, err3 := s.orders.In(tx).Write("order-2", m)
			_, err4 := s.tasks.In(tx).Enqueue(task.Spec{Kind: "k", ID: "a"})
			_, err5 := s.tasks.In(tx).Get("a")
			return errors.Join(err, err2, err3, err4, err5, s.log.In(tx).SaveOffset("o", 1))
		}),
		"kv: Latest": func(s *stores) error {
			return s.db.Latest(ctx, func(tx *kv.Tx) error { _, err := tx.Bucket("b").Get([]byte("k")); return err })
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at := int64(1); burst(t, at, call); at++ {
			}
		})
	}
}

// A log and a task store that an engine kept from being opened by a panic can be opened after.
func TestPanicsAsStoresOpen(t *testing.T) {
	for at, again := int64(1), true; again; at++ {
		engine := &bursting{Engine: mem.New()}
		db, err := kv.Open(engine, kv.Options{Level: holdfast.Memory})
		check(t, err)
		again, err = engine.burst(at, func() error {
			log, err := event.Open(db, event.Options{})
			if err == nil {
				err = log.Close()
			}
			return err
		})
		check(t, err)
		burst, err := engine.burst(at, func() error {
			tasks, err := task.Open(db, task.Options{})
			if err == nil {
				err = tasks.Close()
			}
			return err
		})
		check(t, err)
		again = again || burst
		s, err := openStores(engine)
		check(t, errors.Join(err, s.write(), s.close(), engine.Close()))
	}
}

// burst lets a call of the engine panic in a call, and reports whether there was one. If not, the call is right.
func burst(t *testing.T, at int64, call func(s *stores) error) (burst bool) {
	engine := &bursting{Engine: mem.New()}
	s, err := openStores(engine)
	check(t, errors.Join(err, s.write(), s.write()))
	storetest.Finished(t, nil, storetest.Async(func() (err error) {
		burst, err = engine.burst(at, func() error { return call(&s) })
		return err
	}))
	var before string
	storetest.Finished(t, nil, storetest.Async(s.write))
	storetest.Finished(t, nil, storetest.Async(func() (err error) {
		before, err = s.text()
		return err
	}))
	storetest.Finished(t, nil, storetest.Async(s.close))
	s, err = openStores(engine)
	check(t, err)
	if after, err := s.text(); err != nil || after != before {
		t.Errorf("call %d panics: what is there before and after another opening:\n%s\n%s%v", at, before, after, err)
	}
	check(t, errors.Join(s.close(), engine.Close()))
	return burst
}
