package v1_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	core "github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/query"
	"github.com/holdfastdb/holdfast/server/route"
	v1 "github.com/holdfastdb/holdfast/server/v1"
	"github.com/holdfastdb/holdfast/store/message"
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

// FuzzQueries gives any text to queries by SQL, as a statement and as arguments. Whatever it is, the answer comes in
// time and is what answers are, the data stay as they are, and nothing is left open.
func FuzzQueries(f *testing.F) {
	for _, seed := range []struct{ sql, args string }{
		{"select * from messages where stream = ?", `["order-1"]`}, {"select :a, ?2", `{"a":null,"?2":{"base64":"AA=="}}`},
		{"select count(*) from messages a, messages b, messages c, messages d", ``},
		{"with recursive c(x) as (select 1 union all select x + 1 from c) select x from c", `[]`},
		{"select data ->> 'n', typeof(data), hex(randomblob(99)) from messages order by global desc", `null`},
		{"select * from tasks, queues, streams, subscriptions, events limit 3", `{}`},
		{"select a.data like '%' || b.data || '%', a.data glob '*[a-z]*' from messages a, messages b", ``},
		{"select replace(trim(data, '{}'), 'n', data), instr(data, 'n') from messages", ``},
		{"select sum(position) over (partition by stream order by global rows 1 preceding) from messages", ``},
		{"select group_concat(x) from (values (1), ('x'), (null), (x'ff'), (1e999))", ``},
		{"select zeroblob(1e9), printf('%1000000000d', 1), cast(x'ff' as text)", `[1`},
		{"delete from messages", ``}, {"select 1; select 2", ``}, {"explain select 1", ``},
		{"pragma table_list", ``}, {"", `"x"`},
		{"select * from keys", ``},
		{"select json_group_array(json(data)) from messages where data match '\"'", `[true, 7.0]`},
	} {
		f.Add(seed.sql, seed.args)
	}
	engine := mem.New()
	d, err := data.Open(engine, data.Options{Level: holdfast.Memory})
	testkit.Try(f, err)
	n, err := d.Messages().Namespace(f.Context(), message.Default)
	testkit.Try(f, err)
	for i := range 100 {
		_, err := n.Write(
			f.Context(),
			fmt.Sprint("order-", i%7),
			message.Message{Type: "T", Data: fmt.Appendf(nil, `{"n":%d}`, i)},
		)
		testkit.Try(f, err)
	}
	s, err := core.New(d, core.Options{Query: query.Served{}, QueryTime: 100 * time.Millisecond, QueryMemory: 4 << 20,
		QueryRows: 1000, TestMode: true, Logger: slog.New(slog.DiscardHandler)})
	testkit.Try(f, err)
	f.Cleanup(func() { testkit.Try(f, errors.Join(s.Stop(context.Background()), d.Close(), engine.Close())) })
	ask := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("POST", "/v1/namespaces/default/query", strings.NewReader(body)))
		return w
	}
	f.Fuzz(func(t *testing.T, sql, args string) {
		text, err := json.Marshal(sql) // what is not UTF-8 is FuzzRequests'
		testkit.Try(t, err)
		body := `{"sql":` + string(text) + `}`
		if args != "" {
			body = `{"sql":` + string(text) + `,"args":` + args + `}`
		}
		answered := make(chan *httptest.ResponseRecorder, 1)
		go func() { answered <- ask(body) }()
		w := testkit.Receive(t, fmt.Sprintf("an answer to %q", body), answered)
		switch lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n"); w.Code {
		case http.StatusOK:
			for i, line := range lines {
				var l api.QueryLine
				if line[0] == '[' {
					_, err = api.ReadRow([]byte(line))
				} else {
					err = json.Unmarshal([]byte(line), &l)
				}
				if err != nil || (i == 0) != (l.Columns != nil) || (i == len(lines)-1) != (l.Rows != nil || l.Problem != nil) {
					t.Fatalf("%q: line %d is %q: %v", body, i, line, err)
				}
				if p := l.Problem; p != nil && p.Code != api.CodeTooLarge && p.Code != api.CodeBadRequest {
					t.Errorf("%q: %+v", body, p)
				}
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
		default:
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
		got := ""
		testkit.Until(t, "an answer within the time of queries", func() bool { // a busy machine may take longer for any
			got = ask(`{"sql":"select count(*), sum(data ->> 'n') from messages"}`).Body.String()
			return !strings.Contains(got, "it took longer")
		})
		if !strings.Contains(got, "\n[100,4950]\n") {
			t.Errorf("after %q: %s", body, got)
		}
		if n := engine.Metrics().OpenSnapshots; n != 0 {
			t.Errorf("after %q %d snapshots are open", body, n)
		}
	})
}
