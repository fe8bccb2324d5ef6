package v1_test

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
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// server is a whole server, on a port of its own.
type server struct {
	t       *testing.T
	engine  holdfast.Engine
	data    *data.Data
	server  *core.Server
	url     string
	token   string // opens everything
	served  chan error
	stopped bool
}

func start(t *testing.T, engine holdfast.Engine, o core.Options) *server {
	t.Helper()
	if engine == nil {
		engine = mem.New()
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	c, err := core.New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, engine: engine, data: d, server: c, served: make(chan error, 1)}
	s.token = s.newToken(auth.Everywhere, auth.Admin)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + l.Addr().String()
	go func() { s.served <- c.Serve(l) }()
	t.Cleanup(s.stop)
	return s
}

func (s *server) newToken(namespace string, role auth.Role) (secret string) {
	s.t.Helper()
	_, secret, err := s.server.Tokens().Create(context.Background(), auth.Token{Namespace: namespace, Role: role})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

// stop stops the server as the command does.
func (s *server) stop() {
	if s.stopped {
		return
	}
	s.stopped = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := errors.Join(s.server.Stop(ctx), <-s.served, s.data.Close()); err != nil {
		s.t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
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
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, r)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	if lastID != "" {
		req.Header.Set(api.HeaderLastEventID, lastID)
	}
	resp, err := http.DefaultClient.Do(req)
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
	w := api.Write{Stream: stream}
	for i := range n {
		w.Messages = append(w.Messages, api.NewMessage{Type: "Placed", Data: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
	}
	return w
}
