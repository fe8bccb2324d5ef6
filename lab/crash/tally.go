package crash

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/crash/internal/evidence"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// tally adds up what the rounds of one row find. It implements kinds.Tally.
type tally struct {
	mu             sync.Mutex
	cell           kinds.Row
	result         Result
	recovery       []float64              // ms
	pauses         map[string][]float64   // ms, by loss
	commits, syncs int64                  // of which syncs may be -1
	keep           func() (string, error) // the directory for evidence
	failed         error                  // of keeping evidence
	notes          []string
	recordings     int64

	firstBreach func() // called once, if not nil
	foundBy     foundBy
	foundAt     int // of cuts
}

// breached is called with the lock held when something may have been found.
func (t *tally) breached(by foundBy) {
	lied := t.result.Lied != nil && t.result.Lied.Wrong > 0 // breaks no claim, but a mutant is found by it
	if t.foundBy != "" || t.result.breaches() == 0 && !lied {
		return
	}
	if t.foundBy, t.foundAt = by, t.result.Cuts; t.firstBreach != nil {
		t.firstBreach()
	}
}

// judged is the number of crashes so far.
func (t *tally) judged() int {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.result.Cuts
}

// newTally begins the row of a cell. Slices and maps are not nil, so that the JSON has empty lists and no null.
func newTally(c kinds.Row, seed uint64) *tally {
	return &tally{cell: c, result: Result{
		Engine: c.Engine, Level: c.Level, Given: c.Given, Kind: c.Kind, FS: mountsText(c.Mounts),
		Subject: c.Subject, Control: c.Control,
		Seed: seed, Findings: []string{}, Evidence: []string{}, Reached: map[string]int{},
	}}
}

// Judged adds a crash.
func (t *tally) Judged(j protocol.Judgement, fatal bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.result
	r.Cuts++
	r.Acked += int64(j.Acked)
	r.Survived += int64(j.Kept)
	r.LostCommits = max(r.LostCommits, j.Lost+j.Gone)
	r.LossWindowMs = max(r.LossWindowMs, j.Window)

	// Nothing of a disk that lied counts as lost: no engine can keep what the disk has not.
	if t.cell.Kind == Lies {
		r.lied(j, fatal)
		t.breached(byCrash)

		return
	}
	r.Lost += int64(j.Lost)
	r.Torn += int64(j.Torn)
	r.OutOfOrder += int64(j.OutOfOrder)
	r.Wrong += int64(j.Wrong)
	if fatal {
		r.RecoveryFailures++
	}
	t.breached(byCrash)
}

// lied adds what became of a disk that lied, which breaks no claim: all of them count on flushes.
func (r *Result) lied(j protocol.Judgement, fatal bool) {
	if r.Lied == nil {
		r.Lied = &Lied{}
	}

	switch {
	case j.Broken():
		r.Lied.Wrong++
	case j.Died:
		r.Lied.Died++
	case fatal:
		r.Lied.Refused++
	default:
		r.Lied.Older++
	}
}

// Recovered adds the time that opening took.
func (t *tally) Recovered(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recovery = append(t.recovery, float64(d.Microseconds())/1000)
}

// Paused adds how long nothing was acknowledged around a loss.
func (t *tally) Paused(loss string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pauses == nil {
		t.pauses = map[string][]float64{}
	}
	for _, of := range []string{loss, AnyLoss} {
		t.pauses[of] = append(t.pauses[of], float64(d.Microseconds())/1000)
	}
}

// Synced adds batches and the syncs that they took.
func (t *tally) Synced(commits, syncs int64) {
	t.mu.Lock()
	defer t.mu.Unlock()

	// One that is not known makes the sum unknown.
	if syncs < 0 || t.syncs < 0 {
		t.syncs = holdfast.Unknown
		return
	}
	t.commits, t.syncs = t.commits+commits, t.syncs+syncs
}

