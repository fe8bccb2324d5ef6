package page_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// rest serves, over the same stores, the operations of /v1 that package v1 does not have yet.
type rest struct {
	t    *testing.T
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

const in = "/v1/namespaces/{ns}"

func (x *rest) routes() []route.Route {
	get := func(pattern string, role auth.Role, f func(r *http.Request) (any, error)) route.Route {
		return route.Route{Method: "GET", Pattern: pattern, Role: role, Handler: answer(f)}
	}
	with := func(method string, rt route.Route) route.Route { rt.Method = method; return rt }
	return []route.Route{
		get(in+"/subscriptions", auth.Read, x.subscriptions), get(in+"/subscriptions/{name}", auth.Read, x.subscription),
		get(in+"/subscriptions/{name}/parked", auth.Read, x.parked),
		with("POST", get(in+"/subscriptions/{name}/replay", auth.Write, x.globals((*message.Subscription).Replay))),
		with("POST", get(in+"/subscriptions/{name}/discard", auth.Write, x.globals((*message.Subscription).Discard))),
	}
}

func (x *rest) describe(name string) api.Subscription {
	a, s := x.opts[name], x.subs[name]
	i := s.Info()
	a.Name, a.Done, a.Behind, a.Pending = name, i.Done, i.Behind, i.Pending
	list, err := s.Parked(context.Background(), 0, 0)
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
