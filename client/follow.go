package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
)

// follow yields what a stream of events tells, from the position next of a history on, and connects again when that
// ends: then it names the history that the server had, which says if it has another one now. read reads one, and
// returns its position; positions only grow.
func follow[T any](ctx context.Context, c *Client, op, path string, query url.Values, next int64, history string,
	read func(data []byte) (T, int64, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err := holdfast.CheckContext(ctx); err != nil {
			yield(none, err)
			return
		}
		f := &follower{c: c, op: op, path: path, query: url.Values{}, next: next, history: history}
		maps.Copy(f.query, query)

		pause, down := c.pause(), 0

		for {
			heard := false
			err := f.connect(ctx, func(e sse) (bool, *Error) {
				if heard = true; e.kind != "message" && e.kind != "event" {
					return true, nil
				}
				v, at, err := read(e.data)
				if err != nil {
					return false, &Error{Op: op, Status: http.StatusOK,
						Detail: fmt.Sprintf("an event of the server cannot be read: %v", err)}
				}
				if at < f.next { // it was yielded before the connection was lost
					return true, nil
				}
				f.next = at + 1

				return yield(v, nil), nil
			})

			// An error that does not pass ends the loop. All else is a lost connection.
			switch {
			case err == nil: // the loop has ended
				return
			case ctx.Err() != nil:
				yield(none, &Error{Op: op, Cause: ctx.Err()})
				return
			case !err.passing() && !errors.Is(err, errBye):
				yield(none, err)
				return
			}

			if heard {
				pause.reset()
				down = 0
			}
			wait := pause.next(max(err.After, f.retry))
			if down++; down%8 == 4 {
				c.log.Warn("the server cannot be followed; trying again", "op", op, "error", err, "in", wait)
			} else {
				c.log.Debug("a follower has lost the server; connecting again", "op", op, "error", err, "in", wait)
			}
			if !sleep(ctx, wait) {
				yield(none, &Error{Op: op, Cause: ctx.Err()})
				return
			}
		}
	}
}

// follower is where a loop over a stream of events is.
type follower struct {
	c        *Client
	op, path string
	query    url.Values
	next     int64
	history  string        // of what was read, "" if it is not known
	retry    time.Duration // what the server asks to wait before the next connection
}

// errBye ends a stream of events whose server is stopping.
var errBye = errors.New("the server is stopping")

// sse is one of a stream of them.
type sse struct {
	kind, id string
	data     []byte // valid until the next one is read
}

// connect reads events until the loop ends (nil), or the connection does. each returns false to end the loop.
func (f *follower) connect(ctx context.Context, each func(sse) (bool, *Error)) *Error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The server speaks every 15 seconds. A connection on which nothing has come for much longer is dead, without an
	// error if the other side has vanished. The time that the loop's body takes does not count.
	var silent atomic.Bool

	silence := f.c.silence
	watch := time.AfterFunc(silence, func() {
		silent.Store(true)
		cancel()
	})
	defer watch.Stop()

	lost := func(err error) *Error {
		if silent.Load() {
			err = fmt.Errorf("the server has said nothing for %v", silence)
		}

		return &Error{Op: f.op, Cause: err}
	}
	f.query.Set("from", strconv.FormatInt(f.next, 10))
	if f.history != "" {
		f.query.Set("history", f.history)
	}
	header := http.Header{"Accept": {"text/event-stream"}, "Cache-Control": {"no-store"}}
	resp, e := f.c.send(ctx, &request{op: f.op, method: "GET", path: f.path, query: f.query, header: header}, nil)
	if e != nil {
		if e.Status == 0 {
			return lost(e.Cause)
		}

		return e
	}
	defer resp.Body.Close()
	// An owner that is paused or cut off has a successor. Behind another process that would tell.
	if _, direct := resp.Body.(*fromOwner); direct {
		silence /= 2
	}

	// Positions are those of one history. The next connection names it, so that a log made anew is not followed as the
	// old one.
	if history := resp.Header.Get(api.HeaderHistory); history != "" {
		f.history = history
	}

	in := bufio.NewReaderSize(resp.Body, 32<<10)
	var now sse
	var data []byte
	some := false

	for {
		line, err := readLine(in, f.c.o.MaxResponse-int64(len(data)))
		if errors.Is(err, errTooLong) {
			return &Error{Op: f.op, Status: resp.StatusCode, Code: api.CodeTooLarge,
				Detail: fmt.Sprintf("an event has more than %d bytes; raise MaxResponse", f.c.o.MaxResponse)}
		}
		if err != nil { // also in the middle of an event, which comes again then
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}

			return lost(err)
		}
		watch.Reset(silence)
		if len(line) > 0 {
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "event":
				now.kind = string(value)
			case "data":
				if some {
					data = append(data, '\n')
				}
				data, some = append(data, value...), true
			case "id":
				now.id = string(value)
			case "retry":
				if ms, err := strconv.ParseInt(string(value), 10, 32); err == nil && ms >= 0 {
					f.retry = api.Duration(ms)
				}
			}
			continue
		}
		if !some { // a comment, or an id alone
			f.passed(now.id)
			now = sse{}
			continue
		}

		now.data = data
		switch now.kind {
		case "bye":
			return &Error{Op: f.op, Status: resp.StatusCode, Code: api.CodeStopping, Cause: errBye}
		case "problem":
			var p api.Problem
			if json.Unmarshal(data, &p) != nil || p.Code == "" {
				return lost(fmt.Errorf("the server says: %.200s", data))
			}

			return answered(f.op, p.Status, resp.Header, data)
		}
		watch.Stop()
		more, e := each(now)
		if e != nil || !more {
			return e
		}
		watch.Reset(silence)
		f.passed(now.id)
		if now, some = (sse{}), false; cap(data) > 1<<20 {
			data = nil // a large one is not kept for the small ones
		}
		data = data[:0]
	}
}

// passed notes the id of an event: the position to go on from, which can be behind what was told.
func (f *follower) passed(id string) {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil && n > f.next {
		f.next = n
	}
}

var errTooLong = errors.New("line too long")

// readLine reads a line of at most so many bytes, without its end. It is valid until the next is read.
func readLine(in *bufio.Reader, most int64) ([]byte, error) {
	var long []byte
	for {
		part, err := in.ReadSlice('\n')
		if int64(len(long)+len(part)) > most+2 {
			return nil, errTooLong
		}
		if err == nil && long == nil {
			return bytes.TrimRight(part, "\r\n"), nil
		}

		long = append(long, part...)
		switch err {
		case nil:
			return bytes.TrimRight(long, "\r\n"), nil
		case bufio.ErrBufferFull:
		default:
			return nil, err
		}
	}
}
