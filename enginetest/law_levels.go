package enginetest

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

var levelCases = []lawCase{
	{name: "the description", once: true, run: description},
	{name: "the open engine", run: openCapabilities},
	{name: "shown at Apply", needs: notShown, run: shownAtApply},
	{name: "levels that are refused", once: true, run: refusedLevels},
	{name: "Power syncs", onDisk: true, run: powerSyncs},
	{name: "the loss window", onDisk: true, run: lossWindow},
	{name: "no loss window", onDisk: true, run: noLossWindow},
}

// checkPromises fails where caps cannot be true.
func (a *trial) checkPromises(caps holdfast.Capabilities) {
	a.Helper()
	if caps.Engine == "" {
		a.Errorf("Capabilities names no engine")
	}

	for _, level := range holdfast.Levels() {
		p := caps.Promise(level)
		switch {
		case p.Given == 0:
			if p.Why == "" {
				a.Errorf("%v is refused, and Why does not say why", level)
			}
		case !p.Given.Valid():
			a.Errorf("%v gets %v, which is no level", level, p.Given)
		case p.Given < level:
			a.Errorf("asked for %v, it gives %v, which is weaker", level, p.Given)
		case p.Given > level && p.Why == "":
			a.Errorf("asked for %v, it gives %v, and Why does not say why", level, p.Given)
		}
		if p.Given != 0 && p.How == "" {
			a.Errorf("How does not say what %v commits do", level)
		}
		if p.Mapped && p.Given != holdfast.Process {
			a.Errorf("%v is said to be a store to a mapping, which gives process, and gives %v", level, p.Given)
		}
		if p.CutMayCorrupt && p.Given >= holdfast.Power {
			a.Errorf("%v is said to survive a power cut, and that one may cost the whole store", level)
		}
	}

	for _, limit := range []struct {
		name        string
		value, most int64
	}{
		{"MaxKeySize", caps.MaxKeySize, holdfast.MaxKeySize},
		{"MaxValueSize", caps.MaxValueSize, holdfast.MaxValueSize},
		{"MaxBatchSize", caps.MaxBatchSize, holdfast.MaxBatchSize},
	} {
		if limit.value < 1 || limit.value > limit.most {
			a.Errorf("%s is %d, want 1 to %d", limit.name, limit.value, limit.most)
		}
	}
}

// What is said before opening is possible.
func description(a *trial) { a.checkPromises(a.s.caps) }

// What the open engine says of the level that it was opened for is what its description
// says.
func openCapabilities(a *trial) {
	e := a.open(a.dir())
	caps := e.Capabilities()
	a.checkPromises(caps)
	if caps.Engine != a.s.caps.Engine {
		a.Errorf("the engine calls itself %q, its description %q", caps.Engine, a.s.caps.Engine)
	}
	if got, want := caps.Promise(a.level).Given, a.given(); got != want {
		a.Errorf("opened for %v, it gives %v; the description says %v", a.level, got, want)
	}
	if caps.AtomicBatches != a.s.caps.AtomicBatches || caps.NativeDeleteRange != a.s.caps.NativeDeleteRange ||
		caps.Checksums != a.s.caps.Checksums || caps.ShownAtApply != a.s.caps.ShownAtApply {
		a.Errorf("the open engine and its description disagree: %+v, %+v", caps, a.s.caps)
	}
	a.close(e)
}

func notShown(s *suite) string {
	if !s.caps.ShownAtApply {
		return "the engine does not say that a batch is visible when Apply returns (Capabilities.ShownAtApply)"
	}
	return ""
}

// Where Capabilities says so, whoever hears that Apply has returned sees the batch, though others are being applied.
func shownAtApply(a *trial) {
	e := a.open(a.dir())
	look := func(who, key, want string) {
		if value, err := e.Get(nil, []byte(key)); err != nil || string(value) != want {
			a.Errorf("Apply has returned, and %s sees %q at %q, not %q: %v", who, value, key, want, err)
		}
	}
	type told struct {
		key, value string
		looked     chan struct{}
	}
	tell := make(chan told)
	var writers, readers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			looked := make(chan struct{})
			for i := range 200 {
				key, value := fmt.Sprintf("w%d/%d", w, i%3), fmt.Sprint(i)
				var b holdfast.Batch
				if i%5 == 4 {
					r := holdfast.Prefix([]byte(fmt.Sprintf("w%d/", w)))
					b.DeleteRange(r.Lo, r.Hi)
				}
				b.Set([]byte(key), []byte(value))
				if _, err := e.Apply(&b, a.level); err != nil {
					a.Errorf("Apply: %v", err)
					return
				}
				look("the goroutine that called it", key, value)
				tell <- told{key, value, looked}
				<-looked
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for at := range tell {
				look("another one", at.key, at.value)
				at.looked <- struct{}{}
			}
		})
	}
	writers.Wait()
	close(tell)
	readers.Wait()
	a.close(e)
}

