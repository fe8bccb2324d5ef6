// Package eventodb serves the API of EventoDB, so that programs which use its clients can use a Holdfast server: calls
// at /rpc, notes of new messages at /subscribe, and imports at /import. The token says which namespace a request is
// about.
//
// It differs from EventoDB where that loses messages or mixes up clients: followers miss nothing, a message id is
// written once, an import that is repeated passes over what is there, and creating, deleting and listing namespaces
// need the token of the namespace "default", or another that is admin everywhere.
package eventodb

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// Options are what the API tells about the server.
type Options struct {
	Version string // "" means dev
}

// MaxBody is how many bytes a request to /rpc may have.
const MaxBody = 100 << 20

// Routes returns the routes.
func Routes(d *data.Data, o Options) []route.Route {
	if o.Version == "" {
		o.Version = "dev"
	}
	s := &service{data: d, o: o, hub: hub{topics: map[topicKey]*topic{}}, methods: map[string]*Method{}}
	for i := range Methods {
		s.methods[Methods[i].Name] = &Methods[i]
	}
	all := []route.Route{
		{Pattern: "/rpc", Role: auth.Read, MaxBody: MaxBody, Handler: s.rpc},
		{Pattern: "/subscribe", Role: auth.Read, Stream: true, Handler: s.subscribe},
		{Pattern: "/import", Role: auth.Write, Stream: true, MaxBody: -1, Handler: s.load},
	}
	for i := range all {
		all[i].Credentials, all[i].Namespace, all[i].Deny = credentials, own, deny
	}
	return all
}

type service struct {
	data    *data.Data
	o       Options
	hub     hub
	methods map[string]*Method
}

// credentials returns the token of a request: that of the URL goes before that of the header.
func credentials(r *http.Request) string {
	if strings.Contains(r.URL.RawQuery, "token") {
		if token := r.URL.Query().Get("token"); token != "" {
			return token
		}
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return token
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

// failed makes a failure of an error of a store.
func failed(err error) *failure {
	var f *failure
	var conflict *message.Conflict
	var large *http.MaxBytesError
	is := func(classes ...error) bool {
		for _, class := range classes {
			if errors.Is(err, class) {
				return true
			}
		}
		return false
	}
	fail := func(status int, code string) *failure {
		return &failure{Status: status, Code: code, Message: err.Error()}
	}
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &conflict):
		return &failure{http.StatusConflict, "STREAM_VERSION_CONFLICT",
			fmt.Sprintf("Expected version %d, stream is at version %d", conflict.Expected, conflict.Actual),
			map[string]any{"expected": conflict.Expected, "actual": conflict.Actual}}
	case is(message.ErrNoNamespace):
		return fail(http.StatusNotFound, "NAMESPACE_NOT_FOUND")
	case is(message.ErrNamespaceExists):
		return fail(http.StatusConflict, "NAMESPACE_EXISTS")
	case is(message.ErrIDTaken):
		return fail(http.StatusConflict, "MESSAGE_ID_TAKEN")
	case is(message.ErrEnded):
		return fail(http.StatusConflict, "STREAM_ENDED")
	case errors.As(err, &large):
		return &failure{http.StatusRequestEntityTooLarge, "INVALID_REQUEST",
			fmt.Sprintf("The body has more than %d bytes", large.Limit), nil}
	case is(message.ErrBadName, message.ErrBadMessage, holdfast.ErrBadOption, holdfast.ErrTooLarge, holdfast.ErrLevel,
		io.ErrUnexpectedEOF):
		return fail(http.StatusBadRequest, "INVALID_REQUEST")
	}
	return fail(http.StatusInternalServerError, "BACKEND_ERROR")
}

// write answers with the failure.
func (f *failure) write(w http.ResponseWriter) {
	text, err := json.Marshal(map[string]any{"error": f})
	if err != nil {
		panic(err) // it has strings and numbers only
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	_, _ = w.Write(text)
}
