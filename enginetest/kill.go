package enginetest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/night"
)

// killRounds is how often the writer is killed at each level; the odd ones while it opens
// the directory that the one before has left, the others while it writes.
var killRounds = night.Or(5, 3)

// killBatches bounds what one writer writes, for engines that are very fast.
const killBatches = 20_000

// killed kills a writing process several times, and returns its findings. It runs once for each level; the laws share
// the findings.
func (s *suite) killed(a *trial) []finding {
	return s.evidence("kill", a, func(breach func(law int, format string, args ...any)) {
		rnd := a.random()
		dir := a.dir()
		done := uint64(0) // batches known to have survived
		for round := range killRounds {
			early := round%2 == 1
			acked := a.killOnce(dir, done, early, rnd, breach)
			n, ok := a.recover(dir, max(done, acked), round, breach)
			a.Logf("round %d: from %d on, up to %d acknowledged; %d are there in the end", round+1, done+1, acked, n)
			if !ok {
				return
			}
			done = n
		}
	})
}

// killOnce starts a writer at batch from+1 and kills it. It returns the last batch whose
// acknowledgement binds the engine.
func (a *trial) killOnce(dir string, from uint64, early bool, rnd *rand.Rand, breach func(int, string, ...any)) uint64 {
	c := a.startChild(order{Role: "write", Dir: dir, From: from + 1}, nil)
	delay := time.Duration(rnd.Int64N(int64(120 * time.Millisecond)))
	signal := "ack"
	if early {
		delay, signal = time.Duration(rnd.Int64N(int64(15*time.Millisecond))), "opening"
	}

	heard, acked := false, commits.Acked{}
	for line, ok := c.next(); ok; line, ok = c.next() {
		kind, rest, _ := strings.Cut(line, " ")
		if kind == signal && !heard {
			heard = true
			time.AfterFunc(delay, c.Kill)
		}

		switch kind {
		case "ack":
			number, level, _ := strings.Cut(rest, " ")
			n, err := strconv.ParseUint(number, 10, 64)
			if err != nil {
				a.Fatalf("the child said %q", line)
			}
			l, err := holdfast.ParseLevel(level)
			if err != nil {
				a.Fatalf("the child said %q", line)
			}
			acked.Add(n, l)
		case "error":
			breach(3, "the writing process, started at batch %d, failed: %s", from+1, rest)
		}
	}
	err := c.ended()
	if !heard {
		breach(3, "the writing process ended before it was killed: %v", err)
	}

	return acked.Surviving(holdfast.Process)
}

// recover opens dir as the next process would and judges what is there: at least batch acked. It continues writing,
// and returns how many batches there are then.
func (a *trial) recover(dir string, acked uint64, round int, breach func(int, string, ...any)) (n uint64, ok bool) {
	var before commits.State[string]
	for attempt := range 2 {
		e, err := a.s.Open(dir, a.options())
		if err != nil {
			breach(3, "after the kill of round %d, attempt %d to open the directory: %v", round+1, attempt+1, err)
			return 0, false
		}
		state, err := commits.Contents(e, holdfast.Range{})
		if err != nil {
			breach(3, "after the kill of round %d, reading: %v", round+1, err)
			_ = e.Close()

			return 0, false
		}
		if attempt == 1 {
			if d := commits.Difference(state, before); d != "" {
				breach(3, "opened twice after the kill of round %d, the state is not the same: %s", round+1, d)
			}
		}
		before = state
		var breaches []finding
		n, breaches = a.s.script.judge(state)
		for _, b := range breaches {
			breach(b.law, "after the kill of round %d: %s", round+1, b.text)
		}
		if n < acked {
			breach(3, "batch %d had been acknowledged before the kill of round %d, but only %d survived", acked, round+1, n)
		}
		ok = len(breaches) == 0 && n >= acked
		if attempt == 1 && ok {
			if err := a.s.script.commit(e, n+1, n+3, a.level); err != nil {
				breach(3, "writing on after the kill of round %d: %v", round+1, err)
				ok = false
			}
			n += 3
		}
		if err := e.Close(); err != nil {
			breach(3, "closing after the kill of round %d: %v", round+1, err)
			return n, false
		}
	}

	return n, ok
}

// childWrites applies numbered batches from many goroutines and reports each that is
// acknowledged, until it is killed.
func (s *suite) childWrites(o order, t *reporter) error {
	t.say("opening")
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err != nil {
		return err
	}
	// Every fourth batch asks for another level than the case does, of those given here:
	// what is acknowledged at one must not depend on what comes after at another.
	others := e.Capabilities().Levels()

	var (
		mu     sync.Mutex
		next   = o.From
		failed = make(chan error)
	)
	for range 4 {
		go func() {
			for {
				mu.Lock()
				n := next
				if n >= o.From+killBatches-10 {
					mu.Unlock()
					return
				}
				next++
				level := o.Level
				if n%4 == 0 {
					level = others[n/4%uint64(len(others))]
				}
				r, err := e.Apply(s.script.batch(n), level)
				mu.Unlock()
				if err != nil {
					failed <- fmt.Errorf("applying batch %d at %v: %w", n, level, err)
					return
				}
				if n%13 == 0 {
					continue // its receipt is dropped
				}
				if err := r.Wait(); err != nil {
					failed <- fmt.Errorf("waiting for batch %d at %v: %w", n, level, err)
					return
				}
				t.say("ack %d %v", n, e.Capabilities().Promise(level).Given)
			}
		}()
	}

	return <-failed
}
