// Package ebuse serves the HTTP API of ebuse, the server for events of the bus github.com/jilio/ebu v0.8.0, on logs of
// events: each namespace's log "events" is what ebuse calls a tenant. The key of a request, in X-API-Key or
// Authorization, is a token of the namespace; a token that is good for all of them stands for the default one.
//
// Where ebuse fails without a word, this says so: an empty batch is a 400 and not a closed connection, a stream that
// breaks off is cut and never ends as if it were whole, and a subscription cannot be saved ahead of the log, nor
// without a position. Bodies are valid UTF-8 and one JSON value; what follows it is refused, and so is a field that is
// there twice.
//
// The events are kept as package eventbus keeps them, so a program that embeds that log under a newer bus reads them,
// too. Subscriptions are the offsets of the log.
package ebuse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// Log is the name of the log that a namespace's events are in.
const Log = "events"

// Prefix is what all routes are served under, too: for programs that are told a base URL, where another API has the
// same path.
const Prefix = "/ebuse"

const (
	maxBatch = 1000   // events of a POST to /events/batch
	maxPage  = 10_000 // events of a GET of /events that does not say where it ends

	maxPageBytes = 16 << 20 // of their data, unless one event alone has more
)

// Options are how the API is served.
type Options struct {
	// Health returns why the server cannot do its work, nil if it can. nil means that it always can.
	Health func(context.Context) error
}

// Routes are the routes of the API: without prefix those that no other API has, and below Prefix all. The rest without
// prefix, /health and /metrics, is the server's to share out; see Health and Metrics.
func Routes(d *data.Data, o Options) []route.Route {
	s := server{d}
	paths := []struct {
		path     string
		get      http.HandlerFunc
		put      http.HandlerFunc
		stream   bool
		compress bool
		methods  []string // that put serves
	}{
		{path: "/events", get: s.events, put: s.save, stream: true, compress: true, methods: posts},
		{path: "/events/batch", put: s.saveBatch, compress: true, methods: posts},
		{path: "/events/stream", get: s.stream, stream: true, compress: true},
		{path: "/position", get: s.position},
		{path: "/subscriptions/{id}/position", get: s.subscription, put: s.saveSubscription, methods: putsAndPosts},
	}
	var list []route.Route

	add := func(method, pattern string, role auth.Role, h http.HandlerFunc) *route.Route {
		list = append(list, route.Route{Method: method, Pattern: pattern, Role: role, Namespace: namespace,
			Credentials: Credentials, Deny: Deny, Handler: h})
		return &list[len(list)-1]
	}
	for _, prefix := range []string{"", Prefix} {
		for _, p := range paths {
			pattern, wrap := prefix+p.path, func(h http.HandlerFunc) http.HandlerFunc { return h }
			if p.compress {
				wrap = compressed
			}
			allow := p.methods
			if p.get != nil {
				add(http.MethodGet, pattern, auth.Read, wrap(p.get)).Stream = p.stream
				allow = append([]string{http.MethodGet}, allow...)
			}

			for _, m := range p.methods {
				add(m, pattern, auth.Write, wrap(p.put))
			}
			add("", pattern, auth.Read, wrap(otherMethod(allow)))
		}

		for _, pattern := range []string{"/subscriptions", "/subscriptions/"} {
			add("", prefix+pattern, auth.Read, func(w http.ResponseWriter, r *http.Request) {
				refuse(w, http.StatusBadRequest, "Invalid path")
			})
		}
		add("", prefix+"/tenants", auth.Read, s.tenants)
	}
	add("", Prefix+"/metrics", auth.Read, Metrics(d))
	list = append(list, route.Route{Pattern: Prefix + "/health", Deny: Deny, Handler: Health(o)})

	return list
}

var (
	posts        = []string{http.MethodPost}
	putsAndPosts = []string{http.MethodPost, http.MethodPut}
)

// otherMethod answers methods that a path does not have. HEAD is one of them.
func otherMethod(allow []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		refuse(w, http.StatusMethodNotAllowed, "Method not allowed")
	}
}

// namespace is the tenant of a request: the namespace of its token.
func namespace(_ *http.Request, p auth.Principal) string {
	if p.Namespace == auth.Everywhere {
		return message.Default
	}

	return p.Namespace
}

func tenant(r *http.Request) string { return namespace(r, route.From(r.Context()).Principal) }

