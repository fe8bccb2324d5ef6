// Package format is the bytes of a logtree directory: frames and the records in them, the headers of segments, the
// manifest, the names of files, checksums, and the errors that say what is wrong with any of these. It reads and writes
// no files, has no state, and its functions may be called from many goroutines at once. What docs/format-logtree.md
// draws is here, except for tables.
//
// What is decoded shares memory with the bytes that it was decoded from, unless a function says that it copies. Any
// bytes may be decoded: what makes no sense is refused, and nothing panics.
package format

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
	FrameHeader = 16
	FrameAlign  = 4

	// MaxBody is the longest body that length can hold.
	MaxBody = 1<<30 - 1
)

// FrameKind says what a frame's body is.
type FrameKind uint32

const (
	KindBatch FrameKind = 1 // body: a batch's encoding
	KindBegin FrameKind = 2 // the first of a segment; body: begin
	KindEnd   FrameKind = 3 // the last of a full log segment; body: successor
)

// Sizes in bytes of what begins and ends a segment.
const (
	BeginBody = 24
	EndBody   = 8
	BeginSize = FrameHeader + BeginBody
	EndSize   = FrameHeader + EndBody
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is that of all files: CRC32C (Castagnoli).
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func checksumsEach(of *[4][]byte) (sums [4]uint32) {
	for i, b := range of {
		sums[i] = Checksum(b)
	}

	return sums
}

// UpdateChecksum goes on from the checksum of what is before b.
func UpdateChecksum(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// FrameSize is what a frame with a body of that length takes in the log, padding included.
func FrameSize(body int) int {
	return (FrameHeader + body + FrameAlign - 1) &^ (FrameAlign - 1)
}

// Frame is a decoded one. Body is part of what was decoded.
type Frame struct {
	Kind     FrameKind
	Seq      uint32
	Unsynced uint32
	Body     []byte
}

// Size is what the frame takes in the log, padding included.
func (f Frame) Size() int { return FrameSize(len(f.Body)) }

// Synced returns up to where the log was known to be synced when the frame at lsn was made; false if
// the frame cannot tell.
func (f Frame) Synced(lsn uint64) (uint64, bool) {
	if f.Unsynced == math.MaxUint32 || uint64(f.Unsynced) > lsn {
		return 0, false
	}

	return lsn - uint64(f.Unsynced), true
}

// PutFrameHeader fills the header of a frame whose body has that length and checksum.
func PutFrameHeader(dst []byte, epoch uint32, kind FrameKind, body int, bodySum, seq, unsynced uint32) {
	// One check of the bounds for all that follow.
	_ = dst[FrameHeader-1]
	binary.LittleEndian.PutUint32(dst[4:], uint32(body)<<2|uint32(kind))
	binary.LittleEndian.PutUint32(dst[8:], seq)
	binary.LittleEndian.PutUint32(dst[12:], unsynced)

	// The header's other fields come after the body in the sum, so that the body's checksum can be made before the
	// frame's place is known.
	binary.LittleEndian.PutUint32(dst, crc32.Update(bodySum, castagnoli, dst[4:FrameHeader])^epoch)
}

// AppendFrame appends a whole frame.
func AppendFrame(dst []byte, epoch uint32, kind FrameKind, body []byte, seq, unsynced uint32) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, FrameSize(len(body)))...)
	copy(dst[at+FrameHeader:], body)
	PutFrameHeader(dst[at:], epoch, kind, len(body), Checksum(body), seq, unsynced)

	return dst
}

// FrameLength is what the frame at the beginning of b says that it takes in the log, padding included, unchecked;
// false: its header is not whole.
func FrameLength(b []byte) (size int, ok bool) {
	if len(b) < FrameHeader {
		return 0, false
	}

	return FrameSize(int(binary.LittleEndian.Uint32(b[4:]) >> 2)), true
}

// ParseFrame reads the frame at the beginning of b. It returns false if there is none that is
// whole and of this epoch.
func ParseFrame(b []byte, epoch uint32) (Frame, bool) {
	if len(b) < FrameHeader {
		return Frame{}, false
	}

	// The length is compared with what is there before anything is summed up: it may be any number.
	word := binary.LittleEndian.Uint32(b[4:])
	n := int(word >> 2)
	f := Frame{Kind: FrameKind(word & 3), Seq: binary.LittleEndian.Uint32(b[8:]),
		Unsynced: binary.LittleEndian.Uint32(b[12:])}
	if f.Kind == 0 || n > len(b)-FrameHeader {
		return Frame{}, false
	}
	f.Body = b[FrameHeader : FrameHeader+n : FrameHeader+n]
	if crc32.Update(Checksum(f.Body), castagnoli, b[4:FrameHeader])^epoch != binary.LittleEndian.Uint32(b) {
		return Frame{}, false
	}

	return f, true
}

