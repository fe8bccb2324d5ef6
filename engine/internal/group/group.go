// Package group merges the batches of many writers into few engine transactions. It
// serves engines that have one writer at a time (bbolt, SQLite, Badger): waiting
// batches become, in order, one transaction and one sync.
//
// There is no goroutine of its own and no delay: the first to wait commits for
// everybody who has applied by then, while the next group fills. A lone writer commits
// inline.
package group

import (
	"errors"
	"sync"

	"github.com/holdfastdb/holdfast"
)

// Commit makes one transaction of b and returns when it is visible and survives what
// level names. It is never called twice at a time. An error poisons the committer.
type Commit func(b *holdfast.Batch, level holdfast.Level) error

// Committer is safe for concurrent use.
//
// Invariants, under mu: queue holds the groups that nobody has begun to commit, oldest
// first, and only the last one still takes batches; current is the group that somebody is
// committing, nil if nobody is; once err is set nothing is committed.
type Committer struct {
	engine   string
	commit   Commit
	maxBytes int
	maxOps   int // 0: no limit

	mu      sync.Mutex
	queue   []*group
	pending int // bytes in queue
	current *group
	called  bool      // a waiter was called to lead and is on its way; nobody else begins meanwhile
	leaving int       // waiters of settled groups on their way out; the last of them hands over
	holds   int       // Exclusive callers; new batches wait until it is 0
	changed sync.Cond // current became nil, or holds 0
	err     error
	closed  bool
	spare   []*holdfast.Batch
	commits int64
	groups  int64
}

// group is a run of batches that become one transaction.
type group struct {
	c       *Committer
	batch   *holdfast.Batch
	level   holdfast.Level
	settle  bool // done, with err
	err     error
	waiting int           // blocked in Wait
	wake    chan struct{} // made by the first who blocks; a token calls one to lead, closing calls all
}

// New returns a committer for the engine of that name. A group grows to at most maxBytes
// encoded bytes, unless one batch alone is larger.
func New(engine string, maxBytes int, commit Commit) *Committer {
	c := &Committer{engine: engine, commit: commit, maxBytes: maxBytes}
	c.changed.L = &c.mu
	return c
}

// LimitOps also keeps a group to at most n operations, unless one batch alone has more. It
// is called before the first Apply.
func (c *Committer) LimitOps(n int) { c.maxOps = n }

// Apply copies b to the end of the queue. When too much is queued and nobody waits, it
// commits some of it itself, so that memory stays bounded.
func (c *Committer) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	c.mu.Lock()
	g, err := c.enqueue(b, level)
	crowded := c.pending > 4*c.maxBytes
	c.mu.Unlock()
	if err != nil {
		return holdfast.Receipt{}, err
	}
	if crowded {
		_ = g.Wait(0) // the receipt tells
	}
	return holdfast.NewReceipt(g, 0), nil
}

// enqueue is called with mu held.
func (c *Committer) enqueue(b *holdfast.Batch, level holdfast.Level) (*group, error) {
	for c.holds > 0 {
		c.changed.Wait()
	}
	return c.push(b, level)
}

// push is called with mu held, by enqueue or by the one who holds the others up.
func (c *Committer) push(b *holdfast.Batch, level holdfast.Level) (*group, error) {
	if c.closed {
		return nil, holdfast.ErrClosed
	}
	if c.err != nil {
		return nil, c.err
	}
	var g *group
	if n := len(c.queue); n > 0 && c.fit(c.queue[n-1].batch, b) {
		g = c.queue[n-1]
	} else {
		g = &group{c: c, batch: c.take()}
		c.queue = append(c.queue, g)
	}
	g.batch.Append(b)
	g.level = max(g.level, level)
	c.pending += b.Size()
	c.commits++
	return g, nil
}

// fit reports whether b may join the batches that are in merged.
func (c *Committer) fit(merged, b *holdfast.Batch) bool {
	return merged.Size()+b.Size() <= c.maxBytes && (c.maxOps == 0 || merged.Len()+b.Len() <= c.maxOps)
}

// take returns an empty batch, with memory if there is any to reuse.
func (c *Committer) take() *holdfast.Batch {
	if n := len(c.spare); n > 0 {
		b := c.spare[n-1]
		c.spare = c.spare[:n-1]
		return b
	}
	return new(holdfast.Batch)
}

// give takes back a batch's memory, unless it is unusually much.
func (c *Committer) give(b *holdfast.Batch) {
	if len(c.spare) < 4 && b.Size() <= c.maxBytes {
		b.Reset()
		c.spare = append(c.spare, b)
	}
}

// Wait returns when g is settled. Whoever finds nobody committing does it, oldest group
// first. It makes a group the Waiter of its receipts.
func (g *group) Wait(uint64) error {
	c := g.c
	c.mu.Lock()
	for !g.settle {
		if c.current == nil && !c.called && c.leaving == 0 {
			c.lead()
			continue
		}
		if g.wake == nil {
			g.wake = make(chan struct{}, 1)
		}
		wake := g.wake
		g.waiting++
		c.mu.Unlock()
		_, called := <-wake
		c.mu.Lock()
		g.waiting--
		if called {
			c.called = false
		}
		if g.settle {
			c.leaving--
			c.handOver()
		}
	}
	err := g.err
	c.mu.Unlock()
	return err
}

