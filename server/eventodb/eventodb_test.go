package eventodb_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/eventodb"
	"github.com/holdfastdb/holdfast/server/nodes/nodestest"
	"github.com/holdfastdb/holdfast/store/message"
)

// client is a client of a server, with a token.
type client struct {
	t     *testing.T
	url   string
	token string
	http  *http.Client
}

// start starts a server and returns a client with the token of the default namespace.
func start(t *testing.T) (*client, *data.Data) {
	t.Helper()
	return startVersion(t, "1.2.3")
}

// another makes start return a client of a process that does not own the data, and asks the one that does.
var another bool

// TestThroughAnother: a process that passes requests on answers as the owner of the data does.
func TestThroughAnother(t *testing.T) {
	another = true
	defer func() { another = false }()
	for name, test := range map[string]func(*testing.T){"Streams": TestStreams, "Refused": TestRefused,
		"Tokens": TestTokens, "Methods": TestMethods, "Listings": TestListings, "Version": TestVersion,
		"LargeAnswer": TestLargeAnswer, "PageBytes": TestPageBytes, "Follow": TestFollow,
		"FollowWhileWriting": TestFollowWhileWriting, "FollowersEnd": TestFollowersEnd, "Import": TestImport,
		"Ahead": TestAhead} {
		t.Run(name, test)
	}
}

