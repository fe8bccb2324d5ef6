package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

func runID() string { return strings.ToLower(rand.Text()[:8]) }

func rateText(o Options) string {
	return strconv.FormatFloat(o.Rate, 'f', -1, 64) + " requests a second in bursts of " + strconv.Itoa(o.Burst)
}

// requestID is what a client calls its request, if that can be in a log and in a header, else a new id.
func (s *Server) requestID(r *http.Request) string {
	id := r.Header.Get(api.HeaderRequestID)
	ok := id != "" && len(id) <= 64
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("-_.:/+=", c) >= 0
	}
	if ok {
		return id
	}
	var b [32]byte

	return string(strconv.AppendUint(append(append(b[:0], s.run...), '-'), s.requests.Add(1), 10))
}

// unwanted is how long the body of a request may take that is refused.
const unwanted = time.Second

// observe serves a request that has an id, is measured and logged, and survives a panic of next. pattern is that of its
// route, "" if it has none.
func (s *Server) observe(pattern string, e *entrance, r *http.Request, next func(*entrance, *http.Request)) {
	start := time.Now()
	known, a := &e.known, &e.answer
	*known = route.Request{ID: s.requestID(r), Level: s.least, Stopping: s.stopping}
	if leaving := route.Leaving(r.Context()); leaving != nil {
		known.Stopping = leaving
	}
	e.ctx.Context, e.ctx.Request = r.Context(), known
	r = r.WithContext(&e.ctx)
	*a = answering{ResponseWriter: e.to, control: *http.NewResponseController(e.to), timeout: s.o.WriteTimeout,
		http2: r.ProtoMajor >= 2}

	e.id[0] = known.ID
	a.Header()[api.HeaderRequestID] = e.id[:]
	if r.ContentLength != 0 && s.o.BodyTimeout > 0 {
		// net/http reads what is left of a body before it answers: a client that is refused may not hold it up.
		_ = a.control.SetReadDeadline(start.Add(min(s.o.BodyTimeout, unwanted))) // as for body
	}
	defer func() {
		// A handler that panics ends its request and nothing else. If nothing was sent yet, the client gets an answer.
		cause := recover()
		if cause != nil && cause != http.ErrAbortHandler {
			known.Err = fmt.Errorf("panic: %v", cause)
			s.o.Logger.Error("panic", "request", known.ID, "method", r.Method, "path", r.URL.Path, "cause", fmt.Sprint(cause),
				"stack", string(debug.Stack()))
			if a.status == 0 {
				problem.Write(a, r, known.Err)
				cause = nil
			}
		}
		e.ctx.End()
		now := time.Now()
		a.refresh(now) // net/http writes what is left after this
		took := now.Sub(start)
		s.observed.Observe(pattern, r.Method, max(a.status, http.StatusOK), took)
		s.log(r, known, a, took)
		s.room.answered(known.Err)
		if cause != nil { // the client has a part of the answer: it must not take it for the whole
			panic(http.ErrAbortHandler)
		}
	}()
	next(e, r)
}

// log writes the record of a request. Neither its query, which can have a token, nor its headers are in it.
func (s *Server) log(r *http.Request, known *route.Request, a *answering, took time.Duration) {
	status := max(a.status, http.StatusOK)
	level := slog.LevelDebug
	switch {
	case status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusInsufficientStorage &&
		status != http.StatusBadGateway:
		level = slog.LevelError
	case status >= 500:
		level = slog.LevelWarn
	}
	if !s.o.Logger.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("request", known.ID), slog.String("method", r.Method),
		slog.String("path", r.URL.Path), slog.Int("status", status), slog.Int64("bytes", a.bytes),
		slog.Duration("took", took), slog.String("from", r.RemoteAddr)}
	if id := known.Principal.TokenID; id != "" {
		attrs = append(attrs, slog.String("token", id))
	}
	if known.Err != nil {
		attrs = append(attrs, slog.String("error", known.Err.Error()))
	}
	s.o.Logger.LogAttrs(context.Background(), level, "request", attrs...)
}

// wrap puts a route behind all that the server checks.
func (s *Server) wrap(rt route.Route) http.Handler {
	if rt.Credentials == nil {
		rt.Credentials = Bearer
	}
	if rt.Namespace == nil {
		inPath := strings.Contains(rt.Pattern, "{ns}")
		rt.Namespace = func(r *http.Request, _ auth.Principal) string {
			if inPath {
				return r.PathValue("ns")
			}

			return auth.Everywhere
		}
	}
	deny := rt.Deny
	if deny == nil {
		deny = problem.Write
	}
	rt.Deny = func(w http.ResponseWriter, r *http.Request, err error) {
		route.From(r.Context()).Err = err
		deny(w, r, err)
	}
	if rt.MaxBody == 0 {
		rt.MaxBody = s.o.MaxBody
	}
	if s.o.Tracer != nil {
		rt.Handler = s.o.Tracer.Wrap(rt.Pattern, rt.Handler).ServeHTTP
	}
	enter := func(e *entrance, r *http.Request) { s.enter(&rt, e, r) }

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := w.(*entrance)
		e.passed = true
		s.observe(rt.Pattern, e, r, enter)
	})
}

