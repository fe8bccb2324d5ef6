package bench

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// At Quorum what has three nodes is measured, and its floor, and nothing else; at other levels none of it is.
func TestQuorumPlan(t *testing.T) {
	l := Standard()
	three := func(engine string) bool { return strings.HasSuffix(engine, ":3") }
	p, err := l.Plan(Request{Preset: "message"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Cells {
		if three(c.Engine) || c.Asked == holdfast.Quorum {
			t.Errorf("not asked for: %+v", c)
		}
	}

	if _, err := pgserver.Find(); err != nil {
		t.Skip(err)
	}
	if p, err = l.Plan(Request{Preset: "message", Levels: []string{"quorum"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range p.Engines {
		if !three(name) {
			t.Errorf("%s at quorum", name)
		}
	}
	for _, name := range []string{Floor, FloorParallel, contender.HoldfastPostgres3, contender.MessageDB3} {
		if !slices.ContainsFunc(p.Cells, func(c Cell) bool { return c.Engine == name && c.Given == holdfast.Quorum }) {
			t.Errorf("%s is not measured", name)
		}
	}

	p, err = l.Plan(Request{Preset: "message", Engines: []string{logtree.Name}, Levels: []string{"quorum"}})
	if err == nil || !strings.Contains(err.Error(), "it is on one machine") {
		t.Errorf("a local engine at quorum: %v, %v", p.Engines, err)
	}
}

// What is on three nodes is measured and verified, and the report says what carries them and what is acknowledged.
func TestQuorum(t *testing.T) {
	if _, err := pgserver.Find(); err != nil {
		t.Skip(err)
	}
	file, rounds, long := filepath.Join(t.TempDir(), "report.json"), 1, 50*time.Millisecond
	measured, text := map[string]bool{}, ""
	for _, r := range []Request{{Workloads: []string{"message/write"}},
		{Workloads: []string{"task/lifecycle"}, Engines: []string{contender.River3}}} { // the only one that has no messages
		r.Preset, r.Levels, r.Clients, r.Rounds, r.For = "message", []string{"quorum"}, []int{2}, &rounds, &long
		r.Detail = Detail{Full: true}
		var out bytes.Buffer
		err := Standard().Command(t.Context(), r, Place{Dir: t.TempDir(), AllowTmpfs: true}, console.Files{JSON: file},
			console.Terminal{Out: &out, Err: &out})
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		for _, result := range readReport(t, file).Results {
			if !result.Verified || result.Checked == 0 && result.Engine != Null {
				t.Errorf("%s of %s: %d of %d checked, %s", result.Workload, result.Engine, result.Checked, result.Items,
					result.Error)
			}
			measured[result.Engine] = true
		}
		text += strings.Join(strings.Fields(out.String()), " ")
	}
	for _, name := range []string{Floor, FloorParallel, contender.HoldfastPostgres3, contender.MessageDB3, contender.NATS3,
		contender.River3} {
		if !measured[name] {
			t.Errorf("%s is not measured", name)
		}
	}
	for _, want := range []string{"carry all nodes of a contender", "ANY 1", "each commit is counted", "not counted"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q", want)
		}
	}
}
