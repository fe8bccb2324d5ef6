package event

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// A reader names the position it begins at; 0 means the first that is still there.
// Reading from one that was truncated is ErrTruncated, from one that no append has taken
// or is next to take ErrAhead.

// Read returns the events from position from on, at most limit of them; 0 means all. It
// returns none where the log ends.
func (s *Store) Read(ctx context.Context, from uint64, limit int) ([]Event, error) {
	var events []Event
	var failed error
	s.walk(ctx, span{from: from, limit: limit}, func(r *Record, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		events = append(events, r.Event())
		return true
	})
	if failed != nil {
		return nil, failed
	}
	return events, nil
}

// Events yields the events from position from on, up to where the log ended when the loop
// began and at most limit of them; 0 means all. After an error, ctx's among them, the loop
// ends. The body may do anything, even append: nothing in the engine is kept open while it
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
// reached the store's level: in order, none missing, none twice. Use Last()+1 for new ones
// only. The loop ends with an error: ctx's, ErrClosed after Close, ErrTruncated if
// truncation overtakes it, or the failure that keeps new events from arriving. Any number
// of followers may run. A waiting one costs nothing: it does not poll.
func (s *Store) Follow(ctx context.Context, from uint64) iter.Seq2[Event, error] {
	return s.copies(ctx, span{from: from, live: true})
}

// FollowRecords is to Follow what Records is to Events.
func (s *Store) FollowRecords(ctx context.Context, from uint64) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) { s.walk(ctx, span{from: from, live: true}, yield) }
}

func (s *Store) copies(ctx context.Context, what span) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		s.walk(ctx, what, func(r *Record, err error) bool {
			if err != nil {
				return yield(Event{}, err)
			}
			return yield(r.Event(), nil)
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
// take long, and may write.
func (s *Store) walk(ctx context.Context, what span, yield func(*Record, error) bool) {
	err := s.alive(ctx)
	if err == nil && what.limit < 0 {
		err = s.fail("read", holdfast.ErrBadOption, nil, "use 0 for no limit", "the limit is %d", what.limit)
	}
	pos, end := max(what.from, 1), s.durable.Load()
	if what.from == 0 {
		pos = s.first.Load()
	}
	if next := s.next.Load(); err == nil && pos > next {
		err = s.fail("read", ErrAhead, nil, "", "position %d, the next one is %d", pos, next)
	}
	if first := s.first.Load(); err == nil && pos < first {
		err = s.truncated(pos, first)
	}
	if err != nil {
		yield(nil, err)
		return
	}
	if n := uint64(what.limit); n > 0 && end >= pos && end-pos >= n {
		end = pos + n - 1
	}

	p := pages.Get().(*page)
	defer p.free()
	for p.grow = firstPage; ; p.grow = nextPages {
		if pos > end {
			if !what.live {
				return
			}
			if err := s.await(ctx, pos); err != nil {
				yield(nil, err)
				return
			}
			end = s.durable.Load()
		}
		err := s.enter(ctx)
		if err == nil {
			err = s.fill(p, pos, end)
			s.leave()
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for i := range p.ends {
			err := s.alive(ctx)
			if err == nil && !p.decode(i, pos) {
				err = s.fail("read", holdfast.ErrCorrupt, nil, "check the engine's files, or restore a backup", "the event at position %d is not one", pos)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(&p.record, nil) {
				return
			}
			pos++
		}
	}
}

// page is a run of records copied from the engine.
type page struct {
	buf    []byte
	ends   []int // of each record in buf
	lo, hi []byte
	grow   int
	record Record
}

const (
	firstPage = 128  // records
	nextPages = 1024 // records
	pageBytes = 256 << 10
)

var pages = sync.Pool{New: func() any { return new(page) }}

func (p *page) free() {
	if cap(p.buf) <= 4*pageBytes {
		pages.Put(p)
	}
}

// decode sets p.record to the record with that index, and reports whether it could.
func (p *page) decode(i int, pos uint64) bool {
	start := 0
	if i > 0 {
		start = p.ends[i-1]
	}
	nanos, typ, id, origin, metadata, fields, ok := format.SplitRecord(p.buf[start:p.ends[i]:p.ends[i]])
	if !ok {
		return false
	}
	r := &p.record
	r.Position, r.Time = pos, time.Unix(0, nanos).UTC()
	r.Type, r.ID, r.Origin = fields[:typ:typ], fields[typ:id:id], fields[id:origin:origin]
	r.Metadata, r.Data = fields[origin:metadata:metadata], fields[metadata:]
	return true
}

// fill copies the records from pos on, up to end or until the page is full, but at least
// one.
func (s *Store) fill(p *page, pos, end uint64) error {
	if first := s.first.Load(); pos < first {
		return s.truncated(pos, first)
	}
	end = min(end, pos+uint64(p.grow)-1)
	p.buf, p.ends = p.buf[:0], p.ends[:0]
	p.lo, p.hi = s.keys.Event(p.lo, pos), s.keys.Event(p.hi, end+1)
	it := s.eng.Scan(holdfast.Range{Lo: p.lo, Hi: p.hi})
	defer it.Close()
	for ; pos <= end && len(p.buf) < pageBytes && it.Next(); pos++ {
		if at, ok := s.keys.Position(it.Key()); !ok || at != pos {
			break
		}
		p.buf = append(p.buf, it.Value()...)
		p.ends = append(p.ends, len(p.buf))
	}
	if err := it.Err(); err != nil {
		return err
	}
	if len(p.ends) > 0 {
		return nil // a gap shows when the next page begins with it
	}
	// Truncation moves first before it removes anything.
	if first := s.first.Load(); pos < first {
		return s.truncated(pos, first)
	}
	return s.fail("read", holdfast.ErrCorrupt, nil, "check the engine's files, or restore a backup", "the event at position %d is missing", pos)
}

func (s *Store) truncated(pos, first uint64) error {
	return s.fail("read", ErrTruncated, &Truncated{pos, first}, "begin at the first position, or at a snapshot", "")
}