func startVersion(t *testing.T, version string) (*client, *data.Data) {
	t.Helper()
	if another {
		token := auth.NewNamespaceSecret(message.Default)
		d, address := nodestest.Start(t, mem.New(), server.Options{Version: version, Logger: slog.New(slog.DiscardHandler)},
			func(d *data.Data) error { return d.Tokens().SetOwn(t.Context(), message.Default, token) })

		return &client{t, address, token, &http.Client{Transport: &http.Transport{}}}, d
	}
	d, err := data.Open(mem.New(), data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	token := auth.NewNamespaceSecret(message.Default)
	if err := d.Tokens().SetOwn(t.Context(), message.Default, token); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(d, server.Options{Version: version})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
		h.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &client{t, h.URL, token, h.Client()}, d
}

// with returns a client with another token.
func (c *client) with(token string) *client { return &client{c.t, c.url, token, c.http} }

func (c *client) do(method, path, body string) (status int, answer string, h http.Header) {
	c.t.Helper()
	r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	a, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return a.StatusCode, string(b), a.Header
}

// call makes a call that succeeds, and returns its result.
func (c *client) call(request string) string {
	c.t.Helper()
	status, answer, h := c.do(http.MethodPost, "/rpc", request)
	if status != http.StatusOK || h.Get("Content-Type") != "application/json" {
		c.t.Fatalf("%s: %d %s (%s)", request, status, answer, h.Get("Content-Type"))
	}
	if !json.Valid([]byte(answer)) {
		c.t.Fatalf("%s: %s", request, answer)
	}
	return answer
}

// failure is the error that a call gets, as "status CODE".
func (c *client) failure(request string) string {
	c.t.Helper()
	status, answer, h := c.do(http.MethodPost, "/rpc", request)
	return code(c.t, status, answer, h)
}

func code(t *testing.T, status int, answer string, h http.Header) string {
	t.Helper()
	var e struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(answer), &e); err != nil || e.Error.Code == "" || e.Error.Message == "" ||
		h.Get("Content-Type") != "application/json" {
		t.Fatalf("%d %s: %v", status, answer, err)
	}
	return fmt.Sprint(status, " ", e.Error.Code)
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func (c *client) want(request, answer string) {
	c.t.Helper()
	if got := c.call(request); got != answer {
		c.t.Errorf("%s: %s, want %s", request, got, answer)
	}
}

const id = "550e8400-e29b-41d4-a716-446655440000"

func TestStreams(t *testing.T) {
	c, _ := start(t)
	c.want(`["stream.version","account-1"]`, `null`)
	c.want(`["stream.last","account-1"]`, `null`)
	c.want(`["stream.get","account-1",{}]`, `[]`)
	c.want(`["stream.write","account-1",{"type":"A","data":{"b":1,"a":2.50}},{"id":"`+id+`"}]`,
		`{"position":0,"globalPosition":1}`)
	// A write is done once, however often it is repeated.
	c.want(`["stream.write","account-1",{"type":"A","data":{}},{"id":"`+id+`"}]`, `{"position":0,"globalPosition":1}`)
	c.want(` [ "stream.write" , "account-1", { "type":"B" , "data" : { "t": "\"}]" }, "metadata": null, "x":[{}] } , `+
		`{"expectedVersion":0.9,"other":null} , 7 ] `, `{"position":1,"globalPosition":2}`)
	c.want(`["stream.write","account-2",{"type":"A","data":{},"metadata":{"correlationStreamName":"w-1"}},`+
		`{"expectedVersion":-1,"id":""}]`, `{"position":0,"globalPosition":3}`)
	c.want(`["stream.version","account-1"]`, `1`)

	// What was written comes back as it was, in the order of fields that EventoDB has.
	all := decode[[][]json.RawMessage](t, c.call(`["stream.get","account-1"]`))
	if len(all) != 2 || len(all[0]) != 7 || string(all[0][0]) != `"`+id+`"` || string(all[0][1]) != `"A"` ||
		string(all[0][2]) != "0" || string(all[0][3]) != "1" || string(all[0][4]) != `{"b":1,"a":2.50}` ||
		string(all[0][5]) != "null" || string(all[1][4]) != `{ "t": "\"}]" }` {
		t.Errorf("%s", all)
	}
	at := decode[time.Time](t, string(all[0][6]))
	if since := time.Since(at); since < 0 || since > time.Hour || !strings.HasSuffix(string(all[0][6]), `Z"`) {
		t.Errorf("%s", all[0][6])
	}
	last := decode[[]json.RawMessage](t, c.call(`["stream.last","account-1",{"type":"A"}]`))
	if len(last) != 7 || string(last[2]) != "0" {
		t.Errorf("%s", last)
	}
	c.want(`["stream.last","account-1",{"type":"C"}]`, `null`)
	for request, want := range map[string]int{
		`["stream.get","account-1",{"position":1}]`:                                        1,
		`["stream.get","account-1",{"position":-5}]`:                                       2,
		`["stream.get","account-1",{"position":2}]`:                                        0,
		`["stream.get","account-1",{"batchSize":1}]`:                                       1,
		`["stream.get","account-1",{"batchSize":0}]`:                                       0,
		`["stream.get","account-1",{"batchSize":-1}]`:                                      2,
		`["stream.get","account-1",{"position":5,"globalPosition":2}]`:                     1,
		`["stream.get","account-1",{"globalPosition":3}]`:                                  0,
		`["category.get","account"]`:                                                       3,
		`["category.get","account",{"position":0}]`:                                        3,
		`["category.get","account",{"position":2}]`:                                        2,
		`["category.get","account",{"position":2,"globalPosition":3}]`:                     1,
		`["category.get","account",{"correlation":"w"}]`:                                   1,
		`["category.get","account",{"correlation":"v"}]`:                                   0,
		`["category.get","account",{"consumerGroup":{"member":0,"size":2}}]`:               2,
		`["category.get","account",{"consumerGroup":{"member":1,"size":2}}]`:               1,
		`["category.get","account",{"consumerGroup":{"member":1,"size":2},"batchSize":1}]`: 1,
		`["category.get",""]`:                                                              3,
		`["category.get","account-1"]`:                                                     0,
		`["category.get","none",{}]`:                                                       0,
	} {
		if got := decode[[]any](t, c.call(request)); len(got) != want {
			t.Errorf("%s: %d, want %d", request, len(got), want)
		}
	}
	eight := decode[[][]json.RawMessage](t, c.call(`["category.get","account",{"position":3}]`))
	if len(eight[0]) != 8 || string(eight[0][1]) != `"account-2"` || string(eight[0][4]) != "3" ||
		string(eight[0][6]) != `{"correlationStreamName":"w-1"}` {
		t.Errorf("%s", eight)
	}

	status, answer, _ := c.do(http.MethodPost, "/rpc",
		`["stream.write","account-1",{"type":"A","data":{}},{"expectedVersion":5}]`)
	if want := `{"error":{"code":"STREAM_VERSION_CONFLICT","message":"Expected version 5, stream is at version 1",` +
		`"details":{"actual":1,"expected":5}}}`; status != http.StatusConflict || answer != want {
		t.Errorf("%d %s", status, answer)
	}
}

func TestRefused(t *testing.T) {
	c, _ := start(t)
	c.call(`["stream.write","a-1",{"type":"A","data":{}},{"id":"` + id + `"}]`)
	for request, want := range map[string]string{
		``:  "400 INVALID_REQUEST",
		`{`: "400 INVALID_REQUEST",
		// One of the two would be lost.
		`["stream.write","s-1",{"type":"a","type":"b","data":{}}]`:                                 "400 INVALID_REQUEST",
		`["stream.write","s-1",{"type":"a","data":{}},{"expectedVersion":7,"expectedVersion":-1}]`: "400 INVALID_REQUEST",
		`["category.get","s",{"consumerGroup":{"member":0,"size":2,"member":1}}]`:                  "400 INVALID_REQUEST",
		`["stream.write","..",{"type":"a","data":{}}]`:                                             "400 INVALID_REQUEST",
		`{}`:                        "400 INVALID_REQUEST",
		`[]`:                        "400 INVALID_REQUEST",
		`null`:                      "400 INVALID_REQUEST",
		`[1]`:                       "400 INVALID_REQUEST",
		`["stream.get","a"`:         "400 INVALID_REQUEST",
		`["stream.get","a"] x`:      "400 INVALID_REQUEST",
		"[\"stream.get\",\"\xff\"]": "400 INVALID_REQUEST",
		`["none"]`:                  "404 METHOD_NOT_FOUND",
		`["stream.write"]`:          "400 INVALID_REQUEST",
		`["stream.write",""]`:       "400 INVALID_REQUEST",
		`["stream.write","\ud800",{"type":"A","data":{}}]`:                            "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"\udc00","data":{}}]`:                            "400 INVALID_REQUEST",
		`["stream.write","a"]`:                                                        "400 INVALID_REQUEST",
		`["stream.write","a",{}]`:                                                     "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"","data":{}}]`:                                  "400 INVALID_REQUEST",
		`["stream.write","a",{"type":1,"data":{}}]`:                                   "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":null}]`:                               "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":[]}]`:                                 "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{},"metadata":1}]`:                    "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{}},null]`:                            "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{}},{"id":1}]`:                        "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{}},{"id":"no"}]`:                     "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{}},{"expectedVersion":null}]`:        "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{}},{"expectedVersion":"1"}]`:         "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{}},{"expectedVersion":1e99}]`:        "400 INVALID_REQUEST",
		`["stream.write","a",{"type":"A","data":{}},{"expectedVersion":0}]`:           "409 STREAM_VERSION_CONFLICT",
		`["stream.write","a-1",{"type":"A","data":{}},{"expectedVersion":-1}]`:        "409 STREAM_VERSION_CONFLICT",
		`["stream.write","b-1",{"type":"A","data":{}},{"id":"` + id + `"}]`:           "409 MESSAGE_ID_TAKEN",
		`["stream.write","` + strings.Repeat("a", 2000) + `",{"type":"A","data":{}}]`: "400 INVALID_REQUEST",
		`["stream.get","a",{"batchSize":10001}]`:                                      "400 INVALID_REQUEST",
		`["stream.get","a",{"batchSize":-2}]`:                                         "400 INVALID_REQUEST",
		`["stream.get","a",{"position":"0"}]`:                                         "400 INVALID_REQUEST",
		`["stream.get","a",[]]`:                                                       "400 INVALID_REQUEST",
		`["stream.last","a",{"type":null}]`:                                           "400 INVALID_REQUEST",
		`["category.get"]`:                                                            "400 INVALID_REQUEST",
		`["category.get",1]`:                                                          "400 INVALID_REQUEST",
		`["category.get","a",{"correlation":1}]`:                                      "400 INVALID_REQUEST",
		`["category.get","a",{"consumerGroup":{"member":0}}]`:                         "400 INVALID_REQUEST",
		`["category.get","a",{"consumerGroup":{"member":2,"size":2}}]`:                "400 INVALID_REQUEST",
		`["category.get","a",{"consumerGroup":{"member":-1,"size":2}}]`:               "400 INVALID_REQUEST",
		`["category.get","a",{"consumerGroup":null}]`:                                 "400 INVALID_REQUEST",
		`["ns.create"]`:                       "400 INVALID_REQUEST",
		`["ns.create","../a"]`:                "400 INVALID_REQUEST",
		`["ns.create","a",{"token":"ns_no"}]`: "400 INVALID_REQUEST",
		`["ns.create","a",{"metadata":null}]`: "400 INVALID_REQUEST",
		`["ns.create","a",{"token":"` + auth.NewNamespaceSecret("b") + `"}]`: "400 INVALID_REQUEST",
		`["ns.create","default"]`:       "409 NAMESPACE_EXISTS",
		`["ns.delete","default"]`:       "400 INVALID_REQUEST",
		`["ns.delete","none"]`:          "404 NAMESPACE_NOT_FOUND",
		`["ns.info","none"]`:            "404 NAMESPACE_NOT_FOUND",
		`["ns.streams",{"limit":0}]`:    "400 INVALID_REQUEST",
		`["ns.streams",{"limit":1001}]`: "400 INVALID_REQUEST",
	} {
		if got := c.failure(request); got != want {
			t.Errorf("%.100s: %s, want %s", request, got, want)
		}
	}
	status, answer, h := c.do(http.MethodGet, "/rpc", "")
	if got := code(t, status, answer, h); got != "405 INVALID_REQUEST" {
		t.Error(got)
	}
	_, answer, _ = c.do(http.MethodPost, "/rpc", `["stream.get","a",{"batchSize":99999}]`)
	if !strings.Contains(answer, "batchSize") {
		t.Error(answer)
	}
	if got := decode[[]any](t, c.call(`["category.get",""]`)); len(got) != 1 {
		t.Errorf("something was written: %v", got)
	}
}

