package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/vfs"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

var ctx = context.Background()

var try = testkit.Try

// running is a server with the public routes, and others, that listens on loopback.
type running struct {
	*Server
	t      testing.TB
	url    string
	at     string
	token  string // good for everything
	log    *safeBuffer
	client *http.Client
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func openData(t testing.TB, e holdfast.Engine) (*data.Data, string) {
	t.Helper()
	d, err := data.Open(e, data.Options{Level: e.Capabilities().Strongest()})
	try(t, err)
	token := auth.NewNamespaceSecret(message.Default)
	try(t, d.Tokens().SetOwn(ctx, message.Default, token))
	return d, token
}

// start starts a server of these routes and the public ones. With nil it has all routes.
func start(t testing.TB, e holdfast.Engine, o Options, routes []route.Route) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	return startOn(t, l, &http.Transport{}, e, o, routes)
}

func startOn(t testing.TB, l net.Listener, dials *http.Transport, e holdfast.Engine, o Options,
	routes []route.Route,
) *running {
	t.Helper()
	d, token := openData(t, e)
	r := &running{t: t, token: token, log: new(safeBuffer), client: &http.Client{Transport: dials}}
	o.Logger = slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.Server = prepare(d, o)
	r.mount(r.public())
	if routes == nil {
		routes = r.apis()
	}
	r.mount(routes)
	r.at = l.Addr().String()
	r.url = "http://" + r.at
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		stop, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := errors.Join(r.Stop(stop), <-served, d.Close()); err != nil && !errors.Is(err, holdfast.ErrPoisoned) {
			t.Error(err)
		}
	})
	return r
}

// pipes is a listener in whose connections the time of a bubble passes. They have no buffers.
type pipes struct {
	ends   chan net.Conn
	closed chan struct{}
	close  func()
}

func newPipes() *pipes {
	closed := make(chan struct{})
	return &pipes{make(chan net.Conn), closed, sync.OnceFunc(func() { close(closed) })}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.ends:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.ends <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

type reply struct {
	*http.Response
	body    string
	problem api.Problem
}

// do makes a request with the server's token, unless the headers (name, value, ...) have another.
func (r *running) do(method, path, body string, headers ...string) reply {
	r.t.Helper()
	return r.send(method, path, strings.NewReader(body), headers...)
}

func (r *running) send(method, path string, body io.Reader, headers ...string) reply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, body)
	try(r.t, err)
	req.Header.Set("Authorization", "Bearer "+r.token)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(req)
	try(r.t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	try(r.t, err)
	got := reply{Response: res, body: string(b)}
	if res.Header.Get("Content-Type") == "application/problem+json" && method != http.MethodHead {
		try(r.t, json.Unmarshal(b, &got.problem))
		if got.problem.Status != res.StatusCode || got.problem.Request != res.Header.Get(api.HeaderRequestID) ||
			got.problem.Title == "" || got.problem.Detail == "" {
			r.t.Fatalf("%d: %s", res.StatusCode, b)
		}
	}
	return got
}

func (r *running) want(got reply, status int, code string) {
	r.t.Helper()
	if got.StatusCode != status || got.problem.Code != code {
		r.t.Fatalf("%d %s %s; want %d %s", got.StatusCode, got.problem.Code, got.body, status, code)
	}
}

func (r *running) eventually(what string, ok func() bool) {
	r.t.Helper()
	testkit.Until(r.t, what, ok, r.log)
}

// TestMain fails if goroutines are left. On a busy machine it takes a while until those that are to end have ended.
func TestMain(m *testing.M) {
	status := m.Run()
	for end := time.Now().Add(patience); status == 0; {
		err := goleak.Find()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, "goroutines are left:", err)
			status = 1
		}
	}
	os.Exit(status)
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

func TestPublic(t *testing.T) {
	r := start(
		t,
		mem.New(),
		Options{Version: "v1"},
		[]route.Route{{Method: "POST", Pattern: "/here", Handler: text("yes")}},
	)
	for path, body := range map[string]string{
		"/health": `{"status":"ok"}`, "/version": `{"version":"v1"}`, "/ready": `{"status":"ready"}`,
	} {
		got := r.do("GET", path, "", "Authorization", "Bearer nonsense")
		if got.StatusCode != 200 || got.body != body || got.Header.Get("Content-Type") != "application/json" ||
			got.Header.Get(api.HeaderRequestID) == "" {
			t.Errorf("%s: %d %s %v", path, got.StatusCode, got.body, got.Header)
		}
		if got := r.do("HEAD", path, ""); got.StatusCode != 200 || got.body != "" {
			t.Errorf("%s: %d %q", path, got.StatusCode, got.body)
		}
	}
	r.want(r.do("GET", "/nowhere", ""), 404, api.CodeNotFound)
	r.want(r.do("HEAD", "/nowhere", ""), 404, "")
	got := r.do("GET", "/here", "")
	r.want(got, 405, api.CodeMethod)
	if got.Header.Get("Allow") != "POST" {
		t.Error(got.Header)
	}
	r.want(r.do("POST", "//here", ""), 400, api.CodeBadRequest)
}

