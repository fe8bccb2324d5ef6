package format

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
)

// A record is the value of the key of an event that is not in a pack:
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

// A pack is the value of the key of the last of several events that one append has put at
// positions in a row:
//
//	version    1 byte, 2
//	count      1 byte, of events, 2 or more
//	time       8 bytes, of the first: nanoseconds since 1970 UTC, signed
//	entries    as many as count says, each
//	             time       uvarint, zigzag: nanoseconds after the first, modulo 2^64
//	             lengths    5 uvarints: of type, id, origin, metadata, data
//	             type, id, origin, metadata, data
//
// and nothing follows the last of them.
const (
	packVersion = 2
	packCount   = 1 // where the count is
	entryFields = 6

	// PackHead is the size of a pack without its entries, in bytes.
	PackHead = 1 + 1 + 8
	// MaxPack is how many events a pack holds at most.
	MaxPack = 1<<8 - 1
	// MaxEntryHead is the most that an entry takes without its fields, in bytes.
	MaxEntryHead = entryFields * binary.MaxVarintLen64
)

// BeginPack appends the head of a pack to dst; AppendEntry follows, then EndPack.
func BeginPack(dst []byte, time int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, packVersion, 0), uint64(time))
}

// AppendEntry appends an entry to a pack. after is how much later it is than the first, modulo 2^64.
func AppendEntry(pack []byte, after int64, typ, id, origin string, metadata, data []byte) []byte {
	size := len(typ) + len(id) + len(origin) + len(metadata) + len(data)
	pack = slices.Grow(pack, MaxEntryHead+size)
	n, zigzag := len(pack), uint64(after)<<1^uint64(after>>63)
	pack = pack[:n+MaxEntryHead+size]
	if zigzag|uint64(len(typ)|len(id)|len(origin)|len(metadata)) < 0x80 && len(data) < 1<<14 {
		head := zigzag | uint64(len(typ))<<8 | uint64(len(id))<<16 | uint64(len(origin))<<24 | uint64(len(metadata))<<32
		if len(data) < 0x80 {
			binary.LittleEndian.PutUint64(pack[n:], head|uint64(len(data))<<40)
			n += entryFields
		} else {
			binary.LittleEndian.PutUint64(pack[n:], head|uint64(len(data)&0x7f|0x80)<<40|uint64(len(data)>>7)<<48)
			n += entryFields + 1
		}
	} else {
		n += binary.PutUvarint(pack[n:], zigzag)
		for _, length := range [...]int{len(typ), len(id), len(origin), len(metadata), len(data)} {
			n += binary.PutUvarint(pack[n:], uint64(length))
		}
	}
	n += copy(pack[n:], typ)
	if len(id)|len(origin)|len(metadata) != 0 {
		n += copy(pack[n:], id)
		n += copy(pack[n:], origin)
		n += copy(pack[n:], metadata)
	}
	n += copy(pack[n:], data)
	return pack[:n]
}

// EndPack writes how many entries the pack has: 2 to MaxPack.
func EndPack(pack []byte, count int) { pack[packCount] = byte(count) }

// A hole is the value of the key of the last of several positions in a row that have no event, because none was put
// there or it was removed:
//
//	version    1 byte, 3
//	count      8 bytes, of positions, not 0
const (
	holeVersion = 3
	holeSize    = 1 + 8
)

// AppendHole appends a hole of count positions to dst.
func AppendHole(dst []byte, count uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, holeVersion), count)
}

// IsHole reports whether the value of an event's key is a hole.
func IsHole(value []byte) bool { return len(value) == holeSize && value[0] == holeVersion }

// A stamp stands before a record or a pack if the time of one of its events was given, and is not that of the log's own
// clock:
//
//	version    1 byte, 4
//	written    8 bytes, when it was written by that clock: nanoseconds since 1970 UTC, signed, not 0
const (
	stampVersion = 4

	// StampSize is the size of a stamp, in bytes.
	StampSize = 1 + 8
)

