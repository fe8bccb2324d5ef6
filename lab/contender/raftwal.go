package contender

import (
	"errors"
	"log/slog"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"github.com/holdfastdb/holdfast"
)

// RaftWAL is the name of github.com/hashicorp/raft-wal.
const RaftWAL = "raft-wal"

// DescribeRaftWAL says what raft-wal gives.
func DescribeRaftWAL() holdfast.Capabilities {
	return promises(holdfast.Capabilities{
		Engine: RaftWAL, Library: version("github.com/hashicorp/raft-wal"),
		AtomicBatches:     true,
		NativeDeleteRange: true,
		MaxKeySize:        holdfast.MaxKeySize, MaxValueSize: holdfast.MaxValueSize, MaxBatchSize: holdfast.MaxBatchSize,
		Caveats: []string{
			"It holds Raft logs only: no keys and values. Its authors call it experimental.",
			"An append is one write and one fsync, of a file of 64 MiB whose space is reserved ahead but not written, so that " +
				"the file system's journal has to note each block that is written first. Votes and terms, which files there are, " +
				"and each DeleteRange are transactions in a bbolt file beside it, with two syncs.",
			"Indexes must follow each other without gaps, so that raft throws the whole log away after it has restored a " +
				"snapshot; only a prefix or a suffix of the log can be deleted.",
			"A deleted prefix gives back whole files of 64 MiB only, and an empty log takes as much.",
			"Checksums are looked at for the last batch when it opens, and never when an entry is read: damage can be " +
				"answered as data.",
			"If the next file cannot be made (no room), that is only logged, and appends fail until the log is opened again.",
			"A kill between the sealing of a file, which deleting a suffix does too, and the transaction that notes it leaves " +
				"a log that takes no more entries, however often it is opened: see docs/findings/raft-wal.md.",
			"Entries that were deleted from the front can still be got from the file that is appended to, until it is opened " +
				"again; FirstIndex is right.",
			"Each GetLog reads 64 KiB, or what is left of the file.",
			"A key that is not there is nil without an error.",
		},
	}, "append: one write and fsync; votes and terms: one bbolt transaction, two fdatasync",
		"measured as it is, it syncs every write, and has no way not to")
}

// walStore counts what raft-wal commits.
type walStore struct {
	*wal.WAL
	counts *counts
}

func (s walStore) StoreLog(log *raft.Log) error     { return s.counts.commit(s.WAL.StoreLog(log)) }
func (s walStore) StoreLogs(logs []*raft.Log) error { return s.counts.commit(s.WAL.StoreLogs(logs)) }
func (s walStore) DeleteRange(min, max uint64) error {
	return s.counts.commit(s.WAL.DeleteRange(min, max))
}
func (s walStore) Set(key, val []byte) error { return s.counts.commit(s.WAL.Set(key, val)) }
func (s walStore) SetUint64(key []byte, val uint64) error {
	return s.counts.commit(s.WAL.SetUint64(key, val))
}

// walFiles is raft-wal's own file system, which counts what is written and synced. Directories are synced by it too,
// once for each file that is made or removed; those are not seen.
type walFiles struct {
	types.VFS
	counts *counts
}

func (v walFiles) Create(dir, name string, size uint64) (types.WritableFile, error) {
	return v.count(v.VFS.Create(dir, name, size))
}

func (v walFiles) OpenWriter(dir, name string) (types.WritableFile, error) {
	return v.count(v.VFS.OpenWriter(dir, name))
}

func (v walFiles) count(f types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}

	return walFile{f, v.counts}, nil
}

type walFile struct {
	types.WritableFile
	counts *counts
}

func (f walFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.WritableFile.WriteAt(p, at)
	f.counts.bytes.Add(int64(n))

	return n, err
}

func (f walFile) Sync() error {
	f.counts.syncs.Add(1)
	return f.WritableFile.Sync()
}

// walMetaStore is raft-wal's own store of votes, terms and files, which counts the two syncs of its transactions.
type walMetaStore struct {
	*metadb.BoltMetaDB
	counts *counts
}

func (m walMetaStore) CommitState(s types.PersistentState) error {
	m.counts.syncs.Add(2)
	return m.BoltMetaDB.CommitState(s)
}

func (m walMetaStore) SetStable(key, value []byte) error {
	m.counts.syncs.Add(2)
	return m.BoltMetaDB.SetStable(key, value)
}

// OpenRaftWAL opens or makes the store in dir. o.Level must be Power, or 0, which means it. SyncEvery and MemoryBytes
// play no part.
func OpenRaftWAL(dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, o, err := begin(DescribeRaftWAL(), dir, o, true)
	if err != nil {
		return nil, err
	}
	c := &counts{}
	meta := walMetaStore{&metadb.BoltMetaDB{}, c}
	var log *wal.WAL
	err = opening(RaftWAL, h.Dir, h, func() (err error) {
		log, err = wal.Open(h.Dir, wal.WithLogger(hclogTo(o.Logger)), wal.WithMetaStore(meta),
			wal.WithSegmentFiler(segment.NewFiler(h.Dir, walFiles{walfs.New(), c})))
		return err
	})
	if err != nil {
		// It leaves its lock behind, on which the next who opens would wait for ever.
		_ = meta.Close()

		return nil, err
	}

	return &raftPeer{store: walStore{log, c}, peer: peer{
		name: RaftWAL, only: onlyRaft, dir: h.Dir, describe: DescribeRaftWAL, counts: c, written: c.bytes.Load,
		shut: func() error { return errors.Join(log.Close(), h.Close()) },
		settings: []holdfast.Setting{
			{Name: "segment_size", Value: strconv.Itoa(wal.DefaultSegmentSize)},
			{Name: "codec", Value: "binary, version 1"},
			{Name: "meta_store", Value: "bbolt, synced"},
		},
	}}, nil
}

// hclogTo returns a logger that passes warnings and errors on.
func hclogTo(to *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: RaftWAL, Level: hclog.Warn, DisableTime: true, Output: logLines{to}})
}

// logLines makes each write a record.
type logLines struct{ to *slog.Logger }

func (l logLines) Write(line []byte) (int, error) {
	l.to.Warn(strings.TrimSpace(string(line)))
	return len(line), nil
}
