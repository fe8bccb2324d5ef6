package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/query"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
	"github.com/holdfastdb/holdfast/store/task/worker"
)

// What programs can have in themselves or over the network, without a change.
type (
	messages interface {
		Write(context.Context, string, ...message.Message) (message.Result, error)
		WriteAfter(context.Context, string, int64, ...message.Message) (message.Result, error)
		Read(context.Context, message.Query) iter.Seq2[message.Message, error]
		Follow(context.Context, message.Query) iter.Seq2[message.Message, error]
		LastMessage(context.Context, string, string) (message.Message, error)
		Version(context.Context, string) (int64, bool, error)
		Streams(context.Context, string, string, int) ([]message.StreamInfo, error)
		Categories(context.Context) ([]message.CategoryInfo, error)
		Count(context.Context, string) (message.Counts, error)
		Delete(context.Context, string) (int64, error)
		Truncate(context.Context, string, int64) (int64, error)
		Tombstone(context.Context, string) (int64, error)
		SetRetention(context.Context, string, message.Retention) error
		Retention(context.Context, string) (message.Retention, error)
		SavePosition(context.Context, string, int64) error
		LoadPosition(context.Context, string) (int64, error)
		DeletePosition(context.Context, string) error
		Export(context.Context, io.Writer, message.ExportOptions) (int64, error)
		DeleteSubscription(context.Context, string) error
	}
	subscription interface {
		Claim(context.Context, int) ([]message.Delivery, error)
		Ack(context.Context, ...message.Delivery) error
		Extend(context.Context, ...message.Delivery) error
		Fail(context.Context, string, ...message.Delivery) error
		Return(context.Context, ...message.Delivery) error
		Park(context.Context, string, ...message.Delivery) error
		Parked(context.Context, int64, int) ([]message.Parked, error)
		Replay(context.Context, ...int64) (int, error)
		Discard(context.Context, ...int64) (int, error)
	}
	events interface {
		Append(context.Context, ...event.Event) (event.Result, error)
		AppendAfter(context.Context, uint64, ...event.Event) (event.Result, error)
		Read(context.Context, uint64, int) ([]event.Event, error)
		Events(context.Context, uint64, int) iter.Seq2[event.Event, error]
		Follow(context.Context, uint64) iter.Seq2[event.Event, error]
		TruncateBefore(context.Context, uint64) (uint64, error)
		SaveOffset(context.Context, string, uint64) error
		LoadOffset(context.Context, string) (uint64, error)
		DeleteOffset(context.Context, string) error
		Subscriptions(context.Context) ([]event.Cursor, error)
	}
	tasks interface {
		worker.Client
		worker.Enqueuer
		Get(context.Context, string) (task.Task, error)
		List(context.Context, task.Filter) ([]task.Task, string, error)
		Cancel(context.Context, string) error
		Retry(context.Context, string) error
		RetryAll(context.Context, string) (int, error)
		Delete(context.Context, string) error
		Queue(context.Context, string) (task.QueueInfo, error)
		Queues(context.Context) ([]task.QueueInfo, error)
		Count(context.Context, string) (map[task.State]int, error)
		Periodics(context.Context) ([]task.PeriodicState, error)
		SetQueue(context.Context, string, task.QueueOptions) error
		Pause(context.Context, string) error
		Resume(context.Context, string) error
	}
)

var (
	_ messages     = (*message.Namespace)(nil)
	_ messages     = (*client.Namespace)(nil)
	_ subscription = (*message.Subscription)(nil)
	_ subscription = (*client.Subscription)(nil)
	_ events       = (*event.Store)(nil)
	_ events       = (*client.Log)(nil)
	_ tasks        = (*task.Store)(nil)
	_ tasks        = (*client.Tasks)(nil)
)

var (
	ctx   = context.Background()
	quiet = slog.New(slog.DiscardHandler)
)

// childDir is the environment variable that makes a process of this test a server of a directory.
const childDir = "HOLDFAST_TEST_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := serveChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveChild serves a directory at the address on the standard input, until that ends. It writes a line once it does.
func serveChild(dir string) error {
	var address, token string
	if _, err := fmt.Scanln(&address, &token); err != nil {
		return err
	}
	e, err := logtree.Open(dir, holdfast.Options{Logger: quiet})
	if err != nil {
		return err
	}
	s, _, err := newServer(e, holdfast.Process, token)
	if err != nil {
		return err
	}
	// While nobody listened, another connection of this machine can have got the port, for a short time.
	l, err := net.Listen("tcp", address)
	for end := time.Now().Add(time.Minute); err != nil; l, err = net.Listen("tcp", address) {
		if time.Now().After(end) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("serving")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		os.Exit(0)
	}()
	return s.Serve(l)
}

