package event

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
)

// Rebuild makes a log whole again whose engine has lost some of it, once that loss was accepted. Positions whose events
// are lost have none from then on, so that readers skip them. The index of ids and the log's description are rebuilt
// from the events. A position that an id, offset or snapshot mentions is not given again; nor are those up to last,
// which the caller may know from elsewhere, 0 for none. Of o, Name, Level and FoldIDs count, and IDWindow where it is
// not known any more; then it is not known either what was truncated, and counts as lost.
//
// The report is of what was found. The log must not be open (ErrLocked). An early end, by ctx or an error, leaves it no
// worse than before: do it again. It takes the reading of the whole log, and a read for each id.
func Rebuild(ctx context.Context, eng holdfast.Engine, o Options, last uint64) (r Report, err error) {
	s, err := claim(eng, o)
	if err != nil {
		return r, err
	}
	defer s.lease.Release()
	return s.rebuild(ctx, o, last, false)
}

// rebuild is Rebuild of a log that is claimed. If gaps stay, what is lost is still a gap for readers afterwards, and
// only the index and the description are made anew.
func (s *Store) rebuild(ctx context.Context, o Options, last uint64, gaps bool) (r Report, err error) {
	stored, err := firstValue(s.eng, s.keys.Meta())
	if err != nil {
		return r, err
	}
	r.Name = o.Name
	m, bad := format.DecodeMeta(stored)
	if errors.Is(bad, holdfast.ErrVersion) {
		return r, bad
	}
	if bad != nil {
		r.Undescribed = true
		m = format.Meta{Window: o.IDWindow, First: 1, Stamps: true} // what was truncated is not known any more
		if m.Window == 0 {
			m.Window = DefaultIDWindow
		}
	}
	m.Folded = m.Folded || o.FoldIDs
	s.window, s.about, s.fold = m.Window, m, m.Folded
	if last, err = s.lastKnown(ctx, last); err != nil {
		return r, err
	}
	s.next.Store(last + 1)
	s.durable.Store(last)
	b := rebuilder{ctx: ctx, s: s, a: s.appenders.Get().(*appender), report: &r, at: m.First, gaps: gaps}
	if err := b.events(last); err != nil {
		return r, err
	}
	if err := b.ids(); err != nil {
		return r, err
	}
	m.IDs, m.Holes = nil, m.Holes || r.Holes > 0 || len(r.Lost) > 0
	s.lease.Fresh(&b.batch, s.keys.Prefix)
	// Parts of the history may be lost too: nobody can say any more which positions have kept their meaning.
	b.batch.DeleteRange(s.keys.Table(format.TableHistory))
	b.batch.Set(s.keys.Meta(), m.Encode())
	return r, b.commit()
}

// firstValue is the value of a key, nil if it is not there.
func firstValue(r holdfast.Reader, key []byte) (value []byte, err error) {
	it := r.Scan(holdfast.Range{Lo: key, Hi: append(slices.Clone(key), 0)})
	defer it.Close()
	if it.Next() {
		value = slices.Clone(it.Value())
	}
	return value, it.Err()
}

// lastKnown is the last position that anything in the engine mentions, or last.
func (s *Store) lastKnown(ctx context.Context, last uint64) (uint64, error) {
	end, err := s.last(s.about.First)
	if err != nil {
		return 0, err
	}
	last = max(last, end, s.about.First-1)
	for _, table := range []byte{format.TableIDs, format.TableOffsets, format.TableSnapshots} {
		lo, hi := s.keys.Table(table)
		err := chunks.Each(ctx, s.eng, lo, hi, func(key, value []byte) error {
			if table == format.TableIDs {
				if pos, ok := keyspace.Number(value); ok {
					last = max(last, pos)
				}
			} else if pos, _, ok := format.DecodeCursor(value); ok {
				last = max(last, pos)
			}
			return nil
		}, nil)
		if err != nil {
			return 0, err
		}
	}
	return last, nil
}

// rebuilder makes a log whole, a page of keys at a time.
type rebuilder struct {
	ctx    context.Context
	s      *Store
	a      *appender
	batch  holdfast.Batch
	report *Report
	at     uint64 // the next position
	gaps   bool   // stay
}

func (b *rebuilder) commit() error {
	err := holdfast.Commit(b.s.eng, &b.batch, b.s.level)
	b.batch.Reset()
	return err
}

// hole says that the positions from at up to before next have no event.
func (b *rebuilder) hole(next uint64, lost bool) {
	if !lost || !b.gaps {
		b.s.hole(b.a, &b.batch, b.at, next)
	}
	if n := len(b.report.Lost); lost && n > 0 && b.report.Lost[n-1].Next == b.at {
		b.report.Lost[n-1].Next = next
	} else if lost {
		b.report.Lost = append(b.report.Lost, Gap{b.at, next})
	} else {
		b.report.Holes += next - b.at
	}
	b.at = next
}

// events goes over all entries, closes what is open between them and up to last, and adds the ids of the events.
func (b *rebuilder) events(last uint64) error {
	s := b.s
	b.report.First = b.at
	_, hi := s.keys.Events()
	err := chunks.Each(b.ctx, s.eng, s.keys.Event(nil, b.at), hi, b.entry, b.commit)
	if err != nil {
		return err
	}
	if b.at <= last {
		b.hole(last+1, true)
		if b.gaps { // Nothing else would say next time that these positions were given.
			last++
			b.hole(last+1, false)
		}
	}
	b.report.Last = last
	return b.commit()
}

func (b *rebuilder) entry(key, value []byte) error {
	s := b.s
	last, ok := s.keys.Number(key)
	n := format.Count(value)
	if !ok || last == 0 {
		b.batch.Delete(key)
		return nil
	}
	first := last - min(n, last) + 1
	if first > b.at {
		b.hole(first, true)
	}
	if format.IsHole(value) {
		b.hole(last+1, false)
		return nil
	}
	events, err := s.decode(first, value)
	if err != nil || uint64(len(events)) != last-first+1 { // it cannot be read
		b.hole(last+1, true)
		return nil
	}
	for i := range events {
		e := &events[i]
		if e.Position < b.at { // truncated, or an entry before has it
			continue
		}
		if first < b.at {
			s.put(b.a, &b.batch, &e.Event, e.written)
		} else if e.ID != "" && e.Position >= s.oldest(s.next.Load()) {
			s.buildIDs(b.a, []Event{e.Event}, e.Position)
			b.batch.Append(&b.a.batch)
			b.a.batch.Reset()
		}
		b.report.Events++
	}
	b.at = last + 1
	if b.batch.Size() > chunks.Bytes/4 {
		return b.commit()
	}
	return nil
}

// ids removes ids whose events are not there.
func (b *rebuilder) ids() error {
	s := b.s
	lo, hi := s.keys.Table(format.TableIDs)
	return chunks.Each(b.ctx, s.eng, lo, hi, func(key, value []byte) error {
		rest := s.keys.Rest(key)
		pos, ok := keyspace.Number(value)
		if ok && pos < b.report.First { // its event was truncated, not lost
			return nil
		}
		if ok && len(rest) > 8 {
			first, _, value, err := s.entry(pos)
			var events []stored
			if err == nil && !format.IsHole(value) {
				events, err = s.decode(first, value)
			}
			if gap := (*Gap)(nil); err != nil && (!b.gaps || !errors.As(err, &gap)) {
				return err
			}
			if err == nil && !format.IsHole(value) {
				if s.folded(events[pos-first].ID) == string(rest[8:]) {
					return nil
				}
			}
		}
		b.batch.Delete(key)
		return nil
	}, b.commit)
}
