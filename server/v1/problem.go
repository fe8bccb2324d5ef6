package v1

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

var errStopping = errors.New("the server is stopping")

// statuses are the HTTP statuses of codes.
var statuses = map[string]int{
	api.CodeBadRequest: 400, api.CodeUnauthorized: 401, api.CodeForbidden: 403, api.CodeNotFound: 404,
	api.CodeNoNamespace: 404, api.CodeMethod: 405, api.CodeExists: 409, api.CodeConflict: 409, api.CodeIDTaken: 409,
	api.CodePositionTaken: 409, api.CodeEnded: 409, api.CodeState: 409, api.CodeLocked: 409, api.CodeLeaseLost: 409,
	api.CodeCancelled: 409, api.CodeTruncated: 410, api.CodeAhead: 409, api.CodeTooLarge: 413, api.CodeLevel: 400,
	api.CodeTooMany: 429, api.CodeInternal: 500, api.CodeCorrupt: 500, api.CodeNotImplemented: 501,
	api.CodeStopping: 503, api.CodePoisoned: 503, api.CodeFull: 507,
}

func problemOf(err error) api.Problem {
	p := api.Problem{Detail: err.Error(), Code: code(err)}
	p.Status = statuses[p.Code]
	p.Title = http.StatusText(p.Status)
	var m *message.Conflict
	if errors.As(err, &m) {
		p.Expected, p.Actual = &m.Expected, &m.Actual
	}
	var e *event.Conflict
	if errors.As(err, &e) {
		expected, actual := int64(e.Expected), int64(e.Actual)
		p.Expected, p.Actual = &expected, &actual
	}
	return p
}

func code(err error) string {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return api.CodeTooLarge
	}
	for _, c := range []struct {
		err  error
		code string
	}{
		{message.ErrNoNamespace, api.CodeNoNamespace}, {message.ErrNamespaceExists, api.CodeExists},
		{message.ErrConflict, api.CodeConflict}, {event.ErrConflict, api.CodeConflict},
		{message.ErrIDTaken, api.CodeIDTaken}, {event.ErrPartialRepeat, api.CodeIDTaken},
		{message.ErrPositionTaken, api.CodePositionTaken}, {message.ErrEnded, api.CodeEnded},
		{message.ErrBadName, api.CodeBadRequest}, {message.ErrBadMessage, api.CodeBadRequest},
		{event.ErrBadEvent, api.CodeBadRequest}, {event.ErrTruncated, api.CodeTruncated}, {event.ErrAhead, api.CodeAhead},
		{task.ErrExists, api.CodeExists}, {task.ErrState, api.CodeState}, {task.ErrCycle, api.CodeState},
		{task.ErrLeaseLost, api.CodeLeaseLost}, {message.ErrLeaseLost, api.CodeLeaseLost},
		{task.ErrCancelled, api.CodeCancelled},
		{holdfast.ErrPoisoned, api.CodePoisoned}, {holdfast.ErrCorrupt, api.CodeCorrupt},
		{holdfast.ErrNotFound, api.CodeNotFound}, {holdfast.ErrLocked, api.CodeLocked},
		{holdfast.ErrTooLarge, api.CodeTooLarge}, {holdfast.ErrLevel, api.CodeLevel}, {holdfast.ErrFull, api.CodeFull},
		{holdfast.ErrUnavailable, api.CodeNotImplemented},
		{holdfast.ErrClosed, api.CodeStopping}, {errStopping, api.CodeStopping},
		{holdfast.ErrBadOption, api.CodeBadRequest}, {context.Canceled, api.CodeStopping},
	} {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return api.CodeInternal
}

// fail answers an error.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	body, _ := json.Marshal(p)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}
