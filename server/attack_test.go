package server

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/store/message"
)

// What is sent here is meant to do harm. Whatever it is, the server answers what is wrong with it, goes on, and keeps
// nothing of it in memory.

// attack makes a request as it stands, waits for the beginning of the answer, and reads at most a part of it.
func (r *running) attack(method, path string, body []byte, headers ...string) (int, string) {
	r.t.Helper()
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, method, r.url, bytes.NewReader(body))
	try(r.t, err)
	req.URL.Opaque = path // as it stands
	req.Header.Set("Authorization", "Bearer "+r.token)
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = []string{headers[i+1]}
	}
	res, err := r.client.Do(req)
	if err != nil {
		r.t.Errorf("%s %.100s: %v", method, path, err)
		return 0, ""
	}
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res.StatusCode, ""
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		r.t.Errorf("%s %.100s: %v", method, path, err)
	}
	return res.StatusCode, string(text)
}

// survived fails if a request had an answer that only a bug can give.
func (r *running) survived(what string, status int, text string) {
	r.t.Helper()
	switch status {
	case 0, 500, 502, 504:
		r.t.Errorf("%.200s: status %d: %.300s", what, status, text)
	}
}

var wildcard = regexp.MustCompile(`\{[^}]*\}`)

// hostile are values for what stands in a path.
var hostile = []string{"..", "%2e%2e", "..%2f..%2f..%2fetc%2fpasswd", "%00", "a%00b", "%ff%fe", "%2f",
	"%0d%0aX:%20y", "*", "%7b%7d",
	"-", "%25", "-1", "18446744073709551616", "CON", strings.Repeat("x", 10_000), strings.Repeat("%00", 3000)}

// Every route with names that are none, in its path and in its query.
func TestAttackNames(t *testing.T) {
	r := start(t, mem.New(), Options{MaxBody: 1 << 20}, nil)
	seen := map[string]bool{}
	values := hostile
	if testing.Short() { // the race detector makes it slow, and there is one request at a time
		values = hostile[:4]
	}
	for _, rt := range r.Routes() {
		method := rt.Method
		if method == "" {
			method = "GET"
		}
		for _, value := range values {
			paths := []string{wildcard.ReplaceAllString(rt.Pattern, value)}
			for _, one := range wildcard.FindAllString(rt.Pattern, -1) { // one is hostile, the rest is not
				path := strings.Replace(rt.Pattern, one, value, 1)
				paths = append(paths, wildcard.ReplaceAllString(strings.ReplaceAll(path, "{ns}", "default"), "x"))
			}
			if !wildcard.MatchString(rt.Pattern) {
				q := strings.ReplaceAll("?stream=V&category=V&from=V&to=V&limit=V&type=V&prefix=V&after=V"+
					"&position=V&member=V&size=V"+
					"&batch_size=V&cursor=V&queue=V&state=V&namespace=V&consumer=V&before=V", "V", value)
				paths = append(paths, rt.Pattern+q)
			}
			for _, path := range paths {
				if len(path) > 60_000 || seen[method+path] {
					continue
				}
				seen[method+path] = true
				status, text := r.attack(method, path, []byte("{}"), "Content-Type", "application/json")
				r.survived(method+" "+path, status, text)
			}
		}
	}
	if log := r.log.String(); strings.Contains(log, `"msg":"panic"`) {
		t.Errorf("it has panicked: %.2000s", log[strings.Index(log, `"msg":"panic"`):])
	}
}

