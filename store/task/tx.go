package task

import (
	"cmp"
	"math"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
)

// Tx is a store in a transaction of its database, and is used as that is. Its methods see what those before them in the
// transaction have done. Their errors are ordinary ones: such a call has done nothing, and the function may go on.
type Tx struct {
	s  *Store
	tx *kv.Tx
}

// In returns the store as a part of a transaction. From the first use on until the transaction has its place, all other
// calls of the store wait, each for as long as its context lasts. What the transaction survives is at least the store's
// level.
func (s *Store) In(tx *kv.Tx) Tx { return Tx{s, tx} }

// Enqueue is [Store.Enqueue] in the transaction.
func (t Tx) Enqueue(specs ...Spec) (results []Result, err error) {
	if err := t.s.check(specs); err != nil {
		return nil, err
	}
	if err := t.do(func(x *tx) (err error) {
		results, err = x.enqueue(specs)
		return err
	}); err != nil {
		return nil, err
	}
	return results, nil
}

// Complete completes a task in the transaction, and enqueues the tasks that come next, which may run after the task
// itself. ErrLeaseLost, ErrCancelled: the task is not the caller's any more. What the transaction does besides is to be
// taken back then: the function returns the error.
func (t Tx) Complete(l Lease, then ...Spec) (results []Result, err error) {
	if err := t.s.check(then); err != nil {
		return nil, err
	}
	if err := t.do(func(x *tx) (err error) {
		results, err = x.complete(&l, then)
		return err
	}); err != nil {
		return nil, err
	}
	return results, nil
}

// Fail is [Store.Fail] in the transaction.
func (t Tx) Fail(l Lease, f Failure, o FailOptions) error {
	return t.with("fail", l, func(x *tx, t *task) error { return x.fail(t, f, o) })
}

// Snooze is [Store.Snooze] in the transaction.
func (t Tx) Snooze(l Lease, d time.Duration) error {
	return t.with("snooze", l, func(x *tx, t *task) error { return x.snooze(t, d) })
}

// SetOutput is [Store.SetOutput] in the transaction.
func (t Tx) SetOutput(l Lease, output []byte) error {
	return t.with("set output", l, func(x *tx, t *task) error { return x.setOutput(t, output) })
}

// Cancel is [Store.Cancel] in the transaction. A worker that runs the task learns of it when that has its place.
func (t Tx) Cancel(id string) error { return t.on("cancel", id, (*tx).cancel) }

// Retry is [Store.Retry] in the transaction.
func (t Tx) Retry(id string) error {
	return t.do(func(x *tx) error {
		// Those that run after tasks that have ended are told: they are not to be taken for those that will run after
		// the task that is retried.
		if err := x.release(math.MaxInt); err != nil {
			return err
		}
		old, err := x.s.find("retry", id)
		if err != nil {
			return err
		}
		return x.retry(old)
	})
}

// Delete is [Store.Delete] in the transaction.
func (t Tx) Delete(id string) error { return t.on("delete", id, (*tx).delete) }

// Get is [Store.Get] in the transaction: the latest state, whether it is durable or not.
func (t Tx) Get(id string) (got Task, err error) {
	err = t.on("get", id, func(x *tx, t *task) (err error) {
		got, err = x.s.full(t)
		return err
	})
	return got, err
}

// on does something with the task of an id.
func (t Tx) on(op, id string, f func(x *tx, t *task) error) error {
	return t.do(func(x *tx) error {
		found, err := x.s.find(op, id)
		if err != nil {
			return err
		}
		return f(x, found)
	})
}

// with does something with the task of a lease.
func (t Tx) with(op string, l Lease, f func(x *tx, t *task) error) error {
	return t.do(func(x *tx) error {
		held, err := x.s.leased(op, &l)
		if err != nil {
			return err
		}
		return f(x, held)
	})
}

// do makes a change as f says, as one more of the transaction. If it fails, nothing of it has been done.
func (t Tx) do(f func(x *tx) error) error {
	shared, err := t.tx.Enter(t.s.db)
	if err != nil {
		return err
	}
	defer t.tx.Leave()
	p, err := t.s.takePart(t.tx, shared)
	if err != nil {
		return err
	}

	s, x := t.s, &t.s.tx
	s.lock()
	defer s.turn.Unlock()
	if s.err != nil {
		return s.err
	}
	x.now = s.wall
	if err := x.index(); err != nil {
		return err
	}
	x.collect(p.batch)
	m, done := x.mark(), false
	defer func() {
		if !done {
			x.undo(m)
		}
	}()
	if err := f(x); err != nil {
		return err
	}
	err = cmp.Or(x.err, x.b.Err(), x.fresh.Err())
	done = err == nil
	return err
}

// part is the store's part in a transaction. What the transaction changes in memory is there at once, as in any change,
// and is taken back if it fails: nobody looks at it before, because that takes the turn.
type part struct {
	s      *Store
	shared *txn.Tx
	batch  *holdfast.Batch // what all calls but the last have written, in memory of the store
	wait   durable         // what the transaction has to wait for
}

// takePart returns the store's part in a transaction, and begins one if there is none.
func (s *Store) takePart(tx *kv.Tx, shared *txn.Tx) (*part, error) {
	if p, ok := shared.Part(s).(*part); ok {
		return p, nil
	}
	if err := s.turn.Hold(tx.Context()); err != nil {
		return nil, err
	}
	s.turn.Lock()
	err := s.come()
	if err == nil {
		if _, err = s.begin(0); err != nil { // the level is known at the end
			s.life.Leave()
		}
	}
	if err != nil {
		s.turn.Unlock()
		s.turn.Release()
		return nil, err
	}
	s.batch.Reset()
	p := &part{s: s, shared: shared, batch: &s.batch}
	s.joined = p
	s.turn.Unlock()
	shared.Raise(s.o.Level)
	shared.Join(s, p)
	return p, nil
}

// Prepare implements [txn.Part].
func (p *part) Prepare(b *holdfast.Batch) error {
	s, x := p.s, &p.s.tx
	if p.batch.Len() == 0 && x.unchanged() {
		return nil
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.err != nil {
		return s.err
	}
	if err := x.raiseLows(); err != nil {
		return err
	}
	x.bound()
	x.collect(p.batch)
	b.Append(p.batch)
	return nil
}

// Commit implements [txn.Part].
func (p *part) Commit(receipt holdfast.Receipt, level holdfast.Level) (wait func() error) {
	s, x := p.s, &p.s.tx
	s.lock()
	s.applied(p.batch, receipt, level)
	x.tellWatches()
	x.reset(mark{})
	p.wait = s.durable()
	p.end()
	return p.wait.Wait
}

// Rollback implements [txn.Part].
func (p *part) Rollback() (wait func() error) {
	s, level := p.s, p.shared.Level()
	s.lock()
	s.tx.undo(mark{})
	s.lower(p.batch)
	d, stronger := &p.wait, s.mixed || level != s.o.Level
	*d = s.durable()
	p.end()
	if !stronger {
		return d.Wait
	}
	return func() error { // what it has seen may have been made at a weaker level
		var b holdfast.Batch
		receipt, err := s.eng.Apply(&b, level)
		if err != nil {
			return err
		}
		d.tail.Add(receipt, level)
		return d.Wait()
	}
}

// end gives the turn back. It is called with the lock, and gives that up.
func (p *part) end() {
	s := p.s
	s.joined = nil
	late := s.late
	s.late = nil
	for _, f := range late {
		f()
	}
	s.turn.Unlock()
	s.turn.Release()
	s.life.Leave()
}
