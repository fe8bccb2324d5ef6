package tree

import "github.com/holdfastdb/holdfast/engine/logtree/internal/format"

// ahead reads values ahead of a long walk, in each segment where they follow one another: flushes and compactions write
// values in the order of their keys, and a walk then goes through as many such streams as there were flushes.
type ahead struct {
	streams []stream // by the index of the version's segments
	open    []int    // which of them have memory
	free    [][]byte
	reads   int // counts
}

// stream is what a walk knows of a segment.
type stream struct {
	lo, hi int64 // the last value lies there
	run    int   // how many reads were close to the one before
	off    int64 // of what was read ahead
	b      []byte
	used   int // the number of the last read
}

const (
	longWalk   = 128 << 10 // bytes after which a walk reads ahead
	leastRun   = 4         // reads that follow one another before more is read
	farStream  = 4 << 10   // bytes between values that do not
	leastAhead = 4 << 10   // bytes read ahead first in a stream; then twice as many each time
	mostAhead  = 16 << 10
	mostOpen   = 64   // streams at a time
	idleStream = 1000 // reads, of all streams, after which one gives its memory to another
)

// read returns n bytes at lo of segment i of the version, unchecked and only until the next call, if they were read
// ahead or are now: nil otherwise. reverse says that keys descend.
func (a *ahead) read(ver *Version, i int, lo int64, n int, reverse bool) []byte {
	if n == 0 || n > mostAhead/2 {
		return nil
	}
	if a.streams == nil {
		a.streams = make([]stream, len(ver.segments))
	}
	s := &a.streams[i]
	hi, gap := lo+int64(n), lo-s.hi
	if reverse {
		gap = s.lo - hi
	}
	if s.lo, s.hi = lo, hi; gap < 0 || gap > farStream {
		s.run = 0
	} else {
		s.run++
	}
	a.reads++
	s.used = a.reads
	if b := s.within(lo, hi); b != nil {
		return b
	}
	if s.run < leastRun {
		return nil
	}

	// What comes next is read too, the more the longer the stream has been followed.
	more := int64(min(max(2*len(s.b), 2*n, leastAhead), mostAhead))
	from, to := lo, min(lo+more, ver.segments[i].Filled())
	if reverse {
		from, to = max(hi-more, format.SegmentHeaderSize), hi
	}
	if cap(s.b) == 0 {
		if s.b = a.memory(i); s.b == nil {
			return nil
		}
	}
	b, err := ver.segments[i].Read(s.b[:0], from, int(max(to-from, 0)))
	if s.off, s.b = from, b; err != nil { // a single value tells what is wrong
		s.b, s.run = s.b[:0], 0
		return nil
	}

	return s.within(lo, hi)
}

// within returns what lies there in what was read ahead, nil if that is not all of it.
func (s *stream) within(lo, hi int64) []byte {
	if lo < s.off || hi > s.off+int64(len(s.b)) {
		return nil
	}

	return s.b[lo-s.off : hi-s.off]
}

// memory returns memory for a stream. Where many have some it is that of one that has come to its end, nil if there is
// none.
func (a *ahead) memory(i int) []byte {
	if n := len(a.free); n > 0 {
		b := a.free[n-1]
		a.free, a.open = a.free[:n-1], append(a.open, i)

		return b
	}
	if len(a.open) < mostOpen {
		a.open = append(a.open, i)
		return make([]byte, 0, mostAhead)
	}

	at := 0
	for k, i := range a.open {
		if a.streams[i].used < a.streams[a.open[at]].used {
			at = k
		}
	}
	idle := &a.streams[a.open[at]]
	if a.reads-idle.used < idleStream {
		return nil
	}
	b := idle.b[:0]
	idle.b, a.open[at] = nil, i

	return b
}

// reset ends the walk. The memory is for the next one.
func (a *ahead) reset() {
	for _, i := range a.open {
		a.free = append(a.free, a.streams[i].b[:0])
	}
	a.open, a.streams, a.reads = a.open[:0], nil, 0
}
