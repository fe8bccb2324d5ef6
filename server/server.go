// Package server serves what is kept in an engine over HTTP. The APIs below it list their routes; this package puts
// them behind one place that checks tokens, roles, limits and levels.
//
//	engine, err := logtree.Open("/var/lib/holdfast", holdfast.Options{}) // in metrics.Watch, to measure commits
//	d, err := data.Open(engine, data.Options{})
//	s, err := server.New(d, server.Options{Backup: logtree.Backup})
//	go s.Serve(listener)
//	...
//	err = s.Stop(ctx) // then d.Close and engine.Close
//
// A program that has routes of its own puts the server beside them: it is an http.Handler. docs/start/service.md shows
// a whole service.
package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/ebuse"
	"github.com/holdfastdb/holdfast/server/eventodb"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/server/page"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/server/tracing"
	v1 "github.com/holdfastdb/holdfast/server/v1"
)

// The defaults of Options.
const (
	DefaultMaxBody        = 64 << 20
	DefaultMaxHeader      = 64 << 10
	DefaultMaxConnections = 10_000
	DefaultHeaderTimeout  = 10 * time.Second
	DefaultBodyTimeout    = time.Minute
	DefaultWriteTimeout   = 30 * time.Second
	DefaultIdleTimeout    = 2 * time.Minute
	DefaultQueryTime      = 30 * time.Second
	DefaultQueryRows      = 1_000_000
	DefaultQueryMemory    = 64 << 20
)

// Options are how a server works. The zero value is a safe choice. A limit that is less than 0 is none.
type Options struct {
	Version string       // what /version tells; "" means dev
	Logger  *slog.Logger // nil means slog.Default

	// Tracer makes spans of requests; nil means none.
	Tracer *tracing.Tracer

	// TLS makes Serve speak TLS, with HTTP/2 if clients ask for it; nil means plain HTTP/1.1.
	TLS *tls.Config

	// MaxBody is how many bytes the body of a request may have, unless its route says otherwise; 0 means DefaultMaxBody.
	MaxBody int64
	// MaxHeader is how many bytes its headers may have, about; 0 means DefaultMaxHeader.
	MaxHeader int
	// MaxConnections is how many connections are open at once; more wait until others are closed. 0 means
	// DefaultMaxConnections.
	MaxConnections int

	// Rate is how many requests a second one token may make, in bursts of Burst (0 means Rate, at least 1); those whose
	// token is not good are counted by their address. What needs no token is not counted. 0 means any number.
	Rate  float64
	Burst int

	// HeaderTimeout is how long the headers of a request may take, BodyTimeout its body (on streams, each part of it),
	// WriteTimeout each part of an answer (256 KiB, or less), IdleTimeout how long a connection may wait for its next
	// request. 0 means the default.
	HeaderTimeout, BodyTimeout, WriteTimeout, IdleTimeout time.Duration

	// TestMode lets everybody in, for tests of programs: a request without a good token may do everything, and one with a
	// namespace's token everything in that namespace, which is made if it is not there.
	TestMode bool

	// Check says who has a secret, instead of the data's own tokens; nil means those. Its errors are theirs.
	Check func(ctx context.Context, secret string) (auth.Principal, error)

	// KeepAlive is how often followers that get nothing are sent a comment; 0 means every 15 seconds.
	KeepAlive time.Duration

	// Backup copies what an engine shows to a new directory, as Backup of package engine/all does; nil means that the
	// server makes no backups.
	Backup func(ctx context.Context, engine holdfast.Engine, into string) (keys int64, err error)
	// BackupDir is where backups are made before they are sent: a directory that is there, or one that is made in a
	// directory that is there, and removed afterwards. "" is the system's directory for temporary files.
	BackupDir string
	// Uploads says how far a continuous backup of the engine is; nil means that there is none.
	Uploads func() metrics.Uploads

	// Query answers queries by SQL, as query.Served of package server/query does; nil means that the server answers none.
	Query v1.Querier
	// QueryTime is how long a query may take, from its turn to the last byte of its answer, QueryRows how many rows it
	// may give, and QueryMemory how many bytes SQLite may take for it. 0 means the default; memory is at least 1 MiB and
	// at most 4 GiB. MaxQueries is how many run at once, and of those with tokens of one namespace half of them do; more
	// wait, a little. 0 means half as many as there are processors, and 2 at least.
	QueryTime              time.Duration
	QueryRows, QueryMemory int64
	MaxQueries             int
}

