// Package v1 serves the API of the server below /v1: messages, logs of events, tasks, and the server itself, as JSON,
// with the types of package api. What the operations are is said in an OpenAPI document that is made from their
// declarations and served at /openapi.json.
//
// Each operation is declared once, with the role that it needs, and yields a route. Package server checks tokens,
// roles, limits and levels before a handler is called.
//
// # Claims that wait
//
// A claim of tasks or messages waits until there is one, wait_ms has passed, the server begins to stop, or the client is
// gone. What was claimed for a client that is gone by then is given back at once, and the attempt does not count for a
// task. If the client goes while the answer is on its way, the server may not learn of it: then it is given back when
// the lease runs out.
//
// # Following
//
// Followers get Server-Sent Events: "message" or "event", whose id is the position to go on from; comments while nothing
// comes, so that both sides see that the other is there; "bye" when the server stops, and the client should come again;
// "problem", with an api.Problem, when following fails, and coming again does not help by itself. A client that comes
// again with the id of the last event that it has seen, in the header Last-Event-ID, misses nothing and gets nothing
// twice. A client that does not read for as long as Options.WriteTimeout is cut off.
package v1

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
)

// Options are what the API needs of the rest of the server. The zero value serves what needs nothing.
type Options struct {
	// Version is that of the server.
	Version string
	// KeepAlive is how often a follower that gets nothing is sent a comment; 0 means 15 seconds.
	KeepAlive time.Duration
	// WriteTimeout is how long a client may take to read a part of an answer that is a stream; 0 means 30 seconds.
	WriteTimeout time.Duration
	// Logger is told what goes wrong that no client is told; nil means slog.Default.
	Logger *slog.Logger
}

type service struct {
	data     *data.Data
	o        Options
	routes   []route.Route
	doc      *huma.OpenAPI
	promised map[holdfast.Level]holdfast.Level
}

// Routes returns the routes of the API over d.
func Routes(d *data.Data, o Options) []route.Route {
	o.KeepAlive, o.WriteTimeout = cmp.Or(o.KeepAlive, 15*time.Second), cmp.Or(o.WriteTimeout, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	s := &service{data: d, o: o, promised: map[holdfast.Level]holdfast.Level{}}
	caps := d.Engine().Capabilities()
	for _, level := range holdfast.Levels() {
		s.promised[level] = caps.Promise(level).Given
	}
	s.doc = &huma.OpenAPI{OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Holdfast", Version: o.Version,
			Description: "Messages in streams, logs of events, and tasks; every write names what it survives."},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token": {Type: "http", Scheme: "bearer", Description: "The secret of a token."}},
		},
		Security: []map[string][]string{{"token": {}}},
	}
	s.messages()
	s.tasks()
	s.openAPI()
	return s.routes
}

// openAPI adds the routes of the document about the others.
func (s *service) openAPI() {
	for _, kind := range []struct{ path, mime string }{
		{"/openapi.json", "application/json"}, {"/openapi.yaml", "application/yaml"},
	} {
		s.routes = append(s.routes, route.Route{Method: http.MethodGet, Pattern: kind.path, Role: auth.None,
			Handler: func(w http.ResponseWriter, r *http.Request) {
				text, err := s.doc.MarshalJSON()
				if kind.path == "/openapi.yaml" {
					text, err = s.doc.YAML()
				}
				if err != nil {
					fail(w, r, err)
					return
				}
				w.Header().Set("Content-Type", kind.mime)
				_, _ = w.Write(text)
			}})
	}
}

// stopping ends a context that is returned when the server begins to stop.
func (c *call) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if c.req.Stopping == nil {
		return ctx, func() { cancel(nil) }
	}
	go func() {
		select {
		case <-c.req.Stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

var typeOfMessage, typeOfEvent = reflect.TypeFor[api.Message](), reflect.TypeFor[api.Event]()