func TestTokens(t *testing.T) {
	c, d := start(t)
	made := decode[struct{ Namespace, Token, CreatedAt string }](t, c.call(`["ns.create","shop",{"description":"d"}]`))
	shop := c.with(made.Token)
	status := func(c *client, path, request string) string {
		s, answer, h := c.do(http.MethodPost, path, request)
		if s == http.StatusOK {
			return "200"
		}
		return code(t, s, answer, h)
	}
	for _, x := range []struct {
		name, want string
		c          *client
		path       string
	}{
		{"none", "401 AUTH_REQUIRED", c.with(""), "/rpc"},
		{"malformed", "401 AUTH_INVALID_TOKEN", c.with("nonsense"), "/rpc"},
		{"of no namespace", "403 AUTH_UNAUTHORIZED", c.with(auth.NewNamespaceSecret("none")), "/rpc"},
		{"wrong", "403 AUTH_UNAUTHORIZED", c.with(auth.NewNamespaceSecret("shop")), "/rpc"},
		{"right", "200", shop, "/rpc"},
		{"in the URL", "200", c.with(""), "/rpc?token=" + made.Token},
		{"the URL's beats the header's", "403 AUTH_UNAUTHORIZED", shop, "/rpc?token=" + auth.NewNamespaceSecret("shop")},
		{"none in the URL", "200", shop, "/rpc?token="},
		{"to follow", "401 AUTH_REQUIRED", c.with(""), "/subscribe?stream=a"},
		{"to import", "401 AUTH_REQUIRED", c.with(""), "/import"},
	} {
		if got := status(x.c, x.path, `["ns.categories"]`); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}

	for _, header := range []string{"Bearer", "Basic YTpi", made.Token} {
		r := httptest.NewRequest(http.MethodPost, "/rpc", nil)
		r.Header.Set("Authorization", header)
		for _, rt := range eventodb.Routes(d, eventodb.Options{}) {
			if got := rt.Credentials(r); got != "" {
				t.Errorf("%s with %q: %q", rt.Pattern, header, got)
			}
		}
	}

	// The token says which namespace; those of other namespaces are nobody's business.
	shop.call(`["stream.write","a-1",{"type":"A","data":{}}]`)
	c.want(`["stream.get","a-1"]`, `[]`)
	info := decode[map[string]any](t, shop.call(`["ns.info","shop"]`))
	if info["messageCount"] != 1.0 || info["streamCount"] != 1.0 || info["description"] != "d" ||
		info["lastActivity"] == nil {
		t.Error(info)
	}
	info = decode[map[string]any](t, c.call(`["ns.info","default"]`))
	if info["lastActivity"] != nil || info["messageCount"] != 0.0 {
		t.Error(info)
	}
	list := decode[[]map[string]any](t, c.call(`["ns.list"]`))
	if len(list) != 2 || list[0]["namespace"] != "shop" || list[1]["namespace"] != "default" {
		t.Error(list)
	}
	for _, request := range []string{`["ns.create","b"]`, `["ns.delete","shop"]`, `["ns.list"]`, `["ns.info","default"]`} {
		if got := shop.failure(request); got != "403 AUTH_UNAUTHORIZED" {
			t.Errorf("%s: %s", request, got)
		}
	}
	deleted := decode[map[string]any](t, c.call(`["ns.delete","shop"]`))
	if deleted["messagesDeleted"] != 1.0 || deleted["namespace"] != "shop" || deleted["deletedAt"] == nil {
		t.Error(deleted)
	}
	if got := shop.failure(`["ns.categories"]`); got != "403 AUTH_UNAUTHORIZED" {
		t.Error(got)
	}
	own := auth.NewNamespaceSecret("own")
	if got := decode[struct{ Token string }](t, c.call(`["ns.create","own",{"token":"`+own+`"}]`)); got.Token != own {
		t.Error(got)
	}
}

