package migrate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// decodeMsgpack reads a log as raft-boltdb writes it: a msgpack map of the fields' names to their values. It knows
// what the versions of go-msgpack from 0.5.5 on have written: byte strings as str or bin, times as the 15 or 16 bytes of
// time.Time's MarshalBinary, or as a msgpack timestamp with or without its extension type. Logs written before raft
// had Extensions or AppendedAt lack them. Anything else, an unknown field above all, is an error: the library would
// skip it in silence, and with it a field whose name is damaged. Nothing in log refers to b.
func decodeMsgpack(b []byte, log *raft.Log) error {
	d := unpacker{b: b}
	*log = raft.Log{}
	found := map[string]bool{}
	for range d.mapLen() {
		name := string(d.str())
		if found[name] && d.err == nil {
			return fmt.Errorf("the field %q is there twice", name)
		}
		found[name] = true
		switch name {
		case "Index":
			log.Index = d.uint()
		case "Term":
			log.Term = d.uint()
		case "Type":
			t := d.uint()
			if t > math.MaxUint8 {
				return fmt.Errorf("the type is %d", t)
			}
			log.Type = raft.LogType(t)
		case "Data":
			log.Data = d.bytes()
		case "Extensions":
			log.Extensions = d.bytes()
		case "AppendedAt":
			log.AppendedAt = d.time()
		default:
			d.fail("there is a field %s", quote([]byte(name)))
		}
		if d.err != nil {
			return d.err
		}
	}
	switch {
	case d.err != nil:
		return d.err
	case len(d.b) > 0:
		return fmt.Errorf("%d bytes follow it", len(d.b))
	}
	for _, name := range []string{"Index", "Term", "Type", "Data"} {
		if !found[name] {
			return fmt.Errorf("the field %q is missing", name)
		}
	}
	return nil
}

// unpacker takes values off b until the first that is not what was asked for.
type unpacker struct {
	b   []byte
	err error
}

var errShort = errors.New("it ends too early")

func (d *unpacker) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// take returns the next n bytes, nil after an error.
func (d *unpacker) take(n uint64) []byte {
	if d.err == nil && n > uint64(len(d.b)) {
		d.err = errShort
	}
	if d.err != nil {
		return nil
	}
	head := d.b[:n]
	d.b = d.b[n:]
	return head
}

// big returns the next n bytes, at most 8, as a number.
func (d *unpacker) big(n uint64) (v uint64) {
	for _, c := range d.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (d *unpacker) mapLen() int {
	switch c := d.big(1); {
	case d.err != nil:
	case c&0xF0 == 0x80:
		return int(c & 0x0F)
	case c == 0xDE:
		return int(d.big(2))
	default:
		d.fail("it is no map but begins with %#x", c)
	}
	return 0
}

// raw returns the next string or bytes, a part of b; nil for nil.
func (d *unpacker) raw() []byte {
	c := d.big(1)
	switch {
	case d.err != nil:
		return nil
	case c == 0xC0:
		return nil
	case c&0xE0 == 0xA0:
		c &= 0x1F
	case c == 0xC4, c == 0xD9: // bin 8, str 8
		c = d.big(1)
	case c == 0xC5, c == 0xDA:
		c = d.big(2)
	case c == 0xC6, c == 0xDB:
		c = d.big(4)
	default:
		d.fail("there should be bytes, and there is %#x", c)
		return nil
	}
	if b := d.take(c); b != nil {
		return b
	}
	return []byte{}
}

func (d *unpacker) str() []byte { return d.raw() }

// bytes is raw, copied.
func (d *unpacker) bytes() []byte {
	b := d.raw()
	if b == nil || d.err != nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

func (d *unpacker) uint() uint64 {
	switch c := d.big(1); {
	case d.err != nil:
	case c < 0x80:
		return c
	case c >= 0xCC && c <= 0xCF: // uint 8 to 64
		return d.big(1 << (c - 0xCC))
	case c >= 0xD0 && c <= 0xD3: // int 8 to 64
		n := uint64(1) << (c - 0xD0)
		v := d.big(n)
		if v>>(8*n-1) != 0 {
			d.fail("there is a negative number")
		}
		return v
	default:
		d.fail("there should be a number, and there is %#x", c)
	}
	return 0
}

func (d *unpacker) time() (t time.Time) {
	var b []byte
	if d.err == nil && len(d.b) > 0 {
		switch d.b[0] {
		case 0xD6, 0xD7: // an extension of 4 or 8 bytes
			b = d.ext(d.take(1)[0]-0xD6+1, 0)
		case 0xC7: // of as many as the next byte says
			d.take(1)
			b = d.ext(3, d.big(1))
		default:
			b = d.raw()
		}
	} else {
		d.take(1)
	}
	if d.err != nil || b == nil {
		return t
	}
	sec, nsec := int64(0), uint64(0)
	switch len(b) {
	case 15, 16:
		if err := t.UnmarshalBinary(b); err != nil {
			d.fail("the time: %w", err)
			return time.Time{}
		}
		if n := binary.BigEndian.Uint32(b[9:]); n >= 1e9 {
			d.fail("a time with %d nanoseconds", n)
		}
		return t
	case 4:
		sec = int64(binary.BigEndian.Uint32(b))
	case 8:
		v := binary.BigEndian.Uint64(b)
		sec, nsec = int64(v&(1<<34-1)), v>>34
	case 12:
		sec, nsec = int64(binary.BigEndian.Uint64(b[4:])), uint64(binary.BigEndian.Uint32(b))
	default:
		d.fail("a time of %d bytes", len(b))
	}
	if nsec >= 1e9 {
		d.fail("a time with %d nanoseconds", nsec)
	}
	return time.Unix(sec, int64(nsec)).UTC()
}

// ext returns the data of a timestamp extension, of 4 bytes in units, or of size bytes where that is not 0.
func (d *unpacker) ext(units byte, size uint64) []byte {
	if units == 3 && size != 12 {
		d.fail("an extension of %d bytes", size)
	}
	if tag := d.big(1); tag != 0xFF {
		d.fail("an extension of type %d", tag)
	}
	return d.take(uint64(units) * 4)
}

// decodeWAL reads a log as raft-wal's binary codec writes it. Nothing in log refers to b.
func decodeWAL(b []byte, log *raft.Log) error {
	*log = raft.Log{}
	var err error
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			err = errShort
			return 0
		}
		b = b[n:]
		return v
	}
	data := func() []byte {
		n := number()
		if n > uint64(len(b)) {
			err = errShort
		}
		if err != nil || n == 0 {
			return nil
		}
		head := append(make([]byte, 0, n), b[:n]...)
		b = b[n:]
		return head
	}
	log.Index, log.Term = number(), number()
	t := number()
	log.Type, log.Data, log.Extensions = raft.LogType(t), data(), data()
	switch {
	case err != nil:
		return err
	case t > math.MaxUint8:
		return fmt.Errorf("the type is %d", t)
	}
	if err := log.AppendedAt.UnmarshalBinary(b); err != nil {
		return err
	}
	if n := binary.BigEndian.Uint32(b[9:]); n >= 1e9 {
		return fmt.Errorf("a time with %d nanoseconds", n)
	}
	return nil
}
