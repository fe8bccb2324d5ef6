package subjects

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// KV is the bare contract: concurrent writers of batches that set, overwrite, delete and
// range-delete, while snapshots check themselves.
var KV = Subject{
	Name:  "kv",
	About: "the contract: concurrent batches, overwrites, deletes, range deletes, large values, snapshots, reopening",
	work:  kvWork, read: kvRead, reread: kvReread, judge: kvJudge, ages: true,
}

// kvWork applies batches through several writers, while snapshots and reads check themselves, until stop is closed.
func kvWork(w *worker, e holdfast.Engine, stop <-chan struct{}) error {
	p := batchesOf(w.spec.Seed, !e.Capabilities().AtomicBatches)
	weaker := w.weaker(e)
	var group sync.WaitGroup
	for range w.spec.Writers {
		w.start(&group, func() error {
			var (
				b       holdfast.Batch
				scratch []byte
			)
			for !stopped(stop) {
				w.pace()

				// Number, report and place under one lock: batches have the order of their numbers, and none is in the engine that
				// was not reported.
				w.mu.Lock()
				n := w.next
				level := w.spec.Level

				// Batches at weaker levels stand between: what is acknowledged at the test's level must not depend on them.
				if len(weaker) > 0 && n%8 == 5 {
					level = weaker[n/8%uint64(len(weaker))]
				}
				p.Fill(&b, &scratch, w.spec.Gen, n)
				w.next++
				w.report.Send(protocol.TellIssued, n, 0)
				r, err := e.Apply(&b, level)
				w.mu.Unlock()
				w.spent.Add(int64(b.Size()))
				if err == nil && (n%13 == 0 || w.spec.Age > 0) {
					continue // this one is not waited for
				}
				if err == nil {
					err = r.Wait()
				}
				if err != nil {
					if !w.refused(err) {
						return fmt.Errorf("batch %d at %v: %w", n, level, err)
					}
					continue
				}
				w.acked(n, e.Capabilities().Promise(level).Given)
			}

			return nil
		})
	}

	w.start(&group, func() error {
		for w.rest(stop, 30*time.Millisecond) {
			if err := w.look(e); err != nil {
				return err
			}
		}

		return nil
	})

	// The readers share what any of them has seen, so that a read which goes back in time shows.
	var seen atomic.Uint64
	for i := range 2 {
		w.start(&group, func() error {
			for w.rest(stop, time.Duration(1+2*i)*time.Millisecond) {
				if err := w.get(e, p.Step(), &seen); err != nil {
					return err
				}
			}

			return nil
		})
	}
	group.Wait()

	return nil
}

// get looks for the last batches by the keys that they alone set. Reads go on from each other, whoever makes them: what
// was acknowledged, or seen by any reader, before a Get began is there for it. seen is the last batch that a reader
// saw.
func (w *worker) get(e holdfast.Engine, step uint64, seen *atomic.Uint64) error {
	// Both are loaded before the read begins: what they say must be there for it.
	acked, was := w.highest.Load(), seen.Load()
	from := max(acked, was)
	from -= from % step

	for n := from; n <= from+3*step; n += step {
		if n == 0 {
			continue
		}
		_, err := e.Get(nil, []byte(commits.NumberKey(n)))
		w.mu.Lock()
		issued := w.next - 1
		w.mu.Unlock()

		switch {
		case err == nil && n > issued:
			w.wrong("batch %d is read, and only %d were begun", n, issued)
		case err == nil:
			// seen only grows: another reader may have gone further meanwhile.
			for old := seen.Load(); old < n && !seen.CompareAndSwap(old, n); old = seen.Load() {
			}
		case !errors.Is(err, holdfast.ErrNotFound):
			return w.failure(err, "get")
		case n == from && issued < n+kept/2: // or it may be gone for its age
			w.wrong("batch %d is not read; before that, %d was acknowledged and a reader had seen %d", n, acked, was)
		default:
			return nil
		}
	}

	return nil
}

