package protocol

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Wait is a batch that was acknowledged for power loss: its life, on the clock of package clock. Its data can have been
// written after From only, and must have been made durable by To.
type Wait struct {
	From, To time.Duration
	Key      string // that it sets, perhaps cut short
}

// waitKey is how much of a key is told.
const waitKey = 48

// Waited tells of a batch that was applied and acknowledged.
func (t *Reporter) Waited(w Wait) {
	t.message(Message{Kind: tellWaited, A: uint64(w.From), B: uint64(w.To), Text: w.Key[:min(len(w.Key), waitKey)]})
}

// Unflushed counts the acknowledgements until end that can be compared with a disk's flushes, which are given in order.
// A finding is one between whose batch and itself there was none: what the disk had then, a cut could take.
func (l *Ledger) Unflushed(flushes []time.Duration, end time.Duration) (checked int, findings []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.waits {
		if w.To > end {
			continue // what the disk did after that was not recorded
		}
		checked++
		next, _ := slices.BinarySearch(flushes, w.From)
		if next < len(flushes) && flushes[next] < w.To {
			continue
		}
		before := "the disk had not flushed anything yet"
		if next > 0 {
			since := (w.From - flushes[next-1]).Round(time.Microsecond)
			before = fmt.Sprintf("the last flush was %v before it was applied", since)
		}
		findings = append(findings, fmt.Sprintf("the batch that sets %.*q was acknowledged at %v, %v after it was applied, "+
			"and the disk flushed nothing between: %s; look for the sync that was not made, or not waited for",
			waitKey, w.Key, holdfast.Power, (w.To-w.From).Round(time.Microsecond), before))
	}
	return checked, findings
}