// AppendStamp appends a stamp to dst; AppendRecord or BeginPack follows.
func AppendStamp(dst []byte, written int64) []byte {
	if written == 0 {
		written = 1
	}
	return binary.BigEndian.AppendUint64(append(dst, stampVersion), uint64(written))
}

// SplitStamp takes the stamp from before a record or pack; 0 means that there is none.
func SplitStamp(value []byte) (written int64, rest []byte) {
	if len(value) <= StampSize || value[0] != stampVersion {
		return 0, value
	}
	return int64(binary.BigEndian.Uint64(value[1:])), value[StampSize:]
}

// Count returns how many positions the value of an event's key is for, as far as its first bytes tell: 1 too for what
// is neither a record nor a pack nor a hole.
func Count(value []byte) uint64 {
	if len(value) > StampSize && value[0] == stampVersion {
		if value = value[StampSize:]; IsHole(value) {
			return 1
		}
	}
	switch {
	case len(value) > PackHead && value[0] == packVersion:
		return max(1, uint64(value[packCount]))
	case IsHole(value):
		return max(1, binary.BigEndian.Uint64(value[1:]))
	}
	return 1
}

// SplitPack returns the time of a pack's first event, and its entries. False means that it is not a
// pack.
func SplitPack(value []byte) (time int64, entries []byte, ok bool) {
	if len(value) <= PackHead || value[0] != packVersion || value[packCount] < 2 {
		return 0, nil, false
	}
	return int64(binary.BigEndian.Uint64(value[2:])), value[PackHead:], true
}

// SplitEntry takes the entry apart that b begins with: the fields begin after head bytes and end,
// counted from there, at the offsets; the next entry follows data. With a head of 0 it is not an
// entry.
func SplitEntry(b []byte) (head int, after int64, typ, id, origin, metadata, data int) {
	if len(b) < 8 {
		return splitEntry(b)
	}
	h := binary.LittleEndian.Uint64(b)
	if h&0x8080808080 != 0 || h&(0x8080<<40) == 0x8080<<40 {
		return splitEntry(b)
	}
	head, data = entryFields, int(h>>40&0x7f)
	if h&(0x80<<40) != 0 {
		head, data = entryFields+1, data|int(h>>48&0x7f)<<7
	}
	typ = int(h >> 8 & 0x7f)
	id = typ + int(h>>16&0x7f)
	origin = id + int(h>>24&0x7f)
	metadata = origin + int(h>>32&0x7f)
	data += metadata
	if data > len(b)-head {
		return 0, 0, 0, 0, 0, 0, 0
	}
	return head, int64(h>>1&0x3f) ^ -int64(h&1), typ, id, origin, metadata, data
}

// splitEntry is SplitEntry for lengths of any kind.
func splitEntry(b []byte) (head int, after int64, typ, id, origin, metadata, data int) {
	var f [entryFields]uint64
	for i := range f {
		n, w := binary.Uvarint(b[head:])
		if w <= 0 || i > 0 && n > uint64(len(b)) {
			return 0, 0, 0, 0, 0, 0, 0
		}
		if f[i], head = n, head+w; i > 1 {
			f[i] += f[i-1]
		}
	}
	if f[entryFields-1] > uint64(len(b)-head) {
		return 0, 0, 0, 0, 0, 0, 0
	}
	return head, int64(f[0]>>1) ^ -int64(f[0]&1), int(f[1]), int(f[2]), int(f[3]), int(f[4]), int(f[5])
}

// Meta is what a store knows of itself:
//
//	version   1 byte, 3, or 4 in a log that has or had holes, or 5 with flags
//	window    8 bytes, positions per generation of ids, not 0
//	first     8 bytes, the first position that is not truncated, not 0
//	removed   8 bytes, a position, at most first: no event has a key below it
//	flags     1 byte, only in version 5: 1 for holes, 2 for stamps, 4 for folded ids
//	ids       8 bytes and up to an id, to the end: no id has a key that goes on with less
//
// Versions 1, where no packs are, and 2 end before removed; both it and ids are then 0.
//
// The last position is not in it: it is that of the last event, or first-1 if there is
// none, since truncation never passes the end of the log.
type Meta struct {
	Window, First, Removed uint64
	IDs                    []byte // never written to; nil is the beginning
	Holes                  bool   // there may be some
	Stamps                 bool   // there may be some
	Folded                 bool   // the keys of ids have no capital letters of ASCII
}

