package db

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRangeTombstones compares range deletes with a list of every one of them.
func TestRangeTombstones(t *testing.T) {
	rnd := rand.New(rand.NewPCG(*seed, 3))
	key := func() []byte { return fmt.Appendf(nil, "%02d", rnd.IntN(60)) }
	for range 200 {
		var all []rangeTombstone
		var ts *rangeTombstones
		seq := uint64(0)
		for range 1 + rnd.IntN(8) {
			var batch []rangeTombstone
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
				batch = append(batch, rangeTombstone{lo, hi, seq})
			}
			if len(batch) == 0 {
				continue
			}
			all = append(all, batch...)
			ts = ts.with(batch)
			for i := range 61 {
				k := fmt.Appendf(nil, "%02d", i)
				want := uint64(0)
				for _, r := range all {
					if bytes.Compare(r.lo, k) <= 0 && (len(r.hi) == 0 || bytes.Compare(k, r.hi) < 0) {
						want = max(want, r.seq)
					}
				}
				if got := ts.covers(k); got != want {
					t.Fatalf("%s was deleted by %d, want %d, of %v: %v", k, got, want, all, ts.list)
				}
			}
		}
	}
}
