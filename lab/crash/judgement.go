package crash

import (
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// Judgement is what a crash has left, counted in batches. What must not be is in Findings, in words.
type Judgement struct {
	Survived   uint64   `json:"survived"` // the last number of which nothing and nothing before is missing
	Last       uint64   `json:"last"`     // the last number of which something is there
	Acked      int      `json:"acked"`    // acknowledged in the last generation, at history.Level or above
	Kept       int      `json:"kept"`     // of them, there
	Lost       int      `json:"lost"`     // acknowledged at a level that must survive this, and not there
	Gone       int      `json:"gone"`     // acknowledged at a weaker level, and not there
	Torn       int      `json:"torn"`     // there in part
	OutOfOrder int      `json:"out_of_order"`
	Wrong      int      `json:"wrong"` // found and never written, damaged, or different when opened again
	Window     float64  `json:"window_ms"`
	Findings   []string `json:"findings,omitempty"`
	Skipped    []span   `json:"skipped,omitempty"` // of a store for Raft: see history
}

// maxFindings is how many findings are kept in words.
const maxFindings = 12

func (j *Judgement) find(count *int, format string, args ...any) {
	*count++
	if len(j.Findings) < maxFindings {
		j.Findings = append(j.Findings, fmt.Sprintf(format, args...))
	}
}

// broken reports a breach of anything.
func (j *Judgement) broken() bool { return j.Lost+j.Torn+j.OutOfOrder+j.Wrong > 0 }

// unread counts what was acknowledged where nothing could be read.
func (j *Judgement) unread(h *history) {
	for _, a := range h.Acks {
		if h.counts(a) {
			j.Acked++
		}
	}
}

// settle enters a verdict, and counts what was acknowledged and is not there.
func (j *Judgement) settle(h *history, v commits.Verdict) {
	counts := map[commits.Class]*int{commits.Wrong: &j.Wrong, commits.Torn: &j.Torn, commits.OutOfOrder: &j.OutOfOrder}
	for _, f := range v.Findings {
		j.find(counts[f.Class], "%s", f.Text)
	}
	j.Last, j.Survived = v.Last, v.Survived()
	firstGone, lastAck := time.Duration(-1), time.Duration(0) // since the victim was started
	lost := 0
	for _, a := range h.Acks {
		lastAck = max(lastAck, a.at)
		if !h.counts(a) {
			continue
		}
		j.Acked++
		if a.n <= j.Last && !v.Missing[a.n] {
			j.Kept++
			continue
		}
		if firstGone < 0 || a.at < firstGone {
			firstGone = a.at
		}
		if a.level >= h.Survives {
			lost++
		} else {
			j.Gone++
		}
	}
	if firstGone >= 0 {
		j.Window = float64((lastAck - firstGone).Microseconds()) / 1000
	}
	// One acknowledgement covers all before it.
	if h.Bound > j.Survived {
		lost = max(lost, 1)
		j.find(new(int), "batch %d and all before it had been acknowledged to survive this, but only the first %d are there: %d acknowledged ones are lost", h.Bound, j.Survived, lost)
	}
	j.Lost = lost
	if h.Shown > j.Survived {
		j.find(&j.Wrong, "a follower was shown everything up to %d, but only %d survived", h.Shown, j.Survived)
	}
}

// again compares what was found at a second opening.
func (j *Judgement) again(first, second []entry) {
	if d := commits.Difference(second, first); d != "" {
		j.find(&j.Wrong, "opened again, it holds something else: %s", d)
	}
}