// TestRewrittenPaths: no request whose path a client or a proxy would rewrite is taken for another, on any route and
// with any method. It is 400, never a redirect, which would keep the method, and changes nothing.
func TestRewrittenPaths(t *testing.T) {
	t.Parallel()
	e := mem.New()
	r := start(t, e, Options{}, nil)
	post := func(path, body string) {
		t.Helper()
		if status, text := r.attack("POST", "/v1/namespaces/default"+path, []byte(body)); status != 200 {
			t.Fatal(status, text)
		}
	}
	post("/messages", `{"stream":"order-1","messages":[{"type":"placed","data":{}}]}`)
	post("/tasks", `{"tasks":[{"kind":"mail"}]}`)
	before := keysOf(t, e)
	seen := map[string]bool{}
	odds := []string{
		".",
		"..",
		"%2e",
		"%2E%2E",
		".%2e",
		"%2e.",
		"",
		"%2F",
		"%2f%2F",
		"..%2F",
		"%2F..",
		"a%2F..%2F..",
		"%2e%2f%2E",
	}
	if testing.Short() { // the race detector makes it slow, and there is one request at a time
		odds = []string{"..", "%2e", "", "a%2F..%2F.."}
	}
	for _, rt := range r.Routes() {
		ready := wildcard.ReplaceAllString(strings.ReplaceAll(rt.Pattern, "{ns}", "default"), "order-1")
		segments := strings.Split(strings.TrimPrefix(ready, "/"), "/")
		for i := range len(segments) + 1 {
			for _, odd := range odds {
				path := "/" + strings.Join(slices.Insert(slices.Clone(segments), i, odd), "/")
				replaced := path
				if i < len(segments) {
					list := slices.Clone(segments)
					list[i] = odd
					replaced = "/" + strings.Join(list, "/")
				}
				for _, path := range []string{path, replaced} {
					for _, method := range []string{"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE"} {
						if path == "/" || path == "/page/" || seen[method+path] {
							continue
						}
						seen[method+path] = true
						whole := path
						if strings.HasPrefix(path, "//") { // which the client would take for a host
							whole = r.url + path
						}
						status, text := r.attack(method, whole, []byte(`{}`))
						if status != http.StatusBadRequest {
							t.Errorf("%s %s: %d %.200s", method, path, status, text)
						}
					}
				}
			}
		}
	}
	if after := keysOf(t, e); after != before || len(seen) < 1000 {
		t.Errorf("%d keys, %d before; %d requests", after, before, len(seen))
	}

	// Other paths are not redirected either, and the page is there.
	for path, want := range map[string]int{"/subscriptions": 400, "/ebuse/subscriptions": 400, "/v1": 404, "/rpc/": 400,
		"/page/": 200, "/page/index.html": 200, "/": 200} {
		if status, text := r.attack("GET", path, nil); status != want {
			t.Errorf("GET %s: %d %.200s", path, status, text)
		}
	}
	for _, path := range []string{"/subscriptions", "/page", "/", "/page/"} {
		if status, text := r.attack("DELETE", path, nil); status < 400 {
			t.Errorf("DELETE %s: %d %.200s", path, status, text)
		}
	}

	// Names with slashes are names.
	post("/messages", `{"stream":"https://a/b","messages":[{"type":"placed","data":{}}]}`)
	if status, text := r.attack("GET", "/v1/namespaces/default/streams/https:%2F%2Fa%2Fb", nil); status != 200 {
		t.Error(status, text)
	}

	// Names that cannot stand in a path are not made.
	if status, text := r.attack("POST", "/rpc", []byte(`["stream.write","..",{"type":"t","data":{}}]`)); status != 400 {
		t.Errorf("stream.write of ..: %d %s", status, text)
	}
	for _, name := range []string{".", "..", "/", "//", "a/../b", "./a"} {
		for path, body := range map[string]string{
			"/v1/namespaces":                  `{"id":%q}`,
			"/v1/namespaces/default/messages": `{"stream":%q,"messages":[{"type":"placed","data":{}}]}`,
			"/v1/namespaces/default/tasks":    `{"tasks":[{"kind":"mail","queue":%q}]}`,
		} {
			status, text := r.attack("POST", path, fmt.Appendf(nil, body, name))
			if status != http.StatusBadRequest {
				t.Errorf("POST %s with the name %q: %d %s", path, name, status, text)
			}
		}
		status, text := r.attack(
			"POST",
			"/v1/namespaces/default/tasks",
			fmt.Appendf(nil, `{"tasks":[{"kind":"k","id":%q}]}`, name),
		)
		if status != http.StatusBadRequest {
			t.Errorf("a task with the id %q: %d %s", name, status, text)
		}
	}
}

