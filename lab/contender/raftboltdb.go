package contender

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
)

// RaftBoltDB is the name of github.com/hashicorp/raft-boltdb/v2.
const RaftBoltDB = "raft-boltdb"

// boltFile is what programs over raft-boltdb call its file.
const boltFile = "raft.db"

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

// OpenRaftBoltDB opens or makes the store in dir. o.Level must be Power, or 0, which means it. SyncEvery and
// MemoryBytes play no part.
func OpenRaftBoltDB(dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, _, err := begin(DescribeRaftBoltDB(), dir, o, true)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(h.Dir, boltFile)
	options := bbolt.DefaultOptions // as it is
	var store *raftboltdb.BoltStore
	err = opening(RaftBoltDB, path, h, func() (err error) {
		store, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options})
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &counts{}

	return &raftPeer{store: boltStore{store, c}, peer: peer{
		name: RaftBoltDB, only: onlyRaft, dir: h.Dir, describe: DescribeRaftBoltDB, counts: c,
		shut: func() error { return errors.Join(store.Close(), h.Close()) },
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
