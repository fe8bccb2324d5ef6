package nodes

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/route"
)

// counts are what is counted of a process.
type counts struct {
	mu            sync.Mutex
	requests      [3]float64
	taken, fenced float64 // covered by the node's mu
}

// The results of requests that were passed on.
var results = [...]string{"answered", "refused", "lost"}

// proxied counts a request that was passed on.
func (c *counts) proxied(err error) {
	result := 2
	if err == nil {
		result = 0
	} else if sure := (*notDone)(nil); errors.As(err, &sure) {
		result = 1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests[result]++
}

var (
	ownerDesc = prometheus.NewDesc("holdfast_space_owner", "1 if this process serves the space, 0 if not.",
		[]string{"space"}, nil)
	epochDesc = prometheus.NewDesc("holdfast_space_epoch", "How often the space has been taken.", []string{"space"}, nil)
	freeDesc  = prometheus.NewDesc("holdfast_space_free", "1 if nobody serves the space, as this process sees it.",
		[]string{"space"}, nil)
	aliveDesc = prometheus.NewDesc("holdfast_nodes_alive", "Processes that live, as this one sees it.", nil, nil)
	seenDesc  = prometheus.NewDesc("holdfast_nodes_seen_seconds", "For how long the cluster has not been seen.", nil, nil)
	takenDesc = prometheus.NewDesc("holdfast_spaces_taken_total", "Spaces that this process has taken.", nil, nil)
	fenceDesc = prometheus.NewDesc("holdfast_spaces_fenced_total",
		"Spaces that another process has taken from this one.", nil, nil)
	proxyDesc = prometheus.NewDesc("holdfast_proxied_total",
		"Requests that were passed on to owners. Of those that are lost nobody knows whether they were done.",
		[]string{"result"}, nil)
)

// Describe implements [prometheus.Collector].
func (n *Node) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{ownerDesc, epochDesc, freeDesc, aliveDesc, seenDesc, takenDesc, fenceDesc,
		proxyDesc} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (n *Node) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for number, s := range n.spaces {
		label := strconv.Itoa(number)
		gauge(ownerDesc, truth(s.serving != nil), label)
		gauge(epochDesc, float64(s.Epoch), label)
		gauge(freeDesc, truth(s.serving == nil && (s.Free || s.Owner == "" && s.Host == "")), label)
	}
	gauge(aliveDesc, float64(len(living(n.peers))))
	if !n.seen.IsZero() {
		gauge(seenDesc, time.Since(n.seen).Seconds())
	}
	counter(takenDesc, n.counts.taken)
	counter(fenceDesc, n.counts.fenced)
	n.counts.mu.Lock()
	defer n.counts.mu.Unlock()
	for i, v := range n.counts.requests {
		counter(proxyDesc, v, results[i])
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}

	return 0
}

// gather gathers the metrics of the process and of the spaces that it serves.
func (n *Node) gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{n.registry}
	n.mu.Lock()
	for _, s := range n.spaces {
		if o := s.serving; o != nil && !o.closing {
			o.requests++
			defer n.exit(o)
			all = append(all, o.registry)
		}
	}
	n.mu.Unlock()

	return all.Gather()
}

// Show says what this process sees.
func (n *Node) Show() api.Nodes {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := api.Nodes{Self: n.o.Self, Nodes: []api.Node{}, Spaces: []api.Space{}}
	for _, p := range n.peers {
		has := 0
		for _, s := range n.spaces {
			if s.Owner == p.Address && !s.Free {
				has++
			}
		}
		out.Nodes = append(out.Nodes, api.Node{Address: p.Address, Version: p.Version, Protocol: p.Protocol,
			Alive: p.Alive, Spaces: has})
	}
	for number, s := range n.spaces {
		owner := s.Owner
		if s.Free && s.serving == nil {
			owner = ""
		}
		out.Spaces = append(out.Spaces, api.Space{Space: number, Owner: owner, Host: s.Host, Epoch: s.Epoch,
			Transactions: s.Seq, Free: owner == "", StillMS: s.Still.Milliseconds()})
	}
	slices.SortFunc(out.Spaces, func(a, b api.Space) int { return a.Space - b.Space })
	slices.SortFunc(out.Nodes, func(a, b api.Node) int { return cmp.Compare(a.Address, b.Address) })
	if !n.seen.IsZero() {
		out.SeenMS = time.Since(n.seen).Milliseconds()
	}

	return out
}

// routes lists what a process says of itself, beside its metrics.
func (n *Node) routes() []route.Route {
	return []route.Route{{Method: http.MethodGet, Pattern: "/v1/nodes", Role: auth.Read,
		Handler: func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, n.Show())
		}}, {Method: http.MethodPost, Pattern: "/v1/nodes/move", Role: auth.Admin, Stream: true, Handler: n.move}}
}

// writeJSON answers with what can be JSON.
func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil { // not with these fields
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}
