// Package child starts processes that end with this one, mostly its own executable again, which does one piece of work
// and may crash at it. It is also the other side of that in the process started.
//
// The request is a line of JSON on the child's standard input, which stays open: its end is the end of the parent, and
// then the child ends too. What the child tells goes to its standard output.
package child

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Command is the command line of children: the one given, or else this executable with an argument.
func Command(given []string, argument string) ([]string, error) {
	if len(given) > 0 {
		return given, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	return []string{self, argument}, nil
}

// Process is a child that runs. It does not outlive this process, and does not get the signals of the terminal.
type Process struct {
	// Out is the child's standard output.
	Out    io.Reader
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr head
	ended  chan struct{} // closed when the thread that started it may end
}

// waitDelay is how long the output of a child that has ended is read if a process of its own keeps it open.
const waitDelay = 5 * time.Second

// saidBytes is how much is kept of what a child says on its standard error.
const saidBytes = 8 << 10

// Start starts a child and hands it the request. [Process.Wait] must follow.
func Start(command []string, request any) (*Process, error) {
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	p, err := StartProgram(exec.Command(command[0], command[1:]...))
	if err != nil {
		return nil, err
	}
	// Wait notices a child that died already.
	_, _ = p.stdin.Write(append(line, '\n'))

	return p, nil
}

// StartProgram starts another program as a child. It gets an open standard input, and no request. What it says on its
// standard error is kept if cmd sends that nowhere else. [Process.Wait] must follow. What is in before is called first,
// on the thread from which the child begins: it may change what a child gets from there, as namespaces, and the thread
// is used for nothing else afterwards.
func StartProgram(cmd *exec.Cmd, before ...func() error) (*Process, error) {
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	tie(cmd.SysProcAttr)
	if cmd.Stderr == nil {
		cmd.Stderr = &p.stderr
	}
	p.cmd.WaitDelay = waitDelay
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.Out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}

	started := make(chan error)
	go func() {
		// The kernel kills a child with the thread that started it, not with the process.
		runtime.LockOSThread()
		if len(before) == 0 {
			defer runtime.UnlockOSThread()
		}
		for _, f := range before {
			if err := f(); err != nil {
				started <- err
				return
			}
		}
		started <- p.cmd.Start()
		<-p.ended
	}()
	if err := <-started; err != nil {
		close(p.ended)
		return nil, err
	}

	return p, nil
}

// Signal sends the child a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// PID is its number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the child at once.
func (p *Process) Kill() { _ = p.cmd.Process.Kill() }

// Write writes to the child's standard input.
func (p *Process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// CloseInput closes the child's input, as if its parent had ended.
func (p *Process) CloseInput() { _ = p.stdin.Close() }

// Wait waits until the child has ended; all of Out must have been read before. The error says what the child said on
// its standard error, as far as that was kept. It is called once.
func (p *Process) Wait() (*os.ProcessState, error) {
	err := p.cmd.Wait()
	close(p.ended)
	if err != nil {
		err = p.Said(err)
	}

	return p.cmd.ProcessState, err
}

// Said adds to err what the child said.
func (p *Process) Said(err error) error {
	if said := strings.TrimSpace(p.stderr.String()); said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}

	return err
}

// head keeps the first bytes written to it: of a panic, they say what happened.
type head struct {
	mu  sync.Mutex
	buf []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf = append(h.buf, p[:min(len(p), saidBytes-len(h.buf))]...)

	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()

	return string(h.buf)
}

// Serve is called by the child first: it reads the request, and ends this process when the parent is gone.
// What libraries print to standard output goes to standard error from then on: it is not the parent's. command is
// whose child this is, for the error.
func Serve(command string, stdin io.Reader, request any) error {
	in := json.NewDecoder(stdin)
	if err := in.Decode(request); err != nil {
		return fmt.Errorf("this command is for the %s command's own use: %w", command, err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, io.MultiReader(in.Buffered(), stdin))
		os.Exit(1)
	}()
	os.Stdout = os.Stderr

	return nil
}
