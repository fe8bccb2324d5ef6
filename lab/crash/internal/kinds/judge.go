package kinds

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// judge opens twice what a crash has left and decides. fatal is a recovery failure.
func (r *Runner) judge(
	ctx context.Context, c Row, h *protocol.History, s protocol.Spec, dir string, rnd *rand.Rand, t Tally,
	l *protocol.Ledger,
) (j protocol.Judgement, fatal bool, err error) {
	if j, fatal, err = r.examine(ctx, c, h, s, dir, rnd, t, l, func() {}); err == nil {
		t.Judged(j, fatal)
	}

	return j, fatal, err
}

// examine is judge without counting the crash. last is called when all was read, before it is compared with the
// history.
func (r *Runner) examine(
	ctx context.Context, c Row, h *protocol.History, s protocol.Spec, dir string, rnd *rand.Rand, t Tally,
	l *protocol.Ledger, last func(),
) (j protocol.Judgement, fatal bool, err error) {
	s.Role, s.Dir, s.Opens, s.Leave = "check", dir, 1, rnd.IntN(2) == 0

	var found [][]commits.Found
	var recovery []time.Duration

	// It is opened twice, so that what recovery itself writes is judged too: both must show the same.
	for len(found) < 2 {
		if rnd.IntN(2) == 0 {
			// Half of the time the first process opens it twice, so that what one opening leaves in memory counts too.
			s.Opens = 2 - len(found) // in one process
		}
		d, err := check(ctx, r.Child, s, r.Timeouts.Checking)
		if c.Peer {
			awaitServers(ctx, dir)
		}
		if err != nil {
			return j, false, err
		}
		if d.Full {
			return j, false, noRoom(dir, d.Failure)
		}

		for _, wrong := range d.Wrong {
			j.Find(&j.Wrong, "%s", wrong)
		}
		found, recovery = append(found, d.Found...), append(recovery, d.Recovery...)
		if d.Failure != "" {
			if len(found) == 0 {
				last()
				j.Unread(h)
			}
			// Named within the directory, which is gone when somebody reads this.
			failure := strings.ReplaceAll(d.Failure, dir+string(filepath.Separator), "")
			j.Findings = append([]string{"recovery failed: " + failure}, j.Findings...)
			fatal, j.Died = true, d.Died || d.Hung
			break
		}
	}
	subject, err := r.Subject(c.Subject)
	if err != nil {
		return j, false, err
	}
	if len(found) > 0 {
		// What was found while reading is kept, and the judgement of the first opening put on it.
		before := j
		last()
		j = subject.Judge(h, found[0])
		j.Died = before.Died
		j.Wrong += before.Wrong
		j.Findings = append(before.Findings, j.Findings...)
		if len(found) > 1 {
			j.Again(found[0], found[1])
		}
	}

	// What the victim itself saw is judged with it, unless that is told for several cuts at once.
	if l != nil {
		for _, finding := range l.Findings() {
			j.Find(&j.Wrong, "%s", finding)
		}
	}
	if len(recovery) > 0 {
		t.Recovered(recovery[0])
	}

	return j, fatal, nil
}

// check runs a child that checks, or rereads, for no longer than limit. An error is not of what is checked, but of the
// lab, or ctx's.
func check(ctx context.Context, command []string, s protocol.Spec, limit time.Duration) (*protocol.Dump, error) {
	p, err := child.Start(command, s)
	if err != nil {
		return nil, err
	}

	timeout := false

	ctx, cancel := context.WithTimeoutCause(ctx, limit, errHang)
	defer cancel()

	// A child that hangs would keep its output open, and reading it would not end.
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	d := &protocol.Dump{}

	// The child's output is read to its end before it is waited for: a full pipe would hold it up.
	nonsense := d.Receive(bufio.NewReaderSize(p.Out, 64<<10))
	p.CloseInput()
	_, err = p.Wait()

	timeout = errors.Is(context.Cause(ctx), errHang)
	switch {
	case timeout:
		d.Hung = true
		d.Failure = fmt.Sprintf("it hangs: it had not been opened, read and closed after %v", limit)
	case ctx.Err() != nil:
		return nil, console.ErrInterrupted
	case nonsense != nil:
		return nil, nonsense
	case d.Failure == "" && (err != nil || len(d.Found) < s.Opens):
		d.Died = true
		d.Failure = fmt.Sprintf("the process that opened it died: %v", err)
	}

	return d, nil
}

// errHang tells a child that does not answer from a run that is interrupted.
var errHang = errors.New("no answer in time")

// noRoom is the error of a run whose own disk is full. It says nothing about the engine.
func noRoom(dir, text string) error {
	return &holdfast.Error{Op: "crash", Path: dir, Class: holdfast.ErrFull, Detail: text,
		Remedy: "name a directory on a disk with room with --dir"}
}
