package bench

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with testdata/name.
func golden(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.ReplaceAll(string(want), "\r\n", "\n") != text {
		t.Errorf("%s differs; see what changed with go test -run %s -update and git diff. Got:\n%s", name, t.Name(), text)
	}
}

// invented is a report of invented figures.
func invented(rounds int) (Lab, Plan, *Report) {
	return inventedOf(Request{Rounds: &rounds}, "pebble", "sqlite-go", "mem")
}

// inventedOf is such a report of a plan, with these names for the engines of testLab.
func inventedOf(request Request, names ...string) (Lab, Plan, *Report) {
	lab := testLab()
	for i, name := range names {
		e := &lab.Engines[i]
		e.Name = name
		if describe := e.Describe; name == "badger" {
			e.Describe = func() holdfast.Capabilities {
				c := describe()
				c.MaxBatchSize = 8 << 20
				return c
			}
		}
	}
	if strings.HasPrefix(request.Preset, "raft") {
		lab.Peers = []Peer{{Entry: engineGiving("raft-wal", 0, 0, holdfast.Power), Kind: RaftLogs}}
	}
	seed := uint64(1)
	request.Seed = &seed
	p, err := lab.Plan(request)
	if err != nil {
		panic(err)
	}
	r := &Report{Schema: Schema, Machine: measure.Machine{OS: "linux", Arch: "amd64", CPUs: 2, Go: "go1"},
		Plan: p.PlanJSON, Results: []Result{}, Unavailable: p.Unavailable, Contenders: []Contender{}}
	for round := range p.Rounds {
		for i, c := range p.Cells {
			us := 2.5 + 11*float64(i) + float64(c.Given*c.Given)*3 + float64(round)*float64(i%3)*2
			if c.Engine == Floor || c.Engine == FloorMap {
				us = 2 + float64(round)/10
			}
			if c.Engine == Null {
				us = 0.05
			}
			w, err := lab.workload(c.Workload)
			if err != nil {
				panic(err)
			}
			result := Result{Cell: c, Round: round + 1, ItemsPerOp: w.Items, KeyOrder: w.KeyOrder, OpsPerSec: 1e6 / us}
			result.Measurement = Measurement{
				Ops: int64(2e5 / us), Seconds: 0.2,
				Latency:       measure.Latency{P50: us, P90: 1.2 * us, P99: 3 * us, P999: 9 * us, Max: 99 * us},
				SettleSeconds: us / 1e5, CPUSeconds: 0.15, PeakRSS: 30e6, DiskBytes: 123_456, Commits: 1000, Groups: 900,
				Syncs: int64(c.Given-1) * 500,
				Items: int64(2e5/us) * int64(w.Items), Verified: true, PeakDisk: 234_567, Samples: []Sample{},
				Curve: []measure.Point{}, Kinds: []KindMeasured{}, BytesPut: holdfast.Unknown,
				BytesWritten: int64(2e7 / us), Quarters: [runParts]float64{1e6, 9e5, 9e5, 8e5},
			}
			if c.Workload != "event/append-1" && !w.Reads {
				result.BytesPut = int64(7e6 / us)
			}
			if c.Workload == "kv/mixed" {
				for i, kind := range (kvMixed{reads: mixedReads}).kinds() {
					result.Kinds = append(result.Kinds, KindMeasured{Name: kind, Ops: result.Ops * int64(7-4*i) / 10,
						Latency: measure.Latency{P50: us * float64(i+1), P90: 2 * us, P99: 4 * us, P999: 5 * us, Max: 99 * us},
						Curve:   []measure.Point{}})
				}
			}
			if c.Engine == "mem" && c.Workload == "event/append-100" && round == p.Rounds-1 {
				result.Verified, result.Error = false, "failed verification: 100 acknowledged, 99 there\nand more of the kind"
			}
			if c.Offer.Open() {
				result.Open = &OpenLoop{Capacity: 2e6 / us, Offered: 1e6 / us, Overloaded: c.Engine == "mem"}
			}
			if w.Samples {
				for i := range 8 {
					result.Samples = append(result.Samples, Sample{Seconds: float64(i+1) / 40, Ops: result.Ops * int64(i+1) / 8,
						DiskBytes: int64(i+1) * 29_000, RSS: int64(i+1) * 3e6})
				}
			}
			r.Results = append(r.Results, result)
		}
	}
	r.summarise(p.Cells)
	return lab, p, r
}

