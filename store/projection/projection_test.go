package projection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task"
)

var (
	ctx       = context.Background()
	wantError = storetest.WantError
)

// total is what the view of the tests has for each type.
type total struct{ Count, Sum uint64 }

// count adds an event to the total of its type, which an event of the type "reset" removes for all types.
func count(view *kv.Bucket, typ string, at uint64) error {
	if typ == "reset" {
		for _, typ := range types {
			if err := view.Delete([]byte(typ)); err != nil {
				return err
			}
		}
		return nil
	}
	t, err := projection.Get[total](view, typ)
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return err
	}
	return projection.Set(view, typ, total{t.Count + 1, t.Sum + at})
}

var types = []string{"a", "b", "c"}

// typeOf is the type of the event at a position, from 1.
func typeOf(at uint64) string {
	if at%23 == 0 {
		return "reset"
	}
	return types[at%3]
}

// want is the view after all events up to last.
func want(last uint64) map[string]total {
	model := map[string]total{}
	for at := uint64(1); at <= last; at++ {
		typ := typeOf(at)
		if typ == "reset" {
			clear(model)
			continue
		}
		t := model[typ]
		model[typ] = total{t.Count + 1, t.Sum + at}
	}
	return model
}

// contents returns the view of a projection, which is in an engine's only database.
func contents[V any](t testing.TB, eng holdfast.Engine, p runner) map[string]V {
	t.Helper()
	got := map[string]V{}
	fatal(t)(kv.On(eng).View(ctx, func(tx *kv.Tx) error {
		for e, err := range projection.All[V](p.View(tx), "") {
			if err != nil {
				return err
			}
			got[e.Key] = e.Value
		}
		return nil
	}))
	return got
}

func check(t testing.TB, eng holdfast.Engine, p runner, last uint64) {
	t.Helper()
	got := contents[total](t, eng, p)
	if !maps.Equal(got, want(last)) {
		t.Fatalf("after %d events the view is %v, want %v", last, got, want(last))
	}
}

// kind is a source with what a test needs of it.
type kind struct {
	name string
	// open opens the source's store, and returns a function that adds n events, a new projection, and one that closes.
	// All of them call check with their errors.
	open func(check func(error), eng holdfast.Engine, level holdfast.Level, o projection.Options) (add func(n int),
		p runner, shut func())
}

// runner is a projection of any type.
type runner interface {
	Run(context.Context) error
	CatchUp(context.Context) error
	Rebuild(context.Context) error
	Progress(context.Context) (projection.Progress, error)
	View(tx *kv.Tx) *kv.Bucket
}

var kinds = []kind{
	{"events", func(check func(error), eng holdfast.Engine, level holdfast.Level, o projection.Options) (func(int), runner,
		func()) {
		log, err := event.Open(kv.On(eng), event.Options{Name: "log", Level: level})
		check(err)
		p, err := projection.New(projection.Events(log), o, func(view *kv.Bucket, e event.Event) error {
			return count(view, e.Type, e.Position)
		})
		check(err)
		return func(n int) {
			for range n {
				_, err := log.Append(ctx, event.Event{Type: typeOf(log.Last() + 1)})
				check(err)
			}
		}, p, func() { check(log.Close()) }
	}},
	{"messages", func(check func(error), eng holdfast.Engine, level holdfast.Level, o projection.Options) (func(int),
		runner, func()) {
		store, err := message.Open(kv.On(eng), message.Options{Level: level})
		check(err)
		n, err := store.Namespace(ctx, message.Default)
		check(err)
		source := projection.Messages(kv.On(eng).At(level), n, message.Query{Category: "s", Limit: 1})
		p, err := projection.New(source, o, func(view *kv.Bucket, in message.Message) error {
			return count(view, in.Type, uint64(in.Global))
		})
		check(err)
		return func(k int) {
			for range k {
				at := uint64(n.Last() + 1)
				in := message.Message{Type: typeOf(at), Data: []byte("{}")}
				_, err := n.Write(ctx, fmt.Sprint("s-", at%2), in)
				check(err)
			}
		}, p, func() { check(store.Close()) }
	}},
}

// fatal ends a test with an error, if it is one.
func fatal(t testing.TB) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func each(t *testing.T, f func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}

// TestConformance is what a projection promises, over events and messages, on every engine at every level.
func TestConformance(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *storetest.Target) {
		each(t, func(t *testing.T, k kind) { testProjection(t, tg, k) })
	})
}

