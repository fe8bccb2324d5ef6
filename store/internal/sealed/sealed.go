// Package sealed is the head of the values of the Raft stores:
//
//	sum    4 bytes, CRC-32C of the key and of all that follows the sum
//	head   1 byte, the version in its upper 4 bits, flags in the lower ones
//
// So neither a damaged value is believed, nor one that has come under another key.
package sealed

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	sumSize = 4
	// Size is how many bytes sum and head have.
	Size = sumSize + 1
	// Flags are the bits of the head that are flags; the others are the version.
	Flags = 1<<4 - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, key), castagnoli, value[sumSize:])
}

// Begin appends the room for the sum, and the head, to dst.
func Begin(dst []byte, head byte) []byte { return append(dst, 0, 0, 0, 0, head) }

// Seal puts the sum into the value that Begin began when dst had the length start.
func Seal(dst, key []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], sum(key, dst[start:]))
	return dst
}

// Open returns the head of a value and what follows it. ok is false for what is damaged, or is under another key.
func Open(key, value []byte) (head byte, body []byte, ok bool) {
	if len(value) < Size || binary.BigEndian.Uint32(value) != sum(key, value) {
		return 0, nil, false
	}

	return value[sumSize], value[Size:], true
}