func keysOf(t *testing.T, e holdfast.Engine) (n int) {
	t.Helper()
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		n++
	}
	try(t, it.Close())
	return n
}

// TestEncodings: no route takes a body that is compressed; each says so.
func TestEncodings(t *testing.T) {
	r := start(t, mem.New(), Options{}, nil)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte(`{}`))
	try(t, errors.Join(err, z.Close()))
	for _, rt := range r.Routes() {
		if rt.Method != http.MethodPost && rt.Method != http.MethodPut {
			continue
		}
		path := wildcard.ReplaceAllString(strings.ReplaceAll(rt.Pattern, "{ns}", "default"), "x")
		for _, encoding := range []string{"gzip", "br", "deflate, gzip", "identity, gzip"} {
			status, text := r.attack(rt.Method, path, zipped.Bytes(), "Content-Encoding", encoding)
			if status != http.StatusUnsupportedMediaType {
				t.Errorf("%s %s with %s: %d %s", rt.Method, path, encoding, status, text)
			}
		}
		if status, text := r.attack(rt.Method, path, []byte(`{}`), "Content-Encoding", "identity"); status == 415 {
			t.Errorf("%s %s: %d %s", rt.Method, path, status, text)
		}
	}
}

// bodies are what a client should not send.
func bodies() map[string][]byte {
	deep := func(n int, open, shut string) []byte {
		return []byte(strings.Repeat(open, n) + strings.Repeat(shut, n))
	}
	wrapped := func(field string, value []byte) []byte { return []byte(`{"` + field + `":` + string(value) + `}`) }
	list := map[string][]byte{
		"nothing": nil, "null": []byte("null"), "a list": []byte("[]"), "a string": []byte(`"x"`),
		"a number": []byte("1e999"),
		"half":     []byte(`{"a":`), "two": []byte(`{}{}`), "NUL": {0}, "UTF-8": []byte("{\"\xff\":\"\xc0\xaf\"}"),
		"UTF-16": []byte("\xff\xfe{\x00}\x00"), "surrogates": []byte(`{"type":"\ud800","stream":"\udfff"}`),
		"deep lists": deep(100_000, "[", "]"), "deep objects": deep(100_000, `{"a":`, "}"),
		"open lists":    []byte(strings.Repeat("[", 1<<20)),
		"repeated keys": []byte(`{"type":"a","type":1,"messages":[],"messages":null,"position":1,"position":"x","id":1}`),
		"a long key":    []byte(`{"` + strings.Repeat("k", 1<<19) + `":1}`),
		"many":          []byte("[" + strings.Repeat("{},", 110_000) + "{}]"),
	}
	for _, field := range []string{"data", "messages", "operations", "events", "tasks", "leases", "position", "lease_ms",
		"id", "n"} {
		list[field+" deep"] = wrapped(field, deep(20_000, "[", "]"))
		list[field+" huge"] = wrapped(field, []byte("99999999999999999999999999999999999999"))
		list[field+" most"] = wrapped(field, []byte("9223372036854775807"))
		list[field+" least"] = wrapped(field, []byte("-9223372036854775808"))
		list[field+" long"] = wrapped(field, []byte(`"`+strings.Repeat("9", 100_000)+`"`))
		list[field+" null"] = wrapped(field, []byte("[null,null]"))
		list[field+" many"] = wrapped(field, []byte("["+strings.Repeat("{},", 110_000)+"{}]"))
	}
	return list
}

