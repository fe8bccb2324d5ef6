package badger

import (
	"fmt"

	lib "github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/skl"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/modversion"
)

const (
	// memTableSize is the same in every directory, whatever the memory budget: a log left
	// by a crash is replayed into a memtable of this size, and the library ends the
	// process where it does not fit. With a smaller one, batches would have to be smaller.
	memTableSize = 64 << 20
	// memTables is how many full memtables may wait, in addition to the one that is being flushed, before writers stall.
	// With 0 they would stall forever.
	memTables = 1
	// compactors is the least that the library takes.
	compactors = 2
	// levelZeroStall is at how many tables in level 0 flushes wait for a compaction. From 4 on, the library could merge
	// all of them into one table, which it makes in memory.
	levelZeroStall = 3

	// valueThreshold is the size from which values live in the value log.
	valueThreshold = 1 << 20
	// valueLogFileSize is where the value log goes on to its next file. A batch's values must
	// not be more, or a file could become longer than the mapping, twice this size, that it was
	// made with: the library would move the mapping under its readers.
	valueLogFileSize = 128 << 20

	// The library's own limits of a transaction (see fits), and what batches merged into
	// one transaction may add up to, which is well below them.
	maxTxnBytes   = memTableSize * 15 / 100
	arenaBytes    = memTableSize + maxTxnBytes + maxTxnOps*int64(skl.MaxNodeSize) // of a memtable
	maxTxnOps     = maxTxnBytes / int64(skl.MaxNodeSize)
	maxGroupBytes = 4 << 20
	maxGroupOps   = 16 << 10

	// maxBatchBytes is the largest encoded batch: with as many operations as a transaction may have, each of which the
	// library counts for up to 11 bytes more than its encoding, it is still less than maxTxnBytes.
	maxBatchBytes = 8 << 20
	maxValueBytes = maxBatchBytes - holdfast.MaxKeySize - 16

	// minMemory is the least budget that is held: peaks of 1.4 to 1.7 GB were measured, see BenchmarkMemory. That is
	// up to three memtables; eight buffers that tables are made in, which the library keeps, each of which grows to
	// the size of a memtable and more because flushes and compactions share them; and as much again until Go
	// collects what was given up. It is the default, too.
	minMemory = 1536 << 20
)

// Describe says what the engine gives.
func Describe() holdfast.Capabilities {
	const how = "copied into a shared mapping of the log"
	c := holdfast.Capabilities{
		Engine:  Name,
		Library: modversion.Version("github.com/dgraph-io/badger/v4"),
		Memory: holdfast.Promise{Given: holdfast.Process, How: how, Mapped: true,
			Why: "its log is a mapped file, which is the operating system's from the first byte"},
		Process:        holdfast.Promise{Given: holdfast.Process, How: how, Mapped: true},
		Power:          holdfast.Promise{Given: holdfast.Power, How: how + ", " + syncHow + " once for all that wait"},
		AtomicBatches:  true,
		Checksums:      true,
		FullDiskKills:  true,
		MaxKeySize:     holdfast.MaxKeySize,
		MaxValueSize:   maxValueBytes,
		MaxBatchSize:   maxBatchBytes,
		MinMemoryBytes: minMemory,
		Caveats: []string{
			fmt.Sprintf("A batch has at most %d operations. The keys that a DeleteRange finds count as operations, and those "+
				"in it that are just being written.", maxTxnOps-2),
			fmt.Sprintf("Memory budgets below %d MiB are refused, because the library would exceed them: there are up to %d "+
				"memtables of %d MiB, and it keeps 8 buffers that it makes tables in, of up to 124 MiB. While 1 GiB was written "+
				"in values of 1,000 bytes, up to 1.7 GB of memory and 1.3 GB of mapped files were resident; with GOGC=25 in the "+
				"environment, 0.9 GB. Metrics counts memtables, not those buffers.",
				minMemory>>20, memTables+2, arenaBytes>>20),
			fmt.Sprintf("Values from %d bytes on are synced with their batch at every level.", valueThreshold),
			fmt.Sprintf("Files are written through mappings: if the disk fills up, the operating system kills the process with "+
				"SIGBUS. To keep away from that, commits are refused while less than %d MiB are free.", minFree>>20),
			"Where the disk cannot read a page of a table or log, the operating system kills the process with SIGBUS, for " +
				"the same reason.",
			fmt.Sprintf("The space of values from %d bytes on is never given back, also when they are deleted: the library's "+
				"collection can bring deleted values back, so it is not run.", valueThreshold),
			"Some failures in the library's own background work end the process.",
			"Opening reads every table to check it.",
			"Damage in the middle of a log that a crash left looks like a torn tail: what follows it is cut off.",
			"A table that is damaged while it is open can make a scan end early; Get reports it.",
		},
	}
	if !canSync {
		const why = "the library does not sync mapped files on this system"
		c.Power = holdfast.Promise{Why: why}
	}

	return c
}

