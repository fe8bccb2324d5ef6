package v1

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/fanout"
	"github.com/holdfastdb/holdfast/server/problem"
)

// retry is how long a client is told to wait before it comes again, in milliseconds.
const retry = 1000

// from is the position to follow from: the header Last-Event-ID, which clients send that come again, goes before what
// the query says.
func (c *call) from(asked int64) (int64, error) {
	last := c.r.Header.Get(api.HeaderLastEventID)
	if last == "" {
		return asked, nil
	}
	n, err := strconv.ParseInt(last, 10, 64)
	if err != nil || n < 0 {
		return 0, problem.BadRequest("%s is %.80q, and not the id of an event", api.HeaderLastEventID, last)
	}

	return n, nil
}

// followed says what is followed, for all that follow the same.
type followed struct {
	what      any // a pointer to a namespace or a log
	selection string
}

// follow sends the items of a source from a position of a history on, until the client disconnects, following fails, or
// the server stops.
func (c *call) follow(key any, source fanout.Source, from int64, history string) {
	h := c.w.Header()
	h.Set(api.HeaderHistory, history)
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // else some proxies keep events back

	// HTTP/1.1 would send chunks, each of which net/http makes up to three writes of when it is larger than a buffer of
	// 4 KiB. Without them a part is one write, and the answer ends with the connection. HTTP/2 has no such chunks.
	if c.r.ProtoMajor < 2 {
		h.Set("Transfer-Encoding", "identity")
	}
	c.w.WriteHeader(http.StatusOK)

	// From here on the status is sent, so an error can only be told as an event.
	out := &part{w: c.w, control: http.NewResponseController(c.w)}

	if c.r.Method == http.MethodHead {
		return
	}

	// The first comment goes out at once, so that the client sees the connection stand before anything comes.
	idle := func() error { return out.send([]byte(":\n\n")) }
	err := idle()
	if err == nil {
		err = c.hub.Follow(c.ctx, key, source, from,
			fanout.Output{Send: out.send, Idle: idle, IdleAfter: c.o.KeepAlive, Stopping: c.req.Stopping})
	}
	out.last(c, err)
}

// sent is the encoding of items as events of that name, whose id is the position to go on from.
func sent[T any](name string, position func(*T) int64, value func(*T) any) func([]byte, *T) ([]byte, int64, error) {
	return func(b []byte, v *T) ([]byte, int64, error) {
		at := position(v)
		text := bytes.NewBuffer(fmt.Appendf(b, "id: %d\nevent: %s\ndata: ", at+1, name))
		err := encode(text, value(v))

		return append(text.Bytes(), '\n'), at, err
	}
}

// part writes an answer part by part, as far as that is possible. Package server gives each part its time.
type part struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// send writes a part, which the client then has.
func (p *part) send(text []byte) error {
	// Flushed at once: a part that stays in a buffer would be late by as long as nothing follows.
	if _, err := p.w.Write(text); err != nil {
		return err
	}

	return p.control.Flush()
}

// last ends the stream, and sends the client the reason.
func (p *part) last(c *call, err error) {
	if c.ctx.Err() != nil {
		return // the client has disconnected
	}
	stopping := errors.Is(err, problem.ErrStopping)

	// What is followed was closed: by the server that stops, or because it was deleted.
	if errors.Is(err, holdfast.ErrClosed) {
		select {
		case <-c.req.Stopping:
			stopping = true
		default: // Who came again to another of that name would miss what that has before this position.
			err = &holdfast.Error{Op: "follow", Class: holdfast.ErrNotFound, Detail: "what was followed has been deleted"}
		}
	}

	// A client that is told bye comes again by itself, to this server or the next.
	if stopping {
		_ = p.send(fmt.Appendf(nil, "retry: %d\nevent: bye\ndata: {}\n\n", retry))
		return
	}
	b := bytes.NewBufferString("event: problem\ndata: ")
	if encode(b, problem.Of(problem.For(c.ctx, err))) == nil {
		b.WriteByte('\n')
		_ = p.send(b.Bytes())
	}
}