func testProjection(t *testing.T, tg *storetest.Target, k kind) {
	o := projection.Options{Name: "totals of " + k.name, Batch: 7}
	running := make(chan projection.Progress, 1000)
	o.Progress = func(g projection.Progress) { running <- g }
	add, p, shut := k.open(fatal(t), tg.Engine, tg.Level, o)
	add(30)
	if err := p.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	check(t, tg.Engine, p, 30)
	g, err := p.Progress(ctx)
	if err != nil || g.Next != 31 || g.End != 31 {
		t.Fatal(g, err)
	}
	shut()
	tg.Reopen(t)

	// It goes on where it was, and follows.
	add, p, shut = k.open(fatal(t), tg.Engine, tg.Level, o)
	if !tg.OnDisk() {
		check(t, tg.Engine, p, 30)
	}
	stop, cancel := context.WithCancel(ctx)
	ended := storetest.Async(func() error { return p.Run(stop) })
	add(35)
	for g := range running {
		if g.Next == 66 {
			if g.Applied != 35 {
				t.Fatalf("%+v", g)
			}
			break
		}
	}
	check(t, tg.Engine, p, 65)
	wantError(t, p.CatchUp(ctx), holdfast.ErrLocked)
	wantError(t, p.Rebuild(ctx), holdfast.ErrLocked)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}

	if err := p.Rebuild(ctx); err != nil {
		t.Fatal(err)
	}
	check(t, tg.Engine, p, 0)
	fatal(t)(kv.On(tg.Engine).View(ctx, func(tx *kv.Tx) error {
		if there, err := p.View(tx).Exists(); there || err != nil {
			t.Fatal("the bucket is left", err)
		}
		return nil
	}))
	if err := p.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	check(t, tg.Engine, p, 65)
	shut()
	wantError(t, p.Run(ctx), holdfast.ErrClosed)
}

// Whatever part of the commits a crash leaves, each event is applied exactly once.
func TestExactlyOnce(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		o := projection.Options{Name: "totals", Batch: 3}
		st := storetest.NewFakeEngine()
		st.Record = true
		add, p, shut := k.open(fatal(t), st, holdfast.Memory, o)
		stop, cancel := context.WithCancel(ctx)
		ended := storetest.Async(func() error { return p.Run(stop) })
		add(50)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(p.Rebuild(ctx), p.CatchUp(ctx)); err != nil {
			t.Fatal(err)
		}
		check(t, st, p, 50)
		shut()
		for n := range len(st.Batches) + 1 {
			left := mem.New()
			for _, b := range st.Batches[:n] {
				if err := holdfast.Commit(left, b, holdfast.Memory); err != nil {
					t.Fatal(err)
				}
			}
			_, p, shut := k.open(fatal(t), left, holdfast.Memory, o)
			g, err := p.Progress(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if g.Next > 0 {
				check(t, left, p, g.Next-1)
			}
			if err := p.CatchUp(ctx); err != nil {
				t.Fatal(err)
			}
			check(t, left, p, g.End-min(g.End, 1))
			shut()
		}
	})
}

func TestMain(m *testing.M) { storetest.Main(m, child) }

// killed are the options of the projections that are killed.
var killed = projection.Options{Name: "totals", Batch: 5}

// child runs the projection of a kind, whose name is its argument, beside one who adds events, and says how far it has
// come.
func child(c *storetest.Child) {
	for _, k := range kinds {
		if k.name == c.Args {
			o := killed
			o.Progress = func(g projection.Progress) { c.Say("%d", g.Next) }
			add, p, _ := k.open(c.Check, c.Engine, c.Level, o)
			go func() {
				for {
					add(1)
				}
			}()
			c.Check(p.Run(ctx))
		}
	}
}

// TestKill kills processes while they run a projection: each event is applied exactly once, and what was committed
// stays so.
func TestKill(t *testing.T) {
	storetest.Survivors(t, func(t *testing.T, tg *storetest.Target, r *rand.Rand) {
		k := kinds[r.IntN(len(kinds))]
		next := uint64(0)
		for range 3 {
			storetest.Kill(t, tg, k.name, time.Duration(r.IntN(100))*time.Millisecond, func(line string) bool {
				var at uint64
				if _, err := fmt.Sscan(line, &at); err != nil || at <= next {
					t.Errorf("after %d the child said %q", next, line)
				}
				next = at
				return true
			})
			tg.Open(t)
			_, p, shut := k.open(fatal(t), tg.Engine, tg.Level, killed)
			g, err := p.Progress(ctx)
			if err != nil || g.Next < next || next == 0 {
				t.Fatalf("%d was told, now it is %+v, %v", next, g, err)
			}
			check(t, tg.Engine, p, g.Next-1)
			fatal(t)(p.CatchUp(ctx))
			check(t, tg.Engine, p, g.End-1)
			next = g.End
			shut()
			tg.Close(t)
		}
	})
}

