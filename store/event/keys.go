package event

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfastdb/holdfast"
)

// Every key of a store begins with
//
//	'e'          this is an event store
//	length       1 byte, of the name; so no store's keys begin with another's
//	name
//	table        1 byte, below
//
// and goes on with
//
//	'e' position (8)              event: its record
//	'i' generation (8) id         position (8) of the event with that id
//	'm'                           meta: see meta
//	'o' name                      offset: version 1, position (8)
//	's' name                      snapshot: version 1, position (8), bytes
//
// All numbers are big-endian.
const (
	storeKind      = 'e'
	tableEvents    = 'e'
	tableIDs       = 'i'
	tableMeta      = 'm'
	tableOffsets   = 'o'
	tableSnapshots = 's'
)

// maxKeyOverhead is what a key holds beside the store's name and an id.
const maxKeyOverhead = 3 + 8

type prefix []byte

func newPrefix(name string) prefix {
	return append(prefix{storeKind, byte(len(name))}, name...)
}

// event sets dst to the key of the event at pos.
func (p prefix) event(dst []byte, pos uint64) []byte {
	dst = append(append(dst[:0], p...), tableEvents)
	return binary.BigEndian.AppendUint64(dst, pos)
}

// id sets dst to the key of id in generation g. With an empty id it is the lower bound
// of the generation.
func (p prefix) id(dst []byte, g uint64, id string) []byte {
	dst = append(append(dst[:0], p...), tableIDs)
	dst = binary.BigEndian.AppendUint64(dst, g)
	return append(dst, id...)
}

func (p prefix) meta() []byte { return p.named(tableMeta, "") }

func (p prefix) named(table byte, name string) []byte {
	return append(append(append([]byte(nil), p...), table), name...)
}

// position reads the position at the end of an event's key.
func position(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// meta is what a store knows of itself:
//
//	version   1 byte, 1
//	window    8 bytes, positions per generation of ids
//	first     8 bytes, the first position that is not truncated
//
// The last position is not in it: it is that of the last event, or first-1 if there is
// none, since truncation never passes the end of the log.
type meta struct{ window, first uint64 }

const (
	metaVersion = 1
	metaSize    = 1 + 8 + 8
)

func (m meta) encode() []byte {
	b := append(make([]byte, 0, metaSize), metaVersion)
	b = binary.BigEndian.AppendUint64(b, m.window)
	return binary.BigEndian.AppendUint64(b, m.first)
}

func decodeMeta(b []byte) (meta, error) {
	bad := func(class error, detail, remedy string) (meta, error) {
		return meta{}, &holdfast.Error{Op: "event open", Class: class, Detail: detail, Remedy: remedy}
	}
	switch {
	case len(b) == 0:
		return bad(holdfast.ErrCorrupt, "the store's description is empty", "")
	case b[0] > metaVersion:
		return bad(holdfast.ErrVersion, fmt.Sprintf("the store has format %d, this program knows %d", b[0], metaVersion), "use a newer holdfast")
	case b[0] != metaVersion || len(b) != metaSize:
		return bad(holdfast.ErrCorrupt, fmt.Sprintf("the store's description has %d bytes and begins with %d", len(b), b[0]), "")
	}
	m := meta{binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])}
	if m.window == 0 || m.first == 0 {
		return bad(holdfast.ErrCorrupt, fmt.Sprintf("the store's description says window %d and first position %d", m.window, m.first), "")
	}
	return m, nil
}

const (
	cursorVersion = 1
	cursorSize    = 1 + 8
)

// encodeCursor is the value of an offset, and the beginning of a snapshot's.
func encodeCursor(pos uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{cursorVersion}, pos)
}

func decodeCursor(b []byte) (pos uint64, rest []byte, ok bool) {
	if len(b) < cursorSize || b[0] != cursorVersion {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(b[1:]), b[cursorSize:], true
}