// Version is the format that is written, if that is enough. Programs that know only this one would take holes for
// damage, so a log with them has the next version; and stamps, or write ids that are not folded, so one with flags has
// the one after that. All from 1 on are read.
const Version = 3

const (
	versionHoles = Version + 1
	versionFlags = Version + 2
)

const (
	flagHoles = 1 << iota
	flagStamps
	flagFolded
	flagsKnown = flagHoles | flagStamps | flagFolded
)

const (
	metaOld  = 1 + 8 + 8
	metaSize = metaOld + 8 + 8 // at least
)

// Encode returns the value of the store's description.
func (m Meta) Encode() []byte {
	b := append(make([]byte, 0, metaSize+1+len(m.IDs)), Version)
	switch {
	case m.Stamps || m.Folded:
		b[0] = versionFlags
	case m.Holes:
		b[0] = versionHoles
	}
	b = binary.BigEndian.AppendUint64(b, m.Window)
	b = binary.BigEndian.AppendUint64(b, m.First)
	b = binary.BigEndian.AppendUint64(b, m.Removed)
	if b[0] == versionFlags {
		flags := byte(0)
		if m.Holes {
			flags |= flagHoles
		}
		if m.Stamps {
			flags |= flagStamps
		}
		if m.Folded {
			flags |= flagFolded
		}
		b = append(b, flags)
	}
	if len(m.IDs) == 0 {
		return append(b, make([]byte, 8)...)
	}
	return append(b, m.IDs...)
}

// MetaVersion returns the format of a store that has the description b, which DecodeMeta has read.
func MetaVersion(b []byte) int { return int(b[0]) }

// DecodeMeta reads the store's description. The error is ErrVersion or ErrCorrupt.
func DecodeMeta(b []byte) (Meta, error) {
	bad := func(class error, remedy, format string, args ...any) (Meta, error) {
		return Meta{}, failure.New("event open", "", class, nil, remedy, format, args...)
	}
	switch {
	case len(b) == 0:
		return bad(holdfast.ErrCorrupt, "", "the store's description is empty")
	case b[0] > versionFlags:
		return bad(holdfast.ErrVersion, "use a newer holdfast", "the store has format %d, this program knows %d", b[0],
			versionFlags)
	case b[0] == 0 || b[0] < Version && len(b) != metaOld || b[0] >= Version && len(b) < metaSize ||
		b[0] == versionFlags && len(b) < metaSize+1:
		return bad(holdfast.ErrCorrupt, "", "the store's description has %d bytes and begins with %d", len(b), b[0])
	}
	m := Meta{Window: binary.BigEndian.Uint64(b[1:]), First: binary.BigEndian.Uint64(b[9:]), Holes: b[0] == versionHoles}
	if b[0] >= Version {
		m.Removed, m.IDs = binary.BigEndian.Uint64(b[metaOld:]), b[metaOld+8:]
	}
	if b[0] == versionFlags {
		flags := m.IDs[0]
		if flags&^flagsKnown != 0 {
			return bad(holdfast.ErrVersion, "use a newer holdfast", "the store has the flags %b, this program knows %b", flags,
				flagsKnown)
		}
		if flags&(flagStamps|flagFolded) == 0 { // without them it has another version
			return bad(holdfast.ErrCorrupt, "", "the store's description has format %d and the flags %b", b[0], flags)
		}
		m.IDs, m.Holes = m.IDs[1:], flags&flagHoles != 0
		m.Stamps, m.Folded = flags&flagStamps != 0, flags&flagFolded != 0
	}
	if m.Window == 0 || m.First == 0 || m.Removed > m.First {
		return bad(holdfast.ErrCorrupt, "", "the store's description says window %d, first position %d, and nothing "+
			"below %d", m.Window, m.First, m.Removed)
	}
	return m, nil
}

// CursorSize is the size of an offset, and of a snapshot without its state, in bytes.
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
