package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/internal/inprocess"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

var (
	ctx   = context.Background()
	quiet = slog.New(slog.DiscardHandler)
)

// dial makes a client of a handler, with a wire between them.
func dial(t *testing.T, h http.Handler, f func(n int) inprocess.Fault) (*Client, *inprocess.Wire) {
	t.Helper()
	w := &inprocess.Wire{RoundTripper: inprocess.Transport(h), Fault: f}
	c, err := New("http://localhost", Options{Token: "secret", HTTP: &http.Client{Transport: w}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

func reply(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// TestTries: what is tried again, how often, and what the caller is told, by what the call is and what went wrong.
func TestTries(t *testing.T) {
	problem := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			reply(w, status, api.Problem{Status: status, Code: code, Detail: "as it is"})
		}
	}
	ok := func(w http.ResponseWriter, r *http.Request) { reply(w, 200, struct{}{}) }
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		fault   func(int) inprocess.Fault
		safe    bool
		reads   bool
		deaf    bool // the caller wants nothing of the answer
		tries   int  // 0 for several, until the time is up
		want    error
		unknown bool
		fails   bool // also without want and unknown
	}{
		{name: "all is well", handler: ok, tries: 1},
		{name: "never sent", handler: ok, fault: inprocess.First(3, inprocess.Refused), tries: 4},
		{name: "lost, safe", handler: ok, fault: inprocess.First(3, inprocess.Unheard), safe: true, tries: 4},
		{name: "half an answer, safe", handler: ok, fault: inprocess.First(2, inprocess.HalfSent), safe: true, tries: 3},
		{name: "lost, not safe", handler: ok, fault: inprocess.First(3, inprocess.Unheard), tries: 1,
			want: inprocess.ErrBroken, unknown: true},
		{name: "broken, not safe", handler: ok, fault: inprocess.First(3, inprocess.Unsent), tries: 1,
			want: inprocess.ErrBroken, unknown: true},
		{name: "never there", handler: ok, fault: inprocess.First(1e6, inprocess.Refused), want: inprocess.ErrBroken},
		{name: "never heard", handler: ok, fault: inprocess.First(1e6, inprocess.Unheard), safe: true,
			want: inprocess.ErrBroken, unknown: true},
		{name: "never heard, a read", handler: ok, fault: inprocess.First(1e6, inprocess.Unheard), safe: true, reads: true,
			want: inprocess.ErrBroken},
		{name: "stopping", handler: problem(503, api.CodeStopping), want: ErrUnavailable},
		{name: "too many", handler: problem(429, api.CodeTooMany), want: ErrUnavailable},
		{name: "too many, of a proxy", handler: problem(429, ""), want: ErrUnavailable},
		{name: "poisoned", handler: problem(503, api.CodePoisoned), tries: 1, want: holdfast.ErrPoisoned, unknown: true},
		{name: "poisoned, safe", handler: problem(503, api.CodePoisoned), safe: true, want: holdfast.ErrPoisoned,
			unknown: true},
		{name: "fenced", handler: problem(503, api.CodeFenced), tries: 1, want: holdfast.ErrFenced, unknown: true},
		{name: "fenced, safe", handler: problem(503, api.CodeFenced), safe: true, want: holdfast.ErrFenced, unknown: true},
		{name: "unavailable, a read", handler: problem(503, api.CodeUnavailable), safe: true, reads: true,
			want: holdfast.ErrUnavailable},
		{name: "a proxy's 502", handler: problem(502, ""), tries: 1, unknown: true},
		{name: "a proxy's 504, safe", handler: problem(504, ""), safe: true, unknown: true},
		{name: "refused", handler: problem(409, api.CodeConflict), safe: true, tries: 1, want: message.ErrConflict},
		{name: "internal", handler: problem(500, api.CodeInternal), safe: true, tries: 1, fails: true},
		{name: "a redirect", handler: http.RedirectHandler("/", http.StatusTemporaryRedirect).ServeHTTP, safe: true,
			tries: 1, fails: true},
		{name: "not JSON", handler: func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") }, safe: true,
			tries: 1, unknown: true},
		{name: "not JSON, a read", handler: func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<html>") },
			safe: true, reads: true, tries: 1, fails: true},
		{name: "cut, without a length", handler: func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, `{"a":`) },
			tries: 1, unknown: true},
		{name: "no answer wanted, and not JSON", handler: func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "<html>")
		}, deaf: true, tries: 1, unknown: true},
		{name: "no answer wanted", handler: ok, deaf: true, tries: 1},
	} {
		c.fails = c.fails || c.want != nil || c.unknown
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl, w := dial(t, c.handler, c.fault)
				began := time.Now()
				method := map[bool]string{true: "GET", false: "POST"}[c.reads]
				var out any = new(struct{})
				if c.deaf {
					out = nil
				}
				err := cl.call(ctx, &request{op: "test", method: method, path: "/x", body: 1, safe: c.safe}, out)
				if c.fails != (err != nil) || c.want != nil && !errors.Is(err, c.want) {
					t.Fatalf("%v, want %v", err, c.want)
				}
				var e *Error
				if err != nil && (!errors.As(err, &e) || e.Unknown != c.unknown) {
					t.Errorf("%v: Unknown is not %v", err, c.unknown)
				}
				if took := time.Since(began); c.tries == 0 {
					if len(w.Tries) < 10 || took > defaultRetry || took < defaultRetry/2 {
						t.Errorf("%d tries in %v", len(w.Tries), took)
					}
				} else if len(w.Tries) != c.tries {
					t.Errorf("%d tries, want %d", len(w.Tries), c.tries)
				}
			})
		})
	}
}

