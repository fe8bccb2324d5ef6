// Package storetest is what the tests of the stores share: every engine at every level that it gives, and an engine whose
// tests decide when it is durable.
package storetest

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// Target is an engine at a level it gives.
type Target struct {
	Entry  all.Entry
	Level  holdfast.Level
	Dir    string          // empty if nothing is kept on disk
	Engine holdfast.Engine // open
}

// OnDisk reports whether what is in the engine outlives it.
func (tg *Target) OnDisk() bool { return tg.Entry.Describe().Strongest() > holdfast.Memory }

// Open opens the engine.
func (tg *Target) Open(t testing.TB) {
	t.Helper()
	eng, err := tg.Entry.Open(tg.Dir, holdfast.Options{Level: tg.Level})
	if err != nil {
		t.Fatal(err)
	}
	tg.Engine = eng
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

// Targets calls f for every engine and every level that it gives. Where a weaker level is asked for
// and a stronger one given, there is no difference to test.
func Targets(t *testing.T, f func(t *testing.T, tg *Target)) {
	given := 0
	for _, entry := range all.Engines() {
		caps := entry.Describe()
		for _, level := range holdfast.Levels() {
			if caps.Promise(level).Given != level || !caps.AtomicBatches { // TestBadStores has the refusal
				continue
			}
			given++
			t.Run(entry.Name+"/"+level.String(), func(t *testing.T) {
				t.Parallel()
				tg := &Target{Entry: entry, Level: level}
				if tg.OnDisk() {
					tg.Dir = t.TempDir()
				}
				tg.Open(t)
				defer tg.Close(t)
				f(t, tg)
			})
		}
	}
	if given == 0 {
		t.Fatal("no engine gives any level")
	}
}
