package table

import "math/bits"

const (
	filterBits  = 10 // per key
	lineSize    = 64 // one cache line
	pageSize    = 64 * lineSize
	filterMixer = 0x9E3779B97F4A7C15
)

// filterLines is the size of the filter of a table of n entries.
func filterLines(n int64) int64 { return (n*filterBits + lineSize*8 - 1) / (lineSize * 8) }

// filterPages is how many pages, each with a checksum, so many lines fill.
func filterPages(lines int64) int64 { return (lines*lineSize + pageSize - 1) / pageSize }

// filterLine is the line of a key with hash h.
func filterLine(h, lines uint64) uint64 {
	// The high half of the product spreads the hashes evenly over the lines, without a division.
	line, _ := bits.Mul64(h, lines)
	return line
}

// setBits sets the bits of a key with hash h in its line.
func setBits(line []byte, h uint64) {
	line = line[:lineSize]

	h *= filterMixer

	// Each bit's number is the top nine bits of what is left of the product: 512 bits are in a line.
	for range 6 {
		b := h >> 55
		line[b/8] |= 1 << (b % 8)
		h <<= 9
	}
}

// hasBits says whether all bits of a key with hash h are set in its line.
func hasBits(line []byte, h uint64) bool {
	line = line[:lineSize]
	h *= filterMixer

	for range 6 {
		b := h >> 55
		if line[b/8]>>(b%8)&1 == 0 {
			return false
		}
		h <<= 9
	}

	return true
}