func (o Options) withDefaults() Options {
	o.Version = cmp.Or(o.Version, "dev")
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.MaxBody = cmp.Or(o.MaxBody, DefaultMaxBody)
	o.MaxHeader = cmp.Or(o.MaxHeader, DefaultMaxHeader)
	o.MaxConnections = cmp.Or(o.MaxConnections, DefaultMaxConnections)
	o.Burst = cmp.Or(o.Burst, max(int(o.Rate), 1))
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, DefaultHeaderTimeout)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, DefaultBodyTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, DefaultWriteTimeout)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, DefaultIdleTimeout)
	o.QueryTime = cmp.Or(o.QueryTime, DefaultQueryTime)
	o.QueryRows = cmp.Or(o.QueryRows, DefaultQueryRows)
	o.QueryMemory = cmp.Or(o.QueryMemory, DefaultQueryMemory)
	if o.QueryMemory < 0 {
		o.QueryMemory = 4 << 30 // the most that SQLite takes
	}
	o.MaxQueries = cmp.Or(o.MaxQueries, max(runtime.GOMAXPROCS(0)/2, 2))

	return o
}

// Server serves data. All methods may be called from many goroutines at once.
type Server struct {
	o        Options
	data     *data.Data
	tokens   *auth.Tokens
	routes   []route.Route
	mux      *http.ServeMux
	folders  map[string]bool // paths that are served with a slash behind them
	http     *http.Server
	observed *metrics.HTTP
	least    holdfast.Level                // of writes that name none
	front    *Front                        // nil if the server serves data of its own
	given    [holdfast.Quorum + 1][]string // what the engine gives to writes of each level, nil if it refuses them

	stopping chan struct{}
	stop     sync.Once
	confirm  func() error  // see answering; nil if nobody else can take the data
	requests atomic.Uint64 // numbers those that have no id
	room     room
	run      string // tells the ids of this run from those of others

	silent silent

	mu       sync.Mutex
	limiters map[string]*rate.Limiter
	heavy    map[string]int // heavy requests in hand, by the namespace of their tokens
}

// New makes a server of open data, which stays the caller's.
func New(d *data.Data, o Options) (*Server, error) {
	s := prepare(d, o)
	s.mount(append(s.public(), s.apis()...))
	if err := s.room.begin(d); err != nil {
		s.o.Logger.Warn("the disk is full: what is there can be read, and writes are refused until there is room",
			"error", err.Error(), "remedy", "make room on the disk; a restart is not needed then")
	}

	return s, nil
}

// prepare makes a server that has no routes yet.
func prepare(d *data.Data, o Options) *Server {
	s := bare(o)
	s.data, s.tokens, s.least = d, d.Tokens(), d.Level()
	if s.o.Check == nil {
		s.o.Check = s.tokens.Check
	}
	if e, ok := d.Engine().(interface{ Confirm() error }); ok {
		s.confirm = e.Confirm
	}
	caps := d.Engine().Capabilities()
	for _, level := range caps.Levels() {
		s.given[level] = []string{caps.Promise(level).Given.String()}
	}

	return s
}

