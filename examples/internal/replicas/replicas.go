// Package replicas tests programs that run as three nodes: as processes that are killed.
package replicas

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
const mainEnv = "HOLDFAST_REPLICAS"

// Main is the TestMain of a program's package.
func Main(m *testing.M, main func()) {
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

// Node is a process of the program under test.
type Node struct {
	Cmd    *exec.Cmd
	Stdin  io.WriteCloser
	Stderr messages
	Read   chan struct{} // closed at the end of its output
	out    *lines
}

// Lines are what the node has printed.
func (n *Node) Lines() []string { return n.out.get() }

// Start starts the program. It is killed at the end of the test.
func Start(t *testing.T, args ...string) *Node {
	t.Helper()
	n := &Node{Cmd: exec.Command(os.Args[0], args...), out: &lines{}, Read: make(chan struct{})}
	n.Cmd.Env = append(os.Environ(), mainEnv+"=1")
	n.Cmd.Stderr = &n.Stderr
	stdout, err := n.Cmd.StdoutPipe()
	if err == nil {
		n.Stdin, err = n.Cmd.StdinPipe()
	}
	if err == nil {
		err = n.Cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(n.Read)
		in := bufio.NewScanner(stdout)
		for in.Buffer(nil, 2<<20); in.Scan(); {
			n.out.mu.Lock()
			n.out.list = append(n.out.list, in.Text())
			n.out.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = n.Kill() })
	return n
}

// Addresses returns n that are free. Their ports are not of those that the system gives to whoever dials, from 32768 on
// or above: while a node is dead, the others dial it, and one of them might be given its port.
func Addresses(t *testing.T, n int) (list []string) {
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

// Kill kills the node, and waits for the end of the process.
func (n *Node) Kill() error {
	if n.Cmd.ProcessState != nil {
		return nil
	}
	_ = n.Cmd.Process.Kill()
	<-n.Read
	return n.Cmd.Wait()
}

// Test types lines into three nodes of the program, kills one, goes on, starts it again, and wants the same lines from
// all, in the same order. Then it kills all of them, and they go on where they were. args are the arguments of the
// node of that name, with its address. It returns what all have said on standard error.
func Test(t *testing.T, names [3]string, args func(name, addr string) []string) (said string) {
	dir := t.TempDir()
	var peers []string
	addrs := Addresses(t, len(names))
	for i, name := range names {
		peers = append(peers, name+"="+addrs[i])
	}
	var started []*Node
	launch := func(i int) *Node {
		n := Start(t, append(args(names[i], addrs[i]), "--id", names[i], "--dir", filepath.Join(dir, names[i]), "--peers",
			strings.Join(peers, ","))...)
		started = append(started, n)
		return n
	}
	nodes := []*Node{launch(0), launch(1), launch(2)}
	wait := func(what string, done func() bool) {
		t.Helper()
		if !testkit.Holds(done) {
			for i, n := range nodes {
				_ = n.Kill()
				t.Logf("node %s printed %q and said %s", names[i], n.Lines(), n.Stderr.String())
			}
			t.Fatalf("waiting for %s", what)
		}
	}
	printed := func(n *Node, line string) bool {
		return slices.ContainsFunc(n.Lines(), func(s string) bool { return strings.HasSuffix(s, " "+line) })
	}
	// enter types a line into all nodes that live, of which the leader appends it, again and again until it is printed.
	enter := func(line string, live []*Node) {
		t.Helper()
		var again time.Time
		wait(line, func() bool {
			if time.Now().After(again) {
				again = time.Now().Add(time.Second)
				for _, n := range live {
					if _, err := io.WriteString(n.Stdin, line+"\n"); err != nil {
						t.Fatal(err)
					}
				}
			}
			return !slices.ContainsFunc(live, func(n *Node) bool { return !printed(n, line) })
		})
	}
	for i := range 10 {
		enter(fmt.Sprint("line ", i), nodes)
	}
	before := nodes[0].Lines()
	_ = nodes[0].Kill()
	for i := range 10 {
		enter(fmt.Sprint("without a ", i), nodes[1:])
	}
	nodes[0] = launch(0)
	enter("with a again", nodes)
	for i := range nodes {
		_ = nodes[i].Kill()
		nodes[i] = launch(i)
	}
	enter("the end", nodes)

	var all [3][]string
	wait("equal output", func() bool {
		for i, n := range nodes {
			all[i] = n.Lines()
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
	for i, n := range nodes {
		if runtime.GOOS == "windows" {
			break // no interrupt can be sent
		}
		err := n.Cmd.Process.Signal(os.Interrupt)
		<-n.Read
		if err := errors.Join(err, n.Cmd.Wait()); err != nil {
			t.Fatalf("interrupted, %s ends with %v: %s", names[i], err, n.Stderr.String())
		}
	}
	for _, n := range started {
		said += n.Stderr.String()
	}
	return said
}
