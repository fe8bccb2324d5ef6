// Package v1 serves the API of the server below /v1: messages, logs of events, tasks, and the server itself, as JSON,
// with the types of package api. What the operations are is said in an OpenAPI document that is made from their
// declarations and served at /openapi.json.
//
// Each operation is declared once, with the role that it needs, and yields a route. Package server checks tokens,
// roles, limits and levels before a handler is called.
//
// # Claims that wait
//
// A claim of tasks or messages waits until there is one, wait_ms has passed, the server begins to stop, or the client
// is gone. What was claimed for a client that has disconnected by then is given back at once, and the attempt does
// not count for a task. If the client goes while the answer is on its way, the server may not learn of it: then it is
// given back when the lease runs out.
//
// # Following
//
// Followers get Server-Sent Events: "message" or "event", whose id is the position to go on from; comments while
// nothing comes, so that both sides see that the other is there; "bye" when the server stops, and the client should
// come again; "problem", with an api.Problem, when following fails, and coming again does not help by itself. A client
// that comes again with the id of the last event that it has seen, in the header Last-Event-ID, misses nothing and
// gets nothing twice. A client that does not read for as long as the server's write timeout is cut off.
package v1

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/ndjson"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/fanout"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
)

// Options are what the API needs of the rest of the server.
type Options struct {
	// Version is that of the server.
	Version string
	// Ready says why the server is not ready, nil if it is.
	Ready func() error
	// Backup copies what an engine shows to a new directory; nil means that there are no backups.
	Backup func(ctx context.Context, engine holdfast.Engine, into string) (keys int64, err error)
	// BackupDir is where backups are made before they are sent: a directory that is there, or one that is made in a
	// directory that is there, and removed afterwards. "" is the system's directory for temporary files.
	BackupDir string
	// Uploads says how far a continuous backup is; nil means that there is none.
	Uploads func() metrics.Uploads
	// Queries says who answers queries by SQL.
	Queries Queries
	// KeepAlive is how often a follower that gets nothing is sent a comment; 0 means 15 seconds.
	KeepAlive time.Duration
	// Logger takes errors that no client gets; nil means slog.Default.
	Logger *slog.Logger
}

// service is the API over the data. Its fields are set by Routes and not changed any more.
type service struct {
	data   *data.Data
	o      Options
	routes []route.Route
	long   ndjson.Gate // shared by imports of events
	hub    fanout.Hub
	turns  turns // of queries
	doc    *huma.OpenAPI
}

// Routes returns the routes of the API over d.
func Routes(d *data.Data, o Options) []route.Route {
	o.KeepAlive = cmp.Or(o.KeepAlive, 15*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	s := &service{data: d, o: o, long: ndjson.NewGate()}
	s.doc = &huma.OpenAPI{OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "Holdfast", Version: o.Version,
			Description: "Messages in streams, logs of events, and tasks; every write names what it survives.",
			License:     &huma.License{Name: "MIT", Identifier: "MIT"}},
		Servers: []*huma.Server{{URL: "/", Description: "The server that this document comes from."}},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token": {Type: "http", Scheme: "bearer", Description: "The secret of a token."}},
		},
		Security: []map[string][]string{{"token": {}}},
	}

	// Each of these declares its operations, which adds routes and a part of the document.
	s.messages()
	s.streams()
	s.subscriptions()
	s.logs()
	s.tasks()
	s.transactions()
	s.query()
	s.admin()

	// The schemas are complete only now, when all operations have named their types.
	describe(s.doc)
	s.openAPI()

	return s.routes
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
			cancel(problem.ErrStopping)
		case <-ctx.Done():
		}
	}()

	return ctx, func() { cancel(nil) }
}

// typeOf is the type of the parts of an answer that declareRaw cannot infer.
func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }
