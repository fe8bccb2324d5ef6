// Package raftlog stores what hashicorp/raft must not forget, its log, votes and terms, in any engine.
//
//	store, err := raftlog.Open(engine, raftlog.Options{}) // at Power unless told otherwise
//	node, err := raft.NewRaft(config, fsm, store, store, snapshots, transport)
//
// A [Store] is a raft.LogStore, a raft.StableStore and a raft.MonotonicLogStore, and tracks the
// commit index in the way that newer versions of the library ask for.
//
// # What survives
//
// Every write returns once it survives what the store's level names: power loss, unless a weaker
// level is asked for. At a weaker one a server can forget its vote and vote twice in one term, by
// which a cluster can lose what it has acknowledged; Open logs a warning.
//
// After a crash a call of StoreLogs or DeleteRange has taken effect completely or not at all. Only a
// call of StoreLogs over the engine's limit for a batch becomes several batches, in the order of the
// entries, of which a crash can leave the first ones.
//
// # What readers see
//
// Readers never see an entry, an index or a stable value that a crash could take back. While an entry
// is being overwritten or deleted, reading it waits until that is settled. Reading other entries, and
// the first and last index, never waits for the device.
//
// Every value is stored with a checksum of itself and its key. A damaged value, or one stored under a
// wrong index, is ErrCorrupt and never a wrong entry, whether the engine has checksums or not.
//
// # Keys in the engine
//
// All keys of a store begin with the byte 'r', the length of its name in one byte, and the name. An
// engine can be shared with other stores, and with the program's own keys if these do not begin with
// 'r'. The engine does not protect a store's keys from the program's own writes: a DeleteRange that
// covers them, such as DeleteRange(nil, nil), removes votes and entries, even while the store is open,
// and a server that has forgotten its vote is a danger to its cluster.
//
// The bytes are drawn in docs/format-raftlog.md.
package raftlog

import (
	"errors"
	"log/slog"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
)

// MaxNameSize is the longest name of a store, in bytes.
const MaxNameSize = 128

var (
	// ErrKeyNotFound: the stable store has no such key. It is returned as it is, and its text is
	// what hashicorp/raft looks for.
	ErrKeyNotFound = errors.New("not found")
	// ErrOrder: a monotonic store was asked to leave a gap or to overwrite an entry.
	ErrOrder = errors.New("raftlog: out of order")
)

// Options are how a store is opened. The zero value is a safe choice.
type Options struct {
	// Name distinguishes several stores in one engine, at most MaxNameSize bytes, UTF-8 without control characters; it may
	// be empty.
	Name string

	// Level is what every write survives once it returns; 0 means Power. A weaker one is unsafe
	// for votes. A store may be opened at another level the next time.
	Level holdfast.Level

	// Monotonic makes the store refuse gaps and overwrites with ErrOrder, and say so to raft,
	// which then wipes the log after it has restored a snapshot instead of leaving a gap. It can differ
	// from one opening to the next.
	//
	// With hashicorp/raft 1.7.3 leave it off: a follower that receives a snapshot older than the end of its log
	// empties a monotonic store, continues from the old end, and panics on an entry that it has deleted itself,
	// again at every start (issue 697 of hashicorp/raft).
	Monotonic bool

	// Logger takes the warning about a weak level. nil discards it.
	Logger *slog.Logger
}

var (
	_ raft.LogStore          = (*Store)(nil)
	_ raft.StableStore       = (*Store)(nil)
	_ raft.MonotonicLogStore = (*Store)(nil)
)

// fail builds an error of the operation op on s.
func (s *Store) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return failure.New("raftlog "+op, s.caps.Engine, class, cause, remedy, format, args...)
}

// damaged is the remedy for a value that does not read back as written.
const damaged = "check the engine's files, or make this server anew from the others of its cluster"
