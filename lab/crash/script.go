package crash

import (
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// plan says what every commit of a history contains. All of it follows from the seed, the
// generation of the victim that applied the commit, and its number.
type plan struct{ commits.Script }

// kept is how many numbers of batches, and of events, are kept at least.
const kept = 512

func planOf(seed uint64) plan {
	return plan{commits.Script{Seed: seed, Large: int(mix(seed, 77) % 3), Keep: kept}}
}

// entry is what a check tells that it has found.
type entry = commits.Found

var mix = commits.Mix
