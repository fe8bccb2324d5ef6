package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/route"
)

// BenchmarkRequest is what the server adds to a handler that does nothing.
func BenchmarkRequest(b *testing.B) {
	e := mem.New()
	d, tokens, token := openData(b, e)
	defer d.Close()
	s := prepare(d, tokens, Options{Logger: slog.New(slog.DiscardHandler)})
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
