// Package testkit is what tests of several packages need.
package testkit

import (
	"fmt"
	"testing"
	"time"
)

// Try ends the test with err, unless it is nil.
func Try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Until waits for something that must come. If it does not, the test ends with what is missing, and with the logs.
func Until(t testing.TB, what string, done func() bool, logs ...fmt.Stringer) {
	t.Helper()
	if !Holds(done) {
		t.Fatalf("never: %s %v", what, logs)
	}
}

// Holds reports whether ok becomes true: what another process does, and other things that tell nobody that they have
// come. It asks again and again for minutes, so that only what never comes is missed, however slow the machine.
func Holds(ok func() bool) bool {
	const first, longest, patience = time.Millisecond, 10 * time.Millisecond, 3 * time.Minute

	pause := first
	for end := time.Now().Add(patience); !ok(); pause = min(2*pause, longest) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}

	return true
}