// look checks one snapshot: it holds a prefix, with all that had been acknowledged.
func (w *worker) look(e holdfast.Engine) error {
	// Loaded before the snapshot is made, which must then have all of it.
	acked := w.highest.Load()
	s, err := e.Snapshot()
	if err != nil {
		return w.failure(err, "snapshot")
	}
	defer s.Close()
	last, v, err := batchesOf(w.spec.Seed, !e.Capabilities().AtomicBatches).Recent(s)
	if err != nil {
		return w.failure(err, "reading a snapshot")
	}

	for _, f := range v.Findings {
		w.wrong("in a snapshot, %s", f.Text)
	}
	if last < acked {
		w.wrong("batch %d was acknowledged, but a snapshot made after that ends with %d", acked, last)
	}

	return nil
}

// kvRead tells all keys in order, and compares some answers of Get with those of Scan.
func kvRead(c *check, e holdfast.Engine, emit func(commits.Found)) error {
	it := e.Scan(holdfast.Range{})
	defer it.Close()

	var before []byte

	// The keys must rise, each of them once.
	for it.Next() {
		if before != nil && bytes.Compare(before, it.Key()) >= 0 {
			c.wrong("a scan yields %.40q after %.40q", it.Key(), before)
		}
		before = append(before[:0], it.Key()...)
		emit(commits.NewFound(string(it.Key()), it.Value()))
	}
	if err := it.Err(); err != nil {
		return err
	}
	// Get answers the same.
	r := rand.New(rand.NewPCG(c.spec.Seed, 0))
	for range 20 {
		key := commits.SlotKey(r)
		got, err := e.Get(nil, []byte(key))
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}

		// The range holds this key and no other.
		it := e.Scan(holdfast.Range{Lo: []byte(key), Hi: []byte(key + "\x00")})
		there := it.Next()
		if there != (err == nil) || there && !bytes.Equal(it.Value(), got) {
			c.wrong("Get and Scan disagree on %q", key)
		}
		if err := it.Close(); err != nil {
			return err
		}
	}

	return nil
}

// kvReread scans in both directions and gets keys that are there, and some that are not.
func kvReread(c *check, e holdfast.Engine, want []commits.Found) {
	for _, reverse := range []bool{false, true} {
		it, n, right := e.Scan(holdfast.Range{Reverse: reverse}), 0, true
		for ; right && it.Next(); n++ {
			must := commits.Found{Key: "the end"}
			switch {
			case n < len(want) && reverse:
				must = want[len(want)-1-n]
			case n < len(want):
				must = want[n]
			}
			f := commits.NewFound(string(it.Key()), it.Value())

			// The first wrong entry ends the comparison: what follows it would all be wrong too.
			if right = f == must; !right {
				c.wrong("where reads fail, a scan shows %v, and must show %v first, or fail", f, must)
			}
		}

		// To end early is allowed with an error, and never without one.
		if err := errors.Join(it.Err(), it.Close()); err == nil && right && n < len(want) {
			c.wrong("where reads fail, a scan ends without an error after %d keys of %d", n, len(want))
		}
	}

	r := rand.New(rand.NewPCG(c.spec.Seed, 1))
	for range 200 {
		key, must := commits.SlotKey(r), commits.Found{}
		if len(want) > 0 && r.IntN(4) > 0 {
			key = want[r.IntN(len(want))].Key
		}

		if at := slices.IndexFunc(want, func(f commits.Found) bool { return f.Key == key }); at >= 0 {
			must = want[at]
		}

		got, err := e.Get(nil, []byte(key))
		switch f := commits.NewFound(key, got); {
		case errors.Is(err, holdfast.ErrNotFound) && must.Key != "":
			c.wrong("where reads fail, Get says that %v is not there", must)
		case err == nil && f != must:
			c.wrong("where reads fail, Get answers %v instead of %v", f, must)
		}
	}
}

// kvJudge compares what there is with what there must be after the last batch of which something is there.
func kvJudge(h *protocol.History, found []commits.Found) (j protocol.Judgement) {
	j.Settle(h, batchesOf(h.Seed, h.Single).Judge(found, h.Generation, 0, h.Issued))
	return j
}

// stopped reports whether stop is closed.
func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
