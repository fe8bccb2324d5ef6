package problem_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
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
