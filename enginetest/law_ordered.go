package enginetest

import (
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast"
)

var orderedCases = []lawCase{
	{name: "overwrites", run: overwrites},
	{name: "levels mixed", run: mixedLevels},
	{name: "Apply does not wait for the device", onDisk: true, needs: heldSeam, run: applyDuringSync},
	{name: "seen in order", run: func(a *trial) { a.report(2, a.s.watched(a)) }},
	{name: "in order after kill -9", onDisk: true, run: func(a *trial) { a.report(2, a.s.killed(a)) }},
}

// Of many batches on one key the last one applied wins, in whatever order they are waited for.
func overwrites(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	var last holdfast.Receipt
	for i := range 200 {
		r := a.apply(e, sets("k", fmt.Sprint(i), "n", fmt.Sprint(i)))
		if i%50 == 49 {
			last = r
		}
	}
	if err := last.Wait(); err != nil {
		a.Fatalf("Wait: %v", err)
	}
	a.wantsAll(e, holdfast.Range{}, "k", "199", "n", "199")
	a.closeAndCheck(e, dir, func(e holdfast.Engine) { a.wantsAll(e, holdfast.Range{}, "k", "199", "n", "199") })
}

// Order does not depend on the levels asked for.
func mixedLevels(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	given := e.Capabilities().Levels()
	const batches = 60
	for n := uint64(1); n <= batches; n++ {
		level := given[int(n*n/3)%len(given)]
		r, err := e.Apply(a.s.script.batch(n), level)
		if err != nil {
			a.Fatalf("Apply at %v: %v", level, err)
		}
		if n%7 != 0 {
			continue
		}
		if err := r.Wait(); err != nil {
			a.Fatalf("Wait at %v: %v", level, err)
		}
		a.wantsScript(e, n, n)
	}
	a.commit(e, &holdfast.Batch{})
	a.wantsScript(e, batches, batches)
	a.closeAndCheck(e, dir, func(e holdfast.Engine) { a.wantsScript(e, batches, batches) })
}

// heldSeam says why syncs cannot be held up.
func heldSeam(s *suite) string {
	if s.OpenHeld == nil {
		return seam(s)
	}

	return ""
}

// While the device takes its time over a sync, batches get their places, and readers are answered.
func applyDuringSync(a *trial) {
	var faults Faults
	o := a.options()
	o.SyncEvery = -1
	open := a.s.OpenHeld
	if open == nil {
		open = a.s.OpenFaulty
	}
	e, err := open(a.dir(), o, &faults)
	if err != nil {
		a.Fatalf("Open: %v", err)
	}
	a.Cleanup(func() { _ = e.Close() })
	a.set(e, "a", "1")
	a.apply(e, sets("b", "1"))

	// From here on the device answers no sync until release is called.
	begun, release := faults.HoldSyncs()
	defer release()

	synced := make(chan error, 1)
	go func() { synced <- e.Sync() }()

	select {
	case <-begun:
	case err := <-synced:
		a.Fatalf("Sync has not asked the device for what was applied: %v", err)
	}

	// Whoever holds a lock over the sync is found out here.
	passed := make(chan struct{})
	go func() {
		defer close(passed)

		for i := range 10 {
			a.apply(e, sets("c", fmt.Sprint(i)))
		}
		a.wants(e, "a", "1")
		_ = e.Metrics()
	}()

	select {
	case <-passed:
	case <-time.After(stuck):
		a.Errorf("Apply, Get or Metrics waits for a sync that the device has not finished")
	}
	release()
	<-passed
	if err := <-synced; err != nil {
		a.Errorf("Sync: %v", err)
	}
	a.commit(e, &holdfast.Batch{})
	a.wantsAll(e, holdfast.Range{}, "a", "1", "b", "1", "c", "9")
	a.close(e)
}
