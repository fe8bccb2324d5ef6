package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/console"
	"github.com/holdfastdb/holdfast/lab/internal/measure"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/message"
)

// TestMain lets the tests' own executable be the null server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == NullArgument {
		os.Exit(ServeNull(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// served is a server on an engine in memory.
func served(t *testing.T) string {
	t.Helper()
	e := mem.New()
	d, err := data.Open(e, data.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Tokens().SetOwn(t.Context(), message.Default, madeToken); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(d, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// It runs in this process, whose memory says nothing of it.
	mux := http.NewServeMux()
	mux.Handle("/", s)
	mux.HandleFunc("GET /v1/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE go_goroutines gauge\ngo_goroutines 17\nprocess_resident_memory_bytes 1.5e+07\n"+
			"go_memstats_sys_bytes 9e+06\ngo_memstats_heap_released_bytes 2e+06\nholdfast_memory_bytes 1e+06\n")
	})
	front := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- front.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(s.Stop(ctx), front.Shutdown(ctx), d.Close(), e.Close()); err != nil ||
			!errors.Is(<-ended, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// ran runs the command, and returns its report.
func ran(t *testing.T, r Request) (*Report, string, error) {
	t.Helper()
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "report.json")
	err := Command(t.Context(), r, Place{Dir: t.TempDir()}, file, console.Terminal{Out: &out, Err: io.Discard})
	text, failed := os.ReadFile(file)
	if failed != nil {
		return nil, out.String(), err
	}
	schema, failed := jsonschema.NewCompiler().Compile("../schemas/load.schema.json")
	if failed != nil {
		t.Fatal(failed)
	}
	instance, failed := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if failed != nil {
		t.Fatal(failed)
	}
	if failed := schema.Validate(instance); failed != nil {
		t.Errorf("the report is not what lab/schemas/load.schema.json says: %v", failed)
	}
	var report Report
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if failed := d.Decode(&report); failed != nil {
		t.Fatal(failed)
	}
	return &report, out.String(), err
}

// short is a short measurement, beside null where that has answers.
func short(shape, url string) Request {
	length, warmUp, rounds, workers := 200*time.Millisecond, time.Duration(0), 1, 3
	r := Request{Shape: shape, URL: url, Token: madeToken, Null: shape != Soak, For: &length, WarmUp: &warmUp,
		Rounds: &rounds, Workers: &workers}
	if shape == Follow || shape == Soak {
		followers := 20
		r.Followers = &followers
	}
	if shape == Events {
		events, batch, limit := int64(2500), 100, time.Minute
		r.Events, r.Batch, r.For, r.Null = &events, &batch, &limit, false
	}
	return r
}

// TestShapes: each shape loads our server and null without an error, and the server has what was written.
func TestShapes(t *testing.T) {
	for _, shape := range Shapes() {
		t.Run(shape.Name, func(t *testing.T) {
			url := served(t)
			report, out, err := ran(t, short(shape.Name, url))
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, r := range report.Results {
				if !r.Verified || r.Ops == 0 || r.Latency.P50 <= 0 || r.Level != "memory" || r.Seconds <= 0 {
					t.Errorf("%+v", r)
				}
				if last := r.Samples[len(r.Samples)-1]; shape.Name == Soak &&
					(r.Tasks == 0 || last.RSS != 15e6 || last.Own != 7e6 || last.Caches != 1e6 || last.Goroutines != 17) {
					t.Errorf("%d tasks, %+v", r.Tasks, last)
				}
				if shape.Name == Follow && r.Deliveries != 20*r.Ops {
					t.Errorf("%d deliveries of %d messages to 20 followers", r.Deliveries, r.Ops)
				}
				if (r.FirstAnswer > 0) != (r.Target == nullName) {
					t.Errorf("%s: the first answer after %v ms", r.Target, r.FirstAnswer)
				}
			}
			if i := slices.IndexFunc(report.Summary, func(s Summary) bool { return s.Target == url }); i < 0 ||
				(report.Summary[i].OfNull > 0) != (shape.null != nil) {
				t.Errorf("%+v", report.Summary)
			}
			if !strings.Contains(out, url) || !strings.Contains(out, "again: holdfast load "+shape.Name) ||
				strings.Contains(out, madeToken) {
				t.Errorf("it shows\n%s", out)
			}
		})
	}
}

// TestWrong: what is not as it should be makes a measurement void.
func TestWrong(t *testing.T) {
	var n atomic.Int64
	for name, test := range map[string]struct {
		level  string
		handle http.HandlerFunc
		says   string
	}{
		"a refusal": {"", func(w http.ResponseWriter, _ *http.Request) {
			if n.Add(1) > 1 {
				http.Error(w, "too much to do", http.StatusTooManyRequests)
			}
		}, "status 429: too much to do"},
		"no level": {"power", func(http.ResponseWriter, *http.Request) {}, `ask for level power, and an answer names ""`},
		"a weak level": {"power", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.HeaderLevel, "process")
		}, `ask for level power, and an answer names "process"`},
		"two levels": {"", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(api.HeaderLevel, []string{"process", "power"}[n.Add(1)%2])
		}, `, and others "`},
		"no HTTP": {"", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = c.Write([]byte("220 smtp.example.org\r\n"))
				_ = c.Close()
			}
		}, "no answer of HTTP/1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(test.handle)
			defer s.Close()
			r := short("messages", s.URL)
			r.Null, r.Level = false, test.level
			report, out, err := ran(t, r)
			if !errors.Is(err, ErrWrong) || Status(err) != console.ExitWrong || len(report.Void()) != 1 ||
				len(report.Summary) != 0 || !strings.Contains(out, "VOID") {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := report.Results[0].Error; !strings.Contains(got, test.says) {
				t.Errorf("%q, want %q", got, test.says)
			}
		})
	}
}

