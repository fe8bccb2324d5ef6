//go:build race

package raftlog_test

// The race detector makes sync.Pool forget at random, so allocations cannot be counted.
const raceDetector = true
