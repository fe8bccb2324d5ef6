package event

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/age"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// Retention says which events a log keeps. A limit of zero is no limit, and of several the strictest counts.
type Retention struct {
	// MaxAge removes events from the front as long as they were written longer ago, by the log's own clock; the time of an
	// event that its writer gave, and that of an import, does not count. What was written while the clock was ahead is as
	// old as what came next, or counts from when Retain has first found that out: see docs/time.md.
	MaxAge time.Duration
	// MaxEvents is how many positions are kept.
	MaxEvents uint64
	// MaxBytes is how many bytes the keys and values of the events that are kept take in the engine, before it compresses
	// them and without its own overhead.
	MaxBytes int64
	// KeepUnread keeps every event that a subscription, or the projection of a snapshot, has not come past, whatever the
	// limits are. A subscription that is not used any more then keeps the whole log: delete it.
	KeepUnread bool
}

// Truncation is what a retention has done.
type Truncation struct {
	Removed uint64 // positions
	First   uint64 // the first position from now on
	// Subscriptions and Snapshots are those that can no longer read all that comes after their position.
	Subscriptions, Snapshots []Cursor
}

// Retain truncates the log to what r keeps. It computes the position and calls TruncateBefore, whose errors it
// returns, too; what it has done by then is in the result.
//
// A log that is to be kept short calls it regularly, from one goroutine:
//
//	for range time.Tick(time.Hour) {
//		done, err := log.Retain(ctx, event.Retention{MaxAge: 30 * 24 * time.Hour, KeepUnread: true})
//		...
//	}
//
// Often is cheap: MaxAge reads what is removed, MaxEvents nothing. MaxBytes reads the whole log the first time after
// it was opened, and after an import or removal; then only what is new, and what is removed.
func (s *Store) Retain(ctx context.Context, r Retention) (t Truncation, err error) {
	if r.MaxAge < 0 || r.MaxBytes < 0 {
		return t, s.fail("retain", holdfast.ErrBadOption, nil, "use 0 for no limit", "an age of %v, %d bytes", r.MaxAge,
			r.MaxBytes)
	}
	pos, err := s.retained(ctx, r)
	if err != nil {
		return t, err
	}
	t.Removed, err = s.TruncateBefore(ctx, pos)
	t.First = s.First()
	if err != nil {
		return t, err
	}
	if err := s.enter(ctx); err != nil {
		return t, err
	}
	defer s.life.Leave()
	t.Subscriptions, t.Snapshots, err = s.missed(ctx)
	return t, s.met(err)
}

// retained returns the first position that r keeps.
func (s *Store) retained(ctx context.Context, r Retention) (uint64, error) {
	if err := s.alive(ctx); err != nil {
		return 0, err
	}
	pos, end := s.first.Load(), s.durable.Load()+1
	if r.MaxEvents > 0 && end-pos > r.MaxEvents {
		pos = end - r.MaxEvents
	}
	if r.MaxAge > 0 {
		var err error
		if pos, err = s.youngerThan(ctx, pos, r.MaxAge); err != nil {
			return 0, err
		}
	}
	if r.MaxBytes > 0 {
		var err error
		if pos, err = s.sizes.cut(ctx, s, pos, r.MaxBytes); err != nil {
			return 0, err
		}
	}
	if r.KeepUnread {
		for _, table := range []byte{format.TableOffsets, format.TableSnapshots} {
			list, err := s.cursors(ctx, table)
			if err != nil {
				return 0, err
			}
			for _, c := range list {
				pos = min(pos, c.Position+1)
			}
		}
	}
	return pos, nil
}

// youngerThan returns the position of the first event from pos on that was not written longer than most ago.
func (s *Store) youngerThan(ctx context.Context, pos uint64, most time.Duration) (uint64, error) {
	mark, err := s.mark(ctx)
	if err != nil {
		return 0, err
	}
	last := s.durable.Load()
	ages := age.New(time.Now(), most, mark, pos)
	for e, err := range s.Records(ctx, pos, 0) {
		if errors.Is(err, ErrTruncated) { // by another call
			return s.youngerThan(ctx, s.first.Load(), most)
		}
		if err != nil {
			return 0, err
		}
		if !ages.Add(e.Position, e.Written().UnixNano()) {
			break
		}
	}
	pos, mark, changed := ages.Done(last)
	if changed {
		err = s.setMark(ctx, mark)
	}
	return pos, err
}

