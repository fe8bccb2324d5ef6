package kinds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// moment is when a victim is killed: at a delay after a trigger, and once enough has come about, for which it is waited
// no longer than patience.
//
// The trigger is a number of acknowledgements, if acks is not 0. Otherwise it is the beginning of a phase, or the first
// acknowledgement if phase is 0, and after that, with file, a new file if one comes.
type moment struct {
	name   string
	phase  uint64
	file   bool
	acks   int
	delay  time.Duration
	enough func() bool // nil: at once
}

// patience is how long enough is waited for on a slow machine.
const patience = 3 * time.Second

// victim runs a victim to its end, and fills its ledger.
type victim struct {
	command []string
	spec    protocol.Spec
	ledger  *protocol.Ledger
	place   func(n uint64) protocol.Position
	row     Row
	subject Subject
	atCall  bool // it died before the call of spec.DieAt

	start   func(command []string, request any) (*child.Process, error) // nil: child.Start
	hearing sync.Mutex                                                  // the victim and its clients; covers ledger
}

// heard is what a supervisor waits for.
type heard struct {
	phase uint64 // of a phase message
	ack   bool
}

// launch starts the victim and reads what it tells in the background. Everything that may matter for the
// moment to kill it comes over the channel, which is closed once the victim is dead and all was read.
func (v *victim) launch() (*child.Process, <-chan heard, <-chan error, error) {
	v.spec.Role = "work"
	v.ledger.Start()
	start := v.start
	if start == nil {
		start = child.Start
	}
	p, err := start(v.command, v.spec)
	if err != nil {
		return nil, nil, nil, err
	}

	// The ledger gets everything. The channel is for the moment to kill alone, and loses what nobody waits for.
	events, ended := make(chan heard, 1024), make(chan error, 1)
	most := strongest(v.row, v.spec.Level)
	hear := func(m protocol.Message) {
		v.hearing.Lock()
		defer v.hearing.Unlock()
		v.ledger.Hear(m, most, v.place)
		h := heard{ack: m.Kind == protocol.TellAcked}
		if m.Kind == protocol.TellPhase {
			h.phase = m.A
		}
		if h.ack || h.phase > 0 {
			select {
			case events <- h:
			default: // the supervisor sleeps before it kills
			}
		}
	}

	clients := v.clients(func(m protocol.Message) {
		if hear(m); m.Kind == protocol.TellError {
			p.Kill() // nobody works on it any more
		}
	})

	// The end of the victim's output is its death: only then all that it told has been heard.
	go func() {
		// A server's address is passed on to the clients as soon as it is heard.
		failure := listen(p.Out, func(m protocol.Message) {
			hear(m)
			clients.hear(m)
		})

		// First the clients end, so that all they were told is in the ledger, and then the victim is waited for.
		clients.end()
		_, err := p.Wait()
		if failure != nil {
			err = failure
		}
		ended <- err
		close(events)
	}()

	return p, events, ended, nil
}

// listen hears messages until they end.
func listen(r io.Reader, hear func(protocol.Message)) error {
	out := bufio.NewReaderSize(r, 64<<10)
	for {
		m, err := protocol.Receive(out)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		hear(m)
	}
}

// clients work on a victim that is a server. nil is none.
type clients struct {
	addresses chan string
	done      sync.WaitGroup
}

// clients starts the clients of the victim, if it is a server. What they tell is heard as the victim's own.
func (v *victim) clients(hear func(protocol.Message)) *clients {
	if !v.subject.Serves() {
		return nil
	}
	c := &clients{addresses: make(chan string, 64)}

	// The clients tell what happened by the same protocol as a victim does.
	r, w := io.Pipe()
	c.done.Go(func() {
		defer w.Close()
		v.subject.Clients(v.spec, v.row.Capabilities, protocol.NewReporter(w), c.addresses)
	})
	c.done.Go(func() {
		defer r.Close()
		_ = listen(r, hear)
	})

	return c
}

// hear tells the clients where the server is.
func (c *clients) hear(m protocol.Message) {
	switch {
	case c == nil:
	case m.Kind == protocol.TellServing:
		c.addresses <- m.Text
	case m.Kind == protocol.TellPhase && m.A == protocol.PhaseClosing:
		c.addresses <- ""
	}
}

// end returns when the clients have ended, and all that they told was heard.
func (c *clients) end() {
	if c != nil {
		close(c.addresses)
		c.done.Wait()
	}
}

// strongest is the strongest level that an engine gives as it is opened for level.
func strongest(row Row, level holdfast.Level) holdfast.Level {
	c := row.Capabilities
	given := c.Promise(level).Given
	if row.Peer || c.Promise(level).CutMayCorrupt {
		return given // it cannot be told to sync, or what is synced is at risk again with the next commit
	}

	return slices.Max([]holdfast.Level{given, c.Strongest()})
}

