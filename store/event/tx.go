package event

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
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

// Part is a log's part in a transaction. It keeps what the log will be: that is changed once the transaction has its
// place. [Store.Part] gives it to another store of this module.
type Part struct {
	s       *Store
	shared  *txn.Tx
	batch   holdfast.Batch
	first   uint64              // the position of the first event that it appends
	next    uint64              // and behind the last
	ids     map[string]struct{} // that it appends, folded
	cursors []cursor            // offsets and snapshots that it saves
	named   []run               // the events with ids that it appends
	locked  bool                // it has the lock
	room    Draft               // of the one that is being made
}

// run is of events in a row, of which only the ids are there.
type run struct {
	first  uint64
	events []Event
}

// cursor is an offset or snapshot that is saved.
type cursor struct{ key, value []byte } // value is nil if it is deleted

// with calls f with the part.
func (t Tx) with(f func(p *Part) error) error {
	shared, err := t.tx.Enter(t.s.db)
	if err != nil {
		return err
	}
	defer t.tx.Leave()
	p, ok := shared.Part(t.s).(*Part)
	if !ok {
		if p, err = t.s.Part(t.tx.Context(), shared); err != nil {
			return err
		}
		shared.Join(t.s, p)
	}
	return f(p)
}

// Part returns a part in a transaction for another store of this module, whose own part has it: it passes on what a
// part is called for.
func (s *Store) Part(ctx context.Context, shared *txn.Tx) (*Part, error) {
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
	if err == nil {
		err = s.begun()
	}
	if err != nil {
		s.turn.Release()
		s.life.Leave()
		return nil, err
	}
	shared.Raise(s.level)
	return &Part{s: s, shared: shared, first: next, next: next}, nil
}

// Append is [Store.Append] in the transaction: it gives the events their positions, and returns at once. Whether they
// are there is known when the transaction is. Events whose ids are known are a repeat, as there: to compare them,
// Append waits until the first ones are durable. An id that the transaction has given already is ErrBadEvent.
func (t Tx) Append(events ...Event) (Result, error) { return t.append(terms{}, events) }

// AppendAfter is Append if last is the last position of the log, with what the transaction has appended before.
// Otherwise it is ErrConflict.
func (t Tx) AppendAfter(last uint64, events ...Event) (Result, error) {
	return t.append(terms{conditional: true, last: last}, events)
}

func (t Tx) append(how terms, events []Event) (r Result, err error) {
	err = t.with(func(p *Part) error {
		d, err := p.draft(how, events)
		if err != nil {
			return err
		}
		defer d.Close()
		d.Apply()
		r, err = d.Wait()
		return err
	})
	return r, err
}

// Last is the last position of the log, with what the transaction has appended, 0 if the log never had an event.
// Readers may not see it yet.
func (t Tx) Last() (last uint64, err error) {
	err = t.with(func(p *Part) error {
		last = p.next - 1
		return nil
	})
	return last, err
}

// Draft is [Store.DraftAppend] in the transaction.
func (p *Part) Draft(events ...Event) (*Draft, error) { return p.draft(terms{}, events) }

func (p *Part) draft(how terms, events []Event) (*Draft, error) {
	d := p.s.draft(&p.room, appending)
	defer d.unlessBegun()
	d.part, d.how = p, how
	return d.begun(d.beginIn(p, events))
}

