// Package contender holds what Holdfast is measured and crashed against, though it is none of its engines: other stores
// for hashicorp/raft, as they are, and what people use as a message store or as a task queue.
//
// A peer has the interface of a [holdfast.Engine], so that the lab opens, closes and describes it like any other, but
// it keeps Raft logs, messages or tasks only: what reads or writes keys fails with ErrUnavailable. Its own store is
// behind [RaftEngine], [MessagesEngine] or [TasksEngine]. [OpenRaft] is the one way to a Raft store on any engine, a
// peer's or ours, and [OpenEtcd] to one of etcd's Raft.
//
// Some are servers, which end with the process that opened them. That of NATS is this executable again:
// its main function, or a test's TestMain, calls [Serve] if the first argument is [ServerArgument].
package contender

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/engine/all"
)

// RaftStore is all that hashicorp/raft keeps: its log, its votes and its terms.
//
// A key that is not there is an error from raft-boltdb and raftlog, see [KeyMissing]; from raft-wal it is nil without
// one.
type RaftStore interface {
	raft.LogStore
	raft.StableStore
}

// RaftEngine is an engine that is a Raft store and nothing else.
type RaftEngine interface {
	holdfast.Engine
	// RaftStore returns the store, the same each time. It lives as long as the engine is open. Writes are safe from power
	// loss before they return.
	RaftStore() RaftStore
}

// Engines returns the peers that are Raft stores, in the order in which they are shown. Their Open makes the directory
// if need be. It refuses levels below Power (ErrLevel), directories that another engine or program made (ErrForeign),
// and those that are open elsewhere (ErrLocked), as those of engines do.
func Engines() []all.Entry {
	var entries []all.Entry
	for _, p := range peers {
		entries = append(entries, p.Entry)
	}

	return entries
}

// row is a line of the table of peers.
type row struct {
	all.Entry
	monotonic bool // refuses gaps between entries
}

var peers = []row{
	{all.Entry{Name: RaftWAL, Open: OpenRaftWAL, Describe: DescribeRaftWAL}, true},
	{all.Entry{Name: RaftBoltDB, Open: OpenRaftBoltDB, Describe: DescribeRaftBoltDB}, false},
}

// Monotonic reports whether the peer of that name refuses gaps between entries.
func Monotonic(name string) bool {
	return slices.ContainsFunc(peers, func(p row) bool { return p.Name == name && p.monotonic })
}

// onlyRaft, onlyEtcd, onlyMessages and onlyTasks are why the Engine side of a peer refuses keys.
const (
	onlyRaft     = "holds Raft logs only"
	onlyEtcd     = "holds logs of etcd's Raft only"
	onlyMessages = "holds messages only"
	onlyTasks    = "holds tasks only"
)

// raftPeer is a peer that is a Raft store.
type raftPeer struct {
	peer
	store RaftStore
}

// RaftStore implements [RaftEngine].
func (p *raftPeer) RaftStore() RaftStore { return p.store }

// peer is the Engine side of a peer.
type peer struct {
	name     string
	only     string // why it refuses keys
	dir      string
	shut     func() error
	describe func() holdfast.Capabilities
	settings []holdfast.Setting
	written  func() int64 // bytes given to the operating system
	counts   *counts

	lifecycle.Ending // its Done and Err

	mu     sync.Mutex
	closed bool
}

// counts are what a peer has done since it was opened.
type counts struct{ commits, syncs, bytes atomic.Int64 }

// commit counts one write that succeeded, and passes its result on.
func (c *counts) commit(err error) error {
	if err == nil {
		c.commits.Add(1)
	}

	return err
}

func (p *peer) refuse(op string) error {
	return &holdfast.Error{Op: op, Engine: p.name, Path: p.dir, Class: holdfast.ErrUnavailable, Detail: p.only,
		Remedy: "use its own methods, or another engine"}
}

// Apply implements [holdfast.Engine]; the error is ErrUnavailable.
func (p *peer) Apply(*holdfast.Batch, holdfast.Level) (holdfast.Receipt, error) {
	return holdfast.Receipt{}, p.refuse("apply")
}

// Get implements [holdfast.Engine]; the error is ErrUnavailable.
func (p *peer) Get(dst, _ []byte) ([]byte, error) { return dst, p.refuse("get") }

// Scan implements [holdfast.Engine]; the iterator's error is ErrUnavailable.
func (p *peer) Scan(holdfast.Range) holdfast.Iterator {
	return holdfast.FailedIterator(p.refuse("scan"))
}

