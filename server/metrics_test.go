package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// Prometheus gets its own format, and ebuse's clients theirs. Requests are counted by the pattern of their route, and
// stores that are open are told of.
func TestMetrics(t *testing.T) {
	r := start(t, metrics.Watch(mem.New()), Options{}, nil)
	if _, err := r.data.Create(ctx, message.NamespaceOptions{ID: "shop"}, ""); err != nil {
		t.Fatal(err)
	}
	log, err := r.data.Log(t.Context(), "shop", "orders")
	try(t, err)
	for range 3 {
		_, err = log.Append(ctx, event.Event{Type: "x"})
		try(t, err)
	}
	try(t, log.SaveOffset(ctx, "mails", 1))
	tasks, err := r.data.Tasks(t.Context(), "shop")
	try(t, err)
	_, err = tasks.Enqueue(ctx, task.Spec{Queue: "mail", Kind: "welcome"})
	try(t, err)
	r.want(r.do("GET", "/v1/namespaces/shop", ""), http.StatusOK, "")

	for path, accept := range map[string]string{"/v1/metrics": "",
		"/metrics": "text/plain;version=0.0.4;q=0.3,*/*;q=0.1"} {
		got := r.do("GET", path, "", "Accept", accept)
		if got.StatusCode != http.StatusOK {
			t.Fatal(path, got.Status, got.body)
		}
		for _, want := range []string{
			`holdfast_commits_total `, `log="orders"`, `subscription="mails"`, `queue="mail"`,
			`route="/v1/namespaces/{ns}"`,
			`go_goroutines `, `process_resident_memory_bytes `,
		} {
			if !strings.Contains(got.body, want) {
				t.Errorf("%s: nothing has %s in\n%s", path, want, got.body)
			}
		}
	}
	got := r.do("GET", "/metrics", "")
	if !strings.HasPrefix(got.Header.Get("Content-Type"), "application/json") ||
		!strings.Contains(got.body, "total_events") {
		t.Errorf("%v %s", got.Header, got.body)
	}
}
