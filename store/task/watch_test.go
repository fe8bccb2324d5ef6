package task_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestWatch: whatever ends a lease is told once, and nothing else is.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eng := mem.New()
		s, err := task.Open(kv.On(eng), task.Options{Level: holdfast.Memory})
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		check(err)
		for name, end := range map[string]func(l task.Lease) error{
			"complete": func(l task.Lease) error { return s.Complete(t.Context(), l) },
			"fail":     func(l task.Lease) error { return s.Fail(t.Context(), l, task.Failure{}, task.FailOptions{}) },
			"snooze":   func(l task.Lease) error { return s.Snooze(t.Context(), l, 0) },
			"cancel":   func(l task.Lease) error { return s.Cancel(t.Context(), l.Task.ID) },
			"run out":  func(task.Lease) error { time.Sleep(task.DefaultLease + 1); synctest.Wait(); return nil },
		} {
			_, err := s.Enqueue(t.Context(), task.Spec{Kind: "k", Queue: name})
			check(err)
			leases, err := s.Claim(t.Context(), task.ClaimOptions{Queues: []string{name}, Wait: true})
			check(err)
			var counts [3]atomic.Int32
			told := func() [3]int32 { return [3]int32{counts[0].Load(), counts[1].Load(), counts[2].Load()} }
			for i := range counts {
				stop := s.Watch(leases[0], func() { counts[i].Add(1) })
				if i == 1 {
					stop()
				}
				defer stop()
			}
			defer s.Watch(leases[0], nil)()
			time.Sleep(task.DefaultLease / 2)
			_, err = s.Heartbeat(t.Context(), leases...)
			check(err)
			check(s.SetOutput(t.Context(), leases[0], []byte("half")))
			if told() != [3]int32{} {
				t.Errorf("%s: told %v before the end", name, told())
			}
			check(end(leases[0]))
			if told() != [3]int32{1, 0, 1} {
				t.Errorf("%s: told %v", name, told())
			}
			s.Watch(leases[0], func() { counts[1].Add(1) })() // too late
			if told() != [3]int32{1, 1, 1} {
				t.Errorf("%s: after a late watch, told %v", name, told())
			}
		}
		check(s.Close())
		check(eng.Close())
	})
}
