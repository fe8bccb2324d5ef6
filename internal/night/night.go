// Package night tells tests how much time they have: by day, before each change, every test has a short form, and
// .ci/night, which has hours, sets HOLDFAST_NIGHT=1 for the long one.
package night

import (
	"os"
	"testing"
)

const variable = "HOLDFAST_NIGHT"

// Is reports whether this is the night.
func Is() bool { return os.Getenv(variable) != "" }

// Or is long in the night, and short by day.
func Or[T any](long, short T) T {
	if Is() {
		return long
	}
	return short
}

// Only skips a test by day. byDay says what covers the same by then.
func Only(t testing.TB, byDay string) {
	t.Helper()
	if !Is() {
		t.Skipf("only with %s=1, as in .ci/night; by day: %s", variable, byDay)
	}
}
