//go:build !linux

package memtable

// largePages does nothing here.
func largePages([]byte) {}
