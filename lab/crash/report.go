package crash

import (
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Schema names the format of the JSON of a [Report]. A change that readers must know about
// gets a new number.
const Schema = "holdfast.crash/1"

// Report is everything that a run found.
type Report struct {
	Schema string `json:"schema"`
	// Machine is what the run was made on. Its Kernel is empty in reports that say no more than OS, Arch, CPUs and Go.
	// OtherWork is not known: what the kernel does for recorded disks is work of the run.
	Machine measure.Machine `json:"machine"`
	Plan    PlanJSON        `json:"plan"`
	Seconds float64         `json:"seconds"`
	Results []Result        `json:"results"`
	Missing []Missing       `json:"missing"` // kinds that were left out
	Partial string          `json:"partial"` // why this is not all of the plan; empty if it is
	// Detection has how well mutants were found, in a run of [Request].Mutants, which has no results.
	Detection []Detection `json:"detection"`
}

// PlanJSON is what was asked for.
type PlanJSON struct {
	Engines  []string         `json:"engines"`
	Levels   []holdfast.Level `json:"levels"`
	Kinds    []Kind           `json:"kinds"`
	Subjects []string         `json:"subjects"`
	Cuts     int              `json:"cuts"`
	FS       string           `json:"fs"`
	Seed     uint64           `json:"seed"`
	Seconds  float64          `json:"for_seconds"` // 0 if not named
	Command  string           `json:"command"`
}

// Missing is a kind that this machine cannot do, at all or on a file system.
type Missing struct {
	Kind Kind   `json:"kind"`
	Why  string `json:"why"`
}

// Verdict is what a row comes to.
type Verdict string

// The verdicts.
const (
	Held         Verdict = "held"          // all that must survive did
	Broken       Verdict = "BROKEN"        // it did not
	AsDocumented Verdict = "as documented" // what was lost may be lost
	NotAvailable Verdict = "n/a"           // the engine does not claim this, or nothing was tried
)

// Result is one row: an engine at a level against one kind of crash. Counts are of batches, added up over all
// cuts; what was acknowledged below the level given, as company for others, is not counted. -1 is not known.
type Result struct {
	Engine  string         `json:"engine"`
	Level   holdfast.Level `json:"level"` // that commits asked for
	Given   holdfast.Level `json:"given"` // that the engine says they get
	Kind    Kind           `json:"kind"`
	FS      string         `json:"fs"` // those in turns; empty where the directory's own was used
	Subject string         `json:"subject"`
	Control bool           `json:"control"` // gives less than it says, and must be BROKEN

	Cuts       int   `json:"cuts"` // crashes that were judged; of simulations, histories
	Acked      int64 `json:"acked"`
	Survived   int64 `json:"survived"` // of the acknowledged
	Lost       int64 `json:"lost"`     // acknowledged at a level that must survive, and gone
	Torn       int64 `json:"torn"`
	OutOfOrder int64 `json:"out_of_order"`
	// found and never written, damaged, different when opened again, or seen by the victim
	Wrong            int64 `json:"wrong"`
	RecoveryFailures int64 `json:"recovery_failures"`
	// FlushChecks is how many acknowledgements at Power were compared with the flushes of the recorded disk, and
	// Unflushed how many of them had no flush between Apply and the end of Wait.
	FlushChecks int64   `json:"flush_checks"`
	Unflushed   int64   `json:"unflushed"`
	Verdict     Verdict `json:"verdict"`
	// Bounds is what a row that held supports.
	Bounds []Bound `json:"bounds"`
	Why    string  `json:"why"`

	// SyncsPerAck is the number of syncs the engine told of per batch under kill, and of flushes the disk
	// saw per acknowledged batch, those of the file system included, under power.
	SyncsPerAck float64  `json:"syncs_per_ack"`
	RecoveryMs  Recovery `json:"recovery_ms"`
	// LostCommits and LossWindowMs are the most that one crash took of what was acknowledged, at whatever
	// level: batches, and the time from the first of them to the last acknowledgement.
	LostCommits  int     `json:"lost_commits"`
	LossWindowMs float64 `json:"loss_window_ms"`
	// Lied is what became of images of disks that lied; nil in rows of other kinds.
	Lied *Lied `json:"lied"`
	// Simulated is what a simulation did; nil in rows of other kinds, and before its first history has ended.
	Simulated *Simulated `json:"simulated"`

	// Reached is how often the row's victims reached what does not come about in every run, by name.
	Reached map[string]int `json:"reached"`
	// Pauses is how often, by loss and for [AnyLoss], the one who wrote to machines went on afterwards without an error,
	// and for how long nothing was acknowledged around that; empty in rows of other kinds.
	Pauses map[string]Pause `json:"pauses,omitempty"`

	Seed     uint64   `json:"seed"`
	Findings []string `json:"findings"`
	Evidence []string `json:"evidence"` // directories
	Replay   string   `json:"replay"`   // a command line, empty if there is no evidence
}

// Lied counts images of disks that had answered flushes and kept nothing, by what was seen of them.
type Lied struct {
	Older   int `json:"older"`   // the contents at an earlier time, whole and in order
	Refused int `json:"refused"` // opening or reading failed with an error
	Died    int `json:"died"`    // the process that opened it died or hung
	Wrong   int `json:"wrong"`   // contents that never were, and no error
}

// AnyLoss is all losses of machines together.
const AnyLoss = "any"

// Pause is how long nothing was acknowledged, in milliseconds.
type Pause struct {
	Times  int     `json:"times"`
	Median float64 `json:"median_ms"`
	Max    float64 `json:"max_ms"`
}

// Recovery is how long opening took after a crash, in milliseconds; -1 if nothing was opened. Of machines nothing is.
type Recovery struct {
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// breaches is how often the row broke what it claims, a loss window aside.
func (r *Result) breaches() int64 {
	return r.Lost + r.Torn + r.OutOfOrder + r.Wrong + r.RecoveryFailures + r.Unflushed
}

// filesMade is how often the row's victims made a numbered file or began a log anew.
func (r *Result) filesMade() (n int) {
	for what, times := range r.Reached {
		if strings.HasPrefix(what, kinds.FileMade) {
			n += times
		}
	}

	return n
}

// FoundOut reports whether a control was.
func (r *Result) FoundOut() bool { return r.Verdict == Broken && r.broke() }

// broke reports whether something acknowledged was lost, or never flushed, or a batch torn. Of machines it is also what
// an owner did that was none any more.
func (r *Result) broke() bool {
	return r.Lost+r.Unflushed+r.Torn > 0 || r.Kind == kinds.Machine && r.Wrong > 0
}

// crashes is how many were judged.
func (r *Report) crashes() (n int) {
	for _, row := range r.Results {
		n += row.Cuts
	}

	return n
}
