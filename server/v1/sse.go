package v1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/problem"
)

// frame is one Server-Sent Event, as it is sent.
type frame struct {
	text []byte
	err  error // instead: following has failed
}

// ahead is how many events are read ahead of what a client has taken.
const ahead = 16

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

// follow sends what seq yields as events of that name, until the client is gone, seq ends with an error, or the server
// stops. encode returns the position to go on from, and what is sent.
func follow[T any](c *call, name string, seq func(context.Context) iter.Seq2[T, error],
	encoded func(*T) (uint64, any)) {
	ctx, stop := context.WithCancelCause(c.ctx)
	cancel := func() { stop(nil) }
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // else some proxies keep events back
	c.w.WriteHeader(http.StatusOK)
	out := &part{w: c.w, control: http.NewResponseController(c.w)}
	if c.r.Method == http.MethodHead {
		cancel()
		return
	}
	frames := make(chan frame, ahead)
	go func() {
		defer close(frames)
		send := func(f frame) bool {
			select {
			case frames <- f:
				return true
			case <-ctx.Done():
				return false
			}
		}
		for v, err := range seq(ctx) {
			if err != nil {
				send(frame{err: err})
				return
			}
			var b bytes.Buffer
			id, v := encoded(&v)
			fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: ", id, name)
			if err := encode(&b, v); err != nil {
				send(frame{err: err})
				return
			}
			b.WriteByte('\n')
			if !send(frame{text: b.Bytes()}) {
				return
			}
		}
	}()
	defer func() { // what seq uses is not used any more when the handler returns
		cancel()
		for range frames {
		}
	}()
	out.write([]byte(":\n\n"))
	out.flush()
	quiet := time.NewTicker(c.o.KeepAlive)
	defer quiet.Stop()
	for out.err == nil {
		select {
		case f, more := <-frames:
			if !more || f.err != nil {
				out.last(c, ctx, f.err)
				return
			}
			out.write(f.text)
			if len(frames) == 0 {
				out.flush()
			}
			quiet.Reset(c.o.KeepAlive)
		case <-quiet.C:
			out.write([]byte(":\n\n"))
			out.flush()
		case <-c.req.Stopping: // waited for here, and not in a goroutine more for each follower
			stop(problem.ErrStopping)
			out.last(c, ctx, nil)
			return
		case <-ctx.Done():
			out.last(c, ctx, nil)
			return
		}
	}
}

// part writes an answer part by part, as far as that is possible. Package server gives each part its time.
type part struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

func (p *part) write(text []byte) {
	if p.err == nil {
		_, p.err = p.w.Write(text)
	}
}

func (p *part) flush() {
	if p.err == nil {
		p.err = p.control.Flush()
	}
}

// last ends the stream, and tells the client why.
func (p *part) last(c *call, ctx context.Context, err error) {
	stopping := errors.Is(context.Cause(ctx), problem.ErrStopping)
	if errors.Is(err, holdfast.ErrClosed) {
		select {
		case <-c.req.Stopping:
			stopping = true
		default: // Who came again to another of that name would miss what that has before this position.
			err = &holdfast.Error{Op: "follow", Class: holdfast.ErrNotFound, Detail: "what was followed has been deleted"}
		}
	}
	switch {
	case c.ctx.Err() != nil:
		return // the client is gone
	case stopping:
		p.write(fmt.Appendf(nil, "retry: %d\nevent: bye\ndata: {}\n\n", retry))
	case err != nil:
		var b bytes.Buffer
		b.WriteString("event: problem\ndata: ")
		if encode(&b, problem.Of(err)) != nil {
			return
		}
		b.WriteByte('\n')
		p.write(b.Bytes())
	}
	p.flush()
}
