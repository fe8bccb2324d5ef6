package v1_test

import (
	"bytes"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/server/v1"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// What a write costs in a handler, and in the store without it, over an engine that costs little.
func BenchmarkWrites(b *testing.B) {
	d, err := data.Open(mem.New(), data.Options{Level: holdfast.Memory})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	routes := v1.Routes(d, v1.Options{})
	handler := func(path, body string) func(b *testing.B) {
		i := slices.IndexFunc(
			routes,
			func(r route.Route) bool { return r.Method == "POST" && r.Pattern == "/v1/namespaces/{ns}"+path },
		)
		return func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), "POST", "/", bytes.NewReader([]byte(body)))
				r.SetPathValue("ns", "default")
				w := httptest.NewRecorder()
				if routes[i].Handler(w, r); w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
		}
	}
	const payload = `{"customer":"c-4711","items":[{"sku":"a-1","n":3},{"sku":"b-22","n":1}],"note":"please ring twice"}`
	b.Run(
		"messages/handler",
		handler("/messages", `{"stream":"order-1","messages":[{"type":"Placed","data":`+payload+`}]}`),
	)
	b.Run("messages/store", func(b *testing.B) {
		n, err := d.Messages().Namespace(b.Context(), message.Default)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := n.Write(b.Context(), "order-2", message.Message{Type: "Placed", Data: []byte(payload)}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tasks/handler", handler("/tasks", `{"tasks":[{"kind":"mail","payload":"eyJjdXN0b21lciI6ImMtNDcxMSJ9"}]}`))
	b.Run("tasks/store", func(b *testing.B) {
		t, err := d.Tasks(b.Context(), message.Default)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := t.Enqueue(b.Context(), task.Spec{Kind: "mail", Payload: []byte(payload)}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