// Bearer is the token of the Authorization header, "" if there is none.
func Bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}

	return strings.TrimSpace(token)
}

// enter checks a request and hands it to its route.
func (s *Server) enter(rt *route.Route, e *entrance, r *http.Request) {
	known, w := &e.known, &e.answer
	if rt.Role != auth.None {
		w.confirm, w.request = s.confirm, r
	}
	if err := s.admit(rt, known, r); err != nil {
		rt.Deny(w, r, err)
		return
	}

	// Nothing of the body has been read yet: who may not come in, or is too much, costs no more than the headers.
	done, err := s.begin(rt, known.Principal)
	if err != nil {
		rt.Deny(w, r, err)
		return
	}
	defer done()
	if encoding := strings.Join(r.Header.Values("Content-Encoding"), ", "); encoding != "" &&
		!strings.EqualFold(encoding, "identity") {
		w.Header().Set("Accept-Encoding", "identity")
		rt.Deny(
			w,
			r,
			&holdfast.Error{Class: problem.ErrEncoding, Detail: fmt.Sprintf("the body is encoded as %.40q", encoding),
				Remedy: "send it as it is"},
		)

		return
	}
	if names := r.Header.Values(api.HeaderLevel); len(names) > 0 {
		level, err := s.level(strings.Join(names, ", "))
		if err != nil {
			rt.Deny(w, r, err)
			return
		}
		known.Level = max(level, known.Level) // see holdfast.WithLevel
		r = r.WithContext(holdfast.WithLevel(r.Context(), level))
	}

	// An answer to a write names the level that its writes got.
	if rt.Role != auth.None && r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.level = s.given[known.Level]
	}
	if r.ContentLength != 0 {
		if rt.MaxBody > 0 {
			switch n := r.ContentLength; {
			case n > rt.MaxBody:
				rt.Deny(w, r, &http.MaxBytesError{Limit: rt.MaxBody})
				return
			case n < 0: // else net/http reads no more than n
				r.Body = http.MaxBytesReader(w.ResponseWriter, r.Body, rt.MaxBody)
			}
		}
		e.body = body{ReadCloser: r.Body, control: &w.control, timeout: s.o.BodyTimeout, stream: rt.Stream}
		e.body.deadline(time.Now().Add(s.o.BodyTimeout))
		r.Body = &e.body
	}
	rt.Handler(w, r)
}

// admit finds out who makes a request, and whether that may.
func (s *Server) admit(rt *route.Route, known *route.Request, r *http.Request) error {
	if rt.Role == auth.None {
		return nil
	}
	var err error
	known.Principal, err = s.o.Check(r.Context(), rt.Credentials(r))
	if err != nil && s.o.TestMode {
		known.Principal, err = s.anybody(r.Context(), rt.Credentials(r))
	}

	// Those without a good token are counted too, by their address: guessing tokens is limited like everything else.
	if tooMany := s.allow(r, known.Principal); tooMany != nil {
		return tooMany
	}
	if err != nil {
		return err
	}
	namespace := rt.Namespace(r, known.Principal)
	if known.Principal.May(rt.Role, namespace) {
		return nil
	}
	where := "everywhere"
	if namespace != auth.Everywhere {
		where = fmt.Sprintf("in namespace %q", namespace)
	}

	return &holdfast.Error{Class: auth.ErrForbidden,
		Detail: fmt.Sprintf("this needs a token with role %v %s", rt.Role, where)}
}

// anybody is who makes a request in test mode.
func (s *Server) anybody(ctx context.Context, token string) (auth.Principal, error) {
	p := auth.Principal{TokenID: "test", Namespace: auth.Everywhere, Role: auth.Admin}
	secret, err := auth.Parse(token)
	if err != nil || secret.Namespace == "" || secret.Namespace == message.Default {
		return p, nil
	}
	p.Namespace = secret.Namespace
	_, err = s.data.Messages().Info(ctx, p.Namespace)
	if errors.Is(err, message.ErrNoNamespace) {
		_, err = s.data.Create(ctx, message.NamespaceOptions{ID: p.Namespace}, token)
	}
	if errors.Is(err, message.ErrNamespaceExists) { // another request has made it
		err = nil
	}

	return p, err
}

// level returns the level of that name, if the engine gives it.
func (s *Server) level(name string) (holdfast.Level, error) {
	level, err := holdfast.ParseLevel(name)
	if err == nil && s.given[level] == nil {
		err = s.data.Engine().Capabilities().CheckLevel(level)
	}

	return level, err
}

// errAborted is the error of writes whose client does not read.
var errAborted = errors.New("the client reads too slowly")
