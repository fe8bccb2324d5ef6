// Package eventodb serves the API of EventoDB, so that programs which use its clients can use a Holdfast server: calls
// at /rpc, notes of new messages at /subscribe, and imports at /import. The token says which namespace a request is
// about.
//
// It differs from EventoDB where that loses messages or mixes up clients: followers miss nothing, a message id is
// written once, an import that is repeated skips what is there, and creating, deleting and listing namespaces need
// the token of the namespace "default", or another that is admin everywhere.
package eventodb

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/fanout"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// Options are what the API reports about the server.
type Options struct {
	Version string // "" means dev
}

// Routes returns the routes.
func Routes(d *data.Data, o Options) []route.Route {
	if o.Version == "" {
		o.Version = "dev"
	}

	s := &service{data: d, o: o, methods: map[string]*Method{}}
	for i := range Methods {
		s.methods[Methods[i].Name] = &Methods[i]
	}

	all := []route.Route{
		{Pattern: "/rpc", Role: auth.Read, Handler: s.rpc},
		{Pattern: "/subscribe", Role: auth.Read, Stream: true, Handler: s.subscribe},
		{Pattern: "/import", Role: auth.Write, Stream: true, Heavy: true, MaxBody: -1, Handler: s.load},
	}
	for i := range all {
		all[i].Credentials, all[i].Namespace, all[i].Deny = Credentials, own, deny
	}

	return all
}

// deny answers a request that does not come as far as its handler.
func deny(w http.ResponseWriter, r *http.Request, err error) {
	var f *failure
	switch {
	case errors.Is(err, auth.ErrNoToken):
		f = &failure{http.StatusUnauthorized, "AUTH_REQUIRED", "Authentication required", nil}
	case errors.Is(err, auth.ErrMalformed):
		f = &failure{http.StatusUnauthorized, "AUTH_INVALID_TOKEN", "Invalid token", map[string]any{"error": err.Error()}}
	case errors.Is(err, auth.ErrUnknown), errors.Is(err, auth.ErrExpired), errors.Is(err, auth.ErrForbidden):
		secret, _ := auth.Parse(Credentials(r))
		f = &failure{http.StatusForbidden, "AUTH_UNAUTHORIZED", err.Error(), map[string]any{"namespace": secret.Namespace}}
	default:
		refuse(w, r, err)
		return
	}
	route.From(r.Context()).Err = err
	f.write(w)
}

type service struct {
	data    *data.Data
	o       Options
	hub     fanout.Hub
	methods map[string]*Method
}

// Credentials returns the token of a request: that of the URL goes before that of the header.
func Credentials(r *http.Request) string {
	if strings.Contains(r.URL.RawQuery, "token") {
		if token := r.URL.Query().Get("token"); token != "" {
			return token
		}
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return token
	}

	return ""
}

// own returns the namespace that a token is about.
func own(_ *http.Request, p auth.Principal) string {
	if p.Namespace == auth.Everywhere || p.Namespace == "" {
		return message.Default
	}

	return p.Namespace
}

// Failure is an error as EventoDB's clients know it.
type failure struct {
	Status  int            `json:"-"`
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func invalid(format string, args ...any) *failure {
	return &failure{Status: http.StatusBadRequest, Code: "INVALID_REQUEST", Message: fmt.Sprintf(format, args...)}
}

// codes are those of EventoDB for what a Problem says.
var codes = map[string]string{
	api.CodeNoNamespace: "NAMESPACE_NOT_FOUND",
	api.CodeExists:      "NAMESPACE_EXISTS",
	api.CodeConflict:    "STREAM_VERSION_CONFLICT",
	api.CodeBadRequest:  "INVALID_REQUEST",
	api.CodeTooLarge:    "INVALID_REQUEST",
	api.CodeLevel:       "INVALID_REQUEST",
	api.CodeEncoding:    "INVALID_REQUEST",
	// These have none in EventoDB.
	api.CodeAhead:   "POSITION_AHEAD",
	api.CodeIDTaken: "MESSAGE_ID_TAKEN",
	api.CodeEnded:   "STREAM_ENDED",
	api.CodeTooMany: "TOO_MANY_REQUESTS",
}

// failed makes a failure of any error.
func failed(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	p := problem.Of(err)
	f = &failure{p.Status, cmp.Or(codes[p.Code], "BACKEND_ERROR"), p.Detail, nil}
	if p.Expected != nil && p.Actual != nil {
		f.Message = fmt.Sprintf("Expected version %d, stream is at version %d", *p.Expected, *p.Actual)
		f.Details = map[string]any{"expected": *p.Expected, "actual": *p.Actual}
	}

	return f
}

// refuse answers with an error, and logs it.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	err = problem.For(r.Context(), err)
	route.From(r.Context()).Err = err
	failed(err).write(w)
}

// write answers with the failure.
func (f *failure) write(w http.ResponseWriter) {
	text, err := json.Marshal(map[string]any{"error": f})
	if err != nil {
		panic(err) // it has strings and numbers only
	}
	w.Header().Set("Content-Type", "application/json")
	if f.Status == http.StatusTooManyRequests || f.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write(text) // the client has disconnected
}