// Flushed adds acknowledgements that were compared with the flushes of their disk, and those that had none.
func (t *tally) Flushed(checked int, unflushed []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.FlushChecks += int64(checked)
	t.result.Unflushed += int64(len(unflushed))

	for _, f := range unflushed[:min(len(unflushed), 3)] { // the others of a victim say the same
		if len(t.result.Findings) < maxRowFindings {
			t.result.Findings = append(t.result.Findings, f)
		}
	}
	t.breached(byFlush)
}

// Recorded counts a victim on a recorded disk.
func (t *tally) Recorded() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recordings++
}

// Did adds how often something has been reached.
func (t *tally) Did(what string, times int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Reached[what] += times
}

// The number of findings and evidence directories that are kept of one row.
const (
	maxEvidence    = 3
	maxRowFindings = 20
)

// Breaks enters a round that breaks a claim, and keeps the evidence of the first ones.
func (t *tally) Breaks(s *kinds.Scene, j protocol.Judgement) {
	// Whatever becomes of the evidence, the scene's copy of the directory goes.
	defer s.Drop()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cell.Kind == Lies && !j.Broken() {
		return // it was refused, as is right
	}

	for _, f := range j.Findings {
		if len(t.result.Findings) < maxRowFindings {
			t.result.Findings = append(t.result.Findings, f)
		}
	}
	// What a control or mutant breaks, may be lost with the whole store, or comes of a disk that lied, needs no evidence.
	// Of machines the logs are kept, if there are any.
	if t.keep == nil || t.cell.Control || t.cell.Kind == Lies || t.cell.Kind == Machine && s.Tree == "" || t.excused() ||
		len(t.result.Evidence) >= maxEvidence {
		return
	}
	dir, err := t.keep()
	if err == nil {
		dir, err = evidence.Save(dir, s, j.Findings)
	}
	if err != nil {
		t.failed = err
		return
	}
	t.result.Evidence = append(t.result.Evidence, dir)
	if t.result.Replay == "" && t.cell.Kind != Machine {
		t.result.Replay = "holdfast crash --replay " + dir
	}
}

// broken is 1 if the row has broken a claim so far; of controls it does not tell.
func (t *tally) broken() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := &t.result; t.cell.Control || t.excused() || r.breaches() == 0 {
		return 0
	}

	return 1
}

// excused reports that a crash of this kind may cost the whole store.
func (t *tally) excused() bool {
	c := t.cell
	return c.Kind != Kill && c.Given < c.Kind.Survives() && c.Capabilities.Promise(c.Level).CutMayCorrupt
}

// Wrong enters what is found without a cut.
func (t *tally) Wrong(finding string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Wrong++
	if len(t.result.Findings) < maxRowFindings {
		t.result.Findings = append(t.result.Findings, finding)
	}
	t.breached(byVictim)
}

// Note adds a sentence for the reader of the row.
func (t *tally) Note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()

	// The same note comes once for each session, and is told once.
	if s := fmt.Sprintf(format, args...); !slices.Contains(t.notes, s) {
		t.notes = append(t.notes, s)
	}
}

