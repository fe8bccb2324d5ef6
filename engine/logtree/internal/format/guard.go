package format

import (
	"fmt"
	"runtime/debug"
)

// fault is what the runtime panics with when memory cannot be touched.
type fault interface {
	error
	Addr() uintptr
}

// Guarded runs f, which touches a mapping. Mapped files show a read error of the device, or a file that was cut short,
// as a memory fault: it becomes ErrCorrupt.
func Guarded(f func()) (err error) {
	// The setting is the goroutine's own, so that others still crash on a fault that nobody expects.
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			f, ok := r.(fault)
			if !ok {
				panic(r)
			}
			err = Corrupt("", 0, fmt.Sprintf("a mapped file cannot be read (%v)", f), f)
		}
	}()
	f()

	return nil
}