// TestTheOnlyTry: that it may have been done is told also of a call that is not tried again, and where the context ends
// with the answer.
func TestTheOnlyTry(t *testing.T) {
	for _, c := range []struct {
		status  int
		answer  string
		fault   func(int) inprocess.Fault
		unknown bool
	}{
		{status: 504, answer: "<html>", unknown: true},
		{status: 200, answer: "<html>", unknown: true},
		{status: 200, answer: "{}", fault: inprocess.First(1, inprocess.Unheard), unknown: true},
		{status: 200, answer: "{}", fault: inprocess.First(1, inprocess.Refused)},
		{status: 409, answer: "<html>"},
	} {
		begin := func() *Client {
			cl, _ := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(c.status)
				fmt.Fprint(w, c.answer)
			}), c.fault)
			return cl
		}
		_, once := begin().Namespace("n").Import(ctx, strings.NewReader(""))

		cl, r := begin(), &request{op: "test", method: "POST", path: "/x"}
		ending, end := context.WithCancel(ctx)
		ended := cl.repeat(ending, r, func() *Error {
			defer end()
			return cl.try(ending, r, nil, new(any))
		})
		if !errors.Is(ended, context.Canceled) {
			t.Error(ended)
		}
		for _, err := range []error{once, ended} {
			if e := (*Error)(nil); !errors.As(err, &e) || e.Unknown != c.unknown {
				t.Errorf("%d, %q: %v: Unknown is not %v", c.status, c.answer, err, c.unknown)
			}
		}
	}
}

// TestRetryAfter: the server's word about when to come again is heeded, and a context ends the waiting.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, w := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if time.Since(began) < 20*time.Second {
				w.Header().Set("Retry-After", "7")
				reply(w, 429, api.Problem{Code: api.CodeTooMany})
			}
		}), nil)
		if err := c.Compact(ctx); err != nil || len(w.Tries) != 4 && len(w.Tries) != 3 {
			t.Errorf("%v after %d tries", err, len(w.Tries))
		}
		began = time.Now()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := c.Compact(short); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// TestRetryAfterDate: a date is by the clock of whoever has answered, and nobody is believed for ever.
