package event

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"time"
)

// A record is the value of an event's key:
//
//	version    1 byte, 1
//	time       8 bytes, nanoseconds since 1970 UTC, signed, big-endian
//	lengths    4 uvarints: type, id, origin, metadata
//	type, id, origin, metadata
//	data       up to the end
const (
	recordVersion = 1
	fixedSize     = 1 + 8
)

// minSeconds and maxSeconds are the whole seconds whose nanoseconds fit in an int64.
const (
	minSeconds = -1 << 63 / 1_000_000_000
	maxSeconds = (1<<63-1)/1_000_000_000 - 1
)

// appendRecord appends e's record to dst; now stands in for a zero time.
func appendRecord(dst []byte, e *Event, now int64) []byte {
	if !e.Time.IsZero() {
		now = e.Time.UnixNano()
	}
	dst = append(dst, recordVersion)
	dst = binary.BigEndian.AppendUint64(dst, uint64(now))
	dst = binary.AppendUvarint(dst, uint64(len(e.Type)))
	dst = binary.AppendUvarint(dst, uint64(len(e.ID)))
	dst = binary.AppendUvarint(dst, uint64(len(e.Origin)))
	dst = binary.AppendUvarint(dst, uint64(len(e.Metadata)))
	dst = append(dst, e.Type...)
	dst = append(dst, e.ID...)
	dst = append(dst, e.Origin...)
	dst = append(dst, e.Metadata...)
	return append(dst, e.Data...)
}

// recordSize is the length of e's record.
func recordSize(e *Event) int64 {
	n := fixedSize + len(e.Data)
	for _, field := range [...]int{len(e.Type), len(e.ID), len(e.Origin), len(e.Metadata)} {
		n += (bits.Len(uint(field)|1)+6)/7 + field
	}
	return int64(n)
}

var (
	errRecordVersion = errors.New("its version is unknown")
	errRecordShort   = errors.New("it ends too early")
)

// decodeRecord fills r, but for the position, with slices of value.
func decodeRecord(r *Record, value []byte) error {
	if len(value) < fixedSize {
		return errRecordShort
	}
	if value[0] != recordVersion {
		return errRecordVersion
	}
	r.Time = time.Unix(0, int64(binary.BigEndian.Uint64(value[1:]))).UTC()
	rest := value[fixedSize:]
	var lengths [4]uint64
	for i := range lengths {
		n, w := binary.Uvarint(rest)
		if w <= 0 {
			return errRecordShort
		}
		lengths[i], rest = n, rest[w:]
	}
	for i, field := range [...]*[]byte{&r.Type, &r.ID, &r.Origin, &r.Metadata} {
		n := lengths[i]
		if n > uint64(len(rest)) {
			return errRecordShort
		}
		*field, rest = rest[:n:n], rest[n:]
	}
	r.Data = rest
	return nil
}
