package crash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
)

// Detection is how well a run finds a mutant: an engine that breaks what it claims in one known way.
type Detection struct {
	Mutant string `json:"mutant"`
	Kind   Kind   `json:"kind"`
	Sure   bool   `json:"sure"` // not to find it in any round is a fault of the lab
	Rounds int    `json:"rounds"`
	Found  int    `json:"found"`
	// AtLeast is the share of rounds that find it, with 95 % confidence.
	AtLeast float64 `json:"at_least"`
	// Limit is how many cuts, or simulated histories, a round has at most.
	Limit int `json:"limit"`
	// Median and Most are the cuts until it was found, of the rounds that did; -1 if none did.
	Median int `json:"median"`
	Most   int `json:"most"`
	// FlushChecks is how many acknowledgements were compared with the flushes of recorded disks, in all rounds.
	FlushChecks int64          `json:"flush_checks"`
	By          map[string]int `json:"by"` // what showed it first, see foundBy

	cuts []int
}

// foundBy is what shows a breach first.
type foundBy string

const (
	byFlush  foundBy = "a flush check"
	byCrash  foundBy = "a crash"
	byVictim foundBy = "the victim"
)

const (
	mutantRounds    = 5
	mutantLimit     = 5 * time.Minute // of all rounds
	mutantHistories = 200             // of a round of a simulation
)

// detection runs the rounds of a plan's mutants: each gets as many cuts as a row of a run, through the same choices.
func (r *runner) detection(ctx context.Context, p *runPlan, w watcher) (*Report, error) {
	s := &runState{plan: p, machine: r.machine, began: time.Now()}
	list := make([]*Detection, len(p.cells))

	for i, c := range p.cells {
		list[i] = &Detection{Mutant: c.Engine, Kind: c.Kind, Sure: r.lab.isSure(c.Engine), Limit: p.Cuts,
			By: map[string]int{}}
		if c.Kind == Simulate {
			list[i].Limit = mutantHistories
		}
	}
	var mu sync.Mutex // covers the watcher, s and list
	report := func(end string, err error) *Report {
		report := s.report(end, err)
		report.Detection = finished(list)

		return report
	}
	length := cmp.Or(p.length, mutantLimit)

	// Every mutant gets one round, however short the run. More rounds follow as long as there is time.
	over := func() bool { return time.Since(s.began) >= length }
	for round := 0; round == 0 || (p.length > 0 || round < mutantRounds) && !over(); round++ {
		group, roundCtx := errgroup.WithContext(ctx)
		group.SetLimit(workers())

		s.done, s.all = 0, len(p.cells)

		// A mutant's seed follows from the plan's, its place and the round, so that any round can be made again.
		for i, c := range p.cells {
			if roundCtx.Err() != nil || round > 0 && over() {
				break
			}
			group.Go(func() error {
				mu.Lock()
				w.starts(c, s.done, s.all, 0)
				mu.Unlock()
				seed := commits.Mix(p.Seed, uint64(i), uint64(round))
				found, err := r.hunt(roundCtx, c, seed>>32, round, list[i].Limit)
				if err != nil {
					return err
				}

				mu.Lock()
				defer mu.Unlock()
				list[i].add(found)
				s.done++
				w.ended(0, func() *Report { return report("still running", nil) })

				return nil
			})
		}
		if err := group.Wait(); err != nil {
			if errors.Is(err, console.ErrInterrupted) {
				return report("interrupted", nil), err
			}

			return report("broken off", err), fmt.Errorf("%w: %w", console.ErrIncomplete, err)
		}
		if ctx.Err() != nil {
			return report("interrupted", nil), console.ErrInterrupted
		}
	}

	return report("", nil), nil
}

// hunted is what a round came to.
type hunted struct {
	cuts   int     // until it was found
	by     foundBy // empty if it was not
	checks int64   // of flushes
}

// add enters a round.
func (d *Detection) add(h hunted) {
	d.FlushChecks += h.checks
	if d.Rounds++; h.by != "" {
		d.Found++
		d.By[string(h.by)]++
		d.cuts = append(d.cuts, h.cuts)
	}
}

// finished returns what rounds have found until now.
func finished(list []*Detection) []Detection {
	done := []Detection{}
	for _, d := range list {
		f := *d
		f.Median, f.Most, f.By = -1, -1, map[string]int{}

		// Copied, because the rounds go on to add to it.
		for by, n := range d.By {
			f.By[by] = n
		}
		if f.Found > 0 {
			cuts := slices.Sorted(slices.Values(d.cuts))
			f.Median, f.Most = cuts[len(cuts)/2], cuts[len(cuts)-1]
			f.AtLeast = leastOf(int64(f.Found), int64(f.Rounds))
		}
		done = append(done, f)
	}

	return done
}

