package server

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/eventodb"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// What follows is said once more, independently of the routes: a route that is new must be found here if anybody may
// have it, or if it says itself which namespace it is about.
var (
	open = []string{"/health", "/ready", "/version", "GET /openapi.json", "GET /openapi.yaml", "GET /{$}", "GET /page",
		"GET /page/", "GET /page/{file...}", "/ebuse/health"}
	// of the token's own namespace
	own = []string{
		"/rpc",
		"/subscribe",
		"/import",
		"GET /v1/token",
		"POST /v1/tokens",
		"DELETE /v1/tokens/{id}",
		"/metrics",
		"POST /v1/transactions", // it asks for the namespaces of its operations by itself
	}
	// of all namespaces, though there is one in the path, or in what the request asks for
	everywhere = []string{"DELETE /v1/namespaces/{ns}", "GET /v1/tokens"}
)

// may says what tokens of each role may do.
var may = map[auth.Role][]auth.Role{
	auth.Read:  {auth.Read},
	auth.Query: {auth.Read, auth.Query},
	auth.Write: {auth.Read, auth.Write},
	auth.Admin: {auth.Read, auth.Query, auth.Write, auth.Admin},
}

// scope is what namespace a request to a route is about, if its {ns} is "one": "" for that of the token.
func scope(t *testing.T, name string, rt route.Route) string {
	path := strings.TrimPrefix(rt.Pattern, "/ebuse")
	switch {
	case slices.Contains(everywhere, name):
		return auth.Everywhere
	case slices.Contains(own, name),
		strings.HasPrefix(path, "/events"),
		path == "/position",
		path == "/tenants",
		path == "/metrics",
		strings.HasPrefix(path, "/subscriptions"):
		return ""
	case strings.Contains(rt.Pattern, "{ns}"):
		return "one"
	case rt.Namespace != nil:
		t.Errorf("%s says itself what namespace it is about: say it in this test too", name)
	}
	return auth.Everywhere
}

type caller struct {
	name, secret, namespace string
	role                    auth.Role // None: nobody
}

// callers makes tokens of all kinds. Time passes, for those that expire.
func callers(t *testing.T, s *Server, token string) []caller {
	t.Helper()
	ones, gones := auth.NewNamespaceSecret("one"), auth.NewNamespaceSecret("gone")
	for id, secret := range map[string]string{"one": ones, "two": "", "gone": gones} {
		_, err := s.data.Create(ctx, message.NamespaceOptions{ID: id}, secret)
		try(t, err)
	}
	list := []caller{
		{"no token", "", "", auth.None}, {"nonsense", "nonsense", "", auth.None},
		{"default's", token, auth.Everywhere, auth.Admin}, {"one's", ones, "one", auth.Admin},
		{"one's, forged", auth.NewNamespaceSecret("one"), "", auth.None},
		{"deleted namespace's", gones, "", auth.None},
		{"never made", "hf_0123456789abcdef_" + strings.Repeat("0", 64), "", auth.None},
	}
	create := func(name, namespace string, role, good auth.Role, expires time.Time) (id string) {
		k, secret, err := s.tokens.Create(ctx, auth.Token{Namespace: namespace, Role: role, Expires: expires})
		try(t, err)
		list = append(list, caller{name, secret, namespace, good})
		return k.ID
	}
	for role := range may {
		for _, namespace := range []string{"one", "two", auth.Everywhere} {
			create(role.String()+" in "+namespace, namespace, role, role, time.Time{})
		}
	}
	try(t, s.tokens.Revoke(ctx, create("revoked", auth.Everywhere, auth.Admin, auth.None, time.Time{})))
	create("of a deleted namespace", "gone", auth.Admin, auth.None, time.Time{})
	create("expired", auth.Everywhere, auth.Admin, auth.None, time.Now().Add(time.Hour))
	_, err := s.data.Delete(ctx, "gone")
	try(t, err)
	time.Sleep(2 * time.Hour)
	return list
}

func (c caller) headers(r *http.Request) {
	if c.secret != "" {
		r.Header.Set("Authorization", "Bearer "+c.secret)
	}
}

