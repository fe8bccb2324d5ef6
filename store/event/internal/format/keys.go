// Package format is the bytes of an event store: its keys and values. They are also drawn,
// with the rules that hold between them, in docs/format-event.md.
//
// All numbers are big-endian, and unsigned unless it says otherwise.
package format

import "encoding/binary"

// Every key of a store begins with
//
//	kind      1 byte, 'e': this is an event store
//	length    1 byte, of the name, so that no store's keys begin with another's
//	name
//	table     1 byte
//
// and goes on with
//
//	table 'e'   position (8 bytes)           the event there, see AppendRecord, or several of which it is
//	                                         the last, see BeginPack
//	table 'i'   generation (8 bytes), id     the position (8 bytes) of the event with that id
//	table 'm'                                the store itself, see Meta
//	table 'o'   subscription                 an offset, see AppendCursor
//	table 's'   projection                   a snapshot, see AppendCursor
const (
	kind           = 'e'
	TableEvents    = 'e'
	TableIDs       = 'i'
	TableMeta      = 'm'
	TableOffsets   = 'o'
	TableSnapshots = 's'
)

// KeyOverhead is what a key holds, at most, beside the store's name and one other.
const KeyOverhead = 3 + 8

// Prefix is what all keys of one store begin with.
type Prefix []byte

// NewPrefix returns the prefix of the store of that name, which has at most 255 bytes.
func NewPrefix(name string) Prefix {
	return append(Prefix{kind, byte(len(name))}, name...)
}

// Event sets dst to the key of the events that end at pos.
func (p Prefix) Event(dst []byte, pos uint64) []byte {
	dst = append(append(dst[:0], p...), TableEvents)
	return binary.BigEndian.AppendUint64(dst, pos)
}

// SetPosition changes the position in the key of an event.
func SetPosition(key []byte, pos uint64) {
	binary.BigEndian.PutUint64(key[len(key)-8:], pos)
}

// Events returns the bounds of the keys of all events.
func (p Prefix) Events() (lo, hi []byte) {
	return p.table(TableEvents), p.table(TableEvents + 1)
}

// Position reads the position from the key of an event; false means that it is none.
func (p Prefix) Position(key []byte) (uint64, bool) {
	if len(key) != len(p)+1+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[len(key)-8:]), true
}

// ID sets dst to the key of id in generation g. With an empty id, which no event has, it is
// the lower bound of the generation.
func (p Prefix) ID(dst []byte, g uint64, id string) []byte {
	dst = append(append(dst[:0], p...), TableIDs)
	return append(binary.BigEndian.AppendUint64(dst, g), id...)
}

// FromID returns the key of a place among the ids, [Meta].IDs.
func (p Prefix) FromID(place []byte) []byte {
	if len(place) == 0 {
		return p.ID(nil, 0, "")
	}
	return append(p.table(TableIDs), place...)
}

// Place is the opposite of FromID.
func (p Prefix) Place(key []byte) []byte { return key[len(p)+1:] }

// AppendPosition appends the value of the key of an id.
func AppendPosition(dst []byte, pos uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, pos)
}

// DecodePosition reads the value of the key of an id; false means that it is none.
func DecodePosition(value []byte) (uint64, bool) {
	if len(value) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(value), true
}

// Meta returns the key of the store's own description.
func (p Prefix) Meta() []byte { return p.table(TableMeta) }

// Offset returns the key of a subscription's offset.
func (p Prefix) Offset(subscription string) []byte {
	return append(p.table(TableOffsets), subscription...)
}

// Snapshot returns the key of a projection's snapshot.
func (p Prefix) Snapshot(projection string) []byte {
	return append(p.table(TableSnapshots), projection...)
}

func (p Prefix) table(t byte) []byte { return append(append([]byte(nil), p...), t) }

// Kind is what the keys of all stores of this kind begin with, and KindEnd what the keys behind them do.
var Kind, KindEnd = []byte{kind}, []byte{kind + 1}

// Split takes a key apart; false means that it is no store's.
func Split(key []byte) (name string, table byte, rest []byte, ok bool) {
	if len(key) < 3 || key[0] != kind || len(key) < 3+int(key[1]) {
		return "", 0, nil, false
	}
	at := 2 + int(key[1])
	return string(key[2:at]), key[at], key[at+1:], true
}
