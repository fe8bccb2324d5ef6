package task_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

func logtree(b *testing.B) (*storetest.Target, *task.Store) {
	b.Helper()
	return benchStore(b, "logtree")
}

func benchStore(b *testing.B, engine string) (*storetest.Target, *task.Store) {
	b.Helper()
	e, err := storetest.Lookup(engine)
	if err != nil {
		b.Fatal(err)
	}
	tg := storetest.NewTarget(b, e, holdfast.Process)
	s, err := task.Open(kv.On(tg.Engine), task.Options{Level: holdfast.Process})
	if err != nil {
		b.Fatal(err)
	}
	return tg, s
}

// Each of 100 workers takes its tasks through 13 changes.
func BenchmarkLifecycle(b *testing.B) {
	tg, s := logtree(b)
	defer tg.Close(b)
	defer storetest.Close(b, s)
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	payload := make([]byte, 100)
	for range 100 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := s.Enqueue(ctx, task.Spec{Kind: "k", Payload: payload}); err != nil {
					b.Error(err)
					return
				}
				l, err := s.Claim(ctx, task.ClaimOptions{Wait: true})
				for i := 0; i < 10 && err == nil; i++ {
					err = s.SetOutput(ctx, l[0], fmt.Appendf(nil, "step %d", i))
				}
				if err == nil {
					err = s.Complete(ctx, l[0])
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(13*b.N)/b.Elapsed().Seconds(), "changes/s")
}

// Lists and openings of a store that many tasks have gone through.
func BenchmarkGone(b *testing.B) {
	for _, e := range storetest.Engines() {
		if e.Name == "mem" {
			continue
		}
		b.Run(e.Name, func(b *testing.B) {
			tg := storetest.NewTarget(b, e, holdfast.Process)
			defer tg.Close(b)
			if !tg.Engine.Capabilities().AtomicBatches {
				b.Skip("no task store lies in it")
			}
			o := task.Options{Level: holdfast.Process, Keep: -1}
			s := openStore(b, tg.Engine, o)
			enqueue(b, s, task.Spec{Kind: "old", Delay: time.Hour})
			specs := slices.Repeat([]task.Spec{{Kind: "k"}}, 500)
			for range 200 {
				enqueue(b, s, specs...)
				if err := s.Complete(ctx, claim(b, s, task.ClaimOptions{N: len(specs)})...); err != nil {
					b.Fatal(err)
				}
			}
			closeStore(b, s)
			b.Run("open", func(b *testing.B) {
				for b.Loop() {
					closeStore(b, openStore(b, tg.Engine, o))
				}
			})
			b.Run("list", func(b *testing.B) {
				s := openStore(b, tg.Engine, o)
				defer storetest.Close(b, s)
				for b.Loop() {
					if list, _, err := s.List(ctx, task.Filter{}); err != nil || len(list) != 1 {
						b.Fatal(len(list), err)
					}
				}
			})
		})
	}
}

// One worker claims and completes with many tasks waiting.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tg, s := logtree(b)
			defer tg.Close(b)
			defer storetest.Close(b, s)
			specs := slices.Repeat([]task.Spec{{Kind: "k"}}, 1000)
			for range n / 1000 {
				if _, err := s.Enqueue(ctx, specs...); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				l, err := s.Claim(ctx, task.ClaimOptions{})
				if err == nil && len(l) > 0 {
					err = s.Complete(ctx, l...)
				}
				if err != nil {
					b.Fatal(err)
				}
				if len(l) == 0 {
					b.Fatal("none")
				}
			}
		})
	}
}

