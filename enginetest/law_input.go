package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/night"
)

var inputCases = []lawCase{
	{name: "keys and bounds", once: true, run: badKeys},
	{name: "a nil batch", run: nilBatch},
	{name: "sizes over the limits", once: true, run: tooLarge},
	{name: "options", once: true, run: badOptions},
	{name: "use after Close", run: afterClose},
	{name: "several mistakes in one call", once: true, run: severalMistakes},
	{name: "Close among readers and writers", once: byDay, run: closeAmongMany},
	{name: "no directory named", onDisk: true, once: true, needs: directory, run: unnamedDirectory},
	{name: "a second opener", onDisk: true, run: secondOpener},
	{name: "a directory of another engine", onDisk: true, once: true, needs: directory, run: otherEngine},
	{name: "a directory of another level", onDisk: true, needs: directory, run: otherLevel},
	{name: "a directory of a newer format", onDisk: true, once: true, needs: directory, run: newerFormat},
	{name: "a damaged mark", onDisk: true, once: true, needs: directory, run: damagedMark},
	{name: "a directory of something else", onDisk: true, once: true, needs: directory, run: foreignDirectory},
	{name: "no directory at all", onDisk: true, once: true, needs: directory, run: noDirectory},
	{name: "missing parents", onDisk: true, once: true, needs: directory, run: missingParents},
	{name: "a directory that may not be written to", onDisk: true, once: true, needs: directory, run: readOnly},
	{name: "opened for reading only", onDisk: true, needs: directory, run: readingOnly},
	{name: "a directory that vanishes", onDisk: true, once: true, needs: directory, run: vanishes},
	{name: "a directory that is replaced", onDisk: true, once: byDay, needs: directory, run: replaced},
}

// byDay is set where the night asks at every level, and the day at the strongest.
var byDay = !night.Is()

// wantsNamed fails unless err is of class and says more than its class does.
func (a *trial) wantsNamed(what string, err, class error) {
	a.Helper()
	if !errors.Is(err, class) {
		a.Errorf("%s: %v; want %v", what, err, class)
		return
	}
	var detailed *holdfast.Error
	if !errors.As(err, &detailed) || (detailed.Detail == "" && detailed.Path == "" && detailed.Cause == nil) {
		a.Errorf("%s: %q does not say what was wrong", what, err)
	}
	if other := otherName(err, a.s.caps.Engine); other != "" {
		a.Errorf("%s: %q names the engine %s", what, err, other)
	}
}

// otherName returns the name of an engine in err, or in what err wraps, that is not name.
func otherName(err error, name string) string {
	wrapped := []error{errors.Unwrap(err)}
	if e, ok := err.(*holdfast.Error); ok && e.Engine != "" && e.Engine != name {
		return e.Engine
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		wrapped = joined.Unwrap()
	}

	for _, w := range wrapped {
		if w != nil {
			if other := otherName(w, name); other != "" {
				return other
			}
		}
	}

	return ""
}