func TestRetryAfterDate(t *testing.T) {
	ahead := time.Now().Add(365 * 24 * time.Hour)
	at := func(d time.Duration) string { return ahead.Add(d).UTC().Format(http.TimeFormat) }
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{at(7 * time.Second), at(0), 7 * time.Second}, {at(-time.Second), at(0), 0}, {at(0), "", time.Hour},
		{"1.5", at(0), 1500 * time.Millisecond}, {"9223372036", "", time.Hour}, {"1e9", "", 0}, {"-1", "", 0},
		{"soon", at(0), 0},
	} {
		header := http.Header{"Retry-After": {c.after}, "Date": {c.date}}
		if got := retryAfter(header); got != c.want {
			t.Errorf("%v: %v, want %v", header, got, c.want)
		}
	}
}

// TestClasses: each code of package api is a class of a store.
func TestClasses(t *testing.T) {
	for code, want := range map[string]error{
		api.CodeNoNamespace: message.ErrNoNamespace, api.CodeExists: task.ErrExists, api.CodeEnded: message.ErrEnded,
		api.CodeLeaseLost: message.ErrLeaseLost, api.CodeCancelled: task.ErrCancelled, api.CodeTruncated: event.ErrTruncated,
		api.CodeAhead: event.ErrAhead, api.CodeState: task.ErrCycle, api.CodeFull: holdfast.ErrFull,
		api.CodeNotFound: holdfast.ErrNotFound, api.CodeUnauthorized: ErrUnauthorized, api.CodeForbidden: ErrForbidden,
		api.CodeLevel: holdfast.ErrLevel, api.CodeIDTaken: event.ErrPartialRepeat, api.CodeLocked: holdfast.ErrLocked,
		api.CodePositionTaken: event.ErrTaken, api.CodeTooLarge: holdfast.ErrTooLarge, api.CodeCorrupt: holdfast.ErrCorrupt,
		api.CodeBadRequest: message.ErrBadName, api.CodeNotImplemented: holdfast.ErrUnavailable,
	} {
		if err := error(answered("op", 400, http.Header{}, []byte(`{"code":"`+code+`"}`))); !errors.Is(err, want) {
			t.Errorf("%s: %v is not %v", code, err, want)
		}
	}
	long := strings.Repeat("x", 1000)
	for _, body := range []string{"", "<html>" + long, long, `{"code":7}`, "null"} {
		text := answered("op", 502, http.Header{}, []byte(body)).Error()
		if len(text) > 300 || !strings.Contains(text, "502") {
			t.Errorf("%q", text)
		}
	}
}

// TestBounds: an answer, an event and an error that are too large are refused, and do not fill the memory.
func TestBounds(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/follow") {
			fmt.Fprint(w, "event: message\ndata: ")
		}
		if strings.Contains(r.URL.Path, "bad") {
			w.WriteHeader(400)
		}
		for {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c, w := dial(t, http.HandlerFunc(endless), nil)
		c.o.MaxResponse = 3 << 20
		_, err := c.Server(ctx)
		_, err2 := c.Tokens(ctx, "bad")
		_ = err2
		for _, e := range c.Namespace("n").Follow(ctx, message.Query{}) {
			err = errors.Join(err, e)
		}
		if n := strings.Count(fmt.Sprint(err), "MaxResponse"); n != 2 || len(w.Tries) != 3 ||
			!errors.Is(err, holdfast.ErrTooLarge) {
			t.Errorf("%v, after %q", err, w.Tries)
		}
		if err := c.Namespace("bad").Tasks().Cancel(ctx, "1"); err == nil || len(err.Error()) > 1000 {
			t.Error(err)
		}
	})
}

