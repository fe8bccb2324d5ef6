package event

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/fetch"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// A reader names the position it begins at; 0 means the first that is not truncated when it begins to read.
// Reading from a truncated position is ErrTruncated, reading from beyond the position of the next event ErrAhead.
//
// Every position has an event or is known to have none. Another one that is missing is damage, and reading ends with
// ErrCorrupt and a Gap before it.

// ByID returns the position of the event with an id, once readers see it: ids are known as long as [Store.Append] says.
// ErrNotFound: no event is known by it. The event may have been truncated.
func (s *Store) ByID(ctx context.Context, id string) (pos uint64, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.life.Leave()
	if len(id) == 0 || len(id) > s.maxID {
		return 0, s.fail("find", ErrBadEvent, nil, "", "the id has %d bytes, 1 to %d are allowed", len(id), s.maxID)
	}
	a := s.appenders.Get().(*appender)
	defer s.free(a)

	// What has left memory the engine shows; so memory is asked first.
	s.turn.Lock()
	next := s.next.Load()
	pos = s.recent.at[s.folded(id)]
	s.turn.Unlock()
	if pos == 0 {
		if err := s.lookUp(a, []Event{{ID: id}}, next); err != nil {
			return 0, s.met(err)
		}
		pos = a.known[0]
	}
	if pos == 0 || pos < s.oldest(next) {
		return 0, s.fail("find", holdfast.ErrNotFound, nil, "", "no event is known by the id %.80q", id)
	}
	return pos, s.await(ctx, pos)
}

// Read returns the events from position from on, at most limit of them; 0 means all. It
// returns none where the log ends, and none with an error: those before a [Gap] can be had with a
// limit that ends at its Position, or from Events. A read from 0 starts over if a truncation overtakes it.
func (s *Store) Read(ctx context.Context, from uint64, limit int) ([]Event, error) {
	for {
		events, err := s.read(ctx, from, limit)
		if from != 0 || !errors.Is(err, ErrTruncated) {
			return events, err
		}
	}
}

func (s *Store) read(ctx context.Context, from uint64, limit int) ([]Event, error) {
	var events []Event
	var failed error
	typ := ""
	s.walk(ctx, span{from: from, limit: limit}, func(r *Record, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		if events == nil {
			n := s.durable.Load() - r.Position + 1
			if limit > 0 {
				n = min(n, uint64(limit))
			}
			events = make([]Event, 0, min(n, nextPages))
		}
		events = append(events, r.copyAfter(typ))
		typ = events[len(events)-1].Type
		return true
	})
	if failed != nil {
		return nil, failed
	}
	return events, nil
}

// Events yields the events from position from on, up to where the log ended when the loop
// began and at most limit of them; 0 means all. After an error, ctx's among them, the loop
// ends. The body may do anything, even append: no iterator of the engine is open while it
// runs.
func (s *Store) Events(ctx context.Context, from uint64, limit int) iter.Seq2[Event, error] {
	return s.copies(ctx, span{from: from, limit: limit})
}

// Records is Events without the copying: nothing is allocated for an event, and what is
// yielded is valid until the loop goes on.
func (s *Store) Records(ctx context.Context, from uint64, limit int) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) { s.walk(ctx, span{from: from, limit: limit}, yield) }
}

// Follow yields the events from position from on, and then each new one as soon as it has
// reached their levels: in order, none missing, none twice. Use Last()+1 for new ones
// only. The loop ends with an error: ctx's, ErrClosed after Close, ErrTruncated if
// truncation overtakes it, or the failure that keeps new events from arriving, which is
// ErrClosed too if the engine was closed first. Any number of followers may run, and a waiting
// one uses no CPU and no buffers. When the engine is closed or poisoned, followers end at once.
func (s *Store) Follow(ctx context.Context, from uint64) iter.Seq2[Event, error] {
	return s.copies(ctx, span{from: from, live: true})
}

// FollowRecords is Follow without the copying, as Records is Events without it.
func (s *Store) FollowRecords(ctx context.Context, from uint64) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) { s.walk(ctx, span{from: from, live: true}, yield) }
}

// RecordsAt yields the events at these positions, in this order, as Records with a limit of 1 does for each: nothing
// where there is none. It is for another store of this module, whose index names positions that lie apart.
func (s *Store) RecordsAt(ctx context.Context, _ keyspace.Kind, positions []uint64) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) { s.walkAt(ctx, positions, yield) }
}

