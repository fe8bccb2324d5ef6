package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for after, want := range map[time.Duration]bool{0: true, time.Millisecond: true, time.Minute: true,
			time.Hour: false} {
			began := time.Now()
			got := Holds(func() bool { return time.Since(began) >= after })
			if late := time.Since(began) - after; got != want || want && late > 20*time.Millisecond {
				t.Errorf("what holds after %v: %v, %v later", after, got, late)
			}
		}
	})
}
