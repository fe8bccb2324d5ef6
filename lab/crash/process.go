package crash

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/console"
	"github.com/holdfastdb/holdfast/lab/internal/child"
)

// timeouts are how long children are waited for. They are generous: what they find is a hang.
type timeouts struct {
	silence  time.Duration // of a victim that has not acknowledged anything yet
	checking time.Duration // of a check
}

func (l Lab) timeout() timeouts {
	return cmp.Or(l.timeouts, timeouts{silence: time.Minute, checking: 2 * time.Minute})
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
	p, err := child.Start(command, s)
	if err != nil {
		return nil, err
	}
	timeout := false
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errHang)
	defer cancel()
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	d, out := &dump{}, bufio.NewReaderSize(p.Out, 64<<10)
	var entries []entry
	nonsense := error(nil)
	for {
		m, err := receive(out)
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
	p.CloseInput()
	_, err = p.Wait()
	timeout = errors.Is(context.Cause(ctx), errHang)
	switch {
	case timeout:
		d.failure = fmt.Sprintf("it hangs: it had not been opened, read and closed after %v", limit)
	case ctx.Err() != nil:
		return nil, console.ErrInterrupted
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
func (v *victim) launch() (*child.Process, <-chan heard, <-chan error, error) {
	v.spec.Role = "work"
	v.ledger.began = time.Now()
	p, err := child.Start(v.command, v.spec)
	if err != nil {
		return nil, nil, nil, err
	}
	events, ended := make(chan heard, 1024), make(chan error, 1)
	most := strongest(v.entry, v.spec.Level)
	go func() {
		var failure error
		out := bufio.NewReaderSize(p.Out, 64<<10)
		for {
			m, err := receive(out)
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
		_, err := p.Wait()
		if failure != nil {
			err = failure
		}
		ended <- err
		close(events)
	}()
	return p, events, ended, nil
}
