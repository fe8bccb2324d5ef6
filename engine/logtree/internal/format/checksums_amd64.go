package format

import "golang.org/x/sys/cpu"

// Checksums is [Checksum] of four at once. Each instruction of a sum takes three cycles, and needs what the one before
// has made: with one value, the processor stands idle for two thirds of the time.
func Checksums(of *[4][]byte) (sums [4]uint32) {
	a, b, c, d := len(of[0]), len(of[1]), len(of[2]), len(of[3])
	least := min(a, b, c, d)
	if !cpu.X86.HasSSE42 || max(a, b, c, d)-least > mostUnlike {
		return checksumsEach(of)
	}
	checksums(of, least&^7, &sums)

	return sums
}

// mostUnlike is how many bytes longer one may be than another: what only one has is summed up alone.
const mostUnlike = 256

// checksums takes together the first bytes of all: a multiple of eight, which each has.
//
//go:noescape
func checksums(of *[4][]byte, all int, sums *[4]uint32)
