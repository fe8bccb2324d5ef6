package subjects

import (
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// script says what every commit of a history contains. All of it follows from the seed, the
// generation of the victim that applied the commit, and its number.
type script struct {
	commits.Script
	plain  bool // the messages are for a peer's store, see plainOp
	served bool // they go through a server, see serve.go
}

// kept is how many numbers of batches, and of events, are kept at least.
const kept = 512

// batchesOf is the script of batches, for an engine that promises whole ones or does not.
func batchesOf(seed uint64, single bool) script {
	s := scriptOf(seed)
	s.Single = single

	return s
}

// scriptOf is the script of a seed. Whether it has large values is chosen once for a history.
func scriptOf(seed uint64) script {
	return script{Script: commits.Script{Seed: seed, Large: int(commits.Mix(seed, 77) % 3), Keep: kept}}
}