func (s *Store) copies(ctx context.Context, what span) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		typ := ""
		s.walk(ctx, what, func(r *Record, err error) bool {
			if err != nil {
				return yield(Event{}, err)
			}
			e := r.copyAfter(typ)
			if typ = e.Type; len(typ)+len(e.ID)+len(e.Origin) > keepText {
				typ = "" // a waiting follower would keep all of it in memory
			}
			return yield(e, nil)
		})
	}
}

// span is what a walk goes over.
type span struct {
	from  uint64
	limit int
	live  bool // go on at the end, as a follower
}

// walk calls yield for each event, and for the error that ends the walk early. It copies
// from the engine page by page, so that no iterator is open while yield runs: yield may
// take long, may write, and may close the store.
func (s *Store) walk(ctx context.Context, what span, yield func(*Record, error) bool) {
	pos, end, err := s.bounds(ctx, what)
	if err != nil {
		yield(nil, err)
		return
	}
	left := uint64(what.limit) // events still to be yielded
	if left == 0 {
		left = math.MaxUint64
	}
	p := pages.Get().(*page)
	defer func() {
		if p != nil {
			p.free()
		}
	}()
	begun, some := false, false // something was waited for, or yielded; read
	stoppable := ctx.Done() != nil
	for grow := uint64(firstPage); ; grow = nextPages {
		if pos > end {
			if !what.live {
				return
			}
			p.free() // the next event may be far off
			p = nil
			if err := s.await(ctx, pos); err != nil {
				yield(nil, err)
				return
			}
			end, begun = s.durable.Load(), true
			p = pages.Get().(*page)
		}
		p.some = some
		err := s.copyPage(ctx, p, pos, min(end, pos+min(grow, left)-1))
		if what.from == 0 && !begun && errors.Is(err, ErrTruncated) { // the first event has changed
			if pos, end, err = s.bounds(ctx, what); err == nil {
				continue
			}
		}
		some, begun = true, true
		if err != nil {
			yield(nil, s.met(err))
			return
		}
		// A page goes beyond end only within the pack that end lies in.
		for pos <= end && p.more() {
			if n := p.hole(); n > 0 {
				pos += n
				continue
			}
			ok := p.decode(pos)
			if s.life.Closed() {
				yield(nil, holdfast.ErrClosed)
				return
			}
			if stoppable {
				if err := ctx.Err(); err != nil {
					yield(nil, err)
					return
				}
			}
			if !ok {
				yield(nil, s.met(s.unreadable(ctx, pos)))
				return
			}
			if hidden := s.hidden.Load(); hidden != nil && hidden.at[pos] {
				pos++
				continue
			}
			if !yield(&p.record, nil) {
				return
			}
			pos++
			if left--; left == 0 {
				return
			}
		}
	}
}

// copyPage is fill by one who has not entered.
func (s *Store) copyPage(ctx context.Context, p *page, lo, hi uint64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave() // the engine may panic
	return fetch.Again(func() error { return s.fill(p, lo, hi) })
}

func (s *Store) unreadable(ctx context.Context, pos uint64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	return s.gap(pos, "an event does not read back as it was written")
}

// walkAt is walk for single positions. Events with an entry of their own are copied a page at a time, the others it
// walks to.
func (s *Store) walkAt(ctx context.Context, positions []uint64, yield func(*Record, error) bool) {
	p := pages.Get().(*page)
	defer p.free()
	on := true
	for i := 0; i < len(positions); i++ {
		for n := i + s.fillAt(ctx, p, positions[i:]); i < n && p.decode(positions[i]); i++ {
			if err := s.alive(ctx); err != nil {
				yield(nil, err)
				return
			}
			if s.Shown(positions[i]) && !yield(&p.record, nil) {
				return
			}
		}
		if i == len(positions) {
			return
		}
		// The page was full, or this is for a walk: it finds an event in its pack, and says what is wrong.
		s.walk(ctx, span{from: positions[i], limit: 1}, func(r *Record, err error) bool {
			if err != nil || r.Position == positions[i] {
				on = yield(r, err) && err == nil
			}
			return false
		})
		if !on {
			return
		}
	}
}

// fillAt copies the events at the first of these positions, as far as each has an entry of its own and the page has
// room, and returns how many they are.
func (s *Store) fillAt(ctx context.Context, p *page, positions []uint64) int {
	p.reset()
	if s.enter(ctx) != nil {
		return 0
	}
	defer s.life.Leave()
	first, end := s.first.Load(), s.durable.Load()
	for n, pos := range positions {
		if pos < first || pos > end || len(p.buf) >= pageBytes {
			return n
		}
		p.lo = s.keys.Event(p.lo, pos)
		buf, err := s.eng.Get(p.buf, p.lo)
		if err != nil {
			return n
		}
		if value := buf[len(p.buf):]; format.Count(value) != 1 || format.IsHole(value) {
			return n
		}
		p.buf, p.ends = buf, append(p.ends, len(buf))
	}
	return len(positions)
}

