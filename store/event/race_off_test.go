//go:build !race

package event_test

const raceDetector = false
