package crash

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/subjects"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// traces lists what there is of a run in dir: its children, mounts and loop devices.
func traces(t *testing.T, dir string) (list []string) {
	t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range lines {
		text, _ := os.ReadFile(name)
		if bytes.Contains(text, []byte("crash-victim")) && bytes.Contains(text, []byte(dir)) {
			list = append(list, name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			list = append(list, strings.TrimSpace(line))
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range loops {
		if text, _ := os.ReadFile(name); bytes.Contains(text, []byte(dir)) {
			list = append(list, name)
		}
	}
	return list
}

// aRun starts a run in dir and returns once it is in the middle of its work.
//
// fs is the file system on which the power is cut.
func aRun(t *testing.T, dir string, kind Kind, fs, json string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	if kind == Power {
		if err := blockdev.Check(fs); err != nil {
			t.Skip(err)
		}
	}
	cmd := exec.Command(os.Args[0], "crash-run", standard, dir, string(kind), fs, json)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Whatever the test comes to, nothing of the run stays mounted when its directory is removed.
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		testkit.Holds(func() bool {
			_ = rundir.CleanUp(dir, runDirs)
			return len(traces(t, dir)) == 0
		})
	})
	want := []string{"/cmdline"}
	if kind == Power {
		want = append(want, "backing_file", "fuse.holdfast", " "+fs+" ") // a victim, that is, writes to a recorded disk
	}
	testkit.Until(t, "the run is at work", func() bool {
		found := strings.Join(traces(t, dir), "\n")
		return !slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(found, w) })
	})
	return cmd, &out
}

func realDir(t *testing.T) string {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// eachPlace runs a test on runs that kill, and on those that cut the power: by day on one file system, since disks
// are mounted, recorded and removed by the same code on all. TestPower mounts the others.
func eachPlace(t *testing.T, f func(t *testing.T, kind Kind, fs string)) {
	t.Run(string(Kill), func(t *testing.T) { f(t, Kill, "") })
	disks := blockdev.FileSystems()
	for _, fs := range night.Or(disks, disks[:1]) {
		t.Run(string(Power)+" "+fs, func(t *testing.T) { f(t, Power, fs) })
	}
}

// TestInterruptLeavesNothing: no process, mount, loop device or directory; status 130.
func TestInterruptLeavesNothing(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, kind Kind, fs string) {
		t.Parallel()
		dir := realDir(t)
		cmd, out := aRun(t, dir, kind, fs, "")
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		says := strings.HasSuffix(out.String(), console.ErrInterrupted.Error()+"\n")
		if status := cmd.ProcessState.ExitCode(); status != console.ExitInterrupted || !says {
			t.Errorf("status %d: %s", status, out)
		}
		testkit.Until(t, "its children are gone", func() bool {
			return !strings.Contains(fmt.Sprint(traces(t, dir)), "/cmdline")
		})
		nothingLeft(t, dir)
	})
}

