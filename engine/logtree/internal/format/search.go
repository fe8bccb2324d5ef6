package format

import (
	"bytes"
	"encoding/binary"
	"iter"
)

// Extent is the length of b without the zeros at its end.
func Extent(b []byte) int64 { return int64(len(bytes.TrimRight(b, "\x00"))) }

// Stretch is a part of what [Stretches] divides: a whole frame, or bytes that belong to none.
type Stretch struct {
	Frame        // of kind 0: there is none
	At    int    // offset in what was divided
	Len   int    // bytes
	Ops   int    // of a batch
	Next  uint32 // seq that the next frame of the log should have
	Why   string // there is no frame
}

// Stretches divides b into whole frames and what lies between them. What begins b should have that seq. A last stretch
// that is no frame may be a torn end, or room that was never used.
func Stretches(b []byte, epoch, seq uint32) iter.Seq[Stretch] {
	return func(yield func(Stretch) bool) {
		all := search{b, epoch, nil}
		for at := 0; at < len(b); {
			s := Stretch{At: at, Next: seq, Why: "there is no whole frame"}

			if f, ok := ParseFrame(b[at:], epoch); !ok {
				s.Len = all.resync(at, seq) - at
			} else {
				s.Frame, s.Len, s.Why = f, min(f.Size(), len(b)-at), "" // the file may end in a frame's padding
				if f.Kind == KindBatch {
					var err error
					if s.Ops, err = CheckBatch(f.Body); err != nil {
						s.Kind, s.Why = 0, err.Error()
					}
				}
				seq = max(seq, f.Seq+uint32(s.Ops))
				s.Next = seq
			}
			if !yield(s) {
				return
			}
			at += s.Len
		}
	}
}

// search parses frames at many places of one text. Bytes of values can look like the headers of long frames at
// all of them (numbers of 8 bytes do), and summing up what each would hold could take hours. So sums of what is
// before every sumEvery-th byte are kept, of which that of any stretch follows.
type search struct {
	bytes []byte
	epoch uint32   // of the segment that they are from
	sums  []uint32 // sums[i] is that of the first i*sumEvery bytes; nil until it is needed
}

const sumEvery = 64

// frame returns the whole frame that begins at an offset, if one does.
func (s *search) frame(off int) (Frame, bool) {
	from := off + FrameHeader
	if from > len(s.bytes) {
		return Frame{}, false
	}
	n := int(binary.LittleEndian.Uint32(s.bytes[off+4:]) >> 2)
	if n > len(s.bytes)-from {
		return Frame{}, false
	}

	// Short frames are summed up at once, which costs less than joining.
	if n > 16*sumEvery {
		// Joining is its own inverse.
		sum := joinChecksums(s.before(from), s.before(from+n), n)
		if UpdateChecksum(sum, s.bytes[off+4:from])^s.epoch != binary.LittleEndian.Uint32(s.bytes[off:]) {
			return Frame{}, false
		}
	}

	return ParseFrame(s.bytes[off:], s.epoch)
}

// before returns the sum of the first n bytes.
func (s *search) before(n int) uint32 {
	if s.sums == nil {
		s.sums = make([]uint32, 1, len(s.bytes)/sumEvery+1)
		for i := 0; i+sumEvery <= len(s.bytes); i += sumEvery {
			s.sums = append(s.sums, UpdateChecksum(s.sums[len(s.sums)-1], s.bytes[i:i+sumEvery]))
		}
	}
	i := n / sumEvery

	return UpdateChecksum(s.sums[i], s.bytes[i*sumEvery:n])
}

// resync returns the offset of the next whole frame behind from, the length of the text if there is none. What begins
// at from should have that seq.
func (s *search) resync(from int, seq uint32) int {
	// Frames begin at multiples of four bytes, and so does from.
	for at := from + FrameAlign; at+FrameHeader <= len(s.bytes); at += FrameAlign {
		if s.mayBe(at, from, seq) {
			if _, ok := s.frame(at); ok {
				return at
			}
		}
	}

	return len(s.bytes)
}

// mayBe reports whether a frame can begin at an offset, where what begins at from should have that seq. Bytes of values
// look like the header of a long frame often enough for summing them all up to take minutes; few have a number of
// operations that fits into what is before them, with three bytes or more each. In a moved segment all seqs are 0.
func (s *search) mayBe(at, from int, seq uint32) bool {
	if s.bytes[at+4]&3 == 0 {
		return false
	}
	got := binary.LittleEndian.Uint32(s.bytes[at+8:])

	return got == 0 || got >= seq && int64(got-seq) <= int64(at-from)/3
}

// joinChecksums returns the checksum of two stretches that have checksums a and b, the second of n bytes.
//
// A checksum is the remainder of a polynomial whose coefficients are bits, modulo the Castagnoli polynomial: the
// first stretch stands 8n places higher than the second, so its remainder counts x^8n times.
func joinChecksums(a, b uint32, n int) uint32 {
	shift := uint32(crcOne)
	for k, e := 0, uint64(n)*8; e > 0; k, e = k+1, e>>1 {
		if e&1 != 0 {
			shift = crcMul(crcPowers[k], shift)
		}
	}

	return crcMul(a, shift) ^ b
}

// A remainder's highest bit is its lowest coefficient.
const (
	crcOne  = 1 << 31
	crcPoly = 0x82f63b78
)

// crcPowers has x^(2^k).
var crcPowers = func() (p [40]uint32) {
	p[0] = crcOne >> 1
	for k := 1; k < len(p); k++ {
		p[k] = crcMul(p[k-1], p[k-1])
	}

	return p
}()

// crcMul multiplies remainders.
func crcMul(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&crcOne != 0 {
			product ^= b
		}
		b = b>>1 ^ crcPoly&-(b&1)
	}

	return product
}
