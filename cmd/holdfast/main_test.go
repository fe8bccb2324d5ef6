package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/bench"
)

// The test binary is also the command, with the lab's engines and some that misbehave, for the tests
// to start as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("HOLDFAST_TEST_COMMAND") != "" {
		lab := bench.Standard()
		lab.Engines = append(lab.Engines, misbehaving()...)
		os.Exit(run(lab, os.Args[1:]))
	}
	for _, name := range []string{"HOLDFAST_URL", "HOLDFAST_TOKEN"} { // of whoever runs the tests
		_ = os.Unsetenv(name)
	}
	flag.Parse()
	_ = flag.Set("test.parallel", "4") // what runs beside others waits most of the time
	dir, err := os.MkdirTemp("", "hf") // a short path: sockets allow no longer one
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ofAll = dir
	status := m.Run()
	atEnd()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// ofAll is a directory for what tests share, and atEnd ends that.
var (
	ofAll string
	atEnd = func() {}
)

// misbehaving returns engines that lie, crash, hang, or stand on a full disk.
func misbehaving() []all.Entry {
	describe := func(name string, level holdfast.Level) func() holdfast.Capabilities {
		return func() holdfast.Capabilities {
			c := mem.Describe()
			c.Engine = name
			no := holdfast.Promise{Why: "it is for tests"}
			c.Memory, c.Process, c.Power = no, no, no
			switch p := (holdfast.Promise{Given: level}); level {
			case holdfast.Memory:
				c.Memory = p
			case holdfast.Power:
				c.Power = p
			}
			return c
		}
	}
	return []all.Entry{
		{Name: "mutant", Describe: describe("mutant", holdfast.Memory),
			Open: func(string, holdfast.Options) (holdfast.Engine, error) {
				return &mutant{Engine: mem.New()}, nil
			}},
		{Name: "crasher", Describe: describe("crasher", holdfast.Power),
			Open: func(string, holdfast.Options) (holdfast.Engine, error) {
				panic("the engine fell over")
			}},
		{Name: "full", Describe: describe("full", holdfast.Power),
			Open: func(dir string, _ holdfast.Options) (holdfast.Engine, error) {
				return nil, &holdfast.Error{Op: "open", Engine: "full", Path: dir, Cause: syscall.ENOSPC}
			}},
		{Name: "sleeper", Describe: describe("sleeper", holdfast.Power),
			Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
				if os.Getenv("HOLDFAST_TEST_AWAKE") != "" {
					e, err := logtree.Open(dir, o)
					return &awake{e, describe("sleeper", holdfast.Power)}, err
				}
				// The rename makes sure that the file is whole when it appears.
				name := filepath.Join(filepath.Dir(dir), "pid")
				if err := os.WriteFile(name+".tmp", fmt.Append(nil, os.Getpid()), 0o644); err != nil {
					return nil, err
				}
				if err := os.Rename(name+".tmp", name); err != nil {
					return nil, err
				}
				time.Sleep(time.Hour)
				return nil, errors.New("it slept too long")
			}},
	}
}

// awake is an engine under the name of another.
type awake struct {
	holdfast.Engine
	describe func() holdfast.Capabilities
}

func (a *awake) Capabilities() holdfast.Capabilities { return a.describe() }

// mutant acknowledges every batch, and loses some.
type mutant struct {
	holdfast.Engine
	applied int
}

func (l *mutant) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if l.applied++; l.applied%7 == 0 {
		return holdfast.Receipt{}, nil
	}
	return l.Engine.Apply(b, level)
}

// holdfastCommand is the command as a process, not started yet, in an empty directory, without the settings of whoever
// runs the tests.
func holdfastCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	try(t, err)
	cmd := exec.Command(self, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "HOLDFAST_") })
	cmd.Env = append(cmd.Env, "HOLDFAST_TEST_COMMAND=1")
	cmd.Dir = t.TempDir()
	cmd.Env = append(cmd.Env, "TMPDIR="+cmd.Dir, "TMP="+cmd.Dir) // where runs work
	return cmd
}

// result runs cmd to its end.
func result(t *testing.T, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	failure := cmd.Run()
	var exit *exec.ExitError
	if failure != nil && !errors.As(failure, &exit) {
		t.Fatal(failure)
	}
	return cmd.ProcessState.ExitCode(), out.String(), err.String()
}