// TestReportLooksAsBefore: kv has rates in bytes, space on disk, figures of a study or none, and a workload that an
// engine refuses; raft has a peer, work that only one client can do, and the tables of a long run.
func TestReportLooksAsBefore(t *testing.T) {
	event := []string{"pebble", "sqlite-go", "mem"}
	kv := []string{"kv/seq-write", "kv/overwrite", "kv/value-100k", "kv/scan", "kv/mixed"}
	raft := []string{"raft/stable-set", "raft/get-log", "raft/long"}
	for _, test := range []struct {
		name    string
		width   int
		color   bool
		rounds  int
		request Request
		engines []string
	}{
		// What is shown unless all is asked for.
		{"verdict-120.txt", 120, false, 6, Request{Preset: "kv", Workloads: kv}, []string{"bbolt", "badger", "mem"}},
		{"verdict-80.txt", 80, false, 3, Request{Workloads: []string{"event/append-100", "event/read-100"}}, event},
		{"verdict-color.txt", 120, true, 6, Request{Clients: []int{1, 64}, Baseline: "pebble",
			Workloads: []string{"event/append-100", "event/read-100"}}, event},
		{"verdict-open.txt", 120, false, 6, Request{Rates: []string{"50%"}, Workloads: []string{"event/append-1"}}, event},

		{"report-120.txt", 120, false, 6, Request{Workloads: []string{"event/append-1"}}, event},
		{"report-80.txt", 80, false, 3, Request{Workloads: []string{"event/append-100", "event/read-100"}}, event},
		{"report-color.txt", 120, true, 1,
			Request{Workloads: []string{"event/append-100"}, Levels: []string{"memory"}}, event},
		{"kv-120.txt", 120, false, 3, Request{Preset: "kv", Workloads: kv, Levels: []string{"process", "power"}},
			[]string{"bbolt", "badger", "mem"}},
		{"raft-80.txt", 80, false, 1, Request{Preset: "raft", Clients: []int{2}, Workloads: raft},
			[]string{"badger", "pebble", "mem"}},
	} {
		test.request.Rounds = &test.rounds
		lab, plan, report := inventedOf(test.request, test.engines...)
		if test.width == 120 {
			report.Contenders = []Contender{{Engine: test.engines[0], Given: holdfast.Process, Mapped: true}}
		}
		var out bytes.Buffer
		s := screen{console.Screen{W: &out, Width: test.width, Color: test.color}}
		m := measure.Machine{OS: "linux", CPU: "Imaginary 9000", CPUs: 2, Go: "go1", VM: "yes",
			Disk: measure.Disk{FileSystem: "ext4", Kind: "virtual disk", Cache: "write back", SyncP50: 51}}
		s.header(plan, m)
		s.report(lab, report, Detail{Full: !strings.HasPrefix(test.name, "verdict-")})
		golden(t, test.name, out.String())
		for line := range strings.Lines(out.String()) {
			if n := len(strings.TrimRight(line, "\n")); !test.color && n > test.width && !strings.HasPrefix(line, "again: ") {
				t.Errorf("%s: a line of %d columns: %s", test.name, n, line)
			}
		}
	}
}

// TestVerdictIsShort: two engines by the key-value table are shown on a page.
func TestVerdictIsShort(t *testing.T) {
	lab, plan, report := inventedOf(
		Request{Preset: "kv", Engines: []string{"pebble", "badger"}},
		"pebble",
		"badger",
		"mem",
	)
	var out bytes.Buffer
	s := screen{console.Screen{W: &out, Width: 120}}
	s.header(plan, report.Machine)
	s.report(lab, report, Detail{})
	if n := strings.Count(out.String(), "\n"); len(plan.Engines) != 2 || len(plan.Workloads) < 15 || n > 75 {
		t.Errorf("%d lines of %v and %v:\n%s", n, plan.Engines, plan.Workloads, out.String())
	}
}

// TestLegendExplainsWhatIsThere, and nothing else.
func TestLegendExplainsWhatIsThere(t *testing.T) {
	const null, ofNull, reads, costs, studied, brackets = "null does nothing", "which is null's", "reads by one call",
		"CPU, settling", "A study's figures", "in brackets, of a run of 1 s"
	all := []string{null, ofNull, reads, costs, studied, brackets}
	for _, test := range []struct {
		preset, workloads string
		want              []string
	}{
		{"raft-long", "", []string{costs}},
		{"raft", "raft/stable-get,raft/store-1", all},
		{"raft", "raft/get-log", []string{null, reads}},
		{"raft", "raft/stable-get-1k,raft/truncate", []string{null, ofNull, reads, costs}},
		{"quick", "event/append-1", []string{null, ofNull, costs, studied}},
	} {
		request := Request{Preset: test.preset}
		if test.workloads != "" {
			request.Workloads = strings.Split(test.workloads, ",")
		}
		lab, _, report := inventedOf(request, "badger", "pebble", "mem")
		var out bytes.Buffer
		screen{console.Screen{W: &out, Width: 1000}}.report(lab, report, Detail{Full: true})
		for _, text := range all {
			if strings.Contains(out.String(), text) != slices.Contains(test.want, text) {
				t.Errorf("%s %s: %q is there or is not, wrongly:\n%s", test.preset, test.workloads, text, out.String())
			}
		}
	}
}

func TestProgress(t *testing.T) {
	for _, test := range []struct {
		name  string
		width int
	}{{"progress-live.txt", 100}, {"progress-plain.txt", 0}} {
		_, plan, _ := invented(2)
		plan.Cells = plan.Cells[:6]
		var out bytes.Buffer
		p := newProgress(console.Terminal{Err: &out, ErrWidth: func() int { return test.width }}, plan, &console.ReportFile{})
		now := time.Unix(0, 0)
		p.now = func() time.Time { return now }
		done := 0
		for round := 1; round <= 2; round++ {
			for _, c := range plan.Shuffled(round) {
				p.Starts(c, round, done)
				now = now.Add(400 * time.Millisecond)
				done++
			}
		}
		p.End()
		golden(t, test.name, strings.NewReplacer("\r", "", "\x1b[K", "\n").Replace(out.String()))
	}
}

func TestProgressEndsWithoutABeginning(t *testing.T) {
	var out bytes.Buffer
	newProgress(console.Terminal{Err: &out, ErrWidth: func() int { return 80 }}, Plan{}, &console.ReportFile{}).End()
	if out.Len() > 0 {
		t.Errorf("it wrote %q", out.String())
	}
}
