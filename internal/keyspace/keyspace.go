// Package keyspace says how stores of several kinds and names share the keys of one engine.
//
// Every key of a store begins with
//
//	kind      1 byte: what kind of store, see Kind
//	length    1 byte, of the name, so that no store's keys begin with another's
//	name      as many bytes
//	table     1 byte: what the store keeps under the key
//
// What follows depends on the table. Numbers are big-endian, so that keys lie in the order of their numbers.
package keyspace

import (
	"encoding/binary"

	"github.com/holdfastdb/holdfast"
)

// Overhead is how many bytes a key has, at most, in addition to the store's name and to one other name: kind, length,
// table and one number.
const Overhead = 3 + 8

// Prefix is what all keys of one store begin with. It is not changed once it is made, so it may be used from many
// goroutines at once.
type Prefix []byte

// New returns the prefix of the store of that kind and name. The name has at most 255 bytes.
func New(kind Kind, name string) Prefix {
	return append(Prefix{kind.letter, byte(len(name))}, name...)
}

// Key sets dst to the key of rest in a table.
func (p Prefix) Key(dst []byte, table byte, rest string) []byte {
	return append(append(append(dst[:0], p...), table), rest...)
}

// Numbered sets dst to the key of n in a table.
func (p Prefix) Numbered(dst []byte, table byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(append(dst[:0], p...), table), n)
}

// Table returns the bounds of all keys of a table.
func (p Prefix) Table(table byte) (lo, hi []byte) {
	return p.Key(nil, table, ""), p.Key(nil, table+1, "")
}

// Bounds returns the bounds of all keys of the store.
func (p Prefix) Bounds() (lo, hi []byte) {
	hi = append([]byte(nil), p...)
	for i := len(hi) - 1; ; i-- { // ends, because a kind is a letter
		if hi[i]++; hi[i] != 0 {
			return p, hi[:i+1]
		}
	}
}

// Rest returns what follows the table in a key of the store.
func (p Prefix) Rest(key []byte) []byte { return key[len(p)+1:] }

// Number is the number after the table in a key of the store; false means that the key has none, or more than that.
func (p Prefix) Number(key []byte) (n uint64, ok bool) {
	if len(key) < len(p)+1 {
		return 0, false
	}

	return Number(p.Rest(key))
}

// Number is the number that rest consists of; false means that it is none.
func Number(rest []byte) (n uint64, ok bool) {
	if len(rest) != 8 {
		return 0, false
	}

	return binary.BigEndian.Uint64(rest), true
}

// SetNumber changes the number at the end of a key.
func SetNumber(key []byte, n uint64) {
	binary.BigEndian.PutUint64(key[len(key)-8:], n)
}

// Split takes a key of a store of that kind apart; false means that it is none.
func Split(kind Kind, key []byte) (name string, table byte, rest []byte, ok bool) {
	if len(key) < 3 || key[0] != kind.letter || len(key) < 3+int(key[1]) {
		return "", 0, nil, false
	}
	at := 2 + int(key[1])

	return string(key[2:at]), key[at], key[at+1:], true
}

// Walk goes over the keys of all stores of a kind in their order. It calls store when a store's keys begin, and key for
// each of them, whose slices are valid until it returns.
func Walk(r holdfast.Reader, kind Kind, store func(name string), key func(table byte, rest, key, value []byte)) error {
	it := r.Scan(kind.All())
	defer it.Close()

	first, last := true, ""
	for it.Next() {
		name, table, rest, ok := Split(kind, it.Key())
		if !ok {
			continue
		}
		if first || name != last {
			store(name)
			first, last = false, name
		}
		key(table, rest, it.Key(), it.Value())
	}

	return it.Err()
}

// Names returns the names of all stores of a kind, in the order of their lengths and then bytes. It takes a seek for
// each.
func Names(r holdfast.Reader, kind Kind) (names []string, err error) {
	for all := kind.All(); ; {
		it := r.Scan(all)
		name, ok := "", false
		for !ok && it.Next() {
			name, _, _, ok = Split(kind, it.Key())
		}
		if err := it.Close(); err != nil || !ok {
			return names, err
		}
		names = append(names, name)
		_, all.Lo = New(kind, name).Bounds()
	}
}