// Every method needs the role that the table says, where it says.
func TestMethods(t *testing.T) {
	c, d := start(t)
	if _, err := d.Create(t.Context(), message.NamespaceOptions{ID: "shop"}, ""); err != nil {
		t.Fatal(err)
	}
	for _, role := range []auth.Role{auth.Read, auth.Query, auth.Write, auth.Admin} {
		for _, namespace := range []string{"shop", auth.Everywhere} {
			_, secret, err := d.Tokens().Create(t.Context(), auth.Token{Namespace: namespace, Role: role})
			if err != nil {
				t.Fatal(err)
			}
			c := c.with(secret)
			for _, m := range eventodb.Methods {
				want := role.Includes(m.Role) && (m.Scope != eventodb.Everywhere || namespace == auth.Everywhere)
				status, answer, _ := c.do(http.MethodPost, "/rpc", fmt.Sprintf(`[%q,"shop",{}]`, m.Name))
				if m.Name == "ns.delete" && want { // which would take the token's namespace away
					continue
				}
				if (status != http.StatusForbidden) != want {
					t.Errorf("%s with %v in %q: %d %s", m.Name, role, namespace, status, answer)
				}
			}
			for path, least := range map[string]auth.Role{"/import": auth.Write, "/import?force=true": auth.Admin} {
				status, _, _ := c.do(http.MethodPost, path, "")
				if (status == http.StatusOK) != role.Includes(least) {
					t.Errorf("%s with %v: %d", path, role, status)
				}
			}
		}
	}
}

