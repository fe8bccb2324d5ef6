package event

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// ErrTaken: an import names a position that another event has, or had, or an id that another event has; errors.As
// finds a [*Taken].
var ErrTaken = errors.New("holdfast: position or id taken")

// Taken says which event of an import cannot be stored at its position.
type Taken struct {
	Event    uint64 // the position that it was to get
	Position uint64 // of the event that is in the way: at the same position, or with the same id
}

// Error says it in words.
func (t *Taken) Error() string {
	if t.Event == t.Position {
		return fmt.Sprintf("position %d is taken", t.Event)
	}
	return fmt.Sprintf("the id of the event for position %d is that of position %d", t.Event, t.Position)
}

// Import puts events at the positions that they name, in one commit, and returns how many were not there yet. It is
// for histories that come from elsewhere: their positions may have gaps, which readers skip, and the events may come
// in any order. The next append goes behind the highest position.
//
// An event that is there already, with the same id at the same position and the same content, is left as it is, so that
// an import that was interrupted can be repeated; a time of zero is the same as any. A position is free as long as no
// event was put there, in a gap that an import has left, or behind the end of the log; and again after [Store.Remove].
// Where it is not, or an id is known, the error is ErrTaken and nothing is imported. Followers that have passed a
// position do not get what is put there later.
//
// Imports, removals and truncations of one log wait for each other; appends go on. ctx is checked until the events
// have their place. Limits and other errors are those of Append.
func (s *Store) Import(ctx context.Context, events ...Event) (added int, err error) {
	d := s.draft(new(Draft), importing)
	defer d.unlessBegun()
	return whole(d.begun(d.beginImport(ctx, events, true)))
}

// beginImport begins an import. whole says that what is there already must be the same.
func (d *Draft) beginImport(ctx context.Context, events []Event, whole bool) error {
	s, a, b := d.s, d.a, &d.a.batch
	level, err := s.edit(ctx)
	if d.how.level, d.edit = level, err == nil; err != nil {
		return err
	}
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Position, b.Position) })

	// Most of the work is done before the turn is taken, so that appends go on meanwhile. What they may have changed by
	// then is checked again below, with the lock.
	events, err = s.absent(a, events, whole)
	if err != nil || len(events) == 0 {
		return err
	}
	if err := s.begun(); err != nil {
		return err
	}
	if err := s.allow(true); err != nil {
		return err
	}
	// Holes stay as they are: this is the only edit. The first n events go into them, the others behind the end.
	last := s.durable.Load()
	n, _ := slices.BinarySearchFunc(events, last+1, func(e Event, pos uint64) int { return cmp.Compare(e.Position, pos) })
	if err := s.insert(a, b, events[:n]); err != nil {
		return err
	}
	if n > 0 {
		// A position below the end is not shown to readers when the engine shows it, but when it is durable: what they have
		// read must not be gone after a crash.
		d.hides = &hiding{make(map[uint64]bool, n), make(chan struct{})}
		for i := range events[:n] {
			d.hides.at[events[i].Position] = true
		}
		s.hidden.Store(d.hides)
	}
	if err := d.take(ctx); err != nil {
		return err
	}
	// Ids that appends have brought since they were looked up; those that have left memory are visible now.
	if err := s.unknown(a, events); err != nil {
		return err
	}

	// What lies behind the end becomes the end of the log. The holes before each event keep its position, which appends
	// cannot take any more.
	d.next = s.next.Load()
	for i := range events[n:] {
		e := &events[n+i]
		if e.Position < d.next { // an append has come first
			return s.taken(e.Position, e.Position)
		}
		s.hole(a, b, d.next, e.Position)
		d.next = e.Position + 1
	}
	d.Events, d.First = events, events[0].Position
	return nil
}

// unknown checks, with the lock, that no event has the id of another.
func (s *Store) unknown(a *appender, events []Event) error {
	oldest := s.oldest(s.next.Load())
	for i := range events {
		e := &events[i]
		if e.ID == "" {
			continue
		}
		pos := s.recent.at[s.folded(e.ID)]
		if pos == 0 && s.recent.forgotten > a.seen {
			if err := s.lookUp(a, events[i:i+1], s.next.Load()); err != nil {
				return err
			}
			pos = a.known[0]
		}
		if pos != 0 && pos >= oldest {
			return s.taken(e.Position, pos)
		}
	}
	return nil
}

