package advise

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/lab/report"
)

func TestParseNeed(t *testing.T) {
	lab := bench.Standard()
	for text, want := range map[string]Need{
		"event append, power, 64 writers": {"event/append-1", holdfast.Power, 64},
		"event appends":                   {"event/append-1", holdfast.Power, 1},
		"process event/append-100":        {"event/append-100", holdfast.Process, 1},
		"for task lifecycle that must survive power loss with 100 clients": {"task/lifecycle", holdfast.Power, 100},
		"raft/store-16 memory 1 client":                                    {"raft/store-16", holdfast.Memory, 1},
	} {
		if got, err := ParseNeed(lab, text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "power", "64 writers", "a graph of friends", "event append 0 writers",
		"event append 99999 writers", "event/read-100", "event append -3 writers",
		"event append 99999999999999999999 writers"} {
		if got, err := ParseNeed(lab, text); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// reports are those of the tests of package report, with a change to each result of bench.
func reports(t *testing.T, change func(result map[string]any)) []string {
	t.Helper()
	b, err := os.ReadFile("../report/testdata/bench.json")
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	for _, result := range r["results"].([]any) {
		change(result.(map[string]any))
	}
	if b, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "bench.json")
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{name, "../report/testdata/crash.json"}
}

func advice(t *testing.T, paths []string, level holdfast.Level) *Advice {
	t.Helper()
	sources, err := report.Load(paths, false)
	if err != nil {
		t.Fatal(err)
	}
	a, err := For(bench.Standard(), sources, Need{"event/append-1", level, 1})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// steady gives each engine a rate of its own, which changes by a percent from round to round.
func steady(rates map[string]float64) func(map[string]any) {
	return func(result map[string]any) {
		if rate, ok := rates[result["engine"].(string)]; ok {
			if result["given"] == "process" {
				rate *= 1.2
			}
			result["ops_per_sec"] = rate * (1 + result["round"].(float64)/100)
		}
	}
}

func TestAdvice(t *testing.T) {
	apart := reports(t, steady(map[string]float64{"logtree": 9000, "pebble": 3000, "bbolt": 1000}))
	a := advice(t, apart, holdfast.Power)
	for text, want := range map[string]string{
		a.Take:                    "logtree. It made 9.31k events/s",
		a.RunnerUp:                "pebble, with 3.1k events/s: logtree is 3x as fast.",
		a.Weaker:                  "logtree is 1.2x as fast there",
		a.Crashes:                 "logtree kept all in 8 crashes of kind power",
		strings.Join(a.Wrong, ""): "gains 1.26x at most",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q, want %q", text, want)
		}
	}
	if !strings.Contains(a.Weaker, "81 ms (389 commits)") {
		t.Errorf("what a power cut took is not said: %q", a.Weaker)
	}
	near := reports(t, steady(map[string]float64{"logtree": 3020, "pebble": 3000, "bbolt": 1000}))
	if a := advice(t, near, holdfast.Power); !strings.Contains(a.Take, "no difference is shown") ||
		!strings.Contains(a.Take, "pebble") {
		t.Errorf("%+v", a)
	}
}

// TestNoClaim: few rounds, a broken engine and what was not measured make no recommendation.
func TestNoClaim(t *testing.T) {
	rates := map[string]float64{"logtree": 9000, "pebble": 3000, "bbolt": 1000}
	one := reports(t, steady(rates))
	b, err := os.ReadFile(one[0])
	if err != nil {
		t.Fatal(err)
	}
	var r map[string]any
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	var kept []any
	for _, result := range r["results"].([]any) {
		if result.(map[string]any)["round"].(float64) <= 3 {
			kept = append(kept, result)
		}
	}
	r["results"] = kept
	if b, err = json.Marshal(r); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	if a := advice(t, one, holdfast.Power); !strings.HasPrefix(a.Take, "Nothing is shown") || a.RunnerUp != "" ||
		len(a.Wrong) > 0 || len(a.Questions) == 0 || !strings.Contains(a.Take, "6 rounds") ||
		!strings.Contains(a.Take, "the first command below makes as many") || strings.Contains(a.Questions[0], "--rounds") ||
		!strings.HasPrefix(a.Questions[0], "holdfast bench --workloads event/append-1 --levels power --clients 1 ") {
		t.Errorf("three rounds recommend: %+v", a)
	}

	paths := reports(t, steady(rates))
	sources, err := report.Load(paths, false)
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range sources[1].Crash.Results {
		if row.Engine == "logtree" && row.Given == holdfast.Power && !row.Control {
			sources[1].Crash.Results[i].Verdict, sources[1].Crash.Results[i].Lost = "BROKEN", 1
		}
	}
	a, err := For(bench.Standard(), sources, Need{"event/append-1", holdfast.Power, 1})
	if err != nil || strings.Contains(a.Take, "logtree") || !strings.Contains(a.Take, "pebble") || a.RunnerUp != "" ||
		!strings.Contains(strings.Join(a.Cautions, ""), "logtree") {
		t.Errorf("an engine that loses what it acknowledged is recommended: %+v, %v", a, err)
	}

	_, err = For(bench.Standard(), sources, Need{"event/append-1", holdfast.Power, 64})
	if !errors.Is(err, ErrUnmeasured) || !strings.Contains(err.Error(),
		"holdfast bench --workloads event/append-1 --levels power --clients 64 --json") {
		t.Errorf("%v", err)
	}
}

// TestCommonAdvice: a sync that clients share is said to be so only where it was counted.
func TestCommonAdvice(t *testing.T) {
	m := measure.Machine{Disk: measure.Disk{SyncP50: 1000}} // 1000 a second
	g := bench.Group{Given: holdfast.Power, Unit: "events", PerOp: 1}
	row := bench.Row{Summary: bench.Summary{Engine: "x", Median: 9000, Low: 8000, High: 10_000, Confidence: 0.97,
		Rounds:         6,
		SyncsPerCommit: 0.1}}
	if got := commonAdvice(m, g, row, nil); len(got) != 1 || !strings.Contains(got[0], "8k events/s at least") {
		t.Errorf("%q", got)
	}
	for _, not := range []func(*bench.Row){
		func(r *bench.Row) { r.SyncsPerCommit = -1 }, func(r *bench.Row) { r.SyncsPerCommit = 1 },
		func(r *bench.Row) { r.Low = 900 }, func(r *bench.Row) { r.Confidence = 0.75 },
	} {
		other := row
		not(&other)
		if got := commonAdvice(m, g, other, nil); len(got) > 0 {
			t.Errorf("%+v: %q", other.Summary, got)
		}
	}
}

// TestOverview: without a need it is a table of what people usually need; the shipped reports have ten lines of that.
func TestOverview(t *testing.T) {
	var out bytes.Buffer
	at := console.Terminal{Out: &out, Err: &out}
	if err := Command(bench.Standard(), Request{}, at); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "crashes\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	if n := strings.Count(out.String(), "\n"); n > 25 || len(rows) != 10 || !strings.Contains(out.String(), "--full") {
		t.Errorf("%d lines, %d rows:\n%s", n, len(rows), out.String())
	}
	for i, kind := range []string{"event", "message", "task", "raft", "kv"} {
		for j, level := range []string{"process", "power"} {
			if row := strings.Fields(rows[2*i+j]); !strings.HasPrefix(row[0], kind+"/") || row[1] != level {
				t.Errorf("row %d is %q", 2*i+j, row)
			}
		}
	}

	apart := steady(map[string]float64{"logtree": 9000, "pebble": 3000, "bbolt": 1000})
	out.Reset()
	if err := Command(bench.Standard(), Request{Paths: reports(t, apart)}, at); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text,
		"event/append-1 power 1 logtree 9.31k events/s pebble 3x 14") {
		t.Errorf("%s", out.String())
	}

	rare := []Need{{"ycsb/a", holdfast.Process, 4}, {"file/linear", holdfast.Power, 1}}
	if got := choice(rare); !slices.Equal(got, rare) {
		t.Errorf("of what nobody usually needs: %v", got)
	}
	many := append(slices.Repeat(rare, most), Need{"message/mixed", holdfast.Power, 10})
	if got := choice(many); !slices.Equal(got, many[len(many)-1:]) {
		t.Errorf("of many: %v", got)
	}
	if got := choice(many[:len(many)-1]); len(got) != most {
		t.Errorf("of many that nobody usually needs: %d", len(got))
	}
}

