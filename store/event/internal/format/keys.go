// Package format is the bytes of an event store: its keys and values. They are also drawn,
// with the rules that hold between them, in docs/format-event.md.
//
// All numbers are big-endian, and unsigned unless it says otherwise.
package format

import (
	"encoding/binary"

	"github.com/holdfastdb/holdfast/internal/keyspace"
)

// Every key of a log begins as package keyspace says, and continues behind the table with
//
//	table 'e'   position (8 bytes)           the event there, see AppendRecord, several of which it is the
//	                                         last, see BeginPack, or none, see AppendHole
//	table 'h'   number (8 bytes)             a part of the history, see Part
//	table 'i'   generation (8 bytes), id     the position (8 bytes) of the event with that id
//	table 'm'                                the log itself, see Meta
//	table 'o'   subscription                 an offset, see AppendCursor
//	table 's'   projection                   a snapshot, see AppendCursor
//	table 'w'                                a position and a time (8 bytes each): all up to there was there then
const (
	TableEvents    = 'e'
	TableHistory   = 'h'
	TableIDs       = 'i'
	TableMeta      = 'm'
	TableOffsets   = 'o'
	TableSnapshots = 's'
	TableMark      = 'w'
)

// Kind is what kind of store it is, which the keys begin with.
var Kind = keyspace.Events

// Prefix is what all keys of one log begin with.
type Prefix struct{ keyspace.Prefix }

// NewPrefix returns the prefix of the log of that name, which has at most 255 bytes.
func NewPrefix(name string) Prefix { return Prefix{keyspace.New(Kind, name)} }

// Event sets dst to the key of the events that end at pos.
func (p Prefix) Event(dst []byte, pos uint64) []byte { return p.Numbered(dst, TableEvents, pos) }

// Events returns the bounds of the keys of all events.
func (p Prefix) Events() (lo, hi []byte) { return p.Table(TableEvents) }

// ID sets dst to the key of id in generation g. With an empty id, which no event has, it is
// the lower bound of the generation.
func (p Prefix) ID(dst []byte, g uint64, id string) []byte {
	return append(p.Numbered(dst, TableIDs, g), id...)
}

// FromID returns the key of a place among the ids, [Meta].IDs, which is what follows the table in one.
func (p Prefix) FromID(place []byte) []byte {
	if len(place) == 0 {
		return p.ID(nil, 0, "")
	}
	return p.Key(nil, TableIDs, string(place))
}

// AppendPosition appends the value of the key of an id.
func AppendPosition(dst []byte, pos uint64) []byte {
	return binary.BigEndian.AppendUint64(dst, pos)
}

// Part returns the key of the part of the history of that number, from 1.
func (p Prefix) Part(no uint64) []byte { return p.Numbered(nil, TableHistory, no) }

// Meta returns the key of the log's own description.
func (p Prefix) Meta() []byte { return p.Key(nil, TableMeta, "") }

// Mark returns the key of the mark of retention.
func (p Prefix) Mark() []byte { return p.Key(nil, TableMark, "") }

// AppendMark appends the value of that key; time is in nanoseconds since 1970.
func AppendMark(dst []byte, pos uint64, time int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, pos), uint64(time))
}

// DecodeMark reads a mark; false means that it is none.
func DecodeMark(b []byte) (pos uint64, time int64, ok bool) {
	if len(b) != 16 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:])), true
}

// Offset returns the key of a subscription's offset.
func (p Prefix) Offset(subscription string) []byte { return p.Key(nil, TableOffsets, subscription) }

// Snapshot returns the key of a projection's snapshot.
func (p Prefix) Snapshot(projection string) []byte { return p.Key(nil, TableSnapshots, projection) }