// finish returns the row, as it is now, with its verdict.
func (t *tally) finish() Result {
	t.mu.Lock()
	defer t.mu.Unlock()

	// The row may still be added to, so nothing of it is shared with the report.
	r := t.result
	r.Findings, r.Evidence, r.Reached = slices.Clone(r.Findings), slices.Clone(r.Evidence), maps.Clone(r.Reached)
	if r.Simulated != nil {
		did := *r.Simulated
		r.Simulated = &did
	}
	if r.Lied != nil {
		saw := *r.Lied
		r.Lied = &saw
	}
	r.RecoveryMs = Recovery{-1, -1}
	if len(t.recovery) > 0 {
		r.RecoveryMs.Median, r.RecoveryMs.Max = medianAndMax(t.recovery)
	}
	for loss, took := range t.pauses {
		if r.Pauses == nil {
			r.Pauses = map[string]Pause{}
		}
		p := Pause{Times: len(took)}
		p.Median, p.Max = medianAndMax(took)
		r.Pauses[loss] = p
	}
	r.SyncsPerAck = holdfast.Unknown
	if t.commits > 0 && t.syncs >= 0 {
		r.SyncsPerAck = float64(t.syncs) / float64(t.commits)
	}

	// The cases are in order: what was found decides before what was promised.
	broken := r.breaches() > 0
	switch {
	case t.cell.NotAvailable != "":
		r.Verdict, r.Why, r.SyncsPerAck = NotAvailable, t.cell.NotAvailable, holdfast.Unknown
	case broken && t.excused():
		r.Verdict = AsDocumented
		r.Why = fmt.Sprintf("a power cut may cost the whole store: %d of %d did", r.RecoveryFailures, r.Cuts)
	case broken:
		r.Verdict = Broken
		r.Why = fmt.Sprintf("%d recovery failures", r.RecoveryFailures)
		if len(r.Findings) > 0 {
			r.Why = r.Findings[0]
		}
	case r.Cuts == 0:
		r.Verdict, r.Why = NotAvailable, "the run ended before"

	// That it held says nothing then. A control must be found out all the same.
	case r.Acked == 0 && !r.Control && t.cell.Kind != Lies && t.cell.Kind != Simulate:
		r.Verdict, r.Why = NotAvailable, "nothing had been acknowledged when it was cut; give it more cuts"

	case t.cell.Kind == Lies:
		r.Verdict = AsDocumented
		r.Why = fmt.Sprintf("of %d images of a disk that lied, %d were older states, %d were refused, %d ended its process "+
			"and %d were wrong without an error", r.Cuts, r.Lied.Older, r.Lied.Refused, r.Lied.Died, r.Lied.Wrong)
	case t.cell.Kind == Simulate || t.cell.Given >= t.cell.Kind.Survives():
		r.Verdict = Held

	// A level that need not survive this crash may lose something, but no more than its window.
	case t.cell.Peer && t.cell.Capabilities.LossWindow == 0:
		r.Verdict, r.Why = AsDocumented, t.loss()+"; it names no limit"
	case t.cell.Kind == Power && r.LossWindowMs > float64(t.cell.WindowLimit().Milliseconds()):
		r.Verdict = Broken
		r.Why = fmt.Sprintf("it lost %.0f ms of acknowledged commits, with a loss window of %v", r.LossWindowMs,
			t.cell.Window())
	default:
		r.Verdict, r.Why = AsDocumented, t.loss()
	}
	if r.Bounds = []Bound{}; r.Verdict == Held {
		r.Bounds = t.bounds()
	}

	// Notes follow whatever the verdict is: they say what limits it.
	for _, n := range t.notes {
		if r.Why != "" {
			r.Why += "; "
		}
		r.Why += n
	}

	return r
}

// medianAndMax are of some numbers.
func medianAndMax(list []float64) (median, most float64) {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2], list[len(list)-1]
}

// loss says how much a weaker level lost.
func (t *tally) loss() string {
	r := &t.result
	if r.LostCommits == 0 {
		return "nothing acknowledged was lost"
	}
	text := fmt.Sprintf("lost at most %d commits, %s", r.LostCommits, measure.Duration(1000*r.LossWindowMs))
	if t.cell.Kind == Power {
		text += fmt.Sprintf(" (loss window %v)", t.cell.Window())
	}

	return text
}

// Simulated adds a history to the row.
func (t *tally) Simulated(did Simulated) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.result.Simulated == nil {
		t.result.Simulated = &Simulated{}
	}
	t.result.Simulated.Add(did)
	t.result.Cuts = t.result.Simulated.Histories
}

// SimulationFailed enters a breach, with the command that runs the history again.
func (t *tally) SimulationFailed(seed uint64, err error) {
	// Before the lock is taken, because Wrong takes it.
	t.Wrong(err.Error())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.Seed = seed
	t.result.Replay = fmt.Sprintf("holdfast crash --kind simulate --engines %s --seed %d", t.cell.Engine, seed)
}