// feed is a server of one stream of events, from position 1, which cuts each connection off after some bytes.
type feed struct {
	last int64
	cut  func(connection int) int // less than 0 for never
	how  func(w http.ResponseWriter, gone <-chan struct{})

	mu    sync.Mutex
	asked []string // the positions
}

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var from int64
	fmt.Sscan(r.URL.Query().Get("from"), &from)
	f.mu.Lock()
	f.asked = append(f.asked, r.URL.Query().Get("from"))
	left := f.cut(len(f.asked) - 1)
	f.mu.Unlock()
	text := ": hello\n\nretry: 10\n\n"
	for n := max(from, 1); n <= f.last; n++ {
		text += fmt.Sprintf("id: %d\r\nevent:message\ndata: {\"global\":%d,\n", n+1, n)
		text += fmt.Sprintf("data:\"stream\":\"s-%d\"}\n\n: all is well\n\n", n)
	}
	if left >= 0 && left < len(text) {
		_, _ = io.WriteString(w, text[:left])
		if left%2 == 0 { // the end of an answer without chunks looks like this
			return
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(w, text)
	if f.how != nil {
		f.how(w, r.Context().Done())
		return
	}
	<-r.Context().Done()
}

// take reads n messages.
func take(t *testing.T, seq iter.Seq2[message.Message, error], n int) (globals []int64) {
	t.Helper()
	for m, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		if m.Stream != fmt.Sprintf("s-%d", m.Global) {
			t.Fatalf("message %d is of stream %q", m.Global, m.Stream)
		}
		if globals = append(globals, m.Global); len(globals) == n {
			break
		}
	}
	return globals
}

// TestFollowCut: wherever a connection is cut off, each message comes once, in order.
func TestFollowCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at := 0; at < 260; at++ {
			f := &feed{last: 5, cut: func(connection int) int {
				if connection > 4 {
					return -1
				}
				return at + connection
			}}
			c, _ := dial(t, f, nil)
			if got := take(t, c.Namespace("n").Follow(ctx, message.Query{From: 2}), 4); !slices.Equal(
				got,
				[]int64{2, 3, 4, 5},
			) {
				t.Fatalf("cut at %d: %v (asked from %v)", at, got, f.asked)
			}
		}
	})
}

// TestFollowEnds: a server that stops, is silent, or refuses for a while, is followed on; one that says that it is no
// use is not.
func TestFollowEnds(t *testing.T) {
	for name, how := range map[string]func(http.ResponseWriter, <-chan struct{}){
		"bye": func(w http.ResponseWriter, gone <-chan struct{}) {
			fmt.Fprint(w, "retry: 1000\nevent: bye\ndata: {}\n\n")
		},
		"end":     func(w http.ResponseWriter, gone <-chan struct{}) {},
		"silence": func(w http.ResponseWriter, gone <-chan struct{}) { <-gone },
		"problem": func(w http.ResponseWriter, gone <-chan struct{}) {
			fmt.Fprint(w, "event: problem\ndata: {\"status\":503,\"code\":\"poisoned\"}\n\n")
		},
		"cut": func(w http.ResponseWriter, gone <-chan struct{}) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &feed{last: 1, cut: func(int) int { return -1 }}
				f.how = func(w http.ResponseWriter, gone <-chan struct{}) { // each connection has one message
					f.mu.Lock()
					f.last++
					f.mu.Unlock()
					how(w, gone)
				}
				c, w := dial(t, f, func(n int) inprocess.Fault {
					return []inprocess.Fault{inprocess.None, inprocess.Refused, inprocess.Unsent}[n%3]
				})
				got := take(t, c.Namespace("n").Follow(ctx, message.Query{}), 10)
				if !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) || len(w.Tries) < 28 {
					t.Errorf("%v in %d tries", got, len(w.Tries))
				}
			})
		})
	}
	for name, h := range map[string]http.HandlerFunc{
		"gone": func(w http.ResponseWriter, r *http.Request) {
			reply(w, 404, api.Problem{Status: 404, Code: api.CodeNoNamespace})
		},
		"problem": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "event: problem\ndata: {\"status\":404,\"code\":\"no_namespace\"}\n\n")
		},
	} {
		t.Run("for good: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, w := dial(t, h, nil)
				var errs []error
				for _, err := range c.Namespace("n").Follow(ctx, message.Query{}) {
					errs = append(errs, err)
				}
				if len(errs) != 1 || !errors.Is(errs[0], message.ErrNoNamespace) || len(w.Tries) != 1 {
					t.Errorf("%v after %d tries", errs, len(w.Tries))
				}
			})
		})
	}
}