// here runs the command in this process, which costs less than one of its own: for commands that end by themselves, and
// take nothing from their environment. stdin is their input.
func here(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	var files [3]*os.File
	for i, at := range []**os.File{&os.Stdin, &os.Stdout, &os.Stderr} {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		try(t, err)
		defer f.Close()
		defer func(was *os.File) { *at = was }(*at)
		files[i], *at = f, f
	}
	_, err := files[0].WriteString(stdin)
	try(t, err)
	_, err = files[0].Seek(0, io.SeekStart)
	try(t, err)

	status = run(bench.Standard(), args)
	said := func(f *os.File) string {
		text, err := os.ReadFile(f.Name())
		try(t, err)
		return string(text)
	}
	return status, said(files[1]), said(files[2])
}

func checkEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	try(t, err)
	for _, e := range entries {
		t.Errorf("%s was left behind", e.Name())
	}
}

// short measures little: one workload, on the engine in memory.
var short = []string{"bench", "smoke", "--workloads", "event/append-1", "--for", "2ms", "--allow-tmpfs"}

func with(args []string, more ...string) []string {
	return append(append([]string(nil), args...), more...)
}

func TestMeasuresAndExitsWithZero(t *testing.T) {
	cmd := holdfastCommand(t, with(short, "--engines", "mem", "--rounds", "2", "--seed", "5")...)
	status, out, stderr := result(t, cmd)
	if status != exitOK {
		t.Fatalf("status %d\n%s%s", status, out, stderr)
	}
	for _, want := range []string{"event/append-1 at memory: mem is the only engine there",
		"writes, events a second, 1 client", "directory: " + cmd.Dir, "again: holdfast bench smoke", "--seed 5"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.ContainsRune(out+stderr, '\x1b') {
		t.Error("escape sequences where there is no terminal")
	}
	checkEmpty(t, cmd.Dir)
}

func TestJSONOnStandardOutput(t *testing.T) {
	cmd := holdfastCommand(t, with(short, "--engines", "mem", "--json", "-")...)
	status, out, stderr := result(t, cmd)
	var report bench.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != exitOK || report.Schema != bench.Schema ||
		len(report.Results) == 0 {
		t.Errorf("status %d, %v: %s", status, err, out)
	}
	if !strings.Contains(stderr, "events a second") {
		t.Errorf("no tables on standard error: %s", stderr)
	}
	checkEmpty(t, cmd.Dir)
}

func TestList(t *testing.T) {
	status, out, stderr := here(t, "", "bench", "--list")
	if status != exitOK || stderr != "" {
		t.Errorf("status %d: %s", status, stderr)
	}
	for _, want := range append(all.Names(), "event/append-1", "event/append-100", "event/read-100", "quick", "event",
		"smoke", "memory", "process", "power") {
		if !strings.Contains(out, "  "+want+" ") {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestHelpOfExitStatuses: every help text lists every status.
func TestHelpOfExitStatuses(t *testing.T) {
	for _, command := range []string{"bench", "crash", "inspect"} {
		_, out, _ := here(t, "", command, "--help")
		_, help, _ := strings.Cut(out, "Exit status:\n")
		for _, s := range []string{"0", "1", "2", "3", "4", "5", "130", "141"} {
			if !strings.Contains(help, "  "+s+" ") {
				t.Errorf("%s: no status %s in %q", command, s, help)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"bench", "--help"}} {
		status, out, stderr := here(t, "", args...)
		if status != exitOK || !strings.Contains(out, "Usage: holdfast") || stderr != "" {
			t.Errorf("%q: status %d\n%s%s", args, status, out, stderr)
		}
		if strings.Contains(out, "bench-child") {
			t.Errorf("%q shows what is not for users", args)
		}
	}
}

// TestWrongUse: one clear line that says what is right, status 1, nothing left behind.
func TestWrongUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	try(t, os.WriteFile(file, nil, 0o644))
	tests := map[string]struct {
		args []string
		want []string
	}{
		"command":      {[]string{"measure"}, []string{"measure", "commands are: serve, ready"}},
		"flag":         {[]string{"bench", "--fast"}, []string{"--fast", "bench --help"}},
		"preset":       {[]string{"bench", "slow"}, []string{`"slow"`, "quick, event, smoke"}},
		"engine":       {[]string{"bench", "--engines", "mem,rocks"}, []string{`"rocks"`, "mem"}},
		"level":        {[]string{"bench", "--levels", "disk"}, []string{`"disk"`, "memory, process, power"}},
		"workload":     {[]string{"bench", "--workloads", "kv/none"}, []string{`"kv/none"`, "event/append-1"}},
		"rounds":       {[]string{"bench", "--rounds", "0"}, []string{"0 rounds", "1 to"}},
		"negative for": {[]string{"bench", "--for", "-1s"}, []string{"measuring for -1s", "--for takes"}},
		"negative run": {[]string{"crash", "--for", "-1s"}, []string{"a run of -1s"}},
		"negative":     {[]string{"bench", "--rounds", "-1"}, []string{"-1 rounds", "1 to"}},
		"rounds text":  {[]string{"bench", "--rounds", "many"}, []string{"--rounds", "many"}},
		"for":          {[]string{"bench", "--for=-1s"}, []string{"-1s", "1ms to 1h"}},
		"for text":     {[]string{"bench", "--for", "long"}, []string{"--for", "long"}},
		"clients":      {[]string{"bench", "--clients", "0"}, []string{"0 clients"}},
		"clients list": {[]string{"bench", "--clients", "1,x"}, []string{"--clients", "x"}},
		"seed":         {[]string{"bench", "--seed", "-1"}, []string{"--seed"}},
		"two presets":  {[]string{"bench", "smoke", "quick"}, []string{"quick"}},
		"only null":    {[]string{"bench", "--engines", "null"}, []string{"always measured"}},
		"level refused": {[]string{"bench", "--engines", "mem", "--levels", "power"},
			[]string{"mem at power", "nothing outside the process"}},
		"no directory":  {with(short, "--dir", filepath.Join(file, "..", "gone")), []string{"gone", "--dir"}},
		"below a file":  {with(short, "--dir", filepath.Join(file, "x")), []string{"file", "--dir"}},
		"a file":        {with(short, "--dir", file), []string{"it is a file", "--dir"}},
		"json nowhere":  {with(short, "--json", filepath.Join(file, "x.json")), []string{"x.json", "--json"}},
		"json on a dir": {with(short, "--json", filepath.Dir(file)), []string{"directory", "--json"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			t.Setenv("TMP", dir)
			status, out, stderr := here(t, "", test.args...)
			if status != exitError || out != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "holdfast: ") {
				t.Errorf("status %d\nout: %s\nerr: %s", status, out, stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("no %q in %s", want, stderr)
				}
			}
			checkEmpty(t, dir)
		})
	}
}

// TestLyingEngineExitsWithTwo: a result that fails verification is void, its engine is not ranked,
// and the others are.
func TestLyingEngineExitsWithTwo(t *testing.T) {
	cmd := holdfastCommand(t, with(short, "--engines", "mem,mutant", "--json", "-")...)
	status, out, stderr := result(t, cmd)
	if status != exitWrong || !strings.Contains(stderr, "VOID") || !strings.Contains(stderr, "mutant") {
		t.Fatalf("status %d\n%s", status, stderr)
	}
	var report bench.Report
	try(t, json.Unmarshal([]byte(out), &report))
	for _, r := range report.Results {
		if r.Verified != (r.Engine != "mutant") || r.Verified != (r.Error == "") {
			t.Errorf("%s: verified %v, error %q", r.Engine, r.Verified, r.Error)
		}
	}
	ranked := map[string]bool{}
	for _, s := range report.Summary {
		ranked[s.Engine] = true
	}
	if ranked["mutant"] || !ranked["mem"] {
		t.Errorf("ranked: %v", ranked)
	}
	checkEmpty(t, cmd.Dir)
}

func TestCrashingEngineIsVoid(t *testing.T) {
	cmd := holdfastCommand(t, with(short, "--engines", "crasher")...)
	status, out, stderr := result(t, cmd)
	if status != exitWrong || !strings.Contains(out, "the engine fell over") {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	checkEmpty(t, cmd.Dir)
}

// TestFullDiskVoidsItsRow, with the reason, and the others are measured. It is no engine's fault: the status is not
// that of one that failed verification.
func TestFullDiskVoidsItsRow(t *testing.T) {
	cmd := holdfastCommand(t, with(short, "--engines", "mem,full")...)
	status, out, stderr := result(t, cmd)
	line := strings.Join(strings.Fields(out), " ") // where lines break depends on how long the directory's name is
	if status != console.ExitIncomplete || !strings.Contains(line, syscall.ENOSPC.Error()) ||
		!strings.Contains(out, "VOID: 1 measurement ") ||
		!regexp.MustCompile(` full +void\n`).MatchString(out) || !strings.Contains(out, "mem ") ||
		strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	checkEmpty(t, cmd.Dir)
	cmd = holdfastCommand(t, with(short, "--engines", "mutant,full")...)
	if status, out, stderr := result(t, cmd); status != exitWrong {
		t.Errorf("with one that lies: status %d\n%s%s", status, out, stderr)
	}
}

// TestEnginesDirectoryIsRefused: bench and crash make nothing in it.
func TestEnginesDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	try(t, os.WriteFile(filepath.Join(dir, "HOLDFAST"), []byte("holdfast 1\nengine bbolt\nformat 1\n"),
		0o644))
	for _, args := range [][]string{with(short, "--dir", dir),
		{"crash", "--kind", "kill", "--engines", "mem", "--dir", dir}} {
		status, out, stderr := here(t, "", args...)
		if status != exitError || out != "" || !strings.Contains(stderr, "directory of an engine") ||
			strings.Count(stderr, "\n") != 1 {
			t.Errorf("status %d\n%s%s", status, out, stderr)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("made there: %v, %v", entries, err)
		}
	}
}

// TestTwoRunsInOneDirectory do not meet.
func TestTwoRunsInOneDirectory(t *testing.T) {
	dir := t.TempDir()
	args := with(short, "--engines", "mem", "--dir", dir)
	first, second := holdfastCommand(t, args...), holdfastCommand(t, args...)
	var stderr bytes.Buffer
	first.Stderr = &stderr
	try(t, first.Start())
	if status, _, text := result(t, second); status != exitOK {
		t.Errorf("status %d: %s", status, text)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
	checkEmpty(t, dir)
}

// TestChildEndsWithItsInput: however the parent ends, its child's input ends with it.
func TestChildEndsWithItsInput(t *testing.T) {
	cmd := holdfastCommand(t, "bench-child")
	in, err := cmd.StdinPipe()
	try(t, err)
	spec := fmt.Sprintf(`{"Cell":{"Workload":"event/append-1","Engine":"sleeper","Asked":"power","Given":"power",`+
		`"Clients":1},"For":1000000,"Dir":%q}`, cmd.Dir)
	try(t, cmd.Start())
	if _, err := io.WriteString(in, spec+"\n"); err != nil {
		t.Fatal(err)
	}
	awaitSleeper(t, cmd.Dir)
	try(t, in.Close())
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v", err)
	}
}

func TestChildRefusesOtherInput(t *testing.T) {
	cmd := holdfastCommand(t, "bench-child")
	cmd.Stdin = strings.NewReader("hello")
	if status, out, stderr := result(t, cmd); status != 1 || out != "" ||
		!strings.Contains(stderr, "bench command's own use") {
		t.Errorf("status %d: %s%s", status, out, stderr)
	}
}

// awaitSleeper waits until an engine named sleeper is being opened below dir, and returns the number
// of its process.
func awaitSleeper(t *testing.T, dir string) int {
	t.Helper()
	pid := 0
	if !testkit.Holds(func() bool {
		for _, pattern := range []string{"pid", "holdfast-bench-*/*/pid"} {
			names, err := filepath.Glob(filepath.Join(dir, pattern))
			try(t, err)
			for _, name := range names {
				text, err := os.ReadFile(name)
				try(t, err)
				_, err = fmt.Sscan(string(text), &pid)
				try(t, err)
			}
		}
		return pid != 0
	}) {
		t.Fatal("the child never began")
	}
	return pid
}
