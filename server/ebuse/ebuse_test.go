package ebuse_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/ebuse"
	"github.com/holdfastdb/holdfast/server/nodes/nodestest"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

var ctx = context.Background()

// The keys that the tests' server knows.
var principals = map[string]auth.Principal{
	"key-all": {TokenID: "all", Namespace: auth.Everywhere, Role: auth.Admin},
	"key-a":   {TokenID: "a", Namespace: "a", Role: auth.Admin},
	"key-b":   {TokenID: "b", Namespace: "b", Role: auth.Read},
}

// another makes serve serve from a process that does not own the data, and asks the one that does.
var another bool

// TestThroughAnother: a process that passes requests on answers as the owner of the data does.
func TestThroughAnother(t *testing.T) {
	another = true
	defer func() { another = false }()
	for name, test := range map[string]func(*testing.T){"Requests": TestRequests,
		"SubscriptionAhead": TestSubscriptionAhead, "Keys": TestKeys, "Gzip": TestGzip,
		"PageBytes": TestPageBytes, "Long": TestLong, "ForeignLog": TestForeignLog,
		"BrokenOff": TestBrokenOff} {
		t.Run(name, test)
	}
}

// serve serves the routes as the server does, with as little as they need.
func serve(t *testing.T, o ebuse.Options) (*httptest.Server, *data.Data) {
	t.Helper()
	eng := mem.New()
	if another {
		d, address := nodestest.Start(t, eng, server.Options{MaxBody: 1 << 20, Logger: slog.New(slog.DiscardHandler),
			Check: func(_ context.Context, key string) (auth.Principal, error) {
				if p, known := principals[key]; known {
					return p, nil
				}
				if key == "" {
					return auth.Principal{}, auth.ErrNoToken
				}

				return auth.Principal{}, auth.ErrUnknown
			}}, func(d *data.Data) error {
			_, a := d.Create(ctx, message.NamespaceOptions{ID: "a"}, "")
			_, b := d.Create(ctx, message.NamespaceOptions{ID: "b"}, "")

			return errors.Join(a, b)
		})
		srv := httptest.NewServer(nil) // for its client alone
		t.Cleanup(srv.Close)
		srv.URL = address

		return srv, d
	}
	d, err := data.Open(eng, data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range []string{"a", "b"} {
		if _, err := d.Create(ctx, message.NamespaceOptions{ID: ns}, ""); err != nil {
			t.Fatal(err)
		}
	}
	mux := http.NewServeMux()
	for _, rt := range ebuse.Routes(d, o) {
		mux.HandleFunc(strings.TrimSpace(rt.Method+" "+rt.Pattern), func(w http.ResponseWriter, r *http.Request) {
			var p auth.Principal
			if rt.Role != auth.None {
				var known bool
				key := rt.Credentials(r)
				if p, known = principals[key]; key == "" {
					rt.Deny(w, r, auth.ErrNoToken)
					return
				} else if !known {
					rt.Deny(w, r, auth.ErrUnknown)
					return
				} else if !p.May(rt.Role, rt.Namespace(r, p)) {
					rt.Deny(w, r, auth.ErrForbidden)
					return
				}
			}
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
			rt.Handler(w, r.WithContext(route.With(r.Context(), &route.Request{Principal: p})))
		})
	}
	srv := httptest.NewServer(mux)
	t.Cleanup(func() {
		srv.Close()
		if err := errors.Join(d.Close(), eng.Close()); err != nil {
			t.Error(err)
		}
	})
	return srv, d
}

// do makes a request and returns status and body.
func do(t *testing.T, srv *httptest.Server, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	res, text := ask(t, srv, method, path, body, headers...)
	return res.StatusCode, text
}

func ask(t *testing.T, srv *httptest.Server, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, srv.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", "key-a")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// exchange is a request and what is to come.
type exchange struct {
	method, path, body string
	status             int
	want               string
}

func (x exchange) check(t *testing.T, srv *httptest.Server, headers ...string) {
	t.Helper()
	if status, text := do(t, srv, x.method, x.path, x.body, headers...); status != x.status || text != x.want+"\n" &&
		!(x.want == "" && text == "") {
		t.Errorf("%s %s %.200s\n got %d %.300q\nwant %d %.300q", x.method, x.path, x.body, status, text, x.status, x.want)
	}
}

// What the API answers, with and without prefix, in the order in which it was asked.
func TestRequests(t *testing.T) {
	const zero = `"timestamp":"0001-01-01T00:00:00Z"}`
	script := []exchange{
		{"GET", "/position", "", 200, `{"position":0}`},
		{"GET", "/events?from=1&to=0", "", 200, `[]`},
		{"GET", "/events?from=1", "", 200, `[]`},
		{"GET", "/events/stream?from=1", "", 200, `[]`},
		{"POST", "/events",
			`{"position":77,"type":"T","data":{"a":1, "b":[]},"timestamp":"2026-01-02T03:04:05.678901234+01:00"}`, 200,
			`{"position":1,"type":"T","data":{"a":1, "b":[]},"timestamp":"2026-01-02T03:04:05.678901234+01:00"}`},
		{"POST", "/events", `{"type":"U","data":"x"}`, 200, `{"position":2,"type":"U","data":"x",` + zero},
		{"POST", "/events", `{}`, 200, `{"position":3,"type":"","data":null,` + zero},
		{"POST", "/events", `{"data":null,"timestamp":null,"more":1,"type":"a\u0000<é"}`, 200,
			`{"position":4,"type":"a\u0000\u003cé","data":null,` + zero},
		{"POST", "/events",
			`{"type":"last","data":12345678901234567890.123e-7,"timestamp":"1066-10-14T09:00:00.000000001Z"}`,
			200, `{"position":5,"type":"last","data":12345678901234567890.123e-7,"timestamp":"1066-10-14T09:00:00.000000001Z"}`},
		{"GET", "/events?from=5&to=5", "", 200,
			`[{"position":5,"type":"last","data":12345678901234567890.123e-7,"timestamp":"1066-10-14T09:00:00.000000001Z"}]`},
		{"GET", "/events?from=2&to=3", "", 200, `[{"position":2,"type":"U","data":"x",` + zero +
			`,{"position":3,"type":"","data":null,` + zero + `]`},
		{"GET", "/events?from=-3&to=1", "", 200,
			`[{"position":1,"type":"T","data":{"a":1, "b":[]},"timestamp":"2026-01-02T03:04:05.678901234+01:00"}]`},
		{"GET", "/events?from=6", "", 200, `[]`},
		{"GET", "/events?from=9223372036854775807", "", 200, `[]`},
		{"GET", "/events?from=1&to=-2", "", 200, `[]`},
		{"GET", "/events?from=9223372036854775808", "", 400, "Invalid 'from' parameter"},
		{"GET", "/events", "", 400, "Invalid 'from' parameter"},
		{"GET", "/events?from=1.5", "", 400, "Invalid 'from' parameter"},
		{"GET", "/events?from=1&to=x", "", 400, "Invalid 'to' parameter"},
		{"GET", "/events/stream", "", 400, "Invalid 'from' parameter"},
		{"GET", "/events/stream?from=5&batch_size=x", "", 200,
			`[{"position":5,"type":"last","data":12345678901234567890.123e-7,"timestamp":"1066-10-14T09:00:00.000000001Z"}]`},
		{"GET", "/position", "", 200, `{"position":5}`},

		{"POST", "/events", `{"type":1}`, 400,
			"Invalid request body: json: cannot unmarshal number into Go struct field Event.type of type string"},
		{"POST", "/events", `{`, 400, "Invalid request body: unexpected end of JSON input"},
		{"POST", "/events", ``, 400, "Invalid request body: unexpected end of JSON input"},
		{"POST", "/events", `null`, 400, "Invalid request body: it is not a JSON object"},
		{"POST", "/events", `[]`, 400, "Invalid request body: it is not a JSON object"},
		{"POST", "/events", `{} {}`, 400, "Invalid request body: invalid character '{' after top-level value"},
		{"POST", "/events", "{\"type\":\"\xff\"}", 400, "Invalid request body: it is not valid UTF-8"},
		{"POST", "/events", `{"data":` + strings.Repeat("[", 100_000), 400,
			"Invalid request body: invalid character '[' exceeded max depth"},
		{"POST", "/events", `{"data":` + strings.Repeat("[", 9_901) + strings.Repeat("]", 9_901) + `}`, 400,
			"Invalid request body: the data are more than 9900 objects and arrays deep"},
		{"POST", "/events/batch", `[{},{"data":` + strings.Repeat("[", 9_901) + strings.Repeat("]", 9_901) + `}]`, 400,
			"Invalid request body: event 2 of the batch: the data are more than 9900 objects and arrays deep"},
		{"POST", "/events", `{"data":"` + strings.Repeat("x", 1<<20) + `"}`, 413,
			"Invalid request body: the body has more than 1048576 bytes"},

		{"POST", "/events/batch",
			`[{"type":"x","data":1},{"type":"y","data":2,"timestamp":"9999-12-31T23:59:59.999999999-12:00"}]`, 200,
			`{"first_position":6,"last_position":7,"saved":2}`},
		{"GET", "/events?from=7", "", 200,
			`[{"position":7,"type":"y","data":2,"timestamp":"9999-12-31T23:59:59.999999999-12:00"}]`},
		{"POST", "/events/batch", `[` + strings.Repeat(`{},`, 999) + `{}]`, 200,
			`{"first_position":8,"last_position":1007,"saved":1000}`},
		{"POST", "/events/batch", `[` + strings.Repeat(`{},`, 1000) + `{}]`, 400, "Batch size limited to 1000 events"},
		{"POST", "/events/batch", `[]`, 400, "The batch is empty; send 1 to 1000 events"},
		{"POST", "/events/batch", `null`, 400, "The batch is empty; send 1 to 1000 events"},
		{"POST", "/events/batch", ``, 400, "Invalid request body: unexpected EOF"},
		{"POST", "/events/batch", `{}`, 400, "Invalid request body: it is not a JSON array"},
		{"POST", "/events/batch", `[{},null]`, 400, "Invalid request body: event 2 of the batch is null"},
		{"POST", "/events/batch", `[{}] 1`, 400, "Invalid request body: something follows the JSON array"},
		{"POST", "/events/batch", `[{}`, 400, "Invalid request body: unexpected EOF"},
		{"POST", "/events/batch", "[{\"type\":\"\xc0\x80\"}]", 400, "Invalid request body: it is not valid UTF-8"},
		{"GET", "/position", "", 200, `{"position":1007}`},

		{"GET", "/subscriptions/s/position", "", 200, `{"position":0}`},
		{"POST", "/subscriptions/s/position", `{"position":7}`, 204, ""},
		{"GET", "/subscriptions/s/position", "", 200, `{"position":7}`},
		{"PUT", "/subscriptions/s/position", `{"position":3}`, 204, ""},
		{"PUT", "/subscriptions/s/position", `{}`, 400, "Invalid request body: the position is missing"},
		{"PUT", "/subscriptions/s/position", `{"position":null}`, 400, "Invalid request body: the position is missing"},
		{"PUT", "/subscriptions/s/position", `{"position":1,"Position":0}`, 400,
			`Invalid request body: the field "Position" is there twice`},
		{"GET", "/subscriptions/s/position", "", 200, `{"position":3}`},
		{"POST", "/events", `{"type":"first","type":"last"}`, 400, `Invalid request body: the field "type" is there twice`},
		{"POST", "/events/batch", `[{"type":"x"},{"type":"first","type":"last"}]`, 400,
			`Invalid request body: event 2 of the batch: the field "type" is there twice`},
		{"GET", "/subscriptions/s/position", "", 200, `{"position":3}`},
		{"POST", "/subscriptions/s/position", `{"position":0}`, 204, ""},
		{"GET", "/subscriptions/s/position", "", 200, `{"position":0}`},
		{"POST", "/subscriptions/a%2f..%2fb%C3%BC/position", `{"position":5}`, 204, ""},
		{"GET", "/subscriptions/a%2F..%2Fb%C3%BC/position", "", 200, `{"position":5}`},
		{"GET", "/subscriptions/..%2Fb%C3%BC/position", "", 200, `{"position":0}`},
		{"POST", "/subscriptions/s/position", `{"position":-1}`, 400, "Invalid request body: the position is negative"},
		{"POST", "/subscriptions/s/position", `{"position":1e3}`, 400,
			"Invalid request body: json: cannot unmarshal number 1e3 into Go struct field position.position of type int64"},
		{"POST", "/subscriptions/" + strings.Repeat("x", 1025) + "/position", `{}`, 400,
			"Invalid path: the subscription's id has 1025 bytes; it may have 1 to 1024"},
		{"GET", "/subscriptions/", "", 400, "Invalid path"},
		{"GET", "/subscriptions/s", "", 400, "Invalid path"},
		{"POST", "/subscriptions/s/t/position", "{}", 400, "Invalid path"},

		{"DELETE", "/events", "", 405, "Method not allowed"},
		{"PUT", "/events/batch", "[]", 405, "Method not allowed"},
		{"GET", "/events/batch", "", 405, "Method not allowed"},
		{"POST", "/events/stream", "", 405, "Method not allowed"},
		{"POST", "/position", "", 405, "Method not allowed"},
		{"DELETE", "/subscriptions/s/position", "", 405, "Method not allowed"},
		{"GET", "/tenants", "", 200, `{"tenants":["a"],"count":1}`},
	}
	for _, prefix := range []string{"", ebuse.Prefix} {
		t.Run("prefix "+prefix, func(t *testing.T) {
			srv, _ := serve(t, ebuse.Options{})
			for _, x := range script {
				if another && (strings.Contains(x.path, "..") || x.path == "/subscriptions/" || x.status == 413) {
					continue // the server refuses it before these routes see it
				}
				x.path = prefix + x.path
				x.check(t, srv)
			}
		})
	}
}

// A position that the log has not reached cannot be saved for a subscription, which would miss what gets it later. See
// docs/ebuse.md.
func TestSubscriptionAhead(t *testing.T) {
	srv, _ := serve(t, ebuse.Options{})
	status, text := do(t, srv, "POST", "/subscriptions/s/position", `{"position":1}`)
	if status != 409 || !strings.HasPrefix(text, "Failed to save subscription position: ") {
		t.Error(status, text)
	}
	status, text = do(t, srv, "GET", "/subscriptions/s/position", "")
	if status != 200 || strings.TrimSpace(text) != `{"position":0}` {
		t.Error(status, text)
	}
}

// Who may do what, and how who may not is told.
func TestKeys(t *testing.T) {
	srv, d := serve(t, ebuse.Options{})
	log, err := d.Log(ctx, message.Default, ebuse.Log)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(ctx, event.Event{Type: "default"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		exchange
		headers []string
	}{
		{exchange{"GET", "/position", "", 200, `{"position":0}`}, []string{"X-API-Key", "key-a"}},
		{exchange{"GET", "/position", "", 200, `{"position":1}`}, []string{"X-API-Key", "key-all"}},
		{exchange{"GET", "/position", "", 200, `{"position":1}`},
			[]string{"X-API-Key", "", "Authorization", "Bearer key-all"}},
		{exchange{"GET", "/position", "", 200, `{"position":1}`}, []string{"X-API-Key", "", "Authorization", "key-all"}},
		{exchange{"GET", "/position", "", 200, `{"position":0}`}, []string{"Authorization", "Bearer key-all"}},
		{exchange{"GET", "/position", "", 401, "API key required"}, []string{"X-API-Key", ""}},
		{exchange{"GET", "/position", "", 401, "Invalid API key"}, []string{"X-API-Key", "key"}},
		{exchange{"GET", "/tenants", "", 401, "Invalid API key"}, []string{"X-API-Key", "", "Authorization", "bearer key-a"}},
		{exchange{"DELETE", "/events", "", 401, "Invalid API key"}, []string{"X-API-Key", "key"}},
		{exchange{"GET", "/ebuse/metrics", "", 401, "API key required"}, []string{"X-API-Key", ""}},
		{exchange{"GET", "/ebuse/health", "", 200, `{"status":"healthy"}`}, []string{"X-API-Key", "key"}},
		{exchange{"GET", "/tenants", "", 200, `{"tenants":["a","b","default"],"count":3}`}, []string{"X-API-Key", "key-all"}},
		{exchange{"PATCH", "/tenants", "", 200, `{"tenants":["b"],"count":1}`}, []string{"X-API-Key", "key-b"}},
	} {
		c.check(t, srv, c.headers...)
	}
	if status, _ := do(t, srv, "POST", "/events", "{}", "X-API-Key", "key-b"); status != 403 {
		t.Errorf("a key that may only read has written: %d", status)
	}
}

func TestMetricsAndHealth(t *testing.T) {
	var ill error
	srv, _ := serve(t, ebuse.Options{Health: func(context.Context) error { return ill }})
	do(t, srv, "POST", "/events/batch", "[{},{}]")
	before := time.Now().Unix()
	res, text := ask(t, srv, "GET", "/ebuse/metrics", "")
	var m struct {
		Tenant string `json:"tenant"`
		Total  int    `json:"total_events"`
		Time   int64  `json:"timestamp"`
	}
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Tenant != "a" || m.Total != 2 || m.Time < before {
		t.Error(text, err)
	}
	if got := res.Header.Get("Content-Type"); got != "application/json" {
		t.Error(got)
	}
	exchange{"HEAD", "/ebuse/health", "", 200, ""}.check(t, srv)
	ill = &holdfast.Error{Class: holdfast.ErrFull, Detail: "no disk"}
	exchange{"GET", "/ebuse/health", "", 503,
		`{"status":"unhealthy","error":"no room on the device: no disk"}`}.check(t, srv)
}

// gunzip returns what a body in gzip says.
func gunzip(t *testing.T, text string) string {
	t.Helper()
	z, err := gzip.NewReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(plain)
}

func TestGzip(t *testing.T) {
	srv, _ := serve(t, ebuse.Options{})
	for _, c := range []struct {
		accept string
		want   bool
	}{
		{"gzip", true}, {"deflate, GZIP;q=0.5", true}, {"*", true}, {"br, *;q=0.1", true}, {"gzip; q=x", true},
		{"identity", false}, {"gzip;q=0", false}, {"gzip; q=0.0, *", false}, {"*;q=0", false}, {"", false}, {"xgzip", false},
	} {
		res, text := ask(t, srv, "GET", "/events?from=1", "", "Accept-Encoding", c.accept)
		zipped := res.Header.Get("Content-Encoding") == "gzip"
		if zipped != c.want || res.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: %v", c.accept, res.Header)
			continue
		}
		if zipped {
			text = gunzip(t, text)
		}
		if text != "[]\n" {
			t.Errorf("%q: %q", c.accept, text)
		}
	}
	for _, x := range []exchange{
		{"POST", "/events", `{"type":"x"}`, 200, `{"position":1,"type":"x","data":null,"timestamp":"0001-01-01T00:00:00Z"}`},
		{"POST", "/events/batch", `[{},{}]`, 200, `{"first_position":2,"last_position":3,"saved":2}`},
		{"POST", "/events/batch", `[]`, 400, "The batch is empty; send 1 to 1000 events"},
		{"DELETE", "/events/batch", ``, 405, "Method not allowed"},
		{"GET", "/events/stream?from=3", ``, 200,
			`[{"position":3,"type":"","data":null,"timestamp":"0001-01-01T00:00:00Z"}]`},
	} {
		res, text := ask(t, srv, x.method, x.path, x.body, "Accept-Encoding", "gzip")
		if plain := gunzip(t, text); res.StatusCode != x.status || plain != x.want+"\n" {
			t.Errorf("%s %s: %d %q", x.method, x.path, res.StatusCode, plain)
		}
	}
	// The others are never compressed.
	if res, text := ask(t, srv, "GET", "/position", "", "Accept-Encoding", "gzip"); text != "{\"position\":3}\n" {
		t.Error(res.Header, text)
	}
}

// GET /events has as many events as fit in 16 MiB, and at least one; a stream, and a GET that says where it ends, have
// all.
func TestPageBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one request at a time")
	}
	srv, d := serve(t, ebuse.Options{})
	log, err := d.Log(ctx, "a", ebuse.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{6 << 20, 6 << 20, 20 << 20, 100, 6 << 20} {
		if _, err := log.Append(ctx, event.Event{Type: "t", Data: []byte(`"` + strings.Repeat("x",
			size) + `"`)}); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{"/events?from=1": 2, "/events?from=3": 1, "/events?from=4": 2,
		"/events?from=6":      0,
		"/events?from=1&to=5": 5, "/events/stream?from=1": 5} {
		_, text := ask(t, srv, "GET", path, "")
		var list []struct{ Position int }
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != want {
			t.Errorf("%s: %d events, %v; want %d", path, len(list), err, want)
		}
	}
}

// GET /events ends after 10,000 events unless it is told where, and a stream does not.
func TestLong(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one request at a time")
	}
	srv, d := serve(t, ebuse.Options{})
	log, err := d.Log(ctx, "a", ebuse.Log)
	if err != nil {
		t.Fatal(err)
	}
	const n = 12_345
	for first := 1; first <= n; first += 1000 {
		var list []event.Event
		for i := first; i < first+1000 && i <= n; i++ {
			list = append(list, event.Event{Type: "t", Time: time.Unix(int64(i), 0), Data: fmt.Append(nil, i)})
		}
		if _, err := log.Append(ctx, list...); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		path        string
		first, last int
	}{
		{"/events?from=1", 1, 10_000},
		{"/events?from=2&to=-1", 2, 10_001},
		{"/events?from=1&to=999999", 1, n},
		{"/events?from=11&to=11111", 11, 11_111},
		{"/events?from=11&to=510", 11, 510},
		{"/events/stream?from=0", 1, n},
		{"/events/stream?from=17&batch_size=7", 17, n},
		{"/events/stream?from=17&batch_size=5001", 17, n},
	} {
		res, text := ask(t, srv, "GET", c.path, "", "Accept-Encoding", "identity")
		if whole := c.last-c.first < 1000; (res.ContentLength >= 0) != whole { // it is made before it is sent
			t.Errorf("%s: Content-Length is %d", c.path, res.ContentLength)
		}
		var list []struct {
			Position int
			Data     int
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil || len(list) != c.last-c.first+1 {
			t.Errorf("%s: %d events, %v", c.path, len(list), err)
			continue
		}
		for i, e := range list {
			if e.Position != c.first+i || e.Data != e.Position {
				t.Fatalf("%s: event %d is %+v", c.path, i, e)
			}
		}
	}
}

// What is truncated or was never there is passed over, and what other APIs have appended is shown as well as it can be.
func TestForeignLog(t *testing.T) {
	srv, d := serve(t, ebuse.Options{})
	log, err := d.Log(ctx, "a", ebuse.Log)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	if _, err := log.Import(ctx,
		event.Event{Position: 3, Type: "cut", Time: at},
		event.Event{Position: 5, Type: "bin", Time: at, ID: "id", Data: []byte{0, 255}, Metadata: []byte("x")},
		event.Event{Position: 9, Type: "json\xff", Time: at, Data: []byte(`{"a":1}`), Metadata: []byte{0xeb, 1}},
		event.Event{Position: 12, Type: "utf8", Time: at, Data: []byte("\"\xff\"")},
	); err != nil {
		t.Fatal(err)
	}
	if _, err := log.TruncateBefore(ctx, 4); err != nil {
		t.Fatal(err)
	}
	const stamp = `"timestamp":"2026-01-02T03:04:05.000000006Z"}`
	for _, x := range []exchange{
		{"GET", "/events?from=1", "", 200, `[{"position":5,"type":"bin","data":"AP8=",` + stamp +
			`,{"position":9,"type":"json\ufffd","data":{"a":1},` + stamp +
			`,{"position":12,"type":"utf8","data":"Iv8i",` + stamp + `]`},
		{"GET", "/events?from=6&to=8", "", 200, `[]`},
		{"GET", "/events/stream?from=10", "", 200, `[{"position":12,"type":"utf8","data":"Iv8i",` + stamp + `]`},
		{"GET", "/position", "", 200, `{"position":12}`},
	} {
		x.check(t, srv)
	}
}

// An answer that breaks off is cut: its client must not take a part for the whole.
func TestBrokenOff(t *testing.T) {
	srv, d := serve(t, ebuse.Options{})
	large := `{"data":"` + strings.Repeat("x", 200_000) + `"}`
	for range 3 {
		if status, text := do(t, srv, "POST", "/events", large); status != 200 {
			t.Fatal(status, text)
		}
	}
	// The last event is damaged: its key, the last with so large a value, is gone.
	var last []byte
	it := d.Engine().Scan(holdfast.Range{})
	for it.Next() {
		if len(it.Value()) > 200_000 {
			last = bytes.Clone(it.Key())
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	b.Delete(last)
	if err := holdfast.Commit(d.Engine(), &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{"identity", "gzip"} {
		for _, path := range []string{"/events?from=1", "/events/stream?from=1"} {
			req, err := http.NewRequest("GET", srv.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-API-Key", "key-a")
			req.Header.Set("Accept-Encoding", accept)
			res, err := srv.Client().Do(req)
			if err != nil {
				continue // cut before a byte came
			}
			text, err := io.ReadAll(res.Body)
			res.Body.Close()
			if another && res.StatusCode == http.StatusBadGateway {
				continue // as before, between the two
			}
			if res.StatusCode != 200 || err == nil {
				t.Errorf("%s of %s: status %d, %d bytes, no error", path, accept, res.StatusCode, len(text))
			}
		}
	}
	// Nothing was sent yet: an error says so.
	if status, text := do(t, srv, "GET", "/events?from=3", ""); status != 500 ||
		!strings.HasPrefix(text, "Failed to load events: ") {
		t.Error(status, text)
	}
}
