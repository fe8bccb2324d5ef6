// Package conformance is what clients of all languages are tried against, by the scenarios in clients/scenarios.json:
// a real `holdfast serve` in a process of its own, which can be killed, stopped and started again, and a proxy in front
// of it, which cuts connections off and loses requests and answers as it is told.
//
// A runner in Go has a [Harness] in its own process. Those of other languages start the program in the folder harness,
// and tell it what to do by HTTP: [Harness.Control].
package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast/internal/child"
)

// Harness is a server behind a proxy. Its methods may be called from many goroutines at once.
type Harness struct {
	command func(args ...string) *exec.Cmd
	dir     string
	target  *url.URL // of the server, the same each time it is started
	token   string
	proxy   *http.Server
	address string // of the proxy

	serving sync.Mutex // one start or end at a time
	process *child.Process

	mu     sync.Mutex
	faults []*Fault
	tries  []string
	open   map[int]context.CancelFunc // the requests under way
	next   int
}

// Fault is what the proxy does to the next requests that it fits.
type Fault struct {
	// Method and Path are those of the requests: Path ends so, or is anywhere in theirs if it ends with a star. Empty
	// ones fit all.
	Method string `json:"method"`
	Path   string `json:"path"`
	// Times is to how many requests it happens, one after the other; 0 means 1.
	Times int `json:"times"`
	// What is one of:
	//   - unsent: the connection is closed, and the server never sees the request
	//   - unheard: the server does what it is asked, and the connection is closed instead of the answer
	//   - half: the connection is closed in the middle of the answer
	//   - cut: the connection is closed After so many bytes of the answer
	//   - answer: the proxy answers with Status, and a problem with Code; the server never sees the request
	What       string `json:"what"`
	After      int64  `json:"after"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	RetryAfter string `json:"retry_after"` // a header of the answer
}

// whats are the values of Fault.What.
var whats = []string{"unsent", "unheard", "half", "cut", "answer"}

// errCut ends an answer.
var errCut = errors.New("the proxy has cut the connection")

// Start starts a server on a new directory in dir, and the proxy. command makes the command line of holdfast with
// these arguments.
func Start(dir string, command func(args ...string) *exec.Cmd) (*Harness, error) {
	h := &Harness{command: command, dir: dir, open: map[int]context.CancelFunc{}}
	if err := h.StartServer(); err != nil {
		return nil, err
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.KillServer()
		return nil, err
	}
	h.address = "http://" + l.Addr().String()
	h.proxy = &http.Server{Handler: h.handler()}
	go func() { _ = h.proxy.Serve(l) }() // until Close

	return h, nil
}

// Close ends the server and the proxy.
func (h *Harness) Close() {
	h.KillServer()
	_ = h.proxy.Close()
}

// URL is the address of the proxy.
func (h *Harness) URL() string { return h.address }

// Direct is the address of the server itself: while it is stopped, nobody listens there.
func (h *Harness) Direct() string { return h.target.String() }

// Token opens everything.
func (h *Harness) Token() string { return h.token }

var (
	addressShown = regexp.MustCompile(`http://[0-9.:]+`)
	tokenShown   = regexp.MustCompile(`ns_\w+`)
)

// startFor is for how long a server is started again whose port somebody else has got meanwhile.
const startFor = time.Minute

// StartServer starts the server, if it does not run, and returns when it serves.
func (h *Harness) StartServer() error {
	h.serving.Lock()
	defer h.serving.Unlock()
	if h.process != nil {
		return nil
	}

	for end := time.Now().Add(startFor); ; time.Sleep(100 * time.Millisecond) {
		err := h.start()
		if err == nil || h.target == nil || time.Now().After(end) {
			return err
		}
	}
}

// start starts the server once. It is called with serving held.
func (h *Harness) start() error {
	listen := "127.0.0.1:0"
	if h.target != nil {
		listen = h.target.Host
	}
	p, err := child.StartProgram(
		h.command("serve", "--data", filepath.Join(h.dir, "data"), "--level", "process", "--listen",
			listen),
	)
	if err != nil {
		return err
	}

	// It says where it is, and on its first start the token, before it serves.
	in := bufio.NewScanner(p.Out)
	shown := ""
	for in.Scan() {
		shown += in.Text() + "\n"
		if h.token == "" {
			h.token = tokenShown.FindString(in.Text())
		}
		if addressShown.MatchString(shown) && h.token != "" {
			break
		}
	}
	target, err := url.Parse(addressShown.FindString(shown))
	if err != nil || target.Host == "" || h.token == "" {
		p.Kill()
		_, _ = io.Copy(io.Discard, p.Out)
		_, ended := p.Wait()

		return fmt.Errorf("the server has not started: %q, %v", shown, errors.Join(err, ended))
	}

	// The proxy reads it without a lock. It stays the same: every later start asks for the first one's port.
	if h.target == nil {
		h.target = target
	}
	go func() { _, _ = io.Copy(io.Discard, p.Out) }()
	h.process = p

	// The address is told once the port is taken, which is before everything is ready.
	for end := time.Now().Add(startFor); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(h.Direct() + "/ready")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		if time.Now().After(end) {
			return fmt.Errorf("the server is not ready: %w", err)
		}
	}
}

// KillServer ends the server as kill -9 does.
func (h *Harness) KillServer() {
	h.serving.Lock()
	defer h.serving.Unlock()
	if h.process == nil {
		return
	}
	h.process.Kill()
	_, _ = h.process.Wait() // it was killed
	h.process = nil
}

