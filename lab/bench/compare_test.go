package bench

import (
	"bytes"
	"encoding/csv"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/console"
)

// slowed is a report of invented figures whose rounds differ a little, and where the engines that match take so many
// times as long.
func slowed(rounds int, times map[string]float64) *Report {
	_, plan, r := invented(rounds)
	for i := range r.Results {
		result := &r.Results[i]
		result.Verified, result.Error = true, ""
		us := 10 * (1 + float64(result.Round)/1000)
		if t, ok := times[result.Engine]; ok {
			us *= t
		}
		result.OpsPerSec = 1e6 / us
		result.Latency.P50, result.Latency.P99, result.Latency.P999 = us, 3*us, 9*us
		result.Ops, result.WarmUpOps, result.CPUSeconds = 1000, 0, us/1e3
	}
	r.summarise(plan.Cells)
	return r
}

// compared is what Compare shows of reports, and its error.
func compared(c Comparison) (string, error) {
	var out bytes.Buffer
	err := Compare(c, console.Terminal{Out: &out, OutWidth: func() int { return 1000 }})
	return out.String(), err
}

// TestCompare: a change is claimed, and fails a gate, only where it is shown, is beyond the gate, and is not what the
// machine did.
func TestCompare(t *testing.T) {
	same, hardly := slowed(8, nil), map[string]float64{"pebble": 1.0000001}
	slow := slowed(8, map[string]float64{"pebble": 1.25})
	machine := slowed(8, map[string]float64{"pebble": 1.5, "sqlite-go": 1.5, "mem": 1.5, Floor: 1.5, Null: 1.5})
	both := slowed(8, map[string]float64{"pebble": 1.95, "sqlite-go": 1.5, "mem": 1.5, Floor: 1.5, Null: 1.5})
	const asMachine = "not shown to be more than what floor or null did"
	for name, test := range map[string]struct {
		old, new  *Report
		gate      string
		regressed bool
		says, not string
	}{
		"no change":             {same, slowed(8, hardly), "ops=0%,p99=0%", false, "No change is shown.", "worse"},
		"beyond the gate":       {same, slow, "ops=5%", true, "REGRESSIONS beyond the gate", asMachine},
		"within the gate":       {same, slow, "ops=30%,p50=30%", false, "\nworse\n", "REGRESSIONS"},
		"another metric":        {same, slow, "disk=0%", false, "\nworse\n", "REGRESSIONS"},
		"no gate":               {same, slow, "", false, "\nworse\n", "REGRESSIONS"},
		"better":                {slow, same, "ops=0%,cpu=0%", false, "\nbetter\n", "worse"},
		"all as the machine":    {same, machine, "ops=5%,p99=5%", false, "\n" + asMachine + "\n", "worse"},
		"machine is faster":     {machine, same, "ops=5%", false, "\n" + asMachine + "\n", "better"},
		"machine and more":      {same, both, "ops=5%", true, "floor itself -33.3 %", "No change"},
		"more, within the gate": {same, both, "ops=25%", false, "\nworse\n", "REGRESSIONS"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := compared(Comparison{Old: []string{saved(t, test.old)}, New: []string{saved(t, test.new)},
				Gate: test.gate})
			if errors.Is(err, ErrRegression) != test.regressed || err != nil && !test.regressed {
				t.Errorf("%v", err)
			}
			if test.regressed && Status(err) != 3 {
				t.Errorf("status %d", Status(err))
			}
			if !strings.Contains(out, test.says) || strings.Contains(out, test.not) {
				t.Errorf("it does not say %q, or says %q:\n%s", test.says, test.not, out)
			}
		})
	}
}

// TestCompareDiskPerItem: an engine that wrote more in the same time needs no more space for it.
func TestCompareDiskPerItem(t *testing.T) {
	larger := func(disk, items int64) string {
		r := slowed(8, nil)
		for i := range r.Results {
			r.Results[i].Items = 1000 * items
			r.Results[i].DiskBytes = 1_000_000*disk + int64(r.Results[i].Round)
		}
		return saved(t, r)
	}
	c := Comparison{Old: []string{larger(1, 1)}, New: []string{larger(3, 3)}, Gate: "disk=5%"}
	if out, err := compared(c); err != nil {
		t.Errorf("three times the items: %v\n%s", err, out)
	}
	c.New = []string{larger(3, 1)}
	if out, err := compared(c); !errors.Is(err, ErrRegression) {
		t.Errorf("three times the space: %v\n%s", err, out)
	}
}

