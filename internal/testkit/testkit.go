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

// Receive waits for what must come through a channel, or for its end. If neither comes, the test ends with what is
// missing.
func Receive[T any](t testing.TB, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("never: %s", what)
	}

	return got
}

// patience is how long to wait for what must come, so that only what never comes is missed, however slow the machine.
const patience = 3 * time.Minute

// Holds reports whether ok becomes true: what another process does, and other things that tell nobody that they have
// come. It asks again and again, for minutes.
func Holds(ok func() bool) bool {
	const first, longest = time.Millisecond, 10 * time.Millisecond

	pause := first
	for end := time.Now().Add(patience); !ok(); pause = min(2*pause, longest) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}

	return true
}
