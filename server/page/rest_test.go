package page_test

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// rest serves, over the same stores, the operations of /v1 that package v1 does not have yet.
type rest struct {
	t       *testing.T
	d       *data.Data
	tokens  *auth.Tokens
	dir     string
	started time.Time

	mu   sync.Mutex
	subs map[string]*message.Subscription
	opts map[string]api.Subscription
}

// answer makes a handler of a function; nil is 204.
func answer(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		switch {
		case err != nil:
			problem.Write(w, r, err)
		case v == nil:
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v)
		}
	}
}

func body[T any](r *http.Request) (v T, err error) {
	if err := json.NewDecoder(r.Body).Decode(&v); err != nil {
		return v, problem.BadRequest("%v", err)
	}
	return v, nil
}

func number(r *http.Request, name string, other int64) int64 {
	if n, err := strconv.ParseInt(r.URL.Query().Get(name), 10, 64); err == nil {
		return n
	}
	return other
}

// own is the namespace of the request's token.
func own(_ *http.Request, p auth.Principal) string { return p.Namespace }

const in = "/v1/namespaces/{ns}"

func (x *rest) routes() []route.Route {
	get := func(pattern string, role auth.Role, f func(r *http.Request) (any, error)) route.Route {
		return route.Route{Method: "GET", Pattern: pattern, Role: role, Handler: answer(f)}
	}
	with := func(method string, rt route.Route) route.Route { rt.Method = method; return rt }
	about := func(n func(*http.Request, auth.Principal) string, rt route.Route) route.Route {
		rt.Namespace = n
		return rt
	}
	return slices.Concat([]route.Route{
		get("/v1/server", auth.Read, x.server), {Method: "GET", Pattern: "/v1/server/backup", Role: auth.Admin, Handler: x.backup},
		{Method: "GET", Pattern: "/v1/metrics", Role: auth.Read, Handler: x.metrics},
		with("POST", get("/v1/server/verify", auth.Admin, x.verify)),
		get("/v1/namespaces", auth.Admin, x.namespaces), with("POST", get("/v1/namespaces", auth.Admin, x.newNamespace)),
		get(in, auth.Read, func(r *http.Request) (any, error) { return x.namespace(r, r.PathValue("ns")) }),
		about(func(*http.Request, auth.Principal) string { return "*" }, with("DELETE", get(in, auth.Admin, x.deleteNamespace))),
		about(own, get("/v1/token", auth.Read, x.token)),
		about(own, get("/v1/tokens", auth.Admin, x.listTokens)), about(own, with("POST", get("/v1/tokens", auth.Admin, x.newToken))),
		about(own, with("DELETE", get("/v1/tokens/{id}", auth.Admin, func(r *http.Request) (any, error) {
			return nil, x.tokens.Revoke(r.Context(), r.PathValue("id"))
		}))),
		get(in+"/categories", auth.Read, x.categories), get(in+"/streams", auth.Read, x.streams),
		get(in+"/streams/{stream}", auth.Read, x.stream), get(in+"/streams/{stream}/retention", auth.Read, x.retention),
		get(in+"/subscriptions", auth.Read, x.subscriptions), get(in+"/subscriptions/{name}", auth.Read, x.subscription),
		get(in+"/subscriptions/{name}/parked", auth.Read, x.parked),
		with("POST", get(in+"/subscriptions/{name}/replay", auth.Write, x.globals((*message.Subscription).Replay))),
		with("POST", get(in+"/subscriptions/{name}/discard", auth.Write, x.globals((*message.Subscription).Discard))),
		get(in+"/logs", auth.Read, x.logs), get(in+"/logs/{log}", auth.Read, x.log), get(in+"/logs/{log}/events", auth.Read, x.events),
		{Method: "GET", Pattern: in + "/logs/{log}/events/follow", Role: auth.Read, Stream: true, Handler: x.followEvents},
		get(in+"/tasks", auth.Read, x.tasks), get(in+"/tasks/{id}", auth.Read, x.task),
		with("DELETE", get(in+"/tasks/{id}", auth.Write, x.onTask((*task.Store).Delete))),
		with("POST", get(in+"/tasks/{id}/cancel", auth.Write, x.onTask((*task.Store).Cancel))),
		with("POST", get(in+"/tasks/{id}/retry", auth.Write, x.onTask((*task.Store).Retry))),
		get(in+"/queues", auth.Read, x.queues), get(in+"/queues/{queue}", auth.Read, x.queue),
		with("POST", get(in+"/queues/{queue}/pause", auth.Write, x.onQueue((*task.Store).Pause))),
		with("POST", get(in+"/queues/{queue}/resume", auth.Write, x.onQueue((*task.Store).Resume))),
		with("POST", get(in+"/queues/{queue}/retry", auth.Write, x.retryAll)),
	})
}

