package crash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/flawed"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// TestBounds: 1-0.05^(1/n) where nothing was found, and the tables of Clopper and Pearson otherwise.
func TestBounds(t *testing.T) {
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-6 }
	for _, n := range []int64{1, 2, 20, 4096, 1e6} {
		want := 1 - math.Pow(0.05, 1/float64(n))
		if got := mostOf(0, n); !near(got, want) {
			t.Errorf("none of %d: %g, want %g", n, got, want)
		}
		if got := leastOf(n, n); !near(got, 1-want) {
			t.Errorf("all of %d: %g, want %g", n, got, 1-want)
		}
	}
	if least, most := leastOf(4, 5), mostOf(4, 5); !near(least, 0.3425917) || !near(most, 0.9897938) {
		t.Errorf("4 of 5: %g to %g", least, most)
	}
	if Below(0) != 1 || !near(Below(20), 0.1391083) || mostOf(3, 3) != 1 || leastOf(0, 3) != 0 {
		t.Error("there is no bound above all, and none below nothing")
	}
	for p, want := range map[float64]string{
		1: "100 %", 0.7764: "78 %", 0.14: "14 %", 0.00121: "0.13 %", 3e-6: "0.00030 %",
	} {
		if got := percent(p); got != want {
			t.Errorf("%g: %q, want %q", p, got, want)
		}
	}
}

// TestBoundsOfRows: cuts of one recording are no trials of their own, kills are, and a row that did not hold has none.
func TestBoundsOfRows(t *testing.T) {
	good := protocol.Judgement{Survived: 9, Last: 9, Acked: 9, Kept: 9}
	of := func(kind Kind, given holdfast.Level, j protocol.Judgement) (counts map[string]int64) {
		tally := newTally(row(kind, given), 1)
		for range 2 {
			tally.Recorded()
			tally.Flushed(100, nil)
			for range 10 {
				tally.Judged(j, false)
			}
		}
		for _, b := range tally.finish().Bounds {
			if counts == nil {
				counts = map[string]int64{}
			}
			counts[b.Of] = b.N
			if b.Below != mostOf(0, b.N) {
				t.Errorf("%+v", b)
			}
		}
		return counts
	}
	if got := of(Power, holdfast.Power, good); len(got) != 2 || got[ofRecording] != 2 || got[ofAcknowledgement] != 200 {
		t.Errorf("power: %v", got)
	}
	if got := of(Kill, holdfast.Process, good); len(got) != 1 || got[ofVictim] != 20 {
		t.Errorf("kill: %v", got)
	}
	for name, got := range map[string]map[string]int64{
		"broken":        of(Power, holdfast.Power, protocol.Judgement{Lost: 1}),
		"as documented": of(Power, holdfast.Process, good),
	} {
		if got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSureMutantsAreFound: through the same choices as everybody's victims, and the engine without a flaw is not.
func TestSureMutantsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector finds nothing in victims; TestPower runs the same code")
	}
	dir := t.TempDir()
	r, err := newRunner(labs()[mutated], Place{Dir: dir, Keep: t.TempDir(), Child: victims(mutated, dir)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.close() })
	one := func(m mutant, test func(t *testing.T, c kinds.Row)) {
		t.Run(fmt.Sprintf("%s (%s)", m.name, m.kind), func(t *testing.T) {
			if m.kind != Kill {
				needsDisk(t)
			}
			t.Parallel() // as a run does
			test(t, m.row(m.shows(), blockdev.Mounts("ext4")))
		})
	}
	for _, m := range mutants(r.lab.Engines) {
		if !m.sure {
			continue
		}
		one(m, func(t *testing.T, c kinds.Row) {
			h, err := r.hunt(t.Context(), c, 1, 0, 200)
			if err != nil || h.by == "" {
				t.Errorf("found by %q, %v", h.by, err)
			}
			t.Logf("found by %s after %d cuts and %d checks of flushes", h.by, h.cuts, h.checks)
		})
	}
	for _, kind := range []Kind{Kill, Power, Faults} {
		sound := mutant{name: logFirst, kind: kind, engine: flawedEngine(logFirst, flawed.None, 1)}
		one(sound, func(t *testing.T, c kinds.Row) {
			t1 := newTally(c, 1)
			if err := r.kinds.Session(t.Context(), c, 1, 0, night.Or(5, 2), 0, t1); err != nil {
				t.Fatal(err)
			}
			if result := t1.finish(); result.Verdict != Held {
				t.Errorf("%s, %s", result.Verdict, result.Why)
			}
		})
	}
}

