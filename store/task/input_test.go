package task_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestBadStores: stores that cannot be are not opened.
func TestBadStores(t *testing.T) {
	open := newBench(t).eng
	for name, test := range map[string]struct {
		eng   holdfast.Engine
		o     task.Options
		class error
	}{
		"open twice":  {open, task.Options{Level: holdfast.Memory}, holdfast.ErrLocked},
		"torn engine": {storetest.Torn(), task.Options{Level: holdfast.Memory}, holdfast.ErrBadOption},
		"no engine":   {nil, task.Options{}, holdfast.ErrBadOption},
		"level":       {mem.New(), task.Options{}, holdfast.ErrLevel},
		"name": {mem.New(), task.Options{Name: strings.Repeat("x", 300), Level: holdfast.Memory},
			holdfast.ErrBadOption},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := task.Open(kv.On(test.eng), test.o)
			storetest.WantError(t, err, test.class)
		})
	}
}

// TestBackoff: each pause is from half to all of twice the one before, up to the longest.
func TestBackoff(t *testing.T) {
	b := newBench(t)
	b.add(task.Spec{Kind: "k", ID: "a", Backoff: task.Backoff{First: time.Second, Max: 6 * time.Second}})
	for i, most := range []time.Duration{1, 2, 4, 6, 6} {
		b.ok(b.Fail(ctx, b.claim("a")[0], task.Failure{Message: "why"}, task.FailOptions{}))
		got := b.state("a", task.Scheduled)
		if in := got.Due.Sub(b.c.Now()); in < most*time.Second/2 || in > most*time.Second || got.Attempt != i+1 {
			t.Errorf("after attempt %d it waits for %v, want %v at most", got.Attempt, in, most*time.Second)
		}
		b.pass(got.Due.Sub(b.c.Now()) - 1)
		b.claim()
		b.pass(1)
	}
	if f := b.state("a", task.Waiting).Failures; len(f) != task.MaxFailures || f[0].Attempt != 1 || f[4].Message != "why" {
		t.Errorf("%+v", f)
	}
}