func (d *Draft) beginIn(p *Part, events []Event) error {
	s := p.s
	d.how.level = s.level
	if err := s.check(d.a, &d.how, events); err != nil {
		return err
	}
	for i := range events {
		if _, given := p.ids[s.folded(events[i].ID)]; given {
			return s.fail("append", ErrBadEvent, nil, "", "the id %q of event %d was given in this transaction",
				events[i].ID, i)
		}
	}
	was, err := s.look(d.a, &d.how, events, p)
	if err != nil {
		return err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	return d.decide(events, was, p.next)
}

// add adds a draft's events, which begin at the next position, and what writes them.
func (p *Part) add(b *holdfast.Batch, events []Event, named bool) error {
	p.batch.Append(b)
	if err := p.batch.Err(); err != nil {
		return err
	}
	if named {
		if p.ids == nil {
			p.ids = map[string]struct{}{}
		}
		ids := make([]Event, len(events))
		for i := range events {
			ids[i].ID = events[i].ID
			p.ids[p.s.folded(ids[i].ID)] = struct{}{}
		}
		p.named = append(p.named, run{p.next, ids})
	}
	p.next += uint64(len(events))
	return nil
}

// SaveOffset is [Store.SaveOffset] in the transaction. The position may be one that the transaction has appended.
func (t Tx) SaveOffset(subscription string, pos uint64) error {
	return t.with(func(p *Part) error { return p.SaveOffset(subscription, pos) })
}

// LoadOffset is [Store.LoadOffset] in the transaction: the latest one, whether it is durable or not.
func (t Tx) LoadOffset(subscription string) (pos uint64, err error) {
	err = t.with(func(p *Part) (err error) {
		pos, err = p.LoadOffset(subscription)
		return err
	})
	return pos, err
}

// DeleteOffset is [Store.DeleteOffset] in the transaction.
func (t Tx) DeleteOffset(subscription string) error {
	return t.with(func(p *Part) error { return p.drop("delete offset", p.s.keys.Offset(subscription), subscription) })
}

// SaveSnapshot is [Store.SaveSnapshot] in the transaction, as SaveOffset is.
func (t Tx) SaveSnapshot(projection string, pos uint64, state []byte) error {
	return t.with(func(p *Part) error {
		return p.save("save snapshot", p.s.keys.Snapshot(projection), projection, pos, state)
	})
}

// LoadSnapshot is [Store.LoadSnapshot] in the transaction, as LoadOffset is.
func (t Tx) LoadSnapshot(projection string) (pos uint64, state []byte, err error) {
	err = t.with(func(p *Part) (err error) {
		pos, state, err = p.load("load snapshot", p.s.keys.Snapshot(projection), projection)
		return err
	})
	return pos, state, err
}

// DeleteSnapshot is [Store.DeleteSnapshot] in the transaction.
func (t Tx) DeleteSnapshot(projection string) error {
	return t.with(func(p *Part) error { return p.drop("delete snapshot", p.s.keys.Snapshot(projection), projection) })
}

// SaveOffset is [Tx.SaveOffset].
func (p *Part) SaveOffset(subscription string, pos uint64) error {
	return p.save("save offset", p.s.keys.Offset(subscription), subscription, pos, nil)
}

// LoadOffset is [Tx.LoadOffset].
func (p *Part) LoadOffset(subscription string) (uint64, error) {
	pos, _, err := p.load(loadOffset, p.s.keys.Offset(subscription), subscription)
	return pos, err
}

func (p *Part) save(op string, key []byte, name string, pos uint64, state []byte) error {
	value, err := p.s.cursorValue(op, name, pos, p.next-1, state)
	if err == nil {
		p.batch.Set(key, value)
		p.note(key, value)
	}
	return err
}

func (p *Part) drop(op string, key []byte, name string) error {
	err := p.s.checkName(op, name)
	if err == nil {
		p.batch.Delete(key)
		p.note(key, nil)
	}
	return err
}

// note keeps what the transaction has saved under a key.
func (p *Part) note(key, value []byte) {
	if c := p.saved(key); c != nil {
		c.value = value
		return
	}
	p.cursors = append(p.cursors, cursor{key, value})
}

// saved returns what the transaction has saved under a key, nil if nothing.
func (p *Part) saved(key []byte) *cursor {
	for i := range p.cursors {
		if bytes.Equal(p.cursors[i].key, key) {
			return &p.cursors[i]
		}
	}
	return nil
}

func (p *Part) load(op string, key []byte, name string) (pos uint64, state []byte, err error) {
	if err := p.s.checkName(op, name); err != nil {
		return 0, nil, err
	}
	value, err := p.latest(key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return 0, nil, p.s.noCursor(op, name)
	}
	if err != nil {
		return 0, nil, p.s.met(err)
	}
	pos, state, err = p.s.decodeCursor(op, name, value)
	return pos, bytes.Clone(state), err
}

// latest returns what was saved last under a key, or ErrNotFound.
func (p *Part) latest(key []byte) ([]byte, error) {
	if c := p.saved(key); c != nil {
		if c.value == nil {
			return nil, holdfast.ErrNotFound
		}
		return c.value, nil
	}

	// An engine that does not show yet what was applied does so once that is durable.
	if !p.s.caps.ShownAtApply {
		if w := p.s.unsaved(key); w != nil {
			if err := w.wait(); err != nil {
				return nil, err
			}
		}
	}
	return p.s.eng.Get(nil, key)
}

// Prepare implements [txn.Part]. From now on the engine may show what is written: the lock is held until the log's
// memory tells of it, too, so that who loads an offset knows what to wait for.
func (p *Part) Prepare(b *holdfast.Batch) error {
	b.Append(&p.batch)
	p.s.turn.Lock()
	p.locked = true
	return nil
}

// Commit implements [txn.Part].
func (p *Part) Commit(receipt holdfast.Receipt, level holdfast.Level) func() error {
	s := p.s
	s.applied(receipt, level, p.next)
	for _, r := range p.named {
		s.remember(r.events, r.first)
	}
	if p.next > p.first {
		s.unawaited = p.next - 1 // who has submitted it may never wait
	}
	all := s.pending()
	wait := all.settle
	for i := range p.cursors {
		s.saving(string(p.cursors[i].key), wait)
	}
	s.turn.Unlock()
	p.end()

	s.placed(true, len(p.ids) > 0, p.next-1, int(p.next-p.first))
	return wait
}

// Rollback implements [txn.Part].
func (p *Part) Rollback() func() error {
	s := p.s
	if !p.locked {
		s.turn.Lock()
	}
	level := p.shared.Level()
	err := cmp.Or(s.tail.Raise(s.eng, level), s.saved.Raise(s.eng, level))
	all, saved := s.pending(), s.saved
	s.turn.Unlock()
	p.end()
	return func() error {
		if err != nil {
			return s.met(err)
		}
		return cmp.Or(all.settle(), s.settled(0, saved.Wait()))
	}
}

// end gives the turn back.
func (p *Part) end() {
	p.s.turn.Release()
	p.s.life.Leave()
}
