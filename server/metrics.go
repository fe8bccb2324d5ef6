package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/ebuse"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/server/route"
	"github.com/holdfastdb/holdfast/store/message"
)

// Register registers the metrics of the server's data and requests, without those of its process.
func (s *Server) Register(r prometheus.Registerer) {
	r.MustRegister(s.observed)
	if s.data == nil {
		return
	}
	if s.o.Uploads != nil {
		r.MustRegister(metrics.Backup(s.o.Uploads))
	}
	engine := metrics.Engine(s.data.Engine())
	if watched, ok := s.data.Engine().(*metrics.Watched); ok {
		engine = watched.Collector()
	}
	r.MustRegister(engine,
		metrics.Stores(metrics.Sources{
			// What nobody has used since it was opened has no series: a scrape opens nothing.
			Logs: func(context.Context) (list []metrics.Log, err error) {
				for _, l := range s.data.OpenLogs() {
					list = append(list, metrics.Log{Namespace: l.Namespace, Name: l.Name, Store: l.Store})
				}

				return list, nil
			},
			Namespaces: func(context.Context) ([]*message.Namespace, error) { return s.data.Messages().Used(), nil },
			Tasks: func(context.Context) (list []metrics.Tasks, err error) {
				for _, t := range s.data.OpenTasks() {
					list = append(list, metrics.Tasks{Namespace: t.Namespace, Store: t.Store})
				}

				return list, nil
			},
		}))
}

// collect returns what serves all metrics, in Prometheus's formats.
func (s *Server) collect() http.Handler {
	r := prometheus.NewRegistry()
	s.Register(r)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	all := prometheus.Gatherer(r)
	if s.front != nil && s.front.Metrics != nil {
		all = prometheus.Gatherers{r, s.front.Metrics}
	}

	return promhttp.HandlerFor(all, promhttp.HandlerOpts{Registry: r, MaxRequestsInFlight: 2,
		ErrorHandling: promhttp.ContinueOnError, // what cannot be told takes nothing else with it
		ErrorLog:      slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelWarn)})
}

// metrics lists the routes of metrics. /metrics is ebuse's too, whose clients ask for nothing special, where Prometheus
// names its formats.
func (s *Server) metrics() []route.Route {
	all := s.collect()
	ours := route.Route{Method: http.MethodGet, Pattern: "/v1/metrics", Role: auth.Read, Handler: all.ServeHTTP}
	if s.front != nil { // Handler has sent here what asks for a format of Prometheus
		return []route.Route{ours, {Method: http.MethodGet, Pattern: "/metrics", Role: auth.Read, Handler: all.ServeHTTP}}
	}
	theirs := ebuse.Metrics(s.data)

	return []route.Route{
		ours,
		{Pattern: "/metrics", Role: auth.Read, Credentials: ebuse.Credentials, Deny: ebuse.Deny,
			Namespace: func(r *http.Request, p auth.Principal) string {
				if scrapes(r) {
					return auth.Everywhere
				}

				return p.Namespace
			},
			Handler: func(w http.ResponseWriter, r *http.Request) {
				if w.Header().Add("Vary", "Accept"); scrapes(r) {
					all.ServeHTTP(w, r)
					return
				}
				theirs(w, r)
			}},
	}
}

// Scrapes reports whether a request asks for the metrics of the process, not for those that ebuse's clients know.
func Scrapes(r *http.Request) bool {
	return r.URL.Path == "/v1/metrics" || r.URL.Path == "/metrics" && r.Method == http.MethodGet && scrapes(r)
}

// scrapes reports whether a request asks for a format of Prometheus.
func scrapes(r *http.Request) bool {
	accept := r.Header.Get("Accept")

	return strings.Contains(accept, "text/plain") || strings.Contains(accept, "openmetrics") ||
		strings.Contains(accept, "vnd.google.protobuf")
}
