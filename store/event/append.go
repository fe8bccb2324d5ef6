package event

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// Append adds the events at the end of the log, atomically, and returns when they have reached the store's level, or
// the one that ctx names ([holdfast.WithLevel]), and readers see them.
//
// If the events have ids and these are known, in this order, from one append, it is a repeat, and returns the first
// result, unless type or data of one is another than the first time: then it is ErrIDTaken. Time, Origin
// and Metadata, which often tell of the try, do not count. An id is known for [Options].IDWindow positions at least,
// and twice as many at most; that of a truncated event too, whose content is not compared any more, but not that of a
// removed one.
//
// ctx is checked until the events have their position in the log, and not after: they cannot
// be taken back then, so Append waits for the outcome. A nil error means that the events
// are safe. An error before that (ErrConflict, ErrPartialRepeat, ErrIDTaken, ErrBadEvent, ErrTooLarge,
// ErrClosed, ErrLevel, ctx's) means that nothing was appended. ErrPoisoned means that the outcome is
// unknown until the log is opened again: append again with the same ids to find out.
func (s *Store) Append(ctx context.Context, events ...Event) (Result, error) {
	var p Pending
	if err := s.place(ctx, &p, terms{}, events); err != nil {
		return Result{}, err
	}
	return p.wait()
}

// AppendAfter is Append if last is the last position of the log at that moment, 0 for a
// log that never had an event. Otherwise it returns ErrConflict. Appends that have their
// position but are not durable yet count. Events with known ids are repeats whatever last is.
//
// ErrConflict is returned once readers see the conflicting events, all up to [Conflict].Actual.
// So a writer that reads them, decides again and retries conflicts at most once with each append
// of another. If ctx ends before that, or the log fails or is closed, the error is that one;
// nothing was appended then either.
func (s *Store) AppendAfter(ctx context.Context, last uint64, events ...Event) (Result, error) {
	var p Pending
	if err := s.place(ctx, &p, terms{conditional: true, last: last}, events); err != nil {
		return Result{}, s.caughtUp(ctx, err)
	}
	return p.wait()
}

// caughtUp returns err; if it is a conflict, it first waits until readers see the conflicting events.
func (s *Store) caughtUp(ctx context.Context, err error) error {
	var c *Conflict
	if errors.As(err, &c) {
		if err := s.await(ctx, c.Actual); err != nil {
			return err
		}
	}
	return err
}

// Submit is Append without waiting: it gives the events their positions and returns. Readers
// see them when Wait returns, or earlier if a later append is waited for. So one goroutine
// can keep many appends in flight. When thousands of events with ids are in flight, Submit
// waits for them first, or until ctx ends.
func (s *Store) Submit(ctx context.Context, events ...Event) (Pending, error) {
	var p Pending
	err := s.place(ctx, &p, terms{unawaited: true}, events)
	return p, err
}

// SubmitAfter is Submit with the condition of AppendAfter. It does not wait after a conflict
// either: readers may not see the conflicting events yet. Follow from Last()+1, or AppendAfter,
// waits for them; retrying at once with the same events conflicts again.
func (s *Store) SubmitAfter(ctx context.Context, last uint64, events ...Event) (Pending, error) {
	var p Pending
	err := s.place(ctx, &p, terms{conditional: true, last: last, unawaited: true}, events)
	return p, err
}

// Pending is an append that has its positions. It may be copied, waited for many times, or
// dropped. The zero Pending is settled.
type Pending struct {
	s       *Store
	tail    receipts.Tail // of the append and of what was applied before it
	settles uint64        // readers may see everything up to here once that has been waited for
	result  Result
	given   []Event // of a repeat, to be compared with those that are there
}

// Result is where the events will be if Wait succeeds. Whether a repeat has the same content, Wait tells.
func (p Pending) Result() Result { return p.result }

// Wait returns when the events, and all before them, have reached the levels that they named and
// readers see them.
func (p Pending) Wait() (Result, error) { return p.wait() }

func (p *Pending) wait() (Result, error) {
	if p.s == nil {
		return p.result, nil
	}
	if err := p.settle(); err != nil {
		return Result{}, err
	}
	if p.given != nil {
		if err := p.s.compare(p.result, p.given); err != nil {
			return Result{}, err
		}
	}
	return p.result, nil
}

// settle is Wait without a result.
func (p *Pending) settle() error { return p.s.settled(p.settles, p.tail.Wait()) }

