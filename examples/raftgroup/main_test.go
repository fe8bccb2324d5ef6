package main

import (
	"regexp"
	"testing"

	"github.com/holdfastdb/holdfast/examples/internal/replicas"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

func TestRaftgroup(t *testing.T) {
	said := replicas.Test(t, [3]string{"1", "2", "3"}, func(_, _ string) []string { return nil })
	// Each begins with the one of entry 1. Later the logs of the others do not reach back to what the first node has.
	if !regexp.MustCompile(`restored a snapshot of entry ([2-9]|\d\d)`).MatchString(said) {
		t.Error("nobody was sent a snapshot:", said)
	}
}
