package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/metrics"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

var ctx = context.Background()

var ok = testkit.Try

// gather returns all series of collectors, as name{label="value",...} without histograms' buckets, and lints them.
func gather(t testing.TB, collectors ...prometheus.Collector) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		ok(t, r.Register(c))
	}
	problems, err := testutil.GatherAndLint(r)
	ok(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := r.Gather()
	ok(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case m.Counter != nil:
				got[name] = m.Counter.GetValue()
			case m.Gauge != nil:
				got[name] = m.Gauge.GetValue()
			case m.Histogram != nil:
				got[name] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return got
}

func want(t testing.TB, got map[string]float64, series map[string]float64) {
	t.Helper()
	for name, value := range series {
		if v, ok := got[name]; !ok || v != value {
			t.Errorf("%s is %v (there: %v), want %v", name, v, ok, value)
		}
	}
}

func TestEngine(t *testing.T) {
	for _, name := range []string{"logtree", "mem", "bbolt"} {
		dir := t.TempDir()
		if name == "mem" {
			dir = ""
		}
		e, err := all.Open(name, dir, holdfast.Options{SyncEvery: time.Hour})
		ok(t, err)
		w := metrics.Watch(e)
		level := e.Capabilities().Strongest()
		var b holdfast.Batch
		b.Set([]byte("k"), []byte("v"))
		for range 3 {
			r, err := w.Apply(&b, level)
			ok(t, err)
			ok(t, r.Wait())
			ok(t, r.Wait()) // counts once
		}
		_, err = w.Apply(&b, 9)
		if !errors.Is(err, holdfast.ErrLevel) {
			t.Errorf("a level that there is not: %v", err)
		}
		got := gather(t, w.Collector())
		want(t, got, map[string]float64{
			"holdfast_commits_total": 3, "holdfast_poisoned": 0, "holdfast_trouble": 0, "holdfast_lost": 0,
		})
		if n := got[fmt.Sprintf("holdfast_commit_seconds{level=%q}", level)]; level == holdfast.Power && n != 3 ||
			level < holdfast.Power && n != 16 {
			t.Errorf("%s: %v commits at %v are measured", name, n, level)
		}
		if name == "logtree" {
			want(t, got, map[string]float64{"holdfast_loss_window_seconds": 3600, "holdfast_unsynced": 0})
			ok(t, holdfast.Commit(w, &b, holdfast.Process))
			for range 999 {
				ok(t, holdfast.Commit(w, &b, holdfast.Process))
			}
			got := gather(t, w.Collector())
			want(t, got, map[string]float64{"holdfast_unsynced": 1})
			if n := got[`holdfast_commit_seconds{level="process"}`]; n < 950 || n > 1050 {
				t.Errorf("1000 commits are estimated as %v", n)
			}
			ok(t, w.Sync())
			want(t, gather(t, w.Collector()), map[string]float64{"holdfast_unsynced": 0})
			ok(t, holdfast.Commit(w, &b, holdfast.Memory))
			ok(t, holdfast.Commit(w, &b, holdfast.Power))
			want(t, gather(t, w.Collector()), map[string]float64{"holdfast_unsynced": 0})
		}
		if name == "mem" {
			if _, there := got["holdfast_disk_bytes"]; there {
				want(t, got, map[string]float64{"holdfast_disk_bytes": 0})
			}
		}
		ok(t, w.Close())
		gather(t, metrics.Engine(e)) // works when it is closed
	}
}

// standing is an engine whose data other machines keep.
type standing struct {
	holdfast.Engine
	m holdfast.Metrics
}

func (s standing) Metrics() holdfast.Metrics { return s.m }

// Standbys and the owner have series where an engine has them, and an engine that another process has fenced says so.
func TestStandbys(t *testing.T) {
	for name := range gather(t, metrics.Engine(mem.New())) {
		if strings.Contains(name, "quorum") || strings.Contains(name, "owner") {
			t.Errorf("an engine on one machine has %s", name)
		}
	}

	m := holdfast.UnknownMetrics()
	m.Standbys, m.StandbysNeeded, m.StandbyLag, m.Owner = 2, 1, 512, 1
	want(t, gather(t, metrics.Engine(standing{mem.New(), m})), map[string]float64{
		"holdfast_quorum_standbys": 2, "holdfast_quorum_standbys_needed": 1, "holdfast_quorum_standby_lag_bytes": 512,
		"holdfast_owner": 1, "holdfast_fenced": 0})
	m.Standbys, m.Owner = 0, 0
	m.Poison = &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: &holdfast.Error{Class: holdfast.ErrFenced}}
	want(t, gather(t, metrics.Engine(standing{mem.New(), m})), map[string]float64{
		"holdfast_quorum_standbys": 0, "holdfast_owner": 0, "holdfast_poisoned": 1, "holdfast_fenced": 1})
}

// slow is an engine whose Apply takes time.
type slow struct {
	holdfast.Engine
	takes time.Duration
}

