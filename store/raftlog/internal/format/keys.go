// Package format is the bytes of a Raft store: its keys and values. They are also drawn, with the
// rules that hold between them, in docs/format-raftlog.md.
//
// All numbers are big-endian, and unsigned unless it says otherwise.
package format

import "github.com/holdfastdb/holdfast/internal/keyspace"

// Every key of a store begins as package keyspace says, and continues behind the table with
//
//	table 'c'                     the commit index, see AppendCommit
//	table 'i'                     the import mark: an import is not finished
//	table 'l'   index (8 bytes)   an entry of the log, see AppendLog
//	table 'm'                     the store itself, see Meta
//	table 's'   key               a stable value, see AppendStable
const (
	TableCommit = 'c'
	TableImport = 'i'
	TableLogs   = 'l'
	TableMeta   = 'm'
	TableStable = 's'
)

// Kind is what kind of store it is, which the keys begin with.
var Kind = keyspace.RaftLogs

// Prefix is what all keys of one store begin with.
type Prefix struct{ keyspace.Prefix }

// NewPrefix returns the prefix of the store of that name, which has at most 255 bytes.
func NewPrefix(name string) Prefix { return Prefix{keyspace.New(Kind, name)} }

// Log sets dst to the key of the entry at index.
func (p Prefix) Log(dst []byte, index uint64) []byte { return p.Numbered(dst, TableLogs, index) }

// Logs returns the bounds of the keys of all entries.
func (p Prefix) Logs() (lo, hi []byte) { return p.Table(TableLogs) }

// Stable sets dst to the key of the stable value of k.
func (p Prefix) Stable(dst, k []byte) []byte { return append(p.Key(dst, TableStable, ""), k...) }

// Stables returns the bounds of the keys of all stable values. What follows the lower one in a
// key is the stable key.
func (p Prefix) Stables() (lo, hi []byte) { return p.Table(TableStable) }

// Meta returns the key of the store's own description.
func (p Prefix) Meta() []byte { return p.Key(nil, TableMeta, "") }

// Import returns the key of the import mark. While it is there the store cannot be opened, whatever else is.
func (p Prefix) Import() []byte { return p.Key(nil, TableImport, "") }

// Commit returns the key of the commit index.
func (p Prefix) Commit() []byte { return p.Key(nil, TableCommit, "") }
