package format

import (
	"encoding/binary"
	"fmt"
)

// A segment is a file of frames that begins with a header, little-endian:
//
//	magic     8   "HOLDFSEG"
//	version   4
//	id        4   also the file's name
//	database 16   identity of the directory it belongs to
//	kind      4   1: of the log, 2: moved
//	flags     4   1: the whole file was written and synced before it was used
//	              2: moved by a flush, keys from anywhere
//	size      8   of the file, while the log writes to it
//	zero     12
//	sum       4   CRC32C of all before
const (
	SegmentMagic      = "HOLDFSEG"
	SegmentVersion    = 1
	SegmentHeaderSize = 64

	SegmentLog   = 1 // kinds
	SegmentMoved = 2

	FlagWritten = 1
	FlagFlushed = 2
)

// DatabaseID tells a database's files from another's.
type DatabaseID [16]byte

// Epoch is mixed into the checksums of a segment's frames, so that what an earlier user of
// the same blocks wrote never looks valid.
func (id DatabaseID) Epoch(segment uint32) uint32 {
	return Checksum(binary.LittleEndian.AppendUint32(append([]byte("epoch"), id[:]...), segment))
}

// SegmentHeader is what a segment's header says.
type SegmentHeader struct {
	ID    uint32
	Kind  uint32
	Flags uint32
	Size  int64 // of the file, while the log writes to it
}

// Encode returns the header's bytes.
func (h SegmentHeader) Encode(db DatabaseID) []byte {
	b := make([]byte, SegmentHeaderSize)
	copy(b, SegmentMagic)
	binary.LittleEndian.PutUint32(b[8:], SegmentVersion)
	binary.LittleEndian.PutUint32(b[12:], h.ID)
	copy(b[16:], db[:])
	binary.LittleEndian.PutUint32(b[32:], h.Kind)
	binary.LittleEndian.PutUint32(b[36:], h.Flags)
	binary.LittleEndian.PutUint64(b[40:], uint64(h.Size))
	binary.LittleEndian.PutUint32(b[60:], Checksum(b[:60]))

	return b
}

// ParseSegmentHeader reads the header b of the file with that id and name. ErrVersion: it has a newer format, and says
// so under a right checksum. ErrCorrupt: anything else that is wrong.
func ParseSegmentHeader(b []byte, db DatabaseID, id uint32, name string) (h SegmentHeader, err error) {
	if len(b) < SegmentHeaderSize || string(b[:8]) != SegmentMagic {
		return h, Corrupt(name, 0, "it is no segment", nil)
	}
	if binary.LittleEndian.Uint32(b[60:]) != Checksum(b[:60]) {
		return h, Corrupt(name, 0, "the header's checksum is wrong", nil)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != SegmentVersion {
		return h, Newer(name, v)
	}
	if DatabaseID(b[16:32]) != db {
		return h, Corrupt(name, 0, "it belongs to another database", nil)
	}
	if got := binary.LittleEndian.Uint32(b[12:]); got != id {
		return h, Corrupt(name, 0, fmt.Sprintf("it is segment %d", got), nil)
	}
	h = SegmentHeader{ID: id, Kind: binary.LittleEndian.Uint32(b[32:]), Flags: binary.LittleEndian.Uint32(b[36:]),
		Size: int64(binary.LittleEndian.Uint64(b[40:]))}
	if h.Kind != SegmentLog && h.Kind != SegmentMoved || h.Size < SegmentHeaderSize || h.Size > 1<<32 {
		return h, Corrupt(name, 0, "the header makes no sense", nil)
	}

	return h, nil
}