func (x *rest) server(*http.Request) (any, error) {
	e := x.d.Engine()
	m, c := e.Metrics(), e.Capabilities()
	s := api.Server{Version: "test", Started: x.started, Engine: c.Engine, Level: x.d.Level().String(), Ready: m.Poison == nil,
		LossMS: c.LossWindow.Milliseconds(), Caveats: c.Caveats, Settings: []api.Setting{}, Namespaces: 2,
		Counters: api.Counters{Commits: m.Commits, Groups: m.Groups, Syncs: m.Syncs, BytesWritten: m.BytesWritten,
			DiskBytes: m.DiskBytes, Files: m.Files, MemoryBytes: m.MemoryBytes, Stalls: m.Stalls}}
	for _, set := range c.Settings {
		s.Settings = append(s.Settings, api.Setting{Name: set.Name, Value: set.Value})
	}
	return s, nil
}

func (x *rest) metrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	m := x.d.Engine().Metrics()
	fmt.Fprintf(w, "holdfast_commits_total %d\nholdfast_syncs_total %d\n", m.Commits, m.Syncs)
}

// backup sends a copy as a tar file.
func (x *rest) backup(w http.ResponseWriter, r *http.Request) {
	dir, err := os.MkdirTemp(x.dir, "backup")
	if err == nil {
		defer os.RemoveAll(dir)
		_, err = all.Backup(r.Context(), x.d.Engine(), filepath.Join(dir, "copy"))
	}
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-tar")
	t := tar.NewWriter(w)
	if err := errors.Join(t.AddFS(os.DirFS(filepath.Join(dir, "copy"))), t.Close()); err != nil {
		x.t.Error(err)
	}
}

func (x *rest) verify(*http.Request) (any, error) {
	v := api.Verified{Problems: []string{}}
	it := x.d.Engine().Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		v.Keys++
		v.Bytes += int64(len(it.Key()) + len(it.Value()))
	}
	return v, it.Err()
}

func (x *rest) namespace(r *http.Request, id string) (n api.Namespace, err error) {
	info, err := x.d.Messages().Info(r.Context(), id)
	if err != nil {
		return n, err
	}
	space, err := x.d.Messages().Namespace(r.Context(), id)
	if err != nil {
		return n, err
	}
	counts, err := space.Count(r.Context(), "")
	return api.Namespace{ID: id, Description: info.Description, Created: info.Created, Messages: counts.Messages,
		Streams: counts.Streams}, err
}

