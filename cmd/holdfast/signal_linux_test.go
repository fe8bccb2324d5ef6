package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/bench"
)

// gone reports whether a process has ended, also one that was not waited for yet.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func awaitGone(t *testing.T, pid int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("the end of child %d", pid), func() bool { return gone(pid) })
}

// sleeping is a short run of mem and the sleeper, in which the sleeper has the first turn or the last.
func sleeping(t *testing.T, last bool, more ...string) *exec.Cmd {
	t.Helper()
	lab := bench.Standard()
	lab.Engines = append(lab.Engines, misbehaving()...)
	for seed := uint64(0); ; seed++ {
		p, err := lab.Plan(bench.Request{Preset: "smoke", Workloads: []string{"event/append-1"},
			Engines: []string{"mem", "sleeper"}, Seed: &seed})
		try(t, err)
		cells := p.Shuffled(1)
		at := 0
		if last {
			at = len(cells) - 1
		}
		if cells[at].Engine == "sleeper" {
			return holdfastCommand(t, with(with(short, "--engines", "mem,sleeper", "--seed", fmt.Sprint(seed)), more...)...)
		}
	}
}

// TestInterruptLeavesNothing: no child, no directory, no report of nothing; one line, status 130.
func TestInterruptLeavesNothing(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			// Under nohup a hangup is ignored, by children too; a signal that is caught here is not ignored there.
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, sig)
			defer signal.Stop(caught)
			cmd := sleeping(t, false, "--json", "report.json")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			try(t, cmd.Start())
			child := awaitSleeper(t, cmd.Dir)
			try(t, cmd.Process.Signal(sig))
			_ = cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != exitInterrupted || stderr.String() != "holdfast: interrupted\n" {
				t.Errorf("status %d: %q", status, stderr.String())
			}
			if !gone(child) {
				t.Errorf("child %d lives on", child)
			}
			checkEmpty(t, cmd.Dir)
		})
	}
}

// TestEarlyEndKeepsWhatWasMeasured: a run that is interrupted, killed, or loses its directory has a report, which says
// why it is not all; if the run can still do that, it shows the tables, too.
func TestEarlyEndKeepsWhatWasMeasured(t *testing.T) {
	for name, test := range map[string]struct {
		end     func(t *testing.T, cmd *exec.Cmd, child int)
		status  int
		partial string
	}{
		"interrupted": {func(t *testing.T, cmd *exec.Cmd, _ int) {
			try(t, cmd.Process.Signal(os.Interrupt))
		}, exitInterrupted, "interrupted after "},
		"killed": {func(t *testing.T, cmd *exec.Cmd, _ int) {
			try(t, cmd.Process.Kill())
		}, -1, "still running after "},
		"without its directory": {func(t *testing.T, cmd *exec.Cmd, child int) {
			names, err := filepath.Glob(filepath.Join(cmd.Dir, "holdfast-bench-*"))
			if err != nil || len(names) != 1 {
				t.Fatalf("%q, %v", names, err)
			}
			try(t, os.RemoveAll(names[0]))
			try(t, syscall.Kill(child, syscall.SIGKILL))
		}, console.ExitIncomplete, "broken off after 3 of 4 measurements: bench "},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "report.json")
			cmd := sleeping(t, true, "--json", file)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			try(t, cmd.Start())
			child := awaitSleeper(t, cmd.Dir)
			test.end(t, cmd, child)
			_ = cmd.Wait()
			out := stdout.String()
			if status := cmd.ProcessState.ExitCode(); status != test.status {
				t.Errorf("status %d\n%s%s", status, out, stderr.String())
			}
			text, err := os.ReadFile(file)
			try(t, err)
			var report bench.Report
			try(t, json.Unmarshal(text, &report))
			if !strings.HasPrefix(report.Partial, test.partial) || len(report.Results) == 0 ||
				len(report.Summary) != len(report.Results) {
				t.Errorf("%q, %d results, %d summaries", report.Partial, len(report.Results), len(report.Summary))
			}
			if test.status < 0 {
				awaitGone(t, child)
				return // the directory is for the next run to remove
			}
			// All but the sleeper.
			if want := fmt.Sprintf("after %d of %d measurements", len(report.Results),
				len(report.Results)+1); !strings.Contains(report.Partial, want) {
				t.Errorf("%q", report.Partial)
			}
			if !strings.Contains(strings.Join(strings.Fields(out), " "), "PARTIAL: "+test.partial) ||
				!strings.Contains(out, " mem ") || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("%s%s", out, stderr.String())
			}
			checkEmpty(t, cmd.Dir)
		})
	}
}

