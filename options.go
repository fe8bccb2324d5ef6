package holdfast

import (
	"fmt"
	"log/slog"
	"time"
)

// DefaultSyncEvery is the loss window when none is named.
const DefaultSyncEvery = time.Second

// MinMemoryBytes is the smallest memory budget in bytes. With less, engines would spend their time on syncs and
// files.
const MinMemoryBytes = 1 << 20

// Options are what every engine understands. The zero value is a safe choice.
type Options struct {
	// Level is the strongest level that commits will ask for; 0 means Power. Most
	// engines choose per commit. Those that must choose when they open
	// (bbolt) bind the directory to it. A level that is named, and stronger than what the engine gives, is ErrLevel.
	Level Level

	// SyncEvery is the loss window: what Memory and Process commits can lose to a power
	// cut is bounded by syncing in the background this long after the first commit that
	// was not synced. 0 means DefaultSyncEvery; a negative value means never.
	SyncEvery time.Duration

	// MemoryBytes is the budget in bytes for caches and write buffers. 0 means the engine's own default. A budget below
	// MinMemoryBytes, or below what the engine can keep to (Capabilities.MinMemoryBytes), is refused. Engines keep to it
	// as far as their libraries let them; Capabilities show what was set.
	MemoryBytes int64

	// ReadOnly opens an existing directory for reading: nothing in it is written or created. Many readers can have it
	// open at once; while a writer has it open, Open returns ErrLocked. Every commit, and Sync, returns ErrLevel.
	// Engines that cannot do it return ErrUnavailable; see [Capabilities].
	//
	// A reader makes nothing durable. If the program that wrote last ended without closing its engine, a power cut
	// can take back the end of what a reader shows, until the directory has been opened for writing.
	ReadOnly bool

	// Logger takes an engine's messages other than errors. nil discards them. It must not use the engine itself, which
	// may hold locks while it logs.
	Logger *slog.Logger
}

// WithDefaults checks o and fills in defaults. Engines call it in Open. The error is ErrBadOption or ErrLevel.
func (o Options) WithDefaults() (Options, error) {
	if o.Level == 0 {
		o.Level = Power
	}
	if !o.Level.Valid() {
		return o, &Error{Op: "open", Class: ErrLevel, Detail: o.Level.String(), Remedy: "use one of " + levelNames()}
	}
	if o.SyncEvery == 0 {
		o.SyncEvery = DefaultSyncEvery
	}
	if o.SyncEvery > 0 && o.SyncEvery < time.Millisecond {
		return o, &Error{Op: "open", Class: ErrBadOption, Detail: fmt.Sprintf("a loss window of %v", o.SyncEvery),
			Remedy: "use 1ms or more, or commit at Power"}
	}
	if o.MemoryBytes < 0 || o.MemoryBytes > 0 && o.MemoryBytes < MinMemoryBytes {
		return o, &Error{Op: "open", Class: ErrBadOption, Detail: fmt.Sprintf("a memory budget of %d bytes", o.MemoryBytes),
			Remedy: fmt.Sprintf("use %d or more, or 0 for the default", MinMemoryBytes)}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}

	return o, nil
}