// StopServer ends the server by SIGTERM. The error says how it ended, if that was not well.
func (h *Harness) StopServer() error {
	h.serving.Lock()
	defer h.serving.Unlock()
	if h.process == nil {
		return nil
	}
	if err := h.process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_, err := h.process.Wait()
	h.process = nil

	return err
}

// Fail adds a fault. They are tried in the order in which they were added.
func (h *Harness) Fail(f Fault) error {
	if !slices.Contains(whats, f.What) {
		return fmt.Errorf("there is no fault %q", f.What)
	}
	f.Times = max(f.Times, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, &f)

	return nil
}

// Clear removes all faults, and forgets the requests that were made.
func (h *Harness) Clear() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults, h.tries = nil, nil
}

// Tries are the requests that the proxy got since Clear: method and path, in their order.
func (h *Harness) Tries() []string {
	h.mu.Lock()
	defer h.mu.Unlock()

	return slices.Clone(h.tries)
}

// Cut closes the connections of all requests that are under way at the proxy, and returns how many they were.
func (h *Harness) Cut() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, cancel := range h.open {
		cancel()
	}

	return len(h.open)
}

// began notes a request, and returns what is to happen to it, nil for nothing.
func (h *Harness) began(r *http.Request) *Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tries = append(h.tries, r.Method+" "+r.URL.EscapedPath())
	for i, f := range h.faults {
		path, anywhere := strings.CutSuffix(f.Path, "*")
		if f.Method != "" && f.Method != r.Method || !strings.HasSuffix(r.URL.EscapedPath(), path) &&
			!(anywhere && strings.Contains(r.URL.EscapedPath(), path)) {
			continue
		}
		if f.Times--; f.Times == 0 {
			h.faults = slices.Delete(h.faults, i, i+1)
		}
		now := *f

		return &now
	}

	return nil
}

// track makes a context for a request that Cut ends.
func (h *Harness) track(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	id := h.next
	h.open[id] = cancel

	return ctx, func() {
		cancel()
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.open, id)
	}
}

type faultKey struct{}

// handler is the proxy. http.ErrAbortHandler closes a connection without an answer, or in the middle of it.
func (h *Harness) handler() http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(h.target) },
		FlushInterval: -1,
		// A connection that is kept would be a fault of its own when the server ends.
		Transport:      &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		ModifyResponse: spoil,
		ErrorLog:       log.New(io.Discard, "", 0), // of what was cut
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := h.began(r)
		switch {
		case f == nil:
		case f.What == "unsent":
			panic(http.ErrAbortHandler)
		case f.What == "answer":
			_, _ = io.Copy(io.Discard, r.Body)
			f.answer(w)
			return
		}
		ctx, done := h.track(r.Context())
		defer done()
		forward.ServeHTTP(w, r.WithContext(context.WithValue(ctx, faultKey{}, f)))
	})
}

// answer is the proxy's own answer.
func (f *Fault) answer(w http.ResponseWriter) {
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	if f.Code == "" { // as of something that knows nothing of Holdfast
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, "<html>no</html>")
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(map[string]any{"title": f.Code, "status": f.Status, "code": f.Code,
		"detail": "the proxy says so"})
}

// spoil does to an answer what the fault of its request says.
func spoil(resp *http.Response) error {
	f, _ := resp.Request.Context().Value(faultKey{}).(*Fault)
	if f == nil {
		return nil
	}
	most := f.After
	if f.What != "cut" {
		whole, err := io.ReadAll(resp.Body) // the server has done it all
		if err != nil || f.What == "unheard" || len(whole) == 0 {
			return errors.Join(errCut, err)
		}
		resp.Body, most = io.NopCloser(strings.NewReader(string(whole))), int64(len(whole)/2)
		resp.Header.Set("Content-Length", strconv.Itoa(len(whole)))
	}
	resp.Body = &short{resp.Body, most}

	return nil
}

// short is a body that breaks off.
type short struct {
	io.ReadCloser
	left int64
}

func (s *short) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, errCut
	}
	n, err := s.ReadCloser.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)

	return n, err
}

// Do does what a step of a scenario says to the server or the proxy: do is kill, stop, start, fault, clear, cut or
// tries.
func (h *Harness) Do(do string, f Fault) (any, error) {
	switch do {
	case "kill":
		h.KillServer()
	case "stop":
		return nil, h.StopServer()
	case "start":
		return nil, h.StartServer()
	case "fault":
		return nil, h.Fail(f)
	case "clear":
		h.Clear()
	case "cut":
		return h.Cut(), nil
	case "tries":
		return h.Tries(), nil
	default:
		return nil, fmt.Errorf("the harness cannot %q", do)
	}

	return nil, nil
}

// Control serves [Harness.Do] for programs in other languages: a POST of {"do": ...} with the fields of a fault is
// answered with what it returns.
func (h *Harness) Control() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Do string `json:"do"`
			Fault
		}
		err := json.NewDecoder(r.Body).Decode(&in)
		var out any
		if err == nil {
			out, err = h.Do(in.Do, in.Fault)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
}

// Serve starts a harness whose server is the program at a path, tells out in a line of JSON where all is, and returns
// when in ends.
func Serve(holdfast string, in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "holdfast-harness")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	h, err := Start(dir, func(args ...string) *exec.Cmd { return exec.Command(holdfast, args...) })
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	control := &http.Server{Handler: h.Control()}
	go func() { _ = control.Serve(l) }() // until Close
	defer control.Close()
	err = json.NewEncoder(out).Encode(map[string]string{"url": h.URL(), "direct": h.Direct(), "token": h.Token(),
		"control": "http://" + l.Addr().String()})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)

	return err
}
