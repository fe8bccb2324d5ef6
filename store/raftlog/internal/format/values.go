package format

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/store/internal/sealed"
)

// Every value begins with sum and head, see package sealed. The version is 1, but for the store's description.
const (
	version  = 1 << 4
	headSize = sealed.Size
)

// unseal returns the flags of a value and what follows them. ok is false for what is damaged, or
// not of this version.
func unseal(key, value []byte) (flags byte, body []byte, ok bool) {
	head, body, ok := sealed.Open(key, value)
	if !ok || head&^sealed.Flags != version {
		return 0, nil, false
	}

	return head & sealed.Flags, body, true
}

// The value of an entry:
//
//	sum, version
//	flags        4 bits: 0 to 2, how the time is stored; 4, there are extensions; 8, there is data
//	type         1 byte
//	term         uvarint
//	time         nothing for the zero time (0), 8 bytes, nanoseconds since 1970 UTC, signed (1),
//	             or, where these do not reach, 8 bytes, seconds since 1970 UTC, signed, and
//	             4 bytes, nanoseconds in the second (2)
//	length       uvarint, of the extensions, if there are any
//	extensions
//	data         up to the end
//
// A flag keeps an empty slice from becoming a nil one. Numbers take no more bytes than they need.
const (
	timeMask   = 3
	timeNanos  = 1
	timeWide   = 2
	extensions = 4
	data       = 8
)

// minSeconds and maxSeconds are the whole seconds since 1970 whose nanoseconds fit in an int64.
const (
	minSeconds = -1 << 63 / 1_000_000_000
	maxSeconds = (1<<63-1)/1_000_000_000 - 1
)

func timeKind(t time.Time) byte {
	if t.IsZero() {
		return 0
	}
	if sec := t.Unix(); sec < minSeconds || sec > maxSeconds {
		return timeWide
	}

	return timeNanos
}

// MaxHeader is the most that a value takes without extensions and data, in bytes.
const MaxHeader = headSize + 1 + binary.MaxVarintLen64 + 12 + binary.MaxVarintLen64

// LogSize is the length of the value of an entry.
func LogSize(log *raft.Log) int64 {
	n := int64(headSize+1+uvarintSize(log.Term)) + int64(len(log.Extensions)) + int64(len(log.Data))
	if log.Extensions != nil {
		n += int64(uvarintSize(uint64(len(log.Extensions))))
	}

	return n + [...]int64{0, 8, 12}[timeKind(log.AppendedAt)]
}

func uvarintSize(x uint64) int { return (bits.Len64(x|1) + 6) / 7 }

// AppendLog appends the value of the entry under key to dst.
func AppendLog(dst, key []byte, log *raft.Log) []byte {
	start := len(dst)
	at := timeKind(log.AppendedAt)
	head := version | at
	if log.Extensions != nil {
		head |= extensions
	}
	if log.Data != nil {
		head |= data
	}
	dst = append(sealed.Begin(dst, head), byte(log.Type))
	dst = binary.AppendUvarint(dst, log.Term)
	switch at {
	case timeNanos:
		dst = binary.BigEndian.AppendUint64(dst, uint64(log.AppendedAt.UnixNano()))
	case timeWide:
		dst = binary.BigEndian.AppendUint64(dst, uint64(log.AppendedAt.Unix()))
		dst = binary.BigEndian.AppendUint32(dst, uint32(log.AppendedAt.Nanosecond()))
	}
	if log.Extensions != nil {
		dst = binary.AppendUvarint(dst, uint64(len(log.Extensions)))
		dst = append(dst, log.Extensions...)
	}
	dst = append(dst, log.Data...)

	return sealed.Seal(dst, key, start)
}

// DecodeLog sets log to the entry whose value, under key, this is. Extensions and Data are parts of
// value, without room to grow. False means that it is no such entry, and log is as it was.
func DecodeLog(key, value []byte, index uint64, log *raft.Log) bool {
	flags, b, ok := unseal(key, value)
	if !ok || len(b) < 2 {
		return false
	}
	l := raft.Log{Index: index, Type: raft.LogType(b[0])}
	if l.Term, b, ok = uvarint(b[1:]); !ok {
		return false
	}

	switch flags & timeMask {
	case 0:
	case timeNanos:
		if len(b) < 8 {
			return false
		}
		l.AppendedAt, b = time.Unix(0, int64(binary.BigEndian.Uint64(b))).UTC(), b[8:]
	default:
		if len(b) < 12 {
			return false
		}
		nanos := binary.BigEndian.Uint32(b[8:])
		if nanos >= 1_000_000_000 {
			return false
		}
		l.AppendedAt, b = time.Unix(int64(binary.BigEndian.Uint64(b)), int64(nanos)).UTC(), b[12:]
	}
	if timeKind(l.AppendedAt) != flags&timeMask {
		return false
	}
	if flags&extensions != 0 {
		var n uint64
		if n, b, ok = uvarint(b); !ok || n > uint64(len(b)) {
			return false
		}
		l.Extensions, b = b[:n:n], b[n:]
	}
	if flags&data != 0 {
		l.Data = b[:len(b):len(b)]
	} else if len(b) > 0 {
		return false
	}
	*log = l

	return true
}

// uvarint splits a number off b; false means that it is cut short, too large, or longer than it
// needs to be.
func uvarint(b []byte) (x uint64, rest []byte, ok bool) {
	x, w := binary.Uvarint(b)
	if w <= 0 || w > 1 && b[w-1] == 0 {
		return 0, nil, false
	}

	return x, b[w:], true
}

// StableOverhead is what storing a stable value adds to its size, in bytes.
const StableOverhead = headSize

