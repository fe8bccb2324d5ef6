package bench

import (
	"errors"
	"math"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
)

// searchOf searches for the highest rate of an engine whose p99 is 1 ms up to a knee, and 20 ms above; from limit on it
// does not keep up.
func searchOf(closed, knee, limit float64) (Result, []float64, error) {
	var tried []float64
	bound, _ := ParseBound("p99=10ms")
	r, err := search(Cell{Engine: "x", Offer: Offer{Bound: bound}}, func(offer Offer) (Result, error) {
		result := Result{OpsPerSec: closed, Measurement: Measurement{Verified: true}}
		if !offer.Open() {
			return result, nil
		}
		tried = append(tried, offer.Rate)
		result.OpsPerSec = min(offer.Rate, limit)
		if result.Latency.P99 = 1e3; offer.Rate > knee {
			result.Latency.P99 = 20e3
		}
		result.Open = &OpenLoop{Capacity: closed, Offered: offer.Rate, Overloaded: offer.Rate >= limit}
		return result, nil
	})
	return r, tried, err
}

// TestSearchFindsTheKnee, wherever it is: below the closed loop's rate or above it, and whether it is latency or the
// rate itself that ends there.
func TestSearchFindsTheKnee(t *testing.T) {
	for _, test := range []struct{ closed, knee, limit float64 }{
		{1000, 700, 5000}, {1000, 100, 5000}, {1000, 3000, 5000}, {1000, 1e9, 800}, {1000, 1e9, 1001}, {2, 1.5, 100},
		{1e6, 123_456, 1e6},
	} {
		r, tried, err := searchOf(test.closed, test.knee, test.limit)
		if err != nil {
			t.Fatal(err)
		}
		s, highest := r.Search, math.Min(test.knee, test.limit)
		if s.Held > highest || s.Failed < highest || s.Failed > s.Held*searchStep || len(tried) > searchRuns ||
			len(s.Runs) != len(tried) || s.Closed != test.closed {
			t.Errorf("%+v: %+v", test, s)
		}
		if r.Open.Offered != s.Held || r.OpsPerSec != s.Held || r.Latency.P99 != 1e3 || r.Offer.String() != "p99=10ms" {
			t.Errorf("%+v: the result is of %+v", test, r.Open)
		}
	}
}

// TestSearchThatFindsNothing says so, and how far it looked.
func TestSearchThatFindsNothing(t *testing.T) {
	r, tried, err := searchOf(1e6, 0, 5e6)
	if s := r.Search; err != nil || s.Held != 0 || s.Failed != tried[len(tried)-1] || len(tried) != searchRuns ||
		r.Open.Offered != s.Failed {
		t.Errorf("%+v, %v", s, err)
	}
	r, tried, err = searchOf(1e6, 1e99, 1e99)
	if s := r.Search; err != nil || s.Failed != 0 || s.Held != tried[len(tried)-1] || len(tried) != searchRuns {
		t.Errorf("%+v, %v", s, err)
	}
	held, failed := searched([]Result{r}).Text(func(float64) string { return "rate" })
	if held != "rate" || failed != "not reached" {
		t.Errorf("%s, %s", held, failed)
	}
	if r, _, err := searchOf(0, 1, 1); err != nil || len(r.Search.Runs) > 0 {
		t.Errorf("%+v, %v", r.Search, err)
	}
}

// TestSearchEnds with what is void, and with what breaks off.
func TestSearchEnds(t *testing.T) {
	for at := range 3 {
		n := 0
		r, err := search(Cell{Offer: Offer{Bound: Bound{"p99", 1}}}, func(offer Offer) (Result, error) {
			if n++; n > at+1 {
				t.Error("it goes on")
			}
			return Result{OpsPerSec: 5, Measurement: Measurement{Verified: n <= at, Open: &OpenLoop{Offered: offer.Rate}}}, nil
		})
		if err != nil || r.Verified || r.Search != nil {
			t.Errorf("%+v, %v", r, err)
		}
		_, err = search(Cell{}, func(Offer) (Result, error) { return Result{}, console.ErrInterrupted })
		if !errors.Is(err, console.ErrInterrupted) {
			t.Errorf("%v", err)
		}
	}
}

func TestParseBound(t *testing.T) {
	for _, text := range []string{"p99=10ms", "p50=1µs", "p99.9=1m0s", "p90=1.5s"} {
		var o Offer
		err := o.UnmarshalText([]byte(text))
		if err != nil || o.String() != text || !o.Open() {
			t.Errorf("%s: %v, %v", text, o, err)
		}
	}
	for _, text := range []string{"", "p99", "p99=", "p98=1ms", "=1ms", "p99=0s", "p99=-1s", "p99=2m", "p99=5",
		"p99=1ms=1"} {
		if _, err := ParseBound(text); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, r := range []Request{{Find: []string{"10ms"}}, {Rates: []string{"p99=1ms"}}} {
		if _, err := Standard().Plan(r); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
