package storetest

import (
	"math"
	"testing"
)

// Allocations is how many allocations one of runs calls of f makes, rounded down. What a garbage collection takes out
// of pools meanwhile is made again, and what is left of other tests may allocate too, so the least of ten tries counts.
func Allocations(runs int, f func()) float64 {
	least := math.Inf(1)
	for range 10 {
		if least = min(least, testing.AllocsPerRun(runs, f)); least == 0 {
			break
		}
	}

	return least
}
