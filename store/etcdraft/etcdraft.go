// Package etcdraft stores what etcd's Raft, go.etcd.io/raft/v3, must not forget, in any engine: a raft.Storage, and
// around it what an application needs.
//
//	store, err := etcdraft.Open(engine, etcdraft.Options{Name: "shard 7"}) // at Power unless told otherwise
//	node, err := raft.NewRawNode(&raft.Config{Storage: store, ...})
//
//	rd := node.Ready()
//	err = store.Save(rd) // hard state, entries and snapshot in one write
//	// send rd.Messages, apply rd.CommittedEntries
//	node.Advance(rd)
//
// Several groups live in one engine, each under a name of its own. Their writes share syncs, as all writes to an engine
// do, if they come from goroutines of their own.
//
// # What survives
//
// [Store.Save] is atomic: after a crash all of a Ready is there, or nothing. (Only entries over the engine's limit for
// a batch become several batches, of which a crash can leave the first ones.) It returns when the Ready survives what
// the store's level names, power loss unless a weaker one is asked for. At a weaker one a replica can forget its vote
// and vote twice in a term, by which a group can lose what it has acknowledged; Open logs a warning.
//
// A Ready that need not be synced brings nothing but a new commit index. It is written at Process, where that takes no
// sync, and otherwise with the next write. What a crash can take back then is the commit index, which raft finds out
// again. An engine loses no write without all that came after it: a state machine in the same engine, in whose batches
// the index of what it has applied is written too, is never ahead of the commit index. For one that is kept elsewhere,
// raft.Config.Applied must not be above the commit index of [Store.InitialState].
//
// # What readers see
//
// The answers are those of raft.MemoryStorage, whose panics are errors here. Readers never see what a crash could take
// back, other than a commit index and a compaction. While entries are replaced, those that stay are shown; while a
// snapshot is restored, none. The newest entries are in memory, so reading them does not ask the engine.
//
// # Keys in the engine
//
// All keys of a store begin with the byte 'g', the length of its name in one byte, and the name. An engine can be
// shared with other stores, and with the program's own keys if these do not begin with 'g'. The engine does not
// protect a store's keys from the program's own writes.
//
// The bytes are drawn in docs/format-etcdraft.md.
package etcdraft

import (
	"log/slog"

	"go.etcd.io/raft/v3"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/failure"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/etcdraft/internal/format"
)

// MaxNameSize is the longest name of a store, in bytes.
const MaxNameSize = 128

// DefaultCacheBytes is how much of the end of the log is kept in memory when nothing else is said.
const DefaultCacheBytes = 1 << 20

// Options are how a store is opened. The zero value is a safe choice.
type Options struct {
	// Name distinguishes several stores, one for each group, in one engine: at most MaxNameSize bytes, UTF-8 without
	// control characters; it may be empty.
	Name string

	// Level is what a Save that must be synced survives once it returns; 0 means Power. A weaker one is unsafe for
	// votes. A store may be opened at another level the next time.
	Level holdfast.Level

	// CacheBytes is how much of the end of the log is kept in memory, in bytes of entries; up to twice as much can be
	// in use. 0 means DefaultCacheBytes, a negative number the last entry alone.
	CacheBytes int

	// Logger takes the warning about a weak level. nil discards it.
	Logger *slog.Logger
}

var _ raft.Storage = (*Store)(nil)

// Names are the names of the stores in an engine, in the order of their lengths and then bytes.
func Names(r holdfast.Reader) ([]string, error) { return keyspace.Names(r, format.Kind) }

// fail builds an error of the operation op on s.
func (s *Store) fail(op string, class, cause error, remedy, format string, args ...any) error {
	return failure.New("etcdraft "+op, s.lease.Caps.Engine, class, cause, remedy, format, args...)
}

// damaged is the remedy for a value that does not read back as written.
const damaged = "check the engine's files, or make this replica anew from the others of its group"
