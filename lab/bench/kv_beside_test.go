package bench

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// kvNamed is one of the small ones.
func kvNamed(t *testing.T, name string) Workload {
	t.Helper()
	list := smallKV()
	i := slices.IndexFunc(list, func(w Workload) bool { return w.Name == name })
	if i < 0 {
		t.Fatal("no ", name)
	}
	return list[i]
}

// TestBeside: the work beside is measured, as a kind of its own, at its rate or as fast as it can, and is no work of
// the load: neither its operations nor its time count.
func TestBeside(t *testing.T) {
	for _, test := range []struct {
		rate, takes float64 // of operations a second, and milliseconds that one takes
		ops         int64   // in 2 s
		p50         float64
	}{
		{0, 5, 400, 5000}, {100, 1, 200, 1000}, {100, 20, 100, 5e5}, {1e9, 4, 500, 1e6},
	} {
		for _, offer := range []Offer{{}, {Rate: 500}} {
			var o outcome
			synctest.Test(t, func(t *testing.T) {
				work := func(ms float64) func() error {
					return func() error {
						time.Sleep(time.Duration(ms * float64(time.Millisecond)))
						return nil
					}
				}
				load := Load{Kinds: []string{"read"}, Client: func(int) func() error { return work(1) },
					Beside: &Beside{Kind: "write", Rate: test.rate, Client: func() func() error { return work(test.takes) }}}
				q := request{Cell: Cell{Clients: 3, Offer: offer}, WarmUp: time.Second, For: 2 * time.Second}
				if err := drive(load, q, make(opCounts, 3), &o); err != nil {
					t.Fatal(err)
				}
			})
			reads := int64(3 * 2000)
			if offer.Open() {
				reads = 2 * 500
			}
			if o.Ops < reads-3 || o.Ops > reads+3 || o.Seconds > 2.01 || o.Latency.Max > 2000 || len(o.Kinds) != 2 ||
				o.Kinds[0].Ops != o.Ops {
				t.Errorf("%+v: %d reads in %v s, %+v", test, o.Ops, o.Seconds, o.Latency)
				continue
			}
			beside := o.Kinds[1]
			if beside.Name != "write" || beside.Ops < test.ops-2 || beside.Ops > test.ops+2 ||
				beside.Latency.P50 < 0.9*test.p50 || beside.Latency.P50 > 1.1*test.p50 {
				t.Errorf("%+v: %d writes, %+v", test, beside.Ops, beside.Latency)
			}
		}
	}
}

// TestBesideThatFails voids the measurement, as a reader that fails does.
func TestBesideThatFails(t *testing.T) {
	works := func() error { return nil }
	fails := func() error { return holdfast.ErrFull }
	for _, load := range []Load{
		{Kinds: []string{"read"}, Client: func(int) func() error { return works },
			Beside: &Beside{Client: func() func() error { return fails }}},
		{Kinds: []string{"read"}, Client: func(int) func() error { return fails },
			Beside: &Beside{Rate: 1e-3, Client: func() func() error { return works }}},
	} {
		var o outcome
		err := drive(load, request{Cell: Cell{Clients: 1}, For: time.Hour}, make(opCounts, 1), &o)
		if !errors.Is(err, holdfast.ErrFull) {
			t.Errorf("it says %v", err)
		}
	}
}

// TestReadWhileWritingCatches: what is read beside a writer must be no older than what it was told is there, and no
// update may be lost.
func TestReadWhileWritingCatches(t *testing.T) {
	w := kvNamed(t, "kv/read-while-writing")
	for name, spoil := range map[string]func(*mutant){
		"": func(*mutant) {},
		"what was there is read": func(engine *mutant) {
			old := map[string][]byte{}
			engine.get = func(e holdfast.Engine, dst, key []byte) ([]byte, error) {
				value, err := e.Get(nil, key)
				if _, ok := old[string(key)]; !ok {
					old[string(key)] = bytes.Clone(value)
				}
				return append(dst, old[string(key)]...), err
			}
		},
		"updates are lost": func(engine *mutant) {
			engine.apply = func(holdfast.Engine, *holdfast.Batch) (holdfast.Receipt, error) { return holdfast.Receipt{}, nil }
		},
	} {
		engine := &mutant{Engine: mem.New()}
		load, err := w.Engine(taskOn(engine))
		if err != nil {
			t.Fatal(err)
		}
		spoil(engine)
		read, write := load.Client(0), load.Beside.Client()
		for range 20_000 {
			if err = errors.Join(read(), write()); err != nil {
				break
			}
		}
		if err == nil {
			_, _, err = load.Verify()
		}
		if (err == nil) != (name == "") || err != nil && !errors.Is(err, ErrWrong) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestQueues: they keep their length, each key is put once, what is taken is the first, and a writer's bytes count.
func TestQueues(t *testing.T) {
	for _, test := range []struct {
		name    string
		clients int
		length  int64
	}{{"kv/retention", 1, 1000}, {"kv/retention", 7, 7 * 142}, {"kv/queue", 1, 300}, {"kv/queue", 400, 400}} {
		dir := filepath.Join(t.TempDir(), "engine")
		task := Task{Level: holdfast.Process, Clients: test.clients, Open: func() (holdfast.Engine, error) {
			return bbolt.Open(dir, holdfast.Options{Level: holdfast.Process})
		}}
		w := kvNamed(t, test.name)
		load, err := w.Engine(task)
		if err != nil {
			t.Fatal(err)
		}
		const turns = 40
		kinds := map[int]int64{}
		for i := range test.clients {
			client := load.client(i)
			for range turns {
				kind, err := client()
				if err != nil {
					t.Fatalf("%s: %v", test.name, err)
				}
				kinds[kind]++
			}
		}
		bytes := int64(w.Items) * int64(kvKeySize+w.ItemBytes) * kinds[0] // each puts, and deletes
		if test.name == "kv/queue" {
			bytes = kinds[0]*int64(w.ItemBytes) + kinds[1]*kvKeySize
			if kinds[0] != kinds[1] {
				t.Errorf("%s: %v", test.name, kinds)
			}
		}
		if got := load.Put(); got != bytes {
			t.Errorf("%s: %d bytes, want %d", test.name, got, bytes)
		}
		if err := load.Close(); err != nil {
			t.Fatal(err)
		}
		if items, checked, err := load.Verify(); err != nil || items != test.length || checked != items {
			t.Errorf("%s, %d clients: %d of %d, want %d: %v", test.name, test.clients, checked, items, test.length, err)
		}
	}
}

// TestQueueTakesTheFirst: an iterator that does not begin with the first key, as where deleted ones come back, is
// caught by what takes, not only at the end.
func TestQueueTakesTheFirst(t *testing.T) {
	engine := &mutant{Engine: mem.New()}
	load, err := kvNamed(t, "kv/queue").Engine(taskOn(engine))
	if err != nil {
		t.Fatal(err)
	}
	engine.apply = func(e holdfast.Engine, b *holdfast.Batch) (holdfast.Receipt, error) {
		for op := range b.Ops() {
			if op.Kind == holdfast.KindDelete {
				return holdfast.Receipt{}, nil
			}
		}
		return e.Apply(b, holdfast.Memory)
	}
	if err := times(4, load.Client(0)); !errors.Is(err, ErrWrong) {
		t.Errorf("it says %v", err)
	}
}
