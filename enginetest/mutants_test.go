//go:build unix

package enginetest

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
)

// mutantHarness is the harness of the small engine with one flaw, or none.
func mutantHarness(flaw string) Harness {
	return Harness{
		Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			return openMutant(flaw, dir, o, new(Faults))
		},
		OpenFaulty: func(dir string, o holdfast.Options, f *Faults) (holdfast.Engine, error) {
			return openMutant(flaw, dir, o, f)
		},
		Tail:     func(dir string) string { return filepath.Join(dir, "log") },
		Describe: func() holdfast.Capabilities { return describeMutant(flaw) },
	}
}

// An engine that keeps all laws passes.
func TestHonestEngine(t *testing.T) { Run(t, mutantHarness("")) }

// For each law there are engines that break it, and the suite says so: the named case fails,
// and explains the law.
func TestMutants(t *testing.T) {
	for _, f := range []struct {
		law  int
		flaw string
		kase string
	}{
		{1, "tears in view", "seen whole"},
		{1, "tears on disk", "whole after kill -9"},
		{1, "tears from the end", "in part, from its beginning, after kill -9"},
		{2, "shows out of order", "seen in order"},
		{2, "recovers out of order", "levels mixed"},
		{2, "syncs under its lock", "Apply does not wait for the device"},
		{3, "acknowledges too early", "kept after kill -9"},
		{3, "forgets what was not waited for", "Close keeps what was not waited for"},
		{3, "lets Close wait", "long calls that Close ends"},
		{4, "gives less than asked", "the description"},
		{4, "never syncs", "Power syncs"},
		{4, "shows what is waited for", "shown at Apply"},
		{4, "takes any level", "levels that are refused"},
		{4, "opens at any level", "levels that are refused"},
		{5, "has live snapshots", "snapshots are fixed"},
		{5, "blocks writers", "writers are not blocked"},
		{5, "counts no views", "Metrics counts open ones"},
		{6, "overlooks failed syncs", "a failed sync"},
		{6, "overlooks failed writes", "a failed write"},
		{6, "forgives failures", "a failed sync"},
		{6, "forgives failures", "a failure among many writers"},
		{6, "keeps its poison to itself", "a failed sync"},
		{6, "tells of its poison when asked", "a failed background sync"},
		{7, "starts anew when the disk is full", "full while writing"},
		{7, "starts anew when the disk is full", "a disk that is really full"},
		{7, "panics when the disk is full", "a disk that is really full"},
		{7, "overlooks failed writes", "a disk that is really full"},
		{8, "takes empty keys", "keys and bounds"},
		{8, "trips over a nil batch", "a nil batch"},
		{8, "panics after Close", "use after Close"},
		{8, "keeps its end to itself", "use after Close"},
		{8, "looks at the batch first", "several mistakes in one call"},
		{8, "locks nothing", "a second opener"},
		{8, "goes on in a replaced directory", "a directory that is replaced"},
		{8, "says another name", "a directory that is replaced"},
		{8, "takes over directories", "a directory of something else"},
		{8, "writes though it only reads", "opened for reading only"},
		{9, "checks no sums", "damaged files"},
		{9, "takes damage for tearing", "damaged files"},
		{9, "hides what a repair lost", "what a repair lost"},
	} {
		t.Run(fmt.Sprintf("%d %s, %s", f.law, f.flaw, f.kase), func(t *testing.T) {
			s := newSuite(mutantHarness(f.flaw), t.Name())
			if s.playChild() {
				return
			}
			if f.flaw == "blocks writers" || f.flaw == "syncs under its lock" || f.flaw == "tells of its poison when asked" {
				defer func(d time.Duration) { stuck = d }(stuck)
				stuck = time.Second
			}
			l := laws[f.law-1]
			for _, c := range l.cases {
				if c.name != f.kase {
					continue
				}
				said, failed := record(t, func(r tb) {
					s.ask(l, c, r, func(_ holdfast.Level, f func(tb)) {
						if !r.Failed() { // at one level is enough
							f(r)
						}
					})
				})
				if !failed {
					t.Errorf("an engine that %s keeps law %d, says the case %q:\n%s", f.flaw, f.law, c.name, said)
				}
				if !strings.Contains(said, fmt.Sprintf("Law %d, %s. %s", l.number, l.name, l.text)) {
					t.Errorf("the case failed without explaining its law:\n%s", said)
				}
				t.Logf("it says:\n%s", said)
				return
			}
			t.Fatalf("law %d has no case %q", f.law, f.kase)
		})
	}
}

// record runs a case and returns what it says and whether it fails.
func record(t *testing.T, run func(tb)) (said string, failed bool) {
	r := &recorder{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		run(r)
	}()
	<-done
	return r.said.String(), r.failed
}

// recorder is a test whose failure does not fail the test that runs it.
type recorder struct {
	*testing.T
	mu       sync.Mutex
	said     strings.Builder
	failed   bool
	cleanups []func()
}

func (r *recorder) Helper() {}

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.said, format+"\n", args...)
}

func (r *recorder) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