// Keys are 1 byte to 16 KiB long, bounds up to that.
func badKeys(a *trial) {
	e := a.open(a.dir())
	a.set(e, "k", "v")

	long := make([]byte, holdfast.MaxKeySize+1)
	s := a.snapshot(e)
	for name, r := range map[string]holdfast.Reader{"engine": e, "snapshot": s} {
		for _, key := range [][]byte{nil, {}, long} {
			got, err := r.Get([]byte("dst"), key)
			a.wantsNamed(fmt.Sprintf("Get of a key of %d bytes from the %s", len(key), name), err, holdfast.ErrBadKey)
			if string(got) != "dst" {
				a.Errorf("Get of a bad key returned %q, want dst as it was", got)
			}
		}

		for _, rng := range []holdfast.Range{{Lo: long}, {Hi: long}, {Lo: long, Hi: long, Reverse: true}} {
			it := r.Scan(rng)
			if it.Next() {
				a.Errorf("Scan with a bound of %d bytes of the %s found a key", len(long), name)
			}
			a.wantsNamed("Err of a Scan with a long bound", it.Err(), holdfast.ErrBadKey)
			a.wantsNamed("Close of a Scan with a long bound", it.Close(), holdfast.ErrBadKey)
		}
	}
	a.closeAll(s)

	for what, fill := range map[string]func(*holdfast.Batch){
		"Set of an empty key":           func(b *holdfast.Batch) { b.Set(nil, []byte("v")) },
		"Set of a long key":             func(b *holdfast.Batch) { b.Set(long, []byte("v")) },
		"Delete of an empty key":        func(b *holdfast.Batch) { b.Delete(nil) },
		"Delete of a long key":          func(b *holdfast.Batch) { b.Delete(long) },
		"DeleteRange with a long bound": func(b *holdfast.Batch) { b.DeleteRange(nil, long) },
	} {
		var b holdfast.Batch
		fill(&b)
		_, err := e.Apply(&b, a.level)
		a.wantsNamed(what, err, holdfast.ErrBadKey)
		b.Reset()
		a.commit(e, &b)
	}
	a.wantsAll(e, holdfast.Range{}, "k", "v")

	// Iterators that are misused say nothing, and do not panic.
	it := e.Scan(holdfast.Range{})
	_, _ = it.Key(), it.Value()

	for it.Next() {
	}
	_, _ = it.Key(), it.Value()
	a.closeAll(it)
	_, _ = it.Key(), it.Value()
	a.close(e)
}

// A nil batch is an error, and no barrier: an empty one is that.
func nilBatch(a *trial) {
	e := a.open(a.dir())
	_, err := e.Apply(nil, a.level)
	a.wantsNamed("Apply of a nil batch", err, holdfast.ErrBadOption)
	a.wantsNamed("Commit of a nil batch", holdfast.Commit(e, nil, a.level), holdfast.ErrBadOption)
	a.set(e, "k", "v")
	a.wantsAll(e, holdfast.Range{}, "k", "v")
	a.close(e)
}

// What is over a limit of the contract or of the engine is refused, and only that.
func tooLarge(a *trial) {
	e := a.open(a.dir())
	caps := e.Capabilities()
	refuse := func(what string, b *holdfast.Batch, class error) {
		a.Helper()
		_, err := e.Apply(b, a.level)
		a.wantsNamed(what, err, class)
	}
	value := make([]byte, holdfast.MaxValueSize+1)
	var b holdfast.Batch
	b.Set([]byte("other"), []byte("v"))
	b.Set([]byte("k"), value)
	refuse("a value of 64 MiB and a byte", &b, holdfast.ErrTooLarge)
	if caps.MaxKeySize < holdfast.MaxKeySize {
		refuse("a key over the engine's limit", sets(string(filler(1, int(caps.MaxKeySize+1))), "v"), holdfast.ErrBadKey)
	}
	if caps.MaxValueSize < holdfast.MaxValueSize {
		b.Reset()
		b.Set([]byte("other"), []byte("v"))
		b.Set([]byte("k"), value[:caps.MaxValueSize+1])
		refuse("a value over the engine's limit", &b, holdfast.ErrTooLarge)
	}
	if caps.MaxBatchSize < 256<<20 { // or it would take very much memory to ask
		b.Reset()

		piece := value[:min(1<<20, caps.MaxValueSize, caps.MaxBatchSize)]
		for i := 0; int64(b.Size()) <= caps.MaxBatchSize; i++ {
			b.Set([]byte(fmt.Sprintf("piece %06d", i)), piece)
		}
		refuse("a batch over the engine's limit", &b, holdfast.ErrTooLarge)
	}
	a.set(e, "k", "v")
	a.wantsAll(e, holdfast.Range{}, "k", "v")
	a.close(e)
}

// Options that make no sense are refused before anything is made.
func badOptions(a *trial) {
	least := max(holdfast.MinMemoryBytes, a.s.caps.MinMemoryBytes)
	for _, c := range []struct {
		what  string
		o     holdfast.Options
		class error
	}{
		{"level 9", holdfast.Options{Level: 9}, holdfast.ErrLevel},
		{"a loss window of 1ns", holdfast.Options{Level: a.level, SyncEvery: time.Nanosecond}, holdfast.ErrBadOption},
		{"a memory budget of -1", holdfast.Options{Level: a.level, MemoryBytes: -1}, holdfast.ErrBadOption},
		{"a budget below the least", holdfast.Options{Level: a.level, MemoryBytes: least - 1}, holdfast.ErrBadOption},
	} {
		dir := a.dir()
		e, err := a.s.Open(dir, c.o)
		a.wantsNamed("Open with "+c.what, err, c.class)
		if err == nil {
			_ = e.Close()
		}
		if dir != "" && exists(dir) {
			a.Errorf("Open with %s left %s behind", c.what, dir)
		}
	}
}