// Credentials is the key of a request: that of X-API-Key, or else of Authorization, with or without Bearer.
func Credentials(r *http.Request) string {
	if key := r.Header.Get("X-API-Key"); key != "" {
		return key
	}

	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// Deny answers a request that was refused before it was served, as ebuse does: in plain text.
func Deny(w http.ResponseWriter, r *http.Request, err error) {
	switch p := problem.Of(problem.For(r.Context(), err)); {
	case errors.Is(err, auth.ErrNoToken):
		refuse(w, p.Status, "API key required")
	case p.Code == api.CodeUnauthorized:
		refuse(w, p.Status, "Invalid API key")
	case p.Code == api.CodeTooMany:
		refuse(w, p.Status, "Rate limit exceeded")
	default:
		refuse(w, p.Status, p.Detail)
	}
}

// refuse answers with a text.
func refuse(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")

	switch status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may have disconnected
}

// fail answers with an error, and logs it.
func fail(w http.ResponseWriter, r *http.Request, what string, err error) {
	err = problem.For(r.Context(), err)
	route.From(r.Context()).Err = err
	p := problem.Of(err)
	refuse(w, p.Status, what+": "+p.Detail)
}

// answer answers with JSON.
func answer(w http.ResponseWriter, r *http.Request, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		fail(w, r, "Failed to encode the answer", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client may have disconnected
}

// Health serves GET /health, without a key.
func Health(o Options) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if o.Health != nil {
			if err := o.Health(r.Context()); err != nil {
				text, _ := json.Marshal(struct {
					Status string `json:"status"`
					Error  string `json:"error"`
				}{"unhealthy", problem.Of(err).Detail})
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = w.Write(append(text, '\n'))

				return
			}
		}
		_, _ = w.Write([]byte(`{"status":"healthy"}` + "\n"))
	}
}

// Metrics serves GET /metrics as JSON. Its route needs the credentials and the namespace of the others.
func Metrics(d *data.Data) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		log, err := d.Log(r.Context(), tenant(r), Log)
		if err != nil {
			fail(w, r, "Failed to open the log", err)
			return
		}
		answer(w, r, struct {
			Tenant string `json:"tenant"`
			Total  uint64 `json:"total_events"`
			Time   int64  `json:"timestamp"`
		}{tenant(r), log.Last(), time.Now().Unix()})
	}
}

// server serves the API.
type server struct{ d *data.Data }

// log returns the tenant's log. If it cannot, it has answered.
func (s server) log(w http.ResponseWriter, r *http.Request) *event.Store {
	log, err := s.d.Log(r.Context(), tenant(r), Log)
	if err != nil {
		fail(w, r, "Failed to open the log", err)
		return nil
	}

	return log
}

func (s server) tenants(w http.ResponseWriter, r *http.Request) {
	names := []string{}
	if p := route.From(r.Context()).Principal; p.May(auth.Admin, auth.Everywhere) {
		list, err := s.d.Namespaces(r.Context(), "", 0)
		if err != nil {
			fail(w, r, "Failed to list the namespaces", err)
			return
		}

		for _, info := range list {
			names = append(names, info.ID)
		}
	} else {
		names = append(names, tenant(r))
	}
	answer(w, r, struct {
		Tenants []string `json:"tenants"`
		Count   int      `json:"count"`
	}{names, len(names)})
}

func (s server) save(w http.ResponseWriter, r *http.Request) {
	body, ok := read(w, r)
	if !ok {
		return
	}
	e, err := decodeEvent(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "Invalid request body: "+err.Error())
		return
	}
	log := s.log(w, r)
	if log == nil {
		return
	}
	at, err := log.Append(r.Context(), e.Stored())
	if err != nil {
		fail(w, r, "Failed to save event", err)
		return
	}
	e.Position = int64(at.First)
	line, err := e.append(make([]byte, 0, len(body)+64))
	if err != nil {
		fail(w, r, "Failed to encode the answer", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(line, '\n'))
}

func (s server) saveBatch(w http.ResponseWriter, r *http.Request) {
	body, ok := read(w, r)
	if !ok {
		return
	}
	list, err := decodeBatch(body)

	var refused refusal
	switch {
	case errors.As(err, &refused):
		refuse(w, http.StatusBadRequest, err.Error())
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, "Invalid request body: "+err.Error())
		return
	}
	log := s.log(w, r)
	if log == nil {
		return
	}
	at, err := log.Append(r.Context(), list...)
	if err != nil {
		fail(w, r, "Failed to save batch", err)
		return
	}
	answer(w, r, struct {
		First uint64 `json:"first_position"`
		Last  uint64 `json:"last_position"`
		Saved int    `json:"saved"`
	}{at.First, at.Last, len(list)})
}

// events serves GET /events.
func (s server) events(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		otherMethod([]string{http.MethodGet, http.MethodPost})(w, r)
		return
	}
	from, ok := number(w, r, "from")
	if !ok {
		return
	}
	to := int64(-1)
	if r.URL.Query().Get("to") != "" {
		if to, ok = number(w, r, "to"); !ok {
			return
		}
	}
	limit := 0
	if to == -1 {
		limit, to = maxPage, 1<<63-1
	}
	s.write(w, r, from, to, limit, 0)
}

// stream serves GET /events/stream.
func (s server) stream(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		otherMethod([]string{http.MethodGet})(w, r)
		return
	}
	from, ok := number(w, r, "from")
	if !ok {
		return
	}
	batch, err := strconv.Atoi(r.URL.Query().Get("batch_size"))
	if err != nil || batch < 1 || batch > 5000 {
		batch = 1000
	}
	s.write(w, r, from, 1<<63-1, 0, batch)
}

// flushAt is how much of an answer is kept back at most.
const flushAt = 64 << 10