func newServer(e holdfast.Engine, level holdfast.Level, token string) (*server.Server, *data.Data, error) {
	d, err := data.Open(e, data.Options{Level: level, Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	if err := d.Tokens().SetOwn(ctx, message.Default, token); err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	s, err := server.New(d, server.Options{Backup: oneFile, Logger: quiet, Query: query.Served{}})
	return s, d, err
}

// serve serves an engine in memory until the test ends.
func serve(t *testing.T) (*client.Client, *data.Data) {
	t.Helper()
	return serveOn(t, mem.New(), holdfast.Memory)
}

// serveOn serves an engine until the test ends, and closes it.
func serveOn(t *testing.T, e holdfast.Engine, level holdfast.Level) (*client.Client, *data.Data) {
	t.Helper()
	token := auth.NewNamespaceSecret(message.Default)
	s, d, err := newServer(e, level, token)
	check(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	c, err := client.New("http://"+l.Addr().String(), client.Options{Token: token, Logger: quiet})
	check(t, err)
	t.Cleanup(func() {
		c.CloseIdleConnections()
		limited, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		check(t, s.Stop(limited))
		check(t, <-ended)
		check(t, errors.Join(d.Close(), e.Close()))
	})
	return c, d
}

// withToken is a client of the same server with another token.
func withToken(t *testing.T, c *client.Client, token string) *client.Client {
	t.Helper()
	o, err := client.New(c.Address(), client.Options{Token: token, Logger: quiet})
	check(t, err)
	t.Cleanup(o.CloseIdleConnections)
	return o
}

var check = testkit.Try

// victim is a server in a process of its own, which is killed and started again.
type victim struct {
	t              *testing.T
	dir            string
	address, token string

	process *child.Process // nil while there is none
}

func startVictim(t *testing.T) *victim {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free, and stays so long enough
	check(t, err)
	v := &victim{t: t, dir: t.TempDir() + "/data", address: l.Addr().String(),
		token: auth.NewNamespaceSecret(message.Default)}
	check(t, l.Close())
	v.start()
	t.Cleanup(v.kill)
	return v
}

func (v *victim) start() {
	v.t.Helper()
	exe, err := os.Executable()
	check(v.t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+v.dir)
	cmd.Stderr = os.Stderr
	v.process, err = child.StartProgram(cmd)
	check(v.t, err)
	_, err = fmt.Fprintln(v.process, v.address, v.token)
	check(v.t, err)
	var word string
	if _, err := fmt.Fscan(v.process.Out, &word); err != nil || word != "serving" {
		v.t.Fatalf("the server has not started: %q, %v", word, err)
	}
}

// kill ends the server's process as kill -9 does.
func (v *victim) kill() {
	if v.process == nil {
		return
	}
	v.process.Kill()
	_, _ = v.process.Wait() // it was killed
	v.process = nil
}

func (v *victim) dial() *client.Client {
	v.t.Helper()
	c, err := client.New("http://"+v.address, client.Options{Token: v.token, Logger: quiet, Retry: 2 * time.Minute})
	check(v.t, err)
	v.t.Cleanup(c.CloseIdleConnections)
	return c
}

// script notes what a program has seen, so that two programs can be compared.
type script struct{ strings.Builder }

// classes are the errors that a script tells apart.
var classes = []struct {
	name string
	errs []error
}{
	{"conflict", []error{message.ErrConflict, event.ErrConflict}}, {"not found", []error{holdfast.ErrNotFound}},
	{
		"id taken",
		[]error{message.ErrIDTaken, event.ErrIDTaken, event.ErrPartialRepeat},
	}, {"ended", []error{message.ErrEnded}},
	{"bad", []error{holdfast.ErrBadOption, message.ErrBadMessage, message.ErrBadName, event.ErrBadEvent}},
	{"ahead", []error{event.ErrAhead}}, {"truncated", []error{event.ErrTruncated}}, {"exists", []error{task.ErrExists}},
	{"state", []error{task.ErrState, task.ErrCycle}}, {"lease lost", []error{task.ErrLeaseLost}},
	{"cancelled", []error{task.ErrCancelled}}, {"too large", []error{holdfast.ErrTooLarge}},
}

func (s *script) note(err error, format string, args ...any) {
	fmt.Fprintf(s, format, args...)
	known := err == nil
	for _, c := range classes {
		for _, class := range c.errs {
			if errors.Is(err, class) {
				fmt.Fprintf(s, " [%s]", c.name)
				known = true
				break
			}
		}
	}
	if !known {
		fmt.Fprintf(s, " [%v]", err)
	}
	var m *message.Conflict
	if errors.As(err, &m) {
		fmt.Fprintf(s, " %+v", *m)
	}
	var e *event.Conflict
	if errors.As(err, &e) {
		fmt.Fprintf(s, " %+v", *e)
	}
	s.WriteByte('\n')
}

// compare shows where two programs have seen different things.
func compare(t *testing.T, own, network *script) {
	t.Helper()
	a, b := strings.Split(own.String(), "\n"), strings.Split(network.String(), "\n")
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			t.Errorf("line %d:\nin the program   %s\nover the network %s", i, a[i], append(b, "", "nothing")[min(i, len(b)+1)])
			return
		}
	}
	if len(a) < 10 || len(a) != len(b) {
		t.Errorf("%d and %d lines", len(a), len(b))
	}
}

// oneFile is a backup of nothing, for engines that keep nothing in a directory.
func oneFile(_ context.Context, _ holdfast.Engine, into string) (int64, error) {
	if err := os.MkdirAll(into, 0o700); err != nil {
		return 0, err
	}
	return 1, os.WriteFile(filepath.Join(into, "file"), []byte("backup"), 0o600)
}
