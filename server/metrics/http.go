package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HTTP measures the requests of a server. It is a [prometheus.Collector]. All methods may be called from many
// goroutines at once.
type HTTP struct{ seconds *prometheus.HistogramVec }

// NewHTTP returns an HTTP that has seen no request.
func NewHTTP() *HTTP {
	return &HTTP{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_http_request_seconds", Help: "How long requests took, by the pattern of their route.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"route", "method", "code"})}
}

// methods are those that have a value of their own.
var methods = map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodPost: true, http.MethodPut: true,
	http.MethodPatch: true, http.MethodDelete: true, http.MethodOptions: true}

// Observe notes a request. route is the pattern that it matched, never its path, of which there are any number; "" if
// it matched none.
func (h *HTTP) Observe(route, method string, code int, took time.Duration) {
	if route == "" {
		route = "none"
	}
	if !methods[method] {
		method = "other"
	}
	method = strings.ToLower(method) // as Wrap has it
	if code < 100 || code > 599 {
		code = http.StatusOK // nothing was written
	}
	h.seconds.WithLabelValues(route, method, strconv.Itoa(code)).Observe(took.Seconds())
}

// Wrap returns a handler that serves the requests of a route by next, and observes them.
func (h *HTTP) Wrap(route string, next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerDuration(h.seconds.MustCurryWith(prometheus.Labels{"route": route}), next)
}

// Describe implements [prometheus.Collector].
func (h *HTTP) Describe(to chan<- *prometheus.Desc) { h.seconds.Describe(to) }

// Collect implements [prometheus.Collector].
func (h *HTTP) Collect(to chan<- prometheus.Metric) { h.seconds.Collect(to) }
