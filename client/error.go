package client

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// Error says what the server has refused, or why it could not be asked. errors.Is finds the classes of the stores in it
// that belong to its Code, and errors.As a conflict, and the error of the connection.
type Error struct {
	Op      string // what was to be done: "message write"
	Status  int    // of HTTP, 0 if there was no answer
	Code    string // one of the codes of package api, "" if the answer has none
	Detail  string // what is wrong, in words
	Request string // the id under which the server's log has more, "" if there is none
	// Unknown says that a try was made whose answer was lost: it may have been done all the same.
	Unknown bool
	// After is how long the server asks to wait before the next try, 0 if it does not say.
	After time.Duration
	// Operation is which operation of a transaction was refused, counted from 0; nil if it was none.
	Operation *int
	// Cause is the error of the connection, or of reading the answer; nil if the server has refused.
	Cause error

	conflict error // a *message.Conflict or *event.Conflict
	problem  *api.Problem
	owned    bool // the answer names an owner
}

// Error says it in a line.
func (e *Error) Error() string {
	var s strings.Builder
	if e.problem == nil || e.Detail == "" { // the server's text says what was being done
		s.WriteString(e.Op + ": ")
	}

	// What happened comes first, then what the server says of it, then what to do.
	switch {
	case e.Cause != nil:
		s.WriteString(e.Cause.Error())
	case e.Code == "":
		fmt.Fprintf(&s, "the server answered with status %d", e.Status)
		if text := http.StatusText(e.Status); text != "" {
			fmt.Fprintf(&s, " (%s)", text)
		}
	}

	switch {
	case e.Detail != "" && e.Code == "":
		s.WriteString(": " + e.Detail)
	case e.Detail != "":
		s.WriteString(e.Detail)
	case e.Code != "" && e.Cause == nil:
		s.WriteString(strings.ReplaceAll(e.Code, "_", " "))
	}
	if e.Unknown {
		s.WriteString("; the answer to a try was lost, so it may have been done")
	}

	switch e.Code {
	case api.CodeUnauthorized:
		s.WriteString("; check the token")
	case api.CodeInternal, api.CodeCorrupt, api.CodePoisoned:
		if e.Request != "" {
			s.WriteString("; the server's log has more under request " + e.Request)
		}
	}

	return s.String()
}

// Unwrap returns the classes of the code, the conflict and the cause.
func (e *Error) Unwrap() []error {
	errs := append([]error(nil), classes[e.Code]...)
	if e.conflict != nil {
		errs = append(errs, e.conflict)
	}
	if e.Cause != nil {
		errs = append(errs, e.Cause)
	}

	return errs
}

// Classes of errors besides those of the stores.
var (
	// ErrUnauthorized: there is no token, or one that is not known, revoked or expired.
	ErrUnauthorized = errors.New("holdfast: unauthorized")
	// ErrForbidden: the token's role or namespace does not allow it.
	ErrForbidden = errors.New("holdfast: forbidden")
	// ErrUnavailable: the server is stopping, or has too much to do.
	ErrUnavailable = errors.New("holdfast: server unavailable")
)

