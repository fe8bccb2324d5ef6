package measure

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestCompareAgainstTables: p values are those of published tables of the exact test.
func TestCompareAgainstTables(t *testing.T) {
	for _, test := range []struct {
		a, b []float64
		p    float64
	}{
		{[]float64{1, 2, 3, 4, 5, 6}, []float64{7, 8, 9, 10, 11, 12}, 2. / 924},
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 0.1},
		{[]float64{1, 3, 5}, []float64{2, 4, 6}, 0.7},
		{[]float64{1, 2, 4, 5, 6, 7}, []float64{3, 8, 9, 10, 11, 12}, 2. * (1 + 1 + 2 + 3 + 5) / 924}, // U of 4
		{[]float64{5, 5, 5}, []float64{5, 5, 5}, 1},
		{[]float64{5}, []float64{6}, 1},
		{nil, []float64{6}, 1},
	} {
		if d, other := Compare(test.a, test.b), Compare(test.b, test.a); math.Abs(d.P-test.p) > 1e-9 ||
			math.Abs(other.P-test.p) > 1e-9 {
			t.Errorf("%v and %v: p is %v and %v, want %v", test.a, test.b, d.P, other.P, test.p)
		}
	}
}

// TestRatio is compared with all ratios, sorted.
func TestRatio(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		a, b := make([]float64, 1+r.IntN(12)), make([]float64, 1+r.IntN(12))
		for _, values := range [][]float64{a, b} {
			for i := range values {
				values[i] = math.Exp(3 * r.NormFloat64())
				if r.IntN(3) == 0 {
					values[i] = float64(1 + r.IntN(3)) // ties
				}
			}
		}
		var ratios []float64
		for _, x := range a {
			for _, y := range b {
				ratios = append(ratios, x/y)
			}
		}
		slices.Sort(ratios)
		slices.Sort(a)
		slices.Sort(b)
		for n, want := range ratios {
			if got := nthRatio(a, b, n+1); got != want {
				t.Fatalf("ratio %d of %v to %v is %v, want %v", n+1, a, b, got, want)
			}
		}
	}
	for _, test := range []struct {
		a, b []float64
		want Difference
	}{
		{[]float64{2}, []float64{1}, Difference{1, 2, 2, 2, 0}},
		{[]float64{2, 4}, []float64{1, 1}, Difference{1. / 3, 3, 2, 4, 2. / 3}},
		{[]float64{0, 1}, []float64{1, 1}, Difference{1, -1, -1, -1, -1}},
	} {
		got := Compare(test.a, test.b)
		got.P = test.want.P // has a test of its own
		for i, pair := range [][2]float64{{got.Ratio, test.want.Ratio}, {got.Low, test.want.Low},
			{got.High, test.want.High}, {got.Confidence, test.want.Confidence}} {
			if math.Abs(pair[0]-pair[1]) > 1e-9 {
				t.Errorf("%v to %v, %d: %+v, want %+v", test.a, test.b, i, got, test.want)
			}
		}
	}
	if got := Compare(make([]float64, 6), []float64{1, 2, 3, 4, 5, 6}); got.Ratio != -1 || got.P > 0.01 {
		t.Errorf("of nothing: %+v", got)
	}
}

// TestRatioInterval holds the true ratio as often as it says, for few and for many values.
func TestRatioInterval(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{6, 40} {
		const times, ratio = 1000, 1.3
		held, confidence := 0, 0.0
		for range times {
			a, b := make([]float64, n), make([]float64, n)
			for i := range n {
				a[i], b[i] = ratio*math.Exp(r.NormFloat64()/10), math.Exp(r.NormFloat64()/10)
			}
			d := Compare(a, b)
			confidence = d.Confidence
			if d.Low <= ratio && ratio <= d.High {
				held++
			}
		}
		if share := float64(held) / times; math.Abs(share-confidence) > 0.025 || confidence < WantConfidence {
			t.Errorf("%d values: held in %v of all, and says %v", n, share, confidence)
		}
	}
}

// TestThousandValues: neither the exact distribution nor all pairs are made of that many.
func TestThousandValues(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a, b := make([]float64, 1000), make([]float64, 1000)
	for i := range a {
		a[i], b[i] = 1.05*math.Exp(r.NormFloat64()/10), math.Exp(r.NormFloat64()/10)
	}
	if d := Compare(a, b); d.P > 1e-9 || d.Low < 1.03 || d.High > 1.07 {
		t.Errorf("%+v", d)
	}
}

func TestHolm(t *testing.T) {
	want := []float64{0.06, 0.03, 0.06, 0.02, 1}
	got := Holm([]float64{0.03, 0.0075, 0.02, 0.004, 1})
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-9 {
			t.Errorf("%v, want %v", got, want)
			break
		}
	}
	if len(Holm(nil)) != 0 {
		t.Error("of nothing comes something")
	}
}

// TestRoundsFor: with so many rounds a difference can be shown, with one less it cannot.
func TestRoundsFor(t *testing.T) {
	for _, test := range []struct{ comparisons, rounds int }{
		{0, 6}, {1, 6}, {23, 6}, {24, 7}, {78, 7}, {85, 7}, {86, 8}, {300, 8},
	} {
		if got := RoundsFor(test.comparisons); got != test.rounds {
			t.Errorf("%d comparisons need %d rounds, want %d", test.comparisons, got, test.rounds)
		}
	}
}
