package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// ackSums remember what was acknowledged at which position of a gapless sequence, in
// constant memory and a few nanoseconds, so that they can be kept while the clock runs.
//
// Position p of content h (a hash) counts as mix(p, h). A bucket is the sum of that
// over its positions, so one that is lost, doubled, moved or changed shows in its bucket,
// wherever it went. A bucket is checked whole or not at all.
//
// Positions start at 1. They may be written by many goroutines, and read once those are
// done.
type ackSums struct {
	buckets []atomic.Uint64
	count   atomic.Int64
}

const (
	bucketSize  = 1 << 10 // positions of a bucket
	manyBuckets = 1 << 14 // positions beyond the last bucket are added to the first ones again
	fullBuckets = 200     // up to this many buckets in use, all of them are checked
	someBuckets = 64      // beyond, the first, the last, and so many others
)

func newAckSums(buckets int) *ackSums { return &ackSums{buckets: make([]atomic.Uint64, buckets)} }

func (l *ackSums) bucketOf(position uint64) uint64 {
	return (position - 1) / bucketSize % uint64(len(l.buckets))
}

func mix(position, hash uint64) uint64 {
	x := (position ^ hash) * 0x9e3779b97f4a7c15
	x ^= x >> 32

	return x * (hash | 1)
}

// add notes that contents with these hashes were acknowledged at first and the positions
// after it.
func (l *ackSums) add(first uint64, hashes ...uint64) {
	l.count.Add(int64(len(hashes)))
	sum, bucket := uint64(0), l.bucketOf(first)

	for i, hash := range hashes {
		position := first + uint64(i)
		if b := l.bucketOf(position); b != bucket {
			l.buckets[bucket].Add(sum)
			sum, bucket = 0, b
		}
		sum += mix(position, hash)
	}
	l.buckets[bucket].Add(sum)
}

// check compares the sums with a sequence that ends at last. read returns the hashes of the
// positions from first to last, both included, and checks itself what it can. The result is how many
// positions were checked.
func (l *ackSums) check(last uint64, seed uint64, read func(first, last uint64) ([]uint64, error)) (int64, error) {
	if count := l.count.Load(); int64(last) != count {
		return 0, fmt.Errorf("%w: %d acknowledged, %d there", ErrWrong, count, last)
	}

	checked := int64(0)
	for _, b := range l.chooseBuckets(last, seed) {
		sum := uint64(0)
		for first := b*bucketSize + 1; first <= last; first += bucketSize * uint64(len(l.buckets)) {
			end := min(first+bucketSize-1, last)
			hashes, err := read(first, end)
			if err != nil {
				return checked, wrong(err)
			}
			if uint64(len(hashes)) != end-first+1 {
				return checked, fmt.Errorf("%w: %d positions read from %d to %d", ErrWrong, len(hashes), first, end)
			}

			for i, hash := range hashes {
				sum += mix(first+uint64(i), hash)
			}
			checked += int64(len(hashes))
		}
		if sum != l.buckets[b].Load() {
			return checked, fmt.Errorf("%w: positions %d to %d do not hold what was acknowledged there", ErrWrong,
				b*bucketSize+1, min((b+1)*bucketSize, last))
		}
	}

	return checked, nil
}

func (l *ackSums) chooseBuckets(last, seed uint64) []uint64 {
	used := min((last+bucketSize-1)/bucketSize, uint64(len(l.buckets)))
	if used == 0 {
		return nil
	}
	var chosen []uint64
	if used <= fullBuckets {
		for b := range used {
			chosen = append(chosen, b)
		}

		return chosen
	}
	chosen = append(chosen, 0, l.bucketOf(last))

	random := rand.New(rand.NewPCG(seed, last))
	for range someBuckets {
		chosen = append(chosen, random.Uint64N(used))
	}
	slices.Sort(chosen)

	return slices.Compact(chosen)
}
