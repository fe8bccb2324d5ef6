package message

import (
	"cmp"
	"context"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
)

// update makes a change in one commit, as f decides by the latest state: f puts what it changes, and adds to b what is
// kept of that. It returns when b has reached the level that ctx names, or else level. If f fails or panics, or the
// engine refuses b, nothing has changed.
func (s *Subscription) update(ctx context.Context, level holdfast.Level, f func(b *holdfast.Batch) error) error {
	receipt, err := s.apply(ctx, level, f)
	if err == nil {
		err = receipt.Wait()
	}
	return s.n.ended(err)
}

// apply is update without waiting.
func (s *Subscription) apply(ctx context.Context, level holdfast.Level, f func(b *holdfast.Batch) error) (
	r holdfast.Receipt, err error) {
	if err := s.turn.Take(ctx); err != nil {
		return r, err
	}
	defer s.turn.Give() // f calls the caller's code, which may panic
	if err := s.try(new(holdfast.Batch), func(b *holdfast.Batch) error {
		if err := f(b); err != nil {
			return err
		}
		r, err = s.n.applyAt(b, holdfast.LevelFrom(ctx, level))
		return err
	}); err != nil {
		return r, err
	}
	s.forget(0)
	s.wakeLocked()
	return r, nil
}

// try calls f, and takes back what it has changed if it fails or panics.
func (s *Subscription) try(b *holdfast.Batch, f func(b *holdfast.Batch) error) error {
	if s.ended() {
		return holdfast.ErrClosed
	}
	m, done := s.mark(), false
	defer func() {
		if !done {
			s.rollBack(m)
		}
	}()
	err := cmp.Or(f(b), b.Err())
	done = err == nil
	return err
}

// updateIn is update as one more change of a transaction.
func (s *Subscription) updateIn(tx *kv.Tx, f func(b *holdfast.Batch) error) error {
	shared, err := tx.Enter(s.n.db)
	if err != nil {
		return err
	}
	defer tx.Leave()
	p, err := s.takePart(tx.Context(), shared)
	if err != nil {
		return s.n.ended(err)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	b := &p.batch
	if b.Len() > 0 {
		b = new(holdfast.Batch)
	}
	if err := s.try(b, f); err != nil {
		b.Reset()
		return s.n.ended(err)
	}
	if b != &p.batch {
		p.batch.Append(b)
	}
	return nil
}

// settling is a subscription's part in a transaction. What that changes in memory is there at once, and is taken back
// if the transaction fails.
type settling struct {
	s     *Subscription
	begin mark
	batch holdfast.Batch
}

func (s *Subscription) takePart(ctx context.Context, shared *txn.Tx) (*settling, error) {
	if p, ok := shared.Part(s).(*settling); ok {
		return p, nil
	}
	if err := s.turn.Hold(ctx); err != nil {
		return nil, err
	}
	if err := s.n.life.Enter(); err != nil {
		s.turn.Release()
		return nil, err
	}
	s.turn.Lock()
	p := &settling{s: s, begin: s.mark()}
	s.turn.Unlock()
	shared.Raise(s.n.store.o.Level)
	shared.Join(s, p)
	return p, nil
}

// Prepare implements [txn.Part].
func (p *settling) Prepare(b *holdfast.Batch) error {
	b.Append(&p.batch)
	return nil
}

// Commit implements [txn.Part]. The transaction's database waits for what is written.
func (p *settling) Commit(holdfast.Receipt, holdfast.Level) func() error { return p.end(true) }

// Rollback implements [txn.Part].
func (p *settling) Rollback() func() error { return p.end(false) }

// end keeps what the transaction has changed, or takes it back, wakes consumers, and gives the turn back.
func (p *settling) end(applied bool) func() error {
	s := p.s
	s.turn.Lock()
	if applied {
		s.forget(0)
	} else {
		s.rollBack(p.begin)
	}
	s.wakeLocked()
	s.turn.Unlock()
	s.turn.Release()
	s.n.life.Leave()
	return nil
}

// wake makes those who wait look again whether there is something to be delivered.
func (s *Subscription) wake() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.wakeLocked()
}

func (s *Subscription) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// ended reports whether the subscription or its namespace is closed.
func (s *Subscription) ended() bool {
	select {
	case <-s.n.stop:
		return true
	default:
		return s.closed
	}
}
