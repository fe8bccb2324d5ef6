// Package groupcommit merges the batches of many writers into few engine transactions. It
// serves engines that have one writer at a time (bbolt, SQLite, Badger): waiting
// batches become, in order, one transaction and one sync.
//
//	committer := groupcommit.New("myengine", 8<<20, e.commit) // commit writes one merged batch, and syncs it if asked
//	committer.OnPoison(e.Life.Poison)
//	receipt, err := committer.Apply(batch, holdfast.Power)    // is the engine's Write
//
// There is no goroutine of its own and no delay: the first waiter commits all batches that were applied by then, while
// the next group fills. A lone writer commits inline.
package groupcommit

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// Commit makes one transaction of b and returns when it is visible and survives what
// level names. It is never called twice at a time. An error, or a panic, poisons
// the committer.
type Commit func(b *holdfast.Batch, level holdfast.Level) error

// Committer is safe for concurrent use.
//
// Invariants, under mu: queue holds the groups whose commit has not begun, oldest first, and only the last one still
// takes batches; current is the group that is being committed, nil if there is none; once err is set nothing is
// committed. A waiter that has no receipt and has let go of mu leads, or is counted in waiting of its group.
type Committer struct {
	engine   string
	commit   Commit
	poisoned func(error) // is told of the poison
	maxBytes int
	maxOps   int // 0: no limit

	// mu is not held while a group is committed, so that the next group fills meanwhile.
	mu      sync.Mutex
	queue   []*group
	pending int // bytes in queue
	current *group
	called  bool      // a waiter was called to lead and has not begun yet; no other may begin
	leaving int       // settled groups whose waiters have not all returned; the last of them hands over
	held    bool      // by ApplyChecked: others wait to apply
	changed sync.Cond // held became false
	err     error
	closed  bool
	spare   []*holdfast.Batch
	groups  []*group // to be used again
	commits int64
	made    int64 // groups
}

// group is a run of batches that become one transaction.
type group struct {
	c       *Committer
	batch   *holdfast.Batch // nil once it is settled
	do      func()          // instead of a commit; nil for most
	level   holdfast.Level
	shared  bool // receipts name it
	settled bool // done, with err; neither changes any more
	err     error
	waiting int           // blocked
	wake    chan struct{} // made by the first who blocks; a token calls one to lead, closing calls all
	left    atomic.Int64  // once it is settled: waiters that have not returned
}

// New returns a committer for the engine of that name. A group grows to at most maxBytes
// encoded bytes, unless one batch alone is larger.
func New(engine string, maxBytes int, commit Commit) *Committer {
	c := &Committer{engine: engine, commit: commit, poisoned: func(error) {}, maxBytes: maxBytes}
	c.changed.L = &c.mu

	return c
}

// LimitOps also keeps a group to at most n operations, unless one batch alone has more. It
// is called before the first Apply.
func (c *Committer) LimitOps(n int) { c.maxOps = n }

// OnPoison makes f be called once, with the poison, before any call returns that; for an engine, f is
// [lifecycle.Engine.Poison]. It is called before the first Apply. f is called with locks held, and calls no method.
func (c *Committer) OnPoison(f func(poison error)) { c.poisoned = f }

// poison stops the committer, and returns what did: the first cause stays. It is called with mu held.
func (c *Committer) poison(cause error) error {
	if c.err == nil {
		c.err = Poisoned(c.engine, cause)
		c.poisoned(c.err)
	}
	return c.err
}

// Apply copies b to the end of the queue. When too much is queued and no caller waits, Apply commits some of it itself,
// so that memory stays bounded.
func (c *Committer) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := b.Err(); err != nil {
		return holdfast.Receipt{}, err
	}
	c.mu.Lock()

	// ApplyChecked looks at what was applied before it, so nothing may come in between.
	for c.held {
		c.changed.Wait()
	}

	return c.push(b, level)
}

// Sync returns when everything applied before is committed at Power. It counts as no commit.
func (c *Committer) Sync() error {
	c.mu.Lock()
	for c.held {
		c.changed.Wait()
	}
	if err := c.refuses(); err != nil {
		c.mu.Unlock()
		return err
	}

	// An empty batch joins the last group, and raises its level: one transaction serves both.
	g := c.join(&nothing)
	g.level = holdfast.Power

	return c.await(g)
}

var nothing holdfast.Batch // never changed

