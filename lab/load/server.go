package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// telling begins the line in which a server tells its address, as soon as it listens.
const telling = "address"

// Target is a server that is loaded.
type Target struct {
	Name string // "null", the flags that it is started with, or its address
	kind targetKind
	args []string // of a server that is started
}

type targetKind int

const (
	isNull targetKind = iota
	isServed
	isThere // somebody else's
)

// placeholder is replaced by the directory of a server that is started.
const placeholder = "{dir}"

// running is a server that answers.
type running struct {
	address string
	token   string
	process *child.Process // nil if it is somebody else's
	began   time.Time      // when it was started
	ended   chan struct{}  // closed when the process tells nothing more
}

// startWithin is how long a server may take until it listens.
const startWithin = time.Minute

// start starts a server, or finds out where it is.
func (r *runner) start(ctx context.Context, t Target, dir string) (*running, error) {
	s := &running{token: r.request.Token, began: time.Now()}
	var err error
	switch t.kind {
	case isThere:
		s.address, err = hostOf(t.Name)
		return s, err
	case isNull:
		s.process, err = child.Start(r.null, struct{}{})
	default:
		args := append([]string{}, r.serve[1:]...)
		named := false

		for _, arg := range t.args {
			named = named || strings.Contains(arg, placeholder)
			args = append(args, strings.ReplaceAll(arg, placeholder, dir))
		}
		if !named {
			args = append(args, "--data", dir)
		}
		cmd := exec.Command(r.serve[0], append(args, "--listen", "127.0.0.1:0", "--token", s.token)...)
		s.process, err = child.StartProgram(cmd)
		if err == nil && r.ram != nil {
			if err = r.ram.Add(s.process.PID()); err != nil {
				s.process.Kill()
				_, _ = s.process.Wait()
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", t.Name, err)
	}
	said := make(chan string, 1)

	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)

		lines := bufio.NewScanner(s.process.Out)
		for lines.Scan() {
			if fields := strings.Fields(lines.Text()); len(fields) == 2 && fields[0] == telling && len(said) == 0 {
				said <- fields[1]
			}
		}
	}()

	select {
	case url := <-said:
		s.address, err = hostOf(url)
	case <-s.ended:
		_, err = s.process.Wait()
		return nil, fmt.Errorf("starting %s: it ended before it listened: %w", t.Name, err)
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startWithin):
		err = fmt.Errorf("starting %s: it does not listen after %v", t.Name, startWithin)
	}
	if err != nil {
		s.process.Kill()
		<-s.ended
		_, _ = s.process.Wait()
	}

	return s, err
}

// stopWithin is how long a server may take to stop.
const stopWithin = time.Minute

// stop stops a server that was started, and tells what it has used; -1 is what is not known.
func (s *running) stop(t Target) (cpu time.Duration, peak int64, err error) {
	if s.process == nil {
		return -1, -1, nil
	}
	peak = measure.PeakRSS(s.process.PID())
	if t.kind == isNull {
		s.process.Kill()
	} else {
		_ = s.process.Signal(syscall.SIGTERM)
	}
	hang := time.AfterFunc(stopWithin, s.process.Kill)
	<-s.ended
	s.process.CloseInput()
	state, err := s.process.Wait()
	if !hang.Stop() {
		err = fmt.Errorf("it did not stop within %v", stopWithin)
	}
	if t.kind == isNull {
		err = nil
	}
	if state == nil {
		return -1, peak, err
	}

	return state.UserTime() + state.SystemTime(), peak, err
}

// vitals are what a server tells of itself while it runs; -1 is what is not known.
type vitals struct {
	rss, own, caches, goroutines int64
}

// look reads the vitals: of its own metrics, and of the system if it was started here.
func (s *running) look(c *conn) (v vitals, err error) {
	v = vitals{-1, -1, -1, -1}
	if s.process != nil {
		v.rss, v.own = measure.Memory(s.process.PID())
	}
	a, err := c.ask("GET", "/v1/metrics", nil)
	if err != nil {
		return v, err
	}
	metric := func(name string) int64 {
		for line := range bytes.Lines(a.body) {
			if rest, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
				if x, err := strconv.ParseFloat(string(bytes.TrimSpace(rest)), 64); err == nil {
					return int64(x)
				}
			}
		}

		return -1
	}
	v.goroutines, v.caches = metric("go_goroutines"), metric("holdfast_memory_bytes")
	if v.rss < 0 {
		v.rss = metric("process_resident_memory_bytes")
	}
	if all := metric("go_memstats_sys_bytes"); v.own < 0 && all >= 0 {
		v.own = all - max(metric("go_memstats_heap_released_bytes"), 0)
	}

	return v, nil
}

// directory makes the directory of a server that is started.
func (r *runner) directory(n int) (string, func() error, error) {
	dir, err := os.MkdirTemp(r.dir.Path, strconv.Itoa(n)+"-")
	if err != nil {
		return "", nil, r.dir.Error(err)
	}

	return dir, func() error {
		err := os.RemoveAll(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}

		return err
	}, nil
}