// barrier returns when all that was applied is durable. An edit that finds nothing to do calls it: what an earlier one
// has done the engine may show before that, and after its sync has failed.
func (s *Store) barrier(level holdfast.Level) error {
	return s.wait(s.eng.Apply(new(holdfast.Batch), level))
}

// maxPosition is the highest position that an import may name. As many are left for what comes after, and all of them
// are below 1<<63: there are callers that keep positions in an int64.
const maxPosition = 1<<62 - 1

// absent checks events, which are in order, and returns those that are not in the log. If whole, those that are there
// have the same content.
func (s *Store) absent(a *appender, events []Event, whole bool) ([]Event, error) {
	if len(events) == 0 {
		return nil, nil
	}
	if err := s.checkEach(a, events); err != nil {
		return nil, err
	}
	first := s.first.Load()
	for i := range events {
		switch pos := events[i].Position; {
		case pos == 0:
			return nil, s.fail("import", ErrBadEvent, nil, "name the position that each had, from 1", "an event has no position")
		case pos < first:
			return nil, s.truncated(pos, first)
		case pos > maxPosition:
			return nil, s.fail("import", ErrBadEvent, nil, "", "position %d, the limit is %d", pos, uint64(maxPosition))
		case i > 0 && pos == events[i-1].Position:
			return nil, s.fail("import", ErrBadEvent, nil, "", "position %d is given twice", pos)
		}
	}
	a.seen = s.durable.Load()
	kept := events[:0]
	for i := range events {
		e := &events[i]
		if e.Position <= a.seen {
			there, err := s.same(a, e, whole)
			if err != nil {
				return nil, err
			}
			if there {
				continue
			}
		}
		if e.ID != "" {
			next := s.next.Load()
			if err := s.lookUp(a, events[i:i+1], next); err != nil {
				return nil, err
			}

			// An id that is too old counts for appends no more, so it is no hindrance here.
			if pos := a.known[0]; pos >= max(1, s.oldest(next)) {
				return nil, s.taken(e.Position, pos)
			}
		}
		kept = append(kept, *e)
	}
	return kept, nil
}

// same reports whether an event is in the log already, and fails if another has its position, or, if whole, the same
// with another content.
func (s *Store) same(a *appender, e *Event, whole bool) (bool, error) {
	first, _, value, err := s.entry(e.Position)
	if err != nil || format.IsHole(value) {
		return false, err
	}
	events, err := s.decode(first, value)
	if err != nil {
		return false, err
	}

	// Without an id nothing tells a repeat from another event that happens to be the same.
	there := &events[e.Position-first].Event
	differs := there.Type != e.Type || there.Origin != e.Origin || !bytes.Equal(there.Data, e.Data) ||
		!bytes.Equal(there.Metadata, e.Metadata) || !e.Time.IsZero() && there.Time.UnixNano() != a.nanos(e)
	if e.ID == "" || s.folded(there.ID) != s.folded(e.ID) || whole && differs {
		return false, s.taken(e.Position, e.Position)
	}
	return true, nil
}

func (s *Store) taken(pos, by uint64) error {
	return s.fail("import", ErrTaken, &Taken{pos, by}, "", "nothing was imported")
}

// put adds an event to b, and its id. written is when that was, 0 if that is its time.
func (s *Store) put(a *appender, b *holdfast.Batch, e *Event, written int64) {
	keyspace.SetNumber(a.key, e.Position)
	a.encodeOne(e, written, s.maxValue)
	b.Set(a.key, a.record)
	if e.ID != "" && e.Position >= s.oldest(s.next.Load()) { // else it is forgotten at once
		a.idKey = s.keys.ID(a.idKey, e.Position/s.window, s.folded(e.ID))
		a.record = format.AppendPosition(a.record[:0], e.Position)
		b.Set(a.idKey, a.record)
	}
}