// Every route that takes a body, with bodies that are none.
func TestAttackBodies(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it makes some thousand requests, one after the other")
	}
	r := start(t, mem.New(), Options{MaxBody: 2 << 20}, nil)
	list := bodies()
	for _, rt := range r.Routes() {
		method := rt.Method
		if method == "" {
			method = "POST"
		}
		if method == "GET" || method == "HEAD" || method == "DELETE" {
			continue
		}
		path := wildcard.ReplaceAllString(strings.ReplaceAll(rt.Pattern, "{ns}", "default"), "x")
		for name, body := range list {
			status, text := r.attack(method, path, body, "Content-Type", "application/json")
			r.survived(method+" "+path+" with "+name, status, text)
		}
	}
	if log := r.log.String(); strings.Contains(log, `"msg":"panic"`) {
		t.Errorf("it has panicked: %.2000s", log[strings.Index(log, `"msg":"panic"`):])
	}
}

// bomb is a gzip of n bytes, a thousandth of that in size: what a compressed body can become.
func bomb(n int, line string) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // the level is one
	for left := n; left > 0; {
		k, _ := io.WriteString(z, line)
		left -= k
	}
	_ = z.Close()
	return b.Bytes()
}

// A compressed body is refused, or read in parts: it never is in memory whole.
func TestAttackCompressed(t *testing.T) {
	if testing.Short() {
		t.Skip("it unpacks some hundred megabytes, one request after the other")
	}
	r := start(t, mem.New(), Options{MaxBody: 1 << 20}, nil)
	const size = 640 << 20
	blob := bomb(size, strings.Repeat("x", 1<<20))
	peak := heapPeak()
	for _, rt := range r.Routes() {
		if rt.Method == "GET" || rt.Method == "DELETE" {
			continue
		}
		method := rt.Method
		if method == "" {
			method = "POST"
		}
		path := wildcard.ReplaceAllString(strings.ReplaceAll(rt.Pattern, "{ns}", "default"), "x")
		status, text := r.attack(method, path, blob, "Content-Encoding", "gzip", "Content-Type", "application/x-ndjson")
		r.survived(method+" "+path, status, text)
	}
	// A line of an import may have 96 MiB, and is in memory while it is read.
	if grown := peak(); grown > size {
		t.Errorf("%d MiB more of heap", grown>>20)
	}
}

// Bombs for imports, many at once and from several namespaces: a few are read together, and of their lines one.
func TestAttackImports(t *testing.T) {
	if testing.Short() {
		t.Skip("it unpacks some hundred megabytes")
	}
	r := start(t, mem.New(), Options{}, nil)
	const size = 16 << 20 // of a line
	blob := bomb(size, strings.Repeat("x", size))
	peak := heapPeak()
	var all sync.WaitGroup
	for i := range 3 {
		own := auth.NewNamespaceSecret(fmt.Sprint("n", i))
		_, err := r.data.Create(ctx, message.NamespaceOptions{ID: fmt.Sprint("n", i)}, own)
		try(t, err)
		for range 4 {
			all.Go(func() {
				for _, path := range []string{"/import?token=" + own, fmt.Sprintf("/v1/namespaces/n%d/import", i)} {
					status, text := r.attack("POST", path, blob)
					r.survived(path, status, text)
				}
			})
		}
	}
	all.Wait()
	if grown := peak(); grown > 5*size { // one line is copied while its buffer grows; little garbage lies about
		t.Errorf("%d MiB more of heap", grown>>20)
	}
}

