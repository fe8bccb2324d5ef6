package wal

import (
	"sync/atomic"
	"time"
)

// Values are read from a segment's mapping where that costs a memory access, and by a read call where the device may
// have to be asked. A page that is touched through a mapping and is not in memory stops a processor of the Go
// scheduler and reads one page at a time, or megabytes around it; a read call stops one goroutine and reads what is
// asked for. Only the system knows what is in memory, and asking it costs as much as a read call. So what a call has
// read within the last recentFor counts as being there. If it is not, a memory access is only slower.

// recent is which pages of a segment read calls have read in one period. It takes one bit for each page.
type recent struct {
	period uint64
	pages  []atomic.Uint64
}

const (
	recentFor   = 10 * time.Second
	recentPage  = 4 << 10
	recentLimit = 32 << 10 // bytes from which on a read call costs no more than a copy from a mapping
)

// period is the number of the present period, of all segments of the program. It ends recentFor after the first read
// call that was noted in it.
var period struct {
	now  atomic.Uint64
	ends atomic.Bool // a timer runs
}

// has reports whether all of the n bytes at off, which are in the file, were read in this period.
func (r *recent) has(off int64, n int) bool {
	if r == nil || r.period != period.now.Load() {
		return false
	}

	for p := off / recentPage; p <= (off+int64(n)-1)/recentPage; p++ {
		if r.pages[p/64].Load()>>(p%64)&1 == 0 {
			return false
		}
	}

	return true
}

// note remembers that a read call has read n bytes at off, with both in the first size bytes of the file.
func (s *Segment) note(off int64, n, size int) {
	r, now := s.recent.Load(), period.now.Load()
	if r == nil || r.period != now {
		// The bits of the last period are dropped as a whole, not cleared one by one.
		r = &recent{period: now, pages: make([]atomic.Uint64, size/recentPage/64+1)}
		s.recent.Store(r) // what others note in another one meanwhile is read once more
		if period.ends.CompareAndSwap(false, true) {
			time.AfterFunc(recentFor, endPeriod)
		}
	}

	for p := off / recentPage; p <= (off+int64(n)-1)/recentPage; p++ {
		if word, bit := &r.pages[p/64], uint64(1)<<(p%64); word.Load()&bit == 0 {
			word.Or(bit)
		}
	}
}

// endPeriod begins another period. The first read call in it finds that no timer runs.
func endPeriod() {
	period.ends.Store(false)
	period.now.Add(1)
}
