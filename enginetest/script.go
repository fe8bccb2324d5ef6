package enginetest

import (
	"math"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// generation is not 0, so that no batch ends with zeros: some engines make their files long before they write to them.
const generation = 1

// script is the numbered batches that most cases write.
type script struct{ commits.Script }

// batch makes batch n.
func (s script) batch(n uint64) *holdfast.Batch {
	return s.Fill(new(holdfast.Batch), new([]byte), generation, n)
}

// commit commits the batches from one number to another.
func (s script) commit(e holdfast.Engine, from, to uint64, level holdfast.Level) error {
	for n := from; n <= to; n++ {
		if err := holdfast.Commit(e, s.batch(n), level); err != nil {
			return err
		}
	}

	return nil
}

// finding is a breach of a law.
type finding struct {
	law  int
	text string
}

// judge says how many batches a state holds, and what in it no number of batches explains. Of a scan in reverse it
// takes the pairs as they come.
func (s script) judge(found commits.State[string]) (n uint64, breaches []finding) {
	var list []commits.Found
	for _, p := range found {
		list = append(list, commits.NewFound(p.Key, []byte(p.Value)))
	}
	v := s.Judge(list, func(uint64) uint32 { return generation }, 0, math.MaxUint64)

	return v.Survived(), breachesOf(v)
}

// breachesOf names the laws that findings break.
func breachesOf(v commits.Verdict) (breaches []finding) {
	laws := map[commits.Class]int{commits.Torn: 1, commits.OutOfOrder: 2, commits.Wrong: 3, commits.Lost: 3}
	for _, f := range v.Findings[:min(len(v.Findings), 10)] {
		breaches = append(breaches, finding{laws[f.Class], f.Text})
	}

	return breaches
}
