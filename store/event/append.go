package event

import (
	"context"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// Append adds the events at the end of the log, atomically, and returns when they have
// reached the store's level and readers see them.
//
// ctx is asked before the events take their place and not after: what has its place cannot
// be taken back, so Append then waits for the outcome. A nil error means that the events
// are safe. An error before they took their place (ErrConflict, ErrPartialRepeat,
// ErrBadEvent, ErrTooLarge, ErrClosed, ctx's) means that nothing happened; ErrPoisoned
// means that the outcome is unknown until the log is opened again. Append again with the
// same ids to find out.
func (s *Store) Append(ctx context.Context, events ...Event) (Result, error) {
	p, err := s.place(ctx, events, 0, false, false)
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// AppendAfter is Append if last is the last position of the log at that moment, 0 for a
// log that never had an event, and ErrConflict otherwise. Appends that have their place but
// are not durable yet count. Events with known ids are repeats whatever last is.
func (s *Store) AppendAfter(ctx context.Context, last uint64, events ...Event) (Result, error) {
	p, err := s.place(ctx, events, last, true, false)
	if err != nil {
		return Result{}, err
	}
	return p.Wait()
}

// Submit is Append without waiting: it gives the events their place and returns. Readers
// see them when Wait returns, or earlier if something later is waited for. One goroutine
// can so keep many appends under way. When thousands of events with ids are, Submit waits
// for them first.
func (s *Store) Submit(ctx context.Context, events ...Event) (Pending, error) {
	return s.place(ctx, events, 0, false, true)
}

// SubmitAfter is Submit with the condition of AppendAfter.
func (s *Store) SubmitAfter(ctx context.Context, last uint64, events ...Event) (Pending, error) {
	return s.place(ctx, events, last, true, true)
}

// Pending is an append that has its place. It may be copied, waited for many times, or
// dropped. The zero Pending is settled.
type Pending struct {
	s       *Store
	receipt holdfast.Receipt
	settles uint64 // readers may see everything up to here once the receipt is in
	result  Result
}

// Result is where the events will be if Wait succeeds.
func (p Pending) Result() Result { return p.result }

// Wait returns when the events, and all before them, have reached the store's level and
// readers see them.
func (p Pending) Wait() (Result, error) {
	if p.s == nil {
		return p.result, nil
	}
	if err := p.s.settled(p.settles, p.receipt.Wait()); err != nil {
		return Result{}, err
	}
	return p.result, nil
}

// minSeconds and maxSeconds are the whole seconds since 1970 whose nanoseconds fit in an
// int64.
const (
	minSeconds = -1 << 63 / 1_000_000_000
	maxSeconds = (1<<63-1)/1_000_000_000 - 1
)

// appender is the memory that building one append needs.
type appender struct {
	batch  holdfast.Batch
	key    []byte
	record []byte
	now    int64               // stands in for the zero time, if an event has it
	known  []uint64            // positions of events with known ids, 0 for the others
	ids    map[string]struct{} // to find an id twice
}

var appenders = sync.Pool{New: func() any { return new(appender) }}

// keepSize is the largest batch in bytes whose memory is kept for the next append.
const keepSize = 1 << 20

func (a *appender) free() {
	if a.batch.Size() > keepSize {
		return
	}
	a.batch.Reset()
	clear(a.ids)
	appenders.Put(a)
}

// place gives the events their place in the log. adrift says that the caller may never
// wait for them.
func (s *Store) place(ctx context.Context, events []Event, last uint64, conditional, adrift bool) (Pending, error) {
	if err := ctx.Err(); err != nil {
		return Pending{}, err
	}
	a := appenders.Get().(*appender)
	defer a.free()
	if err := s.check(a, events); err != nil {
		return Pending{}, err
	}

	// Everything that takes time is done before the lock is taken, for the place the
	// events will most likely get. If another append comes in between, the batch is built
	// again under the lock.
	guess := s.next.Load()
	if err := s.build(a, events, guess); err != nil {
		return Pending{}, err
	}
	named := events[0].ID != ""
	seen := s.durable.Load()
	if named {
		if err := s.lookUp(a, events, guess); err != nil {
			return Pending{}, err
		}
	}

	s.mu.Lock()
	p, err := s.apply(a, events, last, conditional, guess, seen)
	if err == nil && adrift && !p.result.Repeated {
		s.adrift = p.result.Last
	}
	crowded := s.recent.crowded()
	s.mu.Unlock()
	if err != nil {
		return Pending{}, err
	}
	if adrift && s.arrived.awaited() {
		_ = s.settle() // the receipt tells
	}
	if crowded {
		_, _ = p.Wait() // the receipt tells
	}
	if named && s.sweeper.due(p.result.Last, s.window) {
		s.sweep(p.result.Last, len(events))
	}
	return p, nil
}

// apply is called with mu held. seen is how far readers saw when the ids were looked up.
func (s *Store) apply(a *appender, events []Event, last uint64, conditional bool, guess, seen uint64) (Pending, error) {
	if err := s.state(); err != nil {
		return Pending{}, err
	}
	next := s.next.Load()
	if events[0].ID != "" {
		p, found, err := s.repeated(a, events, next, seen)
		if found || err != nil {
			return p, err
		}
	}
	if conditional && next-1 != last {
		return Pending{}, s.fail("append", ErrConflict, &Conflict{last, next - 1}, "", "nothing was appended")
	}
	if next != guess {
		if err := s.build(a, events, next); err != nil {
			return Pending{}, err
		}
	}
	receipt, err := s.eng.Apply(&a.batch, s.level)
	if err != nil {
		return Pending{}, err
	}
	end := next + uint64(len(events))
	s.next.Store(end)
	s.receipt = receipt
	if events[0].ID != "" {
		s.recent.add(events, next, s.durable.Load())
	}
	return Pending{s, receipt, end - 1, Result{First: next, Last: end - 1}}, nil
}

// check finds what is wrong with the events themselves.
func (s *Store) check(a *appender, events []Event) error {
	if len(events) == 0 {
		return s.fail("append", ErrBadEvent, nil, "append one event or more", "no events are given")
	}
	total := int64(0)
	a.now = 0
	for i := range events {
		e := &events[i]
		if len(e.ID) > s.maxID {
			return s.fail("append", ErrBadEvent, nil, "", "the id of event %d has %d bytes, the limit is %d", i, len(e.ID), s.maxID)
		}
		if (e.ID == "") != (events[0].ID == "") {
			return s.fail("append", ErrBadEvent, nil, "give all events of an append an id, or none", "event %d is the first of the %d that differs in having an id", i, len(events))
		}
		if e.Time.IsZero() {
			if a.now == 0 {
				a.now = time.Now().UnixNano()
			}
		} else if sec := e.Time.Unix(); sec < minSeconds || sec > maxSeconds {
			return s.fail("append", ErrBadEvent, nil, "use a time between the years 1678 and 2262", "the time of event %d is %v", i, e.Time)
		}
		size := format.RecordSize(len(e.Type), len(e.ID), len(e.Origin), len(e.Metadata), len(e.Data))
		if size > s.maxValue {
			return s.fail("append", holdfast.ErrTooLarge, nil, "", "event %d takes %d bytes, the limit is %d", i, size, s.maxValue)
		}
		if total += size; total > s.maxBatch {
			return s.tooLarge(len(events))
		}
	}
	if len(events) > 1 && events[0].ID != "" {
		if a.ids == nil {
			a.ids = make(map[string]struct{}, len(events))
		}
		for i := range events {
			if a.ids[events[i].ID] = struct{}{}; len(a.ids) == i {
				return s.fail("append", ErrBadEvent, nil, "", "the id %q of event %d is given twice", events[i].ID, i)
			}
		}
	}
	return nil
}

func (s *Store) tooLarge(n int) error {
	return s.fail("append", holdfast.ErrTooLarge, nil, "append fewer at a time", "%d events take more than the %d bytes of a batch", n, s.maxBatch)
}

// build makes the batch of the events at positions from first on.
func (s *Store) build(a *appender, events []Event, first uint64) error {
	b := &a.batch
	b.Reset()
	for i := range events {
		e, pos := &events[i], first+uint64(i)
		at := a.now
		if !e.Time.IsZero() {
			at = e.Time.UnixNano()
		}
		a.record = format.AppendRecord(a.record[:0], at, e.Type, e.ID, e.Origin, e.Metadata, e.Data)
		a.key = s.keys.Event(a.key, pos)
		b.Set(a.key, a.record)
		if e.ID != "" {
			a.key = s.keys.ID(a.key, pos/s.window, e.ID)
			a.record = format.AppendPosition(a.record[:0], pos)
			b.Set(a.key, a.record)
		}
	}
	if err := b.Err(); err != nil {
		return err
	}
	if int64(b.Size()) > s.maxBatch {
		return s.tooLarge(len(events))
	}
	return nil
}
