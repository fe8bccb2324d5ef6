// Package client talks to a Holdfast server over its /v1.
//
//	c, err := client.New("http://127.0.0.1:8080", client.Options{Token: token})
//	orders := c.Namespace("orders")
//	r, err := orders.WriteAfter(ctx, "order-17", message.NoStream, message.Message{Type: "Placed", Data: data})
//	for m, err := range orders.Follow(ctx, message.Query{Category: "order"}) { ... }
//
//	err = c.Update(ctx, func(tx *client.Tx) error { // all of it, or nothing
//		orders.In(tx).WriteAfter("order-17", 0, paid)
//		orders.Tasks().In(tx).Enqueue(task.Spec{Kind: "receipt"})
//		return nil
//	})
//
//	tasks := orders.Tasks() // is what package worker asks for
//	runner, err := worker.New(tasks, &workers, worker.Options{})
//
// Methods take and return the types of the stores, and do what those do, so that a program can move from a store of its
// own to a server.
//
// # Errors
//
// What the server refuses is an [*Error]. errors.Is finds in it the class that the store has: message.ErrConflict,
// task.ErrLeaseLost, holdfast.ErrNotFound; errors.As finds a *message.Conflict or *event.Conflict.
//
// # What is tried again
//
// A call is tried again, after a pause that grows, if the server could not be reached, is starting or stopping, or has
// too much to do, for as long as [Options].Retry says. If the answer is lost, the server may have done what it was
// asked for. Then only that is tried again which does no harm if it is done twice: reads, changes that set something,
// and writes and transactions, whose messages, events and tasks get ids before the first try if they have none, so that
// the server knows them. Anything else ends with an [*Error] whose Unknown is true.
//
// # Concurrency and lifetime
//
// A Client, and what it returns, can be used by many goroutines at once. It has no state but idle connections, and
// needs no closing; the context of a call ends it. A context with [holdfast.WithLevel] names the level of the writes
// under it.
package client

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
)

// Options are how a client works. The zero value is useful where the server needs no token.
type Options struct {
	// Token is sent with each request.
	Token string
	// HTTP makes the requests; nil means a client of its own. Its Timeout must be 0: it would end followers. Redirects
	// are not followed, so that a token goes nowhere else.
	HTTP *http.Client
	// Owners are the hosts to which requests, and with them the token, may go when an answer says that a process there
	// owns the data: of several processes that are one server, one does the work, and the others pass requests on to
	// it. A host is "db1.example.org", "*.example.org", "10.0.0.2", a network as "10.0.0.0/8", or "*" for any. Their
	// scheme is that of the address, and their certificates are checked as those of the address are. Empty means that
	// all requests go to the address.
	Owners []string
	// Level is what writes must survive before they are answered; 0 leaves it to the server. A context may name a
	// stronger one.
	Level holdfast.Level
	// Logger takes retries (Debug), and when followers and claims lose the server (Warn); nil means slog.Default.
	Logger *slog.Logger
	// Retry is for how long a call is tried again; 0 means a minute, less than 0 not at all. Followers, and claims that
	// wait, go on until their contexts end.
	Retry time.Duration
	// Timeout is how long one try may take until the answer is there, beside what it asks the server to wait; 0 means 30
	// seconds. Exports, imports, backups and followers are not limited so.
	Timeout time.Duration
	// MaxResponse is the largest answer that is read, and the largest event of a stream of them, in bytes; 0 means 128
	// MiB. Exports and backups have no limit.
	MaxResponse int64
}

// Defaults of Options.
const (
	defaultRetry       = time.Minute
	defaultTimeout     = 30 * time.Second
	defaultMaxResponse = 128 << 20
)

// Client is a server. All methods may be called from many goroutines at once.
type Client struct {
	base string // without a slash at its end
	http *http.Client
	o    Options
	log  *slog.Logger

	owners *owners

	// Set by tests.
	firstPause, maxPause time.Duration
	silence              time.Duration // after which a stream of events is dead
}

