package bench

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Offer is how fast operations are offered to a contender. In a closed loop, which is its zero value, a client begins
// an operation when its last one has ended. In an open loop operations are due at fixed times, whatever has become of
// those before.
type Offer struct {
	Share float64 // of the rate that the closed loop of the warm-up makes in its second half; 0 if Rate is named
	Rate  float64 // operations a second of all clients together
	Bound Bound   // instead of a rate, the highest at which this holds is looked for
}

// Limits of what can be offered. At more than maxShare a run shows nothing that it does not show there.
const (
	minRate, maxRate   = 1e-3, 1e9
	minShare, maxShare = 1e-3, 10
)

// ParseOffer reads what [Offer.String] writes of a rate: "80%", "20000/s", or "" for a closed loop.
func ParseOffer(text string) (o Offer, err error) {
	limits := fmt.Sprintf("name a share from %v %% to %v %%, as 80%%, or a rate from %v to %v, as 20000/s",
		minShare*100, maxShare*100, minRate, maxRate)
	number := func(of string, low, high float64) float64 {
		x, failed := strconv.ParseFloat(of, 64)
		if failed != nil || !(x >= low && x <= high) { // NaN is neither
			err = op.BadOption(fmt.Sprintf("a rate of %q", text), limits)
		}

		return x
	}

	share, isShare := strings.CutSuffix(text, "%")
	rate, isRate := strings.CutSuffix(text, "/s")
	switch {
	case text == "":
	case isShare:
		o.Share = number(share, minShare*100, maxShare*100) / 100
	case isRate:
		o.Rate = number(rate, minRate, maxRate)
	default:
		err = op.BadOption(fmt.Sprintf("a rate of %q", text), limits)
	}
	if err != nil {
		return Offer{}, err
	}

	return o, nil
}

// String is "" for a closed loop.
func (o Offer) String() string {
	switch {
	case o.Share > 0:
		return strconv.FormatFloat(math.Round(o.Share*1e9)/1e7, 'f', -1, 64) + "%"
	case o.Rate > 0:
		return strconv.FormatFloat(o.Rate, 'f', -1, 64) + "/s"
	}

	return o.Bound.String()
}

// MarshalText writes o as JSON has it.
func (o Offer) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (o *Offer) UnmarshalText(text []byte) (err error) {
	if *o = (Offer{}); strings.Contains(string(text), "=") {
		o.Bound, err = ParseBound(string(text))
	} else {
		*o, err = ParseOffer(string(text))
	}

	return err
}

// Open reports whether it is an open loop.
func (o Offer) Open() bool { return o != Offer{} }

// rate is what is offered to a contender whose closed loop makes capacity, in operations a second.
func (o Offer) rate(capacity float64) float64 {
	if o.Share > 0 {
		return min(max(capacity*o.Share, minRate), maxRate)
	}

	return o.Rate
}

// Title is what a table says of it, behind a comma; "" for a closed loop.
func (o Offer) Title() string {
	switch {
	case o.Share > 0:
		return fmt.Sprintf(", open loop at %v of its closed loop's rate", o)
	case o.Rate > 0:
		return fmt.Sprintf(", open loop at %v", o)
	case o.Bound != Bound{}:
		return fmt.Sprintf(", the highest rate with a %s of at most %v", o.Bound.Percentile, o.Bound.Limit)
	}

	return ""
}

// OpenLoop is what an open loop did. Rates are of operations, a second.
type OpenLoop struct {
	Capacity float64 `json:"capacity_per_sec"` // that the closed loop made in the second half of the warm-up
	Offered  float64 `json:"offered_per_sec"`
	// Overloaded is true if the contender did not keep up: in the last quarter of the time there was always an operation
	// due that no client had begun, or some were left a quarter later. Its latencies then only say for how long it ran.
	Overloaded bool  `json:"overloaded"`
	Backlog    int64 `json:"backlog"` // operations that were due and were never begun
	// MovedSeconds is by how much times due were moved in all, because the generator's own timer came late.
	MovedSeconds float64 `json:"moved_seconds"`
}