// TestFollowContext: the end of a context ends a follower that waits, one that has no server, and one whose body works.
func TestFollowContext(t *testing.T) {
	for name, f := range map[string]func(int) inprocess.Fault{"waits": nil,
		"no server": inprocess.First(1e6, inprocess.Refused)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := dial(t, &feed{cut: func(int) int { return -1 }, last: 1}, f)
				ctx, cancel := context.WithTimeout(ctx, time.Minute/2)
				defer cancel()
				began, n := time.Now(), 0
				for _, err := range c.Namespace("n").Follow(ctx, message.Query{}) {
					if n++; err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
				if took := time.Since(began); took != time.Minute/2 || n == 0 {
					t.Errorf("%d yields in %v", n, took)
				}
			})
		})
	}
}

// TestSlowBody: the time that a loop's body takes is no silence of the server.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &feed{last: 3, cut: func(int) int { return -1 }}
		c, w := dial(t, f, nil)
		n := 0
		for _, err := range c.Namespace("n").Follow(ctx, message.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			if n++; n == 3 {
				break
			}
		}
		if len(w.Tries) != 1 {
			t.Errorf("%d connections", len(w.Tries))
		}
	})
}

// TestSegments: names arrive as they are, whatever is in them. Those that cannot stand in a path are not sent.
func TestSegments(t *testing.T) {
	for _, name := range []string{"order-17", "a/b", "%2F", "...", "%2E%2E", "ü x", "?a=b#c", "a//b", "/a"} {
		var got string
		mux := http.NewServeMux()
		mux.HandleFunc("GET /v1/namespaces/{ns}/streams/{stream}", func(w http.ResponseWriter, r *http.Request) {
			got = r.PathValue("stream")
			reply(w, 200, api.Stream{})
		})
		c, _ := dial(t, mux, nil)
		if _, _, err := c.Namespace("n").Version(ctx, name); got != name {
			t.Errorf("%q arrives as %q (%v)", name, got, err)
		}
	}
	c, w := dial(t, http.NotFoundHandler(), nil)
	n := c.Namespace("n")
	for _, name := range []string{"", ".", "..", "/", "//", "../x", "a/../b"} {
		_, _, version := n.Version(ctx, name)
		_, deleted := n.Delete(ctx, name)
		_, position := n.LoadPosition(ctx, name)
		_, info := n.Subscription(name).Info(ctx)
		_, task := n.Tasks().Get(ctx, name)
		_, namespace := c.DeleteNamespace(ctx, name)
		for i, err := range []error{version, deleted, position, info, task, namespace, n.Log(name).Delete(ctx),
			n.Tasks().Pause(ctx, name), c.RevokeToken(ctx, name), n.Log("l").DeleteOffset(ctx, name)} {
			if !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("%q, %d: %v", name, i, err)
			}
		}
	}
	if len(w.Tries) > 0 {
		t.Errorf("%d tries", len(w.Tries))
	}
}