// minSeconds and maxSeconds are the whole seconds since 1970 whose nanoseconds fit in an
// int64.
const (
	minSeconds = -1 << 63 / 1_000_000_000
	maxSeconds = (1<<63-1)/1_000_000_000 - 1
)

// appender is the memory that building one append needs.
type appender struct {
	batch  holdfast.Batch
	own    holdfast.Batch // what another store adds
	key    []byte         // of an event; only the position in it changes
	idKey  []byte
	record []byte
	now    int64               // when this append began; replaces the zero time of an event
	known  []uint64            // positions of events with known ids, 0 for the others
	fresh  bool                // that is so because they are fresh
	seen   uint64              // how far readers saw before an import looked up its ids
	ids    map[string]struct{} // to find an id twice
}

// keepSize is the largest batch in bytes whose memory is kept for the next append.
const keepSize = 1 << 20

func (s *Store) free(a *appender) {
	if a.batch.Size()+a.own.Size() > keepSize {
		return
	}
	if len(a.ids) > 0 {
		clear(a.ids)
	}
	s.appenders.Put(a)
}

// terms are how events are appended.
type terms struct {
	conditional bool   // only if
	last        uint64 // is the log's last position
	unawaited   bool   // the caller may never wait for them
	level       holdfast.Level

	named bool // they have ids
	known bool // which may be known
}

// place gives the events their positions in the log and sets p, unless it fails.
func (s *Store) place(ctx context.Context, p *Pending, how terms, events []Event) error {
	a := s.appenders.Get().(*appender)
	defer s.free(a)
	was, err := s.prepare(ctx, a, &how, events)
	if err == nil {
		err = s.build(a, events, was.next)
	}
	if err == nil {
		err = s.apply(ctx, p, a, events, &how, was)
	}
	if err != nil {
		return s.met(err)
	}
	if how.unawaited || how.named {
		s.placed(how.unawaited, how.named, p.result.Last, len(events))
	}
	return nil
}

// prepare does what takes time before it is the turn of events that are appended, for the positions that they will
// most likely get.
func (s *Store) prepare(ctx context.Context, a *appender, how *terms, events []Event) (was glance, err error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return was, err
	}
	if how.level, err = s.at(ctx); err != nil {
		return was, err
	}
	if err := s.check(a, how, events); err != nil {
		return was, err
	}
	if crowd := s.crowd.Load(); how.named && how.unawaited && crowd > s.durable.Load() {
		if err := s.await(ctx, crowd); err != nil {
			return was, err
		}
	}
	if !how.known && !s.late.Load() && !timed(events) {
		return s.glance(nil), nil
	}
	if err := s.enter(ctx); err != nil {
		return was, err
	}
	defer s.life.Leave()
	return s.look(a, how, events, nil)
}

// glance is what a goroutine saw of the log before it got the lock. An id that was not visible when it was looked up,
// later, was either above seen, and may still be in memory, or has come with an edit.
type glance struct {
	edits uint64 // imports and removals
	seen  uint64 // how far readers saw
	next  uint64 // the position of the next event
}

// glance returns what is seen now, in a part of a transaction if there is one.
func (s *Store) glance(p *Part) glance {
	// seen comes before next: an id that was made durable before seen then lies in a generation that is looked into.
	was := glance{edits: s.edits.Load(), seen: s.durable.Load()}
	was.next = s.next.Load()
	if p != nil {
		was.next = p.next
	}
	return was
}

// look makes the log ready for events, and looks up their ids if these may be known. It is called by those who have
// entered.
func (s *Store) look(a *appender, how *terms, events []Event, p *Part) (was glance, err error) {
	err = s.begun()
	if err == nil && timed(events) {
		err = s.allow(false)
	}
	if was = s.glance(p); err == nil && how.known {
		err = s.know(a, events, was.next)
	}
	return was, err
}

// decide finds out, now that it is the events' turn, whether they are a repeat, and then sets p; if not, it checks the
// terms. next is the position that the first one gets. It is called with the lock.
func (s *Store) decide(p *Pending, a *appender, events []Event, how *terms, next uint64, was glance) (again bool,
	err error) {
	if how.known {
		if again, err = s.repeated(p, a, events, how.level, next, was); again || err != nil {
			return again, err
		}
	}
	if how.conditional && next-1 != how.last {
		return false, s.fail("append", ErrConflict, &Conflict{how.last, next - 1}, "", "nothing was appended")
	}
	return false, nil
}

