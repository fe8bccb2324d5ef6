package contender

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	dgraph "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// The names of the bare libraries that are log-structured merge trees.
const (
	pebbleBare = "pebble:bare"
	badgerBare = "badger:bare"

	badgerConflicts = "badger:bare-conflicts"
)

func describePebbleBare() holdfast.Capabilities {
	return holdfast.Capabilities{
		Library: version("github.com/cockroachdb/pebble/v2"), Checksums: true,
		Memory:  holdfast.Promise{Given: holdfast.Memory, How: "pebble.NoSync: the log's buffer and the memtable"},
		Process: holdfast.Promise{Why: "Pebble has nothing between a commit in its buffer and one that is synced"},
		Power:   holdfast.Promise{Given: holdfast.Power, How: "pebble.Sync: write to the log and fdatasync"},
		Caveats: []string{"Its options are those of Pebble's own tool for measuring, but for the order of keys, which is " +
			"CockroachDB's there."},
	}
}

type barePebble struct{ db *pebble.DB }

func openPebbleBare(dir string, o holdfast.Options) (bareStore, []holdfast.Setting, error) {
	p := &pebble.Options{FormatMajorVersion: pebble.FormatNewest, MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4,
		CacheSize: 384 << 20, Logger: silent{}}
	if o.MemoryBytes > 0 { // Pebble counts memtables against the cache
		p.CacheSize, p.MemTableSize = o.MemoryBytes, uint64(min(max(o.MemoryBytes/6, 1<<20), 64<<20))
	}
	pebbleToolOptions(p)

	for i := range p.Levels {
		p.Levels[i].BlockSize, p.Levels[i].IndexBlockSize = 32<<10, 256<<10
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	db, err := pebble.Open(dir, p)
	if err != nil {
		return nil, nil, err
	}
	p.EnsureDefaults()

	var settings []holdfast.Setting
	for line := range strings.Lines(p.String()) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(line, "[Level") {
			break
		}
		if ok {
			settings = append(settings, holdfast.Setting{Name: name, Value: value})
		}
	}

	return barePebble{db}, append(settings, holdfast.Setting{Name: "block_size", Value: fmt.Sprint(p.Levels[0].BlockSize)},
		holdfast.Setting{Name: "filter_policy", Value: p.Levels[0].FilterPolicy.Name()}), nil
}

// silent is a logger that says nothing, and ends the process where Pebble wants that.
type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (s barePebble) apply(b *holdfast.Batch, level holdfast.Level) error {
	pb := s.db.NewBatchWithSize(b.Size() + 16)
	defer pb.Close()

	for op := range b.Ops() {
		var err error
		if op.Kind == holdfast.KindSet {
			err = pb.Set(op.Key, op.Value, nil)
		} else {
			err = pb.Delete(op.Key, nil)
		}
		if err != nil {
			return err
		}
	}
	how := pebble.NoSync
	if level == holdfast.Power {
		how = pebble.Sync
	}

	return pb.Commit(how)
}

func (s barePebble) get(dst, key []byte) ([]byte, error) {
	value, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, holdfast.ErrNotFound
	}
	if err != nil {
		return dst, err
	}

	return append(dst, value...), closer.Close()
}

func (s barePebble) scan(r holdfast.Range) driver.Cursor {
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: bytes.Clone(r.Lo), UpperBound: bytes.Clone(r.Hi)})
	return &pebbleCursor{it: it, err: err}
}

func (s barePebble) sync() error  { return s.db.LogData(nil, pebble.Sync) }
func (s barePebble) close() error { return s.db.Close() }

type pebbleCursor struct {
	it    *pebble.Iterator
	begun bool
	err   error
}

// Next implements [driver.Cursor].
func (c *pebbleCursor) Next() (key, value []byte, err error) {
	if c.err != nil {
		return nil, nil, c.err
	}
	ok := false
	if c.begun {
		ok = c.it.Next()
	} else {
		ok = c.it.First()
	}
	if c.begun = true; !ok {
		return nil, nil, c.it.Error()
	}
	value, err = c.it.ValueAndErr()

	return c.it.Key(), value, err
}

// Close implements [driver.Cursor].
func (c *pebbleCursor) Close() error {
	if c.it == nil {
		return nil
	}

	return c.it.Close()
}

