// Package age decides how far things that were written one after the other are old: the rule of docs/time.md for
// retention by age, without anything stored.
package age

import "time"

// Mark says that at Time, in nanoseconds since 1970, everything up to Position was there. The zero Mark says nothing.
type Mark struct {
	Position uint64 `json:"position"`
	Time     int64  `json:"time"`
}

// Ages goes over positions from the front, with the times at which they were written, and finds the first that is not
// old.
//
// A time ahead of the clock is not believed: the clock was ahead when it was stored. What has such a time is as old as
// what was written next, or as the mark that covers it. Nothing else is concluded from the order of times: one that is
// smaller than those before it may come from a clock that was behind.
type Ages struct {
	now, oldest int64
	mark        Mark
	cut         uint64
	doubted     bool // the last ones added have times that are not believed
	ended       bool // one is not old
}

// New returns Ages for what is to be removed when it is older than most. mark is the one that Done has returned last,
// and cut the first position.
func New(now time.Time, most time.Duration, mark Mark, cut uint64) *Ages {
	return &Ages{now: now.UnixNano(), oldest: now.Add(-most).UnixNano(), mark: mark, cut: cut}
}

// Add adds the next position and when it was written. It returns false when nothing behind it matters.
func (a *Ages) Add(pos uint64, written int64) bool {
	if written > a.now && pos <= a.mark.Position && a.mark.Time != 0 {
		written = a.mark.Time
	}

	switch {
	case written > a.now:
		a.doubted = true
	case written < a.oldest:
		a.cut, a.doubted = pos+1, false
	default:
		a.ended = true
	}

	return !a.ended
}

// Done returns the first position that is not old, now that all up to last were added or Add has returned false. If
// changed, the mark is to be stored before Done is called the next time: what is not believed counts from now on.
func (a *Ages) Done(last uint64) (cut uint64, mark Mark, changed bool) {
	if !a.ended && a.doubted {
		return a.cut, Mark{last, a.now}, true
	}

	return a.cut, a.mark, false
}