// TestResume: a run that was killed goes on from its report, and measures only what is missing; by other flags, with
// another file or on another machine it does not begin.
func TestResume(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	cmd := sleeping(t, true, "--json", file)
	try(t, cmd.Start())
	child := awaitSleeper(t, cmd.Dir)
	try(t, cmd.Process.Kill())
	_ = cmd.Wait()
	awaitGone(t, child)
	before := readBench(t, file)
	text, err := os.ReadFile(file)
	try(t, err)
	flags := cmd.Args[1 : len(cmd.Args)-2] // without --json
	// A slow disk has kept later results out of the report: the first is there, and it is of no level but these.
	given := fmt.Sprintf(`"given": "%v"`, before.Results[0].Given)
	elsewhere := filepath.Join(t.TempDir(), "other.json")
	for name, test := range map[string]struct {
		flags    []string
		old, new string
		says     string
	}{
		"other flags":     {with(flags, "--for", "7ms"), "", "", before.Plan.Command + " --resume"},
		"another seed":    {with(flags, "--seed", "0"), "", "", "the flags are not those"},
		"a whole run":     {flags, `"partial": "`, `"partial": "", "x": "`, "additional properties"},
		"another machine": {flags, `"kernel": "`, `"kernel": "old`, "another machine or disk: kernel: old"},
		"another program": {flags, `"program": "`, `"program": "0`, "not the program that began"},
		"no program":      {flags, `"version": "`, `"version": "v0.`, "not the program that began"},
		"half of it":      {flags, string(text[len(text)/2:]), "", "ends before the report does"},
		"another level":   {flags, given, `"given": "process"`, "which is not in its plan"},
	} {
		if !strings.Contains(string(text), test.old) {
			t.Fatalf("%s: the report has no %s", name, test.old)
		}
		try(t, os.WriteFile(elsewhere, []byte(strings.Replace(string(text), test.old, test.new, 1)), 0o644))
		again := holdfastCommand(t, with(test.flags, "--resume", elsewhere)...)
		if status, out, stderr := result(t, again); status != exitError || !strings.Contains(stderr, test.says) {
			t.Errorf("%s: status %d\n%s%s", name, status, out, stderr)
		}
	}
	again := holdfastCommand(t, with(flags, "--resume", file, "--dir", cmd.Dir)...) // it removes what the killed run left
	again.Env = append(again.Env, "HOLDFAST_TEST_AWAKE=1")
	status, out, stderr := result(t, again)
	if status != exitOK || !strings.Contains(out, "resumed: ") {
		t.Fatalf("status %d\n%s%s", status, out, stderr)
	}
	after := readBench(t, file)
	if after.Partial != "" || after.Resumed != 1 || len(after.Results) != 4 || len(before.Results) == 0 ||
		after.Plan.Seed != before.Plan.Seed {
		t.Errorf("%q, %d results after %d, resumed %d times", after.Partial, len(after.Results), len(before.Results),
			after.Resumed)
	}
	for i, r := range before.Results {
		if now := after.Results[i]; now.Ops != r.Ops || now.Engine != r.Engine || now.Latency != r.Latency {
			t.Errorf("%s was measured again", r.Engine)
		}
	}
	checkEmpty(t, cmd.Dir)
	status, _, stderr = result(t, holdfastCommand(t, with(flags, "--resume", file)...))
	if status != exitError || !strings.Contains(stderr, "the report of a whole run") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// readBench reads a report of bench.
func readBench(t *testing.T, file string) *bench.Report {
	t.Helper()
	r, err := bench.ReadReport(file)
	try(t, err)
	return r
}

// TestKilledParentTakesItsChildAlong, which no process can do for the directory: its name says whose it was.
func TestKilledParentTakesItsChildAlong(t *testing.T) {
	cmd := holdfastCommand(t, with(short, "--engines", "sleeper")...)
	try(t, cmd.Start())
	child := awaitSleeper(t, cmd.Dir)
	try(t, cmd.Process.Kill())
	_ = cmd.Wait()
	awaitGone(t, child)
	left := filepath.Join(cmd.Dir, fmt.Sprintf("holdfast-bench-%d-*", cmd.Process.Pid))
	names, err := filepath.Glob(left)
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}

	status, out, stderr := result(t, runBeside(t, cmd))
	if status != exitOK || !strings.Contains(out, "had left: "+names[0]) {
		t.Errorf("the next run there: status %d\n%s%s", status, out, stderr)
	}
	checkEmpty(t, cmd.Dir)
}