func TestListings(t *testing.T) {
	c, _ := start(t)
	c.want(`["ns.streams"]`, `[]`)
	c.want(`["ns.categories"]`, `[]`)
	for _, stream := range []string{"b-1", "a-2", "a-1", "a-1"} {
		c.call(`["stream.write","` + stream + `",{"type":"A","data":{}}]`)
	}
	names := func(request string) (names []string) {
		for _, s := range decode[[]map[string]any](t, c.call(request)) {
			names = append(names, fmt.Sprint(s["stream"], " ", s["version"]))
			at, err := time.Parse(time.RFC3339, fmt.Sprint(s["lastActivity"]))
			if err != nil || at.IsZero() || at.Nanosecond() != 0 {
				t.Error(s, err)
			}
		}
		return names
	}
	for request, want := range map[string][]string{
		`["ns.streams"]`:                            {"a-1 1", "a-2 0", "b-1 0"},
		`["ns.streams",{"prefix":"a"}]`:             {"a-1 1", "a-2 0"},
		`["ns.streams",{"cursor":"a-1","limit":1}]`: {"a-2 0"},
	} {
		if got := names(request); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q", request, got)
		}
	}
	c.want(`["ns.categories"]`, `[{"category":"a","streamCount":2,"messageCount":3},`+
		`{"category":"b","streamCount":1,"messageCount":1}]`)
	c.want(`["sys.version"]`, `"1.2.3"`)
	c.want(`["sys.health"]`, `{"status":"ok","backend":"mem","connections":0}`)
}

