// Package inprocess lets an HTTP client talk to a handler in the same program, without a network.
package inprocess

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Transport returns a transport whose requests h serves, whatever their host is. Answers are streamed: the client has
// the headers once the handler has flushed or written, and a handler whose client is gone fails to write, and has the
// end of its context. A handler that panics cuts the answer off.
func Transport(h http.Handler) http.RoundTripper { return transport{h} }

type transport struct{ h http.Handler }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	in := req.Clone(req.Context()) // a handler may change its request
	in.RequestURI = req.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	in.Host = req.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body, out := io.Pipe()
	w := &writer{header: http.Header{}, out: out, sent: make(chan struct{})}
	go func() {
		defer in.Body.Close()

		var err error
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the handler has panicked: %v", v)
				if e, ok := v.(error); ok && errors.Is(e, http.ErrAbortHandler) {
					err = io.ErrUnexpectedEOF
				}
			}
			w.send(http.StatusOK, err)
			_ = out.CloseWithError(err) // nil is io.EOF
		}()
		t.h.ServeHTTP(w, in)
	}()

	select {
	case <-w.sent:
	case <-req.Context().Done():
	}
	if err := req.Context().Err(); err != nil { // also if the handler has ended because of it
		_ = body.CloseWithError(err)
		return nil, err
	}
	if w.aborted != nil {
		return nil, w.aborted
	}

	stop := make(chan struct{})
	go func() {
		select {
		case <-req.Context().Done():
			_ = body.CloseWithError(req.Context().Err())
			_ = out.CloseWithError(req.Context().Err())
		case <-stop:
		}
	}()

	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.answered, Body: &answer{PipeReader: body, stop: stop}, ContentLength: -1, Request: req,
	}, nil
}

type answer struct {
	*io.PipeReader
	once sync.Once
	stop chan struct{}
}

// Close implements io.Closer.
func (a *answer) Close() error {
	a.once.Do(func() { close(a.stop) })
	return a.PipeReader.Close()
}

type writer struct {
	header http.Header
	out    *io.PipeWriter

	once     sync.Once
	sent     chan struct{} // closed once status and headers are fixed
	status   int
	answered http.Header
	aborted  error // a panic before anything was sent
}

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if status/100 == 1 {
		return
	}
	w.send(status, nil)
}

// send fixes status and headers, or that there are none because of a panic.
func (w *writer) send(status int, aborted error) {
	w.once.Do(func() {
		w.status, w.answered, w.aborted = status, w.header.Clone(), aborted
		close(w.sent)
	})
}

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if len(p) == 0 {
		return 0, nil
	}

	return w.out.Write(p)
}

// FlushError is what http.ResponseController calls; nothing is held back but the headers.
func (w *writer) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// SetReadDeadline does nothing: there is no connection.
func (w *writer) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (w *writer) SetWriteDeadline(time.Time) error { return nil }

// EnableFullDuplex does nothing: it is.
func (w *writer) EnableFullDuplex() error { return nil }