// AppendStable appends what is stored under key, that of a stable value:
//
//	sum, version, flags 0
//	value      up to the end
func AppendStable(dst, key, value []byte) []byte {
	start := len(dst)
	dst = append(sealed.Begin(dst, version), value...)

	return sealed.Seal(dst, key, start)
}

// DecodeStable returns the stable value, a part of stored; false means that it is none.
func DecodeStable(key, stored []byte) ([]byte, bool) {
	flags, b, ok := unseal(key, stored)
	return b[:len(b):len(b)], ok && flags == 0
}

// AppendCommit appends the value of the commit index under its key:
//
//	sum, version, flags 0
//	index     8 bytes
func AppendCommit(dst, key []byte, index uint64) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint64(sealed.Begin(dst, version), index)

	return sealed.Seal(dst, key, start)
}

// DecodeCommit reads the commit index; false means that it is none.
func DecodeCommit(key, value []byte) (uint64, bool) {
	flags, b, ok := unseal(key, value)
	if !ok || flags != 0 || len(b) != 8 {
		return 0, false
	}

	return binary.BigEndian.Uint64(b), true
}

// Span is a run of indexes, Lo and Hi among them.
type Span struct{ Lo, Hi uint64 }

// Has reports whether index is in the span.
func (s Span) Has(index uint64) bool { return s.Lo <= index && index <= s.Hi }

// Meets reports whether an index is in both.
func (s Span) Meets(other Span) bool { return s.Lo <= other.Hi && other.Lo <= s.Hi }

// Meta is what a store knows of itself:
//
//	sum, version
//	flags     4 bits: 1, there are entries; 2, there are dead spans; 4, there is a void span
//	first     8 bytes, the index of the first entry, if there are entries
//	void      8 and 8 bytes, its first and last index, if there is one
//	dead      8 and 8 bytes for each, to the end, ascending, not touching
//
// What lies in a dead span has been deleted; it may still be found there, and counts for
// nothing. The void span is behind the last entry, or was when it was written: there is no entry in it,
// but there were some, which an engine may have to walk over. The last index is not in the description: it
// is that of the last entry.
//
// The version is 2 where there is a void span, or more than one dead span.
type Meta struct {
	Entries bool
	First   uint64 // 0 without entries
	Void    *Span
	Dead    []Span
}

const (
	metaEntries = 1
	metaDead    = 2
	metaVoid    = 4
	metaVersion = 2 << 4 // the latest
)

// AppendMeta appends the store's description, under its key.
func AppendMeta(dst, key []byte, m Meta) []byte {
	start := len(dst)
	head := byte(version)
	if m.Void != nil || len(m.Dead) > 1 {
		head = metaVersion
	}
	if m.Entries {
		head |= metaEntries
	}
	if len(m.Dead) > 0 {
		head |= metaDead
	}
	if m.Void != nil {
		head |= metaVoid
	}
	dst = sealed.Begin(dst, head)
	if m.Entries {
		dst = binary.BigEndian.AppendUint64(dst, m.First)
	}
	if m.Void != nil {
		dst = appendSpan(dst, *m.Void)
	}

	for _, dead := range m.Dead {
		dst = appendSpan(dst, dead)
	}

	return sealed.Seal(dst, key, start)
}

func appendSpan(dst []byte, s Span) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, s.Lo), s.Hi)
}

// span splits a span off b; false means that there is none.
func span(b []byte) (s Span, rest []byte, ok bool) {
	if len(b) < 16 {
		return Span{}, nil, false
	}
	s = Span{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}

	return s, b[16:], s.Lo <= s.Hi
}

// DecodeMeta reads the store's description. The error is ErrVersion or ErrCorrupt.
func DecodeMeta(key, value []byte) (Meta, error) {
	bad := func(class error, remedy, format string, args ...any) (Meta, error) {
		return Meta{}, failure.New("raftlog open", "", class, nil, remedy, format, args...)
	}
	head, b, ok := sealed.Open(key, value)
	if !ok {
		return bad(holdfast.ErrCorrupt, "check the engine's files, or make this server anew from the others",
			"the store's description has a wrong checksum")
	}
	if v := head >> 4; v > metaVersion>>4 {
		return bad(holdfast.ErrVersion, "use a newer holdfast",
			"the store has format %d, this program knows %d", v, metaVersion>>4)
	}
	flags := head & sealed.Flags
	var m Meta
	ok = head >= version && flags <= metaEntries|metaDead|metaVoid
	if ok && flags&metaEntries != 0 {
		if ok = len(b) >= 8; ok {
			m.Entries, m.First, b = true, binary.BigEndian.Uint64(b), b[8:]
		}
	}
	if ok && flags&metaVoid != 0 {
		m.Void = new(Span)
		*m.Void, b, ok = span(b)
		ok = ok && !(m.Entries && m.Void.Has(m.First))
	}

	for ok && flags&metaDead != 0 && (len(b) > 0 || m.Dead == nil) {
		var dead Span
		dead, b, ok = span(b)
		if n := len(m.Dead); n > 0 { // they do not touch either
			ok = ok && m.Dead[n-1].Hi < dead.Lo-1 && dead.Lo > 0
		}
		ok = ok && !(m.Entries && dead.Has(m.First))
		m.Dead = append(m.Dead, dead)
	}
	newer := m.Void != nil || len(m.Dead) > 1
	if !ok || len(b) > 0 || newer != (head&^sealed.Flags == metaVersion) {
		return bad(holdfast.ErrCorrupt, "", "the store's description is %x", value)
	}

	return m, nil
}