// TestNew: addresses and options that make no sense are refused.
func TestNew(t *testing.T) {
	for _, address := range []string{"", "localhost:8080", "ftp://localhost", "http://", "http://localhost?y=z",
		"http://u:p@localhost",
		"http://localhost#y", "http://[::1"} {
		if _, err := New(address, Options{}); !errors.Is(err, holdfast.ErrBadOption) ||
			strings.Contains(err.Error(), "p@") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, o := range []Options{{Token: "a b"}, {Token: "a\n"}, {Timeout: -1}, {MaxResponse: -1}, {Level: 9}} {
		if _, err := New("http://localhost", o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if c, err := New("https://localhost/below/", Options{}); err != nil || c.base != "https://localhost/below" {
		t.Error(c, err)
	}
}

// TestTransferIsCancelled: where the context ends a transfer, that is the error, whatever the connection says of its
// end.
func TestTransferIsCancelled(t *testing.T) {
	c, _ := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = r.Body.Read(make([]byte, 1))
		_, _ = io.WriteString(w, "{}\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}), nil)
	n := c.Namespace("default")
	for _, do := range []func(context.Context, io.ReadWriter) error{
		func(ctx context.Context, rw io.ReadWriter) error {
			_, err := n.Export(ctx, rw, message.ExportOptions{})
			return err
		},
		func(ctx context.Context, rw io.ReadWriter) error { _, err := n.Log("l").Export(ctx, rw); return err },
		func(ctx context.Context, rw io.ReadWriter) error { return c.Backup(ctx, rw) },
		func(ctx context.Context, rw io.ReadWriter) error { _, err := n.Import(ctx, rw); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := do(ctx, stopping{cancel})
		if e := (*Error)(nil); !errors.Is(err, context.Canceled) || !errors.As(err, &e) {
			t.Error(err)
		}
	}
}

// stopping calls a function as soon as it is written to or read from.
type stopping struct{ stop func() }

func (s stopping) Write(p []byte) (int, error) { s.stop(); return len(p), nil }

func (s stopping) Read(p []byte) (int, error) { s.stop(); return copy(p, " "), nil }

// TestPages: lists that a server divides into pages are whole, and no longer than was asked for.
func TestPages(t *testing.T) {
	const most, all = 1000, 2300 // in a page unless more is asked for, and in all
	c, _ := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := func(i int) string { return fmt.Sprintf("n%04d", i) }
		limit := most
		if text := r.URL.Query().Get("limit"); text != "" {
			limit, _ = strconv.Atoi(text)
		}
		page := []any{}
		for i := range all {
			if id(i) > r.URL.Query().Get("after") && len(page) < limit {
				page = append(page, map[string]any{"id": id(i), "stream": id(i)})
			}
		}
		reply(w, 200, page)
	}), nil)
	list, err := c.Namespaces(ctx)
	if err != nil || len(list) != all || list[all-1].ID != "n2299" {
		t.Errorf("%d namespaces of %d, %v", len(list), all, err)
	}
	for limit, want := range map[int]int{0: all - 1, 7: 7, 1200: 1200} {
		streams, err := c.Namespace("x").Streams(ctx, "n", "n0000", limit)
		if err != nil || len(streams) != want || streams[0].Stream != "n0001" {
			t.Errorf("limit %d: %d streams, want %d, %v", limit, len(streams), want, err)
		}
	}
}

// TestFailureIsKnownAgain: an attempt that a lost try has failed is known by its message, of which the store keeps the
// beginning, in whole characters.
func TestFailureIsKnownAgain(t *testing.T) {
	for _, message := range []string{"x" + strings.Repeat("é", task.MaxFailureSize), "no file n\xffme"} {
		synctest.Test(t, func(t *testing.T) {
			failed := api.Task{NewTask: api.NewTask{ID: "t", Kind: "k"}, State: "waiting", Attempt: 1}
			c, _ := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var got api.FailTask
				switch err := json.NewDecoder(r.Body).Decode(&got); {
				case r.Method == http.MethodGet:
					reply(w, 200, failed)
				case err != nil:
					t.Error(err)
				case len(failed.Failures) > 0:
					reply(w, 409, api.Problem{Status: 409, Code: api.CodeLeaseLost})
				default:
					kept := got.Failure.Message
					kept = strings.ToValidUTF8(kept[:min(len(kept), task.MaxFailureSize)], "")
					failed.Failures = []api.TaskFailure{{Attempt: 1, Message: kept}}
				}
			}), inprocess.First(1, inprocess.Unheard))
			held := task.Lease{Task: task.Task{Spec: task.Spec{ID: "t", Kind: "k"}, Attempt: 1}, Token: 1}
			if err := c.Namespace("n").Tasks().Fail(ctx, held, task.Failure{Message: message}, task.FailOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}