// insert adds to b what the events, which are in order, leave of the holes that they are to be put into.
func (s *Store) insert(a *appender, b *holdfast.Batch, events []Event) error {
	for len(events) > 0 {
		pos := events[0].Position
		first, last, value, err := s.entry(pos)
		if err != nil {
			return err
		}
		if !format.IsHole(value) {
			return s.taken(pos, pos)
		}
		at := max(first, s.first.Load()) // what is truncated needs no hole

		// Each event divides the hole: what is left before it, the event, and so on.
		for len(events) > 0 && events[0].Position <= last {
			e := &events[0]
			s.hole(a, b, at, e.Position)
			at, events = e.Position+1, events[1:]
		}
		s.hole(a, b, at, last+1)
	}
	return nil
}

// hole adds to b the hole from a position up to before next, if that is not the same.
func (s *Store) hole(a *appender, b *holdfast.Batch, from, next uint64) {
	if from < next {
		keyspace.SetNumber(a.key, next-1)
		a.record = format.AppendHole(a.record[:0], next-from)
		b.Set(a.key, a.record)
	}
}

// entry returns what the engine has for pos, a record, pack or hole, and its positions.
func (s *Store) entry(pos uint64) (first, last uint64, value []byte, err error) {
	_, hi := s.keys.Events()
	it := s.eng.Scan(holdfast.Range{Lo: s.keys.Event(nil, pos), Hi: hi})
	defer it.Close()
	if it.Next() {
		last, ok := s.keys.Number(it.Key())
		n := format.Count(it.Value())
		if ok && last >= n && last-n < pos {
			return last - n + 1, last, slices.Clone(it.Value()), nil
		}
	}
	if err := it.Err(); err != nil {
		return 0, 0, nil, err
	}
	return 0, 0, nil, s.gap(pos, "events are missing")
}

// Remove removes the events at the positions, in one commit, and returns how many there were. Readers skip the
// positions from then on; a position that has no event, or is truncated, is no error, one behind the end is ErrAhead.
// The id of a removed event is forgotten. Space is given back as in [Store.TruncateBefore]: what small events had
// that were appended together too.
func (s *Store) Remove(ctx context.Context, positions ...uint64) (removed int, err error) {
	d := s.draft(new(Draft), removing)
	defer d.unlessBegun()
	return whole(d.begun(d.beginRemove(ctx, positions)))
}

func (d *Draft) beginRemove(ctx context.Context, positions []uint64) error {
	s := d.s
	level, err := s.edit(ctx)
	if d.how.level, d.edit = level, err == nil; err != nil {
		return err
	}
	positions = slices.Clone(positions)
	slices.Sort(positions)
	positions = slices.Compact(positions)
	first, last := s.first.Load(), s.durable.Load()
	for len(positions) > 0 && positions[0] < first {
		positions = positions[1:]
	}
	if len(positions) == 0 {
		return nil
	}
	if pos := positions[len(positions)-1]; pos > last {
		return s.fail("remove", ErrAhead, nil, "", "position %d, the last one is %d", pos, last)
	}
	if err := s.allow(true); err != nil {
		return err
	}
	events, err := s.cut(d.a, &d.a.batch, positions)
	if err != nil || len(events) == 0 {
		return err
	}
	if err := d.take(ctx); err != nil {
		return err
	}
	d.Events, d.First, d.next = events, events[0].Position, s.next.Load()
	return nil
}