func describeBadgerBare(conflicts bool) func() holdfast.Capabilities {
	const mapped = "SyncWrites off: copied into a shared mapping of the log"
	options := "Its options are the library's defaults, without compression and block cache"
	if conflicts {
		options += ". It detects conflicts, as transactions that read need."
	} else {
		options += ", and without the detection of conflicts, which only transactions that read need."
	}
	return func() holdfast.Capabilities {
		return holdfast.Capabilities{
			Library: version("github.com/dgraph-io/badger/v4"), Checksums: true, FullDiskKills: true,
			Memory: holdfast.Promise{Given: holdfast.Process, How: mapped, Mapped: true,
				Why: "its log is a mapped file, which is the operating system's from the first byte"},
			Process: holdfast.Promise{Given: holdfast.Process, How: mapped, Mapped: true},
			Power:   holdfast.Promise{Given: holdfast.Power, How: "SyncWrites on: the log is synced for each transaction"},
			// 15 % of a memtable of 64 MiB is what a transaction takes.
			MaxValueSize: 8 << 20, MaxBatchSize: 8 << 20,
			Caveats: []string{
				options + " They do not hold to a budget: memtables may take some 500 MB.",
				"It acknowledges a write whose sync of the value log has failed, and does not sync the directory entry of a " +
					"new log.",
			},
		}
	}
}

type bareBadger struct{ db *dgraph.DB }

func openBadgerBare(conflicts bool) func(string, holdfast.Options) (bareStore, []holdfast.Setting, error) {
	return func(dir string, o holdfast.Options) (bareStore, []holdfast.Setting, error) {
		db, err := dgraph.Open(dgraph.DefaultOptions(dir).WithLogger(nil).WithSyncWrites(o.Level == holdfast.Power).
			WithCompression(options.None).WithBlockCacheSize(0).WithDetectConflicts(conflicts).WithMetricsEnabled(false))
		if err != nil {
			return nil, nil, err
		}
		b := db.Opts()
		var settings []holdfast.Setting
		for _, s := range []struct {
			name  string
			value any
		}{
			{"SyncWrites", b.SyncWrites}, {"MemTableSize", b.MemTableSize}, {"NumMemtables", b.NumMemtables},
			{"ValueThreshold", b.ValueThreshold}, {"BlockCacheSize", b.BlockCacheSize}, {"NumCompactors", b.NumCompactors},
			{"NumLevelZeroTables", b.NumLevelZeroTables}, {"NumLevelZeroTablesStall", b.NumLevelZeroTablesStall},
			{"DetectConflicts", b.DetectConflicts},
		} {
			settings = append(settings, holdfast.Setting{Name: s.name, Value: fmt.Sprint(s.value)})
		}
		return bareBadger{db}, settings, nil
	}
}

func (s bareBadger) apply(b *holdfast.Batch, _ holdfast.Level) error {
	return s.db.Update(func(tx *dgraph.Txn) error {
		for op := range b.Ops() {
			var err error
			if op.Kind == holdfast.KindSet {
				err = tx.Set(op.Key, op.Value)
			} else {
				err = tx.Delete(op.Key)
			}
			if err != nil {
				return err
			}
		}

		return nil
	})
}

func (s bareBadger) get(dst, key []byte) (value []byte, err error) {
	err = s.db.View(func(tx *dgraph.Txn) error {
		value, err = badgerTx{tx}.Get(dst, key)
		return err
	})
	return value, err
}

func (s bareBadger) scan(r holdfast.Range) driver.Cursor {
	tx := s.db.NewTransaction(false)

	return &badgerCursor{tx: tx, it: tx.NewIterator(dgraph.IteratorOptions{}), lo: bytes.Clone(r.Lo),
		hi: bytes.Clone(r.Hi)}
}

func (s bareBadger) sync() error  { return s.db.Sync() }
func (s bareBadger) close() error { return s.db.Close() }

type badgerCursor struct {
	tx     *dgraph.Txn
	it     *dgraph.Iterator
	lo, hi []byte
	begun  bool
	copied []byte
}

// Next implements [driver.Cursor].
func (c *badgerCursor) Next() (key, value []byte, err error) {
	if c.begun {
		c.it.Next()
	} else {
		c.it.Seek(c.lo)
	}
	c.begun = true
	if !c.it.Valid() || len(c.hi) > 0 && bytes.Compare(c.it.Item().Key(), c.hi) >= 0 {
		return nil, nil, nil
	}
	c.copied, err = c.it.Item().ValueCopy(c.copied)

	return c.it.Item().Key(), c.copied, err
}

// Close implements [driver.Cursor].
func (c *badgerCursor) Close() error {
	c.it.Close()
	c.tx.Discard()

	return nil
}
