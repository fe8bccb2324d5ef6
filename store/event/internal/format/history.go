package format

import "encoding/binary"

// Part is the value of the key of a part of a log's history:
//
//	id        16 bytes, random
//	start     8 bytes, the position of the first event that can be in it
//	session   16 bytes, random: the opening of the engine in which it was begun
type Part struct {
	ID      [16]byte
	Start   uint64
	Session [16]byte
}

// Encode returns the value.
func (p Part) Encode() []byte {
	return append(binary.BigEndian.AppendUint64(p.ID[:], p.Start), p.Session[:]...)
}

// DecodePart reads what Encode has written; false means that it is none.
func DecodePart(value []byte) (p Part, ok bool) {
	if len(value) != 16+8+16 {
		return p, false
	}
	copy(p.ID[:], value)
	p.Start = binary.BigEndian.Uint64(value[16:])
	copy(p.Session[:], value[24:])
	return p, true
}
