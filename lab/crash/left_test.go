package crash

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLengthIsTheWholeRuns: what goes on after a broken claim does so for the rest of the named length, not for all of
// it again.
func TestLengthIsTheWholeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &runPlan{length: time.Hour}
		for _, want := range []time.Duration{time.Hour, 20 * time.Minute, 1} {
			if got := p.left(began); got != want {
				t.Errorf("after %v, %v are left, want %v", time.Since(began), got, want)
			}
			time.Sleep(40 * time.Minute)
		}
		if got := (&runPlan{}).left(began); got != 0 {
			t.Errorf("%v are left of no length", got)
		}
	})
}
