package holdfast_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// A message says where and what once, whatever its causes repeat; they are all still found.
func TestErrorText(t *testing.T) {
	device := errors.New("device gone")
	at := func(path string) *fs.PathError { return &fs.PathError{Op: "write", Path: path, Err: device} }
	for _, c := range []struct {
		err  *holdfast.Error
		want string
	}{
		{&holdfast.Error{Class: holdfast.ErrClosed}, "closed"},
		{&holdfast.Error{Path: "/x", Class: holdfast.ErrClosed}, "/x: closed"},
		{&holdfast.Error{Engine: "e", Path: "/x", Class: holdfast.ErrClosed, Detail: "the snapshot"},
			"e /x: closed: the snapshot"},
		{&holdfast.Error{Op: "write", Path: "/x", Cause: at("/x")}, "write /x: device gone"},
		{&holdfast.Error{Op: "commit", Path: "/x", Cause: at("/x")}, "commit /x: write: device gone"},
		{&holdfast.Error{Op: "commit", Path: "/x", Cause: at("/y")}, "commit /x: write /y: device gone"},
		{&holdfast.Error{Engine: "e", Op: "sync", Path: "/x", Class: holdfast.ErrPoisoned, Remedy: "reopen",
			Cause: &holdfast.Error{Engine: "e", Op: "write", Path: "/x", Cause: at("/x"), Remedy: "reopen"}},
			"e sync /x: stopped after a failed write: write: device gone; reopen"},
		{&holdfast.Error{Engine: "e", Op: "write", Class: holdfast.ErrPoisoned, Remedy: "reopen",
			Cause: &holdfast.Error{Engine: "e", Op: "write", Path: "/x", Cause: at("/x"), Remedy: "make room"}},
			"e write: stopped after a failed write: /x: write: device gone; make room; reopen"},
		{&holdfast.Error{Engine: "e", Op: "get", Path: "/x",
			Cause: &holdfast.Error{Engine: "f", Op: "read", Path: "/x", Offset: 7, Class: holdfast.ErrCorrupt}},
			"e get /x: f read /x at byte 7: corrupt"},
		{&holdfast.Error{Op: "get", Cause: &holdfast.Error{Op: "get"}, Detail: "key"}, "get: key"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		var p *fs.PathError
		if errors.Is(c.err, device) != errors.As(c.err, &p) {
			t.Errorf("%v: the cause is lost", c.err)
		}
	}
}
