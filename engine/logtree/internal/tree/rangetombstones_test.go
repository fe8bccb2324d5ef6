package tree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// with adds ranges in which there are no versions.
func with(ts *RangeTombstones, newer []RangeTombstone) *RangeTombstones {
	return ts.With(newer, func(lo, hi []byte, after uint64) bool { return true })
}

// has reports whether the key is in the range.
func (r RangeTombstone) has(key []byte) bool {
	return bytes.Compare(r.Lo, key) <= 0 && !below(r.Hi, key)
}

// valid reports what is wrong with the order of ranges, or with their chunks.
func (t *RangeTombstones) valid() error {
	n, before := 0, []byte(nil)
	for r := range t.Ranges() {
		if n > 0 && (len(before) == 0 || bytes.Compare(before, r.Lo) > 0) || below(r.Hi, r.Lo) {
			return fmt.Errorf("range %d, [%s, %s), follows one up to %s", n, r.Lo, r.Hi, before)
		}
		n, before = n+1, r.Hi
	}
	if n != t.Len() {
		return fmt.Errorf("%d ranges, counted as %d", n, t.Len())
	}
	for i, c := range t.chunks {
		if len(c) == 0 || len(c) > maxChunk || i > 0 && len(c)+len(t.chunks[i-1]) <= maxChunk/2 {
			return fmt.Errorf("chunk %d has %d ranges", i, len(c))
		}
	}
	return nil
}

// TestRangeTombstones compares range deletes among versions with a list of every one of them: which versions are
// deleted, also for those who read at an earlier point.
func TestRangeTombstones(t *testing.T) {
	type version struct {
		key []byte
		seq uint64
	}
	type point struct {
		ts       *RangeTombstones
		deletes  int // of all
		versions int
	}
	for _, x := range []struct{ histories, batches, keys, long int }{{200, 8, 60, 60}, {5, 400, 3000, 40}} {
		rnd := rand.New(rand.NewPCG(1, 3))
		key := func(i int) []byte { return fmt.Appendf(nil, "%04d", i) }
		most := 0
		for range x.histories {
			var all []RangeTombstone
			var versions []version
			var points []point
			var ts *RangeTombstones
			seq := uint64(0)
			// It gives up where there are many versions, as a memtable does.
			quiet := func(lo, hi []byte, after uint64) bool {
				r, n := RangeTombstone{lo, hi, 0}, 0
				for _, v := range versions {
					if r.has(v.key) {
						if n++; v.seq > after || n > 20 {
							return false
						}
					}
				}
				return true
			}
			for range 1 + rnd.IntN(x.batches) {
				var batch []RangeTombstone
				for range 1 + rnd.IntN(6) {
					seq++
					at := rnd.IntN(x.keys)
					lo, hi := key(at), key(at+1+rnd.IntN(x.long))
					if rnd.IntN(3) == 0 && len(all) > 0 { // along the last one
						lo, hi = all[len(all)-1].Hi, append(bytes.Clone(all[len(all)-1].Hi), '5')
					}
					switch {
					case rnd.IntN(3) == 0:
						versions = append(versions, version{key(at), seq})
						continue
					case rnd.IntN(10*x.batches) == 0:
						hi = nil
					case rnd.IntN(10*x.batches) == 0:
						lo = nil
					case below(hi, lo):
						continue
					}
					batch = append(batch, RangeTombstone{lo, hi, seq})
				}
				if len(batch) == 0 {
					continue
				}
				all = append(all, batch...)
				ts = ts.With(batch, quiet)
				if err := ts.valid(); err != nil {
					t.Fatalf("%v, of %v", err, all)
				}
				most = max(most, len(ts.chunks))
				if points = append(points, point{ts, len(all), len(versions)}); len(points) > 5 {
					points = points[len(points)-5:]
				}
			}
			for _, p := range points {
				for i := range x.keys + 2 {
					for _, k := range [][]byte{key(i), append(key(i), '2')} {
						want := uint64(0)
						for _, r := range all[:p.deletes] {
							if r.has(k) {
								want = max(want, r.Seq)
							}
						}
						got := p.ts.Covers(k)
						if got > want || (got == 0) != (want == 0) {
							t.Fatalf("%s was deleted by %d, want %d, of %v", k, got, want, all)
						}
						for _, v := range versions[:p.versions] {
							if bytes.Equal(v.key, k) && (v.seq < want) != (v.seq < got) {
								t.Fatalf("version %d of %s is deleted up to %d, want %d, of %v", v.seq, k, got, want, all)
							}
						}
						if want > 0 {
							continue
						}
						var before, after []byte
						for r := range p.ts.Ranges() {
							if bytes.Compare(r.Lo, k) <= 0 {
								before = r.Hi
							} else if after == nil {
								after = r.Lo
							}
						}
						if a, b := p.ts.after(k), p.ts.before(k); !bytes.Equal(a, after) || !bytes.Equal(b, before) {
							t.Fatalf("%s lies between %s and %s, want %s and %s", k, b, a, before, after)
						}
					}
				}
			}
		}
		if x.keys > maxChunk*4 && most < 4 {
			t.Errorf("%d chunks at most: this tests little", most)
		}
	}
}

// TestNeighboursJoin: deletes along a queue become one range, in whatever order the queue's items were added.
func TestNeighboursJoin(t *testing.T) {
	for _, shape := range rangeDeletes[1:] {
		if n := deleteRanges(1000, shape.of).Len(); n != 1 {
			t.Errorf("%s: %d ranges", shape.name, n)
		}
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "%06d", i) }
	var ts *RangeTombstones
	seq, added := uint64(0), map[string]uint64{}
	for i := range 1000 {
		seq++
		added[string(key(i+100))] = seq // 100 items are waiting
		seq++
		ts = ts.With([]RangeTombstone{{key(i), key(i + 1), seq}}, func(lo, _ []byte, after uint64) bool {
			return added[string(lo)] <= after
		})
		if k := key(i); ts.Covers(k) <= added[string(k)] {
			t.Fatalf("item %d, added by %d, is deleted up to %d", i, added[string(k)], ts.Covers(k))
		}
	}
	if n := ts.Len(); n > 20 {
		t.Errorf("%d ranges", n)
	}
}
