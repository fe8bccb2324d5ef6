package subjects

import (
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// script says what every commit of a history contains. All of it follows from the seed, the
// generation of the victim that applied the commit, and its number.
type script struct{ commits.Script }

// kept is how many numbers of batches, and of events, are kept at least.
const kept = 512

func scriptOf(seed uint64) script {
	return script{commits.Script{Seed: seed, Large: int(commits.Mix(seed, 77) % 3), Keep: kept}}
}
