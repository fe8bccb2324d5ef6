package event

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// Tx is a log in a transaction of its database, and is used as that is. Its errors are ordinary ones: nothing was done,
// and the function decides whether it goes on.
type Tx struct {
	s  *Store
	tx *kv.Tx
}

// In returns the log as a part of a transaction. Until the function of that has returned, others who write to the log
// wait. What the transaction survives is at least the log's level.
func (s *Store) In(tx *kv.Tx) Tx { return Tx{s, tx} }

// part is the log's part in a transaction. It keeps what the log will be: that is changed once the transaction has its
// place.
type part struct {
	s       *Store
	shared  *txn.Tx
	batch   holdfast.Batch
	first   uint64 // the position of the first event that it appends
	next    uint64 // and behind the last
	named   []named
	ids     map[string]struct{} // that it appends, folded
	cursors []*cursor           // that it saves
	applied []func()            // what other stores do once it has its place
}

// named are events with ids.
type named struct {
	events []Event // only their ids
	first  uint64
}

// cursor is an offset or snapshot that is saved, or deleted.
type cursor struct {
	key    []byte
	value  []byte // nil if it is deleted
	save   *save
	before *save
}

// enter returns the part. If that is no error, the caller calls Leave of the transaction.
func (t Tx) enter() (*part, error) {
	shared, err := t.tx.Enter(t.s.db)
	if err != nil {
		return nil, err
	}
	p, err := t.s.takePart(t.tx.Context(), shared)
	if err != nil {
		t.tx.Leave()
	}
	return p, err
}

// takePart returns the part in a transaction.
func (s *Store) takePart(ctx context.Context, shared *txn.Tx) (*part, error) {
	if p, ok := shared.Part(s).(*part); ok {
		return p, nil
	}
	// The turn first: a call that is inside waits for nothing that a Close may wait for.
	if err := s.turn.Hold(ctx); err != nil {
		return nil, err
	}
	if err := s.enter(ctx); err != nil {
		s.turn.Release()
		return nil, err
	}
	s.turn.Lock()
	err := s.state()
	next := s.next.Load()
	s.turn.Unlock()
	if err == nil && s.late.Load() {
		err = s.begun()
	}
	if err != nil {
		s.turn.Release()
		s.life.Leave()
		return nil, err
	}
	p := &part{s: s, shared: shared, first: next, next: next}
	shared.Raise(s.level)
	shared.Join(s, p)
	return p, nil
}

// Append is [Store.Append] in the transaction: it gives the events their positions, and returns at once. Whether they
// are there is known when the transaction is. Events whose ids are known are a repeat, as there: to compare them,
// Append waits until the first ones are durable. An id that the transaction has given already is ErrBadEvent.
func (t Tx) Append(events ...Event) (Result, error) { return t.append(nil, events) }

// AppendAfter is Append if last is the last position of the log, with what the transaction has appended before.
// Otherwise it is ErrConflict.
func (t Tx) AppendAfter(last uint64, events ...Event) (Result, error) { return t.append(&last, events) }

func (t Tx) append(last *uint64, events []Event) (Result, error) {
	p, err := t.enter()
	if err != nil {
		return Result{}, err
	}
	defer t.tx.Leave()
	return p.append(last, events, nil)
}

// Last is the last position of the log, with what the transaction has appended, 0 if the log never had an event.
// Readers may not see it yet.
func (t Tx) Last() (uint64, error) {
	p, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.tx.Leave()
	return p.next - 1, nil
}

// For returns the log's part in a transaction for another store of this module, whose events it has.
func (s *Store) For(ctx context.Context, shared *txn.Tx) (*Part, error) {
	p, err := s.takePart(ctx, shared)
	return (*Part)(p), err
}

// Part is what [Store.For] returns.
type Part part

// Applied arranges that f is called once the transaction has its place, before anybody else writes to the log.
func (p *Part) Applied(f func()) { p.applied = append(p.applied, f) }

// Append is [Tx.Append]; add is called for events that are no repeat, as [Store.AppendFor] does.
func (p *Part) Append(events []Event, add func(*Commit) error) (Result, error) {
	return (*part)(p).append(nil, events, add)
}

// SaveOffset is [Tx.SaveOffset].
func (p *Part) SaveOffset(subscription string, pos uint64) error {
	return (*part)(p).save("save offset", p.s.keys.Offset(subscription), subscription, pos, nil)
}

// LoadOffset is [Tx.LoadOffset].
func (p *Part) LoadOffset(subscription string) (uint64, error) {
	pos, _, err := (*part)(p).load("load offset", p.s.keys.Offset(subscription), subscription)
	return pos, err
}