// TestDetection runs rounds of simulated mutants, of which one is never found.
func TestDetection(t *testing.T) {
	calls := 0
	mutant := func(name string, found int) Simulation {
		return Simulation{Engine: name, One: func(context.Context, uint64) (Simulated, error) {
			if calls++; found > 0 && calls%found == 0 {
				return Simulated{}, errors.New("found")
			}
			return Simulated{}, nil
		}}
	}
	lab := Lab{Simulations: []Simulation{{Engine: "x", Mutants: []Simulation{mutant("third", 3)}}}}
	length := time.Nanosecond
	q := Request{Kinds: []string{"simulate"}, Mutants: true}
	file := filepath.Join(t.TempDir(), "report.json")
	status, out, err := command(t.Context(), lab, q, Place{Dir: t.TempDir(), Child: []string{"none"}}, file)
	if status != console.ExitOK || !strings.Contains(out, "5 of 5") || !strings.Contains(out, "54 %") {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r := checkReport(t, text)
	if d := r.Detection[0]; d.Found != 5 || d.Rounds != 5 || d.Median != 3 || d.Most != 3 || d.By[string(byCrash)] != 5 ||
		!strings.HasSuffix(r.Plan.Command, " --mutants") || len(r.Results) != 0 {
		t.Errorf("%+v", r)
	}
	// With a length, there is one round at least.
	lab.Simulations[0].Mutants = []Simulation{mutant("never", 0)}
	q.For = &length
	status, out, err = command(t.Context(), lab, q, Place{Dir: t.TempDir(), Child: []string{"none"}}, "")
	if status != console.ExitOK || !strings.Contains(out, "0 of 1") {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
	for _, r := range []*Report{
		{Detection: []Detection{{Sure: true, Rounds: 1, Found: 1}, {Rounds: 1}, {Sure: true}}},
		{Detection: []Detection{{Sure: true, Rounds: 1}}},
	} {
		if want := len(r.Detection) == 1; r.missed() != want {
			t.Errorf("%+v: missed %v", r.Detection, !want)
		}
	}
	// An interrupt shows what there is.
	ctx, stop := context.WithCancel(t.Context())
	lab.Simulations[0].Mutants = append(lab.Simulations[0].Mutants, Simulation{Engine: "stops", One: func(
		ctx context.Context, _ uint64) (Simulated, error) {
		stop()
		return Simulated{}, ctx.Err()
	}})
	status, out, err = command(ctx, lab, q, Place{Dir: t.TempDir(), Child: []string{"none"}}, "")
	if status != console.ExitInterrupted || !errors.Is(err, console.ErrInterrupted) {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
	for flag, q := range map[string]Request{
		"--engines": {Engines: []string{"x"}}, "--levels": {Levels: []string{"power"}},
		"--subject": {Subjects: []string{"kv"}},
	} {
		q.Mutants = true
		if _, err := lab.plan(q); !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	names := slices.Sorted(slices.Values(mutantNames(Standard())))
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("names twice: %q", names)
	}
}

func mutantNames(l Lab) (names []string) {
	for _, m := range mutants(l.Engines) {
		names = append(names, m.name)
	}
	return names
}

// TestMutantsAreNoControls: under --mutants nothing is crashed where it must show, controls of other runs included.
func TestMutantsAreNoControls(t *testing.T) {
	p, err := Standard().plan(Request{Mutants: true, Kinds: []string{"kill"}})
	if err != nil {
		t.Fatal(err)
	}
	graded := map[string]bool{}
	for _, c := range p.cells {
		if graded[c.Engine] = true; c.Control {
			t.Errorf("%s is crashed as a control", c.Engine)
		}
	}
	if !graded[notWritten] {
		t.Errorf("%s is not graded", notWritten)
	}
}

// TestLiesFindMutants: what a disk that lied shows breaks no claim, and finds a mutant all the same.
func TestLiesFindMutants(t *testing.T) {
	tally := newTally(row(Lies, holdfast.Power), 1)
	tally.Judged(protocol.Judgement{}, true)
	if tally.foundBy != "" {
		t.Error("it is found by an image that it refused")
	}
	tally.Judged(protocol.Judgement{Torn: 1}, false)
	if tally.foundBy != byCrash || tally.finish().Verdict != AsDocumented {
		t.Errorf("found by %q", tally.foundBy)
	}
}