// What the query leaves out is not behind, whether it comes before or after what is applied.
func TestLagOfAFilter(t *testing.T) {
	eng := mem.New()
	store, err := message.Open(kv.On(eng), message.Options{Level: holdfast.Memory})
	fatal(t)(err)
	defer storetest.Close(t, store)
	n, err := store.Namespace(ctx, message.Default)
	fatal(t)(err)
	for what, q := range map[string]message.Query{"category": {Category: "a"}, "type": {Types: []string{"a"}}} {
		var told projection.Progress
		first := uint64(n.Last()) + 1
		q.From = int64(first)
		p, err := projection.New(projection.Messages(store.DB(), n, q), projection.Options{
			Name: what, Progress: func(g projection.Progress) { told = g },
		}, func(*kv.Bucket, message.Message) error { return nil })
		fatal(t)(err)
		write := func(kinds string) {
			for _, kind := range kinds {
				_, err := n.Write(ctx, string(kind)+"-1", message.Message{Type: string(kind), Data: []byte("{}")})
				fatal(t)(err)
			}
		}
		lag := func(want uint64) {
			t.Helper()
			for range 2 { // the second time it is remembered
				if g, err := p.Progress(ctx); err != nil || g.End != uint64(n.Last())+1 || g.End-g.Next != want {
					t.Errorf("%s: %+v, %v, want a lag of %d", what, g, err, want)
				}
			}
		}
		write("bb")
		lag(0)
		write("abb")
		fatal(t)(p.CatchUp(ctx))
		if told.End-told.Next != 0 || told.Applied != 1 {
			t.Errorf("%s: %+v", what, told)
		}
		lag(0)
		write("bbabab")
		lag(4) // from the first that waits
		fatal(t)(p.CatchUp(ctx))
		lag(0)
	}
}

