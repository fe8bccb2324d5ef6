package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// BenchmarkRequest is what the server adds to a handler that does nothing.
func BenchmarkRequest(b *testing.B) {
	e := mem.New()
	d, token := openData(b, e)
	defer d.Close()
	s := prepare(d, Options{Logger: slog.New(slog.DiscardHandler)})
	s.mount([]route.Route{{Method: "POST", Pattern: "/v1/namespaces/{ns}/messages", Role: auth.Write,
		Handler: func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }}})
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest("POST", "/v1/namespaces/default/messages", strings.NewReader("{}"))
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Holdfast-Level", "memory")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Code, w.Body)
		}
	}
}

// BenchmarkServed is what requests cost the server without net/http: all that is above it, down to logtree at Process,
// as holdfast serve has it. Deadlines are those of a connection.
func BenchmarkServed(b *testing.B) {
	opened, err := logtree.Open(b.TempDir(), holdfast.Options{})
	try(b, err)
	e := metrics.Watch(opened)
	defer e.Close()
	d, err := data.Open(e, data.Options{Level: holdfast.Process})
	try(b, err)
	defer d.Close()
	token := auth.NewNamespaceSecret(message.Default)
	try(b, d.Tokens().SetOwn(ctx, message.Default, token))
	s, err := New(d, Options{Logger: slog.New(slog.DiscardHandler)})
	try(b, err)
	n, err := d.Messages().Namespace(ctx, message.Default)
	try(b, err)
	for i := range 20_000 { // what is read lies among others, as where many write
		for _, prefix := range []string{"test-stream", "load"} {
			_, err := n.Write(ctx, fmt.Sprintf("%s-%d", prefix, i%100), message.Message{Type: "LoadTestEvent",
				Data: []byte(`{"user":{"id":"user-4711","name":"Ada Lovelace"}}`)})
			try(b, err)
		}
	}
	near, err := net.Listen("tcp", "127.0.0.1:0")
	try(b, err)
	defer near.Close()
	far, err := net.Dial("tcp", near.Addr().String())
	try(b, err)
	defer far.Close()
	c, err := near.Accept()
	try(b, err)
	defer c.Close()
	const write = `["stream.write","test-stream-%d",{"type":"LoadTestEvent","data":{"at":%d,"worker":1,"operation":17,` +
		`"user":{"id":"user-4711","name":"Ada Lovelace","address":{"city":"London","street":"St James Square 12"}},` +
		`"items":[{"sku":"A-100","quantity":2},{"sku":"B-200","quantity":1}],"note":"as discussed"},` +
		`"metadata":{"correlationStreamName":"workflow-1"}}]`
	const v1 = `{"stream":"load-%d","messages":[{"type":"LoadTestEvent","data":{"at":%d,"worker":1,` +
		`"operation":17,"user":{"id":"user-4711","name":"Ada Lovelace"}}}]}`
	messages := "/v1/namespaces/default/messages"
	serve := func(method, path, format string) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			request := httptest.NewRequestWithContext(b.Context(), method, path, nil)
			request.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
			w := &connected{Conn: c, header: http.Header{}}
			report := testkit.CPU(b)
			defer func() { report(b.N) }()
			for i := 0; b.Loop(); i++ {
				ctx, cancel := context.WithCancel(b.Context()) // as net/http has one for each
				r := request.WithContext(ctx)
				if format != "" {
					body := fmt.Appendf(nil, format, i%100, i)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
				}
				clear(w.header)
				w.status = 0
				if s.ServeHTTP(w, r); w.status != 200 {
					b.Fatal(w.status)
				}
				cancel()
			}
		}
	}
	b.Run("health", serve("GET", "/health", ""))
	b.Run("rpc/write", serve("POST", "/rpc", write))
	b.Run("rpc/get", serve("POST", "/rpc", `["stream.get","test-stream-%d",{"position":0,"batchSize":10,"n":%d}]`))
	b.Run("v1/write", serve("POST", messages, v1))
	b.Run("v1/get", serve("GET", messages+"?from=0&limit=10&stream=load-7", ""))
	event := `{"type":"BenchEvent","data":{"stream":%d,"index":%d,"name":"Ada Lovelace"},` +
		`"timestamp":"2026-01-01T00:00:00.123456789Z"}`
	batch := "[" + event + strings.Repeat(","+fmt.Sprintf(event, 1, 2), 99) + "]"
	b.Run("ebuse/write", serve("POST", "/events", event))
	b.Run("ebuse/batch", serve("POST", "/events/batch", batch))
	b.Run("ebuse/get", serve("GET", "/events?from=1&to=100", ""))
}

// connected is a ResponseWriter that has a connection's deadlines, and keeps nothing.
type connected struct {
	net.Conn
	header http.Header
	status int
}

func (c *connected) Header() http.Header { return c.header }
func (c *connected) WriteHeader(s int)   { c.status = s }
func (c *connected) Write(b []byte) (int, error) {
	c.status = max(c.status, 200)
	return len(b), nil
}
