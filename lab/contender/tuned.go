package contender

import (
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	dgraph "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	badgerengine "github.com/holdfastdb/holdfast/engine/badger"
	bboltengine "github.com/holdfastdb/holdfast/engine/bbolt"
	pebbleengine "github.com/holdfastdb/holdfast/engine/pebble"
	"github.com/holdfastdb/holdfast/engine/sqlite"
	"github.com/holdfastdb/holdfast/internal/wrapped"
)

// tuned is what the names of engines with larger choices end with.
const tuned = ":tuned"

// Tuned returns our engines over other libraries with choices that their users make for heavy work, and that cost
// something which the engine's defaults do not: memory, time to open, a promise. Caveats say what.
func Tuned() []all.Entry {
	var list []all.Entry
	for _, t := range tunedEngines {
		list = append(list, all.Entry{Name: t.engine + tuned, Describe: t.describe,
			Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
				e, err := t.open(dir, o)
				if err != nil {
					return nil, err
				}

				return &tunedEngine{wrapped.Engine{Engine: e}, t}, nil
			}})
	}

	return list
}

type tunedChoice struct {
	engine   string
	library  func() holdfast.Capabilities // of the engine
	cost     string
	checksum bool // checks what it reads, as the engine does
	open     opener
}

var tunedEngines = []tunedChoice{
	{pebbleengine.Name, pebbleengine.Describe, "Tuned as Pebble's own tool for measuring is: compactions begin at two " +
		"tables in level 0 and writers are not held back until 1,000, the base level has 64 MB, values from 512 bytes on " +
		"are in files of their own, up to three compactions. After a burst of writes, reads wait for what was not " +
		"compacted.", true, openPebbleTuned},
	{badgerengine.Name, badgerengine.Describe, "Tuned: memtables, tables in level 0 and compactors are as many as the " +
		"library has by default, and there is no block cache. Peaks of more than 3 GB of memory were seen with them.",
		true, openBadgerTuned},
	{bboltengine.Name, bboltengine.Describe, "Tuned as etcd runs it: the list of free pages is a map, and not written. " +
		"Opening reads every page in use.", false, openBboltTuned},
	{sqlite.Name, sqlite.Describe, sqliteTunedCost, false, openSQLiteTuned(sqlite.OpenWith)},
	{sqlite.NameGo, sqlite.DescribeGo, sqliteTunedCost, false, openSQLiteTuned(sqlite.OpenGoWith)},
}

// rename makes what an engine says of itself what the tuned one says.
func (t tunedChoice) rename(c holdfast.Capabilities) holdfast.Capabilities {
	c.Engine += tuned
	c.Caveats = append([]string{t.cost}, c.Caveats...)
	c.Checksums = c.Checksums && t.checksum

	return c
}

func (t tunedChoice) describe() holdfast.Capabilities { return t.rename(t.library()) }

// tunedEngine is an engine under its tuned name.
type tunedEngine struct {
	wrapped.Engine
	choice tunedChoice
}

// Capabilities implements [holdfast.Engine].
func (e tunedEngine) Capabilities() holdfast.Capabilities {
	return e.choice.rename(e.Engine.Capabilities())
}

func openPebbleTuned(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return pebbleengine.OpenWith(dir, o, func(p *pebble.Options) {
		pebbleToolOptions(p)
	})
}

// pebbleToolOptions are those of cmd/pebble that do not depend on the data or on memory.
func pebbleToolOptions(p *pebble.Options) {
	p.L0CompactionThreshold, p.L0StopWritesThreshold = 2, 1000
	p.LBaseMaxBytes, p.FlushSplitBytes = 64<<20, 2<<20
	p.BytesPerSync, p.MaxOpenFiles = 512<<10, 16384
	p.CompactionConcurrencyRange = func() (int, int) { return 1, min(3, max(runtime.GOMAXPROCS(0), 2)) }
	p.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 512, MaxBlobReferenceDepth: 10,
			RewriteMinimumAge: 5 * time.Minute, TargetGarbageRatio: 1}
	}
}

func openBadgerTuned(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return badgerengine.OpenWith(dir, o, func(b dgraph.Options) dgraph.Options {
		d := dgraph.DefaultOptions("")
		b.NumMemtables, b.NumCompactors = d.NumMemtables, d.NumCompactors
		b.NumLevelZeroTables, b.NumLevelZeroTablesStall = d.NumLevelZeroTables, d.NumLevelZeroTablesStall

		return b.WithBlockCacheSize(0).WithCompression(options.None)
	})
}

func openBboltTuned(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return bboltengine.OpenWith(dir, o, func(b *bbolt.Options) {
		b.NoFreelistSync, b.FreelistType = true, bbolt.FreelistMapType
	})
}

const sqliteTunedCost = "Tuned: a table with rowids, which large values want and small ones do not; half of the " +
	"budget is a mapping that reads go through, " +
	"so that a page which the disk cannot read ends the process; the log is copied " +
	"from 40 MB on."

type (
	opener       = func(dir string, o holdfast.Options) (holdfast.Engine, error)
	sqliteOpener = func(dir string, o holdfast.Options, t sqlite.Tuning) (holdfast.Engine, error)
)

func openSQLiteTuned(open sqliteOpener) opener {
	return func(dir string, o holdfast.Options) (holdfast.Engine, error) {
		t := sqlite.Tuning{RowID: true, CheckpointPages: 10_000, MapBytes: max(o.MemoryBytes/2, 64<<20)}
		o.MemoryBytes /= 2
		if o.MemoryBytes > 0 {
			o.MemoryBytes = max(o.MemoryBytes, holdfast.MinMemoryBytes)
		}

		return open(dir, o, t)
	}
}
