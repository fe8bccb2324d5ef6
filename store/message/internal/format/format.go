// Package format is the bytes of a message store: its keys and values. They are also drawn, with the rules that hold
// between them, in docs/format-message.md.
//
// All numbers are big-endian.
package format

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/holdfastdb/holdfast/internal/keyspace"
)

// Every key of a store begins as package keyspace says, and continues behind the table with
//
//	table 'm'                                                   the store itself: version (1 byte), the number that the
//	                                                            next namespace gets (8 bytes)
//	table 'n'   id                                              a namespace, as JSON
//	table 'd'   number (8 bytes)                                nothing: a namespace that is being deleted
//
// and, for each namespace, after its number (8 bytes)
//
//	table 's'   stream, 0, position (8 bytes)                   the global position (8 bytes) of that message
//	table 'c'   category, 0, block (8 bytes)                    nothing: the category has messages in the block
//	table 'h'   stream                                          what is special about a stream, as JSON
//	table 'k'   category                                        counts: messages, streams (8 bytes each)
//	table 'p'                                                   a global position (8 bytes), which counts reach up to
//	table 'q'   subscription, 0, global position (8 bytes)      what became of a message there, as JSON; at 0, where
//	                                                            it begins: the first global position not done (8 bytes)
//	table 'x'   subscription, 0, global position (8 bytes)      a message that is parked, as JSON
//
// The messages themselves are the events of a log, see LogName. A block is BlockSize global positions: block b has
// those from b*BlockSize on.
const (
	TableMeta       = 'm'
	TableNamespaces = 'n'
	TableDeleted    = 'd'
	TableStreams    = 's'
	TableCategories = 'c'
	TableHeads      = 'h'
	TableCounts     = 'k'
	TableCounted    = 'p'
	TableDeliveries = 'q'
	TableParked     = 'x'

	Version   = 1
	BlockSize = 16
)

// Kind is what kind of store it is, which the keys begin with.
var Kind = keyspace.Messages

// Tables are the tables that keep what belongs to a namespace.
var Tables = [...]byte{TableStreams, TableCategories, TableHeads, TableCounts, TableCounted,
	TableDeliveries, TableParked}

// Store is what all keys of one store begin with.
type Store struct{ keyspace.Prefix }

// New returns the prefix of the store of that name.
func New(name string) Store { return Store{keyspace.New(Kind, name)} }

// Namespace returns the key of a namespace's description.
func (s Store) Namespace(id string) []byte { return s.Key(nil, TableNamespaces, id) }

// Meta returns the key of the store's description.
func (s Store) Meta() []byte { return s.Key(nil, TableMeta, "") }

// Deleted returns the key that says that a namespace is being deleted.
func (s Store) Deleted(number uint64) []byte { return s.Numbered(nil, TableDeleted, number) }

// LogName returns the name of the log that has the messages of a namespace: the letters "message", the store's name
// after a zero byte, and the number.
func LogName(store string, number uint64) string {
	return string(binary.BigEndian.AppendUint64([]byte("message\x00"+store), number))
}

// SplitLogName returns the store and the number of the namespace whose messages a log has; false means that it has
// none.
func SplitLogName(log string) (store string, number uint64, ok bool) {
	rest, ok := strings.CutPrefix(log, "message\x00")
	if !ok || len(rest) < 8 {
		return "", 0, false
	}
	at := len(rest) - 8
	return rest[:at], binary.BigEndian.Uint64([]byte(rest[at:])), true
}

// LogNameOverhead is how much longer a log's name is than the store's, in bytes.
const LogNameOverhead = len("message\x00") + 8

// Namespace makes the keys of one namespace. It may be used from many goroutines at once.
type Namespace struct {
	store  Store
	number uint64
}

// Of returns the keys of the namespace of that number.
func (s Store) Of(number uint64) Namespace { return Namespace{s, number} }

// Bounds returns the bounds of what the namespace has in a table.
func (n Namespace) Bounds(table byte) (lo, hi []byte) {
	return n.store.Numbered(nil, table, n.number), n.store.Numbered(nil, table, n.number+1)
}

func (n Namespace) named(dst []byte, table byte, name string) []byte {
	return append(n.store.Numbered(dst, table, n.number), name...)
}

