package contender

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// levelPeer is the Engine side of a peer that gives only the level that it was opened at.
type levelPeer struct {
	peer
	handle     *datadir.Handle
	level      holdfast.Level
	closing    context.Context // ends when Close begins
	beginClose context.CancelFunc
	calls      sync.WaitGroup // those in use
	// groups are the transactions that the writes were merged into, nil if each is one of its own.
	groups *atomic.Int64
}

// init makes p the Engine side of a store in an open directory that gives what describe says of level.
func (p *levelPeer) init(only string, h *datadir.Handle, level holdfast.Level, describe func() holdfast.Capabilities) {
	p.name, p.only, p.dir, p.handle, p.level, p.counts = describe().Engine, only, h.Dir, h, level, &counts{}
	p.closing, p.beginClose = context.WithCancel(context.Background())
	p.describe = func() holdfast.Capabilities {
		c := describe()
		for asked, promise := range map[holdfast.Level]*holdfast.Promise{
			holdfast.Memory: &c.Memory, holdfast.Process: &c.Process, holdfast.Power: &c.Power,
			holdfast.Quorum: &c.Quorum,
		} {
			if asked != level {
				*promise = holdfast.Promise{Why: fmt.Sprintf("it was opened for %v", level)}
			}
		}
		if level >= holdfast.Power {
			c.LossWindow = 0
		}

		return c
	}
}

// Metrics implements [holdfast.Engine]. A commit is a write that was acknowledged. What the server does is Unknown.
func (p *levelPeer) Metrics() holdfast.Metrics {
	m := holdfast.UnknownMetrics()
	m.Commits = p.counts.commits.Load()
	m.Groups = m.Commits
	if p.groups != nil {
		m.Groups = p.groups.Load()
	}
	m.Files, m.DiskBytes = datadir.Usage(p.dir)
	m.OpenSnapshots, m.OpenIterators = 0, 0

	return m
}

// use counts a call until its end is reported, and ends its context with the store.
func (p *levelPeer) use(ctx context.Context, op string) (_ context.Context, end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, p.isClosed(op)
	}
	p.calls.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.closing, cancel)

	return ctx, func() {
		stop()
		cancel()
		p.calls.Done()
	}, nil
}

// fail is the error of an operation that err ended, nil if that is.
func (p *levelPeer) fail(op string, err error) error {
	var known *holdfast.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case p.closing.Err() != nil:
		return p.isClosed(op)
	}

	return &holdfast.Error{Op: op, Engine: p.name, Path: p.dir, Cause: err}
}

// Sync implements [holdfast.Engine]: below Power there is no way to ask for it, and the error is ErrLevel.
func (p *levelPeer) Sync() error {
	if err := p.peer.Sync(); err != nil || p.level >= holdfast.Power {
		return err
	}

	return &holdfast.Error{Op: "sync", Engine: p.name, Path: p.dir, Class: holdfast.ErrLevel,
		Detail: "it has no command that makes what it holds safe from power loss", Remedy: "open it at power"}
}
