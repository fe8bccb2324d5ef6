package report_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/bench"
	"github.com/holdfastdb/holdfast/lab/crash"
	"github.com/holdfastdb/holdfast/lab/report"
)

// changed writes a report of the test data with a change to its JSON, and returns its name.
func changed(t *testing.T, name string, change func(string) string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	text := change(string(b))
	if text == string(b) {
		t.Fatalf("%s is not changed", name)
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, o report.Options, sources ...report.Source) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, bench.Standard(), sources, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func replace(old, new string) func(string) string {
	return func(text string) string { return strings.ReplaceAll(text, old, new) }
}

// TestBadInput: what is no whole report is refused, with its name and what to do.
func TestBadInput(t *testing.T) {
	cut := func(share float64) func(string) string {
		return func(text string) string { return text[:int(share*float64(len(text)))] }
	}
	whole := func(text string) func(string) string { return func(string) string { return text } }
	for name, path := range map[string]string{
		"none":             filepath.Join(t.TempDir(), "none.json"),
		"a directory":      t.TempDir(),
		"empty":            changed(t, "bench.json", whole("")),
		"a number":         changed(t, "bench.json", whole("17")),
		"a list":           changed(t, "bench.json", whole("[]")),
		"text":             changed(t, "bench.json", whole("event/append-1: 5k")),
		"foreign":          changed(t, "bench.json", whole(`{"schema": "other/1", "results": []}`)),
		"no schema":        changed(t, "bench.json", whole(`{"results": []}`)),
		"later":            changed(t, "bench.json", replace(bench.Schema, "holdfast.bench/77")),
		"half of a bench":  changed(t, "bench.json", cut(0.5)),
		"most of a bench":  changed(t, "bench.json", cut(0.999)),
		"half of a crash":  changed(t, "crash.json", cut(0.5)),
		"an unknown field": changed(t, "crash.json", replace(`"torn"`, `"torne"`)),
		"text for numbers": changed(t, "crash.json", replace(`"cuts": 8`, `"cuts": "8"`)),
		"more behind it":   changed(t, "crash.json", func(text string) string { return text + "{}" }),
	} {
		_, err := report.Read(path)
		if !errors.Is(err, report.ErrReport) || !strings.Contains(fmt.Sprint(err), filepath.Base(path)) ||
			!strings.Contains(fmt.Sprint(err), "--json") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMixed: reports of different machines are refused, unless that is asked for; then each plot is marked.
func TestMixed(t *testing.T) {
	here := read(t, "testdata/bench.json")
	for what, path := range map[string]string{
		"CPU":         changed(t, "bench.json", replace("AMD EPYC", "Other 9000")),
		"file system": changed(t, "bench.json", replace(`"ext4"`, `"xfs"`)),
		"memory for a measurement": changed(t, "bench.json", replace(`"ram_bytes": 0`,
			`"ram_bytes": 1073741824`)),
		"CPUs":   changed(t, "crash.json", replace(`"cpus": 2`, `"cpus": 64`)),
		"kernel": changed(t, "crash.json", replace(`"cpus": 2`, `"cpus": 2, "kernel": "1.2.3"`)),
	} {
		sources := append(here, read(t, path)...)
		err := report.Write(io.Discard, bench.Standard(), sources, report.Options{})
		if !errors.Is(err, report.ErrMixed) || !strings.Contains(fmt.Sprint(err), what) ||
			!strings.Contains(fmt.Sprint(err), "--mixed") {
			t.Errorf("%s: %v", what, err)
		}
		page := write(t, report.Options{Mixed: true}, sources...)
		plots, marked := strings.Count(page, "<figure "), strings.Count(page, `</h4><p class="flag">`)+
			strings.Count(page, `</p><p class="flag">`)
		matrices := strings.Count(page, `<div class="matrix">`)
		if plots < 10 || marked != plots+matrices {
			t.Errorf("%s: %d of %d plots and %d matrices are marked", what, marked, plots, matrices)
		}
	}
	if strings.Contains(write(t, report.Options{}, read(t, "testdata/bench.json", "testdata/crash.json")...),
		`class="flag"`) {
		t.Error("reports of one machine are marked")
	}
}

// hostile is text that would be seen if it became a part of the page.
const hostile = `</title></svg></script><img src=x onerror=\"document.title='owned'\">` +
	`<script>document.title='owned'</script>`

// TestHostileNames: names and errors are shown, and are nothing else.
func TestHostileNames(t *testing.T) {
	benched := changed(t, "bench.json", func(text string) string {
		text = strings.ReplaceAll(text, `"pebble"`, `"pebble`+hostile+`"`)
		text = strings.ReplaceAll(text, `"event/read-100"`, `"event/read-100`+hostile+`"`)
		text = strings.Replace(text, `"verified": true`, `"verified": false`, 1)
		text = strings.Replace(text, `"error": ""`, `"error": "`+hostile+`"`, 1)
		return strings.ReplaceAll(text, `"command": "`, `"command": "`+hostile)
	})
	crashed := changed(t, "crash.json", func(text string) string {
		text = strings.ReplaceAll(text, `"pebble"`, `"pebble`+hostile+`"`)
		text = strings.ReplaceAll(text, `"kv"`, `"kv`+hostile+`"`)
		return strings.ReplaceAll(text, `"why": "`, `"why": "`+hostile)
	})
	sources := read(t, benched, crashed)
	page := write(t, report.Options{}, sources...)
	if strings.Contains(page, "<img") || strings.Contains(page, "<script") {
		t.Error("a name became a part of the page")
	}
	w := show(t, report.Options{}, sources...)
	var title string
	w.Do(`document.querySelectorAll("details").forEach(d => d.open = true)`)
	if err := json.Unmarshal([]byte(eval(w, `JSON.stringify(document.title)`)), &title); err != nil ||
		!strings.HasPrefix(title, "Holdfast: ") {
		t.Errorf("the page's title is %q: %v", title, err)
	}
	if n := eval(w, `String(document.querySelectorAll("img, script, [onerror]").length)`); n != "0" {
		t.Errorf("%s elements came from names", n)
	}
	if !strings.Contains(eval(w, `document.body.innerText`), "<img src=x onerror=") {
		t.Error("the names are not shown as they are")
	}
	if wrong := eval(w, unmarked); wrong != "" {
		t.Errorf("marks are missing: %s", wrong)
	}
}

// TestDataInside: the reports can be saved out of the page, byte for byte, and read again as they are then.
func TestDataInside(t *testing.T) {
	sources := read(t, "testdata/bench.json", "testdata/crash.json")
	page := write(t, report.Options{}, sources...)
	link := regexp.MustCompile(`href="data:application/gzip;base64,([^"]*)" download="([^"]*)"`)
	data := link.FindAllStringSubmatch(page, -1)
	if len(data) != len(sources) {
		t.Fatalf("%d of %d reports are in the page", len(data), len(sources))
	}
	for i, s := range sources {
		packed, err := base64.StdEncoding.DecodeString(html.UnescapeString(data[i][1]))
		if err != nil || data[i][2] != s.Name+".gz" {
			t.Fatalf("%s, saved as %s: %v", s.Name, data[i][2], err)
		}
		path := filepath.Join(t.TempDir(), data[i][2])
		if err := os.WriteFile(path, packed, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := report.Read(path); err != nil || !bytes.Equal(got.JSON, s.JSON) {
			t.Errorf("%s: %d bytes, not %d: %v", s.Name, len(got.JSON), len(s.JSON), err)
		}
		if err := os.Truncate(path, int64(len(packed)/2)); err != nil {
			t.Fatal(err)
		}
		if _, err := report.Read(path); !errors.Is(err, report.ErrReport) {
			t.Errorf("%s, half of it: %v", s.Name, err)
		}
	}
}

// TestNoNetwork: the page names nothing that a browser would fetch, and forbids it.
func TestNoNetwork(t *testing.T) {
	page := write(t, report.Options{}, read(t, "testdata/bench.json", "testdata/crash.json")...)
	if !strings.Contains(page, `content="default-src 'none'; style-src &#39;sha256-`) &&
		!strings.Contains(page, `content="default-src &#39;none&#39;; style-src &#39;sha256-`) {
		t.Error("no policy")
	}
	for _, word := range []string{"http://", "https://", " src=", "<script", "@import", "url("} {
		if strings.Contains(page, word) {
			t.Errorf("the page has %q", word)
		}
	}
}

// TestClaims: few rounds claim nothing, and what one file shows is in a sentence.
func TestClaims(t *testing.T) {
	few := changed(t, "bench.json", func(text string) string {
		var r map[string]any
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		var kept []any
		for _, result := range r["results"].([]any) {
			if result.(map[string]any)["round"].(float64) <= 3 {
				kept = append(kept, result)
			}
		}
		r["results"] = kept
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})
	for _, g := range bench.Standard().Groups(read(t, few)[0].Bench) {
		if g.Claim.Shown != 0 || g.Claim.Next != "" || g.Claim.Why == "" {
			t.Errorf("three rounds claim %+v", g.Claim)
		}
	}
	page := write(t, report.Options{}, read(t, few)...)
	if strings.Contains(page, ", shown at ") {
		t.Error("three rounds show something")
	}
	if strings.Count(page, "o difference shown: it takes") != 1 || strings.Count(page, `<p class="question">`) != 1 {
		t.Error("what is said of all workloads is not in one card")
	}
}

// edited writes the bench report of the test data with a change to each of its results.
func edited(t *testing.T, change func(result map[string]any)) string {
	return changed(t, "bench.json", func(text string) string {
		var r map[string]any
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		for _, result := range r["results"].([]any) {
			change(result.(map[string]any))
		}
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	})
}

// TestKinds: mixed work has a table of its kinds of operations.
func TestKinds(t *testing.T) {
	const title = "By kind of operation"
	if page := write(t, report.Options{}, read(t, "testdata/bench.json")...); strings.Contains(page, title) {
		t.Error("there are no kinds, and a table of them")
	}
	mixed := edited(t, func(result map[string]any) {
		latency := map[string]any{"p50": 1, "p90": 2, "p99": 3, "p999": 4, "max": 5000}
		result["kinds"] = []any{
			map[string]any{"name": "peek", "ops": 70, "latency_us": latency, "latency_curve": []any{}},
			map[string]any{"name": "poke", "ops": 0, "latency_us": latency, "latency_curve": []any{}},
		}
	})
	page := write(t, report.Options{}, read(t, mixed)...)
	for _, want := range []string{title, `<td>peek</td><td class="number">70</td><td class="number">1 us</td>`,
		`<td>poke</td><td class="number">0</td><td class="number">–</td>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestSearches: what the highest rate was, and where the bound did not hold, is in a table; none is a claim.
func TestSearches(t *testing.T) {
	found := edited(t, func(result map[string]any) {
		held, failed := 1000.0, 1080.0
		if result["engine"] == "bbolt" {
			held = 0
		}
		result["offer"] = "p99=10ms"
		result["open_loop"] = map[string]any{"capacity_per_sec": 2000, "offered_per_sec": 1000, "overloaded": false,
			"backlog": 0, "moved_seconds": 0}
		result["search"] = map[string]any{"closed_per_sec": 2000, "held_per_sec": held, "failed_per_sec": failed,
			"runs": []any{map[string]any{"offered_per_sec": 1000, "reached_per_sec": 999, "latency_us": 7, "overloaded": false,
				"held": held > 0}}}
	})
	page := write(t, report.Options{}, read(t, found)...)
	for _, want := range []string{"the highest rate with a p99 of at most 10ms", "The highest rate, survives power loss",
		`<th scope="row">logtree</th><td class="number">1 k/s</td><td class="number">1.08 k/s</td>`,
		`<th scope="row">bbolt</th><td class="number">none</td>`} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(page, ", shown at ") {
		t.Error("a search claims something")
	}
}

// TestEngineTable: the closing table has each engine once, with what crashes showed, as text and in the page; what
// broke goes before what held.
func TestEngineTable(t *testing.T) {
	broken := changed(t, "crash.json", func(text string) string {
		at := strings.Index(text, `"engine": "bbolt"`)
		return text[:at] + strings.Replace(text[at:], `"verdict": "held"`, `"verdict": "BROKEN"`, 1)
	})
	page := write(t, report.Options{}, read(t, "testdata/bench.json", broken)...)
	at := strings.Index(page, "The engines side by side</h2>")
	if at < 0 {
		t.Fatal("no closing table")
	}
	if !strings.Contains(page, "bench.json has the badge smoke, not indicative: 30 ms a measurement") {
		t.Error("no badge")
	}
	rows := page[at : at+strings.Index(page[at:], "</table>")]
	for _, want := range []string{
		`<th scope="row">logtree</th><td>power: held in 8 power cuts, held in 6 kills</td><td>yes</td>`,
		`<th scope="row">pebble</th><td>power: held in `, `<td>no</td></tr>`} {
		if !strings.Contains(strings.ReplaceAll(rows, ` class="number"`, ""), want) {
			t.Errorf("no %q in %s", want, rows)
		}
	}
	if strings.Count(rows, `<th scope="row">`) != 3 || strings.Count(rows, "BROKEN by") != 1 ||
		!strings.Contains(rows, `<th scope="row">bbolt</th><td>p`) {
		t.Errorf("it says %s", rows)
	}
	var out bytes.Buffer
	err := report.Command(bench.Standard(), []string{"testdata/bench.json"}, "", report.Options{},
		console.Terminal{Out: &out, Err: io.Discard})
	if err != nil || !strings.Contains(out.String(), "the engines side by side") ||
		strings.Count(out.String(), "not crashed") != 3 {
		t.Errorf("%v\n%s", err, out.String())
	}
	if page := write(t, report.Options{}, read(t, "testdata/crash.json")...); strings.Contains(page, "side by side") {
		t.Error("nothing was measured, and it is in a table")
	}
}

// TestModelled: the model is the time that was measured, and what the counted syncs would take more.
func TestModelled(t *testing.T) {
	row := bench.Row{Results: []bench.Result{{Measurement: bench.Measurement{Ops: 1000, Seconds: 0.2, Syncs: 500}}}}
	// 200 us an operation, half a sync each: 1 ms instead of 50 us is 475 us more.
	if got := report.Modelled(row, 50, 1000); math.Abs(got-1e6/675) > 1e-6 {
		t.Errorf("%v", got)
	}
	if got := report.Modelled(row, 50, 50); math.Abs(got-5000) > 1e-6 {
		t.Errorf("as cheap as it is, it is not as fast as measured: %v", got)
	}
	if got := report.Modelled(row, 500, 100); got != -1 {
		t.Errorf("a cheaper sync than here gives %v", got)
	}
	row.Results[0].Syncs = -1
	if got := report.Modelled(row, 50, 1000); got != -1 {
		t.Errorf("unknown syncs give %v", got)
	}
	for _, bad := range []time.Duration{0, -time.Second, time.Hour} {
		if _, err := report.SyncCosts([]time.Duration{bad}); err == nil {
			t.Errorf("a sync costs %v", bad)
		}
	}
}

// TestText: without a file the answers and the model are text.
func TestText(t *testing.T) {
	var out bytes.Buffer
	at := console.Terminal{Out: &out, Err: io.Discard}
	err := report.Command(bench.Standard(), []string{"testdata/bench.json", "testdata/crash.json"}, "",
		report.Options{SyncCosts: []float64{20_000}}, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Append one event, 1 client\n",
		"  311 events/s (survives power loss, highest median: pebble)", "a sync of 20 ms", "modelled",
		"Kept all that they claim"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestInputStays: the page does not replace a report that it is made of.
func TestInputStays(t *testing.T) {
	path := changed(t, "bench.json", replace("bbolt", "bolt"))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	err = report.Command(bench.Standard(), []string{path}, path, report.Options{}, console.Terminal{Out: io.Discard})
	if after, _ := os.ReadFile(path); !errors.Is(err, holdfast.ErrBadOption) || !bytes.Equal(before, after) {
		t.Errorf("%v, and %d of %d bytes are left", err, len(after), len(before))
	}
}

// TestNoPowerCut: kills alone are not said to be of power loss.
func TestNoPowerCut(t *testing.T) {
	const none = "no power cut made"
	cut := read(t, "testdata/bench.json", "testdata/crash.json")
	if page := write(t, report.Options{}, cut...); strings.Contains(page, none) {
		t.Error("power was cut, and it says that it was not")
	}
	killed := read(t, "testdata/bench.json", "testdata/crash.json")
	killed[1].Crash.Results = slices.DeleteFunc(killed[1].Crash.Results, func(r crash.Result) bool {
		return r.Kind == crash.Power
	})
	page := write(t, report.Options{}, killed...)
	for _, want := range []string{none + ", held in 6 kills",
		"No power cut was made: of Power the kills alone are known"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q", want)
		}
	}
}

// TestSliver: the end of a run that is shorter than a sample is no stall, and a stall's length is in its unit.
func TestSliver(t *testing.T) {
	sampled := func(last float64) string {
		return write(t, report.Options{}, read(t, edited(t, func(result map[string]any) {
			var samples []any
			for i, end := range []float64{0.01, 0.02, 0.03, 0.04, last} {
				samples = append(samples, map[string]any{"seconds": end, "ops": 100 * min(i+1, 4), "disk_bytes": 1,
					"rss_bytes": 1})
			}
			result["samples"] = samples
		}))...)
	}
	if page := sampled(0.0400029); strings.Contains(page, "1 stall") || !strings.Contains(page, "no stall") {
		t.Error("2.9 us without an operation at the end of a run are a stall")
	}
	if page := sampled(0.05); !strings.Contains(page, "1 stall, longest 10 ms") {
		t.Error("10 ms without an operation are no stall")
	}
}

// TestNotModelled: it is said why a cost of a sync is not shown.
func TestNotModelled(t *testing.T) {
	sources := read(t, "testdata/bench.json")
	sources[0].Bench.Machine.Disk.SyncP50 = 2500
	for _, test := range []struct {
		costs []float64
		want  string
	}{
		{nil, "Not shown: a sync of 100 us and 1 ms, as this machine&#39;s sync already costs 2.5 ms."},
		{[]float64{200}, "Not shown: a sync of 200 us, as this machine&#39;s sync already costs 2.5 ms."},
	} {
		if page := write(t, report.Options{SyncCosts: test.costs}, sources...); !strings.Contains(page, test.want) {
			t.Errorf("no %q", test.want)
		}
	}
	if page := write(t, report.Options{SyncCosts: []float64{5000}}, sources...); strings.Contains(page, "Not shown") {
		t.Error("all is shown")
	}
}

// TestPage: settings that are equal are there once, headings have no gaps, and names of files are as they are.
func TestPage(t *testing.T) {
	page := write(t, report.Options{Mixed: true}, read(t, "testdata/bench.json", "testdata/crash.json")...)
	level := "1"
	for _, heading := range regexp.MustCompile(`<h([1-6])[ >]`).FindAllStringSubmatch(page, -1) {
		if heading[1] > level && heading[1][0] != level[0]+1 {
			t.Errorf("h%s follows h%s", heading[1], level)
		}
		level = heading[1]
	}
	if !strings.Contains(page, "<dt>What it concluded</dt><dd>Switch from SQLite to Pebble") {
		t.Error("it does not say what the study concluded")
	}
	for _, not := range []string{"Bench.json", "Crash.json", " · <", "hatched", "402653184"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
	names := map[string]bool{}
	table := regexp.MustCompile(`The numbers<span class="unseen">(.*?)</span>`)
	for _, name := range table.FindAllStringSubmatch(page, -1) {
		if names[name[1]] {
			t.Errorf("two tables have the name %q", name[1])
		}
		names[name[1]] = true
	}
	if len(names) < 5 {
		t.Errorf("%d names", len(names))
	}
}
