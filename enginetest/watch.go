package enginetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// evidence gathers what several laws are judged by once for each level.
func (s *suite) evidence(kind string, a *trial,
	gather func(breach func(law int, format string, args ...any))) []finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%s at %v", kind, a.level)
	if found, ok := s.found[key]; ok {
		return found
	}
	var (
		mu    sync.Mutex
		found []finding
	)
	gather(func(law int, format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if len(found) < 20 {
			found = append(found, finding{law, fmt.Sprintf(format, args...)})
		}
	})
	s.found[key] = found

	return found
}

// report fails the case for each finding that breaks law.
func (a *trial) report(law int, found []finding) {
	a.Helper()

	for _, f := range found {
		if f.law == law {
			a.Errorf("%s", f.text)
		}
	}
}

// Readers watch while writers write at least watchBatches batches, and more, up to
// watchMost, until the readers have looked watchLooks times. Harness.Scale divides the first and the last.
const (
	watchBatches = 300
	watchMost    = 3000
	watchLooks   = 1000
)

// watched writes numbered batches from many goroutines while others read, and returns what
// the readers saw that cannot be.
func (s *suite) watched(a *trial) []finding {
	return s.evidence("watch", a, func(breach func(law int, format string, args ...any)) {
		e := a.open(a.dir())
		var (
			mu      sync.Mutex
			next    uint64
			acked   atomic.Uint64 // a batch that has been acknowledged: all before it are, too
			looks   atomic.Int64
			broken  atomic.Bool // a reader has seen enough
			writers sync.WaitGroup
			readers sync.WaitGroup
			done    = make(chan struct{})
		)

		for range 4 {
			writers.Go(func() {
				for {
					mu.Lock()
					if next == watchMost || broken.Load() ||
						next >= uint64(s.some(watchBatches)) && looks.Load() >= int64(s.some(watchLooks)) {
						mu.Unlock()
						return
					}
					next++
					n := next
					r, err := e.Apply(s.script.batch(n), a.level)
					mu.Unlock()
					if err == nil {
						err = r.Wait()
					}
					if err != nil {
						breach(3, "batch %d: %v", n, err)
						return
					}

					for old := acked.Load(); n > old && !acked.CompareAndSwap(old, n); old = acked.Load() {
					}
				}
			})
		}

		for reader := range 4 {
			readers.Go(func() {
				last := uint64(0)
				for i := 0; ; i++ {
					stop := false
					select {
					case <-done:
						stop = true // and read once more, when all is there
					default:
					}
					due := acked.Load()
					var n uint64
					var ok bool
					if looks.Add(1); i%16 == 0 || stop {
						n, ok = s.look(e, holdfast.Range{Reverse: i%32 == 0}, reader%2 == 1, breach)
					} else {
						n, ok = s.glance(e, breach)
					}
					if !ok {
						broken.Store(true)
						return
					}
					if n < due {
						breach(3, "batch %d was acknowledged, then a reader saw only %d", due, n)
					}
					if n < last {
						breach(2, "a reader saw %d batches, and later only %d", last, n)
					}
					last = n
					if stop {
						return
					}
				}
			})
		}
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := e.Sync(); err != nil && s.kept {
					breach(3, "Sync: %v", err)
					return
				}
				_, _ = e.Metrics(), e.Capabilities()
				time.Sleep(time.Millisecond) // or some engines do nothing else
			}
		})
		writers.Wait()
		close(done)
		readers.Wait()
		n, ok := s.look(e, holdfast.Range{}, false, breach)
		if ok && n != next {
			breach(3, "%d batches were written, %d are there", next, n)
		}
		if err := e.Close(); err != nil {
			breach(5, "Close, when every reader was done: %v", err)
		}
	})
}

// look reads the state once, through a snapshot or not, and judges it.
func (s *suite) look(e holdfast.Engine, r holdfast.Range, snapshot bool,
	breach func(int, string, ...any)) (uint64, bool) {
	var from holdfast.Reader = e
	if snapshot {
		snap, err := e.Snapshot()
		if err != nil {
			breach(5, "Snapshot: %v", err)
			return 0, false
		}
		defer snap.Close()
		from = snap
	}
	state, err := commits.Contents(from, r)
	if err != nil {
		breach(5, "Scan: %v", err)
		return 0, false
	}

	n, breaches := s.script.judge(state)
	for _, b := range breaches {
		breach(b.law, "a reader, while others wrote: %s", b.text)
	}

	return n, len(breaches) == 0
}

// glance looks at the last batches only. It costs little, so that it can be done often.
func (s *suite) glance(e holdfast.Engine, breach func(int, string, ...any)) (n uint64, ok bool) {
	snap, err := e.Snapshot()
	if err != nil {
		breach(5, "Snapshot: %v", err)
		return 0, false
	}
	defer snap.Close()
	n, v, err := s.script.Recent(snap)
	if err != nil {
		breach(5, "reading a snapshot: %v", err)
		return 0, false
	}

	for _, b := range breachesOf(v) {
		breach(b.law, "a reader, while others wrote: %s", b.text)
	}

	return n, len(v.Findings) == 0
}