// bare makes a server that has no data.
func bare(o Options) *Server {
	s := &Server{o: o.withDefaults(), mux: http.NewServeMux(), folders: map[string]bool{},
		stopping: make(chan struct{}), observed: metrics.NewHTTP(), run: runID(), limiters: map[string]*rate.Limiter{},
		heavy: map[string]int{}, least: holdfast.Memory}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: max(s.o.HeaderTimeout, 0),
		IdleTimeout:       max(s.o.IdleTimeout, 0),
		MaxHeaderBytes:    s.o.MaxHeader,
		TLSConfig:         s.o.TLS,
		HTTP2:             &http.HTTP2Config{WriteByteTimeout: max(s.o.WriteTimeout, 0)},
		ErrorLog:          slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
		ConnState:         s.silent.note,
	}

	return s
}

// mount adds routes. It is called before the first request.
func (s *Server) mount(routes []route.Route) {
	s.routes = append(s.routes, routes...)
	for _, rt := range routes {
		if folder, rest, ok := strings.Cut(rt.Pattern, "{"); ok && strings.HasSuffix(rest, "...}") {
			s.folders[folder] = true
		}
		s.mux.Handle(strings.TrimSpace(rt.Method+" "+rt.Pattern), s.wrap(rt))
	}
}

// apis lists the routes of the APIs.
func (s *Server) apis() []route.Route {
	return slices.Concat(
		v1.Routes(s.data, v1.Options{Version: s.o.Version, Ready: s.ready, Backup: s.o.Backup,
			BackupDir: s.o.BackupDir, Uploads: s.o.Uploads, KeepAlive: s.o.KeepAlive, Logger: s.o.Logger,
			Queries: v1.Queries{By: s.o.Query, Time: max(s.o.QueryTime, 0), Rows: max(s.o.QueryRows, 0),
				Memory: s.o.QueryMemory, AtOnce: max(s.o.MaxQueries, 0)}}),
		eventodb.Routes(s.data, eventodb.Options{Version: s.o.Version}),
		ebuse.Routes(s.data, ebuse.Options{Health: func(context.Context) error { return s.ready() }}),
		page.Routes(),
		s.metrics(),
	)
}

// Front is what a server does that stands in front of others, and has no data.
type Front struct {
	// Handler gets the requests of all connections, and hands them to the front, to its Pass, or to another server.
	Handler http.Handler
	// Ready says why the front is not ready, nil if it is.
	Ready func() error
	// Metrics are served beside those of the server's requests.
	Metrics prometheus.Gatherer
	// Routes are served beside those for metrics, and those that need no token.
	Routes []route.Route
}

// NewFront makes a server that has no data. Options.Check says who may ask for its own routes.
func NewFront(f Front, o Options) *Server {
	s := bare(o)
	s.front = &f
	s.http.Handler = f.Handler
	s.mount(slices.Concat(s.public(), f.Routes, s.metrics()))

	return s
}

// Pass lets next serve a request as if it were a route that may take any time: it has an id, is measured and logged. No
// token is looked at.
func (s *Server) Pass(w http.ResponseWriter, r *http.Request, next http.Handler) {
	s.observe("", &entrance{to: w}, r, func(e *entrance, r *http.Request) {
		r.Header.Set(api.HeaderRequestID, e.known.ID)
		if r.ContentLength != 0 && s.o.BodyTimeout > 0 {
			e.body = body{ReadCloser: r.Body, control: &e.answer.control, timeout: s.o.BodyTimeout, stream: true}
			e.body.deadline(time.Now().Add(s.o.BodyTimeout))
			r.Body, e.answer.body = &e.body, &e.body
		}
		next.ServeHTTP(&e.answer, r)
	})
}

// Routes lists all routes.
func (s *Server) Routes() []route.Route { return s.routes }

// Tokens are the tokens that the server knows; nil if it has no data.
func (s *Server) Tokens() *auth.Tokens { return s.tokens }

// Serve serves the connections of a listener until the server is stopped, and returns nil then. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	l = limit(l, s.o.MaxConnections, s.o.WriteTimeout)
	serve := s.http.Serve
	if s.o.TLS != nil {
		serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}

	return nil
}

