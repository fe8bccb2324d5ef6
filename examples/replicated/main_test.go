package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
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

type node struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
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
		for in := bufio.NewScanner(stdout); in.Scan(); {
			n.out.mu.Lock()
			n.out.list = append(n.out.list, in.Text())
			n.out.mu.Unlock()
		}
	}()
	t.Cleanup(func() { _ = n.kill() })
	return n
}

func (n *node) kill() error {
	if n.cmd.ProcessState != nil {
		return nil
	}
	_ = n.cmd.Process.Kill()
	<-n.read
	return n.cmd.Wait()
}

// TestReplicated types lines into three nodes, kills one, goes on, starts it again, and wants the
// same lines from all.
func TestReplicated(t *testing.T) {
	dir, names := t.TempDir(), []string{"a", "b", "c"}
	var peers []string
	var held []net.Listener // until all have an address
	for _, name := range names {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
		peers = append(peers, name+"="+l.Addr().String())
	}
	for _, l := range held {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	launch := func(i int) *node {
		return start(t, "--id", names[i], "--addr", strings.TrimPrefix(peers[i], names[i]+"="), "--dir", filepath.Join(dir, names[i]), "--peers", strings.Join(peers, ","))
	}
	nodes := []*node{launch(0), launch(1), launch(2)}
	until := time.Now().Add(2 * time.Minute)
	wait := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			if time.Now().After(until) {
				for i, n := range nodes {
					_ = n.kill()
					t.Logf("node %s printed %q and said %s", names[i], n.out.get(), n.stderr.String())
				}
				t.Fatalf("waiting for %s", what)
			}
			time.Sleep(10 * time.Millisecond)
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