// runVictim starts a victim and kills it at a moment; last is called just before. An error is not the victim's
// doing; what it did wrong itself is in its ledger.
func (r *Runner) runVictim(ctx context.Context, v *victim, m moment, last func()) error {
	if err := ctx.Err(); err != nil {
		return console.ErrInterrupted
	}
	subject, err := r.Subject(v.row.Subject)
	if err != nil {
		return err
	}
	v.subject = subject
	p, events, ended, err := v.launch()
	if err != nil {
		return err
	}

	died := !await(ctx, v, m, events, r.Timeouts.Silence)
	if last != nil {
		last()
	}

	// Killed in any case: the moment has come, it was silent, or it is dead already.
	p.Kill()

	// The channel is closed once the victim is dead and everything it told was heard. Only then is the ledger whole.
	for range events {
	}
	p.CloseInput()
	err = <-ended

	// What a peer's server still writes must be over before the directory is looked at.
	if v.row.Peer {
		awaitServers(ctx, v.spec.Dir)
	}

	// A victim that ends by itself is a finding, unless it was to die at a system call, or the disk is full, which ends
	// the run.
	switch failure, full := v.ledger.Failed(); {
	case ctx.Err() != nil:
		return console.ErrInterrupted
	case full && !v.spec.Failing:
		return noRoom(v.spec.Dir, failure)
	case died && failure == "" && v.spec.DieAt.N > 0 && killed(err):
		v.atCall = true
	case died && failure == "":
		v.ledger.Fail(fmt.Sprintf("its process died: %v", err))
	}

	return nil
}

// killed reports whether a process ended by SIGKILL.
func killed(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)

	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// await returns when the moment has come, or the victim was silent for so long; false if it is dead before.
func await(ctx context.Context, v *victim, m moment, events <-chan heard, silence time.Duration) bool {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	acks := 0
	// until waits for what done says, at most for d after the first acknowledgement.
	until := func(d time.Duration, done func(heard) bool) bool {
		var after <-chan time.Time
		for {
			select {
			case h, ok := <-events:
				if !ok {
					return false
				}

				// From the first acknowledgement on the victim works, so that silence is no longer counted.
				if h.ack {
					if acks++; acks == 1 && d > 0 {
						after = time.After(d)
						quiet.Stop()
					}
				}
				if done(h) {
					return true
				}
			case <-after:
				return true
			case <-quiet.C:
				v.ledger.Fail(fmt.Sprintf("it acknowledged nothing for %v", silence))
				return true
			case <-ctx.Done():
				return true
			}
		}
	}
	switch {
	// An opening can be before any acknowledgement. Other phases are waited for two seconds, since a victim may never come
	// to them again.
	case m.phase == protocol.PhaseOpening:
		if !until(0, func(h heard) bool { return h.phase == protocol.PhaseOpening }) {
			return false
		}
	case m.phase > 0:
		if !until(2*time.Second, func(h heard) bool { return h.phase == m.phase && acks > 0 }) {
			return false
		}
	case m.acks > 0:
		return until(20*time.Second, func(heard) bool { return acks >= m.acks })
	default:
		if !until(0, func(h heard) bool { return h.ack }) {
			return false
		}
		quiet.Stop()
	}

	// Then the delay, from the trigger on, or from when a new file appears.
	rest, began := time.NewTimer(m.delay), time.Now()
	defer rest.Stop()
	if m.file {
		// Files are looked at every millisecond: what makes one is often followed by a moment in which a crash hurts.
		before := files(v.spec.Dir)
		limit := time.After(400 * time.Millisecond)

		poll := time.NewTicker(time.Millisecond)
		defer poll.Stop()

	watch:
		for {
			select {
			case <-poll.C:
				if appeared(before, files(v.spec.Dir)) {
					rest.Reset(m.delay)
					break watch
				}
			case _, ok := <-events:
				if !ok {
					return false
				}
			case <-limit:
				break watch
			case <-ctx.Done():
				return true
			}
		}
	}

	for {
		select {
		case _, ok := <-events:
			if !ok {
				return false
			}
		case <-rest.C:
			// A recording without enough flushes would check too few acknowledgements, so it goes on a little longer.
			if m.enough == nil || m.enough() || time.Since(began) > patience {
				return true
			}
			rest.Reset(20 * time.Millisecond)
		case <-ctx.Done():
			return true
		}
	}
}

// awaitServers waits until no other process uses dir: the server of a peer dies a moment after the process that started
// it. Where there is no /proc it does not know.
func awaitServers(ctx context.Context, dir string) {
	limit := time.After(time.Minute)
	for used(dir) {
		select {
		case <-time.After(2 * time.Millisecond):
		case <-limit:
			return
		case <-ctx.Done():
			return
		}
	}
}

// used reports whether another process has files open, or its working directory, in dir.
func used(dir string) bool {
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	for _, pattern := range []string{"/proc/[0-9]*/cwd", "/proc/[0-9]*/fd/*"} {
		links, _ := filepath.Glob(pattern)
		for _, link := range links {
			to, err := os.Readlink(link)
			if err == nil && strings.HasPrefix(to, dir+"/") && !strings.HasPrefix(link, self) {
				return true
			}
		}
	}

	return false
}

// files names the files below dir.
func files(dir string) map[string]bool {
	names := map[string]bool{}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names[name] = true
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}

		return nil // what just went is gone
	})

	return names
}

// appeared reports whether there is a file now that was not there before.
func appeared(before, now map[string]bool) bool {
	for name := range now {
		if !before[name] {
			return true
		}
	}

	return false
}
