package protocol

import (
	"cmp"
	"fmt"
	"math"
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

// Request is what a recorded disk answered: a flush, or a write.
type Request struct {
	At    time.Duration
	Flush bool
}

// Unflushed counts the acknowledgements until end that can be compared with what a disk was asked for, which is given
// in order. A finding is one between whose batch and itself the disk did not write something and then flush: what the
// batch wrote, a cut could take. A flush alone does not count: it may be the end of a sync that others had begun.
func (l *Ledger) Unflushed(asked []Request, end time.Duration) (checked int, findings []string) {
	l.mu.Lock()
	defer l.mu.Unlock()

	flushed := coveredFrom(asked)

	for _, w := range l.waits {
		if w.To > end {
			continue // what the disk did after that was not recorded
		}
		checked++
		next, _ := slices.BinarySearchFunc(asked, w.From,
			func(r Request, at time.Duration) int { return cmp.Compare(r.At, at) })

		// Some write after the batch was applied, and then a flush, were answered before it was acknowledged.
		if flushed[next] < w.To {
			continue
		}

		last := next - 1
		for last >= 0 && !asked[last].Flush {
			last--
		}
		before := "the disk had not flushed anything yet"
		if last >= 0 {
			since := (w.From - asked[last].At).Round(time.Microsecond)
			before = fmt.Sprintf("the last flush was %v before it was applied", since)
		}
		findings = append(findings, fmt.Sprintf("the batch that sets %.*q was acknowledged at %v, %v after it was applied, "+
			"and the disk did not write and then flush between: %s; look for the sync that was not made, or not waited for",
			waitKey, w.Key, holdfast.Power, (w.To-w.From).Round(time.Microsecond), before))
	}

	return checked, findings
}

// coveredFrom says for each request, and the end, when what is written from there on is flushed first.
func coveredFrom(asked []Request) []time.Duration {
	flush, covered := never, make([]time.Duration, len(asked)+1)
	covered[len(asked)] = never

	// From the end backwards: the flush that covers a write is the next one behind it.
	for i := len(asked) - 1; i >= 0; i-- {
		if covered[i] = covered[i+1]; asked[i].Flush {
			flush = asked[i].At
		} else {
			covered[i] = flush
		}
	}

	return covered
}

const never = time.Duration(math.MaxInt64)