// configure turns o into the library's options. There is no block cache: blocks that are not compressed are read from
// mapped files, and the library's authors advise against one then. So a budget above minMemory changes nothing.
func configure(data handle, o holdfast.Options, f *flushes, tune []func(lib.Options) lib.Options) lib.Options {
	l := lib.DefaultOptions(data.name).
		WithNumMemtables(memTables).
		WithNumCompactors(compactors).
		WithNumLevelZeroTables(levelZeroStall - 1).
		WithNumLevelZeroTablesStall(levelZeroStall).
		WithVerifyValueChecksum(true).
		WithCompression(options.None).
		WithChecksumVerificationMode(options.OnBlockRead). // all of it at Open: see checkTables
		WithBlockCacheSize(0)
	for _, change := range tune {
		l = change(l)
	}
	l.Dir, l.ValueDir, l.InMemory, l.ReadOnly = data.name, data.name, false, false

	return l.WithLogger(logger{o.Logger, data, f}).
		WithBypassLockGuard(true). // driver/datadir holds the lock
		WithSyncWrites(false).     // its error would be logged and the write acknowledged
		WithDetectConflicts(false).
		WithMetricsEnabled(false). // they are the process's, not the engine's
		WithMemTableSize(memTableSize).
		WithValueThreshold(valueThreshold).
		WithVLogPercentile(0).
		WithValueLogFileSize(valueLogFileSize)
}

// settings are what db really runs with.
func settings(db *lib.DB) []holdfast.Setting {
	o := db.Opts()
	compression := map[options.CompressionType]string{options.None: "none", options.Snappy: "snappy",
		options.ZSTD: "zstd"}[o.Compression]
	checks := map[options.ChecksumVerificationMode]string{
		options.NoVerification: "never", options.OnTableRead: "table", options.OnBlockRead: "block",
		options.OnTableAndBlockRead: "table and block",
	}[o.ChecksumVerificationMode]

	var s []holdfast.Setting
	for _, p := range []struct {
		name  string
		value any
	}{
		{"SyncWrites", o.SyncWrites},
		{"DetectConflicts", o.DetectConflicts},
		{"NumVersionsToKeep", o.NumVersionsToKeep},
		{"MemTableSize", o.MemTableSize},
		{"NumMemtables", o.NumMemtables},
		{"MaxBatchSize", db.MaxBatchSize()},
		{"MaxBatchCount", db.MaxBatchCount()},
		{"ValueThreshold", o.ValueThreshold},
		{"ValueLogFileSize", o.ValueLogFileSize},
		{"VerifyValueChecksum", o.VerifyValueChecksum},
		{"ChecksumVerificationMode", checks},
		{"Compression", compression},
		{"BlockCacheSize", o.BlockCacheSize},
		{"NumCompactors", o.NumCompactors},
		{"NumLevelZeroTables", o.NumLevelZeroTables},
		{"NumLevelZeroTablesStall", o.NumLevelZeroTablesStall},
	} {
		s = append(s, holdfast.Setting{Name: p.name, Value: fmt.Sprint(p.value)})
	}

	return s
}
