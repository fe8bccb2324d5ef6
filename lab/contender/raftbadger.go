package contender

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	dgraph "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// The names of a Raft store that is written on Badger's own calls, as programs have it that keep entries in the value
// log: without the library's collection of that log, and with it. Our store on our engine shows neither, since the
// engine keeps entries in the tree.
const (
	RaftBadger          = "raft-badger"
	RaftBadgerCollected = RaftBadger + ":collected"
)

// A log is short, so what is made for it is small: the library learns of garbage in compactions alone, and collects
// whole files.
const (
	badgerMemTable  = 8 << 20
	badgerTables    = 2 // in level 0, from which on they are compacted
	badgerThreshold = 256
	badgerValueFile = 32 << 20

	// As the library's documentation advises: now and then, for as long as half of a file is garbage.
	badgerCollectEvery = time.Minute
	badgerCollectRatio = 0.5
)

// RaftBadgers returns the stores on Badger's own calls. Each refuses levels below Power, as [Engines] do.
func RaftBadgers() []all.Entry {
	entry := func(name string, collect time.Duration) all.Entry {
		describe := func() holdfast.Capabilities { return describeRaftBadger(name, collect > 0) }

		return all.Entry{Name: name, Describe: describe,
			Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
				return openRaftBadger(describe, dir, o, collect)
			}}
	}

	return []all.Entry{entry(RaftBadger, 0), entry(RaftBadgerCollected, badgerCollectEvery)}
}

func describeRaftBadger(name string, collected bool) holdfast.Capabilities {
	collection := "The value log is never collected: the space of deleted entries is not given back."
	if collected {
		collection = fmt.Sprintf("The value log is collected each %v, for as long as %v of a file is garbage. The library "+
			"deletes a file before what it has copied is synced.", badgerCollectEvery, badgerCollectRatio)
	}

	return promises(holdfast.Capabilities{
		Engine: name, Library: version("github.com/dgraph-io/badger/v4"), FullDiskKills: true,
		AtomicBatches: true, Checksums: true,
		MaxKeySize: holdfast.MaxKeySize, MaxValueSize: 1 << 20, MaxBatchSize: 1 << 20,
		Caveats: []string{
			"It holds Raft logs only, each entry a key of Badger by the library's own calls.",
			fmt.Sprintf("Entries from %d bytes on are in the value log, where the library's own default is 1 MiB.",
				badgerThreshold),
			collection,
			"It acknowledges a write whose sync of the value log has failed, and does not sync the directory entry of a " +
				"new log.",
		},
	}, "SyncWrites on: the value log and the log are synced for each transaction",
		"measured as it is, it syncs every transaction")
}

// raftBadger is the store.
type raftBadger struct {
	db     *dgraph.DB
	counts *counts

	stop    chan struct{}
	stopped sync.WaitGroup
	failed  error // of the collection, to be read when it has stopped
}

func openRaftBadger(describe func() holdfast.Capabilities, dir string, o holdfast.Options, collect time.Duration) (
	holdfast.Engine, error) {
	c := describe()
	h, _, err := begin(c, dir, o, true)
	if err != nil {
		return nil, err
	}
	s := &raftBadger{counts: &counts{}, stop: make(chan struct{})}
	path := filepath.Join(h.Dir, "data")
	b := dgraph.DefaultOptions(path).WithLogger(nil).WithMetricsEnabled(false).WithSyncWrites(true).
		WithDetectConflicts(false).WithCompression(options.None).WithBlockCacheSize(0).
		WithMemTableSize(badgerMemTable).WithNumLevelZeroTables(badgerTables).
		WithValueThreshold(badgerThreshold).WithValueLogFileSize(badgerValueFile)
	err = opening(c.Engine, path, h, func() (err error) {
		s.db, err = dgraph.Open(b)
		return err
	})
	if err != nil {
		return nil, err
	}
	if collect > 0 {
		s.stopped.Go(func() { s.collectEach(collect) })
	}

	return &raftPeer{store: s, peer: peer{
		name: c.Engine, only: onlyRaft, dir: h.Dir, describe: describe, counts: s.counts,
		shut: func() error {
			close(s.stop)
			s.stopped.Wait()

			return errors.Join(s.failed, s.db.Close(), h.Close())
		},
		written: s.counts.bytes.Load,
		settings: []holdfast.Setting{
			{Name: "SyncWrites", Value: fmt.Sprint(b.SyncWrites)},
			{Name: "MemTableSize", Value: fmt.Sprint(b.MemTableSize)},
			{Name: "NumLevelZeroTables", Value: fmt.Sprint(b.NumLevelZeroTables)},
			{Name: "ValueThreshold", Value: fmt.Sprint(b.ValueThreshold)},
			{Name: "ValueLogFileSize", Value: fmt.Sprint(b.ValueLogFileSize)},
			{Name: "collected every", Value: fmt.Sprint(collect)},
		},
	}}, nil
}

// collectEach collects again and again until the store is closed, or a collection fails.
func (s *raftBadger) collectEach(every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()

	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
			if s.failed = s.collect(); s.failed != nil {
				return
			}
		}
	}
}

// collect collects one file after another for as long as there is one with enough garbage.
func (s *raftBadger) collect() error {
	for {
		switch err := s.db.RunValueLogGC(badgerCollectRatio); {
		case errors.Is(err, dgraph.ErrNoRewrite):
			return nil
		case err != nil:
			return fmt.Errorf("collecting the value log: %w", err)
		}
	}
}

// The first byte of keys.
const (
	badgerEntry  = 'e' // of an entry, behind which is its index
	badgerStable = 's' // of a stable key
)

