package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// Grade is what figures are good for, by what was done to get them.
type Grade string

// The grades, the lowest first.
const (
	Smoke       Grade = "smoke"       // it works; the figures say nothing
	Indicative  Grade = "indicative"  // good for the next question, on this machine
	Publishable Grade = "publishable" // others can be shown them, with the report
)

// Badge is a report's grade, with what stands against the next one: nothing for the highest.
type Badge struct {
	Grade   Grade    `json:"grade"`
	Reasons []string `json:"reasons"`
}

// What a grade takes.
const (
	indicativeRounds  = 2
	indicativeSeconds = 0.1
	publishedSeconds  = 10.0
	publishedOther    = 0.05 // share of the CPUs that may do other work
)

// badge grades the report. What is not known counts against it.
func (r *Report) badge() Badge {
	b := Badge{Grade: Smoke, Reasons: []string{}}
	against := func(wrong bool, format string, args ...any) {
		if wrong {
			b.Reasons = append(b.Reasons, fmt.Sprintf(format, args...))
		}
	}

	rounds, verified := 0, 0
	for _, s := range r.Summary {
		rounds = max(rounds, s.Rounds)
	}

	for _, result := range r.Results {
		if result.Verified {
			verified++
		}
	}
	seconds := measure.Duration(r.Plan.Seconds * 1e6)
	against(verified == 0, "nothing was measured and verified")
	against(verified > 0 && rounds < indicativeRounds, "%s, and an indication takes %d",
		console.Number(rounds, "round"), indicativeRounds)
	against(r.Plan.Seconds < indicativeSeconds, "%s a measurement, and an indication takes %s", seconds,
		measure.Duration(indicativeSeconds*1e6))
	against(r.Machine.Disk.InMemory(), "the disk is memory")
	if len(b.Reasons) > 0 {
		return b
	}
	b.Grade = Indicative
	against(r.Partial != "", "the run is not whole")
	against(len(r.Void()) > 0, "%s", console.Number(len(r.Void()), "void measurement"))
	few := rounds < measure.MinRounds || slices.ContainsFunc(r.Summary, func(s Summary) bool {
		return s.Rank != nil && s.Rank.Verdict == TooFewRounds
	})
	against(few, "%s are too few for claims", console.Number(rounds, "round"))
	against(r.Plan.Seconds < publishedSeconds, "%s a measurement, not %s", seconds, measure.Duration(publishedSeconds*1e6))
	other := r.Machine.OtherWork
	against(other < 0, "it is not known what else the machine did")
	against(other >= publishedOther, "other work took %s of the CPUs, and less than %s is needed", measure.Percent(other),
		measure.Percent(publishedOther))
	against(r.Build == nil || !r.Build.Clean(), "the program is no clean build of a commit or version")

	var unknown []string
	for _, c := range r.Contenders {
		if c.Library != "" && !strings.Contains(c.Library, " ") && !slices.Contains(unknown, c.Engine) {
			unknown = append(unknown, c.Engine)
		}
	}
	against(len(r.Contenders) == 0, "the versions of the engines are not known")
	against(len(unknown) > 0, "the versions of %s are not known", console.List(unknown))

	var small []string
	for _, w := range Workloads() {
		if slices.Contains(r.Plan.Workloads, w.Name) && w.Loaded > 0 && w.Loaded <= r.Plan.MemoryBytes {
			small = append(small, w.Name)
		}
	}
	against(len(small) > 0, "the contenders' %s of memory hold all the data of %s", measure.Size(r.Plan.MemoryBytes),
		console.List(small))
	if len(b.Reasons) == 0 {
		b.Grade = Publishable
	}

	return b
}

// String is the grade, with what stands against the next one.
func (b Badge) String() string {
	if len(b.Reasons) == 0 {
		return string(b.Grade)
	}
	next := map[Grade]Grade{Smoke: Indicative, Indicative: Publishable}[b.Grade]

	return fmt.Sprintf("%s, not %s: %s", b.Grade, next, strings.Join(b.Reasons, "; "))
}
