package event

import (
	"context"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
)

// Draft is an append, import or removal of another store of this module, which has the log for its events and puts keys
// of its own into the same commit. No other write can come between its beginning and Wait or Close: the log's turn is
// the draft's or its transaction's. Until then who has it calls no method of the log that writes, and waits for nobody
// who may.
type Draft struct {
	// Events are what Apply will append, import or remove, without what is there or gone already: none if that is all. In
	// an append or import their Origin, Metadata and Data may still be changed, to others of the same size.
	Events []Event
	// First is the position of the first of them.
	First uint64
	// Keys takes the other store's operations.
	Keys *holdfast.Batch

	s       *Store
	a       *appender // nil at the end
	what    draftKind
	how     terms
	part    *Part   // that it is in, nil if it is a call
	next    uint64  // the log's next position, once it is applied
	pending Pending // of what was applied, or is repeated
	turn    bool    // it has the log's turn
	edit    bool    // and is the edit that is under way
	hides   *hiding // what it imports, until that is durable; nil if nothing
	ready   bool    // it has begun
	applied bool
	err     error // of Apply
}

type draftKind int

const (
	appending draftKind = iota
	importing
	removing
)

// draft sets d to a draft that has not begun.
func (s *Store) draft(d *Draft, what draftKind) *Draft {
	*d = Draft{s: s, a: s.appenders.Get().(*appender), what: what}
	d.a.batch.Reset()
	d.a.own.Reset()
	d.Keys = &d.a.own
	return d
}

// DraftAppend begins an append. Events whose ids are known are a repeat, whose result Wait returns.
func (s *Store) DraftAppend(ctx context.Context, _ keyspace.Kind, events ...Event) (*Draft, error) {
	d := s.draft(new(Draft), appending)
	defer d.unlessBegun()
	was, err := s.prepare(ctx, d.a, &d.how, events)
	if err == nil {
		err = d.take(ctx)
	}
	if err == nil {
		err = d.decide(events, was, s.next.Load())
	}
	return d.begun(err)
}

// DraftImport begins an import. What is there with the same id at the same position is not compared further.
func (s *Store) DraftImport(ctx context.Context, _ keyspace.Kind, events ...Event) (*Draft, error) {
	d := s.draft(new(Draft), importing)
	defer d.unlessBegun()
	return d.begun(d.beginImport(ctx, events, false))
}

// DraftRemove begins a removal.
func (s *Store) DraftRemove(ctx context.Context, _ keyspace.Kind, positions ...uint64) (*Draft, error) {
	d := s.draft(new(Draft), removing)
	defer d.unlessBegun()
	return d.begun(d.beginRemove(ctx, positions))
}

// Between calls f for another store of this module, which has the log for its events: no append comes between what f
// looks at and what it applies to the engine. f calls no method of the log that writes, and waits for nobody who may.
func (s *Store) Between(ctx context.Context, _ keyspace.Kind, f func() error) error {
	if err := s.take(ctx); err != nil {
		return s.met(err)
	}
	defer s.turn.Give()
	return f()
}

// begun returns a draft that has begun, unless err says why it has not.
func (d *Draft) begun(err error) (*Draft, error) {
	if err != nil {
		return nil, d.s.met(err)
	}
	d.ready = true
	return d, nil
}

// unlessBegun ends a draft that has not begun, also because the engine has panicked.
func (d *Draft) unlessBegun() {
	if !d.ready {
		d.Close()
	}
}

// take takes the log's turn.
func (d *Draft) take(ctx context.Context) error {
	err := d.s.take(ctx)
	d.turn = err == nil
	return err
}

// decide gives the events their positions, from next on, unless they are a repeat.
func (d *Draft) decide(events []Event, was glance, next uint64) error {
	again, err := d.s.decide(&d.pending, d.a, events, &d.how, next, was)
	if err == nil && !again {
		d.Events, d.First, d.next = events, next, next+uint64(len(events))
	}
	return err
}

// Apply gives the draft its place, and reports whether it has it; if not, Wait returns why. A draft without events has
// none.
func (d *Draft) Apply() bool {
	if len(d.Events) > 0 {
		d.err = d.apply()
		d.applied = d.err == nil
	}
	return d.applied
}

func (d *Draft) apply() error {
	s, a, b := d.s, d.a, &d.a.batch
	switch d.what {
	case appending:
		if err := s.build(a, d.Events, d.First); err != nil {
			return err
		}
	case importing:
		for i := range d.Events {
			s.put(a, b, &d.Events[i], a.now)
		}
	}
	b.Append(d.Keys)
	if err := b.Err(); err != nil {
		return err
	}
	if int64(b.Size()) > s.maxBatch {
		return s.tooLarge(len(d.Events))
	}
	r := Result{First: d.First, Last: d.First + uint64(len(d.Events)) - 1}
	if d.part != nil {
		d.pending.result = r
		return d.part.add(b, d.Events, d.how.named)
	}
	if err := s.commit(b, d.how.level, d.next); err != nil {
		return err
	}
	d.pending = s.pending()
	d.pending.result = r
	switch {
	case d.what == importing:
		for i := range d.Events {
			if id := d.Events[i].ID; id != "" {
				id = strings.Clone(s.folded(id)) // it may be a part of something large
				s.importing[id] = d.Events[i].Position
				s.recent.fresh.leave(id, s.recent.newest())
			}
		}
	case d.what == removing:
		for i := range d.Events {
			if id := s.folded(d.Events[i].ID); s.recent.at[id] == d.Events[i].Position {
				delete(s.recent.at, id)
			}
		}
		s.edits.Add(1) // ids that were looked up before may be free now
	case d.how.named:
		s.remember(d.Events, d.First)
	}
	return nil
}

// Wait gives the turn back, and returns as [Pending.Wait] does once the draft is durable. An import or removal of
// nothing returns when what an earlier one has done is.
func (d *Draft) Wait() (Result, error) {
	s := d.s
	d.give()
	if d.err != nil {
		return Result{}, s.met(d.err)
	}
	if d.what == appending {
		if d.applied && d.part == nil {
			s.placed(false, d.how.named, d.pending.result.Last, len(d.Events))
		}
		return d.pending.wait()
	}
	if !d.applied {
		return Result{}, s.barrier(d.how.level)
	}
	if err := d.pending.settle(); err != nil {
		return Result{}, s.met(err) // what is imported stays hidden: a crash can take it back
	}
	if d.what == importing {
		s.hidden.Store(nil)
		s.turn.Lock()
		clear(s.importing)
		s.edits.Add(1) // they can be found in the engine now
		s.turn.Unlock()
	}
	return d.pending.result, nil
}

// Close ends the draft. Without Apply nothing is written. It may be called again.
func (d *Draft) Close() {
	d.give()
	if d.edit {
		d.edit = false
		if d.hides != nil {
			if !d.applied {
				d.s.hidden.Store(nil)
			}
			close(d.hides.over)
		}
		d.s.edited()
	}
}

// give gives back what the draft needs no more once it is applied, or will not be.
func (d *Draft) give() {
	if d.turn {
		d.turn = false
		d.s.turn.Give()
	}
	if d.a != nil {
		d.s.free(d.a)
		d.a, d.Keys = nil, nil
	}
}

// whole makes all of an import or removal, and returns of how many events.
func whole(d *Draft, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	defer d.Close()
	d.Apply()
	if _, err := d.Wait(); err != nil {
		return 0, err
	}
	return len(d.Events), nil
}