// bounds checks where a walk begins and returns the first position of it and the last, for now.
func (s *Store) bounds(ctx context.Context, what span) (pos, end uint64, err error) {
	if err := s.alive(ctx); err != nil {
		return 0, 0, err
	}
	if what.limit < 0 {
		return 0, 0, s.fail("read", holdfast.ErrBadOption, nil, "use 0 for no limit", "the limit is %d", what.limit)
	}
	pos, end = max(what.from, 1), s.durable.Load()
	if what.from == 0 {
		pos = s.first.Load()
	}
	if next := s.next.Load(); pos > next {
		return 0, 0, s.ahead(pos, next)
	}
	if first := s.first.Load(); pos < first && what.from != 0 {
		return 0, 0, s.truncated(pos, first)
	}
	return pos, end, nil
}

// page is a run of records and packs copied from the engine, and the event among them that the
// walk is at.
type page struct {
	buf  []byte
	ends []int  // of each record or pack in buf
	skip uint64 // events of the first pack that the walk begins behind
	some bool   // the walk has begun; it goes on where a record or pack begins

	at     int    // the next of ends
	from   int    // where it begins in buf
	left   uint64 // events of the present pack still to come
	rest   []byte // their entries
	start  int64  // the time of its first event
	stamp  int64  // when the present record or pack was written, 0 if that is the time of the events
	record Record
	nanos  int64 // the time of record
	time   time.Time

	lo, hi []byte
}

// keepText is how long the text of an event may be of which a follower keeps the type, in case the next has the same.
const keepText = 1 << 10

const (
	firstPage = 128  // events
	nextPages = 1024 // events
	pageBytes = 256 << 10
)

var pages = sync.Pool{New: func() any { return &page{time: time.Unix(0, 0).UTC()} }}

func (p *page) free() {
	if cap(p.buf) <= 4*pageBytes {
		pages.Put(p)
	}
}

func (p *page) reset() {
	p.buf, p.ends, p.skip, p.at, p.from, p.left = p.buf[:0], p.ends[:0], 0, 0, 0, 0
}

// more reports whether there is another event in the page.
func (p *page) more() bool { return p.left > 0 || p.at < len(p.ends) }

// hole passes over the positions without events that the rest of the page begins with, and returns how many there are:
// those of one hole, or none.
func (p *page) hole() (n uint64) {
	if p.left > 0 {
		return 0
	}
	value := p.buf[p.from:p.ends[p.at]]
	if !format.IsHole(value) {
		return 0
	}
	n = format.Count(value) - p.skip
	p.from, p.skip = p.ends[p.at], 0
	p.at++
	return n
}

// decode sets p.record to the next event of the page, which is the one at pos, and reports whether
// it could. After a false the page is of no use.
func (p *page) decode(pos uint64) bool {
	var (
		nanos                     int64
		typ, id, origin, metadata int
		fields                    []byte
	)
	if p.left == 0 {
		p.stamp, fields = format.SplitStamp(p.buf[p.from:p.ends[p.at]])
		p.from = p.ends[p.at]
		p.at++
		if count := format.Count(fields); count > 1 && !p.open(fields, count) {
			return false
		}
	}
	if p.left == 0 {
		var ok bool
		if nanos, typ, id, origin, metadata, fields, ok = format.SplitRecord(fields); !ok {
			return false
		}
	} else {
		head, after, t, i, o, m, data := format.SplitEntry(p.rest)
		if head == 0 {
			return false
		}
		nanos, typ, id, origin, metadata = p.start+after, t, i, o, m
		fields, p.rest = p.rest[head:head+data], p.rest[head+data:]
		if p.left--; p.left == 0 && len(p.rest) > 0 {
			return false
		}
	}
	if nanos != p.nanos { // the events of one append often have one time
		p.nanos, p.time = nanos, time.Unix(0, nanos).UTC()
	}
	// All of the record is written, because the caller may have changed it.
	r := &p.record
	r.Position, r.Time, r.written = pos, p.time, p.stamp
	r.Type, r.Data = fields[:typ:typ], fields[metadata:len(fields):len(fields)]
	if metadata == typ {
		r.ID, r.Origin, r.Metadata = nil, nil, nil
	} else {
		r.ID, r.Origin, r.Metadata = fields[typ:id:id], fields[id:origin:origin], fields[origin:metadata:metadata]
	}
	return true
}

