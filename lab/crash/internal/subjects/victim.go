package subjects

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// worker is what a subject works with in a victim.
type worker struct {
	spec   protocol.Spec
	report *protocol.Reporter

	mu   sync.Mutex // covers the number and the place that a batch gets by it
	next uint64

	highest atomic.Uint64 // the last acknowledged number
	spent   atomic.Int64  // bytes written
	began   time.Time
	errors  atomic.Int64

	fatal func(error) // of what must not fail; nil ends the process

	// hold takes acknowledgements that are to be told of later; nil tells of them at once.
	hold func(n uint64, level holdfast.Level)

	model    *raftState       // of the store for Raft, from one opening to the next
	kept     *keptState       // of the namespace of message_kept.go, from one opening to the next
	begun    uint64           // of victims whose operations run concurrently: the last number
	followed [2]atomic.Uint64 // by follower of a server, the last position that it was shown
	shown    int64            // of a peer's message store: the last global position that a follower was shown
}

// acked is told after Wait returned.
func (w *worker) acked(n uint64, level holdfast.Level) {
	if w.hold != nil {
		w.hold(n, level)
	} else {
		w.report.Send(protocol.TellAcked, n, uint64(level))
	}

	for {
		old := w.highest.Load()
		if old >= n || w.highest.CompareAndSwap(old, n) {
			return
		}
	}
}

// maxRefused is how many refused writes a victim goes on after, to see whether later ones are taken.
const maxRefused = 50

// refused tells of a failed write, where failures are made, and whether that is what happened.
func (w *worker) refused(err error) bool {
	if !w.spec.Failing {
		return false
	}
	if w.errors.Add(1) <= maxRefused {
		w.report.Refused(err)
	}

	// An engine that has stopped refuses at once, and the victim would spin.
	time.Sleep(time.Millisecond)

	return true
}

// failure is err of what was done, nil where it was made to fail. The error may be nil.
func (w *worker) failure(err error, doing string) error {
	if err == nil || w.refused(err) {
		return nil
	}

	return fmt.Errorf("%s: %w", doing, err)
}

// wrong tells of a breach that the victim itself saw.
func (w *worker) wrong(format string, args ...any) { w.report.Wrong(format, args...) }

// burst is what may be written before pace holds writers up.
const burst = 1 << 20

// pace holds a writer up while more than Rate was written.
func (w *worker) pace() {
	for w.spec.Rate > 0 && float64(w.spent.Load()) > burst+time.Since(w.began).Seconds()*float64(w.spec.Rate) {
		time.Sleep(500 * time.Microsecond)
	}
}

// rest waits, and reports whether to go on.
func (w *worker) rest(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-stop:
		return false
	case <-time.After(d):
		return true
	}
}

// start runs f in a goroutine of group. Its error ends a victim at once, whatever the others wait for.
func (w *worker) start(group *sync.WaitGroup, f func() error) {
	group.Go(func() {
		switch err := f(); {
		case err == nil:
		case w.fatal != nil:
			w.fatal(err)
		default:
			w.report.Failed(err)
			os.Exit(1)
		}
	})
}

// weaker lists the levels below the one asked for, that some batches get instead: what is acknowledged at
// one level must not depend on what comes after at a weaker one.
func (w *worker) weaker(e holdfast.Engine) []holdfast.Level { return w.weakerOf(e.Capabilities()) }

// weakerOf is weaker for an engine with these capabilities.
func (w *worker) weakerOf(c holdfast.Capabilities) []holdfast.Level {
	var list []holdfast.Level
	for _, l := range c.Levels() {
		if l < w.spec.Level && !w.spec.Only {
			list = append(list, l)
		}
	}

	return list
}

// Victim opens the engine and works on it, and closes and opens it from time to time, until it is killed.
func (subject Subject) Victim(s protocol.Spec, t *protocol.Reporter, open func() (holdfast.Engine, error)) error {
	w := &worker{spec: s, report: t, next: s.From, began: time.Now()}
	w.highest.Store(s.From - 1)

	r := rand.New(rand.NewPCG(commits.Mix(s.Seed, 5), uint64(s.Gen)))

	for {
		t.Send(protocol.TellPhase, protocol.PhaseOpening, 0)
		e, err := open()
		if err != nil {
			if w.refused(err) {
				select {} // the supervisor ends this
			}

			return fmt.Errorf("opening: %w", err)
		}
		t.Send(protocol.TellPhase, protocol.PhaseOpened, 0)
		if s.Waits {
			e = timedEngine(e, t)
		}

		stop := make(chan struct{})
		if s.Reopen > 0 {
			time.AfterFunc(time.Duration(s.Reopen/2+r.Int64N(s.Reopen)), func() { close(stop) })
		}
		if s.Age > 0 {
			go w.aged(stop)
		}
		if err := w.session(subject, e, stop); err != nil {
			return err
		}

		if s.Age > 0 {
			if err := e.Sync(); err != nil {
				return fmt.Errorf("sync: %w", err)
			}
			t.Send(protocol.TellSynced, w.next-1, 0)
			if s.Leave {
				return nil
			}
		}
		t.Send(protocol.TellPhase, protocol.PhaseClosing, 0)
		if err := e.Close(); err != nil {
			// Where failures are made, Close may fail too; the next opening then shows what is left.
			if !w.refused(err) {
				return fmt.Errorf("closing: %w", err)
			}
			continue
		}
		t.Send(protocol.TellPhase, protocol.PhaseClosed, w.next-1)
		if s.Age > 0 {
			return nil
		}
	}
}

