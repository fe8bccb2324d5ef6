package bench

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/internal/console"
)

// resume reads the report of a run that ended early or met a full disk, and takes its seed where none is asked for.
func (r *Request) resume() (*Report, error) {
	old, err := ReadReport(r.Resume)
	if err != nil {
		return nil, err
	}
	if old.Partial == "" && !slices.ContainsFunc(old.Results, func(r Result) bool { return r.DiskFailed }) {
		return nil, op.BadOption(r.Resume+" is the report of a whole run", "there is nothing to --resume; leave that out")
	}
	if r.Seed == nil {
		r.Seed = &old.Plan.Seed
	}

	return old, nil
}

// resumes is the error for a plan, a machine or a program that is not that of the report which is to be resumed.
func (r *Runner) resumes(old *Report) error {
	if !reflect.DeepEqual(old.Plan, r.plan.PlanJSON) {
		if old.Plan.Command == r.plan.Command {
			return op.BadOption("the run to resume measures something else by the same command",
				"resume it with the program that began it, or begin a new run")
		}

		return op.BadOption("the flags are not those of the run to resume", "say: "+old.Plan.Command+" --resume FILE")
	}
	if old.Build == nil || *old.Build != console.ThisBuild() {
		was := "one that is not known"
		if old.Build != nil {
			was = strings.TrimSpace(old.Build.Version + " " + old.Build.Commit)
		}

		return op.BadOption("this is not the program that began the run to resume, which is "+was,
			"resume it with that very program, or begin a new run")
	}

	was, is := &Report{Machine: old.Machine, Plan: old.Plan}, &Report{Machine: r.machine, Plan: r.plan.PlanJSON}
	for _, report := range []*Report{was, is} {
		if d := &report.Machine.Disk; strings.HasPrefix(d.Device, "/dev/loop") {
			d.Device = "/dev/loop" // of an image, which gets any that is free
		}
	}
	if refused, named := unlike([]*Report{was, is}); len(refused)+len(named) > 0 {
		list := append(refused, named...)

		return op.BadOption("the run to resume was on another machine or disk: "+strings.Join(list, "; "),
			"resume it there, in a --dir on the same disk, or begin a new run")
	}

	return nil
}

// resumed makes the report begin with what an earlier one has, and returns what of the plan is in it. What met a disk
// that was full or took no writes is measured again.
func (r *Report) resumed(old *Report, cells []Cell) (map[slot]bool, error) {
	done := map[slot]bool{}
	for _, result := range old.Results {
		at := slices.IndexFunc(cells, func(c Cell) bool {
			c.Reads, c.Overhead = result.Reads, result.Overhead // which JSON does not have
			return c == result.Cell
		})
		switch {
		case at < 0:
			return nil, op.BadOption(fmt.Sprintf("the run to resume has a result of %s on %s, which is not in its plan",
				result.Workload, result.Engine), "begin a new run")
		case result.DiskFailed:
			continue
		}
		result.Cell = cells[at]
		r.Results = append(r.Results, result)
		done[slot{result.Cell, result.Round}] = true
	}

	for _, c := range old.Contenders {
		r.ran(&c)
	}
	r.Resumed, r.Machine.OtherWork = old.Resumed+1, old.Machine.OtherWork

	return done, nil
}

// slot is one measurement of a plan.
type slot struct {
	cell  Cell
	round int
}
