//go:build race

package storetest

// Race is whether the race detector is on. It makes sync.Pool forget at random, so that allocations cannot be counted.
const Race = true
