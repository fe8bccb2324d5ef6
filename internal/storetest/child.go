package storetest

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
)

// childEnv makes a test binary a child. Its value is "engine level dir" and what the test adds.
const childEnv = "HOLDFAST_STORE_CHILD"

// Main is the TestMain of a package whose tests kill processes: in one that Kill has started, it runs work, which
// goes on in an engine until it is killed.
func Main(m *testing.M, work func(c *Child)) {
	value, ok := os.LookupEnv(childEnv)
	if !ok {
		os.Exit(m.Run())
	}
	c := &Child{}
	words := strings.SplitN(value, " ", 4)
	if len(words) < 4 {
		c.Fail(fmt.Errorf("%s is %q", childEnv, value))
	}
	level, err := holdfast.ParseLevel(words[1])
	c.Check(err)
	kind, err := Lookup(words[0])
	c.Check(err)
	c.Level, c.Args = level, words[3]
	c.Engine, err = open(kind, words[2], level)
	c.Check(err)
	work(c)
	c.Fail(fmt.Errorf("the child has come to its end"))
}

// Child is a process that works until it is killed. Its methods may be called from many goroutines at once.
type Child struct {
	Engine holdfast.Engine // open
	Level  holdfast.Level  // that it is opened with
	Args   string          // of the test

	mu sync.Mutex
}

// Say tells the parent what is safe, in one line.
func (c *Child) Say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintf(os.Stdout, format+"\n", args...); err != nil {
		os.Exit(4) // the parent is gone
	}
}

// Fail ends the child with a complaint, which fails the parent's test.
func (c *Child) Fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

// Check is Fail of an error.
func (c *Child) Check(err error) {
	if err != nil {
		c.Fail(err)
	}
}

// Kill starts a child on tg's directory, where no process has the engine open, calls hear with each line that it has
// said, and kills it that long after hear has said for the first time that this is enough to test something, however
// slow the machine. A line that is cut short was not said.
func Kill(t testing.TB, tg *Target, args string, after time.Duration, hear func(line string) (enough bool)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s", childEnv, tg.Entry.Name, tg.Level, tg.Dir, args))
	p, err := child.StartProgram(cmd)
	if err != nil {
		t.Fatal(err)
	}

	lines := bufio.NewReader(p.Out)
	var killer *time.Timer
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			break
		}
		if hear(strings.TrimSuffix(line, "\n")) && killer == nil {
			killer = time.AfterFunc(after, p.Kill)
		}
	}
	p.Kill()
	if state, err := p.Wait(); state.Exited() {
		t.Fatalf("the child ended by itself: %v", err)
	}
}

// Survivors calls f, in parallel, for every engine and level that survives the end of the process. The engine is not
// open; r is the same in each run.
func Survivors(t *testing.T, f func(t *testing.T, tg *Target, r *rand.Rand)) {
	tried := uint64(0)
	given(func(entry Entry, level holdfast.Level) {
		if level < holdfast.Process {
			return
		}
		tried++
		r := rand.New(rand.NewPCG(1, tried))
		t.Run(entry.Name+"/"+level.String(), func(t *testing.T) {
			t.Parallel()
			f(t, &Target{Entry: entry, Level: level, Dir: t.TempDir()}, r)
		})
	})
	if tried == 0 {
		t.Log("no engine in this build survives a crash")
	}
}