// What comes as the id of a request is used if it can be in a header and in a log, and otherwise there is a new one.
func TestRequestID(t *testing.T) {
	r := start(
		t,
		mem.New(),
		Options{},
		[]route.Route{{Pattern: "/id", Handler: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, route.From(r.Context()).ID)
		}}},
	)
	seen := map[string]bool{}
	for id, ok := range map[string]bool{"a-1_2.3:4/5+6=": true, "": false, "a b": false, "ä": false, `"`: false,
		strings.Repeat("x", 65): false, strings.Repeat("x", 64): true} {
		got := r.do("GET", "/id", "", api.HeaderRequestID, id)
		if got.body != got.Header.Get(api.HeaderRequestID) || (got.body == id) != ok || got.body == "" || seen[got.body] {
			t.Errorf("%q: %q, %q", id, got.body, got.Header.Get(api.HeaderRequestID))
		}
		seen[got.body] = true
		r.eventually("logged", func() bool { return strings.Contains(r.log.String(), `"request":"`+got.body+`"`) })
	}
}

// A level in the header is that of the writes of a request.
func TestLevel(t *testing.T) {
	e, err := logtree.OpenMem(vfs.NewMem(), "d", holdfast.Options{})
	try(t, err)
	defer e.Close()
	seen := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%v %v", route.From(r.Context()).Level, holdfast.LevelFrom(r.Context(), holdfast.Memory))
	}
	r := start(t, e, Options{}, []route.Route{
		{Pattern: "POST /write", Role: auth.Write, Handler: seen}, {Pattern: "GET /read", Role: auth.Read, Handler: seen},
		{Pattern: "POST /fail", Role: auth.Write, Handler: func(w http.ResponseWriter, r *http.Request) {
			problem.Write(w, r, holdfast.ErrFull)
		}},
	})
	for asked, in := range map[string]string{"memory": "memory", "Memory": "memory", "process": "process",
		"power": "power"} {
		const want = "power" // the server's, which is the least
		got := r.do("POST", "/write", "", api.HeaderLevel, asked)
		if got.body != want+" "+in || got.Header.Get(api.HeaderLevel) != want {
			t.Errorf("%q: %s, %v", asked, got.body, got.Header)
		}
		if got := r.do("POST", "/fail", "", api.HeaderLevel, asked); got.Header.Get(api.HeaderLevel) != "" {
			t.Errorf("%q: %v", asked, got.Header)
		}
		if got := r.do("GET", "/read", "", api.HeaderLevel, asked); got.Header.Get(api.HeaderLevel) != "" {
			t.Errorf("%q: %v", asked, got.Header)
		}
	}
	for _, name := range []string{"forever", "", " ", "power, power"} {
		r.want(r.do("POST", "/write", "", api.HeaderLevel, name), 400, api.CodeLevel)
	}
}

func TestLevelNotGiven(t *testing.T) {
	r := start(
		t,
		mem.New(),
		Options{},
		[]route.Route{{Pattern: "POST /write", Role: auth.Write, Handler: text("written")}},
	)
	r.want(r.do("POST", "/write", "", api.HeaderLevel, "power"), 400, api.CodeLevel)
	if got := r.do("POST", "/write", ""); got.Header.Get(api.HeaderLevel) != "memory" || got.body != "written" {
		t.Error(got.Header, got.body)
	}
}