// open begins with a pack, behind what the walk skips.
func (p *page) open(value []byte, count uint64) (ok bool) {
	p.start, p.rest, ok = format.SplitPack(value)
	for p.left = count; ok && p.skip > 0; p.skip-- {
		head, _, _, _, _, _, data := format.SplitEntry(p.rest)
		ok = head > 0
		p.rest = p.rest[head+data:]
		p.left--
	}
	return ok
}

// fill copies the events from pos on, up to end or until the page is full, but at least one; packs
// are copied whole.
func (s *Store) fill(p *page, pos, end uint64) error {
	if first := s.first.Load(); pos < first {
		return s.truncated(pos, first)
	}
	p.reset()
	if pos == end && !p.some { // one event, which most engines find faster than they begin a scan
		p.lo = s.keys.Event(p.lo, pos)
		value, err := s.eng.Get(p.buf, p.lo)
		if err == nil {
			p.buf, p.ends, p.skip, p.some = value, append(p.ends, len(value)), format.Count(value)-1, true
			return nil
		}
		if !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}
	}
	// A pack has the key of its last event. The one that end lies in may have a key behind it, and
	// how far is guessed: a wrong guess costs another scan, now or with the next page. Only a hole goes further.
	for _, ahead := range [...]uint64{s.packed.Load(), format.MaxPack, math.MaxUint64 - end} {
		if err := s.scan(p, pos, end, ahead); err != nil || len(p.ends) > 0 {
			return err
		}
	}
	err := s.gap(pos, "events are missing")
	// Truncation moves first before it removes anything.
	if first := s.first.Load(); pos < first {
		return s.truncated(pos, first)
	}
	return err
}

// gap is the error for an event whose entry is missing or cannot be read.
func (s *Store) gap(pos uint64, what string) error {
	next, err := s.behind(pos)
	if err != nil {
		return err
	}
	remedy := fmt.Sprintf("check the engine's files, restore a backup, or do without these events and go on from "+
		"position %d", next)
	return s.fail("read", holdfast.ErrCorrupt, &Gap{pos, next}, remedy, "%s", what)
}

// behind returns the first position behind pos that an entry begins at, the end of the log if there is none.
func (s *Store) behind(pos uint64) (uint64, error) {
	end := s.durable.Load() + 1
	_, hi := s.keys.Events()
	it := s.eng.Scan(holdfast.Range{Lo: s.keys.Event(nil, pos), Hi: hi})
	defer it.Close()
	next := pos + 1
	for next < end && it.Next() {
		last, ok := s.keys.Number(it.Key())
		if !ok {
			continue
		}
		if n := format.Count(it.Value()); last >= pos+n {
			return min(max(next, last-n+1), end), nil
		}
		next = last + 1 // pos is in this entry
	}
	return end, it.Err()
}

// scan is fill as far as the keys below end+ahead go. It copies nothing if there is a gap at pos; one
// further on shows when the next page begins with it.
func (s *Store) scan(p *page, pos, end, ahead uint64) error {
	p.lo, p.hi = s.keys.Event(p.lo, pos), s.keys.Event(p.hi, end+ahead)
	it := s.eng.Scan(holdfast.Range{Lo: p.lo, Hi: p.hi})
	defer it.Close()
	buf, ends, n := p.buf, p.ends, uint64(0)
	for pos <= end && len(buf) < pageBytes && it.Next() {
		last, ok := s.keys.Number(it.Key())
		value := it.Value()
		n = format.Count(value)
		if first := last - n + 1; !ok || first != pos {
			if !ok || len(ends) > 0 || last < n || first > pos || last < pos || p.some && !format.IsHole(value) {
				break
			}
			p.skip = pos - first // the walk begins within a pack, or a hole has grown
		}
		buf, ends = append(buf, value...), append(ends, len(buf)+len(value))
		pos = last + 1
	}
	p.buf, p.ends = buf, ends
	if len(ends) > 0 {
		p.some = true
		if n != s.packed.Load() && n <= format.MaxPack {
			s.packed.Store(n)
		}
	}
	return it.Err()
}

func (s *Store) truncated(pos, first uint64) error {
	return s.fail("read", ErrTruncated, &Truncated{pos, first}, "begin at the first position, or at a snapshot", "")
}
