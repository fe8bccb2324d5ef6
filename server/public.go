package server

import (
	"encoding/json"
	"net/http"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/auth"
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
				problem.Write(w, r, err)
				return
			}
			answer(w, r, map[string]string{"status": "ready"})
		}},
	}
}

// ready says why the server is not ready to take writes, nil if it is. A full disk does not count: it passes.
func (s *Server) ready() error {
	select {
	case <-s.stopping:
		return &holdfast.Error{Class: problem.ErrStopping, Remedy: "come again in a moment"}
	default:
	}
	if cause := s.data.Engine().Metrics().Poison; cause != nil {
		return &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: cause, Remedy: "restart the server"}
	}
	it := s.data.Engine().Scan(holdfast.Range{Lo: []byte{0}, Hi: []byte{0, 0}})
	return it.Close()
}

// answer answers with JSON, without a newline behind it.
func answer(w http.ResponseWriter, r *http.Request, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // a client that is gone
}