// apply takes the events' turn for a moment. If another append has come first, the batch is built again.
func (s *Store) apply(ctx context.Context, p *Pending, a *appender, events []Event, how *terms, was glance) error {
	if err := s.turn.Take(ctx); err != nil {
		return err
	}
	defer s.turn.Give() // the engine may panic
	if err := s.state(); err != nil {
		return err
	}
	next := s.next.Load()
	if how.known || how.conditional {
		if again, err := s.decide(p, a, events, how, next, was); again || err != nil {
			return err
		}
	}
	if next != was.next {
		if err := s.build(a, events, next); err != nil {
			return err
		}
	}
	end := next + uint64(len(events))
	if err := s.commit(&a.batch, how.level, end); err != nil {
		return err
	}
	p.s, p.tail, p.settles = s, s.tail, end-1
	p.result.First, p.result.Last = next, end-1
	if how.named {
		s.remember(events, next)
	}
	if how.unawaited {
		s.unawaited = end - 1
	}
	return nil
}

// remember keeps the ids of events that have their places, from first on. It is called with the lock.
func (s *Store) remember(events []Event, first uint64) {
	s.recent.add(events, first, s.durable.Load())
	s.crowd.Store(s.recent.crowd())
}

// placed does what is due after n events up to last have their places, with ids or not; nobody may wait for them.
func (s *Store) placed(unawaited, named bool, last uint64, n int) {
	if unawaited && s.arrived.awaited() {
		_ = s.settle() // the receipt tells
	}
	if named && last/s.window >= s.expiry.due.Load() {
		s.expire(last, n)
	}
}

// check finds what is wrong with the events themselves, and sets what how says of their ids.
func (s *Store) check(a *appender, how *terms, events []Event) error {
	if len(events) == 0 {
		return s.fail("append", ErrBadEvent, nil, "append one event or more", "no events are given")
	}
	how.named = events[0].ID != ""
	for i := range events {
		how.known = how.known || how.named && !events[i].NewID
		if (events[i].ID != "") != how.named {
			return s.fail("append", ErrBadEvent, nil, "give all events of an append an id, or none",
				"event %d is the first of the %d that differs in having an id", i, len(events))
		}
	}
	if how.named && uint64(len(events)) > s.window {
		// The first ids would be forgotten before the last are remembered, so a repeat would not be recognised.
		return s.fail("append", holdfast.ErrTooLarge, nil,
			fmt.Sprintf("append at most %d at a time, or make the log with a larger IDWindow", s.window),
			"%d events with ids, and the log remembers those of %d positions", len(events), s.window)
	}
	return s.checkEach(a, events)
}

// checkEach finds what is wrong with any of the events, whatever is done with them.
func (s *Store) checkEach(a *appender, events []Event) error {
	total := int64(0)
	a.now = time.Now().UnixNano()
	for i := range events {
		e := &events[i]
		if len(e.ID) > s.maxID {
			return s.fail("append", ErrBadEvent, nil, "", "the id of event %d has %d bytes, the limit is %d", i, len(e.ID),
				s.maxID)
		}
		if len(e.Type) > MaxTypeSize || len(e.Origin) > MaxTypeSize {
			return s.fail("append", ErrBadEvent, nil, "put it into the metadata",
				"the type of event %d has %d bytes, its origin %d, the limit is %d", i, len(e.Type), len(e.Origin), MaxTypeSize)
		}
		if sec := e.Time.Unix(); !e.Time.IsZero() && (sec < minSeconds || sec > maxSeconds) {
			return s.fail("append", ErrBadEvent, nil, "use a time between the years 1678 and 2262",
				"the time of event %d is %v", i, e.Time)
		}
		size := format.RecordSize(len(e.Type), len(e.ID), len(e.Origin), len(e.Metadata), len(e.Data))
		if size > s.maxValue {
			return s.fail("append", holdfast.ErrTooLarge, nil, "", "event %d takes %d bytes, the limit is %d", i, size,
				s.maxValue)
		}
		if total += size; total > s.maxBatch {
			return s.tooLarge(len(events))
		}
	}
	if len(events) == 1 {
		return nil
	}
	clear(a.ids)
	for i := range events {
		id := s.folded(events[i].ID)
		if id == "" {
			continue
		}
		if a.ids == nil {
			a.ids = make(map[string]struct{}, len(events))
		}
		if _, twice := a.ids[id]; twice {
			return s.fail("append", ErrBadEvent, nil, "", "the id %q of event %d is given twice", id, i)
		}
		a.ids[id] = struct{}{}
	}
	return nil
}

