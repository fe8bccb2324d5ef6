package protocol

import (
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// Judgement is what a crash has left, counted in batches. What must not be is in Findings, in words.
type Judgement struct {
	Survived   uint64   `json:"survived"` // the last number of which nothing and nothing before is missing
	Last       uint64   `json:"last"`     // the last number of which something is there
	Acked      int      `json:"acked"`    // acknowledged in the last generation, at History.Level or above
	Kept       int      `json:"kept"`     // of them, there
	Lost       int      `json:"lost"`     // acknowledged at a level that must survive this, and not there
	Gone       int      `json:"gone"`     // acknowledged at a weaker level, and not there
	Torn       int      `json:"torn"`     // there in part
	OutOfOrder int      `json:"out_of_order"`
	Wrong      int      `json:"wrong"` // found and never written, damaged, or different when opened again
	Window     float64  `json:"window_ms"`
	Findings   []string `json:"findings,omitempty"`
	Skipped    []Span   `json:"skipped,omitempty"` // see History
	Died       bool     `json:"died,omitempty"`    // opening and reading it ended in no answer, but in a death or a hang
}

// maxFindings is how many findings are kept in words.
const maxFindings = 12

// Find counts a finding, and keeps the first ones in words.
func (j *Judgement) Find(count *int, format string, args ...any) {
	*count++
	if len(j.Findings) < maxFindings {
		j.Findings = append(j.Findings, fmt.Sprintf(format, args...))
	}
}

// Broken reports a breach of anything.
func (j *Judgement) Broken() bool { return j.Lost+j.Torn+j.OutOfOrder+j.Wrong > 0 }

// Unread counts what was acknowledged where nothing could be read.
func (j *Judgement) Unread(h *History) {
	for _, a := range h.Acks {
		if h.counts(a) {
			j.Acked++
		}
	}
}

// Settle enters a verdict, and counts what was acknowledged and is not there.
func (j *Judgement) Settle(h *History, v commits.Verdict) {
	counts := map[commits.Class]*int{commits.Wrong: &j.Wrong, commits.Torn: &j.Torn, commits.OutOfOrder: &j.OutOfOrder}
	for _, f := range v.Findings {
		j.Find(counts[f.Class], "%s", f.Text)
	}
	j.Last, j.Survived = v.Last, v.Survived()

	firstGone, lastAck := time.Duration(-1), time.Duration(0) // since the victim was started
	lost := 0

	// Every acknowledgement counts towards the time of the last one, and only those that must survive this count as
	// lost.
	for _, a := range h.Acks {
		lastAck = max(lastAck, a.At)
		if !h.counts(a) {
			continue
		}
		j.Acked++

		if a.N <= j.Last && !v.Missing[a.N] {
			j.Kept++
			continue
		}
		if firstGone < 0 || a.At < firstGone {
			firstGone = a.At
		}
		if a.Level >= h.Survives {
			lost++
		} else {
			j.Gone++
		}
	}

	// The window is from the first acknowledgement that is gone to the last one that was heard.
	if firstGone >= 0 {
		j.Window = float64((lastAck - firstGone).Microseconds()) / 1000
	}

	// Where operations run concurrently each is acknowledged for itself.
	for _, n := range h.Must {
		if n > j.Last || v.Missing[n] {
			lost = max(lost, 1)
			j.Find(new(int), "operation %d had been acknowledged, or shown by a follower, to survive this, and is not there", n)
		}
	}
	// One acknowledgement covers all before it.
	if h.Bound > j.Survived {
		lost = max(lost, 1)
		j.Find(new(int), "batch %d and all before it had been acknowledged to survive this, "+
			"but only the first %d are there: %d acknowledged ones are lost", h.Bound, j.Survived, lost)
	}
	j.Lost = lost
	if h.Shown > j.Survived {
		j.Find(&j.Wrong, "a follower was shown everything up to %d, but only %d survived", h.Shown, j.Survived)
	}
}

// Again compares what was found at a second opening.
func (j *Judgement) Again(first, second []commits.Found) {
	if d := commits.Difference(second, first); d != "" {
		j.Find(&j.Wrong, "opened again, it holds something else: %s", d)
	}
}