// TestHostileText: what controls a terminal is not passed on to it, and a name is quoted for a shell.
func TestHostileText(t *testing.T) {
	paths := reports(t, func(map[string]any) {})
	b, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.ReplaceAll(b, []byte(`"pebble"`), []byte(`"\u001b[2J$(rm -rf .)'x"`))
	if err := os.WriteFile(paths[0], b, 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	at := console.Terminal{Out: &out, Err: &out}
	for _, full := range []bool{false, true} {
		if err := Command(bench.Standard(), Request{Paths: paths, Full: full}, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := report.Command(bench.Standard(), paths, "", report.Options{}, at); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, "$(rm") {
		t.Errorf("%q", text)
	}
	if strings.Contains(out.String(), "--engines \ufffd") {
		t.Errorf("a command is not quoted:\n%s", out.String())
	}
}

// TestOpenLoop: what an open loop made is what it was offered, and recommends nothing.
func TestOpenLoop(t *testing.T) {
	offered := func(level string) func(map[string]any) {
		return func(result map[string]any) {
			if result["given"] == level || level == "" {
				result["offer"] = "1000/s"
				result["open_loop"] = map[string]any{"capacity_per_sec": 2000, "offered_per_sec": 1000, "overloaded": false,
					"backlog": 0, "moved_seconds": 0}
			}
		}
	}
	var out bytes.Buffer
	at := console.Terminal{Out: &out, Err: &out}
	paths := reports(t, offered(""))
	if err := Command(bench.Standard(), Request{Paths: paths, Full: true}, at); !errors.Is(err, holdfast.ErrBadOption) ||
		out.Len() > 0 {
		t.Errorf("%v, %s", err, out.String())
	}
	if err := Command(bench.Standard(), Request{Paths: paths, Need: "event append"}, at); !errors.Is(err, ErrUnmeasured) {
		t.Errorf("%v, %s", err, out.String())
	}
	if a := advice(t, reports(t, offered("process")), holdfast.Power); a.Weaker != "" || len(a.Questions) == 0 {
		t.Errorf("an open loop is the weaker level: %+v", a)
	}
}

// TestSeveralReports: it is said which file was used, and how machines differ.
func TestSeveralReports(t *testing.T) {
	paths := reports(t, func(map[string]any) {})
	b, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(other, bytes.ReplaceAll(b, []byte("AMD EPYC"), []byte("Other 9000")), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = Command(bench.Standard(), Request{Paths: append(paths, other), Need: "event append", Mixed: true},
		console.Terminal{Out: &out, Err: &out})
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"in bench.json.", "other.json measured this too, and is not used",
		"not made under the same conditions: CPU: AMD EPYC and Other 9000"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%v, no %q in\n%s", err, want, out.String())
		}
	}
	if a := advice(t, paths, holdfast.Power); strings.Contains(strings.Join(a.Cautions, ""), "conditions") {
		t.Errorf("one machine: %q", a.Cautions)
	}
}

// TestShipped: without files the reports are used that come with the program, and it is said whose they are.
func TestShipped(t *testing.T) {
	pack := func(name string) *fstest.MapFile {
		b, err := os.ReadFile("../report/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(b); err != nil || w.Close() != nil {
			t.Fatal(err)
		}
		return &fstest.MapFile{Data: packed.Bytes()}
	}
	shipped := fstest.MapFS{"README.md": &fstest.MapFile{Data: []byte("# Results")}}
	var out bytes.Buffer
	at := console.Terminal{Out: &out, Err: &out}
	if err := command(bench.Standard(), shipped, Request{}, at); !errors.Is(err, holdfast.ErrBadOption) ||
		!strings.Contains(err.Error(), "holdfast bench") {
		t.Errorf("nothing is shipped: %v", err)
	}
	shipped["bench.json.gz"], shipped["crash.json.gz"] = pack("bench.json"), pack("crash.json")
	if err := command(bench.Standard(), shipped, Request{Need: "event append"}, at); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"the machine that the project was measured on, not yours: AMD EPYC", "For your own",
		"For event/append-1 that survives power loss", "in bench.json.gz.", "pebble kept all in 8 crashes"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Count(text, "not yours") != 1 {
		t.Errorf("%s", text)
	}
	shipped["crash.json.gz"].Data = shipped["crash.json.gz"].Data[:99]
	if err := command(bench.Standard(), shipped, Request{}, at); !errors.Is(err, report.ErrReport) {
		t.Errorf("half a report: %v", err)
	}
}
