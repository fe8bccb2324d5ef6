package problem_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/problem"
)

// A read that an engine's own server does not answer is to be repeated; what an engine does not have is not.
func TestUnavailable(t *testing.T) {
	of := func(op string) error {
		return &holdfast.Error{Op: op, Engine: "postgres", Class: holdfast.ErrUnavailable, Cause: io.ErrUnexpectedEOF}
	}
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{of("get"), http.StatusServiceUnavailable, api.CodeUnavailable},
		{fmt.Errorf("message read: %w", of("snapshot")), http.StatusServiceUnavailable, api.CodeUnavailable},
		{&holdfast.Error{Op: "read", Cause: errors.Join(of("scan"), of("close"))}, http.StatusServiceUnavailable,
			api.CodeUnavailable},
		{of("compact"), http.StatusNotImplemented, api.CodeNotImplemented},
		{&holdfast.Error{Class: holdfast.ErrPoisoned, Cause: of("get")}, http.StatusServiceUnavailable, api.CodePoisoned},
		{&holdfast.Error{Class: holdfast.ErrPoisoned, Cause: &holdfast.Error{Class: holdfast.ErrFenced}},
			http.StatusServiceUnavailable, api.CodeFenced},
	} {
		if got := problem.Of(c.err); got.Status != c.status || got.Code != c.code {
			t.Errorf("%v is %d %s, want %d %s", c.err, got.Status, got.Code, c.status, c.code)
		}
	}
}

// What passes is to be asked again. So is what is cancelled while the client waits for its answer: it was not the
// client who went away.
func TestPassing(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	cause := fmt.Errorf("message read: %w", context.Canceled)
	short := &holdfast.Error{Op: "create", Path: "000001.seg", Cause: syscall.EMFILE} // as engines tell it
	for _, c := range []struct {
		ctx    context.Context
		err    error
		status int
		code   string
	}{
		{t.Context(), cause, http.StatusServiceUnavailable, api.CodePoisoned},
		{gone, cause, 499, api.CodeBadRequest},
		{t.Context(), &holdfast.Error{Class: holdfast.ErrClosed, Cause: cause}, http.StatusServiceUnavailable,
			api.CodeStopping},
		{t.Context(), holdfast.ErrNotFound, http.StatusNotFound, api.CodeNotFound},
		{t.Context(), short, http.StatusServiceUnavailable, api.CodeUnavailable},
		{t.Context(), &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: short}, http.StatusServiceUnavailable,
			api.CodePoisoned},
	} {
		if got := problem.Of(problem.For(c.ctx, c.err)); got.Status != c.status || got.Code != c.code {
			t.Errorf("%v is %d %s, want %d %s", c.err, got.Status, got.Code, c.status, c.code)
		}
		w := httptest.NewRecorder()
		problem.Write(w, httptest.NewRequestWithContext(c.ctx, "GET", "/", nil), c.err)
		if w.Code != c.status || c.status == http.StatusServiceUnavailable && w.Header().Get("Retry-After") == "" {
			t.Errorf("%v is answered with %d and %v, want %d", c.err, w.Code, w.Header(), c.status)
		}
	}
}