func (s *slow) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	time.Sleep(s.takes)
	return s.Engine.Apply(b, level)
}

// Each commit that Apply holds up is counted, by how long that was.
func TestStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slow{Engine: mem.New()}
		w := metrics.Watch(e)
		var b holdfast.Batch
		b.Set([]byte("k"), []byte("v"))
		for range 20 {
			for _, e.takes = range []time.Duration{0, 10 * time.Millisecond, 11 * time.Millisecond, 2 * time.Second} {
				ok(t, holdfast.Commit(w, &b, holdfast.Memory))
			}
		}
		got := gather(t, w.Collector())
		for over, n := range map[string]float64{"10ms": 40, "100ms": 20, "1s": 20} {
			want(t, got, map[string]float64{fmt.Sprintf("holdfast_stalled_commits_total{level=%q,over=%q}", "memory", over): n})
		}
		ok(t, w.Close())
	})
}

// Stores, backups and compaction work in a watched engine as in the one below.
func TestWatchedEngine(t *testing.T) {
	e, err := all.Open("bbolt", t.TempDir(), holdfast.Options{})
	ok(t, err)
	w := metrics.Watch(e)
	log, err := event.Open(kv.On(w), event.Options{})
	ok(t, err)
	_, err = log.Append(ctx, event.Event{Type: "t"})
	ok(t, err)
	_, err = event.Open(kv.On(w), event.Options{})
	if !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	ok(t, holdfast.Compact(ctx, w, holdfast.Range{}))
	if _, err := all.Backup(ctx, w, t.TempDir()+"/copy"); err != nil {
		t.Error(err)
	}
	ok(t, log.Close())
	ok(t, w.Close())
	if err := holdfast.Compact(ctx, metrics.Watch(mem.New()), holdfast.Range{}); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Error(err)
	}
}

// An engine that keeps a read waiting, as one whose server is gone, takes no other metrics with it. When it answers
// again, so does the collector.
func TestStoresThatWait(t *testing.T) {
	blocked := make(chan struct{})
	c := metrics.Stores(metrics.Sources{Timeout: 20 * time.Millisecond,
		Logs: func(context.Context) ([]metrics.Log, error) {
			<-blocked
			return nil, nil
		}})
	r := prometheus.NewPedanticRegistry()
	ok(t, r.Register(c))
	ok(t, r.Register(metrics.Engine(mem.New())))
	for range 2 {
		families, err := r.Gather()
		if err == nil || len(families) < 5 {
			t.Errorf("%d metrics, %v", len(families), err)
		}
	}
	close(blocked)
	testkit.Until(t, "a scrape", func() bool {
		_, err := r.Gather()
		return err == nil
	}, nil)
}

