package bench

import (
	"errors"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
)

// TestResumedKeepsWhatIsThere: a resumed report has what the earlier one had, void results too, but not what met a full
// disk, and each measurement of the plan is made once in all.
func TestResumedKeepsWhatIsThere(t *testing.T) {
	_, plan, old := invented(3)
	old.Results = old.Results[:len(plan.Cells)+5]
	full, wrong := &old.Results[2], &old.Results[4]
	full.Verified, full.DiskFailed, full.Error = false, true, "no space left on device"
	wrong.Verified, wrong.Error = false, "failed verification"
	old.Partial, old.Machine.OtherWork = "interrupted", 0.25
	file := saved(t, old)
	whole := *old
	whole.Partial = ""
	if _, err := (&Request{Resume: saved(t, &whole)}).resume(); err != nil {
		t.Errorf("a run that met a full disk: %v", err)
	}
	r := Request{Resume: file}
	again, err := r.resume()
	if err != nil || r.Seed == nil || *r.Seed != old.Plan.Seed {
		t.Fatalf("%v, seed %v", err, r.Seed)
	}
	var now Report
	done, err := now.resumed(again, plan.Cells)
	if err != nil {
		t.Fatal(err)
	}
	left := 0
	for round := 1; round <= plan.Rounds; round++ {
		for _, c := range plan.Shuffled(round) {
			if !done[slot{c, round}] {
				left++
			}
		}
	}
	if n := len(now.Results); n != len(old.Results)-1 || left != len(plan.Cells)*plan.Rounds-n || now.Resumed != 1 ||
		now.Machine.OtherWork != 0.25 {
		t.Errorf("%d of %d results, %d left, %+v", n, len(old.Results), left, now.Machine)
	}
	if len(now.Void()) == 0 || done[slot{full.Cell, full.Round}] {
		t.Errorf("%d are void", len(now.Void()))
	}
	if _, err := now.resumed(again, plan.Cells[1:]); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("a result of no cell: %v", err)
	}
}

// TestResumesRefuses what is not the same run: other flags, another program, another machine.
func TestResumesRefuses(t *testing.T) {
	build := console.ThisBuild()
	for name, spoil := range map[string]func(*Report){
		"":          func(*Report) {},
		"a loop":    func(r *Report) { r.Machine.Disk.Device = "/dev/loop7" },
		"flags":     func(r *Report) { r.Plan.Command += " --rounds 9" },
		"rounds":    func(r *Report) { r.Plan.Rounds++ },
		"no build":  func(r *Report) { r.Build = nil },
		"a program": func(r *Report) { r.Build = &console.Build{Version: build.Version, Program: "0"} },
		"CPUs":      func(r *Report) { r.Machine.CPUs = 64 },
		"a device":  func(r *Report) { r.Machine.Disk.Device = "/dev/sdb" },
		"a kernel":  func(r *Report) { r.Machine.Kernel = "7" },
	} {
		_, plan, old := invented(3)
		old.Build = &build
		runner := &Runner{plan: plan, machine: old.Machine}
		runner.machine.OtherWork, runner.machine.Disk.SyncP50 = 0.5, 99 // from moment to moment
		if name == "a loop" {
			runner.machine.Disk.Device = "/dev/loop0"
		}
		spoil(old)
		err := runner.resumes(old)
		same := name == "" || name == "a loop"
		if same != (err == nil) || err != nil && !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