// A handler that panics costs one answer and nothing else: the connection stays, unless a part of the answer is out.
func TestPanic(t *testing.T) {
	r := start(t, mem.New(), Options{}, []route.Route{
		{Pattern: "/before", Handler: func(http.ResponseWriter, *http.Request) { panic("ouch") }},
		{Pattern: "/after", Handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "a part")
			panic("ouch")
		}},
		{Pattern: "/abort", Handler: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	})
	c, err := net.Dial("tcp", r.at)
	try(t, err)
	defer c.Close()
	in := bufio.NewReader(c)
	for range 3 { // on the same connection
		fmt.Fprintf(c, "GET /before HTTP/1.1\r\nHost: h\r\n\r\n")
		res, err := http.ReadResponse(in, nil)
		try(t, err)
		b, err := io.ReadAll(res.Body)
		try(t, err)
		if res.StatusCode != 500 || !strings.Contains(string(b), `"code":"internal"`) || strings.Contains(string(b), "ouch") {
			t.Fatalf("%d %s", res.StatusCode, b)
		}
	}
	if log := r.log.String(); !strings.Contains(log, "ouch") || !strings.Contains(log, "server_test.go") {
		t.Fatalf("no stack in the log: %s", log)
	}
	for _, path := range []string{"/after", "/abort"} {
		res, err := r.client.Get(r.url + path)
		if err == nil {
			_, err = io.ReadAll(res.Body)
			res.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: a part of an answer was taken for all of it", path)
		}
	}
	r.want(r.do("GET", "/health", ""), 200, "")
}

func TestRate(t *testing.T) {
	r := start(
		t,
		mem.New(),
		Options{Rate: 1e-6, Burst: 2},
		[]route.Route{{Pattern: "/x", Role: auth.Read, Handler: text("")}},
	)
	_, other, err := r.Tokens().Create(ctx, auth.Token{Namespace: auth.Everywhere, Role: auth.Read})
	try(t, err)
	for _, token := range []string{r.token, other} {
		for range 2 {
			r.want(r.do("GET", "/x", "", "Authorization", "Bearer "+token), 200, "")
		}
		got := r.do("GET", "/x", "", "Authorization", "Bearer "+token)
		r.want(got, 429, api.CodeTooMany)
		if got.Header.Get("Retry-After") == "" {
			t.Error(got.Header)
		}
	}
	for range 2 {
		r.want(r.do("GET", "/x", "", "Authorization", "Bearer nonsense"), 401, api.CodeUnauthorized)
	}
	r.want(r.do("GET", "/x", "", "Authorization", "Bearer other"), 429, api.CodeTooMany)
	r.want(r.do("GET", "/health", ""), 200, "") // what needs no token is not counted
}

// Heavy requests above the limits, in all and of a namespace, are told to come again.
func TestHeavy(t *testing.T) {
	reached, answer := make(chan string, 2*maxHeavy), make(chan struct{})
	handler := func(_ http.ResponseWriter, r *http.Request) {
		reached <- r.PathValue("ns")
		<-answer
	}
	rt := route.Route{Pattern: "/{ns}", Role: auth.Write, Heavy: true, Handler: handler}
	r := start(t, mem.New(), Options{}, []route.Route{rt})
	var all sync.WaitGroup
	begin := func(namespace, token string) {
		all.Go(func() { r.want(r.do("POST", "/"+namespace, "", "Authorization", "Bearer "+token), 200, "") })
		<-reached
	}
	tokens := map[string]string{"default": r.token}
	for _, id := range []string{"one", "two"} {
		tokens[id] = auth.NewNamespaceSecret(id)
		_, err := r.data.Create(ctx, message.NamespaceOptions{ID: id}, tokens[id])
		try(t, err)
	}
	refused := func(namespace string) {
		t.Helper()
		got := r.do("POST", "/"+namespace, "", "Authorization", "Bearer "+tokens[namespace])
		if r.want(got, 429, api.CodeTooMany); got.Header.Get("Retry-After") == "" {
			t.Error("it does not say when to come again")
		}
	}
	for range maxHeavyOf {
		begin("one", tokens["one"])
	}
	refused("one")
	begin("two", tokens["two"])
	begin("default", r.token)
	refused("two")
	refused("default")
	close(answer)
	all.Wait()
	r.want(r.do("POST", "/one", "", "Authorization", "Bearer "+tokens["one"]), 200, "")
}

// Connections above the limit wait.
func TestConnections(t *testing.T) { synctest.Test(t, testConnections) }