// sys.version begins with numbers, whatever the build calls itself.
func TestVersion(t *testing.T) {
	for version, want := range map[string]string{"v0.1.0": "0.1.0", "0.1.0": "0.1.0", "v1.2.3-rc.1": "1.2.3-rc.1",
		"(devel)": "0.0.0-devel", "dev": "0.0.0-dev"} {
		c, _ := startVersion(t, version)
		c.want(`["sys.version"]`, `"`+want+`"`)
	}
}

// An answer of any size arrives whole.
func TestLargeAnswer(t *testing.T) {
	c, _ := start(t)
	text := strings.Repeat("x", 300_000)
	for range 3 {
		c.call(`["stream.write","a-1",{"type":"A","data":{"text":"` + text + `"}}]`)
	}
	got := decode[[][]any](t, c.call(`["stream.get","a-1"]`))
	if len(got) != 3 || !reflect.DeepEqual(got[2][4], map[string]any{"text": text}) {
		t.Error(len(got))
	}
}

// An answer has as many messages as fit in 16 MiB, and at least one. All of them are read page by page, or at once with
// -1.
func TestPageBytes(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one request at a time")
	}
	c, _ := start(t)
	for _, size := range []int{6 << 20, 6 << 20, 20 << 20, 100, 6 << 20} {
		c.call(`["stream.write","a-1",{"type":"A","data":{"text":"` + strings.Repeat("x", size) + `"}}]`)
	}
	for _, call := range []string{`["stream.get","a-1",{"position":%d}]`,
		`["category.get","a",{"position":%d,"batchSize":10}]`} {
		var pages []int
		for next := 0; ; {
			got := decode[[][]any](t, c.call(fmt.Sprintf(call, next)))
			if len(got) == 0 {
				break
			}
			pages = append(pages, len(got))
			last := got[len(got)-1]
			if strings.Contains(call, "category") {
				next = int(last[4].(float64)) + 1
			} else {
				next = int(last[2].(float64)) + 1
			}
		}
		if !slices.Equal(pages, []int{2, 1, 2}) {
			t.Errorf("%s: pages of %v", call, pages)
		}
	}
	if got := decode[[][]any](t, c.call(`["stream.get","a-1",{"batchSize":-1}]`)); len(got) != 5 {
		t.Errorf("all are %d", len(got))
	}
}

type poke struct {
	Stream                   string
	Position, GlobalPosition int64
}

// followed is an answer of /subscribe that is being read.
type followed struct {
	t    *testing.T
	in   *bufio.Reader
	body io.Closer
}

// follow returns once the server has answered.
func (c *client) follow(query string) *followed {
	c.t.Helper()
	r, err := http.NewRequest(http.MethodGet, c.url+"/subscribe?token="+c.token+"&"+query, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	a, err := c.http.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" ||
		a.Header.Get("Cache-Control") != "no-cache" || a.Header.Get("Access-Control-Allow-Origin") != "*" {
		c.t.Fatal(query, a.Status, a.Header)
	}
	f := &followed{c.t, bufio.NewReader(a.Body), a.Body}
	c.t.Cleanup(func() { a.Body.Close() })
	if got := f.block(); got != ": ready" {
		c.t.Fatal(got)
	}
	return f
}

// block returns the next block, up to an empty line.
func (f *followed) block() string {
	f.t.Helper()
	var block string
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			f.t.Fatal(block, err)
		}
		if line == "\n" {
			return strings.TrimSuffix(block, "\n")
		}
		block += line
	}
}

func (f *followed) next() poke {
	f.t.Helper()
	for {
		block := f.block()
		if block == ": " { // to keep the connection
			continue
		}
		data, ok := strings.CutPrefix(block, "event: poke\ndata: ")
		if !ok {
			f.t.Fatalf("%q", block)
		}
		return decode[poke](f.t, data)
	}
}

