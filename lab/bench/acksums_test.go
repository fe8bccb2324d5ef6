package bench

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

// sequence is a store of hashes, of which position p has hash p*p+7.
type sequence []uint64

func newSequence(n int) sequence {
	s := make(sequence, n)
	for i := range s {
		s[i] = uint64(i+1)*uint64(i+1) + 7
	}
	return s
}

func (s sequence) read(first, last uint64) ([]uint64, error) { return s[first-1 : last], nil }

func (s sequence) sums() *ackSums {
	l := newAckSums(manyBuckets)
	l.add(1, s...)
	return l
}

func TestAckSumsAcceptWhatWasAcknowledged(t *testing.T) {
	for _, n := range []int{0, 1, bucketSize - 1, bucketSize, bucketSize + 1, 10 * bucketSize, fullBuckets * bucketSize,
		fullBuckets*bucketSize + 1, 3 * fullBuckets * bucketSize} {
		s := newSequence(n)
		checked, err := s.sums().check(uint64(n), 1, s.read)
		if err != nil {
			t.Errorf("%d positions: %v", n, err)
		}
		if n <= fullBuckets*bucketSize && checked != int64(n) {
			t.Errorf("%d of %d positions checked", checked, n)
		}
		if n > fullBuckets*bucketSize && (checked < someBuckets*bucketSize/2 || checked >= int64(n)) {
			t.Errorf("%d of %d positions checked: no sample", checked, n)
		}
	}
}

func TestAckSumsOfManyClients(t *testing.T) {
	const clients, batches, batch = 8, 500, 7
	s := newSequence(clients * batches * batch)
	l := newAckSums(manyBuckets)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for b := range batches {
				at := (b*clients + c) * batch
				l.add(uint64(at)+1, s[at:at+batch]...)
			}
		})
	}
	wg.Wait()
	if checked, err := l.check(uint64(len(s)), 1, s.read); err != nil || checked != int64(len(s)) {
		t.Errorf("%d of %d checked: %v", checked, len(s), err)
	}
}

func TestAckSumsCatch(t *testing.T) {
	const n = 5 * bucketSize
	for name, spoil := range map[string]func(s sequence) sequence{
		"a lost end":               func(s sequence) sequence { return s[:n-1] },
		"one too many":             func(s sequence) sequence { return append(s, 1) },
		"a changed one":            func(s sequence) sequence { s[700]++; return s },
		"two swapped":              func(s sequence) sequence { s[10], s[11] = s[11], s[10]; return s },
		"two swapped far apart":    func(s sequence) sequence { s[10], s[n-1] = s[n-1], s[10]; return s },
		"one lost, the rest moved": func(s sequence) sequence { return append(slices.Delete(s, 5, 6), 1) },
		"one doubled":              func(s sequence) sequence { s[2000] = s[1999]; return s },
	} {
		t.Run(name, func(t *testing.T) {
			l := newSequence(n).sums()
			s := spoil(newSequence(n))
			if _, err := l.check(uint64(len(s)), 1, s.read); !errors.Is(err, ErrWrong) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestAckSumsReportReadErrors(t *testing.T) {
	s := newSequence(10)
	cause := errors.New("cause")
	_, err := s.sums().check(10, 1, func(uint64, uint64) ([]uint64, error) { return nil, cause })
	if !errors.Is(err, cause) || !errors.Is(err, ErrWrong) {
		t.Error(err)
	}
	_, err = s.sums().check(10, 1, func(uint64, uint64) ([]uint64, error) { return s[:9], nil })
	if !errors.Is(err, ErrWrong) {
		t.Error(err)
	}
}