// TestReadBack: whatever is wrong with a log of events is seen when it is read back.
func TestReadBack(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(events []string) []string // the log after five events
		says  string
	}{
		"nothing":     {func(e []string) []string { return e }, ""},
		"one is lost": {func(e []string) []string { return e[:4] }, "5 events were acknowledged, and 4 are there"},
		"one too many": {func(e []string) []string { return append(e, `{"index":5}`) },
			"5 events were acknowledged, and 6 are there"},
		"one twice":     {func(e []string) []string { return append(e[:4:4], e[3]) }, "there twice"},
		"a hole":        {func(e []string) []string { return slices.Insert(e, 2, "") }, "position 7 follows 5"},
		"another event": {func(e []string) []string { return append(e[:4:4], `{"index":-1}`) }, "never appended"},
	} {
		t.Run(name, func(t *testing.T) {
			const before = 3
			mux := http.NewServeMux()
			mux.HandleFunc("POST /events", func(http.ResponseWriter, *http.Request) {})
			mux.HandleFunc("POST /events/batch", func(http.ResponseWriter, *http.Request) {})
			mux.HandleFunc("GET /events", func(w http.ResponseWriter, r *http.Request) {
				var log, page []string
				for i := range 5 {
					log = append(log, fmt.Sprintf(`{"index":%d}`, i))
				}
				from, _ := strconv.Atoi(r.FormValue("from"))
				to, err := strconv.Atoi(r.FormValue("to"))
				if err != nil { // ebuse on Pebble has nothing to say then
					http.Error(w, "no end", http.StatusBadRequest)
					return
				}
				for i, data := range test.spoil(log) {
					at := before + 1 + i
					if at >= from && at <= to && data != "" && len(page) < 2 {
						page = append(page, fmt.Sprintf(`{"position":%d,"type":"BenchEvent","data":%s}`, at, data))
					}
				}
				fmt.Fprintf(w, "[%s]", strings.Join(page, ","))
			})
			s := httptest.NewServer(mux)
			defer s.Close()
			address, err := hostOf(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			w := &worker{conn: newConn(address), log: &eventLog{batch: 2, wanted: 5, before: before}}
			defer w.close()
			for range 3 {
				if err := w.append(2); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.append(2); !errors.Is(err, errEnough) {
				t.Errorf("after the last event: %v", err)
			}
			err = w.log.readBack(w.conn)
			if (err == nil) != (test.says == "") || !strings.Contains(fmt.Sprint(err), test.says) {
				t.Errorf("%v, want %q", err, test.says)
			}
		})
	}
}

// TestOpenLoop: latencies count from when operations were due.
func TestOpenLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalled := false
		d := drive(t.Context(), []*worker{{}}, func(*worker) error {
			if !stalled {
				stalled = true
				time.Sleep(200 * time.Millisecond)
			}
			return nil
		}, pace{length: 400 * time.Millisecond, rate: 100}, time.Now(), &counts{}, func(time.Duration) {})
		// Of 40 those 20 that were due during the stall have waited for its end: 200 ms, 190, 180 ...
		l := measure.LatencyOf(d.latencies)
		if d.ops != 40 || d.behind != 0 || l.Max < 199e3 || l.Max > 201e3 || l.P90 < 159e3 || l.P90 > 171e3 || l.P50 > 11e3 {
			t.Errorf("%d operations, %+v", d.ops, l)
		}
	})
}

