package tree

import "github.com/holdfastdb/holdfast/engine/logtree/internal/format"

// ahead reads values ahead of a long walk, in each segment where they follow one another: flushes and compactions write
// values in the order of their keys, and a walk then goes through as many such streams as there were flushes.
type ahead struct {
	streams []stream // by the index of the version's segments
	open    []int    // which of them have memory
	free    [][]byte
	lent    [][]byte // what was read ahead before, and may have values that the walk has handed out
	reads   int      // of them all; counts
}

// stream is what a walk knows of a segment.
type stream struct {
	last int64 // where the last value ends, in the direction of the walk
	run  int   // how many reads were close to the one before
	off  int64 // of what was read ahead
	b    []byte
	used int // the number of the last read ahead
}

const (
	longWalk   = 128 << 10 // bytes after which a walk reads ahead
	leastRun   = 4         // reads that follow one another before more is read
	farStream  = 4 << 10   // bytes between values that do not
	leastAhead = 4 << 10   // bytes read ahead first in a stream; then twice as many each time
	mostAhead  = 16 << 10
	mostOpen   = 64           // streams at a time
	idleStream = 4 * mostOpen // reads ahead, of all streams, after which one gives its memory to another
)

// read returns n bytes at lo of segment i of the version, unchecked, if they were read ahead or are now: nil otherwise.
// They stay as they are until reuse. reverse says that keys descend.
func (a *ahead) read(ver *Version, i int, lo int64, n int, reverse bool) []byte {
	if a.streams == nil {
		a.streams = make([]stream, len(ver.segments))
	}
	s := &a.streams[i]
	hi, last := lo+int64(n), s.last
	if s.last = hi; reverse {
		s.last = lo
	}
	if b := s.within(lo, hi); b != nil {
		return b
	}

	gap := lo - last
	if reverse {
		gap = last - hi
	}
	if s.run++; gap < 0 || gap > farStream {
		s.run = 0
	}
	if s.run < leastRun || n > mostAhead/2 {
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
	} else if len(s.b) > 0 {
		a.lent = append(a.lent, s.b)
		s.b = a.another()
	}
	a.reads++
	s.used = a.reads
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

// memory returns memory for a stream that has none. Where many have some one that has come to its end gives its up; if
// there is no such one it returns nil.
func (a *ahead) memory(i int) []byte {
	if len(a.open) < mostOpen {
		a.open = append(a.open, i)
		return a.another()
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
	a.lent = append(a.lent, idle.b)
	idle.b, a.open[at] = nil, i

	return a.another()
}

// another returns memory that is free.
func (a *ahead) another() []byte {
	n := len(a.free)
	if n == 0 {
		return make([]byte, 0, mostAhead)
	}
	b := a.free[n-1]
	a.free = a.free[:n-1]

	return b
}

// reuse says that nothing is in use any more of what read has returned.
func (a *ahead) reuse() {
	for _, b := range a.lent {
		a.free = append(a.free, b[:0])
	}
	a.lent = a.lent[:0]
}

// reset ends the walk. The memory is for the next one.
func (a *ahead) reset() {
	a.reuse()
	for _, i := range a.open {
		a.free = append(a.free, a.streams[i].b[:0])
	}
	a.open, a.streams, a.reads = a.open[:0], nil, 0
}