// append appends events; last is the position that they are to come behind, nil for any.
func (p *part) append(last *uint64, events []Event, add func(*Commit) error) (Result, error) {
	s := p.s
	a := s.appenders.Get().(*appender)
	defer s.free(a)
	if err := s.check(a, events); err != nil {
		return Result{}, err
	}
	if timed(events) {
		if err := s.allow(false); err != nil {
			return Result{}, s.met(err)
		}
	}
	if events[0].ID != "" {
		again, r, err := p.repeated(a, events)
		if again || err != nil {
			return r, err
		}
	}
	if last != nil && p.next-1 != *last {
		return Result{}, s.fail("append", ErrConflict, &Conflict{*last, p.next - 1}, "", "nothing was appended")
	}

	if add != nil {
		c := &Commit{First: p.next, Events: events, Keys: &a.own}
		if err := s.buildWith(a, c, add); err != nil {
			return Result{}, err
		}
	} else if err := s.build(a, events, p.next); err != nil {
		return Result{}, err
	}
	p.batch.Append(&a.batch)
	if err := p.batch.Err(); err != nil {
		return Result{}, err
	}
	r := Result{First: p.next, Last: p.next + uint64(len(events)) - 1}
	if events[0].ID != "" {
		p.note(events)
	}
	p.next = r.Last + 1
	return r, nil
}

// note keeps the ids of events that begin at the next position.
func (p *part) note(events []Event) {
	if p.ids == nil {
		p.ids = map[string]struct{}{}
	}
	ids := make([]Event, len(events))
	for i := range events {
		ids[i].ID = strings.Clone(events[i].ID)
		p.ids[p.s.folded(ids[i].ID)] = struct{}{}
	}
	p.named = append(p.named, named{ids, p.next})
}

// repeated reports whether the ids of events are known, and then returns their places.
func (p *part) repeated(a *appender, events []Event) (bool, Result, error) {
	s := p.s
	for i := range events {
		if _, given := p.ids[s.folded(events[i].ID)]; given {
			return false, Result{}, s.fail("append", ErrBadEvent, nil, "", "the id %q of event %d was given in this transaction",
				events[i].ID, i)
		}
	}
	if !slices.ContainsFunc(events, func(e Event) bool { return !e.NewID }) {
		return false, Result{}, nil
	}
	was := glance{edits: s.edits.Load(), seen: s.durable.Load(), next: p.next}
	if err := s.lookUp(a, events, p.next); err != nil {
		return false, Result{}, s.met(err)
	}
	var known Pending
	s.turn.Lock()
	found, err := s.repeated(&known, a, events, s.level, p.next, was)
	s.turn.Unlock()
	if !found || err != nil {
		return false, Result{}, err
	}
	r, err := known.Wait()
	return true, r, err
}

// SaveOffset is [Store.SaveOffset] in the transaction. The position may be one that the transaction has appended.
func (t Tx) SaveOffset(subscription string, pos uint64) error {
	return t.save("save offset", t.s.keys.Offset(subscription), subscription, pos, nil)
}

// LoadOffset is [Store.LoadOffset] in the transaction: the latest one, whether it is durable or not.
func (t Tx) LoadOffset(subscription string) (uint64, error) {
	pos, _, err := t.load("load offset", t.s.keys.Offset(subscription), subscription)
	return pos, err
}

// DeleteOffset is [Store.DeleteOffset] in the transaction.
func (t Tx) DeleteOffset(subscription string) error {
	return t.drop("delete offset", t.s.keys.Offset(subscription), subscription)
}

// SaveSnapshot is [Store.SaveSnapshot] in the transaction, as SaveOffset is.
func (t Tx) SaveSnapshot(projection string, pos uint64, state []byte) error {
	return t.save("save snapshot", t.s.keys.Snapshot(projection), projection, pos, state)
}

// LoadSnapshot is [Store.LoadSnapshot] in the transaction, as LoadOffset is.
func (t Tx) LoadSnapshot(projection string) (pos uint64, state []byte, err error) {
	return t.load("load snapshot", t.s.keys.Snapshot(projection), projection)
}

// DeleteSnapshot is [Store.DeleteSnapshot] in the transaction.
func (t Tx) DeleteSnapshot(projection string) error {
	return t.drop("delete snapshot", t.s.keys.Snapshot(projection), projection)
}

func (t Tx) save(op string, key []byte, name string, pos uint64, state []byte) error {
	p, err := t.enter()
	if err != nil {
		return err
	}
	defer t.tx.Leave()

	return p.save(op, key, name, pos, state)
}

func (p *part) save(op string, key []byte, name string, pos uint64, state []byte) error {
	s := p.s
	if err := s.checkName(op, name); err != nil {
		return err
	}
	if pos >= p.next {
		return s.fail(op, ErrAhead, nil, "", "position %d, the last one is %d", pos, p.next-1)
	}
	value := append(format.AppendCursor(nil, pos), state...)
	if n := int64(len(value)); n > s.maxValue {
		return s.fail(op, holdfast.ErrTooLarge, nil, "", "the state takes %d bytes, the limit is %d", n, s.maxValue)
	}
	p.set(key, value)

	return nil
}

