// Package metrics exports metrics of an engine, its stores and an HTTP server to Prometheus. Programs that embed the
// library use it as the server does:
//
//	engine, err := all.OpenURL("logtree:/var/lib/orders")
//	watched := metrics.Watch(engine) // from here on instead of engine: it measures commits
//	registry.MustRegister(watched.Collector(), metrics.Stores(metrics.Sources{Logs: logs}))
//	http.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// Names begin with "holdfast_". A number that an engine cannot tell has no series. Labels have a bounded number of
// values: see [Sources].
package metrics

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfastdb/holdfast"
)

// desc describes a metric.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("holdfast_"+name, help, labels, nil)
}

// number is one of the numbers that an engine reports.
type number struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(m *holdfast.Metrics) int64
}

var (
	engineInfo = desc("engine_info", "The engine and the library below it; always 1.", "engine", "library")
	lossWindow = desc("loss_window_seconds", "How long after a commit below Power the engine syncs it; 0 if never.")
	poisoned   = desc("poisoned", "1 once a write or sync has failed: nothing is acknowledged any more.")
	trouble    = desc("trouble", "1 while something should be looked at that does not stop the engine.")
	fenced     = desc("fenced", "1 once another process has taken the data over: nothing is acknowledged here any more.")
	lost       = desc("lost", "1 if a repair has lost data here and the loss was not accepted.")

	numbers = []number{
		{desc("commits_total", "Batches applied."), prometheus.CounterValue,
			func(m *holdfast.Metrics) int64 { return m.Commits }},
		{desc("groups_total", "Transactions of the engine that batches were merged into."), prometheus.CounterValue,
			func(m *holdfast.Metrics) int64 { return m.Groups }},
		{desc("syncs_total", "Times the device was asked to keep what was written."), prometheus.CounterValue,
			func(m *holdfast.Metrics) int64 { return m.Syncs }},
		{desc("written_bytes_total", "Bytes given to the operating system."), prometheus.CounterValue,
			func(m *holdfast.Metrics) int64 { return m.BytesWritten }},
		{desc("stalls_total", "Times a writer had to wait for background work."), prometheus.CounterValue,
			func(m *holdfast.Metrics) int64 { return m.Stalls }},
		{desc("disk_bytes", "Bytes that the directory takes."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.DiskBytes }},
		{desc("files", "Files in the directory."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.Files }},
		{desc("memory_bytes", "Bytes of caches and write buffers."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.MemoryBytes }},
		{desc("open_snapshots", "Snapshots that are not closed."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.OpenSnapshots }},
		{desc("open_iterators", "Iterators that are not closed."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.OpenIterators }},
		{desc("torn_bytes", "Length of the torn tail that opening cut off."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.TornBytes }},
		{desc("quorum_standbys", "Other machines that keep up with the data."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.Standbys }},
		{desc("quorum_standbys_needed", "Other machines that a commit at Quorum waits for."), prometheus.GaugeValue,
			func(m *holdfast.Metrics) int64 { return m.StandbysNeeded }},
		{desc("quorum_standby_lag_bytes", "How much of the log the machine that is furthest behind has not on its disk."),
			prometheus.GaugeValue, func(m *holdfast.Metrics) int64 { return m.StandbyLag }},
		{desc("owner", "1 while the data is known to be this process's, 0 while another one may take it over."),
			prometheus.GaugeValue, func(m *holdfast.Metrics) int64 { return m.Owner }},
	}
)

// engineCollector collects an engine's own metrics.
type engineCollector struct{ engine holdfast.Engine }

// Engine returns a collector of an engine's own metrics. It works as long as the program runs, after Close too. One
// registry takes those of one engine. The latency of commits is measured by [Watch].
func Engine(e holdfast.Engine) prometheus.Collector { return engineCollector{e} }

// Describe implements [prometheus.Collector].
func (c engineCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{engineInfo, lossWindow, poisoned, fenced, trouble, lost} {
		to <- d
	}

	for i := range numbers {
		to <- numbers[i].desc
	}
}

// Collect implements [prometheus.Collector].
func (c engineCollector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	m, caps := c.engine.Metrics(), c.engine.Capabilities()
	gauge(engineInfo, 1, caps.Engine, caps.Library)
	gauge(lossWindow, caps.LossWindow.Seconds())
	gauge(poisoned, truth(m.Poison != nil))
	gauge(fenced, truth(errors.Is(m.Poison, holdfast.ErrFenced)))
	gauge(trouble, truth(m.Trouble != nil))
	gauge(lost, truth(caps.Lost != ""))

	for i := range numbers {
		n := &numbers[i]
		if value := n.of(&m); value != holdfast.Unknown {
			to <- prometheus.MustNewConstMetric(n.desc, n.kind, float64(value))
		}
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}

	return 0
}