// TestTooHighARate: what was due and is not begun long after the end is counted.
func TestTooHighARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t.Context(), []*worker{{}}, func(*worker) error {
			time.Sleep(time.Second)
			return nil
		}, pace{length: time.Second, rate: 100}, time.Now(), &counts{}, func(time.Duration) {})
		if d.ops != 11 || d.behind != 89 {
			t.Errorf("%d operations, %d left behind", d.ops, d.behind)
		}
	})
}

// TestGrowth: a line fits what rises, and what only swings does not.
func TestGrowth(t *testing.T) {
	var up, swings []Sample
	for i := range 101 {
		up = append(up, Sample{Seconds: float64(i), RSS: 1000 + 10*int64(i), Goroutines: 5})
		swings = append(swings, Sample{Seconds: float64(i), RSS: 1000 + 500*int64(i%2), Goroutines: 5})
	}
	rss := func(s Sample) int64 { return s.RSS }
	if rise, mean := growth(up, rss); rise < 999 || rise > 1001 || mean != 1500 {
		t.Errorf("%v around %v", rise, mean)
	}
	if rise, _ := growth(swings, rss); rise > 10 || rise < -10 {
		t.Errorf("%v", rise)
	}
	if _, mean := growth([]Sample{{RSS: -1}}, rss); mean != -1 {
		t.Errorf("what is not known is %v", mean)
	}
	grows, fills := make([]Sample, 90), make([]Sample, 90)
	for i := range grows {
		more := int64(i) << 20
		grows[i] = Sample{Seconds: float64(i), RSS: -1, Own: 100<<20 + more, Caches: -1, Goroutines: 100 + int64(i)*3}
		fills[i] = Sample{Seconds: float64(i), RSS: 100<<20 + 10*more, Own: 100<<20 + 2*more, Caches: more}
	}
	w := watch{samples: fills}
	if err := w.grown(&Result{}); err != nil {
		t.Errorf("files and caches: %v", err)
	}
	w.samples = grows
	err := w.grown(&Result{})
	if err == nil || !strings.Contains(err.Error(), "memory has grown by 61.9 MB") ||
		!strings.Contains(err.Error(), "goroutines have grown by 177") {
		t.Errorf("%v", err)
	}
	w.samples = []Sample{{Own: 1 << 20, Goroutines: 7}, {Seconds: 1, Own: 2 << 20, Goroutines: 8}}
	if err := w.grown(&Result{}); err != nil {
		t.Error(err)
	}
}

// TestRequests that make no sense are refused, with what is right.
func TestRequests(t *testing.T) {
	none, many, negative, short := 0, maxWorkers+1, -1.0, time.Millisecond
	for name, test := range map[string]struct {
		r    Request
		says string
	}{
		"a shape":    {Request{Shape: "cube", Null: true}, "the shapes are eventodb, ebuse"},
		"nothing":    {Request{}, "--serve"},
		"a path":     {Request{URL: "http://127.0.0.1:1/x", Token: "x"}, "without a path"},
		"TLS":        {Request{URL: "https://127.0.0.1:1", Token: "x"}, "TLS is not measured"},
		"no token":   {Request{URL: "http://127.0.0.1:1"}, "--token"},
		"twice":      {Request{Serve: []string{"--level power", "--level power"}}, "named twice"},
		"no answers": {Request{Shape: Soak, Null: true}, "leave out --null"},
		"a level":    {Request{Null: true, Level: "strong"}, "the levels are memory, process, power"},
		"workers":    {Request{Null: true, Workers: &many}, "4097 workers"},
		"followers":  {Request{Null: true, Followers: &many}, "leave out --followers"},
		"events":     {Request{Null: true, Batch: &many}, "leave out --events and --batch"},
		"a batch": {Request{Shape: Events, URL: "http://127.0.0.1:1", Token: "x", Batch: &many},
			"in batches of 1 to 1000"},
		"a memory": {Request{Null: true, RAM: new(int64)}, "--ram takes 64 MiB"},
		"none":     {Request{Shape: Follow, Null: true, Followers: &none}, "0 followers"},
		"a rate":   {Request{Null: true, Rate: &negative}, "a rate of -1"},
		"rounds":   {Request{Null: true, Rounds: &none}, "0 rounds"},
		"a length": {Request{Null: true, For: &short}, "from 10ms"},
	} {
		_, _, _, err := plan(test.r)
		if !errors.Is(err, holdfast.ErrBadOption) || !strings.Contains(fmt.Sprint(err), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

// TestServerThatDoesNotListen is an error that says so.
func TestServerThatDoesNotListen(t *testing.T) {
	r := Request{Serve: []string{"--x"}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = Command(t.Context(), r, Place{Dir: t.TempDir(), Serve: []string{self, "-test.run=^$"}}, "",
		console.Terminal{Out: &out, Err: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "it ended before it listened") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
