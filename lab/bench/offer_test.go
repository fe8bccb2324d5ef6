package bench

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
)

// driveVirtually drives a load whose operations take as long as took says, given the time since the beginning.
func driveVirtually(t *testing.T, clients int, offer Offer, length time.Duration,
	took func(now time.Duration) time.Duration,
) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		load := Load{Client: func(int) func() error {
			return func() error {
				time.Sleep(took(time.Since(began)))
				return nil
			}
		}}
		q := request{Cell: Cell{Clients: clients, Offer: offer}, WarmUp: 400 * time.Millisecond, For: length}
		if err := drive(load, q, make(opCounts, clients), &o); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > q.WarmUp+length+length/runParts+2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	return o
}

func steady(time.Duration) time.Duration { return time.Millisecond }

// stalling takes a millisecond, and stands still for 200 ms in each second, beginning at half of it.
func stalling(now time.Duration) time.Duration {
	const from, to = 500 * time.Millisecond, 700 * time.Millisecond
	if in := now % time.Second; in >= from && in < to {
		return to - in + time.Millisecond
	}
	return time.Millisecond
}

// TestOpenLoopShowsStalls: of an engine that stands still for a fifth of the time, a closed loop has one slow operation
// in 800, and its p99 shows nothing of it. In an open loop all operations that were due meanwhile wait.
func TestOpenLoopShowsStalls(t *testing.T) {
	for _, clients := range []int{1, 4} {
		closed := driveVirtually(t, clients, Offer{}, 4*time.Second, stalling)
		if l := closed.Latency; l.P99 > 1100 || l.Max < 190e3 || closed.Open != nil {
			t.Errorf("closed loop, %d clients: %+v", clients, l)
		}
		for _, offer := range []Offer{{Share: 0.5}, {Rate: 400 * float64(clients)}} {
			o := driveVirtually(t, clients, offer, 4*time.Second, stalling)
			if l := o.Latency; l.P50 > 50e3 || l.P99 < 150e3 || l.Max > 210e3 || o.Open.Overloaded || o.Open.Backlog > 0 {
				t.Errorf("%v, %d clients: %+v, %+v", offer, clients, l, o.Open)
			}
		}
	}
}

// TestOffered: what keeps up makes the rate that is offered, for as long as was asked for, and waits for nothing.
func TestOffered(t *testing.T) {
	for _, test := range []struct {
		clients  int
		offer    Offer
		capacity float64
		ops      int64
	}{
		{1, Offer{Share: 0.5}, 1000, 1000}, {2, Offer{Share: 0.8}, 2000, 3200}, {512, Offer{Rate: 3}, 512e3, 6},
		{1, Offer{Rate: 0.001}, 1000, 1}, {8, Offer{Rate: 5000}, 8000, 10000},
	} {
		o := driveVirtually(t, test.clients, test.offer, 2*time.Second, steady)
		open := o.Open
		if math.Abs(float64(o.Ops-test.ops)) > float64(test.ops)/100+1 || o.Seconds < 2 || o.Seconds > 2.1 ||
			open.Overloaded || open.Backlog != 0 || open.MovedSeconds != 0 {
			t.Errorf("%+v: %d operations in %v s, %+v", test, o.Ops, o.Seconds, open)
		}
		if math.Abs(open.Capacity/test.capacity-1) > 0.02 || open.Offered != test.offer.rate(open.Capacity) {
			t.Errorf("%+v: %+v", test, open)
		}
		if l := o.Latency; l.Max > 1010 {
			t.Errorf("%+v: %+v", test, l)
		}
	}
}

// TestOverloaded: who does not keep up is found out, at a rate a little above what is possible too, and the run ends.
func TestOverloaded(t *testing.T) {
	for _, test := range []struct {
		offer Offer
		took  func(time.Duration) time.Duration
	}{
		{Offer{Share: 1.02}, steady}, {Offer{Share: 10}, steady}, {Offer{Rate: 1e9}, steady},
		{Offer{Rate: 900}, stalling}, // more than the 800 that it makes
		{Offer{Rate: 1}, func(now time.Duration) time.Duration { // begun in time, and one is in work for a second
			if now > 2*time.Second {
				return 3 * time.Second
			}
			return time.Millisecond
		}},
	} {
		o := driveVirtually(t, 1, test.offer, 4*time.Second, test.took)
		if o.Open.Overloaded != (o.Open.Backlog > 0) || !o.Open.Overloaded {
			t.Errorf("%v: %+v, %d operations in %v s", test.offer, o.Open, o.Ops, o.Seconds)
		}
		if due := o.Open.Offered * 4; math.Abs(float64(o.Ops+o.Open.Backlog)-due) > due/1000+1 {
			t.Errorf("%v: %d done and %d left, of %v", test.offer, o.Ops, o.Open.Backlog, due)
		}
	}
}

// TestLateTimer: a timer of the load that comes late moves what is due, and the contender does not wait for it.
func TestLateTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(time.Now(), time.Second, 1000, func() bool { return false })
		p.slack = -3 * time.Millisecond // each sleep ends so late
		ops := 0
		for {
			due, ok := p.take()
			if !ok {
				break
			}
			ops++
			if late := time.Since(p.epoch) - due; late < 0 || late > time.Millisecond {
				t.Fatalf("operation %d counts since %v ago", ops, late)
			}
		}
		if p.moved < 400*time.Millisecond || ops > 600 || p.left != 0 {
			t.Errorf("%d operations, moved by %v, %d left", ops, p.moved, p.left)
		}
	})
}

// TestParseOffer: what is no rate is refused, and what is one is read as it was written.
func TestParseOffer(t *testing.T) {
	for _, text := range []string{"", "80%", "0.5%", "33.3%", "100%", "1000%", "20000/s", "0.001/s", "1000000000/s"} {
		o, err := ParseOffer(text)
		if err != nil || o.String() != text || o.Open() != (text != "") {
			t.Errorf("%q: %v, %v", text, o, err)
		}
		var again Cell
		written, err := json.Marshal(Cell{Offer: o, Asked: holdfast.Power, Given: holdfast.Power})
		if err := errors.Join(err, json.Unmarshal(written, &again)); err != nil || again.Offer != o {
			t.Errorf("%q: %s, %v, %v", text, written, again.Offer, err)
		}
	}
	for _, text := range []string{"0", "80", "0%", "-1%", "NaN%", "Inf/s", "-Inf/s", "nan/s", "0/s", "-20/s", "1e10/s",
		"1001%", "/s", "%", "%/s", "80%/s", "80 %", "0x1p-9999/s", "p99=10ms", "1e-300/s"} {
		if o, err := ParseOffer(text); !errors.Is(err, holdfast.ErrBadOption) || o.Open() {
			t.Errorf("%q: %v, %v", text, o, err)
		}
	}
	for _, rate := range []string{"", "0%", "NaN/s", "-1/s"} {
		if _, err := Standard().Plan(Request{Rates: []string{rate}}); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v", rate, err)
		}
	}
}