func badgerKey(index uint64) []byte { return binary.BigEndian.AppendUint64([]byte{badgerEntry}, index) }

// commit is one transaction, which the library syncs in both logs.
func (s *raftBadger) commit(change func(*dgraph.Txn) error) error {
	err := s.db.Update(change)
	if err == nil {
		s.counts.syncs.Add(2)
	}

	return s.counts.commit(err)
}

func (s *raftBadger) put(tx *dgraph.Txn, key, value []byte) error {
	s.counts.bytes.Add(int64(len(key) + len(value)))
	return tx.Set(key, value)
}

// StoreLog implements [raft.LogStore].
func (s *raftBadger) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements [raft.LogStore].
func (s *raftBadger) StoreLogs(logs []*raft.Log) error {
	return s.commit(func(tx *dgraph.Txn) error {
		for _, log := range logs {
			value, err := encodeEntry(log)
			if err != nil {
				return err
			}
			if err := s.put(tx, badgerKey(log.Index), value); err != nil {
				return err
			}
		}

		return nil
	})
}

// DeleteRange implements [raft.LogStore]. More than fits one transaction is several.
func (s *raftBadger) DeleteRange(first, last uint64) error {
	b := s.db.NewWriteBatch()
	defer b.Cancel()

	for index := first; index <= last; index++ {
		if err := b.Delete(badgerKey(index)); err != nil {
			return err
		}
	}
	err := b.Flush()
	if err == nil {
		s.counts.syncs.Add(2)
	}

	return s.counts.commit(err)
}

// GetLog implements [raft.LogStore].
func (s *raftBadger) GetLog(index uint64, log *raft.Log) error {
	value, err := s.get(badgerKey(index))
	if errors.Is(err, dgraph.ErrKeyNotFound) {
		return raft.ErrLogNotFound
	}
	if err == nil {
		err = decodeEntry(value, index, log)
	}

	return err
}

// FirstIndex implements [raft.LogStore].
func (s *raftBadger) FirstIndex() (uint64, error) { return s.edge(false) }

// LastIndex implements [raft.LogStore].
func (s *raftBadger) LastIndex() (uint64, error) { return s.edge(true) }

// edge is the first or last index, 0 of an empty log.
func (s *raftBadger) edge(last bool) (index uint64, err error) {
	err = s.db.View(func(tx *dgraph.Txn) error {
		it := tx.NewIterator(dgraph.IteratorOptions{Reverse: last})
		defer it.Close()
		from := []byte{badgerEntry}
		if last {
			from = []byte{badgerEntry + 1}
		}
		if it.Seek(from); it.ValidForPrefix([]byte{badgerEntry}) {
			index = binary.BigEndian.Uint64(it.Item().Key()[1:])
		}

		return nil
	})

	return index, err
}

// Set implements [raft.StableStore].
func (s *raftBadger) Set(key, value []byte) error {
	return s.commit(func(tx *dgraph.Txn) error { return s.put(tx, append([]byte{badgerStable}, key...), value) })
}

// Get implements [raft.StableStore].
func (s *raftBadger) Get(key []byte) ([]byte, error) {
	value, err := s.get(append([]byte{badgerStable}, key...))
	if errors.Is(err, dgraph.ErrKeyNotFound) {
		return nil, raftlog.ErrKeyNotFound
	}

	return value, err
}

// SetUint64 implements [raft.StableStore].
func (s *raftBadger) SetUint64(key []byte, value uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

// GetUint64 implements [raft.StableStore].
func (s *raftBadger) GetUint64(key []byte) (uint64, error) {
	value, err := s.Get(key)
	if err == nil && len(value) != 8 {
		err = fmt.Errorf("the value of %q has %d bytes, not 8", key, len(value))
	}
	if err != nil {
		return 0, err
	}

	return binary.BigEndian.Uint64(value), nil
}

func (s *raftBadger) get(key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *dgraph.Txn) error {
		item, err := tx.Get(key)
		if err == nil {
			value, err = item.ValueCopy(nil)
		}

		return err
	})

	return value, err
}

// encodeEntry is an entry but for its index: term, type, time, extensions, data, with the lengths of the variable ones
// but the last.
func encodeEntry(log *raft.Log) ([]byte, error) {
	at, err := log.AppendedAt.MarshalBinary()
	if err != nil {
		return nil, err
	}
	value := binary.BigEndian.AppendUint64(make([]byte, 0, 32+len(log.Extensions)+len(log.Data)), log.Term)
	value = append(value, byte(log.Type), byte(len(at)))
	value = binary.BigEndian.AppendUint32(append(value, at...), uint32(len(log.Extensions)))

	return append(append(value, log.Extensions...), log.Data...), nil
}

var errEntry = errors.New("the value of an entry is too short")

func decodeEntry(value []byte, index uint64, log *raft.Log) error {
	const head = 8 + 1 + 1
	if len(value) < head || len(value) < head+int(value[9])+4 {
		return errEntry
	}
	*log = raft.Log{Index: index, Term: binary.BigEndian.Uint64(value), Type: raft.LogType(value[8])}
	at, rest := value[head:][:value[9]], value[head+int(value[9]):]
	extensions := binary.BigEndian.Uint32(rest)
	if rest = rest[4:]; uint64(len(rest)) < uint64(extensions) {
		return errEntry
	}
	if extensions > 0 {
		log.Extensions = rest[:extensions]
	}
	log.Data = rest[extensions:]

	return log.AppendedAt.UnmarshalBinary(at)
}
