// Package format is the bytes of a store for etcd's Raft: its keys and values. They are also drawn, with the rules that
// hold between them, in docs/format-etcdraft.md.
//
// All numbers are big-endian. Values begin as package sealed says, with version 1. What is raft's own, entries,
// snapshots, hard states and conf states, is in raft's own encoding, which is that of protobuf.
package format

import (
	"encoding/binary"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/internal/sealed"
)

// Every key of a store begins as package keyspace says, and continues behind the table with
//
//	table 'c'                     the conf state, if the application keeps one here
//	table 'l'   index (8 bytes)   an entry of the log
//	table 'm'                     the store itself, see State
//	table 'p'   index (8 bytes)   the snapshot
const (
	tableConf      = 'c'
	tableLog       = 'l'
	tableMeta      = 'm'
	tableSnapshots = 'p'
)

// Kind is what kind of store it is, which the keys begin with.
var Kind = keyspace.RaftGroups

// Prefix is what all keys of one store begin with.
type Prefix struct{ keyspace.Prefix }

// NewPrefix returns the prefix of the store of that name, which has at most 255 bytes.
func NewPrefix(name string) Prefix { return Prefix{keyspace.New(Kind, name)} }

// Entry sets dst to the key of the entry at index.
func (p Prefix) Entry(dst []byte, index uint64) []byte { return p.Numbered(dst, tableLog, index) }

// Entries returns the range of the keys of the entries from lo to hi, which is not the largest number.
func (p Prefix) Entries(lo, hi uint64) holdfast.Range {
	return holdfast.Range{Lo: p.Entry(nil, lo), Hi: p.Entry(nil, hi+1)}
}

// Log returns the range of the keys of all entries.
func (p Prefix) Log() holdfast.Range {
	lo, hi := p.Table(tableLog)
	return holdfast.Range{Lo: lo, Hi: hi}
}

// Snapshot returns the key of the snapshot of that index.
func (p Prefix) Snapshot(index uint64) []byte { return p.Numbered(nil, tableSnapshots, index) }

// Conf returns the key of the conf state.
func (p Prefix) Conf() []byte { return p.Key(nil, tableConf, "") }

// Meta returns the key of the store's state.
func (p Prefix) Meta() []byte { return p.Key(nil, tableMeta, "") }

const version = 1 << 4

// Overhead is what a value has before raft's encoding, in bytes.
const Overhead = sealed.Size

// AppendMessage appends the value of one of raft's messages, under its key. The error is of one that cannot be encoded.
func AppendMessage(dst, key []byte, m proto.Message) ([]byte, error) {
	start := len(dst)
	dst, err := proto.MarshalOptions{}.MarshalAppend(sealed.Begin(dst, version), m)
	if err != nil {
		return dst[:start], err
	}

	return sealed.Seal(dst, key, start), nil
}

// DecodeMessage sets m to what AppendMessage was given; false means that value is none.
func DecodeMessage(key, value []byte, m proto.Message) bool {
	head, body, ok := sealed.Open(key, value)

	return ok && head == version && proto.Unmarshal(body, m) == nil
}

// State is what a store knows of itself, which every write of it stores:
//
//	sum, version
//	flags      4 bits: 1, there is a hard state; 2, there is a snapshot
//	low        8 bytes
//	index      8 bytes
//	term       8 bytes
//	last       8 bytes
//	high       8 bytes
//	snapshot   8 bytes, its index, if there is one
//	hard       the hard state, up to the end, if there is one
//
// The log has the entries after Index up to Last, each of them. What else is found from Low to High was deleted, and
// counts for nothing.
type State struct {
	Low   uint64 // at most Index + 1
	Index uint64 // of the last entry that is not in the log any more
	Term  uint64 // of that
	Last  uint64 // Index in an empty log
	High  uint64 // at least Last

	HasSnapshot bool
	Snapshot    uint64            // its index
	Hard        *raftpb.HardState // nil for none
}

const (
	flagHard     = 1
	flagSnapshot = 2
	numbers      = 5 * 8
)

// AppendState appends the state of a store under its key.
func AppendState(dst, key []byte, s State) ([]byte, error) {
	start := len(dst)
	head := byte(version)
	if s.Hard != nil {
		head |= flagHard
	}
	if s.HasSnapshot {
		head |= flagSnapshot
	}
	dst = sealed.Begin(dst, head)
	for _, n := range []uint64{s.Low, s.Index, s.Term, s.Last, s.High} {
		dst = binary.BigEndian.AppendUint64(dst, n)
	}
	if s.HasSnapshot {
		dst = binary.BigEndian.AppendUint64(dst, s.Snapshot)
	}
	if s.Hard != nil {
		var err error
		if dst, err = (proto.MarshalOptions{}).MarshalAppend(dst, s.Hard); err != nil {
			return dst[:start], err
		}
	}

	return sealed.Seal(dst, key, start), nil
}

// DecodeState reads the state of a store. The error is ErrVersion or ErrCorrupt.
func DecodeState(key, value []byte) (State, error) {
	bad := func(class error, remedy, format string, args ...any) (State, error) {
		return State{}, failure.New("etcdraft open", "", class, nil, remedy, format, args...)
	}
	head, b, ok := sealed.Open(key, value)
	if !ok {
		return bad(holdfast.ErrCorrupt, "check the engine's files, or make this replica anew from the others",
			"the store's state has a wrong checksum")
	}
	if head&^sealed.Flags > version {
		return bad(holdfast.ErrVersion, "use a newer holdfast", "the store has format %d, this program knows 1", head>>4)
	}
	size := numbers
	if head&flagSnapshot != 0 {
		size += 8
	}
	if head&^(flagHard|flagSnapshot) != version || len(b) < size || head&flagHard == 0 && len(b) > size {
		return bad(holdfast.ErrCorrupt, "", "the store's state is %x", value)
	}
	var s State
	for _, n := range []*uint64{&s.Low, &s.Index, &s.Term, &s.Last, &s.High} {
		*n, b = binary.BigEndian.Uint64(b), b[8:]
	}
	if head&flagSnapshot != 0 {
		s.HasSnapshot, s.Snapshot, b = true, binary.BigEndian.Uint64(b), b[8:]
	}
	if head&flagHard != 0 {
		s.Hard = new(raftpb.HardState)
		if err := proto.Unmarshal(b, s.Hard); err != nil {
			return bad(holdfast.ErrCorrupt, "", "the store's hard state is %x", b)
		}
	}
	if s.Index == MaxIndex+1 || s.Low > s.Index+1 || s.Last < s.Index || s.High < s.Last || s.High > MaxIndex {
		return bad(holdfast.ErrCorrupt, "", "the store's state is %x", value)
	}

	return s, nil
}

// MaxIndex is the highest index of an entry: each could have a successor.
const MaxIndex = 1<<64 - 2
