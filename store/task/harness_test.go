package task_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

type target = storetest.Target

// options are those of a store at a level by the clock.
func (c *clock) options(level holdfast.Level) task.Options {
	return task.Options{Level: level, Now: c.Now, Elapsed: c.Elapsed, Logger: quiet}
}

// on is the database of an engine, at a level. What is wrong with it, opening a store tells.
func on(eng holdfast.Engine, level holdfast.Level) *kv.DB {
	if db, err := kv.Open(eng, kv.Options{Level: level}); err == nil {
		return db
	}
	return kv.On(eng)
}

func openStore(t testing.TB, eng holdfast.Engine, o task.Options) *task.Store {
	t.Helper()
	s, err := task.Open(on(eng, o.Level), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func enqueue(t testing.TB, s *task.Store, specs ...task.Spec) []task.Result {
	t.Helper()
	results, err := s.Enqueue(ctx, specs...)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func claim(t testing.TB, s *task.Store, o task.ClaimOptions) []task.Lease {
	t.Helper()
	leases, err := s.Claim(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return leases
}
