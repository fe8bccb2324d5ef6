package crash

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

// patience is how long children are waited for. It is generous: what it finds is a hang.
type patience struct {
	silence  time.Duration // of a victim that has not acknowledged anything yet
	checking time.Duration // of a check
}

// standardPatience is that of a lab that has none of its own.
var standardPatience = patience{silence: time.Minute, checking: 2 * time.Minute}

func (l Lab) patient() patience { return cmp.Or(l.patience, standardPatience) }

// process is a running child.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	out    *bufio.Reader
	stderr *head
	start  chan error
	thread chan struct{} // closed when the thread that started it may end
	once   sync.Once
}

// start starts a child that does s.
func start(command []string, s spec) (*process, error) {
	line, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(command[0], command[1:]...), stderr: &head{limit: 8 << 10}, start: make(chan error), thread: make(chan struct{})}
	p.cmd.SysProcAttr = childAttributes()
	p.cmd.Stderr = p.stderr
	p.cmd.WaitDelay = 5 * time.Second
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReaderSize(stdout, 64<<10)
	go func() {
		// The kernel kills a child with the thread that started it, not with the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		p.start <- p.cmd.Start()
		<-p.thread
	}()
	if err := <-p.start; err != nil {
		close(p.thread)
		return nil, err
	}
	// A child that died already will be noticed at the end.
	_, _ = stdin.Write(append(line, '\n'))
	return p, nil
}

// kill ends the child as it stands.
func (p *process) kill() { _ = p.cmd.Process.Kill() }

// wait returns once the child has ended and all that it told was read. It says what a child said on its
// way out.
func (p *process) wait() error {
	err := p.cmd.Wait()
	p.once.Do(func() { close(p.thread) })
	if err != nil {
		if said := strings.TrimSpace(p.stderr.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
	}
	return err
}

// head keeps the first bytes written to it: of a panic, they say what happened.
type head struct {
	mu    sync.Mutex
	limit int
	buf   []byte
}

func (h *head) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.buf = append(h.buf, p[:min(len(p), h.limit-len(h.buf))]...)
	return len(p), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.buf)
}

// dump is what a check has told.
type dump struct {
	found    [][]entry // of each opening
	recovery []time.Duration
	torn     []int64  // bytes that each opening cut off
	wrong    []string // what the check itself saw
	failure  string   // it could not open or read
	full     bool     // because of the disk
}

// checks runs a child that checks, for no longer than limit. An error is not of what is checked, but of the lab, or
// ctx's.
func checks(ctx context.Context, command []string, s spec, limit time.Duration) (*dump, error) {
	s.Role = "check"
	p, err := start(command, s)
	if err != nil {
		return nil, err
	}
	timeout := false
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errHang)
	defer cancel()
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	d := &dump{}
	var entries []entry
	nonsense := error(nil)
	for {
		m, err := receive(p.out)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				nonsense = err
			}
			break
		}
		switch m.kind {
		case tellOpened:
			d.recovery = append(d.recovery, time.Duration(m.a))
			d.torn = append(d.torn, int64(m.b))
			entries = []entry{}
		case tellFound:
			e, err := entryOf(m)
			if err != nil {
				nonsense = err
			}
			entries = append(entries, e)
		case tellComplete:
			d.found = append(d.found, entries)
		case tellWrong:
			d.wrong = append(d.wrong, m.text)
		case tellError:
			d.failure, d.full = m.text, m.a > 0
		}
	}
	_ = p.stdin.Close()
	err = p.wait()
	timeout = errors.Is(context.Cause(ctx), errHang)
	switch {
	case timeout:
		d.failure = fmt.Sprintf("it hangs: it had not been opened, read and closed after %v", limit)
	case ctx.Err() != nil:
		return nil, ErrInterrupted
	case nonsense != nil:
		return nil, nonsense
	case d.failure == "" && (err != nil || len(d.found) < s.Opens):
		d.failure = fmt.Sprintf("the process that opened it died: %v", err)
	}
	return d, nil
}

var errHang = errors.New("no answer in time")

// moment is when a victim is killed: at a delay after a trigger.
type moment struct {
	name  string
	phase uint64 // the phase to wait for, 0 for the first acknowledgement
	file  bool   // then for a new file, if one comes
	acks  int    // then for that many more acknowledgements
	delay time.Duration
}

// victim runs a victim to its end, and fills its ledger.
type victim struct {
	command []string
	spec    spec
	ledger  *ledger
	place   func(n uint64) position
	entry   holdfast.Capabilities
}

// heard is what a supervisor waits for.
type heard struct {
	phase uint64 // of a phase message
	ack   bool
}

// launch starts the victim and reads what it tells in the background. Everything that may matter for the
// moment to kill it comes over the channel, which is closed once the victim is dead and all was read.
func (v *victim) launch() (*process, <-chan heard, <-chan error, error) {
	v.spec.Role = "work"
	v.ledger.began = time.Now()
	p, err := start(v.command, v.spec)
	if err != nil {
		return nil, nil, nil, err
	}
	events, ended := make(chan heard, 1024), make(chan error, 1)
	most := strongest(v.entry, v.spec.Level)
	go func() {
		var failure error
		for {
			m, err := receive(p.out)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					failure = err
				}
				break
			}
			v.ledger.hear(m, most, v.place)
			h := heard{ack: m.kind == tellAcked}
			if m.kind == tellPhase {
				h.phase = m.a
			}
			if h.ack || h.phase > 0 {
				select {
				case events <- h:
				default: // the supervisor sleeps before it kills
				}
			}
		}
		err := p.wait()
		if failure != nil {
			err = failure
		}
		ended <- err
		close(events)
	}()
	return p, events, ended, nil
}
