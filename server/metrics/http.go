package metrics

import (
	"cmp"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HTTP measures the requests of a server. It is a [prometheus.Collector]. All methods may be called from many
// goroutines at once.
type HTTP struct {
	seconds *prometheus.HistogramVec

	mu    sync.RWMutex
	known map[answered]prometheus.Observer // the series there are, which are found faster here than by their labels
}

// answered is what requests are counted by.
type answered struct {
	route, method string
	code          int
}

// NewHTTP returns an HTTP that has seen no request.
func NewHTTP() *HTTP {
	return &HTTP{known: map[answered]prometheus.Observer{}, seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_http_request_seconds", Help: "How long requests took, by the pattern of their route.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"route", "method", "code"})}
}

// methods are those that have a value of their own, as Wrap has it.
var methods = map[string]string{http.MethodGet: "get", http.MethodHead: "head", http.MethodPost: "post",
	http.MethodPut: "put", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodOptions: "options"}

// Observe notes a request. route is the pattern that it matched, never its path, of which there are any number; "" if
// it matched none.
func (h *HTTP) Observe(route, method string, code int, took time.Duration) {
	if code < 100 || code > 599 {
		code = http.StatusOK // nothing was written
	}
	a := answered{cmp.Or(route, "none"), cmp.Or(methods[method], "other"), code}
	h.mu.RLock()
	series := h.known[a]
	h.mu.RUnlock()
	if series == nil {
		series = h.seconds.WithLabelValues(a.route, a.method, strconv.Itoa(a.code))
		h.mu.Lock()
		h.known[a] = series
		h.mu.Unlock()
	}
	series.Observe(took.Seconds())
}

// Wrap returns a handler that serves the requests of a route by next, and observes them.
func (h *HTTP) Wrap(route string, next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerDuration(h.seconds.MustCurryWith(prometheus.Labels{"route": route}), next)
}

// Describe implements [prometheus.Collector].
func (h *HTTP) Describe(to chan<- *prometheus.Desc) { h.seconds.Describe(to) }

// Collect implements [prometheus.Collector].
func (h *HTTP) Collect(to chan<- prometheus.Metric) { h.seconds.Collect(to) }