// buffers are of answers, to be used again.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// write answers with the events of positions from to to, as one JSON array: at most limit of them, and maxPageBytes, or
// all with a limit of 0. With a batch, it is flushed after so many events. What is in memory is the buffer and one
// event. An error in the midst of it cuts the connection: the client must not take a part for the whole.
func (s server) write(w http.ResponseWriter, r *http.Request, from, to int64, limit, batch int) {
	log := s.log(w, r)
	if log == nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	room := buffers.Get().(*[]byte)
	buf := append((*room)[:0], '[')
	defer func() {
		if cap(buf) <= 4*flushAt {
			*room = buf
			buffers.Put(room)
		}
	}()
	started, n, size := false, 0, 0
	send := func() (ok bool) {
		if !started && batch > 0 {
			w.WriteHeader(http.StatusOK) // chunked even if it is short
		}
		started = true
		_, err := w.Write(buf)
		if err == nil && batch > 0 {
			err = http.NewResponseController(w).Flush()
		}
		if buf = buf[:0]; cap(buf) > 4*flushAt {
			buf = nil
		}

		return err == nil || errors.Is(err, http.ErrNotSupported)
	}
	broken := func(err error) {
		if started {
			route.From(r.Context()).Err = err
			panic(http.ErrAbortHandler)
		}
		fail(w, r, "Failed to load events", err)
	}

	next, end := uint64(max(from, 0)), min(uint64(max(to, 0)), log.Last())
	for again := true; again; {
		again = false
		if next = max(next, log.First()); next > end {
			break
		}

		for record, err := range log.Records(r.Context(), next, max(limit-n, 0)) {
			if errors.Is(err, event.ErrTruncated) {
				again = true // in between: it goes on where the log begins now
				break
			}
			if err != nil {
				broken(err)
				return
			}
			if record.Position > end {
				break
			}
			if size += len(record.Data); limit > 0 && n > 0 && size > maxPageBytes {
				break
			}
			if n > 0 {
				buf = append(buf, ',')
			}
			e := FromRecord(record)
			if buf, err = e.append(buf); err != nil {
				broken(err)
				return
			}
			next = record.Position + 1
			if n++; n == limit {
				break
			}
			if (len(buf) >= flushAt || batch > 0 && n%batch == 0) && !send() {
				return // the client has disconnected
			}
		}
	}
	buf = append(buf, ']', '\n')
	if !started && batch == 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(buf))) // which saves net/http chunks, and a write
	}
	send()
}

func (s server) position(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		otherMethod([]string{http.MethodGet})(w, r)
		return
	}
	if log := s.log(w, r); log != nil {
		answer(w, r, position{int64(log.Last())})
	}
}

type position struct {
	Position int64 `json:"position"`
}

func (s server) subscription(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		otherMethod([]string{http.MethodGet, http.MethodPost, http.MethodPut})(w, r)
		return
	}
	id, ok := subscriptionID(w, r)
	if !ok {
		return
	}
	log := s.log(w, r)
	if log == nil {
		return
	}
	at, err := log.LoadOffset(r.Context(), id)
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		fail(w, r, "Failed to load subscription position", err)
		return
	}
	answer(w, r, position{int64(at)})
}

func (s server) saveSubscription(w http.ResponseWriter, r *http.Request) {
	id, ok := subscriptionID(w, r)
	if !ok {
		return
	}
	body, ok := read(w, r)
	if !ok {
		return
	}
	type position struct {
		Position *int64 `json:"position"` // taken as 0, one that is missing would begin anew
	}
	var p position
	err := unmarshal(body, &p)
	switch {
	case err != nil:
	case p.Position == nil:
		err = errors.New("the position is missing")
	case *p.Position < 0:
		err = errors.New("the position is negative")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "Invalid request body: "+err.Error())
		return
	}
	log := s.log(w, r)
	if log == nil {
		return
	}
	if err := log.SaveOffset(r.Context(), id, uint64(*p.Position)); err != nil {
		fail(w, r, "Failed to save subscription position", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// subscriptionID is the id in the path.
func subscriptionID(w http.ResponseWriter, r *http.Request) (string, bool) {
	id := r.PathValue("id")
	if len(id) < 1 || len(id) > event.MaxIDSize {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("Invalid path: the subscription's id has %d bytes; it may have 1 to %d",
			len(id), event.MaxIDSize))
		return "", false
	}

	return id, true
}

// number returns a parameter of the query.
func number(w http.ResponseWriter, r *http.Request, name string) (int64, bool) {
	n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64)
	if err != nil {
		refuse(w, http.StatusBadRequest, "Invalid '"+name+"' parameter")
	}

	return n, err == nil
}

// read returns the body of a request. If it cannot, it has answered.
func read(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	var body bytes.Buffer
	if n := r.ContentLength; n > 0 && n <= 64<<10 {
		body.Grow(int(n) + bytes.MinRead) // for all of it at once
	}
	if _, err := body.ReadFrom(r.Body); err != nil {
		fail(w, r, "Invalid request body", fmt.Errorf("%w: %w", err, problem.ErrBadRequest))
		return nil, false
	}

	return body.Bytes(), true
}
