package crash

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/console"
)

// TestLengthIsTheWholeRuns: what goes on after a broken claim does so for the rest of the named length, not for all of
// it again.
func TestLengthIsTheWholeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := &runPlan{length: time.Hour}
		for _, want := range []time.Duration{time.Hour, 20 * time.Minute, 1} {
			if got := p.left(began); got != want {
				t.Errorf("after %v, %v are left, want %v", time.Since(began), got, want)
			}
			time.Sleep(40 * time.Minute)
		}
		if got := (&runPlan{}).left(began); got != 0 {
			t.Errorf("%v are left of no length", got)
		}
	})
}

// TestSoakReports after each pass: what was judged, found and reached. A terminal gets that, too.
func TestSoakReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lab, histories := Standard(), 0
		lab.Simulations = []Simulation{{Engine: mem.Name, One: func(context.Context, uint64) (Simulated, error) {
			time.Sleep(time.Second)
			if histories++; histories == 150 {
				return Simulated{}, errors.New("law 3")
			}
			return Simulated{}, nil
		}}}
		length, file := 3*time.Minute, filepath.Join(t.TempDir(), "report.json")
		q := Request{Kinds: []string{"simulate"}, Engines: []string{mem.Name}, For: &length}
		var out, shown bytes.Buffer
		terminal := console.Terminal{Out: &out, Err: &shown, ErrWidth: func() int { return 80 }}
		err := lab.Command(t.Context(), q, Place{Dir: t.TempDir()}, console.Files{JSON: file}, terminal)
		if !errors.Is(err, ErrBroken) {
			t.Error(err)
		}
		for _, want := range []string{
			"pass 1 done after 60 s: 60 crashes, no findings, each row that held below 4.9 %/history\n",
			"pass 2 done after 2 min: 120 crashes, no findings, each row that held below 2.5 %/history\n",
			"pass 3 done after 2 min: 150 crashes, 1 finding, 1 BROKEN\n",
			"  law 3\n",
		} {
			if !strings.Contains(shown.String(), want) {
				t.Errorf("no %q in %q", want, shown.String())
			}
		}
	})
}
