// Package eventually is how tests wait for what tells nobody that it has come, such as what another process does.
package eventually

import "time"

// Holds reports whether ok becomes true. It asks again and again for minutes, so that only what never comes is missed,
// however slow the machine.
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
