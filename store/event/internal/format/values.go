package format

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/holdfastdb/holdfast"
)

// A record is the value of an event's key:
//
//	version    1 byte, 1
//	time       8 bytes, nanoseconds since 1970 UTC, signed
//	lengths    4 uvarints: of type, id, origin, metadata
//	type, id, origin, metadata
//	data       up to the end
const (
	recordVersion = 1
	recordFixed   = 1 + 8
	recordLengths = 4
)

// AppendRecord appends a record to dst.
func AppendRecord(dst []byte, time int64, typ, id, origin string, metadata, data []byte) []byte {
	if len(typ)|len(id)|len(origin)|len(metadata) < 0x80 { // all lengths of one byte
		t := uint64(time)
		dst = append(dst, recordVersion,
			byte(t>>56), byte(t>>48), byte(t>>40), byte(t>>32), byte(t>>24), byte(t>>16), byte(t>>8), byte(t),
			byte(len(typ)), byte(len(id)), byte(len(origin)), byte(len(metadata)))
	} else {
		dst = append(dst, recordVersion)
		dst = binary.BigEndian.AppendUint64(dst, uint64(time))
		for _, n := range [recordLengths]int{len(typ), len(id), len(origin), len(metadata)} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
	}
	dst = append(dst, typ...)
	if len(id)+len(origin)+len(metadata) > 0 {
		dst = append(dst, id...)
		dst = append(dst, origin...)
		dst = append(dst, metadata...)
	}
	return append(dst, data...)
}

// RecordSize is the length of a record with fields of these lengths.
func RecordSize(typ, id, origin, metadata, data int) int64 {
	n := int64(recordFixed) + int64(data)
	if typ|id|origin|metadata < 0x80 {
		return n + recordLengths + int64(typ+id+origin+metadata)
	}
	for _, length := range [...]int{typ, id, origin, metadata} {
		n += int64((bits.Len(uint(length)|1)+6)/7) + int64(length)
	}
	return n
}

// SplitRecord takes a record apart: fields holds type, id, origin and metadata, which end
// at the four offsets, and then the data. False means that it is not a record.
func SplitRecord(value []byte) (time int64, typ, id, origin, metadata int, fields []byte, ok bool) {
	if len(value) < recordFixed+recordLengths || value[0] != recordVersion {
		return 0, 0, 0, 0, 0, nil, false
	}
	time = int64(binary.BigEndian.Uint64(value[1:]))
	fields = value[recordFixed+recordLengths:]
	if h := binary.BigEndian.Uint32(value[recordFixed:]); h&0x80808080 == 0 { // all of one byte
		typ = int(h >> 24)
		id = typ + int(h>>16&0x7f)
		origin = id + int(h>>8&0x7f)
		metadata = origin + int(h&0x7f)
		return time, typ, id, origin, metadata, fields, metadata <= len(fields)
	}
	var ends [recordLengths]int
	fields = value[recordFixed:]
	for i := range ends {
		n, w := binary.Uvarint(fields)
		if w <= 0 || n > uint64(len(value)) {
			return 0, 0, 0, 0, 0, nil, false
		}
		ends[i], fields = int(n), fields[w:]
		if i > 0 {
			ends[i] += ends[i-1]
		}
	}
	return time, ends[0], ends[1], ends[2], ends[3], fields, ends[3] <= len(fields)
}

// Meta is what a store knows of itself:
//
//	version   1 byte, 1
//	window    8 bytes, positions per generation of ids, not 0
//	first     8 bytes, the first position that is not truncated, not 0
//
// The last position is not in it: it is that of the last event, or first-1 if there is
// none, since truncation never passes the end of the log.
type Meta struct{ Window, First uint64 }

const (
	metaVersion = 1
	metaSize    = 1 + 8 + 8
)

// Encode returns the value of the store's description.
func (m Meta) Encode() []byte {
	b := append(make([]byte, 0, metaSize), metaVersion)
	b = binary.BigEndian.AppendUint64(b, m.Window)
	return binary.BigEndian.AppendUint64(b, m.First)
}

// DecodeMeta reads the store's description. The error is ErrVersion or ErrCorrupt.
func DecodeMeta(b []byte) (Meta, error) {
	bad := func(class error, remedy, format string, args ...any) (Meta, error) {
		return Meta{}, &holdfast.Error{Op: "event open", Class: class, Remedy: remedy, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(b) == 0:
		return bad(holdfast.ErrCorrupt, "", "the store's description is empty")
	case b[0] > metaVersion:
		return bad(holdfast.ErrVersion, "use a newer holdfast", "the store has format %d, this program knows %d", b[0], metaVersion)
	case b[0] != metaVersion || len(b) != metaSize:
		return bad(holdfast.ErrCorrupt, "", "the store's description has %d bytes and begins with %d", len(b), b[0])
	}
	m := Meta{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}
	if m.Window == 0 || m.First == 0 {
		return bad(holdfast.ErrCorrupt, "", "the store's description says window %d and first position %d", m.Window, m.First)
	}
	return m, nil
}

// CursorSize is what an offset takes, and a snapshot beside its state.
const CursorSize = 1 + 8

const cursorVersion = 1

// AppendCursor appends the value of an offset, which is also what a snapshot begins with:
//
//	version    1 byte, 1
//	position   8 bytes
//	state      up to the end, in a snapshot
func AppendCursor(dst []byte, pos uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, cursorVersion), pos)
}

// DecodeCursor reads an offset or snapshot; false means that it is none.
func DecodeCursor(b []byte) (pos uint64, state []byte, ok bool) {
	if len(b) < CursorSize || b[0] != cursorVersion {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(b[1:]), b[CursorSize:], true
}
