package v1_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/server/v1"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// server serves the routes over HTTP, without what package server does before a handler is called.
type server struct {
	t        *testing.T
	engine   holdfast.Engine
	data     *data.Data
	http     *httptest.Server
	stopping chan struct{}
}

func start(t *testing.T, engine holdfast.Engine, o v1.Options) *server {
	t.Helper()
	if engine == nil {
		var err error
		if engine, err = mem.Open("", holdfast.Options{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := engine.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	d, err := data.Open(engine, data.Options{Level: engine.Capabilities().Strongest()})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, engine: engine, data: d, stopping: make(chan struct{})}
	mux := http.NewServeMux()
	for _, r := range v1.Routes(d, o) {
		mux.HandleFunc(r.Method+" "+r.Pattern, r.Handler)
	}
	s.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(route.With(r.Context(), &route.Request{Stopping: s.stopping,
			Principal: auth.Principal{Namespace: auth.Everywhere, Role: auth.Admin}})))
	}))
	t.Cleanup(s.stop)
	return s
}

// stop stops the server as package server does: it tells followers first.
func (s *server) stop() {
	select {
	case <-s.stopping:
		return
	default:
		close(s.stopping)
	}
	s.http.Close()
	if err := s.data.Close(); err != nil {
		s.t.Error(err)
	}
}

// in is the path of the default namespace.
func in(path string) string { return "/v1/namespaces/default" + path }

// send makes a request and returns the answer with its body read.
func (s *server) send(method, path string, body any, header ...string) (*http.Response, []byte) {
	s.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		r = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.http.URL+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, text
}

// do makes a request that must go well, and returns its answer.
func do[Out any](s *server, method, path string, body any) (out Out) {
	s.t.Helper()
	resp, text := s.send(method, path, body)
	if resp.StatusCode >= 300 {
		s.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if resp.StatusCode == http.StatusNoContent {
		return out
	}
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		s.t.Fatalf("%s %s: Content-Type %q", method, path, kind)
	}
	if err := json.Unmarshal(text, &out); err != nil {
		s.t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return out
}

// refused makes a request that must be refused with a code.
func (s *server) refused(code, method, path string, body any) api.Problem {
	s.t.Helper()
	resp, text := s.send(method, path, body)
	var p api.Problem
	if err := json.Unmarshal(text, &p); err != nil {
		s.t.Fatalf("%s %s: %s: %q: %v", method, path, resp.Status, text, err)
	}
	if p.Code != code || p.Status != resp.StatusCode || p.Detail == "" || p.Title == "" ||
		resp.Header.Get("Content-Type") != "application/problem+json" {
		s.t.Fatalf("%s %s: %s, want code %s: %s", method, path, resp.Status, code, text)
	}
	return p
}

// sse is a follower's connection.
type sse struct {
	t      *testing.T
	lines  *bufio.Reader
	cancel context.CancelFunc
	body   io.Closer
}

type sseEvent struct{ id, name, data, retry string }

// follow begins to follow. When it returns, the server has decided where the follower begins.
func (s *server) follow(path, lastID string) *sse {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.http.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set(api.HeaderLastEventID, lastID)
	}
	resp, err := s.http.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	f := &sse{s.t, bufio.NewReader(resp.Body), cancel, resp.Body}
	s.t.Cleanup(f.close)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("%s: %s: %s", path, resp.Status, text)
	}
	return f
}

func (f *sse) close() {
	f.cancel()
	f.body.Close()
}

// next returns the next event, and how many comments came before it.
func (f *sse) next() (e sseEvent, comments int, err error) {
	for {
		line, err := f.lines.ReadString('\n')
		if err != nil {
			return e, comments, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if e.name != "" {
				return e, comments, nil
			}
		case name == "":
			comments++
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data += value
		case name == "retry":
			e.retry = value
		default:
			return e, comments, fmt.Errorf("a line %q", line)
		}
	}
}

// want returns the next event, which must have that name.
func (f *sse) want(name string) sseEvent {
	f.t.Helper()
	e, _, err := f.next()
	if err != nil || e.name != name {
		f.t.Fatalf("event %+v, error %v; want %s", e, err, name)
	}
	return e
}

func write(stream string, n int) api.Write {
	w := api.StreamWrite{Stream: stream}
	for i := range n {
		w.Messages = append(w.Messages, api.NewMessage{Type: "Placed", Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
	}
	return api.Write{Writes: []api.StreamWrite{w}}
}