// join returns the group that b joins. It is called with mu held.
func (c *Committer) join(b *holdfast.Batch) *group {
	if n := len(c.queue); n > 0 && c.queue[n-1].do == nil && c.fit(c.queue[n-1].batch, b) {
		return c.queue[n-1]
	}
	var g *group

	// A lone writer would allocate a group for every commit otherwise.
	if n := len(c.groups); n > 0 {
		g, c.groups = c.groups[n-1], c.groups[:n-1]
		*g = group{c: c, batch: c.take()}
	} else {
		g = &group{c: c, batch: c.take()}
	}
	c.queue = append(c.queue, g)

	return g
}

// refuses returns the error that Apply now fails with, nil while it does not. It is called with mu held.
func (c *Committer) refuses() error {
	if c.closed {
		return holdfast.ErrClosed
	}

	return c.err
}

// push queues b. It is called with mu held, and releases it.
func (c *Committer) push(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := c.refuses(); err != nil {
		c.mu.Unlock()
		return holdfast.Receipt{}, err
	}
	g := c.join(b)

	// A receipt may be asked at any time later, so this group is never used again for another.
	g.shared = true
	g.batch.Append(b)
	g.level = max(g.level, level)
	c.pending += b.Size()
	c.commits++

	// Callers who never wait would fill memory without end.
	crowded := c.pending > 4*c.maxBytes
	c.mu.Unlock()
	if crowded {
		_ = g.Wait(0) // the receipt tells
	}

	return holdfast.NewReceipt(g, 0), nil
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

// Wait returns when g is settled. Wait makes a group the Waiter of its receipts.
func (g *group) Wait(uint64) error {
	g.c.mu.Lock()
	return g.c.await(g)
}

// await returns when g is settled. The first waiter becomes the leader: it commits the queued groups, oldest first.
// It is called with mu held, and releases it.
func (c *Committer) await(g *group) error {
	for !g.settled {
		// Nobody commits, and nobody is about to: this waiter leads. It commits the oldest group, which need not be its
		// own, and looks again. called is also in the way: who was called leads first, or two would.
		if c.current == nil && !c.called && c.leaving == 0 {
			c.lead()
			continue
		}

		// Otherwise it sleeps until its group is settled, or until it is called to lead. Most groups of a lone writer
		// never need a channel.
		if g.wake == nil {
			g.wake = make(chan struct{}, 1)
		}
		wake := g.wake
		g.waiting++
		c.mu.Unlock()

		// The channel was closed: the group is settled, and err does not change any more. The lock is not needed, so that
		// hundreds of waiters do not queue for it.
		if _, called := <-wake; !called {
			err := g.err
			if g.left.Add(-1) == 0 {
				c.allLeft(g)
			}

			return err
		}
		c.mu.Lock()
		g.waiting--
		c.called = false
	}
	err := g.err
	c.mu.Unlock()

	return err
}

// lead commits queue[0]. It is called with mu held, no commit running and a group queued, and returns with mu held.
func (c *Committer) lead() {
	g := c.queue[0]

	// Out of the queue, the group takes no more batches: what is applied from here on is of the next transaction.
	c.queue = slices.Delete(c.queue, 0, 1)
	c.pending -= g.batch.Size()

	// Groups behind a failed one are settled with its error and never committed: they may have relied on it.
	err := c.err
	if err == nil {
		c.current = g
		if g.do == nil {
			c.made++
		}
		c.mu.Unlock()

		// Nobody else changes g meanwhile: it is out of the queue, and Apply joins only what is in it.
		err = c.carryOut(g)
		c.mu.Lock()
		c.current = nil

		// The first failure stops everything; Fail may have been called meanwhile with another, and then that one stays.
		if err != nil {
			err = c.poison(err)
		}
	}

	// The group is settled. Nobody waits in the simple case, and the next leader is called at once.
	g.settled, g.err = true, err
	c.give(g.batch)
	g.batch = nil
	if g.waiting == 0 {
		c.reuse(g)
		c.handOver()

		return
	}

	// Otherwise its waiters are woken, and the last of them to leave calls the next leader: see handOver.
	c.leaving++
	g.left.Store(int64(g.waiting))

	// settled and err are set before it is closed, so that who wakes may read err without mu.
	close(g.wake)
}

// allLeft notes that all waiters of a settled group have returned.
func (c *Committer) allLeft(g *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving--
	c.reuse(g)
	c.handOver()
}

// reuse keeps a group that is settled and that nobody knows of any more. It is called with mu held.
func (c *Committer) reuse(g *group) {
	// A shared group is left to the garbage collector, together with its receipts.
	if !g.shared && len(c.groups) < 4 {
		c.groups = append(c.groups, g)
	}
}

// carryOut commits g.
func (c *Committer) carryOut(g *group) (err error) {
	defer catch(&err)
	if g.do != nil {
		g.do()
		return nil
	}

	return c.commit(g.batch, g.level)
}

// catch turns a panic into an error, so that every waiter returns. It must be deferred itself.
func catch(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
	}
}

