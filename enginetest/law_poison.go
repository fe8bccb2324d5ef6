package enginetest

import (
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
)

var poisonCases = []lawCase{
	{name: "a failed sync", onDisk: true, needs: seam, run: failedSync},
	{name: "a failed write", onDisk: true, needs: seam, run: failedWrite},
	{name: "a failed background sync", onDisk: true, needs: seam, run: failedWindow},
	{name: "a failure among many writers", onDisk: true, needs: seam, run: failureAmongMany},
}

// seam says why cases that inject failures do not apply.
func seam(s *suite) string {
	if s.OpenFaulty == nil {
		return "the engine has no seam to inject failures (Harness.OpenFaulty)"
	}

	return ""
}

// openFaulty opens dir with failures to be injected.
func (a *trial) openFaulty(dir string, o holdfast.Options, f *Faults) holdfast.Engine {
	a.Helper()
	e, err := a.s.OpenFaulty(dir, o, f)
	if err != nil {
		a.Fatalf("OpenFaulty: %v", err)
	}
	a.Cleanup(func() { f.FailWrites(nil); f.FailSyncs(nil); _ = e.Close() })

	return e
}

// A failed sync stops the engine, even when the next one would succeed.
func failedSync(a *trial) {
	for i, before := range []uint64{0, 1, 30} {
		a.poisoned(syscall.EIO, before, i == 1, (*Faults).FailSyncs, holdfast.Power)
	}
}

// So does a failed write. It is an input/output error here; law 7 asks with a full disk.
func failedWrite(a *trial) {
	for i, before := range []uint64{0, 1, 30} {
		a.poisoned(syscall.EIO, before, i == 1, (*Faults).FailWrites, holdfast.Process)
	}
}

// poisoned makes an engine fail with cause after some batches, and checks what follows.
// Commits that are given at least detected must notice it themselves; weaker ones may be
// acknowledged, and Sync must notice. If healed is set, nothing is wrong any more when the engine is
// used next.
func (a *trial) poisoned(cause error, before uint64, healed bool, fail func(*Faults, error), detected holdfast.Level) {
	var faults Faults
	dir := a.dir()
	o := a.options()
	o.SyncEvery = -1 // so that only what the case does can fail

	e := a.openFaulty(dir, o, &faults)
	waits := make(chan error, 1)
	go func() { <-e.Done(); waits <- e.Err() }()
	var good []holdfast.Receipt
	for n := uint64(1); n <= before; n++ {
		r := a.apply(e, a.s.script.batch(n))
		if err := r.Wait(); err != nil {
			a.Fatalf("Wait before anything failed: %v", err)
		}
		good = append(good, r)
	}

	a.wantsWorking("before anything failed", e)
	fail(&faults, cause)
	acked, applied := before, before+1
	r, err := e.Apply(a.s.script.batch(applied), a.level)
	if err == nil {
		err = r.Wait()
		if err == nil {
			acked = applied
			if a.given() >= detected {
				a.Errorf("batch %d was acknowledged at %v, given %v, while every attempt to store it failed with %q", applied,
					a.level, a.given(), cause)
			}
		} else if again := r.Wait(); again == nil {
			a.Errorf("Wait returned %v, and nil when asked again", err)
		}
	}
	if err == nil {
		if err = e.Sync(); err == nil {
			a.Errorf("Sync returned nil while every attempt failed with %q", cause)
			return
		}
	}
	a.wantsErr("the failure, asked for its cause", err, cause)
	if errors.Is(err, holdfast.ErrFull) {
		a.refused(e, before, func() { fail(&faults, nil) })
		a.goesOn(dir, before+1, before+1)

		return
	}
	a.wantsErr("the failure", err, holdfast.ErrPoisoned)
	a.wantsEnded("once a call has failed", e, holdfast.ErrPoisoned, cause)
	if healed {
		fail(&faults, nil)
	}
	a.wantsPoisoned(e, cause)
	a.wantsScript(e, acked, applied)
	s := a.snapshot(e)
	a.wantsScript(s, acked, applied)
	a.closeAll(s)

	for i, r := range good {
		if err := r.Wait(); err != nil {
			a.Errorf("batch %d was acknowledged, and after the failure no more: %v", i+1, err)
		}
	}

	// Close may fail, but releases the directory.
	if err := e.Close(); errors.Is(err, holdfast.ErrBusy) {
		a.Errorf("Close of a poisoned engine: %v", err)
	}
	if a.wantsEnded("once a poisoned engine is closed", e, holdfast.ErrPoisoned, cause) {
		if said := <-waits; said != e.Err() {
			a.Errorf("Err was %v, and later %v", said, e.Err())
		}
	}
	fail(&faults, nil)
	if a.given() < holdfast.Process {
		acked = 0 // in memory only: it may be gone
	}
	a.goesOn(dir, acked, applied)
}

// refused follows an engine that has answered ErrFull: nothing of the batch is there, and the engine works on as soon
// as there is room.
func (a *trial) refused(e holdfast.Engine, before uint64, heal func()) {
	a.Helper()
	a.wantsScript(e, before, before)
	if p := e.Metrics().Poison; p != nil {
		a.Errorf("Apply answered ErrFull, and Metrics.Poison is %v", p)
	}
	a.wantsWorking("after Apply has answered ErrFull", e)
	heal()
	a.commit(e, a.s.script.batch(before+1))
	a.wantsScript(e, before+1, before+1)
	a.close(e)
}