// Stopping is closed when Stop begins.
func (s *Server) Stopping() <-chan struct{} { return s.stopping }

// Stop makes /ready say that the server is stopping, accepts no more connections, lets followers end, and returns
// when all requests are answered. When ctx ends, those that are left are cut off, and its error is returned. Data and
// engine are open all the while; close them afterwards.
func (s *Server) Stop(ctx context.Context) error {
	// Followers end by this channel; Shutdown alone would wait for them.
	s.stop.Do(func() { close(s.stopping) })
	shut := make(chan struct{})
	go s.silent.end(shut)
	err := s.http.Shutdown(ctx)
	close(shut)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}

	return err
}

// ServeHTTP serves one request, of whatever server it came to.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e := &entrance{to: w}

	// Before ServeMux, which would clean the path and redirect.
	if path := r.URL.EscapedPath(); !plain(path) && !s.folders[path] {
		s.observe("", e, r, func(e *entrance, r *http.Request) {
			problem.Write(&e.answer, r, problem.BadRequest("a segment of the path is empty, a dot or two, or a slash: "+
				"clients and proxies take such a path for another; no name in a path is like that"))
		})

		return
	}
	s.mux.ServeHTTP(e, r)
	if e.passed {
		return
	}
	// ServeMux has no route, and has told the entrance why.
	s.observe("", e, r, func(e *entrance, r *http.Request) {
		w := &e.answer
		if e.status == http.StatusMethodNotAllowed {
			allow := s.allowed(r, e.header.Get("Allow"))
			w.Header().Set("Allow", allow)
			problem.Write(w, r, &holdfast.Error{Class: problem.ErrMethod, Detail: r.Method + " is not allowed here",
				Remedy: "use " + allow})

			return
		}
		// It would redirect to a path with a slash behind it, too; a redirect keeps the method, and is none of ours.
		problem.Write(w, r, &holdfast.Error{Class: problem.ErrNoRoute, Detail: "nothing is served under this path"})
	})
}

// allowed returns those of the methods that ServeMux names for a path which are of the path itself, and not of a
// pattern in which a wildcard stands for a part of it: /tasks/claim takes POST, and it is not a task.
func (s *Server) allowed(r *http.Request, methods string) string {
	least, own := 0, []string(nil)
	for method := range strings.SplitSeq(methods, ", ") {
		// ServeMux is asked which pattern each of the methods leads to. The one with the fewest wildcards is the path's own.
		asked := *r
		asked.Method = method
		_, pattern := s.mux.Handler(&asked)
		switch wild := strings.Count(pattern, "{"); {
		case own == nil || wild < least:
			least, own = wild, []string{method}
		case wild == least:
			own = append(own, method)
		}
	}

	return strings.Join(own, ", ")
}

// plain reports whether a path, as it was sent, has a name in each segment. Clients, proxies and ServeMux rewrite other
// paths: a request to delete the stream ".." of a namespace would become one to delete the namespace.
func plain(path string) bool {
	if path == "/" || path == "" || path == "*" {
		return true
	}

	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if name, err := url.PathUnescape(segment); err == nil && !api.Addressable(name) {
			return false
		}
	}

	return true
}

// entrance keeps what ServeMux itself answers, but for the body. Routes go past it. It has all that the server makes
// for a request, in one piece.
type entrance struct {
	to     http.ResponseWriter
	passed bool // by a route
	header http.Header
	status int

	known  route.Request
	ctx    route.Context
	id     [1]string // for the answer's header
	answer answering
	body   body
}

func (e *entrance) Header() http.Header {
	if e.header == nil {
		e.header = http.Header{}
	}

	return e.header
}
func (e *entrance) WriteHeader(status int)      { e.status = status }
func (e *entrance) Write(b []byte) (int, error) { return len(b), nil }
