// Package storetest is what the tests of the stores share: every engine at every level that it gives, an engine whose
// tests decide when it is durable, and processes that are killed in the middle of their work.
package storetest

import (
	"testing"

	"github.com/holdfastdb/holdfast"
)

// Target is an engine at a level it gives.
type Target struct {
	Entry  Entry
	Level  holdfast.Level
	Dir    string          // empty if nothing is kept on disk
	Engine holdfast.Engine // open
}

// OnDisk reports whether what is in the engine outlives it.
func (tg *Target) OnDisk() bool { return tg.Entry.Describe().Strongest() > holdfast.Memory }

// Open opens the engine.
func (tg *Target) Open(t testing.TB) {
	t.Helper()
	eng, err := open(tg.Entry, tg.Dir, tg.Level)
	if err != nil {
		t.Fatal(err)
	}
	tg.Engine = eng
}

func open(kind Entry, dir string, level holdfast.Level) (holdfast.Engine, error) {
	return kind.Open(dir, holdfast.Options{Level: level})
}

// Close closes the engine.
func (tg *Target) Close(t testing.TB) {
	t.Helper()
	if err := tg.Engine.Close(); err != nil {
		t.Fatal(err)
	}
}

// Reopen closes the engine and opens it again, where that keeps what is in it.
func (tg *Target) Reopen(t testing.TB) {
	t.Helper()
	if tg.OnDisk() {
		tg.Close(t)
		tg.Open(t)
	}
}

// NewTarget returns an engine of that kind, made and open. The caller closes it.
func NewTarget(t testing.TB, entry Entry, level holdfast.Level) *Target {
	t.Helper()
	tg := &Target{Entry: entry, Level: level}
	if tg.OnDisk() {
		tg.Dir = t.TempDir()
	}
	tg.Open(t)

	return tg
}

// given calls f for every engine and every level that it gives. Where a weaker level is asked for and a stronger one
// given, there is no difference to test.
func given(f func(entry Entry, level holdfast.Level)) {
	for _, entry := range Engines() {
		caps := entry.Describe()
		for _, level := range holdfast.Levels() {
			if caps.Promise(level).Given == level && caps.AtomicBatches { // TestBadStores has the refusal
				f(entry, level)
			}
		}
	}
}

// Targets calls f, in parallel, for every engine and every level that it gives.
func Targets(t *testing.T, f func(t *testing.T, tg *Target)) {
	found := false
	given(func(entry Entry, level holdfast.Level) {
		found = true
		t.Run(entry.Name+"/"+level.String(), func(t *testing.T) {
			t.Parallel()
			tg := NewTarget(t, entry, level)
			defer tg.Close(t)
			f(t, tg)
		})
	})
	if !found {
		t.Fatal("no engine gives any level")
	}
}

// Benchmarks calls f for every engine and every level that it gives, one after the other.
func Benchmarks(b *testing.B, f func(b *testing.B, tg *Target)) {
	given(func(entry Entry, level holdfast.Level) {
		b.Run(entry.Name+"/"+level.String(), func(b *testing.B) {
			tg := NewTarget(b, entry, level)
			defer tg.Close(b)
			f(b, tg)
		})
	})
}
