package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRangeTombstones compares range deletes with a list of every one of them.
func TestRangeTombstones(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 3))
	key := func() []byte { return fmt.Appendf(nil, "%02d", rnd.IntN(60)) }
	for range 200 {
		var all []RangeTombstone
		var ts *RangeTombstones
		seq := uint64(0)
		for range 1 + rnd.IntN(8) {
			var batch []RangeTombstone
			for range 1 + rnd.IntN(6) {
				seq++
				lo, hi := key(), key()
				switch c := bytes.Compare(lo, hi); {
				case rnd.IntN(10) == 0:
					hi = nil
				case c > 0:
					lo, hi = hi, lo
				case c == 0:
					continue
				}
				if rnd.IntN(10) == 0 {
					lo = nil
				}
				batch = append(batch, RangeTombstone{lo, hi, seq})
			}
			if len(batch) == 0 {
				continue
			}
			all = append(all, batch...)
			ts = ts.With(batch)
			for i := range 61 {
				k := fmt.Appendf(nil, "%02d", i)
				want := uint64(0)
				for _, r := range all {
					if bytes.Compare(r.Lo, k) <= 0 && (len(r.Hi) == 0 || bytes.Compare(k, r.Hi) < 0) {
						want = max(want, r.Seq)
					}
				}
				if got := ts.Covers(k); got != want {
					t.Fatalf("%s was deleted by %d, want %d, of %v: %v", k, got, want, all, ts.list)
				}
			}
		}
	}
}
