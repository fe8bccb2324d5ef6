package task_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// Whatever key is damaged or missing, nothing panics or hangs, and every key has a name.
func TestDamage(t *testing.T) {
	b := newBench(t)
	b.ok(b.SetQueue(ctx, "q", task.QueueOptions{KeyConcurrency: 1, KeyRate: task.Rate{N: 5, Per: time.Hour}}))
	b.ok(b.AddPeriodic(ctx, task.Periodic{Name: "p", Schedule: every(time.Hour), Spec: task.Spec{Kind: "k"}}))
	big := make([]byte, 600)
	b.add(
		task.Spec{Kind: "k", ID: "a", Sequence: "s", Payload: big},
		task.Spec{Kind: "k", ID: "b", Sequence: "s"},
		task.Spec{Kind: "k", ID: "c",
			Unique: "u"},
		task.Spec{
			Kind:  "k",
			ID:    "d",
			After: []string{"a", "c"},
		},
		task.Spec{Kind: "k", ID: "e", Unique: "v", UniqueFor: time.Hour},
		task.Spec{
			Kind:  "k",
			ID:    "f",
			Delay: time.Minute,
		},
		task.Spec{Kind: "k", ID: "g", Queue: "q", Key: "k"},
		task.Spec{Kind: "k", ID: "h", Queue: "q",
			Key: "k"},
	)
	leases := b.claim("a", "c", "e", "g")
	b.ok(b.SetOutput(ctx, leases[0], big))
	b.ok(b.Complete(ctx, leases[2]))
	var all holdfast.Batch
	var keys [][]byte
	it := b.eng.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		if task.KeyName(it.Key()) == "" {
			t.Errorf("key %q has no name", it.Key())
		}
		keys = append(keys, bytes.Clone(it.Key()))
		all.Set(it.Key(), it.Value())
	}
	for _, key := range keys {
		for damage := range 3 {
			eng := mem.New()
			b.ok(holdfast.Commit(eng, &all, holdfast.Memory))
			value, err := eng.Get(nil, key)
			b.ok(err)
			var change holdfast.Batch
			switch {
			case damage == 0:
				change.Delete(key)
			case damage == 1:
				change.Set(key, value[:len(value)/2])
			case len(value) > 1: // the state of a record
				value[1]++
				change.Set(key, value)
			}
			b.ok(holdfast.Commit(eng, &change, holdfast.Memory))
			list, err := task.Examine(eng)
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			work(eng, b.c, leases)
			b.ok(eng.Close())
		}
	}
}

// work does a bit of everything, and does not look at what comes of it.
func work(eng holdfast.Engine, c *clock, leases []task.Lease) {
	o := c.options(holdfast.Memory)
	s, err := task.Open(kv.On(eng), o)
	if err != nil {
		return
	}
	defer s.Close()
	_, _ = s.Heartbeat(ctx, leases...)
	for _, l := range leases {
		_ = s.Complete(ctx, l)
	}
	_, _ = s.Enqueue(
		ctx,
		task.Spec{Kind: "k", Sequence: "s", Unique: "u"},
		task.Spec{Kind: "k", After: []string{"b"}, Unique: "v"},
	)
	got, _ := s.Claim(ctx, task.ClaimOptions{Queues: []string{"q", "default"}, N: 10})
	for i := range 8 {
		id := string(rune('a' + i))
		_, _ = s.Get(ctx, id)
		_ = s.Retry(ctx, id)
		_ = s.Cancel(ctx, id)
		_ = s.Delete(ctx, id)
	}
	for _, l := range got {
		_ = s.Fail(ctx, l, task.Failure{}, task.FailOptions{Dead: true})
	}
	_, _ = s.RetryAll(ctx, "")
	_, _, _ = s.List(ctx, task.Filter{})
	c.pass(2 * 24 * time.Hour)
	_ = s.Tick(ctx)
	c.pass(-2 * 24 * time.Hour)
}