// classes are the classes of the codes. A server that stops is not ErrClosed: it comes back.
var classes = map[string][]error{
	api.CodeBadRequest:     {holdfast.ErrBadOption, message.ErrBadMessage, message.ErrBadName, event.ErrBadEvent},
	api.CodeUnauthorized:   {ErrUnauthorized},
	api.CodeForbidden:      {ErrForbidden},
	api.CodeNotFound:       {holdfast.ErrNotFound},
	api.CodeNoNamespace:    {message.ErrNoNamespace},
	api.CodeExists:         {message.ErrNamespaceExists, task.ErrExists},
	api.CodeConflict:       {message.ErrConflict, event.ErrConflict},
	api.CodeIDTaken:        {message.ErrIDTaken, event.ErrIDTaken, event.ErrPartialRepeat},
	api.CodePositionTaken:  {message.ErrPositionTaken, event.ErrTaken},
	api.CodeEnded:          {message.ErrEnded},
	api.CodeState:          {task.ErrState, task.ErrCycle},
	api.CodeLocked:         {holdfast.ErrLocked},
	api.CodeLeaseLost:      {task.ErrLeaseLost, message.ErrLeaseLost},
	api.CodeCancelled:      {task.ErrCancelled},
	api.CodeTruncated:      {event.ErrTruncated},
	api.CodeAhead:          {event.ErrAhead},
	api.CodeTooLarge:       {holdfast.ErrTooLarge},
	api.CodeEncoding:       {holdfast.ErrBadOption},
	api.CodeLevel:          {holdfast.ErrLevel},
	api.CodeTooMany:        {ErrUnavailable},
	api.CodeStopping:       {ErrUnavailable},
	api.CodeCorrupt:        {holdfast.ErrCorrupt},
	api.CodeNotImplemented: {holdfast.ErrUnavailable},
	api.CodeUnavailable:    {holdfast.ErrUnavailable, ErrUnavailable},
	api.CodeFenced:         {holdfast.ErrFenced, ErrUnavailable},
	api.CodePoisoned:       {holdfast.ErrPoisoned},
	api.CodeFull:           {holdfast.ErrFull},
}

// maxProblem is how much of the answer is read that tells of an error.
const maxProblem = 64 << 10

// answered makes the error of an answer that is none of success.
func answered(op string, status int, header http.Header, body []byte) *Error {
	e := &Error{Op: op, Status: status, Request: header.Get(api.HeaderRequestID),
		After: retryAfter(header)}
	var p api.Problem
	if json.Unmarshal(body, &p) == nil && p.Code != "" {
		e.Code, e.Detail, e.Operation, e.problem = p.Code, p.Detail, p.Operation, &p
		if p.Request != "" {
			e.Request = p.Request
		}

		return e
	}
	// Not the server, but something in front of it.
	switch status {
	case http.StatusTooManyRequests:
		e.Code = api.CodeTooMany
	case http.StatusUnauthorized:
		e.Code = api.CodeUnauthorized
	case http.StatusRequestEntityTooLarge:
		e.Code = api.CodeTooLarge
	}
	if text := strings.TrimSpace(string(body)); text != "" && !strings.Contains(text, "<") {
		e.Detail = fmt.Sprintf("%.200s", strings.ReplaceAll(text, "\n", " "))
	}

	return e
}

// coded makes the error of one of several, whose answer is a code.
func coded(op, code, detail string) error {
	if code == "" {
		return nil
	}

	return &Error{Op: op, Status: http.StatusOK, Code: code, Detail: detail}
}

// longestWait is the longest that the word of a server, or of what answers in its place, is believed.
const longestWait = time.Hour

// retryAfter reads the header, in seconds or as a date, which is by the clock of whoever has answered.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text + "s")
	if err != nil {
		at, err := http.ParseTime(text)
		if err != nil {
			return 0
		}
		now, err := http.ParseTime(header.Get("Date"))
		if err != nil {
			now = time.Now()
		}
		d = at.Sub(now)
	}

	return min(max(d, 0), longestWait)
}

// statusClosed is what a server makes of a request whose client has gone away.
const statusClosed = 499

// notDone reports whether the server surely has not begun what it was asked for.
func (e *Error) notDone() bool {
	return e.Status == http.StatusTooManyRequests || e.Code == api.CodeStopping || e.Code == api.CodeTooMany
}

// passing reports whether another try may do better.
func (e *Error) passing() bool {
	var untrusted *tls.CertificateVerificationError
	if errors.As(e.Cause, &untrusted) {
		return false
	}

	switch e.Status {
	case statusClosed: // the server was paused, and took this client for gone
		return true
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}

	return e.Cause != nil
}
