// Package problem answers requests with errors: any error of the engines, the stores and the server becomes an
// api.Problem.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/internal/ndjson"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// The classes of errors of the server itself.
var (
	// ErrBadRequest: a request that is malformed, or makes no sense.
	ErrBadRequest = errors.New("holdfast: bad request")
	// ErrNoRoute: nothing is served under that path.
	ErrNoRoute = errors.New("holdfast: nothing here")
	// ErrMethod: the path is not served with that method.
	ErrMethod = errors.New("holdfast: method not allowed")
	// ErrEncoding: the body is compressed.
	ErrEncoding = errors.New("holdfast: encoding not accepted")
	// ErrTooMany: more requests than the limit.
	ErrTooMany = errors.New("holdfast: too many requests")
	// ErrStopping: the server stops.
	ErrStopping = errors.New("holdfast: stopping")
)

// StatusClosed is what logs have for a request whose client went away. Nobody receives it, but who was taken for gone
// while he was there: he comes again, as after no answer.
//
// net/http takes a client for gone when its read behind the body fails, for whatever reason. One reason was found: a
// front had read the body, the server behind it set a deadline of reads all the same, and that passed while the process
// was paused, or asked who has the token. A front lets no such deadline through any more.
const StatusClosed = 499

// classes maps errors to codes. The first that an error is counts.
var classes = []struct {
	class  error
	status int
	code   string
}{
	{ErrNoRoute, http.StatusNotFound, api.CodeNotFound},
	{ErrMethod, http.StatusMethodNotAllowed, api.CodeMethod},
	{ErrEncoding, http.StatusUnsupportedMediaType, api.CodeEncoding},
	{ErrTooMany, http.StatusTooManyRequests, api.CodeTooMany},
	{ErrStopping, http.StatusServiceUnavailable, api.CodeStopping},
	{auth.ErrNoToken, http.StatusUnauthorized, api.CodeUnauthorized},
	{auth.ErrMalformed, http.StatusUnauthorized, api.CodeUnauthorized},
	{auth.ErrUnknown, http.StatusUnauthorized, api.CodeUnauthorized},
	{auth.ErrExpired, http.StatusUnauthorized, api.CodeUnauthorized},
	{auth.ErrForbidden, http.StatusForbidden, api.CodeForbidden},
	{holdfast.ErrFull, http.StatusInsufficientStorage, api.CodeFull},
	{syscall.ENOSPC, http.StatusInsufficientStorage, api.CodeFull}, // also as the cause of a poisoned engine
	{syscall.EDQUOT, http.StatusInsufficientStorage, api.CodeFull},
	{holdfast.ErrFenced, http.StatusServiceUnavailable, api.CodeFenced}, // also as that
	{holdfast.ErrPoisoned, http.StatusServiceUnavailable, api.CodePoisoned},
	{holdfast.ErrCorrupt, http.StatusInternalServerError, api.CodeCorrupt},
	{syscall.EMFILE, http.StatusServiceUnavailable, api.CodeUnavailable}, // for a moment, see docs/server.md#limits
	{syscall.ENFILE, http.StatusServiceUnavailable, api.CodeUnavailable},
	{syscall.ENOMEM, http.StatusServiceUnavailable, api.CodeUnavailable},
	{message.ErrNoNamespace, http.StatusNotFound, api.CodeNoNamespace},
	{message.ErrNamespaceExists, http.StatusConflict, api.CodeExists},
	{message.ErrConflict, http.StatusConflict, api.CodeConflict},
	{message.ErrIDTaken, http.StatusConflict, api.CodeIDTaken},
	{message.ErrPositionTaken, http.StatusConflict, api.CodePositionTaken},
	{message.ErrEnded, http.StatusConflict, api.CodeEnded},
	{message.ErrLeaseLost, http.StatusConflict, api.CodeLeaseLost},
	{message.ErrBadName, http.StatusBadRequest, api.CodeBadRequest},
	{message.ErrBadMessage, http.StatusBadRequest, api.CodeBadRequest},
	{event.ErrConflict, http.StatusConflict, api.CodeConflict},
	{event.ErrPartialRepeat, http.StatusConflict, api.CodeIDTaken},
	{event.ErrIDTaken, http.StatusConflict, api.CodeIDTaken},
	{event.ErrTaken, http.StatusConflict, api.CodePositionTaken},
	{event.ErrTruncated, http.StatusGone, api.CodeTruncated},
	{event.ErrAhead, http.StatusConflict, api.CodeAhead},
	{event.ErrBadEvent, http.StatusBadRequest, api.CodeBadRequest},
	{task.ErrLeaseLost, http.StatusConflict, api.CodeLeaseLost},
	{task.ErrCancelled, http.StatusConflict, api.CodeCancelled},
	{task.ErrExists, http.StatusConflict, api.CodeExists},
	{task.ErrCycle, http.StatusConflict, api.CodeState},
	{task.ErrState, http.StatusConflict, api.CodeState},
	{holdfast.ErrTooLarge, http.StatusRequestEntityTooLarge, api.CodeTooLarge},
	{holdfast.ErrNotFound, http.StatusNotFound, api.CodeNotFound},
	{holdfast.ErrLevel, http.StatusBadRequest, api.CodeLevel},
	{holdfast.ErrLocked, http.StatusConflict, api.CodeLocked},
	{holdfast.ErrBusy, http.StatusConflict, api.CodeLocked},
	{errNoAnswer, http.StatusServiceUnavailable, api.CodeUnavailable},
	{holdfast.ErrUnavailable, http.StatusNotImplemented, api.CodeNotImplemented},
	{holdfast.ErrClosed, http.StatusServiceUnavailable, api.CodeStopping}, // stores are closed when the server stops
	{holdfast.ErrBadKey, http.StatusBadRequest, api.CodeBadRequest},
	{holdfast.ErrBadOption, http.StatusBadRequest, api.CodeBadRequest},
	{ErrBadRequest, http.StatusBadRequest, api.CodeBadRequest},
	{ndjson.ErrBroken, http.StatusBadRequest, api.CodeBadRequest},
	{os.ErrDeadlineExceeded, http.StatusRequestTimeout, api.CodeBadRequest}, // the body took too long
	{context.DeadlineExceeded, http.StatusServiceUnavailable, api.CodeStopping},
	{context.Canceled, StatusClosed, api.CodeBadRequest},
}

