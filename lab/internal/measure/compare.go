package measure

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/aclements/go-moremath/stats"
)

// The rules by which a difference is shown.
const (
	// Alpha is how often, at most, a family of comparisons may claim a difference where there is none.
	Alpha = 0.05
	// MinRounds are the fewest measurements of each side for a claim.
	MinRounds = 6
)

// Difference is what two samples say about how they differ.
type Difference struct {
	P float64 // see [PValue]
	// Ratio is how many times larger the first sample is: the median of the ratios of each of its values to each of the
	// second's, after Hodges and Lehmann. Low to High holds the true one with that Confidence, which is that of a single
	// comparison. All are -1 if a value is not above zero; Confidence is 0 if there is one value a side.
	Ratio, Low, High, Confidence float64
}

// Compare compares two samples, of values that are finite. The order of the values plays no part.
func Compare(a, b []float64) Difference {
	const unknown = -1
	d := Difference{P: PValue(a, b), Ratio: unknown, Low: unknown, High: unknown, Confidence: unknown}
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	if len(a) == 0 || len(b) == 0 || a[0] <= 0 || b[0] <= 0 {
		return d
	}
	all := len(a) * len(b)
	d.Ratio = (nthRatio(a, b, (all+1)/2) + nthRatio(a, b, all/2+1)) / 2
	e := endsOf(len(a), len(b))
	d.Low, d.High, d.Confidence = nthRatio(a, b, e.outside+1), nthRatio(a, b, all-e.outside), e.confidence

	return d
}

// PValue is that of the two-sided Mann-Whitney U test, exact for small samples: how often samples of one distribution
// differ by as much. It is 1 if the test has nothing to go by.
func PValue(a, b []float64) float64 {
	test, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers)
	if err != nil { // a sample is empty, or all values are equal
		return 1
	}

	return test.P
}

// nthRatio is the n-th smallest, from 1, of the ratios of each value of a to each of b. Both are sorted and above zero.
// It is found by bisection, so that a thousand values a side take no longer than they need to.
func nthRatio(a, b []float64, n int) float64 {
	low, high := a[0]/b[len(b)-1], a[len(a)-1]/b[0]
	if n <= notAbove(a, b, low) {
		return low
	}

	for {
		// low is less than the ratio that is looked for, high is not.
		mid := low + (high-low)/2
		switch {
		case mid <= low || mid >= high:
			return high
		case notAbove(a, b, mid) >= n:
			high = mid
		default:
			low = mid
		}
	}
}

// notAbove counts the ratios of values of a to values of b that are not above the limit.
func notAbove(a, b []float64, limit float64) (count int) {
	j := 0 // b[j:] are the divisors for which a ratio is not above it
	for i := range a {
		for j < len(b) && a[i]/b[j] > limit {
			j++
		}
		count += len(b) - j
	}

	return count
}

// exactLimit is the most values a side for which the exact distribution of U is used for intervals.
const exactLimit = 25

// ends says how many of the ratios of two samples are left out at each end of an interval with [WantConfidence], and
// what its confidence is.
type ends struct {
	outside    int
	confidence float64
}

var knownEnds sync.Map // by the sizes of the samples, since they take a while

func endsOf(n, m int) ends {
	if e, ok := knownEnds.Load([2]int{n, m}); ok {
		return e.(ends)
	}
	tail := func(u int) float64 { return stats.UDist{N1: n, N2: m}.CDF(float64(u)) } // of U up to u
	if n > exactLimit || m > exactLimit {
		normal := stats.NormalDist{Mu: float64(n) * float64(m) / 2,
			Sigma: math.Sqrt(float64(n) * float64(m) * float64(n+m+1) / 12)}
		tail = func(u int) float64 { return normal.CDF(float64(u) + 0.5) }
	}
	outside := sort.Search(n*m/2, func(u int) bool { return 2*tail(u) > 1-WantConfidence })
	e := ends{outside, max(1-2*tail(max(outside-1, 0)), 0)}
	knownEnds.Store([2]int{n, m}, e)

	return e
}

// Holm corrects the p values of a family of comparisons, after Holm: what is at most [Alpha] then is so in all of them
// together.
func Holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })

	corrected, last := make([]float64, len(p)), 0.0
	for at, i := range order {
		last = max(last, min(float64(len(p)-at)*p[i], 1))
		corrected[i] = last
	}

	return corrected
}

// RoundsFor is how many measurements of each side a family of so many comparisons needs so that it can show any
// difference: with fewer, samples that are wholly apart are not enough.
func RoundsFor(comparisons int) int {
	n := MinRounds
	for !CanShow(comparisons, n, n) {
		n++
	}

	return n
}

// CanShow reports whether n and m measurements can show a difference in a family of so many comparisons.
func CanShow(comparisons, n, m int) bool {
	// The smallest p value is twice one part of the ways to choose n of all.
	ways := math.Round(math.Exp(lgamma(n+m+1) - lgamma(n+1) - lgamma(m+1)))
	return min(n, m) >= MinRounds && float64(comparisons)*2/ways <= Alpha
}

func lgamma(n int) float64 {
	l, _ := math.Lgamma(float64(n))
	return l
}
