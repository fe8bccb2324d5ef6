package db

import (
	"time"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// Write stalls: while compactions are behind, writers are slowed down, so that space stays bounded. How far is decided
// at each change of the version, see [policy.Stall].

// measure decides about the sizes of new files and about stalls, for a version that is about to be the present one. It
// is called with edit and mu held.
func (co *compactor) measure(ver *tree.Version) {
	d := co.d
	tiers := tiersOf(ver.Tiers)
	d.resizeFor(tiers)

	// What a writer has to pay follows from how much garbage the log holds beside what is alive, and from how fast
	// compactions have been lately.
	load := &policy.Load{Sizes: d.full(), Tiers: tiers, Flushed: d.edit.from.LSN, NextSegment: d.nextSegmentSize(),
		Replaced: co.edit.replaced, Speed: co.edit.speed}
	for _, s := range segmentsOf(ver) {
		if s.Kind == format.SegmentMoved || s.ID < d.edit.from.Segment {
			load.Sealed += s.Used.Load()
			load.Payload += s.Payload.Load()
		}
	}
	if len(co.edit.running) > 0 {
		load.Returning = co.edit.running[0].mover.oldMoved
	}
	co.stall.Store(load.Stall())
}

// leastPause is the shortest that a writer sleeps; shorter pauses are saved up.
const leastPause = 200 * time.Microsecond

// pace slows down a writer of n bytes. Where writers have to stop, it waits until compactions have caught up, or have
// nothing to do.
func (co *compactor) pace(n int) {
	d := co.d
	if d.manual {
		return
	}

	for stopped := false; ; stopped = true {
		// The stall is read anew in each round: whoever has waited goes on under the terms of the version that is there
		// now.
		seconds, stop := co.stall.Load().Seconds(d.log.Appended(), n)
		if !stop {
			if seconds > 0 {
				co.takeTurn(seconds)
			}

			return
		}

		d.mu.Lock()

		if !co.mu.busy || d.log.Err() != nil {
			d.mu.Unlock() // nothing that would come of waiting
			return
		}
		if !stopped {
			d.stalls.Add(1)
		}
		d.wake(d.compactions)
		start := time.Now()
		d.mu.changed.Wait()
		d.mu.Unlock()
		if d.watch.Long(start) {
			d.watch.Waited(start, "a compaction: garbage has to be removed first")
		}
	}
}

// takeTurn waits for the turn of a write that takes so many seconds at the present rate. Writers share the rate: each
// begins when the one before it has had its time.
func (co *compactor) takeTurn(seconds float64) {
	d := co.d

	now := int64(time.Since(d.watch.began))
	cost := int64(seconds * float64(time.Second))
	for {
		// The end of the turn before is the beginning of this one, unless it lies in the past. Short pauses are not slept,
		// but they count: pacedUntil runs ahead until one is long enough.
		next := co.pacedUntil.Load()
		at := max(next, now)
		if !co.pacedUntil.CompareAndSwap(next, at+cost) {
			continue
		}
		if pause := time.Duration(at + cost - now); pause >= leastPause {
			d.stalls.Add(1)
			time.Sleep(pause)
		}

		return
	}
}