// Levels that are refused, or that do not exist, are ErrLevel and have no effect.
func refusedLevels(a *trial) {
	e := a.open(a.dir())
	a.set(e, "k", "1")

	refused := []holdfast.Level{0, holdfast.Quorum + 1, 255}
	for _, level := range holdfast.Levels() {
		if e.Capabilities().Promise(level).Given == 0 {
			refused = append(refused, level)
		}
	}
	for _, level := range refused {
		if !level.Valid() || level <= a.s.caps.Strongest() { // a weaker one than what is given, no engine need refuse
			continue
		}
		o := a.options()
		o.Level = level
		a.wantsRefused(fmt.Sprintf("a directory at %v", level), a.dir(), o, holdfast.ErrLevel)
	}

	for _, level := range refused {
		_, err := e.Apply(sets("k", "2", "l", "2"), level)
		a.wantsErr(fmt.Sprintf("Apply at %v", level), err, holdfast.ErrLevel)
		if why := e.Capabilities().Promise(level).Why; !strings.Contains(fmt.Sprint(err), why) {
			a.Errorf("Apply at %v: %v; it does not say that %s", level, err, why)
		}
		_, err = e.Apply(&holdfast.Batch{}, level)
		a.wantsErr(fmt.Sprintf("Apply of an empty batch at %v", level), err, holdfast.ErrLevel)
	}
	a.commit(e, &holdfast.Batch{})
	a.wantsAll(e, holdfast.Range{}, "k", "1")
	a.close(e)
}

// A lone commit that is said to survive power loss has asked the device before it is
// acknowledged.
func powerSyncs(a *trial) {
	e := a.open(a.dir())
	if a.given() < holdfast.Power || e.Metrics().Syncs == holdfast.Unknown {
		a.Logf("does not apply: commits at %v get %v, and %d syncs are counted", a.level, a.given(), e.Metrics().Syncs)
		a.close(e)

		return
	}

	for i := range 10 {
		before := e.Metrics().Syncs
		a.set(e, "k", fmt.Sprint(i))
		if after := e.Metrics().Syncs; after <= before {
			a.Errorf("commit %d at %v was acknowledged without a sync: %d before, %d after", i, a.level, before, after)
		}
	}
	a.close(e)
}

// Where commits do not reach the device by themselves, the loss window takes them there.
func lossWindow(a *trial) {
	const window = 20 * time.Millisecond
	o := a.options()
	o.SyncEvery = window
	e := a.openWith(a.dir(), o)
	defer a.close(e)
	if a.given() >= holdfast.Power {
		a.Logf("does not apply: commits at %v survive power loss by themselves", a.level)
		return
	}
	if got := e.Capabilities().LossWindow; got <= 0 || got > window {
		a.Errorf("LossWindow is %v, opened with SyncEvery %v", got, window)
	}
	if e.Metrics().Syncs == holdfast.Unknown {
		a.Logf("does not apply further: the engine does not count its syncs")
		return
	}

	for i := range 2 {
		before := e.Metrics().Syncs
		a.set(e, "k", fmt.Sprint(i))
		if !eventually(func() bool { return e.Metrics().Syncs > before }) {
			a.Errorf("a commit at %v was never synced in the background: %d syncs", a.level, before)
		}
	}
}

// A negative SyncEvery turns the window off, and the engine says so.
func noLossWindow(a *trial) {
	o := a.options()
	o.SyncEvery = -1
	e := a.openWith(a.dir(), o)
	if got := e.Capabilities().LossWindow; got != 0 {
		a.Errorf("LossWindow is %v, opened with none", got)
	}
	a.set(e, "k", "v")
	a.close(e)
}