// TestEarlyEndKeepsWhatWasFound: a run that is interrupted or killed has a report, which says why it is not all.
// An interrupted one shows its tables, too.
func TestEarlyEndKeepsWhatWasFound(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are watched from outside, slowly under the race detector; TestKill runs the same code")
	}
	t.Parallel()
	for _, test := range []struct {
		signal  syscall.Signal
		partial string
	}{{syscall.SIGTERM, "interrupted at "}, {syscall.SIGKILL, "still running at "}} {
		t.Run(test.signal.String(), func(t *testing.T) {
			t.Parallel()
			dir, file := realDir(t), filepath.Join(t.TempDir(), "report.json")
			cmd, out := aRun(t, dir, Kill, "", file)
			testkit.Until(t, "a report is there", func() bool {
				_, err := os.Stat(file)
				return err == nil
			})
			if err := cmd.Process.Signal(test.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r := checkReport(t, text)
			if n := r.crashes(); n == 0 || r.brokenRows() > 0 || !strings.HasPrefix(r.Partial, test.partial) ||
				!strings.HasSuffix(r.Partial, console.Number(n, "crash")) {
				t.Errorf("%q: %+v", r.Partial, r.Results)
			}
			if test.signal == syscall.SIGKILL {
				return
			}
			status, shown := cmd.ProcessState.ExitCode(), strings.Join(strings.Fields(out.String()), " ")
			if status != console.ExitInterrupted || !strings.Contains(shown, "PARTIAL: interrupted at ") ||
				strings.Contains(shown, "is to be believed") {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

// runBriefly makes a short run in dir.
func runBriefly(t *testing.T, dir string) (status int, out string, err error) {
	q, at := request(Kill, 1, "power", bbolt.Name), Place{Dir: dir, Child: victims(standard, dir)}
	q.Subjects = []string{subjects.KV.Name}
	return command(t.Context(), Standard(), q, at, "")
}

// nothingLeft checks that no process, mount, loop device or file of a run in dir is there.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if left := traces(t, dir); err != nil || len(left)+len(entries) > 0 {
		t.Errorf("left behind: %q, %v, %v", left, entries, err)
	}
}

// unlocked reports whether no process holds the lock of the run in dir.
func unlocked(t *testing.T, dir string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, dirPrefix+"*", rundir.Lock))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	f, err := os.Open(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// TestKilledRunIsCleanedUp by the next one there, or, if something is mounted, anywhere: its mounts, loop devices and
// directory. It runs beside no other run, which might be that next one.
func TestKilledRunIsCleanedUp(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are watched from outside, slowly under the race detector; TestKill runs the same code")
	}
	eachPlace(t, func(t *testing.T, kind Kind, fs string) {
		dir := realDir(t)
		next := dir
		cmd, _ := aRun(t, dir, kind, fs, "")
		time.Sleep(100 * time.Millisecond) // into the work, and not only at its beginning
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		// A process that serves a file system and has a request of its own under way there may stay until the next
		// run ends the connection, so this waits for its death below.
		go func() { _ = cmd.Wait() }()
		// A child that it was just starting has a share in its lock until that is a program of its own.
		testkit.Until(t, "it dies", func() bool {
			return dying(fmt.Sprintf("%s%d-", dirPrefix, cmd.Process.Pid)) ||
				cmd.Process.Signal(syscall.Signal(0)) != nil && unlocked(t, dir)
		})
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		if strings.Contains(fmt.Sprint(traces(t, dir)), "fuse.holdfast") {
			next = realDir(t)
		} else if kind == Power { // on a busy machine
			t.Log("it died between two disks: nothing is mounted, and only a run in the same directory finds what is left")
		}
		status, out, err := runBriefly(t, next)
		if status != console.ExitOK || !strings.Contains(out, "removed what a killed run had left") {
			t.Errorf("status %d, %v\n%s", status, err, out)
		}
		nothingLeft(t, dir)
	})
}

// TestLivingRunIsLeftAlone by another one there.
func TestLivingRunIsLeftAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are watched from outside, slowly under the race detector; TestKill runs the same code")
	}
	t.Parallel()
	dir := realDir(t)
	cmd, _ := aRun(t, dir, Kill, "", "")
	status, out, err := runBriefly(t, dir)
	if status != console.ExitOK || strings.Contains(out, "had left") {
		t.Errorf("status %d, %v\n%s", status, err, out)
	}
	names, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("%s%d-*", dirPrefix, cmd.Process.Pid)))
	if err != nil || len(names) != 1 {
		t.Errorf("the living run has %q, %v", names, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != console.ExitInterrupted {
		t.Errorf("status %d", status)
	}
}

// TestWithoutRoot runs as the user nobody: what is named and cannot be done is 4 and says what is missing.
func TestWithoutRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else; TestWithoutBlockDevices has it")
	}
	cmd := exec.Command("/proc/self/exe", "crash-run", standard, "/", string(Power), "", "")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Skipf("the user nobody cannot run this binary here")
	}
	if status := cmd.ProcessState.ExitCode(); status != console.ExitCannot || !strings.Contains(string(out), "root") {
		t.Errorf("status %d: %s", status, out)
	}
}
