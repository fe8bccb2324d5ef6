package event

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

// A history has parts. Each opening of the engine begins one, with an id that no other has, at the position that the
// next event gets. So a copy of a log has all parts that were there when it was made, and from the first opening on the
// copy and the log are told apart by the parts that follow, whatever made the copy, and whatever took away the end of
// the log: nobody has to say that this has happened.
//
// A position that was reached in some part is one of this log if the log has that part, and the part did not end
// before the position.

// keepParts is how many parts a log remembers.
const keepParts = 1000

// History identifies what the log's positions mean, as long as it is open: the same position is the same event. A
// program that keeps a position keeps this with it, and later asks [Store.CheckHistory].
func (s *Store) History() string { return hex.EncodeToString(s.part.Load().ID[:]) }

// CheckHistory reports whether a reader that has come as far as before position from, while [Store.History] was
// history, can go on from there: everything that it has read is in this log. It can if the log was only closed and
// opened since. Otherwise the error is ErrAhead, which says from where on the two differ if that is known: the log is
// an older copy that was restored and written to, has lost its end in a power cut or repair, was made anew, or is
// another one. With history "" only the position is checked: from is at most Last()+1. A log remembers the histories of
// the last 1,000 openings of its engine; older ones count as others. Positions up to 1 are those of every history.
func (s *Store) CheckHistory(history string, from uint64) error {
	if err := s.life.Enter(); err != nil {
		return err
	}
	defer s.life.Leave()
	common, err := s.common(history)
	switch next := s.durable.Load() + 1; {
	case err != nil:
		return s.met(err)
	case from <= 1:
		return nil
	case common == 0:
		return s.fail("history", ErrAhead, nil, "begin again from the first position",
			"position %d is of another history: the log was made anew, or put back to a copy", from)
	case from > common && common < next:
		return s.fail("history", ErrAhead, nil, "go on from there, without what was made of later ones",
			"position %d is of another history, which differs from position %d on: the log was put back to a copy, or "+
				"has lost its end", from, common)
	case from > next:
		return s.ahead(from, next)
	}
	return nil
}

// ahead is the error of a position that the log has not reached.
func (s *Store) ahead(pos, next uint64) error {
	return s.fail("read", ErrAhead, nil, "if the log was put back to a copy, begin again from a position that it has",
		"position %d, the next one is %d", pos, next)
}

// Common returns the first position at which the log may differ from what it was when [Store.History] was history:
// Last()+1 if it has only grown, and 0 if that is not known.
func (s *Store) Common(history string) (uint64, error) {
	if err := s.life.Enter(); err != nil {
		return 0, err
	}
	defer s.life.Leave()
	common, err := s.common(history)
	return common, s.met(err)
}

// common is Common for those who have entered.
func (s *Store) common(history string) (uint64, error) {
	next := s.durable.Load() + 1
	if history == "" || history == s.History() {
		return next, nil
	}
	lo, hi := s.keys.Table(format.TableHistory)
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi})
	defer it.Close()
	found := false
	for it.Next() {
		part, ok := format.DecodePart(it.Value())
		if !ok {
			return 0, s.fail("history", holdfast.ErrCorrupt, nil, "", "a part of the history cannot be read")
		}
		if found {
			return min(part.Start, next), it.Err()
		}
		found = hex.EncodeToString(part.ID[:]) == history
	}
	return 0, it.Err()
}

// beginPart adds to b the part of the history that begins at a position, unless one was begun in this opening of the
// engine: what was shown since then, no crash has taken. It returns that part, and the last one that is there, which
// are the same then; was is nil if there is none.
func (s *Store) beginPart(b *holdfast.Batch, start uint64) (was, part *format.Part, err error) {
	lo, hi := s.keys.Table(format.TableHistory)
	it := s.eng.Scan(holdfast.Range{Lo: lo, Hi: hi, Reverse: true})
	defer it.Close()
	no := uint64(0)
	if it.Next() {
		var ok bool
		if no, ok = s.keys.Number(it.Key()); !ok {
			return nil, nil, s.strange("open", it.Key())
		}
		if last, ok := format.DecodePart(it.Value()); ok {
			if was = &last; was.Session == s.lease.Session {
				return was, was, nil
			}
		}
	}
	if err := it.Err(); err != nil {
		return nil, nil, err
	}
	part = &format.Part{Start: start, Session: s.lease.Session}
	_, _ = rand.Read(part.ID[:]) // which never fails
	b.Set(s.keys.Part(no+1), part.Encode())
	if no+1 > keepParts {
		b.Delete(s.keys.Part(no + 1 - keepParts))
	}
	return was, part, nil
}

// begun begins the part for which Open had no room, before a position is given: as long as none was, the part before
// tells all that there is. It is called without the lock, by those who have entered.
func (s *Store) begun() error {
	if !s.late.Load() {
		return nil
	}
	s.beginning.Lock()
	defer s.beginning.Unlock()
	if !s.late.Load() {
		return nil
	}
	var b holdfast.Batch
	s.lease.Fresh(&b, s.keys.Prefix)
	_, part, err := s.beginPart(&b, s.next.Load())
	if err == nil {
		err = s.wait(s.eng.Apply(&b, s.level))
	}
	if err == nil {
		s.part.Store(part)
		s.late.Store(false)
	}
	return err
}
