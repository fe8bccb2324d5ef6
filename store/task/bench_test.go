package task_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/store/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

func logtree(b *testing.B) (*storetest.Target, *task.Store) {
	b.Helper()
	for _, e := range all.Engines() {
		if e.Name == "logtree" {
			tg := storetest.NewTarget(b, e, holdfast.Process)
			s, err := task.Open(tg.Engine, task.Options{Level: holdfast.Process})
			if err != nil {
				b.Fatal(err)
			}
			return tg, s
		}
	}
	b.Fatal("there is no logtree")
	return nil, nil
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

// One worker claims and completes with many tasks waiting.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tg, s := logtree(b)
			defer tg.Close(b)
			defer storetest.Close(b, s)
			specs := make([]task.Spec, 1000)
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