func TestFollow(t *testing.T) {
	c, _ := start(t)
	write := func(stream string) {
		t.Helper()
		c.call(`["stream.write","` + stream + `",{"type":"A","data":{}}]`)
	}
	want := func(f *followed, p ...poke) {
		t.Helper()
		for _, p := range p {
			if got := f.next(); got != p {
				t.Errorf("%+v, want %+v", got, p)
			}
		}
	}
	for _, stream := range []string{"a-1", "a-2", "b-1", "a-1"} {
		write(stream)
	}
	stream, late := c.follow("stream=a-1"), c.follow("stream=a-1&position=1")
	category, all := c.follow("category=a&position=2"), c.follow("all=true")
	member := []*followed{c.follow("category=a&consumer=0&size=2"), c.follow("category=a&consumer=1&size=2")}
	odd := c.follow("category=" + url.QueryEscape("ä \"c\""))
	want(stream, poke{"a-1", 0, 1}, poke{"a-1", 1, 4})
	want(late, poke{"a-1", 1, 4})
	want(category, poke{"a-2", 0, 2}, poke{"a-1", 1, 4})
	want(member[0], poke{"a-1", 0, 1}, poke{"a-1", 1, 4})
	want(member[1], poke{"a-2", 0, 2})
	write("b-1")
	write("a-1")
	c.call(`["stream.write","ä \"c\"-1",{"type":"A","data":{}}]`)
	write("a-2")
	want(stream, poke{"a-1", 2, 6})
	want(late, poke{"a-1", 2, 6})
	want(category, poke{"a-1", 2, 6}, poke{"a-2", 1, 8})
	want(member[0], poke{"a-1", 2, 6})
	want(member[1], poke{"a-2", 1, 8})
	want(all, poke{"b-1", 1, 5}, poke{"a-1", 2, 6}, poke{`ä "c"-1`, 0, 7}, poke{"a-2", 1, 8})
	want(odd, poke{`ä "c"-1`, 0, 7})
	want(c.follow("category=a&position=7"), poke{"a-2", 1, 8})

	// What is imported is told, too.
	if _, answer, _ := c.do(http.MethodPost, "/import", line(1, "a-3", 0, 20)); !strings.Contains(answer, `"imported":1`) {
		t.Error(answer)
	}
	want(category, poke{"a-3", 0, 20})

	for _, query := range []string{"", "stream=a&category=b", "all=yes", "stream=a&all=true", "stream=a&position=x",
		"category=a&consumer=2&size=2", "category=a&consumer=1", "stream=a&consumer=0&size=2", "category=a&size=-1"} {
		status, answer, h := c.do(http.MethodGet, "/subscribe?"+query, "")
		if status != http.StatusBadRequest || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") {
			t.Errorf("%q: %d %s", query, status, answer)
		}
	}
}

// A follower gets each message once and in order, however it joins, while others write and others come and go.
func TestFollowWhileWriting(t *testing.T) {
	const messages, followers = 3000, 8
	c, _ := start(t)
	for range followers * 100 { // so that all of them begin at a position that there is
		c.call(`["stream.write","a-0",{"type":"A","data":{}}]`)
	}
	var writers, readers sync.WaitGroup
	for i := range followers {
		f := c.follow(fmt.Sprintf("category=a&position=%d", 1+i*100))
		readers.Go(func() {
			for want := int64(1 + i*100); want <= messages; want++ {
				if got := f.next(); got.GlobalPosition != want {
					t.Errorf("follower %d: %+v, want %d", i, got, want)
					return
				}
				if i%2 == 0 && want%1000 == 0 { // come again
					f.body.Close()
					f = c.follow(fmt.Sprintf("category=a&position=%d", want+1))
				}
			}
		})
	}
	for w := range 4 {
		writers.Go(func() {
			for range messages / 4 {
				c.call(fmt.Sprintf(`["stream.write","a-%d",{"type":"A","data":{}}]`, w))
			}
		})
	}
	writers.Wait()
	readers.Wait()
}

// Followers of a namespace that is deleted, or of a server that stops, see the end of the answer.
func TestFollowersEnd(t *testing.T) {
	c, _ := start(t)
	made := decode[struct{ Token string }](t, c.call(`["ns.create","shop"]`))
	f, other := c.with(made.Token).follow("stream=a"), c.follow("stream=a")
	c.call(`["ns.delete","shop"]`)
	if _, err := f.in.ReadByte(); err != io.EOF {
		t.Error(err)
	}
	c.call(`["stream.write","a",{"type":"A","data":{}}]`)
	if got := other.next(); got.GlobalPosition != 1 {
		t.Error(got)
	}
}