func testConnections(t *testing.T) {
	l := newPipes()
	startOn(t, l, &http.Transport{}, mem.New(), Options{MaxConnections: 2}, nil)
	served := func() (net.Conn, error) {
		c, err := l.dial(ctx, "", "")
		if err != nil {
			return nil, err
		}
		if _, err := fmt.Fprintf(c, "GET /health HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
			return c, err
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && res.StatusCode != 200 {
			err = errors.New(res.Status)
		}
		return c, err
	}
	first, err := served()
	try(t, err)
	second, err := served()
	try(t, err)
	defer second.Close()
	third := make(chan error)
	go func() {
		c, err := served()
		if c != nil {
			defer c.Close()
		}
		third <- err
	}()
	synctest.Wait()
	select {
	case err := <-third:
		t.Fatal("a third connection was served:", err)
	default:
	}
	try(t, first.Close())
	try(t, <-third)
}

// Large and endless headers and bodies are refused early.
func TestBombs(t *testing.T) {
	read := func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			problem.Write(w, r, err)
			return
		}
		fmt.Fprint(w, n)
	}
	r := start(t, mem.New(), Options{MaxBody: 1000, MaxHeader: 8 << 10}, []route.Route{
		{
			Pattern: "/body",
			Role:    auth.Write,
			Handler: read,
		}, {Pattern: "/small", Role: auth.Write, MaxBody: 10, Handler: read},
		{Pattern: "/any", Role: auth.Write, MaxBody: -1, Handler: read},
	})
	for _, request := range []string{"GET /health HTTP/1.1\r\nHost: h\r\nX: ", "GET /health?"} {
		c, err := net.Dial("tcp", r.at)
		try(t, err)
		go func() { _, _ = io.Copy(c, io.MultiReader(strings.NewReader(request), endless{})) }()
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && res.StatusCode != 431 || errors.Is(err, os.ErrDeadlineExceeded) { // or the connection is closed
			t.Error(res.StatusCode, err)
		}
		try(t, c.Close())
	}
	chunked := func(n int) io.Reader { return io.LimitReader(endless{}, int64(n)) }
	for path, limit := range map[string]int{"/body": 1000, "/small": 10} {
		for _, body := range []func(n int) io.Reader{chunked, func(n int) io.Reader {
			return bytes.NewReader(make([]byte,
				n))
		}} {
			if got := r.send("POST", path, body(limit)); got.body != fmt.Sprint(limit) {
				t.Errorf("%s: %d %s", path, got.StatusCode, got.body)
			}
			r.want(r.send("POST", path, body(limit+1)), 413, api.CodeTooLarge)
		}
	}
	if got := r.send("POST", "/any", chunked(1<<20)); got.body != fmt.Sprint(1<<20) {
		t.Error(got.StatusCode, got.body)
	}
	// Who has no right to write is not read from: the body never ends.
	c, err := net.Dial("tcp", r.at)
	try(t, err)
	defer c.Close()
	try(t, c.SetReadDeadline(time.Now().Add(patience)))
	fmt.Fprintf(c, "POST /any HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	try(t, err)
	if res.StatusCode != 401 {
		t.Error(res.StatusCode)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// Clients that do not send what they announced, or do not read, are cut off; those that wait for an answer are not.
func TestSlowClients(t *testing.T) { synctest.Test(t, testSlowClients) }

func testSlowClients(t *testing.T) {
	const limit = time.Minute
	began := time.Now()
	var cut sync.Map // what was cut off, and when
	ended := func(r *http.Request, err error) {
		cut.Store(r.URL.Path, time.Since(began))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(r.URL.Path, err)
		}
	}
	send := func(w http.ResponseWriter, r *http.Request) {
		var err error
		for part := make([]byte, 64<<10); err == nil; {
			if _, err = w.Write(part); err == nil {
				err = http.NewResponseController(w).Flush()
			}
		}
		ended(r, err)
	}
	read := func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		ended(r, err)
		if err != nil {
			problem.Write(w, r, err)
		}
	}
	l := newPipes()
	r := startOn(t, l, &http.Transport{DialContext: l.dial}, mem.New(),
		Options{BodyTimeout: limit, WriteTimeout: limit, HeaderTimeout: limit, IdleTimeout: limit}, []route.Route{
			{Pattern: "/plain", Handler: send}, {Pattern: "/stream", Stream: true, Handler: send},
			{Pattern: "/read", Handler: read}, {Pattern: "/readstream", Stream: true, Handler: read},
			{Pattern: "/wait", Handler: func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				select {
				case <-r.Context().Done():
				case <-time.After(10 * limit):
					_, _ = io.WriteString(w, "at last")
				}
			}},
		})
	// dial makes a request, and hands what comes of it to a reader beside.
	dial := func(request string, reads func(c net.Conn)) {
		t.Helper()
		c, err := l.dial(ctx, "", "")
		try(t, err)
		t.Cleanup(func() { _ = c.Close() })
		go reads(c)
		_, err = io.WriteString(c, request)
		try(t, err)
	}
	for _, path := range []string{"/plain", "/stream"} {
		dial("GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n", func(c net.Conn) {
			if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil { // and no more
				t.Error(path, err)
			}
		})
	}
	for _, path := range []string{"/read", "/readstream"} {
		dial("POST "+path+" HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc", func(c net.Conn) {
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || res.StatusCode != 408 {
				t.Error(path, res, err)
			}
			cut.Store("the answer of "+path, time.Since(began))
		})
	}
	for what, request := range map[string]string{"headers that do not end": "GET / HTTP/1.1\r\nHost: h\r\nX: ",
		"no request": "", "no second request": "GET /health HTTP/1.1\r\nHost: h\r\n\r\n"} {
		dial(request, func(c net.Conn) {
			if _, err := io.Copy(io.Discard, c); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			cut.Store(what, time.Since(began))
		})
	}
	if got := r.do("POST", "/wait", "body"); got.body != "at last" { // longer than all timeouts
		t.Error(got.StatusCode, got.body)
	}
	for _, what := range []string{"/plain", "/stream", "/read", "/readstream", "the answer of /read",
		"the answer of /readstream", "headers that do not end", "no request", "no second request"} {
		// A deadline of writes may come a little early.
		if after, _ := cut.Load(what); after == nil || after.(time.Duration) < limit-limit/nearly ||
			after.(time.Duration) > limit {
			t.Errorf("%s: it ends after %v", what, after)
		}
	}
}