// mark reads the mark of retention.
func (s *Store) mark(ctx context.Context) (mark age.Mark, err error) {
	if err := s.enter(ctx); err != nil {
		return mark, err
	}
	defer s.life.Leave()
	value, err := s.eng.Get(nil, s.keys.Mark())
	if errors.Is(err, holdfast.ErrNotFound) {
		return mark, nil
	}
	if err != nil {
		return mark, s.met(err)
	}
	var ok bool
	if mark.Position, mark.Time, ok = format.DecodeMark(value); !ok {
		return mark, s.fail("retain", holdfast.ErrCorrupt, nil, "", "the mark of retention cannot be read")
	}
	return mark, nil
}

func (s *Store) setMark(ctx context.Context, mark age.Mark) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	var b holdfast.Batch
	chunks.Notes(&b, s.keys.Mark())
	b.Set(s.keys.Mark(), format.AppendMark(nil, mark.Position, mark.Time))
	return s.wait(s.eng.Apply(&b, s.level))
}

// sizes knows how many bytes the entries of a log take, so that they need not be read again.
type sizes struct {
	mu    sync.Mutex
	edits uint64 // Store.edits when they were counted
	first uint64 // where the first entry counted begins
	next  uint64 // the position behind the last one
	bytes int64
}

// cut returns the first position behind pos, or pos itself, from which on the entries take at most limit bytes.
func (z *sizes) cut(ctx context.Context, s *Store, pos uint64, limit int64) (uint64, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	end, edits, known := s.durable.Load()+1, s.edits.Load(), false
	if z.edits == edits && z.first > 0 {
		err := s.sizeUp(ctx, z.first, end, func(first, _ uint64, _ int64) bool {
			known = first == z.first // else others have truncated it
			return false
		})
		if err != nil {
			return 0, err
		}
	}
	if !known {
		z.first, z.next, z.bytes, z.edits = 0, s.first.Load(), 0, edits
	}
	err := s.sizeUp(ctx, z.next, end, func(first, next uint64, bytes int64) bool {
		if z.first == 0 {
			z.first = first
		}
		z.next, z.bytes = next, z.bytes+bytes
		return true
	})
	if err != nil {
		return 0, err
	}
	err = s.sizeUp(ctx, z.first, z.next, func(_, next uint64, bytes int64) bool {
		if next > pos && z.bytes <= limit {
			return false
		}
		z.first, z.bytes = next, z.bytes-bytes
		pos = max(pos, next)
		return true
	})
	return pos, err
}

// sizeUp calls yield for each entry from the one on that has a position, up to before end, with its first position, the
// first one behind it, and its size, until yield returns false.
func (s *Store) sizeUp(ctx context.Context, pos, end uint64, yield func(first, next uint64, bytes int64) bool) error {
	for more := true; more; {
		var err error
		if pos, more, err = s.sizePage(ctx, pos, end, yield); err != nil {
			return s.met(err)
		}
	}
	return nil
}

// sizePage is sizeUp for as many entries as one iterator is kept open for.
func (s *Store) sizePage(ctx context.Context, pos, end uint64, yield func(first, next uint64, bytes int64) bool) (
	uint64, bool, error) {
	if err := s.enter(ctx); err != nil {
		return pos, false, err
	}
	defer s.life.Leave()
	if pos >= end {
		return pos, false, nil
	}
	it := s.eng.Scan(holdfast.Range{Lo: s.keys.Event(nil, pos), Hi: s.keys.Event(nil, end)})
	defer it.Close()
	for bytes := int64(0); it.Next(); {
		if bytes >= pageBytes {
			return pos, true, nil
		}
		last, ok := s.keys.Number(it.Key())
		if !ok {
			return pos, false, s.strange("retain", it.Key())
		}
		size := int64(len(it.Key()) + len(it.Value()))
		if bytes += size; !yield(last-min(format.Count(it.Value()), last)+1, last+1, size) {
			return pos, false, nil
		}
		pos = last + 1
	}
	return pos, false, it.Err()
}

// warn tells Options.Logger of those whom a truncation has passed. It is called by one that has entered.
func (s *Store) warn() {
	if s.logger == nil {
		return
	}
	subscriptions, snapshots, err := s.missed(context.Background())
	if err != nil {
		s.logger.Warn("event truncate: which subscriptions it has passed is not known", "error", err)
	}
	passed := func(what string, list []Cursor) {
		for _, c := range list {
			s.logger.Warn("event truncate: the log begins behind what a "+what+" has to read next; "+
				"delete the "+what+" if it is not used any more",
				what, c.Name, "position", c.Position, "first", s.first.Load(), "missed", c.Missed)
		}
	}
	passed("subscription", subscriptions)
	passed("snapshot", snapshots)
}
