package crash

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

// kv is the bare contract: concurrent writers of batches that set, overwrite, delete and
// range-delete, while snapshots check themselves.
var kv = Subject{
	Name: "kv", About: "the contract: concurrent batches, overwrites, deletes, range deletes, large values, snapshots, reopening",
	work: kvWork, read: kvRead, judge: kvJudge,
}

func kvWork(w *worker, e holdfast.Engine, stop <-chan struct{}) error {
	p := plan{w.spec.Seed}
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
				w.mu.Lock()
				n := w.next
				level := w.spec.Level
				if len(weaker) > 0 && n%8 == 5 {
					level = weaker[n/8%uint64(len(weaker))]
				}
				scratch = p.fill(&b, scratch, w.spec.Gen, n)
				w.next++
				w.report.send(tellIssued, n, 0)
				r, err := e.Apply(&b, level)
				w.mu.Unlock()
				w.spent.Add(int64(b.Size()))
				if err == nil && n%13 == 0 {
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
	group.Wait()
	return nil
}

// look checks one snapshot: it holds a prefix, with all that had been acknowledged.
func (w *worker) look(e holdfast.Engine) error {
	acked := w.highest.Load()
	s, err := e.Snapshot()
	if err != nil {
		if w.refused(err) {
			return nil
		}
		return fmt.Errorf("snapshot: %w", err)
	}
	defer s.Close()
	var before, last, top uint64
	it := s.Scan(holdfast.Range{Lo: []byte("b/"), Hi: []byte("n")})
	defer it.Close()
	for it.Next() {
		n, _, ok := header(it.Value())
		switch key := string(it.Key()); {
		case !ok || strings.HasPrefix(key, "b/") && key != numberKey(n) || strings.HasPrefix(key, "m/") && key != stripeKey(n%stripes):
			w.wrong("a snapshot holds %q with a value of batch %d", key, n)
		case strings.HasPrefix(key, "b/"):
			if before > 0 && n != before+1 {
				w.wrong("a snapshot holds batches %d and %d and none between", before, n)
			}
			before, last = n, n
		default:
			top = max(top, n)
		}
	}
	if err := it.Err(); err != nil {
		if w.refused(err) {
			return nil
		}
		return fmt.Errorf("scanning a snapshot: %w", err)
	}
	if top != last {
		w.wrong("a snapshot holds batch %d in part: %d is the last whole one", max(top, last), min(top, last))
	}
	if last < acked {
		w.wrong("batch %d was acknowledged, but a snapshot made after that ends with %d", acked, last)
	}
	return nil
}

func kvRead(c *check, e holdfast.Engine, emit func(entry)) error {
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	var before []byte
	for it.Next() {
		if before != nil && bytes.Compare(before, it.Key()) >= 0 {
			c.wrong("a scan yields %.40q after %.40q", it.Key(), before)
		}
		before = append(before[:0], it.Key()...)
		emit(newEntry(string(it.Key()), it.Value()))
	}
	if err := it.Err(); err != nil {
		return err
	}
	// Get answers the same.
	r := rand.New(rand.NewPCG(c.spec.Seed, 0))
	for range 20 {
		key := slotKey(r.Uint64N(stripes), r.IntN(slots))
		got, err := e.Get(nil, []byte(key))
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}
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

// kvJudge finds the last batch of which something is there and compares what there is with what
// there must be after it.
func kvJudge(h *history, found []entry) Judgement {
	var j Judgement
	p := plan{h.Seed}
	there := map[string]entry{}
	for _, e := range found {
		if _, twice := there[e.Key]; twice {
			j.find(&j.Wrong, "%v is there twice", e)
			continue
		}
		if why := kvStrange(p, h, e); why != "" {
			j.find(&j.Wrong, "%v: %s", e, why)
			continue
		}
		there[e.Key] = e
		j.Last = max(j.Last, e.N)
	}
	missing := map[uint64]bool{}
	if want := kvState(p, h, j.Last, nil); !kvEqual(want, there) {
		deleted := map[string]uint64{}
		kvState(p, h, j.Last, deleted)
		missing = kvBlame(&j, want, deleted, there)
	}
	j.settle(h, missing)
	return j
}

// kvStrange says why e can never have been written, empty if it was.
func kvStrange(p plan, h *history, e entry) string {
	switch {
	case e.N == 0 || e.N > h.Issued:
		return "no batch wrote it"
	case e.Gen != h.generation(e.N):
		return "a crash had taken that batch back"
	}
	size := -1
	for _, o := range p.batch(e.Gen, e.N) {
		if o.kind == holdfast.KindSet && o.key == e.Key {
			size = o.size
		}
	}
	switch {
	case size < 0:
		return "that batch did not write this key"
	case e.Len != size:
		return "it was written with " + strconv.Itoa(size) + " bytes"
	case e.Sum != digestOf(p.value(nil, e.Gen, e.N, e.Key, size)):
		return "its bytes are damaged"
	}
	return ""
}

// kvState is what there is after the first n batches.
func kvState(p plan, h *history, n uint64, deleted map[string]uint64) state {
	s := state{}
	for i := uint64(1); i <= n; i++ {
		s.apply(p, h.generation(i), i, deleted)
	}
	return s
}

func kvEqual(want state, there map[string]entry) bool {
	if len(want) != len(there) {
		return false
	}
	for key, w := range want {
		if there[key].N != w.n {
			return false
		}
	}
	return true
}

// kvBlame finds the batches of which something is missing, and says of each whether all of it is.
func kvBlame(j *Judgement, want state, deleted map[string]uint64, there map[string]entry) map[uint64]bool {
	missing, example, seen := map[uint64]bool{}, map[uint64]string{}, map[uint64]bool{}
	blame := func(n uint64, format string, args ...any) {
		missing[n] = true
		if example[n] == "" {
			example[n] = fmt.Sprintf(format, args...)
		}
	}
	for key, w := range want {
		switch e, ok := there[key]; {
		case !ok:
			blame(w.n, "%.40q, which it set, is not there", key)
		case e.N != w.n:
			blame(w.n, "%.40q, which it set, is still of batch %d", key, e.N)
		default:
			seen[w.n] = true
		}
	}
	for key, e := range there {
		if _, ok := want[key]; !ok {
			blame(deleted[key], "%.40q of batch %d, which it deleted, is still there", key, e.N)
		}
	}
	for n := range missing {
		if seen[n] || n == j.Last {
			j.find(&j.Torn, "batch %d is there in part: %s", n, example[n])
		} else {
			j.find(&j.OutOfOrder, "batch %d is not there, but later ones up to %d are: %s", n, j.Last, example[n])
		}
	}
	return missing
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
