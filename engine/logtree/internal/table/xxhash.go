package table

import "math/bits"

// The primes of xxHash64.
const (
	prime1 uint64 = 0x9E3779B185EBCA87
	prime2 uint64 = 0xC2B2AE3D27D4EB4F
	prime3 uint64 = 0x165667B19E3779F9
	prime4 uint64 = 0x85EBCA77C2B2AE63
	prime5 uint64 = 0x27D4EB2F165667C5
)

// hash is xxHash64 of b with seed 0. It is part of the file format: it never changes.
func hash(b []byte) uint64 {
	h, n := prime5, uint64(len(b))
	if len(b) >= 32 {
		var p1, p2 = prime1, prime2
		v1, v2, v3, v4 := p1+p2, p2, uint64(0), -p1

		for len(b) >= 32 {
			v1 = lane(v1, le.Uint64(b))
			v2 = lane(v2, le.Uint64(b[8:]))
			v3 = lane(v3, le.Uint64(b[16:]))
			v4 = lane(v4, le.Uint64(b[24:]))
			b = b[32:]
		}

		h = bits.RotateLeft64(v1, 1) + bits.RotateLeft64(v2, 7) + bits.RotateLeft64(v3, 12) + bits.RotateLeft64(v4, 18)
		for _, v := range [4]uint64{v1, v2, v3, v4} {
			h = (h^lane(0, v))*prime1 + prime4
		}
	}

	h += n
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^lane(0, le.Uint64(b)), 27)*prime1 + prime4
	}
	if len(b) >= 4 {
		h = bits.RotateLeft64(h^uint64(le.Uint32(b))*prime1, 23)*prime2 + prime3
		b = b[4:]
	}

	for _, c := range b {
		h = bits.RotateLeft64(h^uint64(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3

	return h ^ h>>32
}

// lane mixes eight bytes into an accumulator.
func lane(acc, in uint64) uint64 { return bits.RotateLeft64(acc+in*prime2, 31) * prime1 }

// trailingBytes says how many whole low bytes of x, which is not 0, are 0.
func trailingBytes(x uint64) int { return bits.TrailingZeros64(x) / 8 }
