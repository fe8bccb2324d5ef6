package wal

import "testing"

// TestRecent: what read calls have read counts as in memory, page by page, until the period ends.
func TestRecent(t *testing.T) {
	const size = 1 << 20
	var s Segment
	look := func(off int64, n int, want bool) {
		t.Helper()
		if have := s.recent.Load().has(off, n); have != want {
			t.Errorf("%d bytes at %d: %v, want %v", n, off, have, want)
		}
	}
	look(0, 1, false)
	s.note(3*recentPage+100, 2*recentPage, size) // of pages 3 to 5
	s.note(size-1, 1, size)
	look(3*recentPage, 3*recentPage, true)
	look(5*recentPage+recentPage-1, 1, true)
	look(6*recentPage-1, 2, false)
	look(3*recentPage-1, 2, false)
	look(size-recentPage, recentPage, true)
	s.note(63*recentPage, recentPage, size)
	look(63*recentPage, recentPage+1, false)
	s.note(64*recentPage, 1, size)
	look(63*recentPage, recentPage+1, true)

	if !period.ends.Load() {
		t.Error("nothing ends the period")
	}
	endPeriod()
	look(3*recentPage, 1, false)
	s.note(0, 1, size)
	look(0, 1, true)
	look(3*recentPage, 1, false)
}
