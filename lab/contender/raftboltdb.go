package contender

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfastdb/holdfast"
)

// RaftBoltDB is the name of github.com/hashicorp/raft-boltdb/v2.
const RaftBoltDB = "raft-boltdb"

const (
	// boltFile is what programs over raft-boltdb call its file.
	boltFile = "raft.db"
	// boltPatience is how long a file that is open elsewhere is waited for.
	boltPatience = 100 * time.Millisecond
)

// DescribeRaftBoltDB says what raft-boltdb gives.
func DescribeRaftBoltDB() holdfast.Capabilities {
	return promises(holdfast.Capabilities{
		Engine: RaftBoltDB, Library: version("github.com/hashicorp/raft-boltdb/v2"),
		AtomicBatches: true,
		MaxKeySize:    holdfast.MaxKeySize, MaxValueSize: holdfast.MaxValueSize, MaxBatchSize: holdfast.MaxBatchSize,
		Caveats: []string{
			"It holds Raft logs only, in one bbolt file: no keys and values.",
			"Each StoreLogs, Set and DeleteRange is a transaction of its own with two syncs; concurrent ones wait for each " +
				"other.",
			"The file never shrinks. Deleting a prefix of the log visits each entry, and leaves free pages, the list of which " +
				"every later commit writes.",
			"Entries carry no checksum: damage to the file is found when it breaks the tree or the encoding of an entry, " +
				"where it can also end in a panic; other damage is answered as data.",
			"The directory of a new file is not synced.",
			"Entries are encoded as msgpack by reflection.",
		},
	}, "one bbolt transaction per call: pages, fdatasync, meta page, fdatasync",
		"measured as it is, it syncs every transaction; its NoSync could lose the whole file, with votes that had been cast")
}

// boltStore counts what raft-boltdb commits.
type boltStore struct {
	*raftboltdb.BoltStore
	counts *counts
}

// commit counts a transaction. bbolt syncs twice in each; the sync when the file grows is not seen.
func (s boltStore) commit(err error) error {
	if err == nil {
		s.counts.syncs.Add(2)
	}

	return s.counts.commit(err)
}

func (s boltStore) StoreLog(log *raft.Log) error     { return s.commit(s.BoltStore.StoreLog(log)) }
func (s boltStore) StoreLogs(logs []*raft.Log) error { return s.commit(s.BoltStore.StoreLogs(logs)) }
func (s boltStore) DeleteRange(min, max uint64) error {
	return s.commit(s.BoltStore.DeleteRange(min, max))
}
func (s boltStore) Set(key, val []byte) error { return s.commit(s.BoltStore.Set(key, val)) }
func (s boltStore) SetUint64(key []byte, val uint64) error {
	return s.commit(s.BoltStore.SetUint64(key, val))
}

// OpenRaftBoltDB opens or makes the store in dir, which holds raft.db alone. o.Level must be Power, or 0, which means
// it. SyncEvery and MemoryBytes play no part.
func OpenRaftBoltDB(dir string, o holdfast.Options) (holdfast.Engine, error) {
	dir, _, err := begin(DescribeRaftBoltDB, dir, o, func(file string) bool { return file == boltFile })
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, boltFile)
	// As it is, but for a file that is in use: it would wait for ever.
	options := *bbolt.DefaultOptions
	options.Timeout = boltPatience
	var store *raftboltdb.BoltStore
	err = opening(RaftBoltDB, path, func() (err error) {
		store, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &options})
		return err
	})
	if err != nil {
		return nil, openError(RaftBoltDB, path, err)
	}
	c := &counts{}

	return &raftPeer{store: boltStore{store, c}, peer: peer{
		name: RaftBoltDB, only: onlyRaft, dir: dir, shut: store.Close, describe: DescribeRaftBoltDB, counts: c,
		written: func() int64 {
			stats := store.Stats()
			return stats.TxStats.GetPageAlloc() + c.commits.Load()*int64(os.Getpagesize())
		},
		settings: []holdfast.Setting{
			{Name: "no_sync", Value: "false"},
			{Name: "freelist_type", Value: string(options.FreelistType)},
			{Name: "no_freelist_sync", Value: strconv.FormatBool(options.NoFreelistSync)},
			{Name: "no_grow_sync", Value: strconv.FormatBool(options.NoGrowSync)},
			{Name: "memory_budget", Value: "none: bbolt reads through the page cache"},
		},
	}}, nil
}

// openError says why a file of bbolt cannot be opened.
func openError(name, path string, err error) error {
	e := &holdfast.Error{Op: "open", Engine: name, Path: path, Cause: err}
	var known *holdfast.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, berrors.ErrTimeout):
		e.Class, e.Cause, e.Remedy = holdfast.ErrLocked, nil, "close it there first, or choose another directory"
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum):
		e.Class, e.Remedy = holdfast.ErrCorrupt, "restore the file from a backup"
	case errors.Is(err, berrors.ErrVersionMismatch):
		e.Class, e.Remedy = holdfast.ErrVersion, "use the program that made it"
	}

	return e
}