// TestCompareNamesTheChange: the gate names the engine that is worse, and by how much, and no other.
func TestCompareNamesTheChange(t *testing.T) {
	out, err := compared(Comparison{Old: []string{saved(t, slowed(8, nil))},
		New: []string{saved(t, slowed(8, map[string]float64{"pebble": 1.25}))}, Gate: "ops=5%"})
	if !errors.Is(err, ErrRegression) {
		t.Error(err)
	}
	gate, _, _ := strings.Cut(out, "\n\n")
	if !strings.Contains(gate, "pebble") || strings.Contains(gate, "sqlite-go") || !strings.Contains(gate, "-20.0 %") {
		t.Errorf("the gate says %s", gate)
	}
}

// TestCompareWithTooFewRounds claims nothing, and a gate says that it cannot judge. Runs of one side add up.
func TestCompareWithTooFewRounds(t *testing.T) {
	slow := map[string]float64{"pebble": 2}
	command := func(r *Report) *Report {
		r.Plan.Command = "holdfast bench event --rounds 5 --for 1s --seed 17"
		return r
	}
	old, now := saved(t, command(slowed(5, nil))), saved(t, command(slowed(5, slow)))
	out, err := compared(Comparison{Old: []string{old}, New: []string{now}})
	if err != nil || !strings.Contains(out, "no claim, for the rounds are too few") || strings.Contains(out, "\nworse\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "Measure in turns") {
		t.Errorf("nothing about turns:\n%s", out)
	}
	const more = "measure each side with: holdfast bench event --for 1s --rounds 6 --json FILE"
	if !strings.Contains(out, "\nFor more, "+more+"\n") {
		t.Errorf("it does not say which command makes enough rounds:\n%s", out)
	}
	_, err = compared(Comparison{Old: []string{old}, New: []string{now}, Gate: "ops=5%"})
	if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), "the gate cannot judge") ||
		!strings.Contains(err.Error(), more) || Status(err) != 1 {
		t.Errorf("%v", err)
	}
	old2, now2 := saved(t, slowed(5, map[string]float64{"pebble": 1.0000001})),
		saved(t, slowed(5, map[string]float64{"pebble": 2.0000001}))
	out, err = compared(Comparison{Old: []string{old, old2}, New: []string{now, now2}, Gate: "ops=5%"})
	if !errors.Is(err, ErrRegression) || strings.Contains(out, "Measure in turns") {
		t.Errorf("of two runs a side: %v\n%s", err, out)
	}
}

// TestCompareWithItself: a gate cannot judge a run beside itself, or a copy of it, and no run counts twice.
func TestCompareWithItself(t *testing.T) {
	a, copied := saved(t, slowed(8, nil)), saved(t, slowed(8, nil))
	b := saved(t, slowed(8, map[string]float64{"pebble": 2}))
	for _, test := range []struct {
		old, new []string
		says     string
	}{
		{[]string{a}, []string{a}, "beside itself"},
		{[]string{a}, []string{copied}, copied + " are the same run: a gate cannot judge"},
		{[]string{b, a}, []string{copied}, "beside itself"},
		{[]string{a, a}, []string{b}, "count twice"},
	} {
		_, err := compared(Comparison{Old: test.old, New: test.new, Gate: "ops=5%"})
		if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%q and %q: %v", test.old, test.new, err)
		}
	}
}

// TestCompareOfTheSame: a report that is compared with itself, or a copy of itself, is said to be the same.
func TestCompareOfTheSame(t *testing.T) {
	old, other := saved(t, slowed(8, nil)), saved(t, slowed(8, map[string]float64{"pebble": 1.25}))
	for _, test := range []struct{ now, says string }{
		{old, "the same: " + old + " is on both sides."}, {saved(t, slowed(8, nil)), " have the same results, of one run."},
		{other, ""},
	} {
		out, err := compared(Comparison{Old: []string{old}, New: []string{test.now}})
		if err != nil || !strings.Contains(out, test.says) || test.says == "" && strings.Contains(out, "the same: ") {
			t.Errorf("%v: it does not say %q:\n%s", err, test.says, out)
		}
	}
}

// TestCompareInTurns: runs of one build that drift, as A B A B, show no change although A and B alone do.
func TestCompareInTurns(t *testing.T) {
	drift := func(by float64) string {
		return saved(t, slowed(8, map[string]float64{"pebble": by, "sqlite-go": by, "mem": by}))
	}
	a1, b1, a2, b2 := drift(1), drift(1.2), drift(1.5), drift(1.1)
	_, err := compared(Comparison{Old: []string{a1}, New: []string{b1}, Gate: "ops=5%"})
	if !errors.Is(err, ErrRegression) {
		t.Errorf("of one run a side: %v", err)
	}
	out, err := compared(Comparison{Old: []string{a1, a2}, New: []string{b1, b2}, Gate: "ops=5%"})
	if err != nil || !strings.Contains(out, "No change is shown.") {
		t.Errorf("in turns: %v\n%s", err, out)
	}
}