// One worker takes tasks through the three changes of a simple one, alone and many in one commit: such as have nothing
// to be looked up, and such as have an id and a unique text.
func BenchmarkChanges(b *testing.B) {
	for _, engine := range []string{"logtree", "late"} {
		for _, named := range []bool{false, true} {
			for _, n := range []int{1, 100, 1000} {
				b.Run(fmt.Sprintf("%s/named=%v/%d", engine, named, n), func(b *testing.B) {
					tg, s := benchStore(b, engine)
					defer tg.Close(b)
					defer storetest.Close(b, s)
					specs, next := slices.Repeat([]task.Spec{{Kind: "k", Payload: make([]byte, 100)}}, n), 0
					b.ReportAllocs()
					for b.Loop() {
						for i := range specs {
							if next++; named {
								specs[i].ID, specs[i].Unique = fmt.Sprint("id", next), fmt.Sprint("unique", next)
							}
						}
						enqueue(b, s, specs...)
						if err := s.Complete(ctx, claim(b, s, task.ClaimOptions{N: n})...); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkMemory tells what a store has in memory for each of 100,000 tasks: of those that it enqueued, and after it
// was opened again.
func BenchmarkMemory(b *testing.B) {
	const n, each = 100_000, 100
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for _, c := range []struct {
		name string
		of   func(spec *task.Spec, text string)
		run  bool
	}{
		{name: "waiting", of: func(*task.Spec, string) {}},
		{name: "running", of: func(*task.Spec, string) {}, run: true},
		{name: "key", of: func(spec *task.Spec, text string) { spec.Key = text }},
		{name: "sequence", of: func(spec *task.Spec, text string) { spec.Sequence = text }},
		{name: "unique", of: func(spec *task.Spec, text string) { spec.Unique = text }},
		{name: "queue", of: func(spec *task.Spec, text string) { spec.Queue = text }},
	} {
		b.Run(c.name, func(b *testing.B) {
			tg, s := logtree(b)
			defer tg.Close(b)
			specs := make([]task.Spec, each)
			for i := range n {
				specs[i%each] = task.Spec{Kind: "k"}
				if c.of(&specs[i%each], fmt.Sprintf("customer-%08d", i)); i%each < each-1 {
					continue
				}
				_, err := s.Enqueue(ctx, specs...)
				if err == nil && c.run {
					_, err = s.Claim(ctx, task.ClaimOptions{N: each, Lease: time.Hour})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			used := func() float64 {
				open := heap()
				storetest.Close(b, s)
				s = nil
				return (open - heap()) / n
			}
			b.ReportMetric(used(), "B/task")
			var err error
			if s, err = task.Open(kv.On(tg.Engine), task.Options{Level: holdfast.Process}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(used(), "B/task-opened-again")
		})
	}
}

// One worker takes tasks through their three changes, 100 in one commit, whose keys are few, or many that have a task
// each all the time.
func BenchmarkKeys(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tg, s := logtree(b)
			defer tg.Close(b)
			defer storetest.Close(b, s)
			specs, next := slices.Repeat([]task.Spec{{Kind: "k", Payload: make([]byte, 100)}}, 100), 0
			for range n / len(specs) {
				for i := range specs {
					next++
					specs[i].Key = fmt.Sprintf("customer-%08d", next)
				}
				enqueue(b, s, specs...)
			}
			for b.Loop() {
				for i := range specs {
					next++
					specs[i].Key = fmt.Sprintf("customer-%08d", next%n)
				}
				enqueue(b, s, specs...)
				if err := s.Complete(ctx, claim(b, s, task.ClaimOptions{N: len(specs)})...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Opening a store with a task of each of many keys, and the first claim.
func BenchmarkOpenKeys(b *testing.B) {
	for _, n := range []int{50_000, 300_000, 900_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tg, s := logtree(b)
			defer tg.Close(b)
			specs := make([]task.Spec, 1000)
			for at := 0; at < n; at += len(specs) {
				for i := range specs { // not in the order of the keys
					specs[i] = task.Spec{Kind: "k", Key: fmt.Sprintf("customer-%08d", (at+i)*7919%n)}
				}
				enqueue(b, s, specs...)
			}
			storetest.Close(b, s)
			for b.Loop() {
				s := openStore(b, tg.Engine, task.Options{Level: holdfast.Process})
				if l := claim(b, s, task.ClaimOptions{}); len(l) != 1 {
					b.Fatal("none")
				}
				storetest.Close(b, s)
			}
		})
	}
}
