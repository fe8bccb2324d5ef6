package bench

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestZeta compares the sum with YCSB's constant for ten billion terms, and with the terms one by one.
func TestZeta(t *testing.T) {
	if got := zeta(ycsbSpread); math.Abs(got-26.46902820178302) > 1e-8 {
		t.Errorf("the sum of %d terms is %v", int64(ycsbSpread), got)
	}
	sum := 0.0
	for i := 1; i <= 200_000; i++ {
		sum += math.Pow(float64(i), -zipfTheta)
		if i <= 3 || i >= 999 && i <= 1002 || i == 200_000 {
			if got := zeta(uint64(i)); math.Abs(got-sum) > 1e-9 {
				t.Errorf("the sum of %d terms is %v, not %v", i, got, sum)
			}
		}
	}
}

// TestZipf: ranks are drawn as often as they should be. The method is exact for the first two, and says so of no other.
func TestZipf(t *testing.T) {
	const draws = 400_000
	for _, n := range []uint64{1, 2, 3, 10, 1000, 100_000, ycsbSpread} {
		random, z := rand.New(rand.NewPCG(1, n)), newZipf(n)
		counts := map[uint64]int{}
		for range draws {
			rank := z.draw(random)
			if rank >= n {
				t.Fatalf("of %d: rank %d", n, rank)
			}
			counts[rank]++
		}
		for rank := range min(n, 2) {
			want := draws * math.Pow(float64(rank+1), -zipfTheta) / z.zeta
			if got := float64(counts[rank]); math.Abs(got-want) > 5*math.Sqrt(want) {
				t.Errorf("of %d: rank %d is drawn %v times, not %v", n, rank, got, want)
			}
		}
		// What is below a rank, in sum, differs by less than a fiftieth of all draws.
		below := 0
		for edge, next := uint64(10), uint64(0); edge <= min(n, 100_000); edge *= 10 {
			for ; next < edge; next++ {
				below += counts[next]
			}
			share := zeta(edge) / z.zeta
			if got := float64(below) / draws; math.Abs(got-share) > 0.02 {
				t.Errorf("of %d: %v are below rank %d, not %v", n, got, edge, share)
			}
		}
	}
}

// TestFNV: the hash is the published one, and no two of many records share a key.
func TestFNV(t *testing.T) {
	// The offset basis after eight zero bytes, by the definition: multiplied by the prime eight times.
	want := uint64(0xcbf29ce484222325)
	for range 8 {
		want *= 1099511628211
	}
	if got := fnv(0); got != want && got != -want {
		t.Errorf("the hash of 0 is %d", got)
	}
	seen := make(map[uint64]bool, 1<<20)
	for i := range uint64(1 << 20) {
		h := fnv(i)
		if h > math.MaxInt64 || seen[h] {
			t.Fatalf("record %d has the hash %d, of another one or with a sign", i, h)
		}
		seen[h] = true
	}
}