// TestCompareWithoutReferences says that the machine's changes look like those of engines.
func TestCompareWithoutReferences(t *testing.T) {
	file := func(times map[string]float64) string {
		r := slowed(8, times)
		engines := r.Results[:0]
		for _, result := range r.Results {
			if !reference(result.Engine) {
				engines = append(engines, result)
			}
		}
		r.Results = engines
		return saved(t, r)
	}
	out, err := compared(Comparison{Old: []string{file(nil)}, New: []string{file(map[string]float64{"mem": 2})},
		Gate: "ops=5%"})
	if !errors.Is(err, ErrRegression) || !strings.Contains(out, "Neither floor nor null is in all runs") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCompareUnlike: what makes two measurements of different things is refused, what may explain a change is named.
func TestCompareUnlike(t *testing.T) {
	base := slowed(6, nil)
	base.Contenders = []Contender{{Engine: "pebble", Given: holdfast.Power, Library: "pebble v1", MemoryBytes: 1,
		Settings: map[string]string{"cache": "one"}}}
	for _, test := range []struct {
		old, new string
		refused  bool
		says     string
	}{
		{`"cpus": 2`, `"cpus": 3`, true, "CPUs: 2 and 3"},
		{`"arch": "amd64"`, `"arch": "arm64"`, true, "system: linux/amd64 and linux/arm64"},
		{`"ram_bytes": 0`, `"ram_bytes": 9`, true, "limit of memory (--ram): 0 and 9"},
		{`"go": "go1"`, `"go": "go2"`, false, "Go: go1 and go2"},
		{`"seed": 1`, `"seed": 2`, false, "seed: 1 and 2"},
		{`"library": "pebble v1"`, `"library": "pebble v2"`, false, "the library of pebble: pebble v1 and pebble v2"},
		{`"cache": "one"`, `"cache": "two"`, false, "cache of pebble at power: one and two"},
		{`"cache": "one"`, `"more": "two"`, false, "more of pebble at power: not known and two"},
	} {
		c := Comparison{Old: []string{saved(t, base)}, New: []string{saved(t, base, test.old, test.new)}}
		out, err := compared(c)
		switch {
		case test.refused && (!errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(err.Error(), test.says)):
			t.Errorf("%s: it says %v", test.new, err)
		case !test.refused && (err != nil || !strings.Contains(out, test.says)):
			t.Errorf("%s: %v, without %q:\n%s", test.new, err, test.says, out)
		}
		c.Anyway = true
		if out, err := compared(c); err != nil || !strings.Contains(out, test.says) {
			t.Errorf("%s, anyway: %v\n%s", test.new, err, out)
		}
	}
}

// TestCompareOfParts: cells of one side alone and partial runs are named, what became void has status 2, and what has
// nothing in common, or is no report, is refused.
func TestCompareOfParts(t *testing.T) {
	base := slowed(6, nil)
	file := saved(t, base)
	_, plan, _ := invented(6)
	part := *base
	part.Results, part.Partial = base.Results[:5*len(plan.Cells)+1], "interrupted after some"
	out, err := compared(Comparison{Old: []string{file}, New: []string{saved(t, &part)}})
	if err != nil || !strings.Contains(out, "PARTIAL: the new run: interrupted after some.") ||
		!strings.Contains(out, "the rounds are too few") {
		t.Errorf("partial: %v\n%s", err, out)
	}
	without := func(keep func(Result) bool) string {
		r := *base
		r.Results = nil
		for _, result := range base.Results {
			if keep(result) {
				r.Results = append(r.Results, result)
			}
		}
		return saved(t, &r)
	}
	noMem := without(func(r Result) bool { return r.Engine != "mem" })
	for _, c := range []Comparison{
		{Old: []string{file}, New: []string{noMem}},
		{Old: []string{noMem}, New: []string{file}},
	} {
		title := map[bool]string{true: "only in the old run: ", false: "only in the new run: "}[c.Old[0] == file]
		if out, err := compared(c); err != nil || !strings.Contains(out, title) || !strings.Contains(out, ", mem at ") {
			t.Errorf("%s: %v\n%s", title, err, out)
		}
	}
	onlyMem := without(func(r Result) bool { return r.Engine == "mem" })
	_, err = compared(Comparison{Old: []string{onlyMem}, New: []string{noMem}})
	if !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("nothing in common: %v", err)
	}
	void := *base
	void.Results = append([]Result(nil), base.Results...)
	void.Results[0].Verified, void.Results[0].Error = false, "failed verification"
	if out, err := compared(Comparison{Old: []string{file}, New: []string{saved(t, &void)}}); !errors.Is(err, ErrWrong) ||
		Status(err) != 2 || !strings.Contains(out, "VOID in the new run") {
		t.Errorf("void: %v\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []string{"", string(text[:len(text)-9]), `{"schema": "other/1"}`, "[]"} {
		bad := saved(t, base)
		if err := os.WriteFile(bad, []byte(foreign), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := compared(Comparison{Old: []string{file}, New: []string{bad}}); !errors.Is(err, ErrReport) {
			t.Errorf("%.20q: %v", foreign, err)
		}
	}
}

func TestParseGate(t *testing.T) {
	gate, err := ParseGate("ops=5%, p99.9=0.5%")
	if err != nil || len(gate) != 2 || gate["ops"] != 0.05 || gate["p99.9"] != 0.005 {
		t.Errorf("%v, %v", gate, err)
	}
	for _, text := range []string{"", "ops", "ops=", "ops=5", "ops=-1%", "ops=NaN%", "ops=x%", "rate=5%", "ops=5%,",
		"=5%"} {
		if _, err := ParseGate(text); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// shown is a saved report in a format.
func shown(t *testing.T, r *Report, baseline, format string) string {
	t.Helper()
	lab, _, _ := invented(1)
	var out bytes.Buffer
	err := lab.Show(
		saved(t, r),
		baseline,
		format,
		Detail{Full: true, Settings: true},
		console.Terminal{Out: &out, OutWidth: func() int { return 100 }},
	)
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFormats: CSV has a line for each summary, what benchstat reads one for each measurement, with pairs of a value
// and a unit, and neither has anything else. Markdown has whole tables.
func TestFormats(t *testing.T) {
	r := slowed(6, nil)
	lines, err := csv.NewReader(strings.NewReader(shown(t, r, "", "csv"))).ReadAll()
	if err != nil || len(lines) != len(r.Summary)+1 {
		t.Fatalf("%d lines for %d summaries, %v", len(lines), len(r.Summary), err)
	}
	for i, s := range r.Summary {
		line := lines[i+1]
		if rate, err := strconv.ParseFloat(line[6], 64); err != nil || rate != s.Median || line[1] != s.Engine {
			t.Errorf("%+v became %q", s, line)
		}
	}
	results := 0
	for line := range strings.Lines(shown(t, r, "", "benchstat")) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "Benchmark") {
			if !strings.HasSuffix(fields[0], ":") {
				t.Errorf("benchstat cannot read %q", line)
			}
			continue
		}
		results++
		for i := 2; i < len(fields); i += 2 {
			if _, err := strconv.ParseFloat(fields[i], 64); err != nil || len(fields)%2 != 0 {
				t.Errorf("%q: %v", line, err)
			}
		}
	}
	if results != len(r.Results) {
		t.Errorf("%d lines for %d measurements", results, len(r.Results))
	}
	markdown := shown(t, r, "", "markdown")
	if !strings.Contains(markdown, "| engine |") ||
		!strings.Contains(markdown, "|:--- |") && !strings.Contains(markdown, "| --- |") {
		t.Errorf("no table:\n%s", markdown)
	}
	if table := shown(t, r, "pebble", "table"); !strings.Contains(table, "baseline") {
		t.Errorf("no baseline:\n%s", table)
	}
	_, _, mixed := inventedOf(Request{Preset: "kv", Workloads: []string{"kv/mixed"}}, "bbolt", "pebble", "mem")
	lines, err = csv.NewReader(strings.NewReader(shown(t, mixed, "", "csv"))).ReadAll()
	if err != nil || len(lines) != 3*len(mixed.Summary)+1 {
		t.Fatalf("%d lines for %d summaries of two kinds, %v", len(lines), len(mixed.Summary), err)
	}
	for i, s := range mixed.Summary {
		for k, kind := range s.Kinds {
			line := lines[1+3*i+1+k]
			p99, err := strconv.ParseFloat(line[12], 64)
			ops, wrong := strconv.ParseFloat(line[15], 64)
			if err != nil || wrong != nil || p99 != kind.Latency.P99 || ops != float64(kind.Ops) || line[1] != s.Engine ||
				line[6] != "" || line[len(line)-9] != kind.Name {
				t.Errorf("%+v became %q", kind, line)
			}
		}
	}
	if markdown := shown(t, mixed, "", "markdown"); !strings.Contains(markdown, "| put |") {
		t.Errorf("no kinds:\n%s", markdown)
	}
	mixed.Contenders = []Contender{{Engine: mixed.Plan.Engines[0], Given: holdfast.Power, Library: "x 1",
		Settings: map[string]string{"cache": "7"}}}
	if text := shown(t, mixed, "", ""); !strings.Contains(text, "cache=7") {
		t.Errorf("no settings:\n%s", text)
	}
	lab, _, _ := invented(1)
	for _, wrong := range [][2]string{{"", "yaml"}, {"nothing", ""}, {Floor, ""}} {
		err := lab.Show(saved(t, r), wrong[0], wrong[1], Detail{}, console.Terminal{Out: &bytes.Buffer{}})
		if !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
