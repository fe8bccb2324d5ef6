package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
)

// public lists the routes that need no token.
func (s *Server) public() []route.Route {
	return []route.Route{
		{Pattern: "/health", Role: auth.None, Handler: func(w http.ResponseWriter, r *http.Request) {
			answer(w, r, map[string]string{"status": "ok"})
		}},
		{Pattern: "/version", Role: auth.None, Handler: func(w http.ResponseWriter, r *http.Request) {
			answer(w, r, map[string]string{"version": s.o.Version})
		}},
		{Pattern: "/ready", Role: auth.None, Handler: func(w http.ResponseWriter, r *http.Request) {
			if err := s.ready(); err != nil {
				p := problem.Of(err)
				p.Status, p.Title = http.StatusServiceUnavailable, http.StatusText(http.StatusServiceUnavailable)
				problem.Write(w, r, &problem.Error{Problem: p})

				return
			}
			answer(w, r, map[string]string{"status": "ready"})
		}},
	}
}

// ready says why the server is not ready to take writes, nil if it is.
func (s *Server) ready() error {
	select {
	case <-s.stopping:
		return &holdfast.Error{Class: problem.ErrStopping, Remedy: "come again in a moment"}
	default:
	}
	if s.front != nil {
		return s.front.Ready()
	}
	if cause := s.data.Engine().Err(); errors.Is(cause, holdfast.ErrPoisoned) { // or fenced
		return &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: cause, Remedy: "restart the server"}
	}
	if s.data.Engine().Metrics().Owner == 0 { // reads and writes wait
		return &holdfast.Error{Class: holdfast.ErrFenced, Detail: "no server confirms that the data is this process's"}
	}
	it := s.data.Engine().Scan(holdfast.Range{Lo: []byte{0}, Hi: []byte{0, 0}})

	return cmp.Or(it.Close(), s.room.ready(s.data))
}

// room knows whether there is room for writes. One that is tried when the server begins, a write that was refused for
// want of it, or trouble that the engine has, says that there is none; from then on a write that leaves nothing is
// tried whenever it is asked for, once a second.
type room struct {
	mu    sync.Mutex
	full  error // why there was none, nil if there is
	tried time.Time
}

func isFull(err error) bool {
	return errors.Is(err, holdfast.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// answered looks at what a request was answered with.
func (o *room) answered(err error) {
	if isFull(err) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.full = err
	}
}

// probeKey is in the server's part of the engine, as tokens are. probeSize is what most writes take, or more.
// leastProbe is more than what an engine admits for the sake of a delete where it has no room for else.
const (
	probeKey   = "s\x00r"
	probeSize  = 64 << 10
	leastProbe = 8 << 10
	probeEach  = time.Second
)

// begin finds out whether there is any room when a server begins: stores that are there are opened without.
func (o *room) begin(d *data.Data) error {
	if err := probe(d, leastProbe); isFull(err) {
		o.answered(err)
		return err
	}

	return nil // another error is that of writes, and /ready says what has stopped the engine
}

// probe tries whether so many bytes can be written, and leaves nothing.
func probe(d *data.Data, size int) error {
	var b holdfast.Batch
	b.Set([]byte(probeKey), make([]byte, size))
	b.Delete([]byte(probeKey))

	return holdfast.Commit(d.Engine(), &b, d.Level())
}

// ready says why there is no room.
func (o *room) ready(d *data.Data) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if trouble := d.Engine().Metrics().Trouble; isFull(trouble) {
		o.full = trouble
	}
	if o.full == nil || time.Since(o.tried) < probeEach {
		return o.full
	}
	o.full = probe(d, probeSize)
	o.tried = time.Now()

	return o.full
}

// answer answers with JSON, without a newline behind it.
func answer(w http.ResponseWriter, r *http.Request, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // the client has disconnected
}
