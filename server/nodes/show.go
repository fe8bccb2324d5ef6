package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/holdfastdb/holdfast"
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
		[]string{"space", "cluster"}, nil)
	epochDesc = prometheus.NewDesc("holdfast_space_epoch", "How often the space has been taken.",
		[]string{"space", "cluster"}, nil)
	freeDesc = prometheus.NewDesc("holdfast_space_free", "1 if nobody serves the space, as this process sees it.",
		[]string{"space", "cluster"}, nil)
	aliveDesc = prometheus.NewDesc("holdfast_nodes_alive", "Processes that live, as this one sees it in the cluster.",
		[]string{"cluster"}, nil)
	seenDesc = prometheus.NewDesc("holdfast_nodes_seen_seconds", "For how long the cluster has not been seen.",
		[]string{"cluster"}, nil)
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
		labels := []string{strconv.Itoa(number), strconv.Itoa(number / PerCluster)}
		gauge(ownerDesc, truth(s.serving != nil), labels...)
		gauge(epochDesc, float64(s.Epoch), labels...)
		gauge(freeDesc, truth(s.serving == nil && (s.Free || s.Owner == "" && s.Host == "")), labels...)
	}
	for _, c := range n.clusters {
		label := strconv.Itoa(c.number)
		gauge(aliveDesc, float64(len(living(c.peers))), label)
		gauge(seenDesc, time.Since(n.since(c)).Seconds(), label)
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

// since is when a cluster was last seen; when the process began, if that never was. It is called with mu held.
func (n *Node) since(c *cluster) time.Time {
	if c.seen.IsZero() {
		return n.began
	}

	return c.seen
}

// Show says what this process sees.
func (n *Node) Show() api.Nodes {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := api.Nodes{Self: n.o.Self, Nodes: []api.Node{}, Spaces: []api.Space{}, Clusters: []api.Cluster{}}
	for _, p := range n.peers() {
		one := api.Node{Address: p.Address, Version: p.Version, Protocol: p.Protocol, Alive: p.Alive, Clusters: []int{}}
		for _, s := range n.spaces {
			if s.Owner == p.Address && !s.Free {
				one.Spaces++
			}
		}
		for _, c := range n.clusters {
			if c.usable() && slices.Contains(living(c.peers), p.Address) {
				one.Clusters = append(one.Clusters, c.number)
			}
		}
		out.Nodes = append(out.Nodes, one)
	}
	for number, s := range n.spaces {
		owner := s.Owner
		if s.Free && s.serving == nil {
			owner = ""
		}
		out.Spaces = append(out.Spaces, api.Space{Space: number, Cluster: number / PerCluster, Owner: owner, Host: s.Host,
			Epoch: s.Epoch, Transactions: s.Seq, Free: owner == "", StillMS: s.Still.Milliseconds(),
			Standbys: holdfast.Unknown, StandbysNeeded: holdfast.Unknown, StandbyLag: holdfast.Unknown})
	}
	slices.SortFunc(out.Spaces, func(a, b api.Space) int { return a.Space - b.Space })
	slices.SortFunc(out.Nodes, func(a, b api.Node) int { return cmp.Compare(a.Address, b.Address) })
	for _, c := range n.clusters {
		one := api.Cluster{Cluster: c.number, Address: c.String(), SeenMS: time.Since(n.since(c)).Milliseconds(),
			Alive: len(living(c.peers)), Spaces: len(n.spacesOf(c))}
		if c.err != nil {
			one.Trouble = c.err.Error()
		}
		out.Clusters = append(out.Clusters, one)
		out.SeenMS = max(out.SeenMS, one.SeenMS)
	}

	return out
}

// standby is what the owner of a space knows of the machines that keep it, too.
type standby struct{ Keep, Needed, Lag int64 }

// standbys are those of the spaces that this process serves.
func (n *Node) standbys() map[int]standby {
	n.mu.Lock()
	var mine []*serving
	for _, s := range n.spaces {
		if o := s.serving; o != nil && !o.closing {
			o.requests++
			mine = append(mine, o)
		}
	}
	n.mu.Unlock()
	all := map[int]standby{}
	for _, o := range mine {
		m := o.engine.Metrics()
		all[o.number] = standby{m.Standbys, m.StandbysNeeded, m.StandbyLag}
		n.exit(o)
	}

	return all
}

// askIn is how long owners may take to say what they know of standbys.
const askIn = time.Second

// showAll says what this process sees, and what owners know of their spaces.
func (n *Node) showAll(ctx context.Context) api.Nodes {
	out := n.Show()
	ctx, cancel := context.WithTimeout(ctx, askIn)
	defer cancel()
	of := map[string]int{} // a space of each owner
	for _, s := range out.Spaces {
		if s.Owner != "" {
			of[s.Owner] = s.Space
		}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	know := map[int]standby{}
	for owner, space := range of {
		all.Go(func() {
			var got map[int]standby
			if owner == n.o.Self {
				got = n.standbys()
			} else {
				_, left, _ := n.owner(space)
				if _, err := n.post(ctx, owner, left, space, "standbys", []byte("null"), &got); err != nil {
					return // what is not known is not shown
				}
			}
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(know, got)
		})
	}
	all.Wait()
	for i := range out.Spaces {
		if s, ok := know[out.Spaces[i].Space]; ok {
			out.Spaces[i].Standbys, out.Spaces[i].StandbysNeeded, out.Spaces[i].StandbyLag = s.Keep, s.Needed, s.Lag
		}
	}

	return out
}

// routes lists what a process says of itself, beside its metrics.
func (n *Node) routes() []route.Route {
	return []route.Route{{Method: http.MethodGet, Pattern: "/v1/nodes", Role: auth.Read,
		Handler: func(w http.ResponseWriter, r *http.Request) {
			writeJSON(w, n.showAll(r.Context()))
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
