package contender

import (
	"errors"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/store/etcdraft"
)

// EtcdWAL is the name of etcd's own log, go.etcd.io/etcd/server/v3/storage/wal.
const EtcdWAL = "etcd-wal"

// EtcdStore is what a group of etcd's Raft keeps, and how a Ready of it is saved.
type EtcdStore interface {
	raft.Storage
	Save(raft.Ready) error
}

// EtcdEngine is an engine that is a store of one group and nothing else.
type EtcdEngine interface {
	holdfast.Engine
	// EtcdStore returns the store, the same each time, as OpenEtcd does.
	EtcdStore() EtcdStore
}

// EtcdEngines returns the peers that are stores of etcd's Raft.
func EtcdEngines() []all.Entry {
	return []all.Entry{{Name: EtcdWAL, Open: OpenEtcdWAL, Describe: DescribeEtcdWAL}}
}

// alone is what the log of a group begins with whose one member is 1: a snapshot of entry 1.
func alone() *raftpb.Snapshot {
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1)),
		ConfState: &raftpb.ConfState{Voters: []uint64{1}}}}
}

// OpenEtcd returns the store on e of a group whose one member is 1, at a level, and what closes it: a peer's own, else
// an etcdraft.Store. Closing the store leaves e open. The error is ErrLevel where e does not give the level.
func OpenEtcd(e holdfast.Engine, level holdfast.Level) (store EtcdStore, closeStore func() error, err error) {
	if err := e.Capabilities().CheckLevel(level); err != nil {
		return nil, nil, err
	}
	if peer, ok := e.(EtcdEngine); ok {
		return peer.EtcdStore(), func() error { return nil }, nil
	}
	s, err := etcdraft.Open(e, etcdraft.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}
	last, err := s.LastIndex()
	if err == nil && last == 0 {
		err = s.ApplySnapshot(alone())
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}

	return s, s.Close, nil
}

// DescribeEtcdWAL says what etcd's log gives.
func DescribeEtcdWAL() holdfast.Capabilities {
	return promises(holdfast.Capabilities{
		Engine: EtcdWAL, Library: version("go.etcd.io/etcd/server/v3"),
		AtomicBatches:     true, // as far as raft asks for it: see below
		NativeDeleteRange: true,
		MaxKeySize:        holdfast.MaxKeySize, MaxValueSize: holdfast.MaxValueSize, MaxBatchSize: holdfast.MaxBatchSize,
		Caveats: []string{
			"It holds the log of one group of etcd's Raft: no keys and values. All of the log since the last snapshot is in " +
				"memory, too (raft.MemoryStorage), and is read from there.",
			"A Ready is one write and one fdatasync, of a file of 64 MB whose space is reserved ahead, if it has entries, a " +
				"vote or a term. A new commit index stays in the process until the next write.",
			"A crash can leave the first entries of a Ready without the others and without its vote and term. Raft allows " +
				"that, so it counts as atomic here.",
			"Opening it reads the whole log since the last snapshot. Snapshots are the application's own files.",
			"Whole files of 64 MB are given back.",
		},
	}, "one write, fdatasync", "measured as it is, it syncs what raft says must be synced")
}

// etcdWAL is etcd's log and the store in memory beside it, as etcd itself has them.
type etcdWAL struct {
	*raft.MemoryStorage
	log    *wal.WAL
	counts *counts
}

func (s *etcdWAL) Save(rd raft.Ready) error {
	if err := s.log.Save(rd.HardState, rd.Entries); err != nil {
		return err
	}
	if rd.MustSync {
		s.counts.syncs.Add(1)
	}
	s.counts.commits.Add(1)
	if !raft.IsEmptyHardState(rd.HardState) {
		_ = s.SetHardState(rd.HardState) // which never fails
	}

	return s.Append(rd.Entries)
}

// etcdPeer is a peer that is a store of etcd's Raft.
type etcdPeer struct {
	peer
	store EtcdStore
}

// EtcdStore implements [EtcdEngine].
func (p *etcdPeer) EtcdStore() EtcdStore { return p.store }

// OpenEtcdWAL opens or makes the log in dir. o.Level must be Power, or 0, which means it. SyncEvery and MemoryBytes
// play no part.
func OpenEtcdWAL(dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, _, err := begin(DescribeEtcdWAL(), dir, o, true)
	if err != nil {
		return nil, err
	}
	s := &etcdWAL{MemoryStorage: raft.NewMemoryStorage(), counts: &counts{}}
	if err := opening(EtcdWAL, h.Dir, h, func() error { return s.open(filepath.Join(h.Dir, "wal")) }); err != nil {
		return nil, err
	}

	return &etcdPeer{store: s, peer: peer{
		name: EtcdWAL, only: onlyEtcd, dir: h.Dir, describe: DescribeEtcdWAL, counts: s.counts,
		written: func() int64 { return holdfast.Unknown },
		shut:    func() error { return errors.Join(s.log.Close(), h.Close()) },
	}}, nil
}

func (s *etcdWAL) open(dir string) (err error) {
	first := alone()
	meta := first.GetMetadata()
	start := &walpb.Snapshot{Index: meta.Index, Term: meta.Term, ConfState: meta.ConfState}
	if err := s.ApplySnapshot(first); err != nil {
		return err
	}
	if !wal.Exist(dir) {
		log, err := wal.Create(nil, dir, nil)
		if err != nil {
			return err
		}
		if err := errors.Join(log.SaveSnapshot(start), log.Close()); err != nil {
			return err
		}
	}
	if s.log, err = wal.Open(nil, dir, start); err != nil {
		return err
	}
	_, hard, entries, err := s.log.ReadAll()
	if err == nil && !raft.IsEmptyHardState(hard) {
		err = s.SetHardState(hard)
	}
	if err == nil {
		err = s.Append(entries)
	}
	if err != nil {
		return errors.Join(err, s.log.Close())
	}

	return nil
}
