package db

import (
	"runtime"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// Describe says what the engine gives.
func Describe() holdfast.Capabilities {
	how, mapped := "write to the log's file", runtime.GOOS == "linux"
	if mapped {
		how = "store to the mapping of the log's file"
	}

	return holdfast.Capabilities{
		Engine:  format.Name,
		Memory:  holdfast.Promise{Given: holdfast.Memory, How: "copied to the log's tail in memory and indexed"},
		Process: holdfast.Promise{Given: holdfast.Process, How: how, Mapped: mapped},
		Power: holdfast.Promise{Given: holdfast.Power,
			How: "write to the log and fdatasync, shared by all that wait"},
		LossWindow:        holdfast.DefaultSyncEvery,
		AtomicBatches:     true,
		NativeDeleteRange: true,
		ShownAtApply:      true,
		Checksums:         true,
		MaxKeySize:        holdfast.MaxKeySize,
		MaxValueSize:      holdfast.MaxValueSize,
		MaxBatchSize:      format.MaxBody,
		ReadOnly:          true,
		Caveats: []string{
			"After a crash, damage to commits that nothing written later says to have been synced cannot be told from a torn " +
				"tail, and is cut off.",
			"A failed write or sync of any file, also in the background, poisons the engine.",
		},
	}
}