// cut adds to b what makes holes of the positions, which are in order and in the log, and returns the events there.
func (s *Store) cut(a *appender, b *holdfast.Batch, positions []uint64) (events []Event, err error) {
	// from is where the hole begins that is being made, 0 if none is, and at is where it would end now.
	from, at, noted := uint64(0), uint64(0), false
	flush := func() {
		if from > 0 {
			if !noted && from < at { // a hole that takes the place of an event is a set
				keyspace.SetNumber(a.key, at-1)
				chunks.Notes(b, a.key)
				noted = true
			}
			s.hole(a, b, from, at)
		}
		from = 0
	}

	// Holes that touch become one. So a stream that is removed event by event does not leave a key for each.
	for len(positions) > 0 {
		pos := positions[0]
		first, last, value, err := s.entry(pos)
		if err != nil {
			return nil, err
		}
		if from > 0 && first != at {
			flush()
		}
		if from == 0 {
			if from, err = s.holeBefore(b, first); err != nil {
				return nil, err
			}
			at = first
		} else { // the hole that ends before this entry gets longer
			keyspace.SetNumber(a.key, at-1)
			b.Delete(a.key)
		}
		inside, _ := slices.BinarySearch(positions, last+1)
		if format.IsHole(value) {
			at = last + 1
			positions = positions[inside:]
			continue
		}

		// Events that were appended together lie in one pack. Those that stay are written by themselves.
		found, err := s.decode(first, value)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			if e.Position < s.first.Load() { // truncated
				from, at = 0, e.Position+1
				continue
			}
			if len(positions) > 0 && positions[0] == e.Position {
				events, positions = append(events, e.Event), positions[1:]
				if e.ID != "" {
					// In a log that has not always folded ids, an earlier event may have the same.
					known, err := s.getID(a, e.Position/s.window, e.ID)
					if err != nil {
						return nil, err
					}
					if known == e.Position {
						b.Delete(a.idKey)
					}
				}
				if from == 0 {
					from = e.Position
				}
			} else { // it stays, by itself
				flush()
				keyspace.SetNumber(a.key, e.Position)
				a.encodeOne(&e.Event, e.written, s.maxValue)
				b.Set(a.key, a.record)
			}
			at = e.Position + 1
		}
	}

	// A hole may follow that was there before.
	if from > 0 && at <= s.durable.Load() {
		_, last, value, err := s.entry(at)
		if err != nil {
			return nil, err
		}
		if format.IsHole(value) {
			keyspace.SetNumber(a.key, at-1)
			b.Delete(a.key)
			at = last + 1
		}
	}
	flush()
	return events, nil
}

// holeBefore returns where a hole begins that is to reach up to before pos or beyond: at pos, or where one that is
// there already begins, which b then deletes.
func (s *Store) holeBefore(b *holdfast.Batch, pos uint64) (uint64, error) {
	lo, _ := s.keys.Events()
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: s.keys.Event(nil, pos), Reverse: true})
	defer it.Close()
	if it.Next() && format.IsHole(it.Value()) {
		if last, ok := s.keys.Number(it.Key()); ok && last == pos-1 && last >= format.Count(it.Value()) {
			b.Delete(it.Key())
			return pos - format.Count(it.Value()), nil
		}
	}
	return pos, it.Err()
}

// stored is an event and when it was written, 0 if that is its time.
type stored struct {
	Event
	written int64
}

// decode returns the events of a record or pack that begins at pos.
func (s *Store) decode(pos uint64, value []byte) (events []stored, err error) {
	p := page{buf: value, ends: []int{len(value)}}
	for ; p.more(); pos++ {
		if !p.decode(pos) {
			return nil, s.gap(pos, "an event does not read back as it was written")
		}
		p.record.Time = p.time
		events = append(events, stored{p.record.Event(), p.record.written})
	}
	return events, nil
}

// edit begins what changes the log other than at its end, which one goroutine does at a time, and returns its level;
// edited ends it.
func (s *Store) edit(ctx context.Context) (holdfast.Level, error) {
	level, err := s.at(ctx)
	if err != nil {
		return level, err
	}
	if err := cmp.Or(holdfast.CheckContext(ctx), s.turn.Plain()); err != nil {
		return level, err
	}
	select {
	case s.editing <- struct{}{}:
	case <-ctx.Done():
		return level, ctx.Err()
	}
	if err = s.enter(ctx); err != nil {
		<-s.editing
	}
	return level, err
}

func (s *Store) edited() {
	s.life.Leave()
	<-s.editing
}

// allow says in the log's description that it has stamps, and perhaps holes, if that is not there yet.
func (s *Store) allow(holes bool) error {
	if !holes && s.stamps.Load() {
		return nil
	}
	s.aboutMu.Lock()
	allowed := s.about.Stamps && (s.about.Holes || !holes)
	s.aboutMu.Unlock()
	if allowed {
		return nil
	}
	var b holdfast.Batch
	if holes {
		chunks.Notes(&b, s.keys.Meta())
	}
	err := s.describe(s.level, &b, func(m *format.Meta) { m.Stamps, m.Holes = true, m.Holes || holes })
	if err == nil {
		s.stamps.Store(true)
	}
	return err
}