func (n Namespace) placed(dst []byte, table byte, name string, at uint64) []byte {
	return binary.BigEndian.AppendUint64(append(n.named(dst, table, name), 0), at)
}

// Stream sets dst to the key of a message by its stream and its position in it.
func (n Namespace) Stream(dst []byte, stream string, position uint64) []byte {
	return n.placed(dst, TableStreams, stream, position)
}

// AfterStream sets dst to a key behind those of all messages of a stream and before those of the next one.
func (n Namespace) AfterStream(dst []byte, stream string) []byte {
	return append(n.named(dst, TableStreams, stream), 1)
}

// FromStream sets dst to a key before those of the first stream that does not come before name.
func (n Namespace) FromStream(dst []byte, name string) []byte {
	return n.named(dst, TableStreams, name)
}

// Category sets dst to the key that says that a category has messages in a block.
func (n Namespace) Category(dst []byte, category string, block uint64) []byte {
	return n.placed(dst, TableCategories, category, block)
}

// AfterCategory sets dst to a key behind those of all blocks of a category.
func (n Namespace) AfterCategory(dst []byte, category string) []byte {
	return append(n.named(dst, TableCategories, category), 1)
}

// Head returns the key of what is special about a stream.
func (n Namespace) Head(stream string) []byte { return n.named(nil, TableHeads, stream) }

// Count returns the key of a category's counts.
func (n Namespace) Count(category string) []byte { return n.named(nil, TableCounts, category) }

// Counted returns the key of the position that counts reach up to.
func (n Namespace) Counted() []byte { return n.named(nil, TableCounted, "") }

// Delivery sets dst to the key of what became of a message in a subscription, or with 0 of where it begins.
func (n Namespace) Delivery(dst []byte, subscription string, global uint64) []byte {
	return n.placed(dst, TableDeliveries, subscription, global)
}

// Parked sets dst to the key of a message that a subscription has parked.
func (n Namespace) Parked(dst []byte, subscription string, global uint64) []byte {
	return n.placed(dst, TableParked, subscription, global)
}

// AfterPlaced returns a key behind all of a name in a table.
func (n Namespace) AfterPlaced(table byte, name string) []byte {
	return append(n.named(nil, table, name), 1)
}

// Named returns the name in a key of a table that has only a name.
func (n Namespace) Named(key []byte) string { return string(n.rest(key)) }

// Placed returns the name and the number in a key of a table that has both; false means that it is no such key.
func (n Namespace) Placed(key []byte) (name []byte, at uint64, ok bool) {
	rest := n.rest(key)
	end := bytes.IndexByte(rest, 0)
	if end < 0 || len(rest) != end+1+8 {
		return nil, 0, false
	}
	return rest[:end], binary.BigEndian.Uint64(rest[end+1:]), true
}

func (n Namespace) rest(key []byte) []byte { return n.store.Rest(key)[8:] }

// AppendNumber appends the value of a key that has a number.
func AppendNumber(dst []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(dst, n) }

// Number is the number that value consists of; false means that it is none.
func Number(value []byte) (uint64, bool) { return keyspace.Number(value) }

// AppendCounts appends the value of a category's counts.
func AppendCounts(dst []byte, messages, streams uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, messages), streams)
}

// Counts reads a category's counts; false means that they are none.
func Counts(value []byte) (messages, streams uint64, ok bool) {
	if len(value) != 16 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:]), true
}

// A message's place is the origin of its event: its position in its stream (8 bytes), whether it made the stream
// (1 byte, 1 or 0), and the stream.
const placeSize = 8 + 1

// AppendPlace appends a message's place.
func AppendPlace(dst []byte, stream string, position uint64, first bool) []byte {
	dst = binary.BigEndian.AppendUint64(dst, position)
	if first {
		dst = append(dst, 1)
	} else {
		dst = append(dst, 0)
	}
	return append(dst, stream...)
}

// Place reads a message's place; false means that it is none. The stream is a part of origin.
func Place(origin []byte) (stream []byte, position uint64, first, ok bool) {
	if len(origin) <= placeSize || origin[8] > 1 {
		return nil, 0, false, false
	}
	return origin[placeSize:], binary.BigEndian.Uint64(origin), origin[8] == 1, true
}

// PlaceSize is the size of the place of a message in a stream, in bytes.
func PlaceSize(stream string) int { return placeSize + len(stream) }