func (t Tx) drop(op string, key []byte, name string) error {
	p, err := t.enter()
	if err != nil {
		return err
	}
	defer t.tx.Leave()
	if err := p.s.checkName(op, name); err != nil {
		return err
	}
	p.set(key, nil)

	return nil
}

func (p *part) set(key, value []byte) {
	for _, c := range p.cursors {
		if bytes.Equal(c.key, key) {
			c.value = value
			return
		}
	}
	p.cursors = append(p.cursors, &cursor{key: key, value: value})
}

func (t Tx) load(op string, key []byte, name string) (pos uint64, state []byte, err error) {
	p, err := t.enter()
	if err != nil {
		return 0, nil, err
	}
	defer t.tx.Leave()

	return p.load(op, key, name)
}

func (p *part) load(op string, key []byte, name string) (pos uint64, state []byte, err error) {
	s := p.s
	if err := s.checkName(op, name); err != nil {
		return 0, nil, err
	}
	value, err := p.latest(key)
	if err != nil {
		return 0, nil, s.met(err)
	}
	pos, state, ok := format.DecodeCursor(value)
	if !ok {
		return 0, nil, s.fail(op, holdfast.ErrCorrupt, nil, "", "what is kept for %q cannot be read", name)
	}

	return pos, bytes.Clone(state), nil
}

// latest returns what was saved last under a key, or ErrNotFound.
func (p *part) latest(key []byte) ([]byte, error) {
	for _, c := range p.cursors {
		if bytes.Equal(c.key, key) {
			if c.value == nil {
				return nil, holdfast.ErrNotFound
			}
			return c.value, nil
		}
	}

	// An engine that does not show yet what was applied does so once that is durable.
	if !p.s.caps.ShownAtApply {
		saving := &p.s.saving
		saving.mu.Lock()
		w := saving.last[string(key)]
		saving.mu.Unlock()
		if w != nil {
			<-w.placed // it is: the turn is ours
			if err := w.wait(); err != nil {
				return nil, err
			}
		}
	}
	return p.s.eng.Get(nil, key)
}

// Prepare implements [txn.Part].
func (p *part) Prepare(b *holdfast.Batch) error {
	b.Append(&p.batch)
	c := &p.s.saving
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range p.cursors {
		if at.value == nil {
			b.Delete(at.key)
		} else {
			b.Set(at.key, at.value)
		}
		// From now on the engine may show it, and who loads it waits.
		at.before = c.last[string(at.key)]
		at.save = c.begin(at.key)
	}
	return nil
}

// Commit implements [txn.Part].
func (p *part) Commit(receipt holdfast.Receipt, level holdfast.Level) func() error {
	s := p.s
	s.turn.Lock()
	s.next.Store(p.next)
	s.applied(receipt, level)
	for _, n := range p.named {
		s.recent.add(n.events, n.first, s.durable.Load())
	}
	if len(p.named) > 0 {
		s.crowd.Store(s.recent.crowd())
	}
	if p.next > p.first {
		s.unawaited = p.next - 1 // who has submitted it may never wait
	}
	wait := s.everything()
	s.turn.Unlock()
	for _, f := range p.applied {
		f()
	}
	p.placed(wait)
	p.end()

	if s.arrived.awaited() {
		_ = s.settle() // the receipt tells
	}
	if last := p.next - 1; len(p.named) > 0 && last/s.window >= s.sweeper.due.Load() {
		s.sweep(last, int(p.next-p.first))
	}
	return wait
}

// everything returns what waits for all that has its place. It is called with the lock.
func (s *Store) everything() func() error {
	tail, last := s.tail, s.next.Load()-1
	return func() error { return s.settled(last, tail.Wait()) }
}

// Rollback implements [txn.Part].
func (p *part) Rollback() func() error {
	s := p.s
	s.turn.Lock()
	level := p.shared.Level()
	err := cmp.Or(s.tail.Raise(s.eng, level), s.saved.Raise(s.eng, level))
	wait, saved := s.everything(), s.saved
	s.turn.Unlock()
	p.placed(nil)
	p.end()
	return func() error {
		if err != nil {
			return s.met(err)
		}
		return cmp.Or(wait(), s.settled(0, saved.Wait()))
	}
}

// placed says what becomes of the offsets and snapshots that Prepare has begun to save.
func (p *part) placed(wait func() error) {
	c := &p.s.saving
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, at := range p.cursors {
		if at.save != nil {
			c.place(at.key, at.save, wait, at.before)
		}
	}
}

// end gives the turn back.
func (p *part) end() {
	p.s.turn.Release()
	p.s.life.Leave()
}
