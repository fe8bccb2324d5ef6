// Package format is the bytes of a Raft store: its keys and values. They are also drawn, with the
// rules that hold between them, in docs/format-raftlog.md.
//
// All numbers are big-endian, and unsigned unless it says otherwise.
package format

import "encoding/binary"

// Every key of a store begins with
//
//	kind      1 byte, 'r': this is a Raft store
//	length    1 byte, of the name, so that no store's keys begin with another's
//	name
//	table     1 byte
//
// and goes on with
//
//	table 'c'                     the commit index, see AppendCommit
//	table 'i'                     the import mark: an import is not finished
//	table 'l'   index (8 bytes)   an entry of the log, see AppendLog
//	table 'm'                     the store itself, see Meta
//	table 's'   key               a stable value, see AppendStable
const (
	kind        = 'r'
	TableCommit = 'c'
	TableImport = 'i'
	TableLogs   = 'l'
	TableMeta   = 'm'
	TableStable = 's'
)

// KeyOverhead is what a key holds, at most, beside the store's name and a stable key.
const KeyOverhead = 3 + 8

// Prefix is what all keys of one store begin with.
type Prefix []byte

// NewPrefix returns the prefix of the store of that name, which has at most 255 bytes.
func NewPrefix(name string) Prefix {
	return append(Prefix{kind, byte(len(name))}, name...)
}

// Log sets dst to the key of the entry at index.
func (p Prefix) Log(dst []byte, index uint64) []byte {
	dst = append(append(dst[:0], p...), TableLogs)
	return binary.BigEndian.AppendUint64(dst, index)
}

// SetIndex changes the index in the key of an entry.
func SetIndex(key []byte, index uint64) {
	binary.BigEndian.PutUint64(key[len(key)-8:], index)
}

// Logs returns the bounds of the keys of all entries.
func (p Prefix) Logs() (lo, hi []byte) { return p.table(TableLogs), p.table(TableLogs + 1) }

// Index reads the index from the key of an entry; false means that it is none.
func (p Prefix) Index(key []byte) (uint64, bool) {
	if len(key) != len(p)+1+8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key[len(key)-8:]), true
}

// Stable sets dst to the key of the stable value of k.
func (p Prefix) Stable(dst, k []byte) []byte {
	dst = append(append(dst[:0], p...), TableStable)
	return append(dst, k...)
}

// Stables returns the bounds of the keys of all stable values. What follows the lower one in a
// key is the stable key.
func (p Prefix) Stables() (lo, hi []byte) { return p.table(TableStable), p.table(TableStable + 1) }

// Meta returns the key of the store's own description.
func (p Prefix) Meta() []byte { return p.table(TableMeta) }

// Import returns the key of the import mark. While it is there the store cannot be opened, whatever else is.
func (p Prefix) Import() []byte { return p.table(TableImport) }

// Bounds returns the bounds of all keys of the store.
func (p Prefix) Bounds() (lo, hi []byte) {
	hi = append([]byte(nil), p...)
	for i := len(hi) - 1; ; i-- { // the first byte is a letter
		if hi[i]++; hi[i] != 0 {
			return p, hi[:i+1]
		}
	}
}

// Commit returns the key of the commit index.
func (p Prefix) Commit() []byte { return p.table(TableCommit) }

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