func line(n int, stream string, position, global int) string {
	return fmt.Sprintf(`{"id":"00000000-0000-4000-8000-%012d","stream":%q,"type":"A","pos":%d,"gpos":%d,"data":{"n":1},`+
		`"meta":null,"time":"2026-01-02T03:04:05.678Z"}`+"\n", n, stream, position, global)
}

func TestImport(t *testing.T) {
	c, _ := start(t)
	last := func(query, body string) map[string]any {
		t.Helper()
		status, answer, h := c.do(http.MethodPost, "/import"+query, body)
		if status != http.StatusOK || h.Get("Content-Type") != "text/event-stream" || !strings.HasSuffix(answer, "\n\n") {
			t.Fatal(status, answer)
		}
		var v map[string]any
		for block := range strings.SplitSeq(strings.TrimSuffix(answer, "\n\n"), "\n\n") {
			text, ok := strings.CutPrefix(block, "data: ")
			if !ok {
				t.Fatal(block)
			}
			v = decode[map[string]any](t, text)
		}
		return v
	}
	if got := last("", ""); got["done"] != true || got["imported"] != 0.0 || got["elapsed"] != "0.0s" {
		t.Error(got)
	}
	var many bytes.Buffer
	for i := range 2500 {
		many.WriteString(line(i, "a-1", 2*i, 10_000-3*i)) // with gaps, not ascending
	}
	text := many.String()
	if got := last("", text); got["done"] != true || got["imported"] != 2500.0 {
		t.Error(got)
	}
	if got := last("", text); got["imported"] != 0.0 || got["known"] != 2500.0 { // so it can be repeated
		t.Error(got)
	}
	c.want(`["stream.version","a-1"]`, "4998")
	c.want(`["stream.write","a-1",{"type":"A","data":{}}]`, `{"position":4999,"globalPosition":10001}`)
	for body, want := range map[string]string{
		line(1, "b-1", 0, 5) + "{":                                                  "INVALID_JSON 2",
		line(7000, "b-1", 0, 20_000) + "\n\n" + `{"id":1}`:                          "INVALID_JSON 4",
		strings.Replace(line(7001, "b-1", 1, 20_001), "2026-01-02", "yesterday", 1): "INVALID_RECORD 1",
		line(7002, "b-1", 1, 10_000):                                                "POSITION_EXISTS 1",
		line(7003, "a-1", 0, 20_003):                                                "POSITION_EXISTS 1",
		line(7004, "a-1", -1, 20_004):                                               "INVALID_RECORD 1",
	} {
		got := last("", body)
		if s := fmt.Sprint(got["error"], " ", got["line"]); s != want || got["message"] == "" {
			t.Errorf("%.60s: %v, want %s", body, got, want)
		}
	}
	if got := last("?force=true", line(1, "c-1", 0, 1)); got["imported"] != 1.0 {
		t.Error(got)
	}
	if got := decode[[]any](t, c.call(`["category.get",""]`)); len(got) != 1 {
		t.Error(got)
	}
	c.want(`["stream.write","c-1",{"type":"A","data":{}}]`, `{"position":1,"globalPosition":2}`)
}

// A subscription at a position that is not reached yet is refused, since it would miss what comes before; reading there
// gives nothing, as in EventoDB.
func TestAhead(t *testing.T) {
	c, _ := start(t)
	c.call(`["stream.write","a-1",{"type":"A","data":{}}]`)
	for _, query := range []string{"stream=a-1&position=2", "stream=none&position=1", "category=a&position=3",
		"category=a&position=5001&consumer=0&size=2", "all=true&position=3"} {
		status, answer, _ := c.do(http.MethodGet, "/subscribe?"+query, "")
		if status != http.StatusConflict || !strings.Contains(answer, `"code":"POSITION_AHEAD"`) {
			t.Errorf("%q: %d %s", query, status, answer)
		}
	}
	c.follow("stream=a-1&position=1")
	c.follow("category=a&position=2")
	c.follow("stream=none&position=0")
	for _, call := range []string{`["stream.get","a-1",{"position":5001}]`, `["stream.get","none",{"position":1}]`,
		`["category.get","a",{"position":5001}]`, `["category.get","a",{"globalPosition":5001}]`} {
		if got := c.call(call); got != "[]" {
			t.Errorf("%s: %s", call, got)
		}
	}
}
