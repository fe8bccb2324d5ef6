package crash

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
)

// confidence of bounds.
const confidence = 0.95

// Bound is what a row without a breach supports: were each of N independent trials a breach with a probability of Below
// or more, then a run with none would come about in 1 case of 20 at most.
type Bound struct {
	Of    string  `json:"of"` // acknowledgement, recording, victim or history
	N     int64   `json:"n"`
	Below float64 `json:"below"`
}

// What bounds are of.
const (
	ofAcknowledgement = "acknowledgement"
	ofRecording       = "recording"
	ofVictim          = "victim"
	ofHistory         = "history"
)

// bounds are those of a row that held. Cuts of one recording show what one victim did, so they are no trials of their
// own: recordings are.
func (t *tally) bounds() []Bound {
	list, r := []Bound{}, &t.result
	add := func(of string, n int64) {
		if n > 0 {
			list = append(list, Bound{of, n, Below(n)})
		}
	}
	switch t.cell.Kind {
	case Kill, Machine:
		add(ofVictim, int64(r.Cuts))
	case Simulate:
		add(ofHistory, int64(r.Cuts))
	default:
		add(ofAcknowledgement, r.FlushChecks)
		add(ofRecording, t.recordings)
	}

	return list
}

// Below is the probability of a breach that n independent trials without one exclude with 95 % confidence; 1 for none.
func Below(n int64) float64 { return mostOf(0, n) }

// mostOf is the largest probability with which n independent trials have k hits or fewer in 1 case of 20 (the upper end
// of Clopper and Pearson's interval): 1-0.05^(1/n) for no hit, about 3/n.
func mostOf(k, n int64) float64 {
	if k >= n {
		return 1
	}

	low, high := 0.0, 1.0
	for range 60 {
		// The probability of so few hits falls as p rises, so halving comes to the border. Sixty times are more than a
		// float64 has digits.
		if p := (low + high) / 2; atMost(k, n, p) > 1-confidence {
			low = p
		} else {
			high = p
		}
	}

	return high
}

// leastOf is the smallest probability with which n trials have k hits or more in 1 case of 20.
func leastOf(k, n int64) float64 { return 1 - mostOf(n-k, n) }

// atMost is the probability of k hits or fewer in n trials. Factorials of large numbers do not fit a float64, so
// logarithms are added and the sum is taken at the end.
func atMost(k, n int64, p float64) (sum float64) {
	choose := func(k int64) float64 {
		a, _ := math.Lgamma(float64(n + 1))
		b, _ := math.Lgamma(float64(k + 1))
		c, _ := math.Lgamma(float64(n - k + 1))

		return a - b - c
	}
	for i := int64(0); i <= k; i++ {
		sum += math.Exp(choose(i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
	}

	return sum
}

// percent shows two digits, rounded up, so that it claims no more than was computed.
func percent(p float64) string {
	if p <= 0 {
		return "0 %"
	}

	digits := 1 - int(math.Floor(math.Log10(100*p)))
	unit := math.Pow(10, float64(-digits))

	return fmt.Sprintf("%.*f %%", max(digits, 0), math.Ceil(100*p/unit-1e-9)*unit)
}

// shortBounds are for a column of a table.
func shortBounds(list []Bound) string {
	short := map[string]string{ofAcknowledgement: "ack", ofRecording: "disk", ofVictim: "victim", ofHistory: "history"}
	var parts []string

	for _, b := range list {
		parts = append(parts, percent(b.Below)+"/"+short[b.Of])
	}
	if len(parts) == 0 {
		return "-"
	}

	return strings.Join(parts, ", ")
}

// summary says in a line how far a run has come: what it found, or else the bounds that every row has reached.
func (r *Report) summary() string {
	text, findings := console.Number(r.crashes(), "crash"), int64(0)
	var least []Bound // by what they are of, those of the row with the fewest trials

	for _, row := range r.Results {
		// A control is broken by intent, and its bounds are of no engine.
		if row.Control {
			continue
		}
		if row.Verdict == Broken {
			findings += row.breaches()
		}

		for _, b := range row.Bounds {
			switch i := slices.IndexFunc(least, func(o Bound) bool { return o.Of == b.Of }); {
			case i < 0:
				least = append(least, b)
			case b.N < least[i].N:
				least[i] = b
			}
		}
	}
	if n := r.brokenRows(); n > 0 {
		text += fmt.Sprintf(", %s, %d BROKEN", console.Number(int(findings), "finding"), n)
	} else {
		text += ", no findings"
	}
	if len(least) > 0 {
		text += ", each row that held below " + shortBounds(least)
	}

	return text
}

// aboutBounds says what the column says, and what it does not.
const aboutBounds = "below: what the run supports, with 95 % confidence, about breaches that come by chance, each " +
	"trial for itself. ack: fewer acknowledgements at power than that went without a flush. disk: on fewer " +
	"recorded disks " +
	"than that would these cuts show a breach; a victim works on each, and as its cuts are not independent they " +
	"count once. " +
	"victim: fewer kills, or losses of machines. history: fewer simulated histories. What only comes about in a state " +
	"that no victim reached " +
	"is not covered; holdfast crash --mutants says what the lab finds."
