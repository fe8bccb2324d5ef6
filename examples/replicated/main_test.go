package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/examples/internal/replicas"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

// TestPeersMustNameTheNode: the error says so, and nothing is made.
func TestPeersMustNameTheNode(t *testing.T) {
	for _, peers := range []string{"", "b=127.0.0.1:1", "aa=127.0.0.1:1,ba=127.0.0.1:2", "a"} {
		dir := filepath.Join(t.TempDir(), "a")
		n := replicas.Start(t, "--id", "a", "--addr", "127.0.0.1:0", "--dir", dir, "--peers", peers)
		<-n.Read
		err := n.Cmd.Wait()
		if _, exists := os.Stat(dir); err == nil || !strings.Contains(n.Stderr.String(), "does not name this node") ||
			!errors.Is(exists, os.ErrNotExist) {
			t.Errorf("--peers %q: %v, %s", peers, err, n.Stderr.String())
		}
	}
}

// TestLongLines: one node leads itself and says so; a line of 100 kB is an event, and one that is too long is told of.
func TestLongLines(t *testing.T) {
	addr := replicas.Addresses(t, 1)[0]
	n := replicas.Start(t, "--id", "a", "--addr", addr, "--dir", t.TempDir(), "--peers", "a="+addr)
	long := strings.Repeat("x", 100_000)
	// until it leads
	testkit.Until(t, "a first line", func() bool {
		if _, err := io.WriteString(n.Stdin, long+"\n"); err != nil {
			t.Fatal(err)
		}
		return len(n.Lines()) > 0
	}, &n.Stderr)
	if line := n.Lines()[0]; line != "1 "+long {
		t.Errorf("it printed %d bytes, %.40q", len(line), line)
	}
	// It reads no more once the line is too long, which may be before all of it is written.
	go func() { _, _ = io.WriteString(n.Stdin, strings.Repeat("y", 2<<20)) }()
	for _, want := range []string{"no more lines are read: bufio.Scanner: token too long", `the leader is "a"`} {
		testkit.Until(t, want, func() bool { return strings.Contains(n.Stderr.String(), want) }, &n.Stderr)
	}
}

func TestReplicated(t *testing.T) {
	replicas.Test(t, [3]string{"a", "b", "c"}, func(_, addr string) []string { return []string{"--addr", addr} })
}