// agingLimit is how long a directory is aged.
const agingLimit = 2 * time.Second

// aged closes stop once enough is written to age a directory, or it has taken too long.
func (w *worker) aged(stop chan<- struct{}) {
	for w.spent.Load() < w.spec.Age && time.Since(w.began) < agingLimit {
		time.Sleep(time.Millisecond)
	}
	close(stop)
}

// session is the work on one open engine.
func (w *worker) session(subject Subject, e holdfast.Engine, stop <-chan struct{}) error {
	over := make(chan struct{})
	var side sync.WaitGroup
	metrics := func() {
		m := e.Metrics()
		w.report.Send(protocol.TellMetrics, uint64(m.Commits), uint64(m.Syncs))
	}
	w.start(&side, func() error {
		for w.rest(over, 20*time.Millisecond) {
			metrics()
		}
		metrics()

		return nil
	})
	// A peer's message store has no such call.
	if _, peer := e.(contender.MessagesEngine); !peer && w.spec.SyncNow > 0 && !subject.remote &&
		e.Capabilities().Strongest() > holdfast.Memory {
		w.start(&side, func() error {
			for w.rest(over, time.Duration(w.spec.SyncNow)) {
				// Read before the sync, which covers everything up to there and perhaps more.
				w.mu.Lock()
				n := w.next - 1
				w.mu.Unlock()
				w.report.Send(protocol.TellPhase, protocol.PhaseSyncing, 0)
				if err := e.Sync(); err != nil {
					if !w.refused(err) {
						return fmt.Errorf("sync: %w", err)
					}
					continue
				}
				w.report.Send(protocol.TellSynced, n, 0)
			}

			return nil
		})
	}

	// The work ends by itself when stop is closed. Only then do the others end, which call the open engine.
	err := subject.work(w, e, stop)
	close(over)
	side.Wait()

	return err
}

// check is what a child that looks at what is left works with.
type check struct {
	spec   protocol.Spec
	report *protocol.Reporter
	said   []string // what is wrong, not yet told: no message may come between entries
}

// wrong notes what is wrong, to be told behind the entries.
func (c *check) wrong(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf(format, args...))
}

// tell reads what is there, and tells it and what is wrong.
func (c *check) tell(subject Subject, e holdfast.Engine) error {
	found := c.report.Entries()
	err := subject.read(c, e, found.Tell)
	if err != nil {
		err = fmt.Errorf("reading: %w", err)
	}
	err = errors.Join(err, found.End())

	for _, text := range c.said {
		c.report.Wrong("%s", text)
	}
	c.said = nil

	return err
}

// Reread opens the engine on a disk whose reads may fail, and tells what it answers wrongly. An error is no wrong
// answer.
func (subject Subject) Reread(s protocol.Spec, t *protocol.Reporter, open func() (holdfast.Engine, error)) error {
	var want []commits.Found
	text, err := os.ReadFile(s.Expect)
	if err == nil {
		err = json.Unmarshal(text, &want)
	}
	if err != nil {
		return err
	}
	c := &check{spec: s, report: t}

	// An engine that cannot be opened while reads fail has said so, which is honest.
	if e, err := open(); err == nil {
		subject.reread(c, e, want)
		if !s.Leave {
			_ = e.Close()
		}
	}

	for _, text := range c.said {
		t.Wrong("%s", text)
	}
	t.Send(protocol.TellComplete, 0, 0)

	return nil
}

// Check opens the engine as often as it is told, and tells all that is there each time.
func (subject Subject) Check(s protocol.Spec, t *protocol.Reporter, open func() (holdfast.Engine, error)) error {
	c := &check{spec: s, report: t}
	if subject.restore != nil {
		if err := subject.restore(s); err != nil {
			return fmt.Errorf("restoring: %w", err)
		}
	}
	for i := range s.Opens {
		began := time.Now()
		e, err := open()
		if err != nil {
			return fmt.Errorf("opening (%s): %w", []string{"the first time", "again"}[min(i, 1)], err)
		}
		t.Send(protocol.TellOpened, uint64(time.Since(began)), uint64(max(e.Metrics().TornBytes, 0)))
		if err := c.tell(subject, e); err != nil {
			return err
		}
		t.Send(protocol.TellComplete, 0, 0)

		// The process then ends without closing, so that what an opening leaves is as after a kill.
		if s.Leave && i == s.Opens-1 {
			return nil
		}
		if err := e.Close(); err != nil {
			return fmt.Errorf("closing: %w", err)
		}
	}

	return nil
}