// A body of a megabyte does not become hundreds of them: lists have bounds of their own.
func TestAttackLists(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes it slow, and there is one request at a time")
	}
	r := start(t, mem.New(), Options{}, nil)
	item, shut := "{},", "{}"
	for path, open := range map[string][2]string{
		"/events/batch":                              {"[", "]"},
		"/rpc":                                       {`["sys.version",`, "]"},
		"/v1/namespaces/default/logs/x/events":       {`{"events":[`, "]}"},
		"/v1/namespaces/default/tasks":               {`{"tasks":[`, "]}"},
		"/v1/namespaces/default/messages":            {`{"stream":"s","messages":[`, "]}"},
		"/v1/namespaces/default/leases/complete":     {`{"leases":[`, "]}"},
		"/v1/namespaces/default/leases/heartbeat":    {`{"leases":[`, "]}"},
		"/v1/namespaces/default/subscriptions/s/ack": {`{"deliveries":[`, "]}"},
		"/v1/transactions": {
			`{"operations":[{"namespace":"default","complete":{"id":"x","token":1,"then":[{"kind":"k","after":[`, "]}]}}]}"},
	} {
		body := []byte(open[0] + strings.Repeat(item, 5<<20) + shut + open[1])
		peak := heapPeak()
		status, text := r.attack("POST", path, body, "Content-Type", "application/json")
		if grown := peak(); grown > uint64(12*len(body)) {
			t.Errorf("%s: %d MiB more of heap for a body of %d MiB", path, grown>>20, len(body)>>20)
		}
		if path != "/rpc" && status != 413 && status != 400 {
			t.Errorf("%s: %d %.200s", path, status, text)
		}
	}
}

// heapPeak begins to watch the heap; what it returns ends that, and tells by how many bytes it had grown at most.
// Little garbage is left to lie meanwhile: it depends on chance how much that is.
func heapPeak() func() uint64 {
	percent := debug.SetGCPercent(10)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, most, stop, done := m.HeapInuse, uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-done
		debug.SetGCPercent(percent)
		return max(most, before) - before
	}
}

// The tokens of a namespace that is gone open nothing, on no route, nor in one that is made again with its name.
func TestAttackDeletedNamespace(t *testing.T) {
	r := start(t, mem.New(), Options{}, nil)
	d := r.data
	own := auth.NewNamespaceSecret("gone")
	create := func() {
		t.Helper()
		_, err := d.Create(ctx, message.NamespaceOptions{ID: "gone"}, own)
		try(t, err)
	}
	create()
	_, further, err := r.tokens.Create(ctx, auth.Token{Namespace: "gone", Role: auth.Admin})
	try(t, err)
	if status, text := r.attack("POST", "/events", []byte(`{}`), "X-Api-Key", own); status != 200 {
		t.Fatal(status, text)
	}
	check := func(secret string) {
		t.Helper()
		for _, rt := range r.Routes() {
			if rt.Role == auth.None {
				continue
			}
			method := rt.Method
			if method == "" {
				method = "GET"
			}
			path := wildcard.ReplaceAllString(strings.ReplaceAll(rt.Pattern, "{ns}", "gone"), "x")
			if strings.HasSuffix(path, "/") {
				path += "x"
			}
			for _, headers := range [][]string{{"Authorization", "Bearer " + secret}, {"X-Api-Key", secret, "Authorization",
				""}} {
				if status, text := r.attack(method, path, []byte("{}"), headers...); status != 401 && status != 403 {
					t.Errorf("%s %s: %d %s", method, path, status, text)
				}
			}
		}
	}
	_, err = d.Delete(ctx, "gone")
	try(t, err)
	check(own)
	check(further)
	own, old := auth.NewNamespaceSecret("gone"), own
	create()
	check(old)
	check(further)
	if status, text := r.attack("GET", "/position", nil, "X-Api-Key",
		own); status != 200 || text != "{\"position\":0}\n" {
		t.Error("what was in the namespace before is there again:", status, text)
	}
}

// raw sends bytes, and returns all that is answered until the server closes the connection.
func (r *running) raw(t *testing.T, sent string) string {
	t.Helper()
	c, err := net.Dial("tcp", r.at)
	try(t, err)
	defer c.Close()
	try(t, c.SetDeadline(time.Now().Add(patience)))
	go func() { _, _ = io.WriteString(c, sent) }()
	b, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%.80q: the connection stays open", sent)
	}
	return string(b)
}