// After Close, everything says ErrClosed.
func afterClose(a *trial) {
	e := a.open(a.dir())
	done, told := e.Done(), make(chan error, 1)
	go func() { <-e.Done(); told <- e.Err() }()
	a.set(e, "k", "v")

	it := e.Scan(holdfast.Range{})
	for it.Next() {
	}
	s := a.snapshot(e)
	a.wantsErr("Close with views open", e.Close(), holdfast.ErrBusy)
	a.wantsWorking("after Close has found it in use", e)
	a.closeAll(it, s)
	a.close(e)
	if e.Done() != done {
		a.Errorf("Done returns another channel after Close")
	}
	if a.wantsEnded("after Close", e, holdfast.ErrClosed) {
		if err := <-told; err != e.Err() {
			a.Errorf("Err was %v, and later %v", err, e.Err())
		}
	}
	_, err := e.Get(nil, []byte("k"))
	a.wantsErr("Get after Close", err, holdfast.ErrClosed)
	_, err = commits.Contents(e, holdfast.Range{})
	a.wantsErr("Scan after Close", err, holdfast.ErrClosed)
	if s, err := e.Snapshot(); !errors.Is(err, holdfast.ErrClosed) {
		a.Errorf("Snapshot after Close: %v, %v; want ErrClosed", s, err)
	}
	_, err = e.Apply(sets("k", "v"), a.level)
	a.wantsErr("Apply after Close", err, holdfast.ErrClosed)
	_, err = e.Apply(&holdfast.Batch{}, a.level)
	a.wantsErr("Apply of an empty batch after Close", err, holdfast.ErrClosed)
	a.wantsErr("Sync after Close", e.Sync(), holdfast.ErrClosed)
	a.wantsErr("Close after Close", e.Close(), holdfast.ErrClosed)
	_, err = s.Get(nil, []byte("k"))
	a.wantsErr("Get from a snapshot after Close", err, holdfast.ErrClosed)
	if it.Next() {
		a.Errorf("an iterator goes on after Close")
	}
	a.closeAll(it, s)
	if got := e.Capabilities().Engine; got != a.s.caps.Engine {
		a.Errorf("after Close, Capabilities says the engine is %q", got)
	}
	if m := e.Metrics(); m.OpenIterators > 0 || m.OpenSnapshots > 0 {
		a.Errorf("after Close, Metrics counts %d iterators and %d snapshots", m.OpenIterators, m.OpenSnapshots)
	}
}

// Of several mistakes in one call the engine names the same one as every other engine: ErrClosed first, of the engine
// or of the snapshot, then ErrLevel, then what is wrong with the batch, the key or the bounds.
func severalMistakes(a *trial) {
	long := make([]byte, holdfast.MaxKeySize+1)
	var bad holdfast.Batch
	bad.Set(nil, nil)
	reads := func(what string, r holdfast.Reader) {
		a.Helper()

		for _, key := range [][]byte{nil, long} {
			_, err := r.Get(nil, key)
			a.wantsErr(fmt.Sprintf("Get of a key of %d bytes from a closed %s", len(key), what), err, holdfast.ErrClosed)
		}
		_, err := commits.Contents(r, holdfast.Range{Lo: long})
		a.wantsErr("Scan with a long bound of a closed "+what, err, holdfast.ErrClosed)
		_, err = commits.Contents(r, holdfast.Range{Lo: []byte("b"), Hi: []byte("a")})
		a.wantsErr("Scan of an empty range of a closed "+what, err, holdfast.ErrClosed)
	}
	e := a.open(a.dir())
	a.set(e, "k", "v")
	s := a.snapshot(e)
	it := s.Scan(holdfast.Range{})
	a.closeAll(s)
	reads("snapshot", s)
	a.closeAll(it)
	reads("snapshot", s)

	for what, b := range map[string]*holdfast.Batch{"a bad batch": &bad, "a nil batch": nil} {
		_, err := e.Apply(b, 0)
		a.wantsErr("Apply of "+what+" at no level", err, holdfast.ErrLevel)
	}
	a.close(e)
	reads("engine", e)
	reads("snapshot of a closed engine", s)

	for _, b := range []*holdfast.Batch{&bad, nil} {
		for _, level := range []holdfast.Level{0, a.level, 9} {
			_, err := e.Apply(b, level)
			a.wantsErr(fmt.Sprintf("Apply of a bad batch at %v after Close", level), err, holdfast.ErrClosed)
		}
	}
}

