package event

import (
	"context"
	"sync"
	"sync/atomic"
)

// settled notes how waiting for everything up to last ended, and returns err: either
// readers may see it, or the store has failed.
func (s *Store) settled(last uint64, err error) error {
	if err != nil {
		s.mu.Lock()
		if s.err == nil {
			s.err = err
		}
		s.mu.Unlock()
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
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle makes sure that somebody waits for what was submitted. An Append waits itself,
// but he who submits may do so late or never, and a follower must get on meanwhile. It
// returns why nothing more will arrive, if so.
func (s *Store) settle() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state(); err != nil {
		return err
	}
	if s.adrift > s.durable.Load() && !s.settling {
		s.settling = true
		s.settlers.Go(s.settleLoop)
	}
	return nil
}

// settleLoop waits for receipts as long as followers wait for what is adrift.
func (s *Store) settleLoop() {
	for {
		s.mu.Lock()
		if s.state() != nil || s.adrift <= s.durable.Load() || !s.arrived.awaited() {
			s.settling = false
			s.mu.Unlock()
			return
		}
		receipt, last := s.receipt, s.next.Load()-1
		s.mu.Unlock()
		_ = s.settled(last, receipt.Wait()) // a failure is the store's state now
	}
}

// signal wakes all who wait for a change. Firing costs one atomic load while nobody
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
