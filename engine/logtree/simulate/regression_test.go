package simulate

import (
	"context"
	"testing"
)

// TestPoisonBeforeDamage: a write that failed, and that nobody had waited for, was taken for a broken law, once the
// faults were lifted for damage to the open database.
func TestPoisonBeforeDamage(t *testing.T) {
	if _, err := Run(t.Context(), 2608324699280813039); err != nil {
		t.Fatal(err)
	}
}

// TestRegressions runs the histories that found what was wrong once, as the engine and the simulation were when
// they did. A change of either may lead a seed elsewhere; the mistakes themselves can be made again at the
// places named.
func TestRegressions(t *testing.T) {
	for what, seed := range map[string]uint64{
		"the manifest named segments that were about to be removed (saveManifest)":                        4,
		"a spill during the replay synced only one of the segments that its table named (spill)":          3,
		"a replay that failed after a spill had forgotten how far the log was synced (promised)":          41,
		"the log went on behind a segment whose successor was lost (follows)":                             73,
		"what a failed sync had left to be seen was trusted after a sync more (writeAgain)":               114,
		"an unfinished segment of moved values said that something was lost (appendMoved)":                10,
		"the number of a lost successor was given to another segment (replaySegment)":                     980,
		"a replay began behind the frame that named the next segment (replay)":                            1035,
		"a segment whose header could not be read once was taken for one that is not there (openSegment)": 338,
		"damage to a value, with the checksum as the only witness (value)":                                16,
		"tombstones that a compaction must keep, with older tables below it (rewrite)":                    153,
		"directory entries found, but not durable yet, after a kill (syncReplayed)":                       25,
	} {
		t.Run(what, func(t *testing.T) {
			for _, mapped := range []bool{false, true} {
				if _, err := run(context.Background(), seed, manner{mapped: mapped}, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