// hunt crashes a mutant until it is found out, limit times at most.
func (r *runner) hunt(ctx context.Context, c kinds.Row, seed uint64, round, limit int) (hunted, error) {
	if c.Kind == Simulate {
		return r.huntSimulated(ctx, c.Engine, seed, limit)
	}

	// The first breach ends the session: what a mutant does after it was found tells nothing more.
	t := newTally(c, seed)

	huntCtx, end := context.WithCancel(ctx)
	defer end()

	t.firstBreach = end
	for session := 0; t.judged() < limit && session < limit && huntCtx.Err() == nil; session++ {
		size := min(limit-t.judged(), c.Kind.PerSession())

		err := r.kinds.Session(huntCtx, c, commits.Mix(seed, uint64(session)), round+session, size, 0, t)
		if err != nil && !errors.Is(err, console.ErrInterrupted) {
			return hunted{}, err
		}
	}

	// The round was interrupted from outside, so it does not count as one that found nothing.
	if ctx.Err() != nil {
		return hunted{}, console.ErrInterrupted
	}

	return hunted{t.foundAt, t.foundBy, t.result.FlushChecks}, nil
}

// huntSimulated runs histories of a mutant of a simulation.
func (r *runner) huntSimulated(ctx context.Context, name string, seed uint64, limit int) (hunted, error) {
	one := r.lab.simulatedMutant(name)
	for n := 1; n <= limit; n++ {
		_, err := one(ctx, seed+uint64(n))
		if ctx.Err() != nil {
			return hunted{}, console.ErrInterrupted
		}
		if err != nil {
			return hunted{cuts: n, by: byCrash}, nil
		}
	}

	return hunted{}, nil
}

// isSure reports whether a mutant is found in every run of a sound lab.
func (l Lab) isSure(name string) bool {
	for _, m := range mutants(l.Engines) {
		if m.name == name {
			return m.sure
		}
	}

	return false
}

// simulatedMutant is one history of a mutant of a simulation.
func (l Lab) simulatedMutant(name string) func(context.Context, uint64) (Simulated, error) {
	for _, s := range l.Simulations {
		for _, m := range s.Mutants {
			if m.Engine == name {
				return m.One
			}
		}
	}

	return nil
}

// missed reports whether a sure mutant was not found in any round.
func (r *Report) missed() bool {
	return slices.ContainsFunc(r.Detection, func(d Detection) bool { return d.Sure && d.Rounds > 0 && d.Found == 0 })
}

// tried reports whether a round of any mutant has ended.
func (r *Report) tried() bool {
	return slices.ContainsFunc(r.Detection, func(d Detection) bool { return d.Rounds > 0 })
}

// detection shows how well mutants were found.
func (s screen) detection(r *Report) {
	if r.Partial != "" {
		s.Partial(r.Partial)
	}

	for _, kind := range r.Plan.Kinds {
		t, limit := console.Columns(1, "mutant", "found#", "at least#", "cuts#", "most#", "acks#", "by"), 0

		for _, d := range r.Detection {
			if d.Kind != kind || d.Rounds == 0 {
				continue
			}
			style := console.Style("")
			if d.Sure && d.Found == 0 {
				style = console.Red
			}
			limit = d.Limit
			t.Row(style, d.Mutant, fmt.Sprintf("%d of %d", d.Found, d.Rounds), least(d.AtLeast), number(d.Median),
				number(d.Most), some(d.FlushChecks/int64(d.Rounds)), byText(d.By))
		}
		unit := "cuts"
		if kind == Simulate {
			unit = "histories"
		}
		s.Titled(fmt.Sprintf("%s: engines that each break one rule, in rounds of at most %d %s", kind, limit, unit), t)
	}
	s.Printf("\n")
	s.Wrapped("", "found: of so many rounds, each as long as a row of a run. at least: the share of rounds that find it, "+
		"with 95 % confidence. cuts, most: crashes, or histories, that were judged until it was found, the median and the "+
		"most; 0 where the flushes of the disk, or the victim, showed it before any was. acks: acknowledgements that were "+
		"compared with flushes in a round, on average.")

	for _, d := range r.Detection {
		if d.Sure && d.Rounds > 0 && d.Found == 0 {
			s.Wrapped("", s.Paint(console.Red, fmt.Sprintf("%s (%s) was NOT found, which a sound lab always finds: it is not "+
				"to be believed.", d.Mutant, d.Kind)))
		}
	}
	s.Printf("\nagain: %s\n", r.Plan.Command)
}

// least shows a share, rounded down.
func least(p float64) string { return fmt.Sprintf("%d %%", int(100*p)) }

// number shows a count, and a dash where there is none.
func number(n int) string {
	if n < 0 {
		return "-"
	}

	return fmt.Sprint(n)
}

// byText lists by what a mutant was found, in the order of the alphabet, with counts if there are several.
func byText(by map[string]int) string {
	var list []string
	for _, what := range slices.Sorted(maps.Keys(by)) {
		text := what
		if len(by) > 1 {
			text = fmt.Sprintf("%s (%d)", what, by[what])
		}
		list = append(list, text)
	}

	return strings.Join(list, ", ")
}