func TestStores(t *testing.T) {
	e := mem.New()
	log, err := event.Open(kv.On(e), event.Options{Name: "l", Level: holdfast.Memory})
	ok(t, err)
	defer log.Close()
	for range 5 {
		_, err = log.Append(ctx, event.Event{Type: "t"})
		ok(t, err)
	}
	for i := range 4 {
		ok(t, log.SaveOffset(ctx, fmt.Sprint("sub", i), uint64(i)))
	}
	messages, err := message.Open(kv.On(e), message.Options{Level: holdfast.Memory})
	ok(t, err)
	defer messages.Close()
	n, err := messages.Namespace(ctx, message.Default)
	ok(t, err)
	one := message.Message{Type: "t", Data: []byte("{}")}
	_, err = n.Write(ctx, "a-1", one, one)
	ok(t, err)
	sub, err := n.Subscribe(ctx, "work", message.SubscriptionOptions{})
	ok(t, err)
	claimed, err := sub.Claim(ctx, 2)
	ok(t, err)
	ok(t, sub.Park(ctx, "bad", claimed[0]))
	store, err := task.Open(kv.On(e), task.Options{Level: holdfast.Memory})
	ok(t, err)
	_, err = store.Enqueue(ctx, task.Spec{Queue: "q", Kind: "k"}, task.Spec{Queue: "q", Kind: "k", Delay: time.Hour})
	ok(t, err)
	began := time.Now()
	var hours atomic.Int64 // the store looks at the clock in the background, too
	other, err := task.Open(kv.On(e),
		task.Options{Name: "periodic", Level: holdfast.Memory, Logger: slog.New(slog.DiscardHandler),
			Now: func() time.Time { return began.Add(time.Duration(hours.Load()) * time.Hour) }},
	)
	ok(t, err)
	ok(t, other.AddPeriodic(ctx, task.Periodic{Name: "hourly", Schedule: hourly{},
		Make: func(time.Time) task.Spec { return task.Spec{ID: "same", Kind: "k"} }}))
	for range 3 { // the first has the id, the others are refused
		hours.Add(1)
		ok(t, other.Tick(ctx))
	}
	closed, err := event.Open(kv.On(e), event.Options{Name: "closed", Level: holdfast.Memory})
	ok(t, err)
	ok(t, closed.Close())
	s := metrics.Sources{
		Logs: func(context.Context) ([]metrics.Log, error) {
			return []metrics.Log{{Namespace: "default", Name: "closed", Store: closed},
				{Namespace: "default", Name: "l", Store: log}}, nil
		},
		Namespaces: func(context.Context) ([]*message.Namespace, error) { return []*message.Namespace{n}, nil },
		Tasks: func(context.Context) ([]metrics.Tasks, error) {
			return []metrics.Tasks{{Namespace: "default", Store: store}, {Namespace: "p", Store: other}}, nil
		},
	}
	got := gather(t, metrics.Stores(s))
	want(t, got, map[string]float64{
		`holdfast_log_last_position{log="l",namespace="default"}`:                        5,
		`holdfast_subscription_lag{log="l",namespace="default",subscription="sub0"}`:     5,
		`holdfast_subscription_lag{log="l",namespace="default",subscription="sub3"}`:     2,
		`holdfast_messages_last_position{namespace="default"}`:                           2,
		`holdfast_message_subscription_lag{namespace="default",subscription="work"}`:     1,
		`holdfast_message_subscription_pending{namespace="default",subscription="work"}`: 1,
		`holdfast_message_subscription_parked{namespace="default",subscription="work"}`:  1,
		`holdfast_tasks{namespace="default",queue="q",state="waiting"}`:                  1,
		`holdfast_tasks{namespace="default",queue="q",state="scheduled"}`:                1,
		`holdfast_queue_paused{namespace="default",queue="q"}`:                           0,
		`holdfast_periodic_refused{namespace="p",periodic="hourly"}`:                     2,
	})
	if _, there := got[`holdfast_log_last_position{log="closed",namespace="default"}`]; there {
		t.Error("a closed log is told of")
	}
	if age, there := got[`holdfast_queue_wait_seconds{namespace="default",queue="q"}`]; !there || age <= 0 || age > 3600 {
		t.Errorf("the next task has waited %v s", age)
	}
	// What is beyond the limit is told as one.
	s.MaxSeries = 3
	got = gather(t, metrics.Stores(s))
	want(t, got, map[string]float64{
		`holdfast_subscription_lag{log="_other",namespace="_other",subscription="_other"}`: 2,
		`holdfast_tasks{namespace="_other",queue="_other",state="_other"}`:                 1,
	})
	if _, there := got[`holdfast_subscription_lag{log="l",namespace="default",subscription="sub3"}`]; there {
		t.Error("a series beyond the limit")
	}
	ok(t, store.Close())
	ok(t, other.Close())
	gather(t, metrics.Stores(s)) // without the tasks
	failing := metrics.Sources{Tasks: func(context.Context) ([]metrics.Tasks, error) { return nil, errors.New("no") }}
	r := prometheus.NewRegistry()
	ok(t, r.Register(metrics.Stores(failing)))
	if _, err := r.Gather(); err == nil || !strings.Contains(err.Error(), "no") {
		t.Errorf("a source that fails: %v", err)
	}
}

type hourly struct{}

func (hourly) Next(after time.Time) time.Time { return after.Truncate(time.Hour).Add(time.Hour) }

func TestHTTP(t *testing.T) {
	h := metrics.NewHTTP()
	for i := range 50 {
		h.Observe("GET /v1/streams/{stream}", fmt.Sprint("METHOD", i), 404, time.Millisecond)
	}
	h.Observe("", http.MethodGet, 0, time.Second)
	wrapped := h.Wrap("/a/{b}", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418) }))
	wrapped.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/a/17", nil))
	got := gather(t, h)
	want(t, got, map[string]float64{
		`holdfast_http_request_seconds{code="404",method="other",route="GET /v1/streams/{stream}"}`: 50,
		`holdfast_http_request_seconds{code="200",method="get",route="none"}`:                       1,
		`holdfast_http_request_seconds{code="418",method="post",route="/a/{b}"}`:                    1,
	})
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// BenchmarkWatch is what measuring adds to a commit: the difference of the two.
func BenchmarkWatch(b *testing.B) {
	var batch holdfast.Batch
	batch.Set([]byte("key"), []byte("value"))
	for _, watched := range []bool{false, true} {
		b.Run(fmt.Sprint("watched=", watched), func(b *testing.B) {
			var e holdfast.Engine = instant{mem.New()}
			if watched {
				e = metrics.Watch(e)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := holdfast.Commit(e, &batch, holdfast.Memory); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// instant is an engine that keeps nothing.
type instant struct{ holdfast.Engine }

func (instant) Apply(*holdfast.Batch, holdfast.Level) (holdfast.Receipt, error) {
	return holdfast.Receipt{}, nil
}

// BenchmarkClock is one reading of the clock, of which measuring a commit takes two.
func BenchmarkClock(b *testing.B) {
	began := time.Now()
	for b.Loop() {
		_ = time.Since(began)
	}
}