func (s *Store) tooLarge(n int) error {
	return s.fail("append", holdfast.ErrTooLarge, nil, "append fewer at a time",
		"%d events take more than the %d bytes of a batch", n, s.maxBatch)
}

// Small events of one append share one entry of the engine, a pack: an entry costs the engine, in
// writing and reading, many times what an event costs the store. Reading a single event reads its
// whole pack, so packs are not large.
const (
	packEvents = 128
	packBytes  = 8 << 10
	// packEntry is what an entry of such a pack takes at most without its fields: the time, and five
	// lengths below 2^14.
	packEntry = 10 + 5*2
)

// build makes the batch of the events at positions from first on.
func (s *Store) build(a *appender, events []Event, first uint64) error {
	b := &a.batch
	b.Reset()
	for rest := events; len(rest) > 0; {
		n := s.fit(rest)
		a.encode(rest[:n], s.maxValue)
		keyspace.SetNumber(a.key, first+uint64(n)-1)
		b.Set(a.key, a.record)
		if rest[0].ID != "" {
			s.buildIDs(a, rest[:n], first)
		}
		rest, first = rest[n:], first+uint64(n)
	}
	if err := b.Err(); err != nil {
		return err
	}
	if int64(b.Size()) > s.maxBatch {
		return s.tooLarge(len(events))
	}
	return nil
}

func (s *Store) buildIDs(a *appender, events []Event, first uint64) {
	for i := range events {
		pos := first + uint64(i)
		a.idKey = s.keys.ID(a.idKey, pos/s.window, s.folded(events[i].ID))
		a.record = format.AppendPosition(a.record[:0], pos)
		a.batch.Set(a.idKey, a.record)
	}
}

// fit returns how many of the first events share a pack; 1 means that the first has a record of its own.
func (s *Store) fit(events []Event) int {
	if len(events) == 1 {
		return 1
	}
	size, stamped := format.PackHead, false
	for i := range min(len(events), packEvents) {
		e := &events[i]
		if !stamped && !e.Time.IsZero() {
			size, stamped = size+format.StampSize, true
		}
		size += packEntry + len(e.Type) + len(e.ID) + len(e.Origin) + len(e.Metadata) + len(e.Data)
		if size > s.packBytes {
			return max(i, 1)
		}
	}
	return min(len(events), packEvents)
}

// encode sets a.record to the value that holds the events.
func (a *appender) encode(events []Event, maxValue int64) {
	e := &events[0]
	start := a.nanos(e)
	if len(events) == 1 {
		a.encodeOne(e, a.now, maxValue)
		return
	}
	a.record = a.record[:0]
	if timed(events) {
		a.record = format.AppendStamp(a.record, a.now)
	}
	begin := len(a.record)
	pack := format.BeginPack(a.record, start)
	for i := range events {
		e := &events[i]
		pack = format.AppendEntry(pack, a.nanos(e)-start, e.Type, e.ID, e.Origin, e.Metadata, e.Data)
	}
	format.EndPack(pack[begin:], len(events))
	a.record = pack
}

// encodeOne sets a.record to the record of an event that was written at some time; 0 means at its own. One that has no
// room for that time, because it is as large as an event may be, goes without.
func (a *appender) encodeOne(e *Event, written, maxValue int64) {
	a.record = a.record[:0]
	if !e.Time.IsZero() && written != 0 && format.StampSize+format.RecordSize(len(e.Type), len(e.ID), len(e.Origin),
		len(e.Metadata), len(e.Data)) <= maxValue {
		a.record = format.AppendStamp(a.record, written)
	}
	a.record = format.AppendRecord(a.record, a.nanos(e), e.Type, e.ID, e.Origin, e.Metadata, e.Data)
}

// timed reports whether the time of one of the events is given.
func timed(events []Event) bool {
	for i := range events {
		if !events[i].Time.IsZero() {
			return true
		}
	}
	return false
}

// nanos is the time of e in nanoseconds since 1970.
func (a *appender) nanos(e *Event) int64 {
	if e.Time.IsZero() {
		return a.now
	}
	return e.Time.UnixNano()
}
