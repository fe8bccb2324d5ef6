package nodes_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/server/nodes"
	"github.com/holdfastdb/holdfast/server/nodes/nodestest"
)

// names are all metrics that the collectors have, with what Prometheus makes of histograms.
func names(t *testing.T) []string {
	list := []string{"up"}
	for _, c := range []prometheus.Collector{metrics.Watch(mem.New()).Collector(), metrics.Stores(metrics.Sources{}),
		metrics.NewHTTP(), metrics.Backup(nil), metrics.Follower(nil), process(t)} {
		descriptions := make(chan *prometheus.Desc, 100)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			_, rest, ok := strings.Cut(d.String(), `fqName: "`)
			name, _, ok2 := strings.Cut(rest, `"`)
			if !ok || !ok2 {
				t.Fatalf("a description is %v", d)
			}
			list = append(list, name, name+"_bucket", name+"_count", name+"_sum")
		}
	}
	return list
}

// process is one of several.
func process(t *testing.T) *nodes.Node {
	cluster := nodestest.NewCluster(func() holdfast.Engine { return mem.New() })
	n, err := nodes.New([]nodes.Cluster{cluster.Member("http://a")}, nodes.Options{Self: "http://a"})
	testkit.Try(t, err)
	return n
}

// metric is what can be a metric in an expression: our names, up, and what a range or a selector follows.
var metric = regexp.MustCompile(`\b(holdfast_\w+|up)\b|([a-zA-Z_:][\w:]*)(?:\{|\[)`)

// check fails if an expression's brackets and quotes do not match, or if it asks for a metric that there is not. It
// does not know PromQL: that is Prometheus' own (promtool check rules).
func check(t *testing.T, known []string, where, expr string) {
	t.Helper()
	var open []rune
	bare, quoted := "", false
	for _, c := range expr {
		if c == '"' {
			quoted = !quoted
		}
		if quoted {
			continue
		}
		bare += string(c)
		if at := strings.IndexRune("([{", c); at >= 0 {
			open = append(open, rune(")]}"[at]))
		} else if strings.ContainsRune(")]}", c) {
			if len(open) == 0 || open[len(open)-1] != c {
				t.Errorf("%s: a %q has no beginning: %q", where, c, expr)
				return
			}
			open = open[:len(open)-1]
		}
	}
	if quoted || len(open) > 0 {
		t.Errorf("%s: brackets or quotes do not end: %q", where, expr)
	}
	found := metric.FindAllStringSubmatch(bare, -1)
	for _, m := range found {
		if name := m[1] + m[2]; !slices.Contains(known, name) {
			t.Errorf("%s asks for %q, which is no metric", where, name)
		}
	}
	if len(found) == 0 {
		t.Errorf("%s asks for no metric: %q", where, expr)
	}
}

func deployed(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy", name))
	testkit.Try(t, err)
	return b
}

func TestAlerts(t *testing.T) {
	known := names(t)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(deployed(t, "alerts.yml"))))
	decoder.KnownFields(true)
	testkit.Try(t, decoder.Decode(&file))
	if len(file.Groups) != 1 || len(file.Groups[0].Rules) < 5 {
		t.Fatalf("%+v", file)
	}
	for _, r := range file.Groups[0].Rules {
		if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
			t.Errorf("%+v has no name, severity or summary", r)
		}
		check(t, known, r.Alert, r.Expr)
	}
	var scrape map[string]any
	testkit.Try(t, yaml.Unmarshal(deployed(t, "prometheus.yml"), &scrape))
	if scrape["scrape_configs"] == nil {
		t.Error("prometheus.yml scrapes nothing")
	}
}

// The alerts for standbys and owners come when they should, by Prometheus' own tool.
func TestAlertsOfQuorum(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("Debian's package prometheus is not installed: ", err)
	}
	cmd := exec.CommandContext(t.Context(), tool, "test", "rules", "testdata/alerts_test.yml")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestDashboard(t *testing.T) {
	known := names(t)
	var board struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	text := deployed(t, "grafana-dashboard.json")
	testkit.Try(t, json.Unmarshal(text, &board))
	if len(board.Panels) < 10 {
		t.Fatalf("%d panels", len(board.Panels))
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%+v", p)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			check(t, known, p.Title, target.Expr)
		}
	}
	// What is measured is shown, but for what alerts are for.
	for _, name := range known {
		shown := strings.Contains(string(text), name) || strings.Contains(string(deployed(t, "alerts.yml")), name)
		if !shown && !slices.Contains([]string{"holdfast_torn_bytes", "holdfast_queue_paused"}, name) &&
			!strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") && !strings.HasSuffix(name, "_bucket") {
			t.Errorf("%s is neither on the dashboard nor in an alert", name)
		}
	}
}
