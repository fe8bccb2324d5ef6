package metrics_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/store/event"
)

func Example() {
	engine := mem.New()
	registry := prometheus.NewRegistry()
	var log *event.Store
	watched := metrics.Watch(engine) // open stores in it, and close it instead of engine
	registry.MustRegister(watched.Collector())
	registry.MustRegister(metrics.Stores(metrics.Sources{
		Logs: func(context.Context) ([]metrics.Log, error) { return []metrics.Log{{Name: "orders", Store: log}}, nil },
	}))

	log, err := event.Open(kv.On(watched), event.Options{Name: "orders", Level: holdfast.Memory})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := log.Append(context.Background(), event.Event{Type: "placed"}); err != nil {
		fmt.Println(err)
	}
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "holdfast_log_last") {
			fmt.Print(line)
		}
	}
	// Output: holdfast_log_last_position{log="orders",namespace=""} 1
}
