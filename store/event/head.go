package event

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// settled notes how waiting for everything up to last ended, and returns err: either readers may see it, or the store
// has failed.
func (s *Store) settled(last uint64, err error) error {
	if err != nil {
		s.turn.Lock()
		if s.err == nil {
			s.err = err
		}
		s.turn.Unlock()
		s.arrived.fire()
		return err
	}
	for {
		seen := s.durable.Load()
		if last <= seen {
			return nil
		}
		if s.durable.CompareAndSwap(seen, last) {
			s.arrived.fire()
			return nil
		}
	}
}

// met returns err. If err means that no more events will arrive, because the engine is closed or poisoned, it becomes
// the store's state first. It is called without the lock.
func (s *Store) met(err error) error {
	closed := errors.Is(err, holdfast.ErrClosed)
	if !closed && !errors.Is(err, holdfast.ErrPoisoned) {
		return err
	}
	s.turn.Lock()
	if s.life.Closed() { // it may be the store that is closed
		s.turn.Unlock()
		return err
	}
	if s.err == nil {
		if s.err = err; closed {
			s.err = s.fail("log", holdfast.ErrClosed, nil, "close the log before its engine", "the engine has been closed")
		}
	}
	if closed && errors.Is(s.err, holdfast.ErrClosed) {
		err = s.err
	}
	s.turn.Unlock()
	s.arrived.fire()
	return err
}

// await returns when readers may see pos.
func (s *Store) await(ctx context.Context, pos uint64) error {
	for {
		changed := s.arrived.wait() // armed before looking, so that nothing is missed
		if s.durable.Load() >= pos {
			return nil
		}
		if err := s.settle(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.eng.Done(): // by others, which nothing else would show if no append follows
			_ = s.met(s.eng.Err())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle makes sure that a goroutine waits for what was submitted. Append waits itself, but the caller of Submit may do
// so late or never, and followers must not depend on that. It returns why no more events will arrive, if so.
func (s *Store) settle() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.state(); err != nil {
		return err
	}
	if s.unawaited > s.durable.Load() && !s.settling {
		s.settling = true
		s.settlers.Go(s.settleLoop)
	}
	return nil
}

// settleLoop waits for receipts as long as followers wait for events that are unawaited.
func (s *Store) settleLoop() {
	for {
		s.turn.Lock()
		if s.state() != nil || s.unawaited <= s.durable.Load() || !s.arrived.awaited() {
			s.settling = false
			s.turn.Unlock()
			return
		}
		all := s.pending()
		s.turn.Unlock()
		_ = all.settle() // a failure is the store's state now
	}
}

// signal wakes all goroutines that wait for a change. Firing costs one atomic load if none
// waits.
type signal struct {
	armed atomic.Bool
	mu    sync.Mutex
	ch    chan struct{} // not nil while armed
}

// wait returns a channel that the next fire closes.
func (g *signal) wait() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	g.armed.Store(true)
	return g.ch
}

func (g *signal) awaited() bool { return g.armed.Load() }

func (g *signal) fire() {
	if !g.armed.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ch != nil {
		close(g.ch)
		g.ch = nil
	}
	g.armed.Store(false)
}
