package db

import (
	"fmt"
	"runtime/debug"
)

// fault is what the runtime panics with when memory cannot be touched.
type fault interface {
	error
	Addr() uintptr
}

// Mapped files show a read error of the device, or a file that was cut short, as a memory fault. Code that touches
// a mapping does so between
//
//	defer unguard(guard(), &err)
//
// and the fault becomes ErrCorrupt.
func guard() bool { return debug.SetPanicOnFault(true) }

func unguard(old bool, err *error) {
	debug.SetPanicOnFault(old)
	if r := recover(); r != nil {
		f, ok := r.(fault)
		if !ok {
			panic(r)
		}
		*err = corrupt("", 0, fmt.Sprintf("a mapped file cannot be read (%v)", f), f)
	}
}

// guarded runs f and returns the fault that it met, if any.
func guarded(f func()) (err error) {
	defer unguard(guard(), &err)
	f()
	return nil
}
