package eventbus

import (
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// What the log's events have no place for goes into their metadata:
//
//	mark      1 byte, 0xeb
//	version   1 byte, 1
//	flags     1 byte, below
//	zone      varint, seconds east of UTC           with hasZone
//	second    varint, since 1970                    with hasTime
//	nano      uvarint                               with hasTime
//	count     uvarint                               with hasMap
//	pairs     count times, sorted by key: uvarint length, key, uvarint length, value
//
// An event that needs none of it has no metadata.
const (
	mark    = 0xeb
	version = 1

	hasZone   = 1 << 0 // the time is not in UTC
	hasTime   = 1 << 1 // the time is one that the log cannot keep
	hasMap    = 1 << 2 // the metadata is not nil
	emptyData = 1 << 3 // the data is empty, but not nil
)

// The log keeps times between these.
var (
	firstTime = time.Unix(0, -1<<63).Add(time.Second)
	lastTime  = time.Unix(0, 1<<63-1).Add(-time.Second)
)

// pack returns the time and the metadata of the event to append.
func pack(e *appended) (time.Time, []byte) {
	flags := byte(0)
	_, zone := e.Timestamp.Zone()
	if zone != 0 {
		flags |= hasZone
	}
	at := e.Timestamp
	if at.IsZero() || at.Before(firstTime) || at.After(lastTime) {
		flags |= hasTime
		at = time.Time{}
	}
	if e.Metadata != nil {
		flags |= hasMap
	}
	if e.Data != nil && len(e.Data) == 0 {
		flags |= emptyData
	}
	if flags == 0 {
		return at, nil
	}
	b := []byte{mark, version, flags}
	if flags&hasZone != 0 {
		b = binary.AppendVarint(b, int64(zone))
	}
	if flags&hasTime != 0 {
		b = binary.AppendVarint(b, e.Timestamp.Unix())
		b = binary.AppendUvarint(b, uint64(e.Timestamp.Nanosecond()))
	}
	if flags&hasMap != 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Metadata)))
		for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
			b = appendString(appendString(b, key), e.Metadata[key])
		}
	}
	return at, b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder reads what pack wrote. After something that it did not write, bad is set and
// what is read means nothing.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) envelope(at *time.Time, metadata *map[string]string, data *json.RawMessage) {
	if len(d.rest) < 3 || d.rest[0] != mark || d.rest[1] != version {
		d.bad = true
		return
	}
	flags := d.rest[2]
	d.rest = d.rest[3:]
	d.bad = flags >= emptyData<<1
	zone := int64(0)
	if flags&hasZone != 0 {
		zone = d.varint()
	}
	if flags&hasTime != 0 {
		second := d.varint()
		*at = time.Unix(second, int64(d.uvarint()%1e9)).UTC()
	}
	if zone != 0 {
		*at = at.In(time.FixedZone("", int(zone)))
	}
	if flags&hasMap != 0 {
		count := d.uvarint()
		if count > uint64(len(d.rest))/2 { // each pair takes two bytes or more
			d.bad = true
			return
		}
		*metadata = make(map[string]string, min(count, 64))
		for ; count > 0 && !d.bad; count-- {
			key := d.string()
			(*metadata)[key] = d.string()
		}
	}
	if flags&emptyData != 0 {
		*data = json.RawMessage{}
	}
}

func (d *decoder) varint() int64 {
	n, w := binary.Varint(d.rest)
	d.skip(w)
	return n
}

func (d *decoder) uvarint() uint64 {
	n, w := binary.Uvarint(d.rest)
	d.skip(w)
	return n
}

func (d *decoder) string() string {
	n := d.uvarint()
	if d.bad || n > uint64(len(d.rest)) {
		d.bad = true
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

// skip goes on by w bytes, which binary's decoders make 0 or negative if they fail.
func (d *decoder) skip(w int) {
	if w <= 0 {
		d.bad, d.rest = true, nil
		return
	}
	d.rest = d.rest[w:]
}