// What makes no sense is refused, and changes nothing.
func TestBadInput(t *testing.T) {
	b := newBench(t)
	long := string(bytes.Repeat([]byte("x"), 256))
	for _, c := range []struct {
		spec task.Spec
		want error
	}{
		{task.Spec{Kind: "k", ID: long}, holdfast.ErrBadOption}, {task.Spec{Kind: "k", Queue: long}, holdfast.ErrBadOption},
		{task.Spec{Kind: "k", Key: "\xff"}, holdfast.ErrBadOption}, {task.Spec{Kind: "k", Sequence: "a\x00"},
			holdfast.ErrBadOption},
		{task.Spec{Kind: "k", ID: "t0000000000000"}, holdfast.ErrBadOption}, {task.Spec{Kind: "k", Delay: -1},
			holdfast.ErrBadOption},
		{task.Spec{Kind: "k", Delay: 1, At: time.Now()}, holdfast.ErrBadOption}, {task.Spec{Kind: "k", UniqueFor: 1},
			holdfast.ErrBadOption},
		{task.Spec{Kind: "k", Unique: "u", UniqueFor: -1}, holdfast.ErrBadOption}, {task.Spec{Kind: "k", MaxAttempts: -1},
			holdfast.ErrBadOption},
		{task.Spec{Kind: "k", Backoff: task.Backoff{Max: -1}}, holdfast.ErrBadOption},
		{task.Spec{Kind: "k", Payload: make([]byte, task.MaxPayloadSize+1)}, holdfast.ErrTooLarge},
		{task.Spec{Kind: "k", After: make([]string, task.MaxAfter+1)}, holdfast.ErrTooLarge},
		{task.Spec{Kind: "k", After: []string{"none"}}, holdfast.ErrNotFound},
	} {
		_, err := b.Enqueue(ctx, task.Spec{Kind: "k", ID: "good"}, c.spec)
		b.is(err, c.want)
	}
	b.add(task.Spec{Kind: "k", ID: "a"})
	l := b.claim("a")[0]
	foreign := l
	foreign.Token++
	var errs *task.LeaseErrors
	_, claim := b.Claim(ctx, task.ClaimOptions{N: -1})
	_, _, list := b.List(ctx, task.Filter{Queue: "none"})
	_, _, state := b.List(ctx, task.Filter{State: 99})
	_, _, cursor := b.List(ctx, task.Filter{Cursor: "x"})
	_, count := b.Count(ctx, "none")
	_, retry := b.RetryAll(ctx, "none")
	_, parse := task.ParseState("none")
	_, ended := b.CompleteThen(ctx, foreign, task.Spec{Kind: "k", ID: "next"})
	for i, c := range []struct{ got, want error }{
		{b.Complete(ctx, foreign), task.ErrLeaseLost}, {ended, task.ErrLeaseLost}, {b.Complete(ctx, task.Lease{}),
			task.ErrLeaseLost},
		{b.Fail(ctx, l, task.Failure{}, task.FailOptions{RetryIn: -1}), holdfast.ErrBadOption},
		{b.Snooze(ctx, l, -1), holdfast.ErrBadOption}, {claim, holdfast.ErrBadOption},
		{b.SetOutput(ctx, l, make([]byte, task.MaxPayloadSize+1)), holdfast.ErrTooLarge},
		{b.Retry(ctx, "a"), task.ErrState}, {b.Delete(ctx, "a"), task.ErrState}, {b.Cancel(ctx, "none"),
			holdfast.ErrNotFound},
		{list, holdfast.ErrNotFound}, {count, holdfast.ErrNotFound}, {retry, holdfast.ErrNotFound},
		{b.Resume(ctx, "none"), holdfast.ErrNotFound}, {state, holdfast.ErrBadOption}, {cursor, holdfast.ErrBadOption},
		{parse, holdfast.ErrBadOption},
		{b.SetQueue(ctx, "q", task.QueueOptions{Rate: task.Rate{N: 1}}), holdfast.ErrBadOption},
		{b.SetQueue(ctx, "q", task.QueueOptions{Concurrency: -1}), holdfast.ErrBadOption},
		{b.AddPeriodic(ctx, task.Periodic{Name: "p"}), holdfast.ErrBadOption},
		{b.RemovePeriodic(ctx, "p"), holdfast.ErrNotFound}, {b.Cancel(context.Context(nil), "a"), holdfast.ErrBadOption},
	} {
		if c.got == nil || len(c.got.Error()) < 10 {
			t.Errorf("%d: %v", i, c.got)
		}
		b.is(c.got, c.want)
	}
	for name, want := range map[string]string{"": "it has no name", "a\nb": `its name "a\nb" has a control character`} {
		err := b.AddPeriodic(ctx, task.Periodic{Name: name, Schedule: every(time.Hour)})
		if b.is(err, holdfast.ErrBadOption); !strings.Contains(err.Error(), want) {
			t.Errorf("%v, which has no %q", err, want)
		}
	}
	err := b.Complete(ctx, foreign, l)
	if b.is(err, task.ErrLeaseLost); !errors.As(err, &errs) || errs.Errs[0] == nil || errs.Errs[1] != nil {
		t.Fatal(err)
	}
	b.state("a", task.Completed)
	queues, err := b.Queues(ctx)
	if b.ok(err); len(queues) != 1 || fmt.Sprint(queues[0].Counts[task.Completed]) != "1" {
		t.Fatal(queues)
	}
	storetest.Close(t, b.Store)
	b.is(b.Cancel(ctx, "a"), holdfast.ErrClosed)
	b.open()
}