// A stream that has nothing to write for longer than a write may take goes on, over HTTP/2 too.
func TestQuietStream(t *testing.T) { synctest.Test(t, testQuietStream) }

func testQuietStream(t *testing.T) {
	const limit = time.Minute
	l := newPipes()
	r := startOn(t, l, &http.Transport{DialContext: l.dial}, mem.New(), Options{WriteTimeout: limit}, []route.Route{
		{Pattern: "/follow", Stream: true, Handler: func(w http.ResponseWriter, _ *http.Request) {
			for _, part := range []string{"a", "b"} {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush() // a write that fails shows in what the client gets
				time.Sleep(10 * limit)
			}
		}},
	})
	encrypted := newPipes()
	two := &httptest.Server{Listener: encrypted, EnableHTTP2: true, Config: &http.Server{Handler: r.Server}}
	two.StartTLS()
	defer two.Close()
	two.Client().Transport.(*http.Transport).DialContext = encrypted.dial
	for url, c := range map[string]*http.Client{r.url: r.client, two.URL: two.Client()} {
		res, err := c.Get(url + "/follow")
		try(t, err)
		b, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(b) != "ab" || (url == two.URL) != (res.ProtoMajor == 2) {
			t.Errorf("%s: %q, %v", res.Proto, b, err)
		}
	}
}

// While the server stops it is not ready, followers are told, and what is under way is answered.
func TestStop(t *testing.T) {
	following, release := make(chan struct{}), make(chan struct{})
	r := start(t, mem.New(), Options{}, []route.Route{
		{Pattern: "/follow", Stream: true, Handler: func(w http.ResponseWriter, r *http.Request) {
			close(following)
			<-route.From(r.Context()).Stopping
			<-release
			_, _ = io.WriteString(w, "bye")
		}},
	})
	followed := make(chan reply, 1)
	go func() { followed <- r.do("GET", "/follow", "") }()
	<-following
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop(ctx) }()
	r.eventually("not ready", func() bool { return errors.Is(r.ready(), problem.ErrStopping) })
	select {
	case err := <-stopped:
		t.Fatal("stopped before the answer was out:", err)
	default:
	}
	close(release)
	if got := <-followed; got.body != "bye" {
		t.Error(got.body)
	}
	try(t, <-stopped)
	if _, err := r.client.Get(r.url + "/health"); err == nil {
		t.Error("a stopped server answers")
	}
}

// A connection on which nothing has come is not waited for.
func TestStopSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		r := startOn(t, l, &http.Transport{DialContext: l.dial}, mem.New(), Options{}, nil)
		c, err := l.dial(ctx, "", "")
		try(t, err)
		defer c.Close()
		began := time.Now()
		try(t, r.Stop(ctx))
		if took := time.Since(began); took >= 5*time.Second { // as long as net/http waits for a request
			t.Errorf("it took %v to stop", took)
		}
	})
}