// Snapshot implements [holdfast.Engine]; the error is ErrUnavailable.
func (p *peer) Snapshot() (holdfast.Snapshot, error) { return nil, p.refuse("snapshot") }

// Sync implements [holdfast.Engine]. There is nothing to do: every write is synced before it returns.
func (p *peer) Sync() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.isClosed("sync")
	}

	return nil
}

func (p *peer) isClosed(op string) error {
	return &holdfast.Error{Op: op, Engine: p.name, Path: p.dir, Class: holdfast.ErrClosed}
}

// Capabilities implements [holdfast.Engine].
func (p *peer) Capabilities() holdfast.Capabilities {
	c := p.describe()
	c.Settings = append([]holdfast.Setting(nil), p.settings...)

	return c
}

// Metrics implements [holdfast.Engine]. What the library does not tell is Unknown.
func (p *peer) Metrics() holdfast.Metrics {
	m := holdfast.UnknownMetrics()
	m.Commits = p.counts.commits.Load()
	m.Groups = m.Commits // nothing is merged
	m.Syncs = p.counts.syncs.Load()
	m.BytesWritten = p.written()
	m.Files, m.DiskBytes = datadir.Usage(p.dir)
	m.OpenSnapshots, m.OpenIterators = 0, 0

	return m
}

// Close implements [holdfast.Engine].
func (p *peer) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.isClosed("close")
	}
	p.closed = true
	p.End(p.isClosed(""))
	if err := p.shut(); err != nil {
		return &holdfast.Error{Op: "close", Engine: p.name, Path: p.dir, Cause: err}
	}

	return nil
}

// promises fills in what both peers give: every write survives power loss, and there is no weaker level.
func promises(c holdfast.Capabilities, how, why string) holdfast.Capabilities {
	c.Memory = holdfast.Promise{Why: why}
	c.Process = holdfast.Promise{Why: why}
	c.Power = holdfast.Promise{Given: holdfast.Power, How: how}

	return c
}

// begin checks the options of an Open, and makes and locks dir. If bound, the directory has one level for good: files
// that were written without syncs promise nothing to those who sync.
func begin(c holdfast.Capabilities, dir string, o holdfast.Options, bound bool) (*datadir.Handle, holdfast.Options,
	error) {
	o, err := o.WithDefaults()
	if err != nil {
		return nil, o, err
	}

	refuse := func(why string) error {
		return &holdfast.Error{Op: "open", Engine: c.Engine, Path: dir, Class: holdfast.ErrUnavailable, Detail: why}
	}
	switch {
	case c.Strongest() == 0:
		return nil, o, refuse(c.Power.Why)
	case o.ReadOnly:
		return nil, o, refuse("it is not opened for reading only")
	}
	if err := c.CheckLevel(o.Level); err != nil {
		return nil, o, err
	}
	if c.Strongest() == holdfast.Memory { // nothing is on a disk
		return nil, o, nil
	}

	spec := datadir.Spec{Engine: c.Engine, Format: 1}
	if bound {
		spec.Level = c.Promise(o.Level).Given
	}
	h, err := datadir.Open(dir, spec)

	return h, o, err
}

// opening runs a library's open on the files in path, and notes that they are made. It makes an error of a panic:
// damaged files must not end the process. After an error the directory is closed.
func opening(name, path string, h *datadir.Handle, open func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		e := &holdfast.Error{Op: "open", Engine: name, Path: path, Cause: err}
		switch p := recover(); {
		case p != nil:
			e.Class, e.Detail = holdfast.ErrCorrupt, fmt.Sprintf("the library panics: %v", p)
		case err == nil:
			return
		case slices.ContainsFunc(corrupt, func(known error) bool { return errors.Is(err, known) }):
			e.Class = holdfast.ErrCorrupt
		case errors.Is(err, berrors.ErrVersionMismatch):
			e.Class, e.Remedy = holdfast.ErrVersion, "use the program that made it"
		}
		if e.Class == holdfast.ErrCorrupt {
			e.Remedy = "restore it from a backup"
		}
		err = errors.Join(e, h.Close())
	}()
	if err := open(); err != nil {
		return err
	}

	return h.Made()
}

// corrupt are the errors with which the libraries open damaged files.
var corrupt = []error{berrors.ErrInvalid, berrors.ErrChecksum, wal.ErrCorrupt, fs.ErrNotExist}

// version returns "PATH VERSION" for a module, or the path alone where the build does not tell.
func version(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path && m.Version != "" {
				return path + " " + m.Version
			}
		}
	}

	return path
}