// New makes a client of the server at an address such as "http://127.0.0.1:8080". It does not connect. ErrBadOption:
// the address or an option makes no sense.
func New(address string, o Options) (*Client, error) {
	bad := func(detail, remedy string) (*Client, error) {
		return nil, &holdfast.Error{Op: "client new", Class: holdfast.ErrBadOption, Detail: detail, Remedy: remedy}
	}

	u, err := url.Parse(address)
	switch {
	case err != nil:
		return bad(fmt.Sprintf("the address %q cannot be read", address), "write it as http://HOST:PORT")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return bad(fmt.Sprintf("the address %q is not one of a server", u.Redacted()), "write it as http://HOST:PORT")
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return bad(fmt.Sprintf("the address %q has more than a host and a path", u.Redacted()),
			"the token has an option of its own")
	case o.Level != 0 && !o.Level.Valid():
		return nil, &holdfast.Error{Op: "client new", Class: holdfast.ErrLevel, Detail: o.Level.String()}
	case o.Timeout < 0 || o.MaxResponse < 0:
		return bad("Timeout and MaxResponse are not negative", "")
	case strings.ContainsAny(o.Token, " \t\r\n"):
		return bad("the token has white space in it", "")
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.MaxResponse == 0 {
		o.MaxResponse = defaultMaxResponse
	}
	if o.Retry == 0 {
		o.Retry = defaultRetry
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	owners, err := newOwners(u.Scheme, o.Owners)
	if err != nil {
		return bad(err.Error(), `write "db1", "*.example.org", "10.0.0.0/8", or "*" for any`)
	}
	h := o.HTTP
	if h == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 64 // of one host, and workers are many
		// A machine that has gone is noticed within seconds, also by followers.
		t.DialContext = (&net.Dialer{Timeout: defaultTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true,
			Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 5}}).DialContext
		h = &http.Client{Transport: t}
	}
	own := *h
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	return &Client{base: strings.TrimRight(u.String(), "/"), http: &own, o: o, log: o.Logger.With("server", u.Host),
		owners: owners, firstPause: 100 * time.Millisecond, maxPause: 5 * time.Second, silence: 45 * time.Second}, nil
}

// Address is that of the server.
func (c *Client) Address() string { return c.base }

// CloseIdleConnections closes the connections that are not in use.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Ready reports with nil whether the server serves requests. It tries once, for at most [Options].Timeout, and needs
// no token. The error is an [*Error] also if the server says why it does not, as when it starts or stops.
func (c *Client) Ready(ctx context.Context) error {
	return c.once(ctx, &request{op: "ready", method: "GET", path: "/ready", safe: true}, nil)
}

// Server describes the server: its engine, counters, and what an operator should look at.
func (c *Client) Server(ctx context.Context) (s api.Server, err error) {
	err = c.call(ctx, &request{op: "server", method: "GET", path: "/v1/server", safe: true}, &s)
	return s, err
}

// Nodes says which processes are one server, as the one sees it that is asked.
func (c *Client) Nodes(ctx context.Context) (n api.Nodes, err error) {
	err = c.call(ctx, &request{op: "nodes", method: "GET", path: "/v1/nodes", safe: true}, &n)
	return n, err
}

// MoveNamespace moves a namespace to another space of several processes that are one server. Meanwhile requests for it
// wait, or come again. The token needs the role admin for all namespaces.
func (c *Client) MoveNamespace(ctx context.Context, id string, space int) error {
	return c.call(ctx, &request{op: "move namespace", method: "POST", path: "/v1/nodes/move",
		body: api.Move{Namespace: id, Space: space}, safe: true, long: true}, nil)
}

// Verify reads everything that the server has stored, and checks it: ctx alone limits how long that takes. Damage that
// is found is in the result and is no error. The token needs the role admin for all namespaces.
func (c *Client) Verify(ctx context.Context) (v api.Verified, err error) {
	err = c.call(ctx, &request{op: "verify", method: "POST", path: "/v1/server/verify", safe: true, long: true}, &v)
	return v, err
}