// A request that does not end is cut off in the end.
func TestStopCuts(t *testing.T) {
	following, gone := make(chan struct{}), make(chan struct{})
	r := start(t, mem.New(), Options{}, []route.Route{
		{Pattern: "/follow", Stream: true, Handler: func(w http.ResponseWriter, r *http.Request) {
			close(following)
			<-r.Context().Done()
			close(gone)
		}},
	})
	c, err := net.Dial("tcp", r.at)
	try(t, err)
	defer c.Close()
	fmt.Fprintf(c, "GET /follow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-following
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := r.Stop(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	<-gone
}

// After a failed write the server is alive but not ready: reads go on, writes tell why they do not. One that another
// process has taken the data from says that, so that clients come again.
func TestPoisoned(t *testing.T) {
	for code, cause := range map[string]error{
		api.CodePoisoned: errors.New("the disk is gone"),
		api.CodeFenced:   &holdfast.Error{Op: "commit", Engine: "postgres", Class: holdfast.ErrFenced},
	} {
		t.Run(code, func(t *testing.T) { poisoned(t, code, cause) })
	}
}

func poisoned(t *testing.T, code string, cause error) {
	disk := vfs.NewMem()
	e, err := logtree.OpenMem(disk, "d", holdfast.Options{})
	try(t, err)
	defer e.Close()
	r := start(t, e, Options{}, nil)
	const write = `["stream.write","a-1",{"type":"T","data":{}}]`
	r.want(r.do("POST", "/rpc", write), 200, "")
	disk.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			return cause
		}
		return nil
	})
	r.do("POST", "/rpc", write)
	got := r.do(
		"POST",
		"/v1/namespaces/default/messages",
		`{"stream":"a-1","messages":[{"type":"T","data":{}}]}`,
	)
	r.want(got, 503, code)
	got = r.do("GET", "/ready", "")
	r.want(got, 503, code)
	if !strings.Contains(got.problem.Detail, cause.Error()) || got.Header.Get("Retry-After") != "1" {
		t.Error(got.body, got.Header)
	}
	r.want(r.do("GET", "/health", ""), 200, "")
	r.want(r.do("POST", "/rpc", `["stream.get","a-1"]`), 200, "")
	disk.SetHook(nil)
}

// unowned is an engine of which it is not known whether another process has taken its data over.
type unowned struct{ holdfast.Engine }

func (e unowned) Metrics() holdfast.Metrics {
	m := e.Engine.Metrics()
	m.Owner, m.Standbys, m.StandbysNeeded, m.Trouble = 0, 0, 1, errors.New("no standby keeps up")

	return m
}

// While reads and writes wait for standbys or another server, the server says so at once.
func TestNotTheOwner(t *testing.T) {
	r := start(t, unowned{mem.New()}, Options{}, nil)
	r.want(r.do("GET", "/ready", ""), 503, api.CodeFenced)
	got := r.do("GET", "/v1/server", "")
	r.want(got, 200, "")
	for _, part := range []string{`"trouble":"no standby keeps up"`, `"ready":false`, `"namespaces":-1`, `"standbys":0`,
		`"standbys_needed":1`} {
		if !strings.Contains(got.body, part) {
			t.Errorf("no %s in %s", part, got.body)
		}
	}
}

// A full disk refuses writes with its reason, serves reads, and takes writes again once there is room.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	e, err := logtree.OpenMem(disk, "d", holdfast.Options{})
	try(t, err)
	defer e.Close()
	r := start(t, e, Options{}, nil)
	write := func() reply {
		return r.do("POST", "/v1/namespaces/default/messages", fmt.Sprintf(
			`{"stream":"a-1","messages":[{"type":"T","data":{"x":"%s"}}]}`, strings.Repeat("x", probeSize/2)))
	}
	r.want(write(), 200, "")
	disk.SetCapacity(disk.Used() + 1<<20)
	written, got := 1, write()
	for ; got.StatusCode == 200; got = write() {
		written++
	}
	r.want(got, 507, api.CodeFull)
	r.want(r.do("GET", "/ready", ""), 503, api.CodeFull)
	r.want(r.do("GET", "/health", ""), 200, "")
	got = r.do("GET", "/v1/namespaces/default/streams/a-1", "")
	r.want(got, 200, "")
	if !strings.Contains(got.body, fmt.Sprintf(`"version":%d`, written-1)) {
		t.Errorf("%d were written: %s", written, got.body)
	}
	disk.SetCapacity(-1)
	r.eventually("ready again", func() bool { return r.do("GET", "/ready", "").StatusCode == 200 })
	r.want(write(), 200, "")
	if _, err := e.Get(nil, []byte(probeKey)); !errors.Is(err, holdfast.ErrNotFound) {
		t.Error("what was tried is there:", err)
	}
}

