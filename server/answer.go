package server

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/problem"
)

// errRefused is the error of an answer that was replaced by a refusal.
var errRefused = errors.New("the data is another process's")

// maxPart is how much of an answer is written under one deadline, in bytes.
const maxPart = 256 << 10

// answering is the answer to a request. It knows what was answered, and gives each write a deadline, so that a client
// that does not read holds nothing for longer than that.
type answering struct {
	http.ResponseWriter
	control http.ResponseController
	timeout time.Duration
	until   time.Time // the deadline of writes
	http2   bool      // whose deadlines end a stream also while nothing is written
	level   []string  // of a write that succeeds, for the answer's header
	status  int       // 0 until the header is written
	bytes   int64

	// confirm says, when the answer is made and before any of it is sent, whether the data that it is made of was still
	// this process's; nil: nobody else can have taken it. Of what stores keep in memory no engine says so.
	confirm func() error
	request *http.Request // whose answer it is then
	refused bool          // it was answered with that error, and what its handler makes is not sent

	body *body // of the request, if this is a front's, which may have read it; else nil
}

// Unwrap is for http.ResponseController.
func (a *answering) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// SetReadDeadline is for the server that a front passes a request on to, which limits the time of the body in its turn.
//
// Once the front has read all of the body, net/http reads on, to notice that the client goes away. It takes each error
// of that read for this, a deadline that has passed as well, and cancels the request of a client who is still there. So
// then there is none.
func (a *answering) SetReadDeadline(at time.Time) error {
	if a.body != nil && a.body.ended {
		return nil
	}

	return a.control.SetReadDeadline(at)
}

// refresh gives what is written next its time, or nearly as much if it has that already.
func (a *answering) refresh(now time.Time) {
	if at := now.Add(a.timeout); a.timeout > 0 && at.Sub(a.until) > a.timeout/nearly {
		a.until = at
		_ = a.control.SetWriteDeadline(at) // not supported: in tests without a connection
	}
}

// rest takes the time away again, from a stream that may have nothing to write for long.
func (a *answering) rest() {
	if a.http2 && a.timeout > 0 {
		a.until = time.Time{}
		_ = a.control.SetWriteDeadline(a.until)
	}
}

func (a *answering) WriteHeader(status int) {
	if confirm := a.confirm; confirm != nil && a.status == 0 && status >= 200 && status < 500 {
		a.confirm = nil
		if err := confirm(); err != nil {
			// A write may be done all the same, whatever the error is of.
			a.level = nil
			problem.Write(a, a.request, &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: err,
				Detail: "it is not known that the data is still this process's", Remedy: "ask again; a write with the same ids"})
			a.refused = true

			return
		}
	}
	if a.status == 0 && status >= 200 {
		a.status = status
		if a.level != nil && status < 300 {
			a.Header()[api.HeaderLevel] = a.level
		}
	}
	if status == problem.StatusClosed { // who receives this is there all the same, and is to come again
		a.Header().Set("Retry-After", "1")
		status = http.StatusServiceUnavailable
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answering) Write(b []byte) (written int, err error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.refused {
		return len(b), nil
	}

	for {
		part := b[:min(len(b), maxPart)]
		a.refresh(time.Now())
		n, err := a.ResponseWriter.Write(part)
		a.rest()
		written, a.bytes, b = written+n, a.bytes+int64(n), b[len(part):]
		if err != nil || len(b) == 0 {
			return written, slow(err)
		}
	}
}

// Flush sends what was written.
func (a *answering) Flush() { _ = a.FlushError() }

// FlushError is Flush for http.ResponseController.
func (a *answering) FlushError() error {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.refused { // a stream ends by it
		return errRefused
	}

	a.refresh(time.Now())
	defer a.rest()

	return slow(a.control.Flush())
}

func slow(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(errAborted, err)
	}

	return err
}

// body is the body of a request, which must come in time: all of it, or on a stream each part. What cannot be read of
// it is no fault of the server.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	stream  bool
	ended   bool
}

// deadline is not supported in tests without a connection.
func (b *body) deadline(at time.Time) {
	if b.timeout > 0 {
		_ = b.control.SetReadDeadline(at)
	}
}

func (b *body) Read(p []byte) (int, error) {
	if b.stream && !b.ended {
		b.deadline(time.Now().Add(b.timeout))
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF && !b.ended {
		// What is read from here on waits for the client to go away, or for its next request.
		b.ended = true
		b.deadline(time.Time{})
	}

	// Chunks that are none, and a connection that was cut, have errors without a class. The others are known as they are.
	tooLarge := (*http.MaxBytesError)(nil)
	if err == nil || err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &tooLarge) {
		return n, err
	}

	return n, &holdfast.Error{Class: problem.ErrBadRequest, Detail: "the body cannot be read", Cause: err}
}
