package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.uber.org/goleak"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/badger"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

// TestMain plays the child when a test starts this binary again.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "bench-child":
			os.Exit(Standard().Child(os.Stdin, os.Stdout))
		case contender.ServerArgument:
			os.Exit(contender.Serve(os.Stdin, os.Stdout))
		}
	}
	os.Exit(run(m))
}

// run runs the tests; the files of a Postgres are made once for all of them.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "holdfast-postgres-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	contender.PostgresTemplate = dir
	return m.Run()
}

func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../schemas/bench.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// readReport reads a report and holds it against the published schema.
func readReport(t *testing.T, file string) (report Report) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := published(t).Validate(document); err != nil {
		t.Errorf("the report is not what lab/schemas/bench.schema.json says: %v", err)
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	return report
}

// TestFileSystem measures on a file system of its own, which is named in the report and gone afterwards, also if the
// run fails.
func TestFileSystem(t *testing.T) {
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	dir, file, rounds, long := t.TempDir(), filepath.Join(t.TempDir(), "report.json"), 1, minFor
	r := Request{Preset: "task", Workloads: []string{"file/linear"}, Engines: []string{logtree.Name},
		Levels: []string{"process"}, Rounds: &rounds, For: &long}
	for _, fails := range []bool{false, true} {
		at := Place{Dir: dir, FS: "ext4"}
		if fails {
			at.Child = []string{filepath.Join(dir, "no such program")}
		}
		err := Standard().Command(t.Context(), r, at, console.Files{JSON: file}, console.Terminal{Out: io.Discard,
			Err: io.Discard})
		if (err != nil) != fails {
			t.Errorf("%v", err)
		}
		if report := readReport(t, file); !fails && (report.Machine.Disk.FileSystem != "ext4" ||
			!strings.Contains(report.Plan.Command, " --fs ext4")) {
			t.Errorf("%+v, %s", report.Machine.Disk, report.Plan.Command)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	at := Place{Dir: dir, FS: "fat"}
	err := Standard().Command(t.Context(), r, at, console.Files{}, console.Terminal{})
	if !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("%v", err)
	}
}

// TestSmoke measures something of every kind, in real child processes, on some engines; make ci runs it on all.
func TestSmoke(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	var out, progress bytes.Buffer
	file := filepath.Join(dir, "report.json")
	request := Request{Preset: "smoke", Engines: []string{logtree.Name, bbolt.Name, mem.Name, contender.RaftWAL},
		Detail: Detail{Full: true}}
	err := Standard().Command(context.Background(), request, Place{Dir: dir, AllowTmpfs: true}, console.Files{JSON: file},
		console.Terminal{Out: &out, Err: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "report.json" {
		t.Errorf("left behind: %v, %v", entries, err)
	}

	if text := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(text, "directory: "+dir) {
		t.Errorf("it does not say where it worked:\n%s", out.String())
	}
	report := readReport(t, file)
	plan, err := Standard().Plan(request)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != len(plan.Cells) || len(report.Summary) != len(plan.Cells) {
		t.Errorf("%d results and %d summaries of %d cells", len(report.Results), len(report.Summary), len(plan.Cells))
	}
	// Some kernels for containers have the file and count nothing in it.
	stat, _ := os.ReadFile("/proc/stat")
	cpus, _, _ := strings.Cut(string(stat), "\n")
	if other := report.Machine.OtherWork; other > 1 || other < 0 && strings.ContainsAny(cpus, "123456789") {
		t.Errorf("other work took %v of the machine", other)
	}
	for _, r := range report.Results {
		name := r.Workload + " on " + r.Engine + " at " + r.Given.String()
		if !r.Verified || r.Ops == 0 || r.OpsPerSec <= 0 || r.Seconds < plan.For.Seconds() {
			t.Errorf("%s: %+v", name, r)
		}
		if l := r.Latency; l.P50 <= 0 || l.P50 > l.P90 || l.P90 > l.P99 || l.P99 > l.P999 || l.P999 > l.Max {
			t.Errorf("%s: percentiles %+v", name, l)
		}
		if none := nothingWritten(r.Engine, len(r.Kinds), r.Items); r.Engine != Null && !none &&
			(r.Checked == 0 || r.Items < r.Checked) {
			t.Errorf("%s: %d of %d items checked", name, r.Checked, r.Items)
		}
		if r.PeakDisk < r.DiskBytes || r.PeakDisk < r.DiskBeforeClose {
			t.Errorf("%s: at most %d bytes on disk, %d in the end", name, r.PeakDisk, r.DiskBytes)
		}
		checkCourse(t, name, r, plan.For)
		if runtime.GOOS == "linux" && (r.PeakRSS < 1<<20 || (r.CPUSeconds <= 0) != r.Offer.Open()) {
			t.Errorf("%s: %d bytes, %v CPU seconds", name, r.PeakRSS, r.CPUSeconds)
		}
	}
	for _, name := range plan.Engines {
		if !slices.ContainsFunc(report.Contenders, func(c Contender) bool {
			return c.Engine == name && c.MemoryBytes == defaultMemory && (len(c.Settings) > 0 || name == mem.Name)
		}) {
			t.Errorf("nothing is said of what %s ran with: %+v", name, report.Contenders)
		}
	}
	for _, w := range plan.Workloads {
		if !strings.Contains(out.String(), w+", ") {
			t.Errorf("no table of %s in\n%s", w, out.String())
		}
	}
}

// checkCourse checks what a result says of how the measurement went: its parts add up.
func checkCourse(t *testing.T, name string, r Result, length time.Duration) {
	t.Helper()
	if n := len(r.Samples); n == 0 || r.Samples[n-1].Ops != r.Ops+r.WarmUpOps {
		t.Errorf("%s: %d operations, samples %+v", name, r.Ops+r.WarmUpOps, r.Samples)
	}
	if r.MeasuredFrom <= 0 || r.MeasuredFrom+r.Seconds > r.Samples[len(r.Samples)-1].Seconds {
		t.Errorf("%s: measured from %v for %v s, samples %+v", name, r.MeasuredFrom, r.Seconds, r.Samples)
	}
	ops, part := 0.0, length.Seconds()/runParts
	for i, rate := range r.Quarters {
		if i == runParts-1 {
			part = r.Seconds - part*(runParts-1)
		}
		ops += rate * part
	}
	if math.Abs(ops-float64(r.Ops)) > 0.01 {
		t.Errorf("%s: %v in quarters are %v operations of %d", name, r.Quarters, ops, r.Ops)
	}
	checkCurve(t, name, r.Curve, r.Latency, r.Ops)
	inKinds := int64(0)
	for _, k := range r.Kinds {
		inKinds += k.Ops
		checkCurve(t, name+", "+k.Name, k.Curve, k.Latency, k.Ops)
	}
	mixed := r.Workload == "kv/mixed" || r.Workload == "message/mixed"
	if mixed != (len(r.Kinds) == 2) || mixed && inKinds != r.Ops {
		t.Errorf("%s: %d operations, kinds %+v", name, r.Ops, r.Kinds)
	}
}

// checkCurve checks that a distribution rises from the fastest operation to the slowest, with the percentiles that are
// told apart from it.
func checkCurve(t *testing.T, name string, curve []measure.Point, l measure.Latency, ops int64) {
	t.Helper()
	if ops == 0 {
		return
	}
	last := measure.Point{Percent: -1}
	for _, p := range curve {
		if p.Percent <= last.Percent || p.Micros < last.Micros {
			t.Errorf("%s: %+v after %+v", name, p, last)
		}
		if p.Percent == 50 && p.Micros != l.P50 || p.Percent == 99.9 && p.Micros != l.P999 {
			t.Errorf("%s: %+v, percentiles %+v", name, p, l)
		}
		last = p
	}
	if last != (measure.Point{Percent: 100, Micros: l.Max}) || curve[0].Percent != 0 {
		t.Errorf("%s: curve %+v", name, curve)
	}
}

// TestSchemaIsStrict breaks a right report in several ways.
func TestSchemaIsStrict(t *testing.T) {
	_, _, r := invented(2)
	r.Machine = measure.Machine{OS: "x", Arch: "x", CPUs: 1, Go: "x"}
	r.Plan.Preset, r.Plan.Seconds = "quick", 1
	var text bytes.Buffer
	if err := console.WriteJSON(&text, r); err != nil {
		t.Fatal(err)
	}
	schema := published(t)
	result := func(d map[string]any, i int) map[string]any { return d["results"].([]any)[i].(map[string]any) }
	for name, spoil := range map[string]func(map[string]any){
		"":                       func(map[string]any) {},
		"an unknown field":       func(d map[string]any) { result(d, 0)["extra"] = 1 },
		"a missing field":        func(d map[string]any) { delete(result(d, 0), "ops") },
		"another schema":         func(d map[string]any) { d["schema"] = "holdfast.bench/2" },
		"no such level":          func(d map[string]any) { result(d, 0)["given"] = "disk" },
		"no level":               func(d map[string]any) { result(d, 0)["given"] = "" },
		"negative time":          func(d map[string]any) { result(d, 0)["seconds"] = -1 },
		"verified with an error": func(d map[string]any) { result(d, 0)["error"] = "x" },
		"void without an error": func(d map[string]any) {
			result(d, 0)["verified"] = false
		},
		"from before there were samples": func(d map[string]any) {
			delete(result(d, 0), "samples")
			delete(d, "contenders")
			delete(result(d, 0), "peak_disk_bytes")
		},
		"a sample without a time": func(d map[string]any) {
			result(d, 0)["samples"] = []any{map[string]any{"ops": 1, "disk_bytes": 1, "rss_bytes": 1}}
		},
		"no machine": func(d map[string]any) { delete(d, "machine") },
	} {
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		spoil(document.(map[string]any))
		if err := schema.Validate(document); (err == nil) != (name == "" || strings.HasPrefix(name, "from before")) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestEngineThatGivesLessIsRefused: what Describe promises is what the tables say, so an open
// engine that gives something else must not be measured.
func TestEngineThatGivesLessIsRefused(t *testing.T) {
	entry := all.Entry{Name: "boaster", Open: func(string, holdfast.Options) (holdfast.Engine, error) {
		return mem.New(),
			nil
	}, Describe: engineGiving("boaster", 1, 2, 3).Describe}
	lab := Lab{Engines: []all.Entry{entry}, Workloads: Workloads()}
	cell := Cell{Workload: "event/append-1", Engine: "boaster", Asked: holdfast.Power, Given: holdfast.Power, Clients: 1}
	o := unknownOutcome()
	err := lab.measure(request{Cell: cell, For: time.Millisecond, Dir: t.TempDir()}, &o)
	if err == nil || !strings.Contains(err.Error(), "promised power") || o.Verified {
		t.Errorf("%v, %+v", err, o)
	}
}

func TestRunStopsWhenItsContextDoes(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	plan, err := Standard().Plan(Request{Preset: "smoke", Engines: []string{mem.Name}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(Standard(), plan, Place{Dir: dir, AllowTmpfs: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := r.Run(ctx, watcher(func(_ Cell, _, done int) {
		if done == 2 {
			cancel()
		}
	})); !errors.Is(err, console.ErrInterrupted) {
		t.Errorf("it says %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

type watcher func(c Cell, round, done int)

func (w watcher) Starts(c Cell, round, done int) { w(c, round, done) }

func (w watcher) Measured(func() *Report) {}

// TestInMemoryFileSystemIsRefused where anything is to survive more than the process.
func TestInMemoryFileSystemIsRefused(t *testing.T) {
	cells := []Cell{{Given: holdfast.Memory}, {Given: holdfast.Process}}
	tmpfs := measure.Disk{FileSystem: "tmpfs"}
	if err := refuseMemory(tmpfs, "/x", cells); !errors.Is(err, holdfast.ErrBadOption) ||
		!strings.Contains(err.Error(), "--allow-tmpfs") {
		t.Errorf("it says %v", err)
	}
	if err := errors.Join(refuseMemory(tmpfs, "/x", cells[:1]), refuseMemory(measure.Disk{}, "/x", cells)); err != nil {
		t.Error(err)
	}
}

// TestEventVerificationCatches: a result with fewer events than acknowledged must not be verified,
// whatever the engine.
func TestEventVerificationCatches(t *testing.T) {
	for name, spoil := range map[string]func(e holdfast.Engine) error{
		"a lost event": func(e holdfast.Engine) error {
			return change(e, func(b *holdfast.Batch, key, _ []byte) { b.Delete(key) })
		},
		"a changed event": func(e holdfast.Engine) error {
			return change(e, func(b *holdfast.Batch, key, value []byte) {
				value = bytes.Clone(value)
				at := bytes.Index(value, []byte("index"))
				if at < 0 { // the data is random
					at = len(value) - 1
				}
				value[at] ^= 1
				b.Set(key, value)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, w := range eventStudy(100, 100) {
				engine := mem.New()
				load, err := w.Engine(taskOn(engine))
				if err != nil {
					t.Fatal(err)
				}
				op := load.Client(0)
				if err := times(50, op); err != nil {
					t.Fatal(err)
				}
				if _, _, err := load.Verify(); err != nil {
					t.Fatalf("%s: before anything is wrong: %v", w.Name, err)
				}
				if err := spoil(engine); err != nil {
					t.Fatal(err)
				}
				if _, _, err := load.Verify(); !errors.Is(err, ErrWrong) {
					t.Errorf("%s: %v", w.Name, err)
				}
				if w.Reads {
					if err := times(2000, op); err == nil { // some read one event of all
						t.Errorf("%s: reads found nothing wrong", w.Name)
					}
				}
			}
		})
	}
}

// TestEventsAreReadOneByOne: event/read-100 reads what was appended one by one, an entry each.
func TestEventsAreReadOneByOne(t *testing.T) {
	engine := mem.New()
	if _, err := eventReadEngine(taskOn(engine)); err != nil {
		t.Fatal(err)
	}
	entries := 0
	it := engine.Scan(holdfast.Range{})
	for it.Next() {
		if bytes.Contains(it.Value(), []byte(eventType)) {
			entries++
		}
	}
	if err := it.Close(); entries != eventStored || err != nil {
		t.Errorf("%d entries, %v", entries, err)
	}
}

// change applies f to one of the pairs that hold events, in the middle if there are many, otherwise to the first of
// them, which holds what is read.
func change(e holdfast.Engine, f func(b *holdfast.Batch, key, value []byte)) error {
	var keys, values [][]byte
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		if bytes.Contains(it.Value(), []byte(eventType)) {
			keys, values = append(keys, bytes.Clone(it.Key())), append(values, bytes.Clone(it.Value()))
		}
	}
	if err := it.Close(); err != nil {
		return err
	}
	n := 0
	if len(keys) >= 20 {
		n = 19
	}
	var b holdfast.Batch
	f(&b, keys[n], values[n])
	return holdfast.Commit(e, &b, holdfast.Memory)
}

// TestBudget: all contenders have one budget, but one that needs more has the least that it takes; and no run begins
// with more than the machine has.
func TestBudget(t *testing.T) {
	lab := Standard()
	request := Request{Preset: "smoke", Engines: []string{badger.Name, logtree.Name}, Workloads: []string{"kv/mixed"},
		Levels: []string{"process"}, Memory: "32MiB", Detail: Detail{Settings: true}}
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "report.json")
	at := Place{Dir: t.TempDir(), AllowTmpfs: true}
	err := lab.Command(t.Context(), request, at, console.Files{JSON: file}, console.Terminal{Out: &out, Err: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	report := readReport(t, file)
	for _, c := range report.Contenders {
		want := max(32<<20, badger.Describe().MinMemoryBytes)
		if c.Engine == logtree.Name {
			want = 32 << 20
		}
		if c.MemoryBytes != want || !strings.Contains(out.String(), c.Engine+" at process: ") {
			t.Errorf("%+v in\n%s", c, out.String())
		}
	}
	if len(report.Contenders) != 2 || report.Plan.MemoryBytes != 32<<20 ||
		!strings.Contains(report.Plan.Command, "32MiB") {
		t.Errorf("%+v, %+v", report.Contenders, report.Plan)
	}
	request.Memory = "1048576GiB"
	err = lab.Command(t.Context(), request, at, console.Files{}, console.Terminal{Out: io.Discard, Err: io.Discard})
	if runtime.GOOS == "linux" && !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("%v", err)
	}
}