// TestAccess asks each route of the server for each kind of token: it is exactly allowed or refused.
func TestAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mem.New()
		d, token := openData(t, e)
		real := prepare(d, Options{})
		real.mount(append(real.public(), real.apis()...))
		const reached = 299
		routes := slices.Clone(real.Routes())
		for i := range routes {
			routes[i].Handler = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(reached) }
		}
		s := prepare(d, Options{})
		s.mount(routes)
		parts := regexp.MustCompile(`\{[^}]*\}`)
		allowed := map[auth.Role]int{}
		list := callers(t, s, token)
		for _, rt := range routes {
			name := strings.TrimSpace(rt.Method + " " + rt.Pattern)
			path := parts.ReplaceAllString(strings.ReplaceAll(strings.ReplaceAll(rt.Pattern, "{ns}", "one"), "{$}", ""), "x")
			if strings.HasSuffix(path, "/") && path != "/" {
				path += "x"
			}
			if (rt.Role == auth.None) != slices.Contains(open, name) {
				t.Errorf("%s needs role %v, and that is not what this test says", name, rt.Role)
			}
			about := scope(t, name, rt)
			for _, c := range list {
				namespace := cmp.Or(about, c.namespace)
				ok := rt.Role == auth.None ||
					slices.Contains(may[c.role], rt.Role) && (c.namespace == auth.Everywhere || c.namespace == namespace)
				r := httptest.NewRequest(cmp.Or(rt.Method, http.MethodPatch), path, nil)
				c.headers(r)
				w := httptest.NewRecorder()
				s.ServeHTTP(w, r)
				if (w.Code == reached) != ok || !ok && w.Code != http.StatusUnauthorized && w.Code != http.StatusForbidden {
					t.Errorf("%s, %s: %d; allowed is %v", name, c.name, w.Code, ok)
				}
				if ok {
					allowed[rt.Role]++
				}
			}
		}
		for _, role := range []auth.Role{auth.None, auth.Read, auth.Query, auth.Write, auth.Admin} {
			if allowed[role] == 0 {
				t.Errorf("nothing that needs %v was allowed", role)
			}
		}

		// The methods of /rpc have roles and scopes of their own.
		for _, m := range eventodb.Methods {
			for _, c := range list {
				if m.Name == "ns.delete" || m.Name == "ns.create" {
					continue // below
				}
				about := map[eventodb.Scope]string{eventodb.Own: c.namespace, eventodb.Named: "one",
					eventodb.Everywhere: auth.Everywhere}[m.Scope]
				ok := slices.Contains(may[c.role], max(m.Role, auth.Read)) &&
					(c.namespace == auth.Everywhere || c.namespace == about)
				r := httptest.NewRequest("POST", "/rpc", strings.NewReader(`["`+m.Name+`","one"]`))
				c.headers(r)
				w := httptest.NewRecorder()
				real.ServeHTTP(w, r)
				if refused := w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden; refused == ok {
					t.Errorf("%s, %s: %d %s; allowed is %v", m.Name, c.name, w.Code, w.Body, ok)
				}
			}
		}
		for _, call := range []string{`["ns.create","new"]`, `["ns.delete","two"]`} {
			for _, c := range list {
				if c.role == auth.Admin && c.namespace == auth.Everywhere {
					continue
				}
				r := httptest.NewRequest("POST", "/rpc", strings.NewReader(call))
				c.headers(r)
				w := httptest.NewRecorder()
				real.ServeHTTP(w, r)
				if w.Code != http.StatusUnauthorized && w.Code != http.StatusForbidden {
					t.Errorf("%s, %s: %d %s", call, c.name, w.Code, w.Body)
				}
			}
		}
		try(t, d.Close())
		try(t, e.Close())
	})
}

// Tokens are made, seen and revoked only by those who are admin where they are good.
func TestAccessToTokens(t *testing.T) {
	r := start(t, mem.New(), Options{}, nil)
	for _, id := range []string{"one", "two"} {
		_, err := r.data.Create(ctx, message.NamespaceOptions{ID: id}, "")
		try(t, err)
	}
	admin := func(namespace string, role auth.Role) (string, string) {
		k, secret, err := r.Tokens().Create(ctx, auth.Token{Namespace: namespace, Role: role})
		try(t, err)
		return k.ID, "Bearer " + secret
	}
	_, ones := admin("one", auth.Admin)
	_, writer := admin("one", auth.Write)
	twosID, _ := admin("two", auth.Read)
	everyID, _ := admin(auth.Everywhere, auth.Read)
	for body, status := range map[string]int{
		`{"namespace":"one","role":"read"}`: 200, `{"namespace":"two","role":"read"}`: 403,
		`{"namespace":"*","role":"read"}`: 403, `{"namespace":"default","role":"read"}`: 403,
	} {
		got := r.do("POST", "/v1/tokens", body, "Authorization", ones, "Content-Type", "application/json")
		if ok := got.StatusCode < 300; ok != (status == 200) || !ok && got.StatusCode != status {
			t.Errorf("%s: %d %s", body, got.StatusCode, got.body)
		}
		r.want(
			r.do("POST", "/v1/tokens", body, "Authorization", writer, "Content-Type", "application/json"),
			403,
			api.CodeForbidden,
		)
	}
	for path, status := range map[string]int{"?namespace=one": 200, "?namespace=two": 403, "": 403, "?namespace=*": 403} {
		if got := r.do("GET", "/v1/tokens"+path, "", "Authorization", ones); got.StatusCode != status {
			t.Errorf("%s: %d %s", path, got.StatusCode, got.body)
		}
	}
	for _, id := range []string{twosID, everyID} {
		r.want(r.do("DELETE", "/v1/tokens/"+id, "", "Authorization", ones), 403, api.CodeForbidden)
		if got := r.do("DELETE", "/v1/tokens/"+id, ""); got.StatusCode >= 300 {
			t.Error(got.StatusCode, got.body)
		}
	}
}