// errNoAnswer stands in classes for the errors that noAnswer finds.
var errNoAnswer = errors.New("holdfast: the engine's own server does not answer")

// noAnswer reports whether err is that of an engine whose data is on another server, and which could not read there. A
// feature that an engine does not have is none of reading.
func noAnswer(err error) bool {
	if of, ok := err.(*holdfast.Error); ok && of.Class == holdfast.ErrUnavailable &&
		slices.Contains([]string{"get", "scan", "snapshot"}, of.Op) {
		return true
	}
	switch of := err.(type) {
	case interface{ Unwrap() error }:
		return noAnswer(of.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(of.Unwrap(), noAnswer)
	}

	return false
}

// Of describes an error. What it does not know is an internal error, whose text stays in the server's log.
func Of(err error) api.Problem {
	var ready *Error
	if errors.As(err, &ready) {
		return ready.Problem
	}
	p := api.Problem{Status: http.StatusInternalServerError, Code: api.CodeInternal,
		Detail: "the server's log has more under the request's id"}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		p.Status, p.Code = http.StatusRequestEntityTooLarge, api.CodeTooLarge
		p.Detail = fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit)
	} else {
		for _, c := range classes {
			if errors.Is(err, c.class) || c.class == errNoAnswer && noAnswer(err) {
				p.Status, p.Code, p.Detail = c.status, c.code, detail(err)
				break
			}
		}
	}
	p.Title = http.StatusText(p.Status)
	if p.Status == StatusClosed {
		p.Title = "Client Closed Request"
	}
	if conflict := (*message.Conflict)(nil); errors.As(err, &conflict) {
		p.Expected, p.Actual = &conflict.Expected, &conflict.Actual
	}
	if conflict := (*event.Conflict)(nil); errors.As(err, &conflict) {
		expected, actual := int64(conflict.Expected), int64(conflict.Actual)
		p.Expected, p.Actual = &expected, &actual
	}
	if in := (*inOperation)(nil); errors.As(err, &in) {
		p.Operation = &in.at
	}
	return p
}

// InOperation is an error of an operation of a transaction, counted from 0.
func InOperation(at int, err error) error { return &inOperation{at, err} }

type inOperation struct {
	at  int
	err error
}

func (e *inOperation) Error() string { return fmt.Sprintf("operation %d: %v", e.at, e.err) }

func (e *inOperation) Unwrap() error { return e.err }

// Status is the HTTP status that errors of a code are answered with; 0 if it is none.
func Status(code string) int {
	switch code {
	case api.CodeInternal:
		return http.StatusInternalServerError
	case api.CodeBadRequest: // other statuses have that code too
		return http.StatusBadRequest
	}

	for _, c := range classes {
		if c.code == code {
			return c.status
		}
	}

	return 0
}

// detail is the text of an error without the server's paths, which are not the client's business.
func detail(err error) string {
	var e *holdfast.Error
	if !errors.As(err, &e) || e.Path == "" {
		return err.Error()
	}
	c := *e
	c.Path, c.Offset = "", 0
	if p := (*fs.PathError)(nil); errors.As(c.Cause, &p) {
		c.Cause = p.Err
	} else if inner := (*holdfast.Error)(nil); errors.As(c.Cause, &inner) {
		c.Cause = errors.New(detail(inner))
	}

	return c.Error()
}

// Error is an error that says itself what the answer is.
type Error struct{ Problem api.Problem }

// Error returns the detail.
func (e *Error) Error() string { return e.Problem.Detail }

// BadRequest is an ErrBadRequest with that detail.
func BadRequest(format string, args ...any) error {
	return &holdfast.Error{Class: ErrBadRequest, Detail: fmt.Sprintf(format, args...)}
}

// For returns the error of a request whose context is ctx. What was cancelled while the client is still there, was so
// because stores and engines close, as when another process takes the data: it is to be asked again, and may have been
// done.
func For(ctx context.Context, err error) error {
	if !errors.Is(err, context.Canceled) || ctx.Err() != nil || Of(err).Status != StatusClosed {
		return err
	}

	return &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: err, Remedy: "ask again; a write with the same ids",
		Detail: "the data were closed meanwhile"}
}

// Write answers a request with an error, unless it is answered already, and logs it. Answers of 429 and 503 say when
// to retry.
func Write(w http.ResponseWriter, r *http.Request, err error) {
	err = For(r.Context(), err)
	p := Of(err)
	known := route.From(r.Context())
	p.Request, known.Err = known.ID, err

	h := w.Header()
	switch p.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if h.Get("Retry-After") == "" {
			h.Set("Retry-After", strconv.Itoa(1))
		}
	}
	body, err := json.Marshal(p)
	if err != nil { // not with these fields
		panic(err)
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Del("Content-Encoding")
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client has disconnected
	}
}