// Requests that are none, several in one, of other versions, or ambiguous about where they end.
func TestAttackRaw(t *testing.T) {
	t.Parallel()
	// Some cases wait until the server takes the connection for idle.
	r := start(t, mem.New(), Options{HeaderTimeout: 2 * time.Second, BodyTimeout: 2 * time.Second,
		IdleTimeout: 200 * time.Millisecond}, nil)
	own := "Authorization: Bearer " + r.token + "\r\n"
	const host, chunked = "HTTP/1.1\r\nHost: h\r\n", "Transfer-Encoding: chunked\r\n"
	cases := []struct{ what, sent, want string }{
		{"noise", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "HTTP/1.1 400 "},
		{"a line", "hello\r\n\r\n", "HTTP/1.1 400 "},
		{"junk behind a request", "GET /health " + host + "\r\n\x00\x01\x02\r\n\r\n", "HTTP/1.1 200 OK"},
		{"HTTP/1.0", "GET /health HTTP/1.0\r\n\r\n", "HTTP/1.0 200 OK"},
		{"HTTP/1.0 that streams", "GET /events/stream?from=1 HTTP/1.0\r\n" + own + "\r\n", "HTTP/1.0 200 OK"},
		{"HTTP/0.9", "GET /health\r\n\r\n", "HTTP/1.1 400 "},
		{"HTTP/3.0", "GET /health HTTP/3.0\r\nHost: h\r\n\r\n", "HTTP/1.1 505 "},
		{"no host", "GET /health HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"two hosts", "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "HTTP/1.1 400 "},
		{"two lengths", "POST /events " + host + own + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "HTTP/1.1 400 "},
		{"a negative length", "POST /events " + host + own + "Content-Length: -1\r\n\r\n", "HTTP/1.1 400 "},
		{"a huge length", "POST /events " + host + own + "Content-Length: 9223372036854775807\r\n\r\n{}", "HTTP/1.1 413 "},
		{"a length too long", "POST /events " + host + own + "Content-Length: 92233720368547758070\r\n\r\n{}",
			"HTTP/1.1 400 "},
		{"a bad chunk", "POST /events " + host + own + chunked + "\r\nzz\r\n{}\r\n0\r\n\r\n", "HTTP/1.1 400 "},
		{"a bad chunk for /v1", "POST /v1/namespaces/default/messages " + host + own + chunked + "\r\nzz\r\n{}\r\n0\r\n\r\n",
			"HTTP/1.1 400 "},
		{"bytes behind a chunk", "POST /v1/namespaces/default/messages " + host + own + chunked + "\r\n2\r\n{}XX0\r\n\r\n",
			"HTTP/1.1 400 "},
		{"a bad chunk of an import", "POST /v1/namespaces/default/import " + host + own + chunked + "\r\nzz\r\n{}\r\n",
			"HTTP/1.1 400 "},
		{"a bad chunk for EventoDB", "POST /rpc " + host + own + chunked + "\r\nzz\r\n{}\r\n0\r\n\r\n", "HTTP/1.1 400 "},
		{"a huge chunk", "POST /events " + host + own + chunked + "\r\nffffffffffffffff\r\n{}", "HTTP/1.1 400 "},
		{"an unknown coding", "POST /events " + host + own + "Transfer-Encoding: gzip, chunked\r\n\r\n", "HTTP/1.1 501 "},
		{"a NUL in a header", "GET /health " + host + "X: a\x00b\r\n\r\n", "HTTP/1.1 400 "},
		{"a folded header", "GET /health " + host + "X: a\r\n b\r\n\r\n", ""},
		{"a space before a colon", "GET /health " + host + "X : a\r\n\r\n", "HTTP/1.1 400 "},
		{"CONNECT", "CONNECT h:1 " + host + "\r\n", "HTTP/1.1 405 "},
		{"a star", "OPTIONS * " + host + "Connection: close\r\n\r\n", "HTTP/1.1 200 "},
		{"another star", "GET * " + host + "Connection: close\r\n\r\n", "HTTP/1.1 40"},
		{"another host", "GET http://elsewhere/health " + host + "Connection: close\r\n\r\n", "HTTP/1.1 200 "},
		{"a bad escape", "GET /health%zz " + host + "\r\n", "HTTP/1.1 400 "},
		{"a NUL in the path", "GET /health\x00 " + host + "\r\n", "HTTP/1.1 400 "},
		{"an upgrade", "GET /health " + host + "Connection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n", "HTTP/1.1 200 "},
		{"HTTP/2 without TLS", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/1.1 "},
		{"a method in lower case", "get /position " + host + "Connection: close\r\n" + own + "\r\n", "HTTP/1.1 405 "},
		{"trailers", "POST /events " + host + "Connection: close\r\n" + own +
			chunked + "Trailer: X\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\nHoldfast-Level: x\r\n\r\n", "HTTP/1.1 200 "},
		{"a token as a trailer", "POST /events " + host + "Connection: close\r\n" +
			chunked + "Trailer: X-API-Key\r\n\r\n2\r\n{}\r\n0\r\nX-API-Key: " + r.token + "\r\n\r\n", "HTTP/1.1 401 "},
		{"a length as a trailer", "POST /events " + host + "Connection: close\r\n" + own +
			chunked + "Trailer: Content-Length\r\n\r\n2\r\n{}\r\n0\r\nContent-Length: 7\r\n\r\n", "HTTP/1.1 400 "},
		{"trailers that do not end", "POST /events " + host + own + chunked + "\r\n" +
			"2\r\n{}\r\n0\r\n" + strings.Repeat("X: "+strings.Repeat("x", 1000)+"\r\n", 1000), "HTTP/1.1 400 "},
	}
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(c.what, func(t *testing.T) {
				t.Parallel() // some wait for the server to close the connection
				if got := r.raw(t, c.sent); !strings.HasPrefix(got, c.want) || strings.Contains(got, r.token) {
					t.Errorf("%.300q", got)
				}
			})
		}
	})
	// Two answers about where the body ends: chunks count, as the standard has it.
	got := r.raw(t, "POST /events HTTP/1.1\r\nHost: h\r\n"+own+"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"2\r\n{}\r\n0\r\n\r\nGET /version HTTP/1.1\r\nHost: h\r\n\r\n")
	if strings.Count(got, "HTTP/1.1 200 ") != 2 || !strings.Contains(got, `{"version":`) {
		t.Errorf("%q", got)
	}
	// Many in one go: each has its own answer, in order.
	var pipeline strings.Builder
	const many = 500
	for i := range many {
		fmt.Fprintf(&pipeline, "GET /health HTTP/1.1\r\nHost: h\r\nX-Request-Id: r%d\r\n\r\n", i)
	}
	pipeline.WriteString("GET /version HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	in := bufio.NewReader(strings.NewReader(r.raw(t, pipeline.String())))
	for i := range many {
		res, err := http.ReadResponse(in, nil)
		try(t, err)
		_, _ = io.Copy(io.Discard, res.Body)
		if id := res.Header.Get("X-Request-Id"); res.StatusCode != 200 || id != fmt.Sprintf("r%d", i) {
			t.Fatalf("answer %d: %d, %s", i, res.StatusCode, id)
		}
	}
	if log := r.log.String(); strings.Contains(log, `"msg":"panic"`) || strings.Contains(log, r.token) {
		t.Error("the log has a panic, or the token")
	}
}

// Many connections that say nothing, some of them in the midst of a request, cost little and stop nobody.
func TestAttackIdle(t *testing.T) {
	r := start(t, mem.New(), Options{}, nil)
	const n = 400
	peak := heapPeak()
	for i := range n {
		c, err := net.Dial("tcp", r.at)
		try(t, err)
		t.Cleanup(func() { _ = c.Close() })
		sent := []string{"", "GET /health HTTP/1.1\r\nHost: h\r\nX: ",
			"POST /events HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + r.token + "\r\nContent-Length: 60000000\r\n\r\n{",
			"POST /v1/namespaces/default/messages HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + r.token +
				"\r\nContent-Length: 60000000\r\n\r\n{"}[i%4]
		_, err = io.WriteString(c, sent)
		try(t, err)
	}
	if got := r.do("GET", "/v1/namespaces/default", ""); got.StatusCode != 200 {
		t.Error(got.StatusCode, got.body)
	}
	if grown := peak(); grown > n*(256<<10) {
		t.Errorf("%d KiB more of heap for each connection", grown/n>>10)
	}
}

// Headers are refused once they are too large, before anything is looked at.
func TestAttackHeaders(t *testing.T) {
	r := start(t, mem.New(), Options{}, nil)
	for what, headers := range map[string][]string{
		"a long token":   {"Authorization", "Bearer " + strings.Repeat("n", 60_000)},
		"a long key":     {"X-Api-Key", "ns_" + strings.Repeat("Z", 60_000) + "_" + strings.Repeat("0", 64)},
		"a long level":   {"Holdfast-Level", strings.Repeat("power", 10_000)},
		"a long id":      {"X-Request-Id", strings.Repeat("x", 60_000)},
		"a long resume":  {"Last-Event-Id", strings.Repeat("9", 60_000)},
		"a long accept":  {"Accept-Encoding", strings.Repeat("gzip;q=0.1,", 5000)},
		"another accept": {"Accept", strings.Repeat("*/*;q=0.1,", 5000)},
	} {
		for _, path := range []string{"/position", "/v1/namespaces/default", "/events?from=1"} {
			status, text := r.attack("GET", path, nil, headers...)
			r.survived(what, status, text)
			if len(text) > 1000 {
				t.Errorf("%s: it is repeated: %d bytes", what, len(text))
			}
		}
	}
	// The connection is closed while the rest of it is still coming, which can be all that the client learns.
	got := r.raw(t, "GET /health HTTP/1.1\r\nHost: h\r\nX: "+strings.Repeat("x", 200_000)+"\r\n\r\n")
	if got != "" && !strings.HasPrefix(got, "HTTP/1.1 431 ") {
		t.Errorf("%.200q", got)
	}
}

// A follower that never reads holds no more than the buffers of its connection, and is cut off.
func TestAttackFollower(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the race detector makes 900 MB slow; tests of streams and followers run with it")
	}
	r := start(t, mem.New(), Options{WriteTimeout: 2 * time.Second}, nil)
	big, err := json.Marshal(map[string]any{"type": "T", "data": strings.Repeat("x", 500_000)})
	try(t, err)
	for range 60 {
		if status, text := r.attack("POST", "/events", big); status != 200 {
			t.Fatal(status, text)
		}
	}
	peak := heapPeak()
	var open []net.Conn
	ended := func() int { return strings.Count(r.log.String(), `"method":"GET"`) }
	before := ended()
	for range 10 {
		for _, path := range []string{"/events/stream?from=1", "/events?from=1",
			"/v1/namespaces/default/logs/events/events/follow?from=1"} {
			c, err := net.Dial("tcp", r.at)
			try(t, err)
			defer c.Close()
			_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer %s\r\n\r\n", path, r.token)
			try(t, err)
			open = append(open, c)
		}
	}
	r.eventually("all are cut off", func() bool { return ended() == before+len(open) })
	for i, c := range open { // what the system has kept of it can still be read, and is not all
		try(t, c.SetReadDeadline(time.Now().Add(patience)))
		if n, err := io.Copy(io.Discard, c); n > 25_000_000 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("follower %d has got %d bytes, %v", i, n, err)
		}
	}
	if grown := peak(); grown > 450<<20 { // all of it would be 900
		t.Errorf("%d MiB more of heap for %d followers", grown>>20, len(open))
	}
	if status, text := r.attack("GET", "/position", nil); status != 200 {
		t.Error(status, text)
	}
}