// Compact lets the engine give back the space of what was removed, and returns when it is done: ctx alone limits how
// long that takes. The server serves others meanwhile. The token needs the role admin for all namespaces.
func (c *Client) Compact(ctx context.Context) error {
	return c.call(ctx, &request{op: "compact", method: "POST", path: "/v1/server/compact", safe: true, long: true}, nil)
}

// Backup writes a copy of all that the server has, at one moment, to w: a tar archive of a directory that opens like
// any other. An error, ctx's too, can leave w with a part of it, which is of no use. It is not tried again.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	return c.download(ctx, &request{op: "backup", method: "GET", path: "/v1/server/backup"}, w)
}

// Namespaces describes all namespaces, in the order of their ids. The token needs the role admin for all of them.
func (c *Client) Namespaces(ctx context.Context) (list []api.Namespace, err error) {
	err = pages(ctx, c, &request{op: "namespaces", method: "GET", path: "/v1/namespaces", safe: true}, "", 0,
		func(n *api.Namespace) (after string) {
			list = append(list, *n)
			return n.ID
		})

	return list, err
}

// CreateNamespace makes a namespace; its token is in the result, and told only here. If the answer is lost it is not
// tried again, because the token would be lost. message.ErrNamespaceExists: there is one of that id.
func (c *Client) CreateNamespace(ctx context.Context, n api.NewNamespace) (made api.Namespace, err error) {
	err = c.call(ctx, &request{op: "create namespace", method: "POST", path: "/v1/namespaces", body: n}, &made)
	return made, err
}

// DeleteNamespace deletes a namespace and all that is in it, and returns how many messages there were. If the answer is
// lost it is tried again; message.ErrNoNamespace with [Error].Unknown then means that it is deleted.
func (c *Client) DeleteNamespace(ctx context.Context, id string) (removed int64, err error) {
	var r api.Removed
	err = c.call(ctx, &request{op: "delete namespace", method: "DELETE", path: path("/v1/namespaces/%s", id), safe: true},
		&r)

	return r.Removed, err
}

// Token describes the token that the client has.
func (c *Client) Token(ctx context.Context) (t api.Token, err error) {
	err = c.call(ctx, &request{op: "token", method: "GET", path: "/v1/token", safe: true}, &t)
	return t, err
}

// Tokens describes the tokens of a namespace, or all that the client may see if it is "".
func (c *Client) Tokens(ctx context.Context, namespace string) (list []api.Token, err error) {
	q := url.Values{}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	err = c.call(ctx, &request{op: "tokens", method: "GET", path: "/v1/tokens", query: q, safe: true}, &list)

	return list, err
}

// CreateToken makes a token; its secret is in the result, and told only here. If the answer is lost it is not tried
// again; Tokens then shows whether there is a token that nobody knows.
func (c *Client) CreateToken(ctx context.Context, t api.NewToken) (made api.Token, err error) {
	err = c.call(ctx, &request{op: "create token", method: "POST", path: "/v1/tokens", body: t}, &made)
	return made, err
}

// RevokeToken removes a token. ErrNotFound: there is none with that id; with [Error].Unknown it was revoked by a try
// whose answer was lost.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.call(ctx, &request{op: "revoke token", method: "DELETE", path: path("/v1/tokens/%s", id), safe: true}, nil)
}

// Namespace is a namespace of the server: messages, and, by Log and Tasks, all else that is in it. That there is none
// with that id, the first call tells.
func (c *Client) Namespace(id string) *Namespace {
	return &Namespace{c: c, id: id, path: path("/v1/namespaces/%s", id)}
}

// path makes a path of a format and the texts that are parts of it.
func path(format string, parts ...any) string {
	for i, p := range parts {
		parts[i] = segment(fmt.Sprint(p))
	}

	return fmt.Sprintf(format, parts...)
}

// segment escapes a text so that it is one segment of a path. It is empty, and the request refused, if the text cannot
// be one.
func segment(text string) string {
	if !api.Addressable(text) {
		return ""
	}

	return url.PathEscape(text)
}
