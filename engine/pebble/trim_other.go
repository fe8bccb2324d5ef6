//go:build !linux

package pebble

// trim has nothing to give back: only on Linux does Pebble reserve space.
func trim(uintptr, int64) error { return nil }
