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

// patience is how long something that must come is waited for, on the slowest machine.
const patience = 3 * time.Minute

// Until waits for something that must come. If it does not, the test ends with what is missing, and with the logs.
func Until(t testing.TB, what string, done func() bool, logs ...fmt.Stringer) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s %v", patience, what, logs)
		}
	}
}