func (x *rest) namespaces(r *http.Request) (any, error) {
	list := []api.Namespace{}
	infos, err := x.d.Messages().Namespaces(r.Context(), "", 0)
	for _, i := range infos {
		n, err := x.namespace(r, i.ID)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, err
}

func (x *rest) newNamespace(r *http.Request) (any, error) {
	n, err := body[api.NewNamespace](r)
	if err != nil {
		return nil, err
	}
	if n.ID == "" {
		return nil, problem.BadRequest("a namespace needs an id")
	}
	secret := auth.NewNamespaceSecret(n.ID)
	if _, err := x.d.Messages().Create(r.Context(), message.NamespaceOptions{ID: n.ID, Description: n.Description,
		Token: secret}); err != nil {
		return nil, err
	}
	made, err := x.namespace(r, n.ID)
	made.Token = secret
	return made, err
}

func (x *rest) deleteNamespace(r *http.Request) (any, error) {
	n, err := x.d.Messages().Delete(r.Context(), r.PathValue("ns"))
	return api.Removed{Removed: n}, err
}

func (x *rest) token(r *http.Request) (any, error) {
	p := route.From(r.Context()).Principal
	return api.Token{ID: p.TokenID, Namespace: p.Namespace, Role: p.Role.String()}, nil
}

func fromToken(t auth.Token) api.Token {
	a := api.Token{ID: t.ID, Namespace: t.Namespace, Role: t.Role.String(), Description: t.Description, Created: t.Created}
	if !t.Expires.IsZero() {
		a.Expires = &t.Expires
	}
	return a
}

func (x *rest) listTokens(r *http.Request) (any, error) {
	list := []api.Token{}
	tokens, err := x.tokens.List(r.Context(), r.URL.Query().Get("namespace"))
	for _, t := range tokens {
		list = append(list, fromToken(t))
	}
	return list, err
}

func (x *rest) newToken(r *http.Request) (any, error) {
	n, err := body[api.NewToken](r)
	if err != nil {
		return nil, err
	}
	role, _ := auth.ParseRole(n.Role)
	t := auth.Token{Namespace: n.Namespace, Role: role, Description: n.Description}
	if n.Expires != nil {
		t.Expires = *n.Expires
	}
	t, secret, err := x.tokens.Create(r.Context(), t)
	made := fromToken(t)
	made.Secret = secret
	return made, err
}

func (x *rest) space(r *http.Request) (*message.Namespace, error) {
	return x.d.Messages().Namespace(r.Context(), r.PathValue("ns"))
}

func (x *rest) categories(r *http.Request) (any, error) {
	n, err := x.space(r)
	if err != nil {
		return nil, err
	}
	list := []api.Category{}
	infos, err := n.Categories(r.Context())
	for _, c := range infos {
		list = append(list, api.Category{Category: c.Category, Messages: c.Messages, Streams: c.Streams})
	}
	return list, err
}

func (x *rest) streams(r *http.Request) (any, error) {
	n, err := x.space(r)
	if err != nil {
		return nil, err
	}
	list := []api.Stream{}
	q := r.URL.Query()
	infos, err := n.Streams(r.Context(), q.Get("prefix"), q.Get("after"), int(number(r, "limit", 100)))
	for _, s := range infos {
		list = append(list, api.Stream{Stream: s.Stream, Version: s.Version, Last: s.Last})
	}
	return list, err
}

func (x *rest) stream(r *http.Request) (any, error) {
	n, err := x.space(r)
	if err != nil {
		return nil, err
	}
	m, err := n.LastMessage(r.Context(), r.PathValue("stream"), "")
	return api.Stream{Stream: r.PathValue("stream"), Version: m.Position, Last: m.Time}, err
}

func (x *rest) retention(r *http.Request) (any, error) {
	n, err := x.space(r)
	if err != nil {
		return nil, err
	}
	kept, err := n.Retention(r.Context(), r.PathValue("stream"))
	return api.FromRetention(kept), err
}

func (x *rest) describe(name string) api.Subscription {
	a, s := x.opts[name], x.subs[name]
	i := s.Info()
	a.Name, a.Done, a.Behind, a.Pending = name, i.Done, i.Behind, i.Pending
	list, err := s.Parked(x.t.Context(), 0, 0)
	if err != nil {
		x.t.Error(err)
	}
	a.Parked = len(list)
	return a
}

func (x *rest) sub(r *http.Request) (*message.Subscription, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, ok := x.subs[r.PathValue("name")]
	if !ok || r.PathValue("ns") != message.Default {
		return nil, &holdfast.Error{Class: holdfast.ErrNotFound, Detail: "there is no such subscription"}
	}
	return s, nil
}

func (x *rest) subscriptions(r *http.Request) (any, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	list := []api.Subscription{}
	for name := range x.subs {
		if r.PathValue("ns") == message.Default {
			list = append(list, x.describe(name))
		}
	}
	return list, nil
}

func (x *rest) subscription(r *http.Request) (any, error) {
	if _, err := x.sub(r); err != nil {
		return nil, err
	}
	return x.describe(r.PathValue("name")), nil
}

func (x *rest) parked(r *http.Request) (any, error) {
	s, err := x.sub(r)
	if err != nil {
		return nil, err
	}
	list := []api.ParkedMessage{}
	parked, err := s.Parked(r.Context(), number(r, "after", 0), int(number(r, "limit", 100)))
	for _, p := range parked {
		list = append(list, api.ParkedMessage{Message: api.FromMessage(&p.Message), Attempts: p.Attempts, Reason: p.Reason, At: p.At})
	}
	return list, err
}

func (x *rest) globals(f func(*message.Subscription, ctx, ...int64) (int, error)) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		s, err := x.sub(r)
		if err != nil {
			return nil, err
		}
		g, err := body[api.Globals](r)
		if err != nil {
			return nil, err
		}
		n, err := f(s, r.Context(), g.Globals...)
		return api.Counted{Count: n}, err
	}
}

