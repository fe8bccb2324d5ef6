package v1_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/server/v1"
)

// FuzzRequests gives any text to every operation, as its body, its query and the names in its path. Whatever it is, the
// answer is JSON, and no operation panics or fails inside.
func FuzzRequests(f *testing.F) {
	seeds := []struct{ query, name, body string }{
		{"limit=1", "order-1",
			`{"stream":"order-1","expected":-1,"messages":[{"type":"T","data":{"a":1},"metadata":null}]}`},
		{"from=0&type=T&type=U&prefix=o", "a",
			`{"tasks":[{"kind":"k","payload":"AA==","at":"2026-01-01T00:00:00Z","after":["x"]}]}`},
		{"category=order&size=2&member=1", "events", `{"events":[{"type":"T","id":"a","data":"AA=="}],"after":0}`},
		{"state=dead&cursor=x", "q", `{"n":3,"lease_ms":5,"queues":["q"]}`},
		{"before=1", "..", `{"leases":[{"id":"a","token":1}]}`},
		{"tombstone=true", "%", `{"max_age_ms":9223372036854775807,"max_count":-1}`},
		{"since=2026-01-01T00:00:00Z&gzip=1", "\x00", `{"category":"order","types":["T"],"window":3,"max_attempts":1}`},
		{"a=%zz", strings.Repeat("n", 300), `{"globals":[1,-1]}`},
		{"stream=a", "*", `{"id":"shop","metadata":{}}`},
		{"", "x", `{"position":1} `},
		{"limit=-1", "x", `{"deliveries":[{"global":1,"token":2}],"reason":"r"}`},
		{"from=-9", "x", `null`}, {"", "x", `[1`}, {"", "", ``},
		{"", "x", `{"concurrency":1,"rate_n":1,"rate_per_ms":1,"keep_ms":-1}`},
		{"", "x", `{"namespace":"default","role":"read"}`},
	}
	if testing.Short() { // the race detector makes it slow, and there is one request at a time
		seeds = seeds[:2]
	}
	for _, seed := range seeds {
		f.Add(seed.query, seed.name, seed.body)
	}
	f.Fuzz(func(t *testing.T, query, name, body string) {
		engine := mem.New()
		d, err := data.Open(engine, data.Options{Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, r := range v1.Routes(d, v1.Options{Ready: func() error { return nil }}) {
			stopping := make(chan struct{})
			close(stopping) // so followers end, and claims that wait
			req := httptest.NewRequestWithContext(route.With(t.Context(), &route.Request{Stopping: stopping,
				Principal: auth.Principal{Namespace: auth.Everywhere, Role: auth.Admin}}), r.Method, "/", strings.NewReader(body))
			req.URL.RawQuery = query
			for _, part := range strings.Split(r.Pattern, "/") {
				if strings.HasPrefix(part, "{") {
					req.SetPathValue(strings.Trim(part, "{}"), name)
				}
			}
			req.SetPathValue("ns", "default")
			if r.Namespace != nil {
				r.Namespace(req, auth.Principal{Namespace: "default"})
			}
			w := httptest.NewRecorder()
			r.Handler(w, req)
			kind := w.Header().Get("Content-Type")
			switch {
			case w.Code >= 500 && w.Code != http.StatusNotImplemented:
				t.Errorf("%s %s?%s with %q: %d %s", r.Method, r.Pattern, query, body, w.Code, w.Body)
			case w.Code >= 400 && kind != "application/problem+json",
				kind == "application/json" && !json.Valid(w.Body.Bytes()):
				t.Errorf("%s %s?%s with %q: %d, %s: %s", r.Method, r.Pattern, query, body, w.Code, kind, w.Body)
			}
			if _, err := url.ParseQuery(query); err != nil && w.Code != http.StatusBadRequest &&
				strings.HasPrefix(r.Pattern, "/v1/") {
				t.Errorf("%s %s: %d though the query cannot be read", r.Method, r.Pattern, w.Code)
			}
		}
	})
}
