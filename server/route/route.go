// Package route describes the routes of the server's APIs, and what the server knows of a request when it reaches
// one. The APIs list their routes; package server checks tokens, roles, limits and levels in one place, for all.
package route

import (
	"context"
	"net/http"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/auth"
)

// Route is one route.
type Route struct {
	// Method is the HTTP method; "" means that the handler looks at it.
	Method string
	// Pattern is the path, as http.ServeMux has it.
	Pattern string
	// Role is what the token needs, in the namespace that Namespace names. With auth.None no token is looked at.
	Role auth.Role
	// Namespace returns which namespace a request is about; nil means the path's {ns} if the pattern has one, and
	// otherwise auth.Everywhere. It may return the token's own namespace (see From).
	Namespace func(r *http.Request, p auth.Principal) string
	// Credentials returns the token of a request; nil means that of the Authorization header.
	Credentials func(r *http.Request) string
	// Deny answers a request that is refused before it reaches the handler; nil means a Problem.
	Deny func(w http.ResponseWriter, r *http.Request, err error)
	// Stream says that an answer, or a body, may take any time: no timeouts then but those of a peer that is gone.
	Stream bool
	// Heavy says that a request may take much memory, or all of a disk's time: few of them are served at once.
	Heavy bool
	// MaxBody is how many bytes a body may have; 0 means the server's default, less than 0 any number.
	MaxBody int64
	// Handler serves it.
	Handler http.HandlerFunc
}

// Request is what the server knows of a request.
type Request struct {
	ID        string
	Principal auth.Principal
	// Level is what its writes are to reach; never 0.
	Level holdfast.Level
	// Stopping is closed when the server begins to stop: followers end, and tell their clients to reconnect.
	Stopping <-chan struct{}
	// Err is why the answer is an error, for the server's log. Whoever answers sets it, in the handler's goroutine.
	Err error
}

type key struct{}

// Context is a context with what is known of a request, in one piece with whatever it is a part of.
type Context struct {
	context.Context
	Request *Request

	mu    sync.Mutex
	ended bool
	after []func()
}

// After calls f when the request is answered, in the goroutine that answers it: [context.AfterFunc] would start one.
func (c *Context) After(f func()) {
	c.mu.Lock()
	ended := c.ended
	if !ended {
		c.after = append(c.after, f)
	}
	c.mu.Unlock()
	if ended {
		f()
	}
}

// End is called when the request is answered, once.
func (c *Context) End() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()

	for _, f := range c.after {
		f()
	}
}

// Value implements [context.Context].
func (c *Context) Value(of any) any {
	if of == (key{}) {
		return c.Request
	}

	return c.Context.Value(of)
}

// With puts what is known of a request into its context. The request is answered when ctx ends.
func With(ctx context.Context, r *Request) context.Context {
	c := &Context{Context: ctx, Request: r}
	context.AfterFunc(ctx, c.End)

	return c
}

type leavingKey struct{}

// WithLeaving puts what is Stopping of a request into its context, instead of what is that of the server.
func WithLeaving(ctx context.Context, leaving <-chan struct{}) context.Context {
	return context.WithValue(ctx, leavingKey{}, leaving)
}

// Leaving returns it, nil for none.
func Leaving(ctx context.Context) <-chan struct{} {
	leaving, _ := ctx.Value(leavingKey{}).(<-chan struct{})
	return leaving
}

// From returns it. Outside of a server it is an empty Request.
func From(ctx context.Context) *Request {
	if r, ok := ctx.Value(key{}).(*Request); ok {
		return r
	}

	return new(Request)
}