// TestStartOnFullDisk: a server that was killed while others took the last byte of the disk starts again: what is there
// can be read, a log can be deleted, and writes are accepted once there is room. It once did not start.
func TestStartOnFullDisk(t *testing.T) {
	t.Run("room comes", func(t *testing.T) { startOnFullDisk(t, false) })
	t.Run("a log is deleted", func(t *testing.T) { startOnFullDisk(t, true) })
}

func startOnFullDisk(t *testing.T, deletes bool) {
	const messages, events, tasks = "/v1/namespaces/default/messages", "/v1/namespaces/default/logs/l/events",
		"/v1/namespaces/default/tasks"
	disk, log := vfs.NewMem(), new(safeBuffer)
	e, err := logtree.OpenMem(disk, "d", holdfast.Options{})
	try(t, err)
	d, token := openData(t, e)
	var s *Server
	do := func(method, path, body string, status int) string {
		t.Helper()
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != status {
			t.Fatalf("%s %s: %d %s; want %d", method, path, w.Code, w.Body, status)
		}
		return w.Body.String()
	}
	begin := func() {
		t.Helper()
		s, err = New(d, Options{Logger: slog.New(slog.NewJSONHandler(log, nil))})
		try(t, err)
	}
	write := func(status int, want string) {
		t.Helper()
		for path, body := range map[string]string{
			messages: `{"stream":"a-1","messages":[{"type":"T","data":{}}]}`,
			events:   `{"events":[{"type":"T","data":"e30="}]}`,
			tasks:    `{"tasks":[{"queue":"q","kind":"k"}]}`,
		} {
			if got := do("POST", path, body, status); !strings.Contains(got, want) {
				t.Errorf("%s: %s; want %q", path, got, want)
			}
		}
	}
	read := func(n int) {
		t.Helper()
		for _, path := range []string{messages + "?stream=a-1", events, tasks} {
			if got := do("GET", path, "", 200); strings.Count(got, `"T"`)+strings.Count(got, `"k"`) != n {
				t.Errorf("%s: %s; want %d", path, got, n)
			}
		}
	}

	begin()
	write(200, "")
	large := fmt.Sprintf(`{"events":[{"type":"large","data":"%s"}]}`, strings.Repeat("QUFB", 1<<18))
	for range 8 {
		do("POST", "/v1/namespaces/default/logs/large/events", large, 200)
	}
	read(1)
	if !testkit.Holds(func() bool { // what lets deletes in is there
		_, err := disk.Size("d/RESERVE")
		return err == nil
	}) {
		t.Fatal("never a reserve")
	}
	restart := func(restarts int) {
		t.Helper()
		disk.Halt()
		_, _ = d.Close(), e.Close()
		disk = disk.Kill()
		disk.SetCapacity(disk.Used())
		e, err = logtree.OpenMem(disk, "d", holdfast.Options{})
		try(t, err)
		disk.SetCapacity(disk.Used()) // the room that opening has given back, too
		d, err = data.Open(e, data.Options{})
		try(t, err)
		begin()
		if n := strings.Count(log.String(), "the disk is full"); n != restarts {
			t.Errorf("the log says %d times that the disk is full: %s", n, log)
		}
		do("GET", "/health", "", 200)
		if got := do("GET", "/ready", "", 503); !strings.Contains(got, `"`+api.CodeFull+`"`) {
			t.Error(got)
		}
		read(1)
		write(507, "make room")
		read(1)
	}
	restart(1)
	if deletes {
		do("DELETE", "/v1/namespaces/default/logs/large", "", 204)
	} else {
		restart(2) // which takes no room either
		disk.SetCapacity(-1)
	}
	if !testkit.Holds(func() bool {
		s.room.tried = time.Time{}
		return s.ready() == nil
	}) {
		t.Fatal("never ready")
	}
	write(200, "")
	read(2)
	try(t, errors.Join(d.Close(), e.Close()))
}

// Neither tokens nor queries are logged, whatever comes of a request.
func TestNoTokenInLogs(t *testing.T) {
	r := start(t, mem.New(), Options{}, nil)
	key := r.token[len(r.token)-64:]
	for _, path := range []string{"/v1/namespaces", "/subscribe?token=" + r.token + "x", "/rpc?token=" + r.token,
		"/nowhere?token=" + r.token,
		"/rpc?token=hf_" + r.token} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			r.do(method, path, `["sys.version"]`)
			r.do(method, path, `["sys.version"]`, "Authorization", "Bearer x"+r.token, "X-API-Key", r.token+"x")
		}
	}
	r.eventually("logged", func() bool { return strings.Contains(r.log.String(), "/nowhere") })
	if strings.Contains(r.log.String(), key) {
		t.Fatalf("a token is in the log:\n%s", r.log)
	}
}

