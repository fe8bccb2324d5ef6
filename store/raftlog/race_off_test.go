//go:build !race

package raftlog_test

const raceDetector = false
