package db

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/holdfastdb/holdfast"
)

// A frame is the unit of the log, little-endian:
//
//	sum       4   CRC32C of the body, then of the next 12 bytes, xor the segment's epoch
//	length    4   of the body in bytes, times 4, plus the kind
//	seq       4   operations of the log before this frame, less those before its segment
//	unsynced  4   bytes of log before this frame that were not known to be synced; 2^32-1: as many or more
//	body          padded with zeros to a multiple of 4 bytes
//
// In a moved segment every frame has seq 0 and unsynced 2^32-1, and what it holds is no newer than the operation
// that the begin frame names.
const (
	frameHeader = 16
	frameAlign  = 4

	// maxBody is the longest body that length can hold.
	maxBody = 1<<30 - 1
)

type frameKind uint32

const (
	frameBatch frameKind = 1 // body: a batch's encoding
	frameBegin frameKind = 2 // the first of a segment; body: begin
	frameEnd   frameKind = 3 // the last of a full log segment; body: successor
)

const (
	beginBody = 24
	endBody   = 8
	beginSize = frameHeader + beginBody
	endSize   = frameHeader + endBody
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func crcUpdate(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// frameSize is what a body takes in the log.
func frameSize(body int) int {
	return (frameHeader + body + frameAlign - 1) &^ (frameAlign - 1)
}

// frame is a decoded one.
type frame struct {
	kind     frameKind
	seq      uint32
	unsynced uint32
	body     []byte
}

func (f frame) size() int { return frameSize(len(f.body)) }

// synced returns up to where the log was known to be synced when the frame at lsn was made; false if
// the frame cannot tell.
func (f frame) synced(lsn uint64) (uint64, bool) {
	if f.unsynced == math.MaxUint32 || uint64(f.unsynced) > lsn {
		return 0, false
	}
	return lsn - uint64(f.unsynced), true
}

// putFrameHeader fills the header of a frame whose body has that length and checksum.
func putFrameHeader(dst []byte, epoch uint32, kind frameKind, body int, bodySum, seq, unsynced uint32) {
	_ = dst[frameHeader-1]
	binary.LittleEndian.PutUint32(dst[4:], uint32(body)<<2|uint32(kind))
	binary.LittleEndian.PutUint32(dst[8:], seq)
	binary.LittleEndian.PutUint32(dst[12:], unsynced)
	binary.LittleEndian.PutUint32(dst, crc32.Update(bodySum, castagnoli, dst[4:frameHeader])^epoch)
}

// parseFrame reads the frame at the beginning of b. It returns false if there is none that is
// whole and of this epoch.
func parseFrame(b []byte, epoch uint32) (frame, bool) {
	if len(b) < frameHeader {
		return frame{}, false
	}
	word := binary.LittleEndian.Uint32(b[4:])
	n := int(word >> 2)
	f := frame{kind: frameKind(word & 3), seq: binary.LittleEndian.Uint32(b[8:]),
		unsynced: binary.LittleEndian.Uint32(b[12:])}
	if f.kind == 0 || n > len(b)-frameHeader {
		return frame{}, false
	}
	f.body = b[frameHeader : frameHeader+n : frameHeader+n]
	if crc32.Update(checksum(f.body), castagnoli, b[4:frameHeader])^epoch != binary.LittleEndian.Uint32(b) {
		return frame{}, false
	}
	return f, true
}

// begin is what the first frame of a segment says.
type begin struct {
	seq  uint64 // of the last operation before the segment
	lsn  uint64 // of this frame: bytes of frames in the log before it
	prev uint32 // the log's segment before, 0 if none
}

func (b begin) put(dst []byte) {
	binary.LittleEndian.PutUint64(dst, b.seq)
	binary.LittleEndian.PutUint64(dst[8:], b.lsn)
	binary.LittleEndian.PutUint32(dst[16:], b.prev)
	binary.LittleEndian.PutUint32(dst[20:], 0)
}

func parseBegin(f frame) (begin, bool) {
	if f.kind != frameBegin || len(f.body) != beginBody {
		return begin{}, false
	}
	return begin{
		seq:  binary.LittleEndian.Uint64(f.body),
		lsn:  binary.LittleEndian.Uint64(f.body[8:]),
		prev: binary.LittleEndian.Uint32(f.body[16:]),
	}, true
}

// successor is what the last frame of a full segment says: which segment comes next, and
// whether that one's name was durable already. If so, it cannot be missing.
type successor struct {
	id      uint32
	durable bool
}

func (s successor) put(dst []byte) {
	binary.LittleEndian.PutUint32(dst, s.id)
	dst[4], dst[5], dst[6], dst[7] = 0, 0, 0, 0
	if s.durable {
		dst[4] = 1
	}
}

func parseEnd(f frame) (successor, bool) {
	if f.kind != frameEnd || len(f.body) != endBody {
		return successor{}, false
	}
	s := successor{binary.LittleEndian.Uint32(f.body), f.body[4] == 1}
	return s, s.id != 0
}

// record is one operation of a batch's encoding, and where in it the parts are.
type record struct {
	kind       holdfast.Kind
	key, value []byte
	valueAt    int // offset of the value from the record's first byte
	size       int // of the record
}

// parseRecord reads the record at the beginning of b; false means that there is no valid one.
func parseRecord(b []byte) (record, bool) {
	if len(b) == 0 {
		return record{}, false
	}
	r := record{kind: holdfast.Kind(b[0])}
	switch r.kind {
	case holdfast.KindSet, holdfast.KindDelete, holdfast.KindDeleteRange:
	default:
		return record{}, false
	}
	at := 1
	var ok bool
	if r.key, at, ok = parseString(b, at); !ok {
		return record{}, false
	}
	if r.kind != holdfast.KindDelete {
		if r.value, at, ok = parseString(b, at); !ok {
			return record{}, false
		}
		r.valueAt = at - len(r.value)
	}
	if r.kind != holdfast.KindDeleteRange && len(r.key) == 0 {
		return record{}, false
	}
	r.size = at
	return r, true
}

func parseString(b []byte, at int) (s []byte, next int, ok bool) {
	if at < len(b) && b[at] < 0x80 { // nearly always
		n := int(b[at])
		at++
		if n > len(b)-at {
			return nil, 0, false
		}
		return b[at : at+n : at+n], at + n, true
	}
	n, w := binary.Uvarint(b[at:])
	if w <= 0 || n > uint64(len(b)-at-w) {
		return nil, 0, false
	}
	at += w
	return b[at : at+int(n) : at+int(n)], at + int(n), true
}

// checkBody returns how many operations a batch's encoding holds, or an error if it is none.
func checkBody(body []byte) (ops int, err error) {
	for at := 0; at < len(body); ops++ {
		r, ok := parseRecord(body[at:])
		if !ok {
			return ops, fmt.Errorf("record %d, at byte %d of the batch, is malformed", ops, at)
		}
		at += r.size
	}
	return ops, nil
}
