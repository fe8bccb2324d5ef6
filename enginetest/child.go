package enginetest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
)

// childVariable tells a child process what to do, as an order in JSON.
const childVariable = "HOLDFAST_ENGINETEST_CHILD"

// marker begins the lines of a child's output that are meant for its parent.
const marker = "\x01holdfast "

// order is what a child process is to do.
type order struct {
	Engine string
	Role   string // a key of roles
	Dir    string
	Level  holdfast.Level
	Args   []string // of this program, so that it plays the child
	From   uint64   // the number of the first batch, or of the first directory
	To     uint64   // the number of the last batch, or of the first directory no more
	How    string   // of what else there is to choose from in a role
	// Batches is how many batches a directory should hold.
	Batches uint64
	Fill    string // a file that takes up what room is left
	Mount   string // where a small file system is to be, if anywhere
}

// roles are what a child can do. An error it returns is told to the parent. Most never
// return: they are killed.
var roles = map[string]func(*suite, order, *reporter) error{
	"write":    (*suite).childWrites,
	"part":     (*suite).childParts,
	"settle":   (*suite).childSettles,
	"lock":     (*suite).childOpens,
	"readonly": (*suite).childReadOnly,
	"read":     (*suite).childReads,
	"full":     (*suite).childFull,
	"fill":     (*suite).childFills,
	"after":    (*suite).childAfter,
	"vanish":   (*suite).childVanishes,
	"leave":    (*suite).childLeaves,
	"own":      (*suite).childOwns,
}

// reporter writes lines to the parent. The parent has a line once say returns, even if the
// child dies at once.
type reporter struct {
	mu sync.Mutex
	to io.Writer
}

func (t *reporter) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.to, "%s%s\n", marker, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

// playChild does what this process was started for, if it is a child, and ends it. It
// returns true in a child that is meant for another engine of the same test.
func (s *suite) playChild() bool {
	text := os.Getenv(childVariable)
	if text == "" {
		return false
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		panic(err)
	}
	if o.Engine != s.caps.Engine {
		return true
	}

	go func() {
		// The parent never writes: the end of the input is the end of the parent. What it
		// has left in its directories is its own to remove.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	t := &reporter{to: os.Stdout}
	if err := roles[o.Role](s, o, t); err != nil {
		t.say("error %v", err)
	}
	os.Exit(0)

	return true
}

// command is this program, to carry out o in a process of its own.
func (o *order) command() (*exec.Cmd, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(exe, o.Args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, childVariable+"=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// With the race detector, a process otherwise sleeps for a second when it ends.
	cmd.Env = append(cmd.Env, childVariable+"="+string(text), "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))

	return cmd, nil
}

// again carries out o in a child of this child, which speaks to the same parent.
func (o *order) again() error {
	cmd, err := o.command()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, stderr.Bytes())
	}

	return nil
}

// process is a child that runs, and the lines that it tells.
type process struct {
	*child.Process
	lines *bufio.Scanner
	hangs *time.Timer // kills it: a child that hangs must not hang its parent
	ended func() error
}

// startChild starts this test again as a child process that carries out o.
func (a *trial) startChild(o order, attr *syscall.SysProcAttr) *process {
	a.Helper()
	o.Engine, o.Level = a.s.caps.Engine, a.level

	var pattern []string
	for part := range strings.SplitSeq(a.s.name, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	o.Args = []string{"-test.run", strings.Join(pattern, "/"), "-test.count=1"}
	cmd, err := o.command()
	if err != nil {
		a.Fatalf("%v", err)
	}
	cmd.SysProcAttr = attr
	p, err := child.StartProgram(cmd)
	if err != nil {
		a.Fatalf("%v", err)
	}
	c := &process{Process: p, lines: bufio.NewScanner(p.Out), hangs: time.AfterFunc(10*stuck, p.Kill)}
	c.lines.Buffer(nil, 1<<20)
	// Wait is called once only; here also by the clean-up of a test that did not come that far.
	c.ended = sync.OnceValue(func() error {
		_, err := p.Wait()
		if !c.hangs.Stop() {
			err = fmt.Errorf("it had not ended after %v: %w", 10*stuck, err)
		}

		return err
	})
	a.Cleanup(func() { p.Kill(); _ = c.ended() })

	return c
}

// next returns the child's next line, or false at the end of its output. Lines are short
// enough for a pipe to take them whole or not at all.
func (c *process) next() (string, bool) {
	for c.lines.Scan() {
		if line, ok := strings.CutPrefix(c.lines.Text(), marker); ok {
			return line, true
		}
	}

	return "", false
}

// wait reads the rest of the child's lines and returns them with how it ended.
func (c *process) wait() ([]string, error) {
	var lines []string
	for line, ok := c.next(); ok; line, ok = c.next() {
		lines = append(lines, line)
	}

	return lines, c.ended()
}

// runChild carries out o in a child to its end and returns its lines.
func (a *trial) runChild(o order) ([]string, error) {
	a.Helper()
	return a.startChild(o, nil).wait()
}