// handOver calls a waiter of the next groups to lead, unless there is a leader or one was called already. It is called
// with mu held.
//
// It does so only when all waiters of the settled groups have returned. They run before the new leader does, and most
// apply their next batch at once, which joins the next group. Otherwise the next group would be the few batches that
// came during the last commit, and small and large groups would alternate.
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

// Exclusive calls f when everything applied before is committed, and commits nothing else before f returns. It returns
// the poison if there is one, and then does not call f. Otherwise it returns f's error, which poisons nothing. A panic
// in f does.
func (c *Committer) Exclusive(f func() error) error {
	c.mu.Lock()
	if err := c.refuses(); err != nil {
		c.mu.Unlock()
		return err
	}
	var failed error

	// It is a group of its own, which no batch joins because do is set. So it comes after all that was applied before.
	g := &group{c: c, batch: c.take(), do: func() { failed = f() }}
	c.queue = append(c.queue, g)
	if err := c.await(g); err != nil {
		return err
	}

	return failed
}

// Flush returns when everything applied before is committed. It returns the poison if
// there is one.
func (c *Committer) Flush() error {
	c.mu.Lock()

	// Groups are settled in order, so the last one is enough.
	last := c.current
	if n := len(c.queue); n > 0 {
		last = c.queue[n-1]
	}
	if last == nil {
		defer c.mu.Unlock()
		return c.err
	}

	return c.await(last)
}

// ApplyChecked is Apply for a batch that depends on what is there before it: check may still change b, and its error
// refuses b. What is there is what can be read when check is called, and what is not committed yet: pending has
// been called before with the operations of that, in order. No other call applies until ApplyChecked returns.
func (c *Committer) ApplyChecked(b *holdfast.Batch, level holdfast.Level, pending func(holdfast.Op),
	check func() error) (holdfast.Receipt, error) {
	c.mu.Lock()
	for c.held {
		c.changed.Wait()
	}
	err := c.refuses()
	if err == nil {
		// Others who apply wait for held, not for mu: waiters and leaders go on while check reads.
		c.held = true
		c.uncommitted(pending)
		c.mu.Unlock()
		func() {
			defer catch(&err)
			err = check()
		}()
		if err == nil {
			err = b.Err()
		}
		c.mu.Lock()
		c.held = false
		c.changed.Broadcast()
	}

	// held is false again: others who apply need not know that this one was refused.
	if err != nil {
		c.mu.Unlock()
		return holdfast.Receipt{}, err
	}

	return c.push(b, level)
}

// uncommitted calls pending with every operation that is not known to be committed, in order. It is called with mu
// held.
func (c *Committer) uncommitted(pending func(holdfast.Op)) {
	// The group that is being committed counts too: its operations may or may not be visible yet. Its batch is only read
	// meanwhile, also by the one who commits.
	groups := c.queue
	if c.current != nil {
		groups = append([]*group{c.current}, groups...)
	}

	for _, g := range groups {
		for op := range g.batch.Ops() {
			pending(op)
		}
	}
}

// Fail poisons the committer with cause, which may already be a poison, and returns the
// poison. The first cause stays.
func (c *Committer) Fail(cause error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.poison(cause)
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
	// closed is set first, so that Flush meets all that will ever be queued.
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()

	return c.Flush()
}

// Fill sets the counters that the committer knows.
func (c *Committer) Fill(m *holdfast.Metrics) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Commits, m.Groups, m.Poison = c.commits, c.made, c.err
}

// Poisoned wraps the cause that stopped an engine in the error that later Applies get.
func Poisoned(engine string, cause error) error {
	if errors.Is(cause, holdfast.ErrPoisoned) {
		return cause
	}
	p := &holdfast.Error{Op: "write", Engine: engine, Class: holdfast.ErrPoisoned, Cause: cause,
		Remedy: "nothing is acknowledged any more; fix the cause and reopen"}
	var known *holdfast.Error
	if errors.As(cause, &known) {
		p.Op, p.Path, p.Offset = known.Op, known.Path, known.Offset
	}

	return p
}