// Close may be called at any moment: running calls succeed, later ones return ErrClosed,
// and what was applied is there.
func closeAmongMany(a *trial) {
	for round := range night.Or(5, 3) {
		dir := a.dir()
		e := a.open(dir)
		var (
			mu      sync.Mutex
			applied uint64
			refused atomic.Int64
			users   sync.WaitGroup
		)

		ended := func(what string, err error) bool {
			if err != nil && !errors.Is(err, holdfast.ErrClosed) {
				a.Errorf("%s while the engine is being closed: %v; want ErrClosed", what, err)
			}

			return err != nil
		}
		for range 3 {
			users.Go(func() {
				for {
					mu.Lock()
					r, err := e.Apply(a.s.script.batch(applied+1), a.level)
					if err == nil {
						applied++
					}
					mu.Unlock()
					if ended("Apply", err) {
						a.wantsEnded("once Apply was refused", e, holdfast.ErrClosed)
						return
					}
					if err := r.Wait(); err != nil {
						a.Errorf("Wait for a batch that was applied before Close: %v", err)
					}
				}
			})
		}

		for range 3 {
			users.Go(func() {
				// Readers who never rest would keep Close out forever.
				for refused.Load() < 10 {
					_, err := e.Get(nil, []byte(commits.NumberKey(1)))
					if !errors.Is(err, holdfast.ErrNotFound) && ended("Get", err) {
						return
					}
					if _, err := commits.Contents(e, holdfast.Range{Hi: []byte(commits.NumberKey(20))}); ended("Scan", err) {
						return
					}
					s, err := e.Snapshot()
					if ended("Snapshot", err) {
						return
					}
					_ = s.Close()
				}
			})
		}
		time.Sleep(time.Duration(round) * 2 * time.Millisecond)

		// Close is refused while a snapshot is open, so it is tried again; each refusal lets the readers come nearer to their
		// end.
		if !eventually(func() bool {
			err := e.Close()
			refused.Add(1)
			if err != nil && !errors.Is(err, holdfast.ErrBusy) {
				a.Errorf("Close among readers and writers: %v", err)
			}

			return !errors.Is(err, holdfast.ErrBusy)
		}) {
			a.Fatalf("Close was refused for %v", stuck)
		}
		users.Wait()
		if a.s.kept {
			e = a.open(dir)
			a.wantsScript(e, applied, applied)
			a.close(e)
		}
	}
}

// An empty directory name is not the working directory.
func unnamedDirectory(a *trial) {
	e, err := a.s.Open("", a.options())
	a.wantsNamed("Open without a directory", err, holdfast.ErrBadOption)
	if err == nil {
		_ = e.Close()
	}
}

// wantsRefused fails unless opening dir is refused with class, nil meaning any error.
func (a *trial) wantsRefused(what, dir string, o holdfast.Options, class error) {
	a.Helper()
	e, err := a.s.Open(dir, o)
	if err == nil {
		_ = e.Close()
		a.Errorf("Open of %s succeeded", what)

		return
	}
	if class != nil {
		a.wantsNamed("Open of "+what, err, class)
	}
	if a.s.NoDirectory == "" && !bytes.Contains([]byte(err.Error()), []byte(dir)) {
		a.Errorf("Open of %s: %q does not name the directory", what, err)
	}
}
