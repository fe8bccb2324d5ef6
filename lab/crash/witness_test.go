package crash

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// lines waits for what a command writes.
type lines struct {
	t   *testing.T
	out chan string
}

func (l lines) await(want string) string {
	l.t.Helper()
	limit := time.After(3 * time.Minute)
	for {
		select {
		case line := <-l.out:
			if strings.Contains(line, want) {
				return line
			}
		case <-limit:
			l.t.Fatalf("it does not say %q", want)
		}
	}
}

// startWitness returns its address, what it says, and how to stop it.
func startWitness(t *testing.T, dir string) (address string, said lines, stop func() error) {
	t.Helper()
	r, w := io.Pipe()
	said = lines{t, make(chan string, 100)}
	go func() {
		for in := bufio.NewScanner(r); in.Scan(); {
			said.out <- in.Text()
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		over <- Standard().Witness(ctx, "127.0.0.1:0", dir, console.Terminal{Out: w, Err: w, PlainWidth: 1 << 16})
		w.Close()
	}()
	stop = func() error {
		cancel()
		return <-over
	}
	t.Cleanup(cancel)
	address = regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(said.await("listening"))
	return address, said, stop
}

// TestWitness kills a victim, which then has all that the witness knows of though it cannot open it at first, and puts
// an old state in its place, which the witness finds out. The witness is started again between.
func TestWitness(t *testing.T) {
	ledger, dir := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// life is one life of a victim, until the witness has heard some acknowledgements.
	life := func(address string) *exec.Cmd {
		cmd := exec.Command(self, "be-witnessed", standard, address, dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		return cmd
	}
	killedAfterSome := func(cmd *exec.Cmd) {
		if !testkit.Holds(func() bool {
			names, err := filepath.Glob(filepath.Join(ledger, "*.ledger"))
			if err != nil || len(names) != 1 {
				t.Fatal(names, err)
			}
			st, err := os.Stat(names[0])
			if err != nil {
				t.Fatal(err)
			}
			return st.Size() >= 5000
		}) {
			t.Fatal("the witness does not hear enough")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}

	address, said, stop := startWitness(t, ledger)
	cmd := life(address)
	said.await("works")
	killedAfterSome(cmd)
	said.await("is gone")
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}

	address, said, stop = startWitness(t, ledger)
	// A directory that is still in use is no breach.
	held, err := logtree.Open(filepath.Join(dir, protocol.EngineDir), holdfast.Options{Level: holdfast.Power})
	if err != nil {
		t.Fatal(err)
	}
	cmd = life(address)
	said.await("gone again")
	if err := cmd.Wait(); err == nil {
		t.Error("a victim opens what is open")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	cmd = life(address)
	said.await("all are there")
	said.await("works")
	killedAfterSome(cmd)
	said.await("is gone")
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(old))); err != nil {
		t.Fatal(err)
	}
	cmd = life(address)
	said.await("BROKEN")
	if err := cmd.Wait(); err == nil {
		t.Error("the victim goes on")
	}
	if err := stop(); !errors.Is(err, ErrBroken) {
		t.Error(err)
	}
}

// TestWitnessIsToldNonsense: a witness survives whoever comes.
func TestWitnessIsToldNonsense(t *testing.T) {
	address, _, stop := startWitness(t, t.TempDir())
	for _, told := range []string{"", "\n", "{}\nxyz", `{"ID":"../../x","Engine":"logtree"}` + "\n",
		`{"ID":"00ff"}` + "\n",
		strings.Repeat("x", 3<<20), `{"Engine":"logtree"}` + "\n" + "w\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, told)
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := writeLine(conn, hello{Engine: "logtree"}); err != nil {
		t.Fatal(err)
	}
	var r reply
	if err := readLine(bufio.NewReader(conn), &r); err != nil || r.ID == "" || r.Spec.Role != "work" {
		t.Errorf("a victim after all that is answered %+v, %v", r, err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestBeWitnessedRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	listener.Close()
	for name, test := range map[string]struct {
		dir, engine string
		status      int
	}{
		"a directory with other files": {full, "logtree", console.ExitUse},
		"an unknown engine":            {t.TempDir(), "logtee", console.ExitUse},
		"an engine that keeps nothing": {t.TempDir(), "mem", console.ExitUse},
		"a file":                       {filepath.Join(full, "mine"), "logtree", console.ExitUse},
		"no witness":                   {filepath.Join(full, "none"), "logtree", console.ExitIncomplete},
	} {
		err := Standard().BeWitnessed(t.Context(), nobody, test.dir, test.engine,
			console.Terminal{Out: io.Discard, Err: io.Discard})
		if err == nil || Status(err) != test.status {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list, err := os.ReadDir(full); err != nil || len(list) != 1 {
		t.Errorf("what was refused has left %v, %v", list, err)
	}
}