// An event that cannot be applied is named, those before it are committed, and nothing of it or behind it is.
func TestApplyFails(t *testing.T) {
	eng := mem.New()
	log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, log)
	for at := range uint64(10) {
		typ := typeOf(at + 1)
		if at == 7 {
			typ = "bad"
		}
		if _, err := log.Append(ctx, event.Event{Type: typ}); err != nil {
			t.Fatal(err)
		}
	}
	broken := errors.New("broken")
	for what, c := range map[string]struct {
		apply func(view *kv.Bucket) error
		cause error
	}{
		"an error":     {func(*kv.Bucket) error { return broken }, broken},
		"an empty key": {func(view *kv.Bucket) error { return view.Put(nil, nil) }, holdfast.ErrBadKey},
		"a long key": {func(view *kv.Bucket) error { return view.Delete([]byte(strings.Repeat("k", 1<<20))) },
			holdfast.ErrBadKey},
		"a large value": {func(view *kv.Bucket) error { return view.Put([]byte("k"), make([]byte, 65<<20)) },
			holdfast.ErrTooLarge},
		"an error that it ignores": {func(view *kv.Bucket) error { _ = view.Put(nil, nil); return nil }, holdfast.ErrBadKey},
	} {
		p, err := projection.New(projection.Events(log), projection.Options{Name: what},
			func(view *kv.Bucket, e event.Event) error {
				if e.Type == "bad" {
					return errors.Join(view.Put([]byte("bad"), nil), c.apply(view))
				}
				return count(view, e.Type, e.Position)
			})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err := p.Run(ctx)
			wantError(t, err, projection.ErrApply)
			wantError(t, err, c.cause)
			if !strings.Contains(err.Error(), `event 8 of type "bad"`) || !strings.Contains(err.Error(), what) {
				t.Fatal(err)
			}
			check(t, eng, p, 7)
			if pos, err := log.LoadOffset(ctx, what); err != nil || pos != 7 {
				t.Fatal(pos, err)
			}
		}
	}
	// A truncation that has passed it, and one that has not.
	p, err := projection.New(projection.Events(log), projection.Options{Name: "an error"},
		func(view *kv.Bucket, e event.Event) error { return projection.Set(view, fmt.Sprint(e.Position), 0) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.TruncateBefore(ctx, 10); err != nil {
		t.Fatal(err)
	}
	wantError(t, p.Run(ctx), event.ErrTruncated)
	if err := errors.Join(p.Rebuild(ctx), p.CatchUp(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := contents[int](t, eng, p); !maps.Equal(got, map[string]int{"10": 0}) {
		t.Fatal(got)
	}
}

// A failed commit ends a run that does not try again, and nothing of it is acknowledged.
func TestFailedCommit(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		st := storetest.NewFakeEngine()
		seen := 0
		o := projection.Options{Name: "totals", Progress: func(projection.Progress) { seen++ },
			Retry: func(error) bool { return false }}
		add, p, _ := k.open(fatal(t), st, holdfast.Memory, o)
		add(3)
		full := errors.New("no space left on device")
		st.Locked(func() { st.Refuse = full })
		wantError(t, p.Run(ctx), full)
		st.Locked(func() { st.Refuse = nil; st.Held = true })
		cause := errors.New("input/output error")
		ended := storetest.Async(func() error { return p.Run(ctx) })
		st.AwaitWaiters(1)
		st.Locked(func() { st.Fail = cause })
		if wantError(t, <-ended, cause); seen > 0 {
			t.Fatal("progress was told")
		}
	})
}

func TestBadOptions(t *testing.T) {
	log, err := event.Open(kv.On(mem.New()), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, log)
	apply := func(*kv.Bucket, event.Event) error { return nil }
	for _, o := range []projection.Options{{}, {Batch: 1}, {Name: "n", Batch: -1}} {
		_, err := projection.New(projection.Events(log), o, apply)
		wantError(t, err, holdfast.ErrBadOption)
	}
	o := projection.Options{Name: "n"}
	_, err = projection.New(projection.Events(log), o, nil)
	wantError(t, err, holdfast.ErrBadOption)
	ignore := func(*kv.Bucket, message.Message) error { return nil }
	_, err = projection.New(projection.Messages(nil, nil, message.Query{}), o, ignore)
	wantError(t, err, holdfast.ErrBadOption)
	nowhere, err := projection.New(projection.Messages(kv.On(nil), nil, message.Query{}), o, ignore)
	fatal(t)(err)
	wantError(t, nowhere.Run(ctx), holdfast.ErrBadOption)
	p, err := projection.New(projection.Events(log), o, apply)
	if err != nil {
		t.Fatal(err)
	}
	var none context.Context
	wantError(t, p.Run(none), holdfast.ErrBadOption)
}

// A projection of one stream counts in the positions of that stream, from 0.
func TestStream(t *testing.T) {
	eng := mem.New()
	store, err := message.Open(kv.On(eng), message.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, store)
	n, err := store.Namespace(ctx, message.Default)
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	p, err := projection.New(projection.Messages(store.DB(), n, message.Query{Stream: "s-1"}),
		projection.Options{Name: "n"}, func(_ *kv.Bucket, m message.Message) error {
			got = append(got, m.Position)
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(3) {
		for _, stream := range []string{"s-0", "s-1"} {
			if _, err := n.Write(ctx, stream, message.Message{Type: "t", Data: []byte("{}")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.CatchUp(ctx); err != nil {
			t.Fatal(err)
		}
		if g, err := p.Progress(ctx); err != nil || g.Next != uint64(i)+1 || g.End != g.Next {
			t.Fatal(g, err)
		}
	}
	if !slices.Equal(got, []int64{0, 1, 2}) {
		t.Fatal(got)
	}
}

// Commits stay within the batches of the engine, however large the changes are, and an event whose changes do not is
// named.
func TestLargeChanges(t *testing.T) {
	st := storetest.NewFakeEngine() // batches of 1 MiB
	log, err := event.Open(kv.On(st), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, log)
	const n = 40
	for range n {
		if _, err := log.Append(ctx, event.Event{}); err != nil {
			t.Fatal(err)
		}
	}
	too := 0 // large
	p, err := projection.New(projection.Events(log), projection.Options{Name: "n"},
		func(view *kv.Bucket, e event.Event) error {
			keys := 2 + too
			if e.Position%2 == 0 { // they do not fit with those of the event before
				keys = 4
			}
			for i := range keys {
				if err := view.Put(fmt.Append(nil, e.Position, "-", i), make([]byte, 200<<10)); err != nil {
					return err
				}
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CatchUp(ctx); err != nil {
		t.Fatal(err)
	}
	fatal(t)(kv.On(st).View(ctx, func(tx *kv.Tx) error {
		if keys, err := p.View(tx).Count(); keys != 3*n || err != nil {
			t.Fatal(keys, err)
		}
		return nil
	}))
	too = 10
	if _, err := log.Append(ctx, event.Event{}); err != nil {
		t.Fatal(err)
	}
	err = p.CatchUp(ctx)
	wantError(t, err, projection.ErrApply)
	wantError(t, err, holdfast.ErrTooLarge)
	if !strings.Contains(err.Error(), fmt.Sprint("event ", n+1)) {
		t.Fatal(err)
	}
}

// A view and a subscription that do not belong together are not taken for each other.
func TestMixedUp(t *testing.T) {
	log, err := event.Open(kv.On(mem.New()), event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, log)
	if _, err := log.Append(ctx, event.Event{}, event.Event{}); err != nil {
		t.Fatal(err)
	}
	p, err := projection.New(projection.Events(log), projection.Options{Name: "a"},
		func(view *kv.Bucket, e event.Event) error { return projection.Set(view, fmt.Sprint(e.Position), true) })
	fatal(t)(err)
	fatal(t)(p.CatchUp(ctx))
	if err := log.SaveOffset(ctx, "a", 1); err != nil {
		t.Fatal(err)
	}
	_, err = p.Progress(ctx)
	wantError(t, err, holdfast.ErrCorrupt)
	wantError(t, p.Run(ctx), holdfast.ErrCorrupt)
	if err := errors.Join(p.Rebuild(ctx), p.CatchUp(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := contents[bool](t, log.Engine(), p); !maps.Equal(got, map[string]bool{"1": true, "2": true}) {
		t.Fatal(got)
	}
	fatal(t)(log.DB().Update(ctx, func(tx *kv.Tx) error {
		view := p.View(tx)
		if err := view.Put([]byte("1"), []byte("no JSON")); err != nil {
			return err
		}
		_, err := projection.Get[bool](view, "1")
		wantError(t, err, holdfast.ErrCorrupt)
		for _, err = range projection.All[bool](view, "") {
		}
		wantError(t, err, holdfast.ErrCorrupt)
		for name := range view.Buckets() {
			return view.Bucket(name).Put([]byte("position"), []byte("no position"))
		}
		return nil
	}))
	wantError(t, p.Run(ctx), holdfast.ErrCorrupt)
}

// A bucket that the program has made is not taken for a view, nor removed.
func TestForeignBucket(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		eng := mem.New()
		db := kv.On(eng).At(holdfast.Memory)
		fatal(t)(db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("totals").Put([]byte("k"), []byte("1")) }))
		add, p, shut := k.open(fatal(t), eng, holdfast.Memory, projection.Options{Name: "totals"})
		add(1)
		wantError(t, p.Run(ctx), holdfast.ErrBadOption)
		wantError(t, p.CatchUp(ctx), holdfast.ErrBadOption)
		wantError(t, p.Rebuild(ctx), holdfast.ErrBadOption)
		_, err := p.Progress(ctx)
		wantError(t, err, holdfast.ErrBadOption)
		if got := contents[int](t, eng, p); !maps.Equal(got, map[string]int{"k": 1}) {
			t.Fatal(got)
		}
		shut()
	})
}

// A view that another transaction deletes while it is kept ends the run: what is applied to it would be in a view that
// lacks what was there before.
func TestDeletedMeanwhile(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		each(t, func(t *testing.T, k kind) {
			eng := mem.New()
			db := kv.On(eng).At(holdfast.Memory)
			once := true
			o := projection.Options{Name: "totals", Batch: 7, Progress: func(projection.Progress) {
				if !once {
					return
				}
				once = false
				fatal(t)(db.Update(ctx, func(tx *kv.Tx) error {
					err := tx.DeleteBucket("totals")
					if replaced {
						err = errors.Join(err, tx.Bucket("totals").Put([]byte("k"), []byte("1")))
					}
					return err
				}))
			}}
			add, p, shut := k.open(fatal(t), eng, holdfast.Memory, o)
			add(20)
			if replaced {
				wantError(t, p.CatchUp(ctx), holdfast.ErrBadOption)
				if got := contents[int](t, eng, p); !maps.Equal(got, map[string]int{"k": 1}) {
					t.Fatal(got)
				}
				fatal(t)(db.Update(ctx, func(tx *kv.Tx) error { return tx.DeleteBucket("totals") }))
			} else {
				wantError(t, p.CatchUp(ctx), holdfast.ErrCorrupt)
			}
			fatal(t)(errors.Join(p.Rebuild(ctx), p.CatchUp(ctx)))
			check(t, eng, p, 20)
			shut()
		})
	}
}

// What the function writes to other places of the database is there when the event is applied, and otherwise not.
func TestOtherPlaces(t *testing.T) {
	eng := mem.New()
	db := kv.On(eng).At(holdfast.Memory)
	log, err := event.Open(db, event.Options{})
	fatal(t)(err)
	defer storetest.Close(t, log)
	tasks, err := task.Open(db, task.Options{})
	fatal(t)(err)
	defer storetest.Close(t, tasks)
	const n = 20
	for range n {
		_, err := log.Append(ctx, event.Event{})
		fatal(t)(err)
	}
	broken, fails := errors.New("broken"), true
	p, err := projection.New(projection.Events(log), projection.Options{Name: "view"},
		func(view *kv.Bucket, e event.Event) error {
			_, err := tasks.In(view.Tx()).Enqueue(task.Spec{Kind: "k", ID: fmt.Sprint(e.Position)})
			err = errors.Join(err, projection.Set(view, fmt.Sprint(e.Position), e.Position),
				projection.Set(view.Tx().Bucket("own"), fmt.Sprint(e.Position), e.Position))
			if e.Position == 13 && fails {
				err = errors.Join(err, broken)
			}
			return err
		})
	fatal(t)(err)
	look := func(want uint64) {
		t.Helper()
		own := map[string]uint64{}
		fatal(t)(db.View(ctx, func(tx *kv.Tx) error {
			for e, err := range projection.All[uint64](tx.Bucket("own"), "") {
				own[e.Key] = e.Value
				fatal(t)(err)
			}
			return nil
		}))
		counts, err := tasks.Count(ctx, task.DefaultQueue)
		if view := contents[uint64](t, eng, p); err != nil || len(view) != int(want) || !maps.Equal(view, own) ||
			counts[task.Waiting] != int(want) {
			t.Fatal(view, own, counts, err)
		}
	}
	wantError(t, p.CatchUp(ctx), broken)
	look(12)
	fails = false
	fatal(t)(p.CatchUp(ctx))
	look(n)
}

// A panic of the function takes its transaction back, and the next run goes on from there.
func TestPanic(t *testing.T) {
	eng := mem.New()
	log, err := event.Open(kv.On(eng), event.Options{Level: holdfast.Memory})
	fatal(t)(err)
	defer storetest.Close(t, log)
	for at := range uint64(10) {
		_, err := log.Append(ctx, event.Event{Type: typeOf(at + 1)})
		fatal(t)(err)
	}
	panics := true
	p, err := projection.New(projection.Events(log), projection.Options{Name: "totals", Batch: 4},
		func(view *kv.Bucket, e event.Event) error {
			if e.Position == 6 && panics {
				panic("broken")
			}
			return count(view, e.Type, e.Position)
		})
	fatal(t)(err)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = p.CatchUp(ctx)
	}()
	panics = false
	g, err := p.Progress(ctx)
	if err != nil || g.Next > 6 {
		t.Fatal(g, err)
	}
	check(t, eng, p, max(g.Next, 1)-1)
	fatal(t)(p.CatchUp(ctx))
	check(t, eng, p, 10)
}

// Who asks for progress while events are applied is told no damage.
func TestProgressMeanwhile(t *testing.T) {
	log, err := event.Open(kv.On(mem.New()), event.Options{Level: holdfast.Memory})
	fatal(t)(err)
	defer storetest.Close(t, log)
	for range 3 {
		_, err := log.Append(ctx, make([]event.Event, 1000)...)
		fatal(t)(err)
	}
	p, err := projection.New(projection.Events(log), projection.Options{Name: "n", Batch: 1},
		func(*kv.Bucket, event.Event) error { return nil })
	fatal(t)(err)
	ended := storetest.Async(func() error { return p.CatchUp(ctx) })
	for last := uint64(0); last < 3001; {
		g, err := p.Progress(ctx)
		if err != nil || g.Next < last {
			t.Fatal(last, g, err)
		}
		last = g.Next
	}
	fatal(t)(<-ended)
}
