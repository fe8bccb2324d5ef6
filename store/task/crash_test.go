package task_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestCrashImages cuts the power under logtree, or kills it, at any moment of concurrent work on tasks, and opens what
// is left: it agrees with what had been acknowledged, and all tasks can be completed.
func TestCrashImages(t *testing.T) {
	defer task.SetMaxLanes(3)()
	defer task.SetMaxListed(3)()
	enqueued, claimed := 0, 0
	storetest.CrashImages(t, 12, func(seed uint64, level holdfast.Level) error {
		e, round := newEvidence(newClock()), 0
		err := storetest.CrashImage(seed, level, func(eng holdfast.Engine, r *rand.Rand) error {
			task.SetMaxLanes(r.IntN(4)) // no two openings need have the same keys in memory
			task.SetMaxListed(r.IntN(4))
			s, err := task.Open(on(eng, level), e.clock.options(level))
			if err != nil {
				return fmt.Errorf("opening the store: %w", err)
			}
			round++
			var group sync.WaitGroup
			errs := make([]error, 3)
			for i := range errs {
				w := &worker{evidence: e, Rand: rand.New(rand.NewPCG(seed, r.Uint64())), s: s,
					name: fmt.Sprintf("w%d-%d", round, i)}
				group.Go(func() { errs[i] = w.work(0) })
			}
			group.Wait()
			return errors.Join(errors.Join(errs...), s.Close())
		}, func(eng holdfast.Engine) error {
			s, err := task.Open(on(eng, level), e.clock.options(level))
			if err != nil {
				return fmt.Errorf("opening the store: %w", err)
			}
			if err := e.check(s, eng); err != nil {
				return err
			}
			if round == 4 {
				if err := errors.Join(e.drain(s), e.check(s, eng)); err != nil {
					return err
				}
			}
			return s.Close()
		})
		enqueued, claimed = enqueued+e.count.enqueued, claimed+e.count.claimed
		return err
	})
	if enqueued < 100 || claimed < 50 {
		t.Errorf("%d tasks, %d claims: too little was tested", enqueued, claimed)
	}
}

// child works on tasks from several goroutines, and tells its parent what is known of them. Its arguments are a name
// that tells it from the other children on its directory, and how many seconds have passed before it.
func child(c *storetest.Child) {
	name, seconds := "", 0
	task.SetMaxLanes(1) // its parent has all keys in memory
	_, err := fmt.Sscan(c.Args, &name, &seconds)
	c.Check(err)
	e := newEvidence(newClock())
	e.clock.move(time.Duration(seconds)*time.Second, 0)
	var first []string // until a task is enqueued, so that there is something to find
	e.say = func(n noted) {
		line, err := json.Marshal(n)
		c.Check(err)
		first = append(first, string(line))
	}
	s, err := task.Open(on(c.Engine, c.Level), e.clock.options(c.Level))
	c.Check(err)
	var workers []*worker
	for i := range 4 {
		workers = append(workers, &worker{evidence: e, Rand: rand.New(rand.NewPCG(9, uint64(i))), s: s,
			name: fmt.Sprint(name, "-", i)})
	}
	c.Check(workers[0].enqueue())
	c.Say("%s", strings.Join(first, "\n"))
	e.say = func(n noted) {
		line, err := json.Marshal(n)
		c.Check(err)
		c.Say("%s", line)
	}
	var group sync.WaitGroup
	for _, w := range workers {
		group.Go(func() { c.Check(w.work(1000)) }) // not more, however late the kill comes
	}
	group.Wait()
	time.Sleep(time.Hour)
}

func TestMain(m *testing.M) { storetest.Main(m, child) }

// TestKill kills processes in the middle of work on tasks, and checks what their successor finds against what they had
// said.
func TestKill(t *testing.T) {
	storetest.Survivors(t, func(t *testing.T, tg *target, r *rand.Rand) {
		e := newEvidence(newClock())
		for round := range 2 {
			args := fmt.Sprint("r", round, " ", int(e.clock.Elapsed().Seconds()))
			storetest.Kill(t, tg, args, time.Duration(5+r.IntN(80))*time.Millisecond, func(line string) bool {
				var n noted
				if err := json.Unmarshal([]byte(line), &n); err != nil {
					t.Errorf("the child said %q: %v", line, err)
				}
				e.note(n)
				return e.count.enqueued > 0
			})
			tg.Open(t)
			s := openStore(t, tg.Engine, e.clock.options(tg.Level))
			err := e.check(s, tg.Engine)
			if err == nil && round == 1 {
				if err = e.drain(s); err == nil {
					err = e.check(s, tg.Engine)
				}
			}
			if err != nil {
				t.Error(err)
			}
			closeStore(t, s)
			tg.Close(t)
		}
		if e.count.enqueued == 0 {
			t.Fatal("no task was enqueued: nothing was tested")
		}
	})
}