// lead commits queue[0]. It is called with mu held, nobody committing and a group queued,
// and returns with mu held.
func (c *Committer) lead() {
	g := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	c.pending -= g.batch.Size()
	err := c.err
	if err == nil {
		c.current = g
		c.groups++
		c.mu.Unlock()
		err = c.commit(g.batch, g.level)
		c.mu.Lock()
		c.current = nil
		if err != nil && c.err == nil {
			c.err = Poisoned(c.engine, err)
		}
		if err != nil {
			err = c.err
		}
	}
	g.settle, g.err = true, err
	c.give(g.batch)
	g.batch = nil
	if g.wake != nil {
		close(g.wake)
	}
	c.leaving += g.waiting
	c.changed.Broadcast()
	c.handOver()
}

// handOver calls one of those who wait for the next groups to lead, unless somebody leads or
// was called already. It is called with mu held.
//
// It does so only when all of the settled group have left. They run before the one that is
// called, and most apply their next batch at once, which so joins the next group. Otherwise
// that would be the few batches that came during the last commit, and small and large groups
// would take turns.
func (c *Committer) handOver() {
	if c.current != nil || c.called || c.leaving > 0 {
		return
	}
	for _, next := range c.queue {
		if next.wake != nil {
			c.called = true
			next.wake <- struct{}{} // has room: a call is received before the next is made
			return
		}
	}
}

// drain commits everything queued and returns with mu held and nobody committing. Only
// with holds > 0 is it sure to end.
func (c *Committer) drain() {
	for {
		switch {
		case c.current != nil:
			c.changed.Wait()
		case len(c.queue) > 0:
			c.lead()
		default:
			return
		}
	}
}

// hold commits everything applied before and keeps later batches out until release. It
// locks mu, which release unlocks.
func (c *Committer) hold() {
	c.mu.Lock()
	c.holds++
	c.drain()
}

func (c *Committer) release() {
	c.holds--
	c.changed.Broadcast()
	c.mu.Unlock()
}

// Flush returns when everything applied before is committed. It returns the poison if
// there is one.
func (c *Committer) Flush() error {
	c.mu.Lock()
	last := c.current
	if n := len(c.queue); n > 0 {
		last = c.queue[n-1]
	}
	err := c.err
	c.mu.Unlock()
	if last == nil {
		return err
	}
	return last.Wait(0)
}

// Exclusive commits everything applied before and then runs f while nobody commits or
// applies. An error of f poisons before anybody else gets a turn, so that nothing is
// acknowledged after a failed sync.
func (c *Committer) Exclusive(f func() error) error {
	c.hold()
	defer c.release()
	if c.err == nil {
		if err := f(); err != nil {
			c.err = Poisoned(c.engine, err)
		}
	}
	return c.err
}

// ApplyChecked is Apply for a batch that only the state before it can judge: check runs
// once everything before it is committed, and its error refuses the batch. The batch is
// committed before it returns.
func (c *Committer) ApplyChecked(b *holdfast.Batch, level holdfast.Level, check func() error) (holdfast.Receipt, error) {
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	c.hold()
	defer c.release()
	if c.closed {
		return holdfast.Receipt{}, holdfast.ErrClosed
	}
	if c.err != nil {
		return holdfast.Receipt{}, c.err
	}
	if err := check(); err != nil {
		return holdfast.Receipt{}, err
	}
	g, err := c.push(b, level)
	if err != nil {
		return holdfast.Receipt{}, err
	}
	c.drain()
	return holdfast.NewReceipt(g, 0), nil
}

// Fail poisons the committer with cause, which may already be a poison, and returns the
// poison. The first cause stays.
func (c *Committer) Fail(cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = Poisoned(c.engine, cause)
	}
	return c.err
}

// Err is the poison, nil while the committer works.
func (c *Committer) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close commits what is queued and refuses everything later with ErrClosed. It returns
// the poison if there is one.
func (c *Committer) Close() error {
	c.hold()
	defer c.release()
	c.closed = true
	return c.err
}

// Fill sets the counters that the committer knows.
func (c *Committer) Fill(m *holdfast.Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Commits, m.Groups, m.Poison = c.commits, c.groups, c.err
}

// Poisoned wraps the cause that stopped an engine in the error that later Applies get.
func Poisoned(engine string, cause error) error {
	if errors.Is(cause, holdfast.ErrPoisoned) {
		return cause
	}
	p := &holdfast.Error{Op: "write", Engine: engine, Class: holdfast.ErrPoisoned, Cause: cause,
		Remedy: "nothing is acknowledged any more; mend the cause and reopen"}
	var known *holdfast.Error
	if errors.As(cause, &known) {
		p.Op, p.Path, p.Offset = known.Op, known.Path, known.Offset
	}
	return p
}