// Begin is what the first frame of a segment says.
type Begin struct {
	Seq  uint64 // of the last operation before the segment
	LSN  uint64 // of this frame: bytes of frames in the log before it
	Prev uint32 // the log's segment before, 0 if none
}

// Put fills dst, of BeginBody bytes.
func (b Begin) Put(dst []byte) {
	binary.LittleEndian.PutUint64(dst, b.Seq)
	binary.LittleEndian.PutUint64(dst[8:], b.LSN)
	binary.LittleEndian.PutUint32(dst[16:], b.Prev)
	binary.LittleEndian.PutUint32(dst[20:], 0)
}

// ParseBegin reads a begin frame; false: it is none.
func ParseBegin(f Frame) (Begin, bool) {
	if f.Kind != KindBegin || len(f.Body) != BeginBody {
		return Begin{}, false
	}

	return Begin{
		Seq:  binary.LittleEndian.Uint64(f.Body),
		LSN:  binary.LittleEndian.Uint64(f.Body[8:]),
		Prev: binary.LittleEndian.Uint32(f.Body[16:]),
	}, true
}

// Successor is what the last frame of a full segment says: which segment comes next, and
// whether that one's name was durable already. If so, it cannot be missing.
type Successor struct {
	ID      uint32
	Durable bool
}

// Put fills dst, of EndBody bytes.
func (s Successor) Put(dst []byte) {
	binary.LittleEndian.PutUint32(dst, s.ID)
	dst[4], dst[5], dst[6], dst[7] = 0, 0, 0, 0
	if s.Durable {
		dst[4] = 1
	}
}

// ParseEnd reads an end frame; false: it is none.
func ParseEnd(f Frame) (Successor, bool) {
	if f.Kind != KindEnd || len(f.Body) != EndBody {
		return Successor{}, false
	}
	s := Successor{binary.LittleEndian.Uint32(f.Body), f.Body[4] == 1}

	return s, s.ID != 0
}

// Record is one operation of a batch's encoding, and where in it the parts are.
type Record struct {
	Kind       holdfast.Kind
	Key, Value []byte
	ValueAt    int // offset of the value from the record's first byte
	Size       int // of the record
}

// ParseRecord reads the record at the beginning of b; false means that there is no valid one.
func ParseRecord(b []byte) (Record, bool) {
	if len(b) == 0 {
		return Record{}, false
	}

	r := Record{Kind: holdfast.Kind(b[0])}
	switch r.Kind {
	case holdfast.KindSet, holdfast.KindDelete, holdfast.KindDeleteRange:
	default:
		return Record{}, false
	}
	at := 1
	var ok bool
	if r.Key, at, ok = parseString(b, at); !ok {
		return Record{}, false
	}
	if r.Kind != holdfast.KindDelete {
		if r.Value, at, ok = parseString(b, at); !ok {
			return Record{}, false
		}
		r.ValueAt = at - len(r.Value)
	}
	if r.Kind != holdfast.KindDeleteRange && len(r.Key) == 0 {
		return Record{}, false
	}
	r.Size = at

	return r, true
}

// ParseRecordHead reads a record up to its value, of which it says how long it is, and how long all of the record is.
func ParseRecordHead(b []byte) (key []byte, value, size int64, ok bool) {
	if len(b) == 0 {
		return nil, 0, 0, false
	}
	key, at, ok := parseString(b, 1)
	if ok && holdfast.Kind(b[0]) != holdfast.KindDelete {
		n, w := binary.Uvarint(b[at:])
		if w <= 0 || n > holdfast.MaxBatchSize {
			return nil, 0, 0, false
		}
		value, at = int64(n), at+w
	}

	return key, value, int64(at) + value, ok
}

// parseString reads a string with its length before it, and returns where it ends. It never looks beyond b.
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

// CheckBatch returns how many operations a batch's encoding holds, or an error if it is none.
func CheckBatch(body []byte) (ops int, err error) {
	for at := 0; at < len(body); ops++ {
		r, ok := ParseRecord(body[at:])
		if !ok {
			return ops, fmt.Errorf("record %d, at byte %d of the batch, is malformed", ops, at)
		}
		at += r.Size
	}

	return ops, nil
}
