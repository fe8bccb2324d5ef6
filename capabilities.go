package holdfast

import (
	"fmt"
	"slices"
	"time"
)

// Capabilities says, as data, what an engine gives.
type Capabilities struct {
	Engine  string // its name in engine/all
	Library string // the module and version below it, empty if there is none

	// Memory, Process, Power and Quorum describe what commits at these levels get.
	//
	// The zero Quorum means that the engine keeps its data on one machine, and refuses that level. Where a failover
	// answers a power cut, so that what only one machine has is left behind, an engine gives Quorum to commits that ask
	// for Power, and says so.
	Memory, Process, Power, Quorum Promise

	// LossWindow is how often the engine is synced in the background while commits
	// weaker than Power are outstanding; 0 if never.
	LossWindow time.Duration

	// AtomicBatches is false where a batch of several keys can be torn by a crash.
	AtomicBatches bool
	// NativeDeleteRange is true where the cost of DeleteRange does not grow with the
	// number of keys in it.
	NativeDeleteRange bool
	// ShownAtApply is true where every batch is visible when Apply returns, on the goroutine that called it and on all
	// others; elsewhere at the latest when Wait returns.
	ShownAtApply bool
	// Checksums is true where everything stored is checked when it is read back, so that
	// damage is an error. Where it is false, damage may be answered as data.
	Checksums bool
	// FullDiskKills is true where a full disk can end the process, because the engine writes
	// through a memory map, which has no way to report an error.
	FullDiskKills bool

	// ReadOnly is true if the engine has Options.ReadOnly.
	ReadOnly bool

	// Lost says what a repair that made this directory could not salvage, or what a failover of the servers below it has
	// lost; it is empty if nothing is lost, and once the loss was accepted (AcceptLoss of package engine/all). Until then
	// any acknowledged write may be missing or old: stores refuse to open with ErrCorrupt. Copies say the same.
	Lost string
	// Accepted identifies the loss that was accepted last, and is empty if none was. A store that was last opened before
	// that makes anew what it derives from its data, or refuses to open.
	Accepted string

	// Limits in bytes, never above those of the contract. Apply refuses a batch with a longer key (ErrBadKey), a longer
	// value, or altogether more (ErrTooLarge). Bounds of ranges, and keys that are read, may have the contract's length.
	MaxKeySize, MaxValueSize, MaxBatchSize int64

	// MinMemoryBytes is the smallest Options.MemoryBytes that the engine accepts, if that is more than MinMemoryBytes of
	// this package; otherwise it is 0.
	MinMemoryBytes int64

	// Settings are the engine's own, read back from it after opening. Empty in a description of an engine that is not
	// open.
	Settings []Setting
	// Caveats are sentences that a user should know before choosing the engine.
	Caveats []string
}

// Promise is what an engine gives to commits that ask for one level.
type Promise struct {
	// Given is the level they really get; 0 if they are refused.
	Given Level
	// How is the mechanism, in a few words: "write to the log, fdatasync".
	How string
	// Why explains a Given that is not the level asked for.
	Why string
	// CutMayCorrupt is true where a power cut may cost not only the last commits but
	// the whole store.
	CutMayCorrupt bool
	// Mapped is true where a commit is complete with a store to a mapping of a file, without a call of the operating
	// system.
	Mapped bool
}

// Setting is one effective setting of an engine.
type Setting struct{ Name, Value string }

// Promise returns what commits at level asked get.
func (c Capabilities) Promise(asked Level) Promise {
	switch asked {
	case Memory:
		return c.Memory
	case Process:
		return c.Process
	case Power:
		return c.Power
	case Quorum:
		if c.Quorum == (Promise{}) {
			return Promise{Why: "it is on one machine"}
		}
		return c.Quorum
	}

	return Promise{Why: "there is no such level"}
}

// Levels lists the levels that commits may ask for, weakest first.
func (c Capabilities) Levels() []Level {
	return slices.DeleteFunc(Levels(), func(l Level) bool { return c.Promise(l).Given == 0 })
}

// CheckLevel returns ErrLevel, which lists the available levels, if commits at level asked are refused.
func (c Capabilities) CheckLevel(asked Level) error {
	p := c.Promise(asked)
	if p.Given != 0 {
		return nil
	}

	remedy := ""
	for _, l := range c.Levels() {
		if remedy != "" {
			remedy += " or "
		}
		remedy += l.String()
	}
	if remedy != "" {
		remedy = "ask for " + remedy
	}

	return &Error{Op: "apply", Engine: c.Engine, Class: ErrLevel, Remedy: remedy,
		Detail: fmt.Sprintf("%s: %s", asked, p.Why)}
}

// ForReading returns c for an engine that was opened with Options.ReadOnly: it refuses every level. It is for
// engines.
func (c Capabilities) ForReading() Capabilities {
	c.Memory = Promise{Why: "the engine is open for reading only"}
	c.Process, c.Power, c.Quorum, c.LossWindow = c.Memory, c.Memory, c.Memory, 0

	return c
}

// Strongest returns the strongest level the engine gives, 0 if none.
func (c Capabilities) Strongest() Level {
	return max(c.Memory.Given, c.Process.Given, c.Power.Given, c.Quorum.Given)
}

// Unknown is the value of a metric that an engine cannot tell.
const Unknown = -1

// Metrics are counters since Open and gauges of the moment. A field that the engine
// cannot tell is [Unknown].
type Metrics struct {
	Commits      int64 // batches applied
	Groups       int64 // engine transactions they were merged into
	Syncs        int64 // times the engine asked the device to keep what it wrote, commits and background together
	BytesWritten int64 // bytes given to the operating system
	DiskBytes    int64 // bytes the directory takes now
	Files        int64 // files in the directory now
	MemoryBytes  int64 // bytes of caches and write buffers now
	Stalls       int64 // times a writer had to wait for background work

	OpenSnapshots int64 // not yet closed
	OpenIterators int64 // not yet closed
	TornBytes     int64 // length of the torn tail that Open cut off

	// Of an engine whose data other machines keep, too. Standbys are those that keep up with it, any in reserve
	// included, and StandbysNeeded are how many must have a commit at Quorum: with fewer, commits wait.
	// StandbyLag is how many bytes of the log the one that is furthest behind has not on its disk.
	Standbys, StandbysNeeded, StandbyLag int64
	// Owner is, of an engine whose data another process can take over ([ErrFenced]): 1 while it is known to be this
	// one's, 0 while it is not, as when no server has confirmed it lately: reads wait then.
	Owner int64

	// Poison is the failure that stopped the engine, nil while it works.
	Poison error
	// Trouble is a problem that does not stop the engine but needs attention: background work that failed and is
	// retried, or damage that it met. nil if there is none, or if the engine does not report it.
	Trouble error
}

// UnknownMetrics returns Metrics of which every number is Unknown, for engines to fill
// in.
func UnknownMetrics() Metrics {
	return Metrics{
		Commits: Unknown, Groups: Unknown, Syncs: Unknown, BytesWritten: Unknown, DiskBytes: Unknown,
		Files: Unknown, MemoryBytes: Unknown, Stalls: Unknown,
		OpenSnapshots: Unknown, OpenIterators: Unknown, TornBytes: Unknown,
		Standbys: Unknown, StandbysNeeded: Unknown, StandbyLag: Unknown, Owner: Unknown,
	}
}