func (x *rest) logs(r *http.Request) (any, error) {
	list := []api.Log{}
	infos, err := event.Logs(r.Context(), x.d.Engine())
	if err != nil {
		return nil, err
	}
	for _, i := range infos {
		name := i.Name
		if ns := r.PathValue("ns"); ns != message.Default {
			var ok bool
			if name, ok = strings.CutPrefix(name, ns+"/"); !ok {
				continue
			}
		}
		if i.Owner == "" && !strings.Contains(name, "/") {
			l, err := x.aLog(r, name)
			if err != nil {
				return nil, err
			}
			list = append(list, l)
		}
	}
	return list, nil
}

func (x *rest) aLog(r *http.Request, name string) (l api.Log, err error) {
	s, err := x.d.Log(r.Context(), r.PathValue("ns"), name)
	if err != nil {
		return l, err
	}
	subs, err := s.Subscriptions(r.Context())
	return api.Log{Name: name, First: s.First(), Last: s.Last(), Subscriptions: api.FromCursors(subs)}, err
}

func (x *rest) log(r *http.Request) (any, error) { return x.aLog(r, r.PathValue("log")) }

func (x *rest) events(r *http.Request) (any, error) {
	s, err := x.d.Log(r.Context(), r.PathValue("ns"), r.PathValue("log"))
	if err != nil {
		return nil, err
	}
	from := uint64(number(r, "from", 1))
	list, err := s.Read(r.Context(), from, int(number(r, "limit", 100)))
	page := api.Events{Events: []api.Event{}, Next: from + uint64(len(list))}
	for _, e := range list {
		page.Events = append(page.Events, api.FromEvent(&e))
	}
	return page, err
}

func (x *rest) followEvents(w http.ResponseWriter, r *http.Request) {
	s, err := x.d.Log(r.Context(), r.PathValue("ns"), r.PathValue("log"))
	if err != nil {
		problem.Write(w, r, err)
		return
	}
	from := uint64(number(r, "from", 1))
	if last, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		from = last
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for e, err := range s.Follow(r.Context(), from) {
		if err != nil {
			return
		}
		text, _ := json.Marshal(api.FromEvent(&e))
		fmt.Fprintf(w, "id: %d\nevent: event\ndata: %s\n\n", e.Position+1, text)
		_ = flush()
	}
}

func (x *rest) store(r *http.Request) (*task.Store, error) {
	return x.d.Tasks(r.Context(), r.PathValue("ns"))
}

func (x *rest) tasks(r *http.Request) (any, error) {
	s, err := x.store(r)
	if err != nil {
		return nil, err
	}
	q := r.URL.Query()
	f := task.Filter{Queue: q.Get("queue"), Cursor: q.Get("cursor"), Limit: int(number(r, "limit", 100))}
	if q.Get("state") != "" {
		if f.State, err = task.ParseState(q.Get("state")); err != nil {
			return nil, err
		}
	}
	list, next, err := s.List(r.Context(), f)
	page := api.Tasks{Tasks: []api.Task{}, Next: next}
	for _, t := range list {
		page.Tasks = append(page.Tasks, api.FromTask(&t))
	}
	return page, err
}

func (x *rest) task(r *http.Request) (any, error) {
	s, err := x.store(r)
	if err != nil {
		return nil, err
	}
	t, err := s.Get(r.Context(), r.PathValue("id"))
	return api.FromTask(&t), err
}

func (x *rest) onTask(f func(*task.Store, ctx, string) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		s, err := x.store(r)
		if err != nil {
			return nil, err
		}
		return nil, f(s, r.Context(), r.PathValue("id"))
	}
}

func (x *rest) onQueue(f func(*task.Store, ctx, string) error) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		s, err := x.store(r)
		if err != nil {
			return nil, err
		}
		return nil, f(s, r.Context(), r.PathValue("queue"))
	}
}

func (x *rest) queues(r *http.Request) (any, error) {
	s, err := x.store(r)
	if err != nil {
		return nil, err
	}
	list := []api.Queue{}
	infos, err := s.Queues(r.Context())
	for _, q := range infos {
		list = append(list, api.FromQueue(q))
	}
	return list, err
}

func (x *rest) queue(r *http.Request) (any, error) {
	s, err := x.store(r)
	if err != nil {
		return nil, err
	}
	q, err := s.Queue(r.Context(), r.PathValue("queue"))
	return api.FromQueue(q), err
}

func (x *rest) retryAll(r *http.Request) (any, error) {
	s, err := x.store(r)
	if err != nil {
		return nil, err
	}
	n, err := s.RetryAll(r.Context(), r.PathValue("queue"))
	return api.Counted{Count: n}, err
}
