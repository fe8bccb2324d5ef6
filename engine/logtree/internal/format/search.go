package format

import (
	"bytes"
	"encoding/binary"
)

// Extent is the length of b without the zeros at its end.
func Extent(b []byte) int64 { return int64(len(bytes.TrimRight(b, "\x00"))) }

// Found is a frame and its offset in what was searched.
type Found struct {
	Frame
	At int
}

// MayBeFrame reports whether b, before which its segment has so many bytes of frames, can begin with a frame. Bytes of
// values look like the header of a long one often enough for summing them all up to take minutes; few have a
// number of operations that fits into what is before them, with three bytes or more each.
func MayBeFrame(b []byte, before int64) bool {
	return b[4]&3 != 0 && int64(binary.LittleEndian.Uint32(b[8:])) <= before/3
}

// FramesIn looks for whole frames anywhere in b, before which the segment has so many bytes of frames.
func FramesIn(b []byte, before int64, epoch uint32) (all []Found) {
	search := Search{Bytes: b, Epoch: epoch}
	for at := 0; at+FrameHeader <= len(b); {
		if MayBeFrame(b[at:], before+int64(at)) {
			if f, ok := search.Frame(at); ok {
				all = append(all, Found{f, at})
				at += f.Size()
				continue
			}
		}
		at += FrameAlign
	}
	return all
}

// Search parses frames at many places of one text. Bytes of values can look like the headers of long frames at
// all of them (numbers of 8 bytes do), and summing up what each would hold could take hours. So sums of what is
// before every sumEvery-th byte are kept, of which that of any stretch follows.
type Search struct {
	Bytes []byte
	Epoch uint32   // of the segment that they are from
	sums  []uint32 // sums[i] is that of the first i*sumEvery bytes; nil until it is needed
}

const sumEvery = 64

// Frame returns the whole frame that begins at an offset, if one does.
func (s *Search) Frame(off int) (Frame, bool) {
	from := off + FrameHeader
	if from > len(s.Bytes) {
		return Frame{}, false
	}
	n := int(binary.LittleEndian.Uint32(s.Bytes[off+4:]) >> 2)
	if n > len(s.Bytes)-from {
		return Frame{}, false
	}
	if n > 16*sumEvery {
		// Joining is its own inverse.
		sum := joinChecksums(s.before(from), s.before(from+n), n)
		if UpdateChecksum(sum, s.Bytes[off+4:from])^s.Epoch != binary.LittleEndian.Uint32(s.Bytes[off:]) {
			return Frame{}, false
		}
	}
	return ParseFrame(s.Bytes[off:], s.Epoch)
}

// before returns the sum of the first n bytes.
func (s *Search) before(n int) uint32 {
	if s.sums == nil {
		s.sums = make([]uint32, 1, len(s.Bytes)/sumEvery+1)
		for i := 0; i+sumEvery <= len(s.Bytes); i += sumEvery {
			s.sums = append(s.sums, UpdateChecksum(s.sums[len(s.sums)-1], s.Bytes[i:i+sumEvery]))
		}
	}
	i := n / sumEvery
	return UpdateChecksum(s.sums[i], s.Bytes[i*sumEvery:n])
}

// Resync returns the offset of the next whole frame behind from, the length of the text if there is none. least is the
// least seq that it can have in the log.
func (s *Search) Resync(from int, least uint32) int {
	for at := from + FrameAlign; at+FrameHeader <= len(s.Bytes); at += FrameAlign {
		if s.Bytes[at+4]&3 == 0 {
			continue
		}
		// Operations have at least three bytes. In a moved segment all seqs are 0.
		seq := binary.LittleEndian.Uint32(s.Bytes[at+8:])
		if seq != 0 && (seq < least || int64(seq-least) > int64(at-from)/3) {
			continue
		}
		if _, ok := s.Frame(at); ok {
			return at
		}
	}
	return len(s.Bytes)
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