// TestAllow: what a path that has no such method allows are its own methods, and not those of a pattern that it would
// match as well.
func TestAllow(t *testing.T) {
	r := start(t, mem.New(), Options{}, nil)
	for path, want := range map[string]string{
		"/v1/namespaces/default/tasks/claim": "POST", "/v1/namespaces/default/tasks/other": "DELETE, GET, HEAD",
		"/v1/namespaces": "GET, HEAD, POST", "/v1/server": "GET, HEAD",
	} {
		got := r.do("PATCH", path, "")
		if r.want(got, 405, api.CodeMethod); got.Header.Get("Allow") != want {
			t.Errorf("%s allows %q, want %q", path, got.Header.Get("Allow"), want)
		}
	}
}

// taken is an engine whose data another process may have taken.
type taken struct {
	holdfast.Engine
	by *error // nil: nobody has
}

func (e taken) Confirm() error { return *e.by }

// TestTaken: an answer that a store makes of its memory is not sent when another process may have the data, but the
// error that says so; and that a write was done is not said either.
func TestTaken(t *testing.T) {
	var by error
	r := start(t, taken{mem.New(), &by}, Options{}, nil)
	requests := [][3]string{
		{"GET", "/position", ""},
		{"GET", "/v1/namespaces/default", ""},
		{"GET", "/v1/namespaces/default/messages/follow?from=1", ""},
		{"GET", "/events?from=1", ""},
		{"POST", "/rpc", `["stream.version","a-1"]`},
		{"POST", "/events", `{"type":"T","data":{},"timestamp":"2026-01-01T00:00:00Z"}`},
	}
	for _, q := range requests {
		if strings.Contains(q[1], "/follow") {
			continue // it would go on
		}
		if got := r.do(q[0], q[1], q[2]); got.StatusCode != http.StatusOK {
			t.Errorf("%v: %d %s", q, got.StatusCode, got.body)
		}
	}
	for _, cause := range []error{holdfast.ErrFenced, holdfast.ErrUnavailable, holdfast.ErrClosed} {
		by = &holdfast.Error{Class: cause}
		code := map[bool]string{true: api.CodeFenced, false: api.CodePoisoned}[cause == holdfast.ErrFenced]
		for _, q := range requests {
			got := r.do(q[0], q[1], q[2])
			r.want(got, http.StatusServiceUnavailable, code)
			if got.Header.Get(api.HeaderLevel) != "" || got.Header.Get("Retry-After") == "" {
				t.Errorf("%v: %v", q, got.Header)
			}
		}
		if got := r.do("GET", "/health", ""); got.StatusCode != http.StatusOK {
			t.Errorf("%d %s", got.StatusCode, got.body)
		}
	}
}

// TestTakenForGone: the log has a client as gone whose request was given up; if it is there all the same, it is told to
// come again.
func TestTakenForGone(t *testing.T) {
	r := start(t, mem.New(), Options{}, []route.Route{{Method: "GET", Pattern: "/here",
		Handler: func(w http.ResponseWriter, r *http.Request) {
			ended, cancel := context.WithCancel(r.Context())
			cancel()
			problem.Write(w, r.WithContext(ended), ended.Err())
		}}})
	res, err := r.client.Get(r.url + "/here")
	try(t, err)
	try(t, res.Body.Close())
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", res.StatusCode, res.Header)
	}
	r.eventually("logged", func() bool { return strings.Contains(r.log.String(), `"status":499`) })
}

// TestReadByFront: a front has read the body of a request, so its time is over when the server behind it begins. The
// client is there, and is not taken for gone.
func TestReadByFront(t *testing.T) {
	const timeout = 10 * time.Millisecond
	r := start(t, mem.New(), Options{BodyTimeout: timeout}, []route.Route{{Method: "POST", Pattern: "/slow",
		Handler: func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				problem.Write(w, r, r.Context().Err())
			case <-time.After(20 * timeout): // nobody waits longer for a client that is there
				w.WriteHeader(http.StatusNoContent)
			}
		}}})
	front := NewFront(Front{}, Options{Logger: r.o.Logger})
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		front.Pass(w, request, http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			text, err := io.ReadAll(request.Body)
			try(t, err)
			request.Body = io.NopCloser(bytes.NewReader(text))
			r.ServeHTTP(w, request)
		}))
	}))
	defer at.Close()
	res, err := r.client.Post(at.URL+"/slow", "text/plain", strings.NewReader("a body"))
	try(t, err)
	try(t, res.Body.Close())
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("it was answered with %s", res.Status)
	}
}
