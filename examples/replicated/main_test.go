package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/testkit"
)

// mainEnv makes the test binary the program.
const mainEnv = "HOLDFAST_REPLICATED"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// lines are what a node has printed.
type lines struct {
	mu   sync.Mutex
	list []string
}

func (l *lines) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// messages are what it has said on standard error.
type messages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (m *messages) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.Write(p)
}

func (m *messages) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String()
}

type node struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr messages
	out    *lines
	read   chan struct{} // closed at the end of its output
}

func start(t *testing.T, args ...string) *node {
	t.Helper()
	n := &node{cmd: exec.Command(os.Args[0], args...), out: &lines{}, read: make(chan struct{})}
	n.cmd.Env = append(os.Environ(), mainEnv+"=1")
	n.cmd.Stderr = &n.stderr
	stdout, err := n.cmd.StdoutPipe()
	if err == nil {
		n.stdin, err = n.cmd.StdinPipe()
	}
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(n.read)
		in := bufio.NewScanner(stdout)
		for in.Buffer(nil, 2<<20); in.Scan(); {
			n.out.mu.Lock()
			n.out.list = append(n.out.list, in.Text())
			n.out.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = n.kill() })
	return n
}

// addresses returns n that are free. Their ports are not of those that the system gives to whoever dials, from 32768 on
// or above: while a node is dead, the others dial it, and one of them might be given its port.
func addresses(t *testing.T, n int) (list []string) {
	t.Helper()
	for try := 1; len(list) < n; try++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000)))
		if err == nil {
			defer l.Close() // held until all are found
			list = append(list, l.Addr().String())
		} else if try == 1000 {
			t.Fatal(err)
		}
	}
	return list
}

func (n *node) kill() error {
	if n.cmd.ProcessState != nil {
		return nil
	}
	_ = n.cmd.Process.Kill()
	<-n.read
	return n.cmd.Wait()
}

// TestPeersMustNameTheNode: the error says so, and nothing is made.
func TestPeersMustNameTheNode(t *testing.T) {
	for _, peers := range []string{"", "b=127.0.0.1:1", "aa=127.0.0.1:1,ba=127.0.0.1:2", "a"} {
		dir := filepath.Join(t.TempDir(), "a")
		n := start(t, "--id", "a", "--addr", "127.0.0.1:0", "--dir", dir, "--peers", peers)
		<-n.read
		err := n.cmd.Wait()
		if _, exists := os.Stat(dir); err == nil || !strings.Contains(n.stderr.String(), "does not name this node") ||
			!errors.Is(exists, os.ErrNotExist) {
			t.Errorf("--peers %q: %v, %s", peers, err, n.stderr.String())
		}
	}
}

// TestLongLines: one node leads itself and says so; a line of 100 kB is an event, and one that is too long is told of.
func TestLongLines(t *testing.T) {
	addr := addresses(t, 1)[0]
	n := start(t, "--id", "a", "--addr", addr, "--dir", t.TempDir(), "--peers", "a="+addr)
	long := strings.Repeat("x", 100_000)
	// until it leads
	testkit.Until(t, "a first line", func() bool {
		if _, err := io.WriteString(n.stdin, long+"\n"); err != nil {
			t.Fatal(err)
		}
		return len(n.out.get()) > 0
	}, &n.stderr)
	if line := n.out.get()[0]; line != "1 "+long {
		t.Errorf("it printed %d bytes, %.40q", len(line), line)
	}
	// It reads no more once the line is too long, which may be before all of it is written.
	go func() { _, _ = io.WriteString(n.stdin, strings.Repeat("y", 2<<20)) }()
	for _, want := range []string{"no more lines are read: bufio.Scanner: token too long", `the leader is "a"`} {
		testkit.Until(t, want, func() bool { return strings.Contains(n.stderr.String(), want) }, &n.stderr)
	}
}

// TestReplicated types lines into three nodes, kills one, goes on, starts it again, and wants the
// same lines from all.
func TestReplicated(t *testing.T) {
	dir, names := t.TempDir(), []string{"a", "b", "c"}
	var peers []string
	addrs := addresses(t, len(names))
	for i, name := range names {
		peers = append(peers, name+"="+addrs[i])
	}
	launch := func(i int) *node {
		return start(t, "--id", names[i], "--addr", addrs[i], "--dir", filepath.Join(dir, names[i]), "--peers",
			strings.Join(peers, ","))
	}
	nodes := []*node{launch(0), launch(1), launch(2)}
	wait := func(what string, done func() bool) {
		t.Helper()
		if !testkit.Holds(done) {
			for i, n := range nodes {
				_ = n.kill()
				t.Logf("node %s printed %q and said %s", names[i], n.out.get(), n.stderr.String())
			}
			t.Fatalf("waiting for %s", what)
		}
	}
	printed := func(n *node, line string) bool {
		return slices.ContainsFunc(n.out.get(), func(s string) bool { return strings.HasSuffix(s, " "+line) })
	}
	// enter types a line into all nodes that live, of which the leader appends it, again and again until it is printed.
	enter := func(line string, live []*node) {
		t.Helper()
		var again time.Time
		wait(line, func() bool {
			if time.Now().After(again) {
				again = time.Now().Add(time.Second)
				for _, n := range live {
					if _, err := io.WriteString(n.stdin, line+"\n"); err != nil {
						t.Fatal(err)
					}
				}
			}
			return !slices.ContainsFunc(live, func(n *node) bool { return !printed(n, line) })
		})
	}
	for i := range 10 {
		enter(fmt.Sprint("line ", i), nodes)
	}
	before := nodes[0].out.get()
	_ = nodes[0].kill()
	for i := range 10 {
		enter(fmt.Sprint("without a ", i), nodes[1:])
	}
	nodes[0] = launch(0)
	enter("the end", nodes)

	var all [3][]string
	wait("equal output", func() bool {
		for i, n := range nodes {
			all[i] = n.out.get()
		}
		return len(all[0]) == len(all[1]) && len(all[1]) == len(all[2])
	})
	for i := range all {
		if !slices.Equal(all[i], all[0]) {
			t.Fatalf("%s printed\n%q\n%s printed\n%q", names[0], all[0], names[i], all[i])
		}
	}
	for i, line := range all[0] {
		if !strings.HasPrefix(line, fmt.Sprint(i+1, " ")) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if !slices.Equal(all[0][:len(before)], before) {
		t.Fatalf("before it was killed, a printed\n%q\nand now\n%q", before, all[0])
	}
	if runtime.GOOS == "windows" {
		return // no interrupt can be sent
	}
	for i, n := range nodes {
		err := n.cmd.Process.Signal(os.Interrupt)
		<-n.read
		if err := errors.Join(err, n.cmd.Wait()); err != nil {
			t.Fatalf("interrupted, %s ends with %v: %s", names[i], err, n.stderr.String())
		}
	}
}