// wantsPoisoned fails unless e refuses to write, and says why.
func (a *trial) wantsPoisoned(e holdfast.Engine, cause error) {
	a.Helper()

	for range 2 {
		_, err := e.Apply(sets("never", "written"), a.level)
		if err == nil {
			a.Errorf("Apply succeeded after a failure")
			continue
		}
		a.wantsErr("Apply after a failure", err, holdfast.ErrPoisoned)
		a.wantsErr("Apply after a failure, asked for the cause", err, cause)
		if said := e.Err(); said == nil || said.Error() != err.Error() {
			a.Errorf("Apply after a failure says %v, and Err %v", err, said)
		}
	}
	// What is wrong with the call comes first; see severalMistakes.
	_, err := e.Apply(sets("", "v"), a.level)
	a.wantsErr("Apply of a bad batch after a failure", err, holdfast.ErrBadKey)
	_, err = e.Apply(sets("k", "v"), 0)
	a.wantsErr("Apply at no level after a failure", err, holdfast.ErrLevel)
	if err := e.Sync(); err == nil {
		a.Errorf("Sync succeeded after a failure")
	}
	if p := e.Metrics().Poison; !errors.Is(p, cause) {
		a.Errorf("Metrics.Poison is %v, want %v", p, cause)
	}
}

// goesOn opens dir without faults, wants between least and most batches there, and writes on.
func (a *trial) goesOn(dir string, least, most uint64) {
	a.Helper()
	e := a.open(dir)
	n := a.wantsScript(e, least, most)
	a.commitScript(e, n+1, n+5)
	n += 5
	a.wantsScript(e, n, n)
	a.close(e)
	e = a.open(dir)
	a.wantsScript(e, n, n)
	a.close(e)
}

// No commit waits for the sync of the loss window; its failure stops the engine all the same.
func failedWindow(a *trial) {
	if a.given() >= holdfast.Power {
		a.Logf("does not apply: commits at %v survive power loss by themselves", a.level)
		return
	}
	var faults Faults
	dir := a.dir()
	o := a.options()
	o.SyncEvery = 5 * time.Millisecond
	e := a.openFaulty(dir, o, &faults)
	a.commit(e, a.s.script.batch(1))
	if err := e.Sync(); err != nil {
		a.Fatalf("Sync: %v", err)
	}
	faults.FailSyncs(syscall.EIO)
	r, err := e.Apply(a.s.script.batch(2), a.level)
	if err == nil {
		_ = r.Wait() // too early to say
	}
	select { // nobody calls anything
	case <-e.Done():
	case <-time.After(stuck):
		a.Errorf("every sync fails, the loss window has passed, and Done is not closed; Metrics.Poison is %v",
			e.Metrics().Poison)
		return
	}
	a.wantsEnded("once the loss window's sync has failed", e, holdfast.ErrPoisoned, syscall.EIO)
	faults.FailSyncs(nil)
	a.wantsPoisoned(e, syscall.EIO)
	a.wantsScript(e, 1, 2)
	_ = e.Close()
	a.goesOn(dir, 1, 2)
}

// When a failure strikes among many writers, those before it in Apply order may have
// succeeded, none after it has.
func failureAmongMany(a *trial) {
	for round := range 3 {
		var (
			faults  Faults
			mu      sync.Mutex
			next    uint64
			failed  uint64 // the first batch that failed
			acked   uint64 // the last one that did not
			writers sync.WaitGroup
		)
		dir := a.dir()
		e := a.openFaulty(dir, a.options(), &faults)

		for range 8 {
			writers.Go(func() {
				for {
					mu.Lock()
					if next == 100_000 {
						mu.Unlock()
						a.Errorf("%d batches were acknowledged while every write and sync failed", next)

						return
					}
					next++
					n := next
					if n == uint64(20+round*40) {
						faults.FailSyncs(syscall.EIO)
						if a.given() < holdfast.Power {
							faults.FailWrites(syscall.EIO)
						}
					}
					r, err := e.Apply(a.s.script.batch(n), a.level)
					if err != nil {
						next-- // it took no place
					}
					mu.Unlock()
					if err == nil {
						if err = r.Wait(); err == nil && a.given() == holdfast.Memory && n > 500 {
							err = e.Sync()
						}
						mu.Lock()
						if err == nil {
							acked = max(acked, n)
						} else if failed == 0 || n < failed {
							failed = n
						}
						mu.Unlock()
					}
					if err != nil {
						if !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, syscall.EIO) {
							a.Errorf("a writer was refused with %v, want ErrPoisoned and the cause", err)
						}
						a.wantsEnded("once a writer was refused", e, holdfast.ErrPoisoned, syscall.EIO)
						return
					}
				}
			})
		}
		writers.Wait()
		if failed > 0 && acked > failed && a.given() >= holdfast.Process {
			a.Errorf("batch %d failed, batch %d, applied after it, was acknowledged", failed, acked)
		}
		faults.FailSyncs(nil)
		faults.FailWrites(nil)
		a.wantsPoisoned(e, syscall.EIO)
		_ = e.Close()
		if a.given() < holdfast.Process {
			acked = 0
		}
		a.goesOn(dir, acked, next)
		if a.Failed() {
			a.Fatalf("... in round %d", round+1)
		}
	}
}