// TestLivingRunIsLeftAlone: what a run finds of another that is still going on, it does not touch.
func TestLivingRunIsLeftAlone(t *testing.T) {
	living := holdfastCommand(t, with(short, "--engines", "sleeper")...)
	try(t, living.Start())
	child := awaitSleeper(t, living.Dir)
	status, out, stderr := result(t, runBeside(t, living))
	if status != exitOK || strings.Contains(out, "had left") {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	names, err := filepath.Glob(filepath.Join(living.Dir, fmt.Sprintf("holdfast-bench-%d-*", living.Process.Pid)))
	if err != nil || len(names) != 1 {
		t.Errorf("the living run has %q, %v", names, err)
	}
	try(t, living.Process.Signal(syscall.SIGTERM))
	_ = living.Wait()
	awaitGone(t, child)
	checkEmpty(t, living.Dir)
}

// runBeside is a short run in the same directory as another.
func runBeside(t *testing.T, other *exec.Cmd) *exec.Cmd {
	cmd := holdfastCommand(t, "bench", "smoke", "--engines", "mem", "--levels", "memory", "--workloads", "event/append-1")
	cmd.Args = append(cmd.Args, "--dir", other.Dir)
	return cmd
}

// TestReaderThatGoesAway: writing to a closed pipe is an error, not the end of a process that has
// a directory to remove.
func TestReaderThatGoesAway(t *testing.T) {
	cmd := holdfastCommand(t, with(short, "--engines", "mem")...)
	r, w, err := os.Pipe()
	try(t, err)
	try(t, r.Close())
	cmd.Stdout = w
	try(t, cmd.Start())
	_ = w.Close()
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status < 0 {
		t.Errorf("it was killed: %v", cmd.ProcessState)
	}
	checkEmpty(t, cmd.Dir)
}

// TestReaderOfToolGoesAway: no word, and the status that a shell has for SIGPIPE.
func TestReaderOfToolGoesAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	e, err := all.Open("logtree", dir, holdfast.Options{})
	try(t, err)
	try(t, e.Close())
	for _, args := range [][]string{{"inspect", dir}, {"inspect", dir, "--json"}, {"verify", dir}, {"version"},
		{"--help"}} {
		cmd := holdfastCommand(t, args...)
		r, w, err := os.Pipe()
		try(t, err)
		try(t, r.Close())
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &stderr
		_ = cmd.Run()
		try(t, w.Close())
		if status := cmd.ProcessState.ExitCode(); status != exitBrokenPipe || stderr.Len() > 0 {
			t.Errorf("%q: status %d: %s", args, status, stderr.String())
		}
	}
}

// TestInterruptedToolLeavesNothing: one line, status 130, and neither NEW.partial nor NEW.source. A tool that was done
// before the signal came gets more to do.
func TestInterruptedToolLeavesNothing(t *testing.T) {
	for _, engine := range []string{"logtree", "pebble"} {
		dir := filepath.Join(t.TempDir(), "d")
		e, err := all.Open(engine, dir, holdfast.Options{})
		try(t, err)
		keys := 0
		more := func() {
			var b holdfast.Batch
			for range 60_000 {
				keys++
				b.Set(fmt.Appendf(nil, "key %d", keys), make([]byte, 500))
				if b.Size() > 1<<20 {
					try(t, holdfast.Commit(e, &b, holdfast.Process))
					b.Reset()
				}
			}
			try(t, e.Close())
		}
		more()
		for _, tool := range []string{"backup", "repair"} {
			for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
				for {
					cmd := holdfastCommand(t, tool, dir, "--into", "new")
					var said bytes.Buffer
					cmd.Stderr = &said
					try(t, cmd.Start())
					for !gone(cmd.Process.Pid) {
						if _, err := os.Stat(filepath.Join(cmd.Dir, "new.partial", "HOLDFAST.partial")); err == nil {
							break
						}
					}
					try(t, cmd.Process.Signal(sig))
					_ = cmd.Wait()
					status := cmd.ProcessState.ExitCode()
					if status == exitOK && keys < 1_000_000 {
						e, err = all.Open(engine, dir, holdfast.Options{})
						try(t, err)
						more()
						continue
					}
					if status != exitInterrupted || said.String() != "holdfast: interrupted\n" {
						t.Errorf("%s of %s, %v: status %d: %q", tool, engine, sig, status, said.String())
					}
					checkEmpty(t, cmd.Dir)
					break
				}
			}
		}
	}
}

// TestFullOutput: that the output cannot be written is told once.
func TestFullOutput(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	e, err := all.Open("logtree", dir, holdfast.Options{})
	try(t, err)
	try(t, e.Close())
	cmd := holdfastCommand(t, "event", "append", "big", "--dir", dir)
	cmd.Stdin = strings.NewReader(strings.Repeat(strings.Repeat("x", 99)+"\n", 1000))
	if status, _, errs := result(t, cmd); status != exitOK {
		t.Fatal(errs)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	try(t, err)
	defer full.Close()
	var errs bytes.Buffer
	cmd = holdfastCommand(t, "event", "cat", "big", "--dir", dir)
	cmd.Stdout, cmd.Stderr = full, &errs
	if err := cmd.Run(); err == nil || strings.Count(errs.String(), "no space") != 1 {
		t.Errorf("%v, %s", err, errs.String())
	}

	// Those that show text and have more to do than that.
	report, err := filepath.Abs(filepath.Join("..", "..", "lab", "results", "study-1.json.gz"))
	try(t, err)
	for _, args := range [][]string{{"bench", "--list"}, {"advise"}, {"report", report}, {"compare", report},
		{"doctor", "--dir", t.TempDir()}, {"token", "reset", dir}, {"help"}, {"bench", "--help"}} {
		cmd := holdfastCommand(t, args...)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &errs
		_ = cmd.Run()
		if status := cmd.ProcessState.ExitCode(); status != exitError || strings.Count(errs.String(), "no space") != 1 ||
			!strings.HasSuffix(errs.String(), "no space left on device\n") {
			t.Errorf("%q: %d, %s", args, status, errs.String())
		}
	}
}