// pacer hands out the operations of an open loop in the order in which they are due, to whichever client is free. One
// client at a time waits for the next one, so that no more than one processor is busy with waiting.
type pacer struct {
	turn chan struct{} // whoever has put something in has what follows
	stop func() bool

	epoch      time.Time // that times count from
	origin     time.Duration
	end, limit time.Duration // nothing is due from end on; nothing is begun from limit on
	interval   float64       // between two operations, in nanoseconds
	slack      time.Duration // that a timer may come late

	next  int64
	moved time.Duration
	idle  time.Duration // the last time at which all that was due had been begun
	left  int64         // operations that were due before end and are not begun
}

// maxSlack bounds for how long a client waits busily, however late timers come on a machine that does other work.
const maxSlack = 2 * time.Millisecond

// newPacer paces for a time, from now on.
func newPacer(epoch time.Time, length time.Duration, rate float64, stop func() bool) *pacer {
	p := &pacer{turn: make(chan struct{}, 1), stop: stop, epoch: epoch, slack: timerSlack(),
		interval: float64(time.Second) / rate}

	// Where a timer that comes late comes before the next operation is due, its lateness costs nothing, and busy waiting
	// would take processors from what is measured.
	if p.interval > 2*float64(maxSlack) {
		p.slack = 0
	}
	p.origin = time.Since(epoch)
	p.end = p.origin + length
	p.limit = p.end + length/runParts

	return p
}

// timerSlack measures how late a short sleep ends. In Go that is a millisecond on a system that is idle.
func timerSlack() (slack time.Duration) {
	const short = 50 * time.Microsecond
	for range 10 {
		began := time.Now()
		time.Sleep(short)
		slack = max(slack, time.Since(began)-short)
	}

	return min(slack, maxSlack)
}

// due is when operation n is due.
func (p *pacer) due(n int64) time.Duration {
	return p.origin + p.moved + time.Duration(min(float64(n)*p.interval, float64(math.MaxInt64/4)))
}

// take waits until the next operation is due, and returns since when it is. There is none left if ok is false.
//
// When the wait ended is when the operation counts as due: how late the timer came is not the contender's. If it came
// so late that the next one is due as well, all times are moved. What remains is less than one interval.
func (p *pacer) take() (due time.Duration, ok bool) {
	p.turn <- struct{}{}
	defer func() { <-p.turn }()
	due = p.due(p.next)
	now := time.Since(p.epoch)
	if now < due {
		p.idle = min(now, p.end)
	}

	switch {
	case p.stop():
		return 0, false
	case due >= p.end:
		if now < p.end {
			p.idle = p.end
		}

		return 0, false
	case now >= p.end && p.behind() || now >= p.limit:
		p.left = int64(math.Ceil(float64(p.end-p.moved-p.origin)/p.interval)) - p.next
		return 0, false
	}
	p.next++
	if now < due {
		now = p.wait(due)
		p.idle = now
		p.moved += max(now-due-time.Duration(p.interval), 0)
		due = now
	}

	return due, true
}

// behind reports whether there was always something due in the last quarter of the time.
func (p *pacer) behind() bool { return p.idle < p.end-(p.end-p.origin)/runParts }

// maxSleep is how long a client may take to see that it is to stop.
const maxSleep = 100 * time.Millisecond

// wait waits until due, the last bit busily, and returns what time it then is.
func (p *pacer) wait(due time.Duration) time.Duration {
	for {
		now := time.Since(p.epoch)
		switch early := due - now; {
		case early <= 0 || p.stop():
			return now
		case early > p.slack:
			time.Sleep(min(early-p.slack, maxSleep))
		default:
			runtime.Gosched()
		}
	}
}

// says fills in what came of it.
func (p *pacer) says(o *OpenLoop) {
	o.Overloaded, o.Backlog, o.MovedSeconds = p.left > 0 || p.behind(), p.left, p.moved.Seconds()
}
