package event_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// idReads counts the Gets of ids.
type idReads struct {
	holdfast.Engine
	n atomic.Int64
}

func (r *idReads) Get(dst, key []byte) ([]byte, error) {
	if key[2] == 'i' {
		r.n.Add(1)
	}
	return r.Engine.Get(dst, key)
}

// Ids that grow, as those do which begin with the time, are not read, not even when some come late. All are known
// afterwards, whether they are in memory or not, before the log is opened again and behind that.
func TestFreshIDs(t *testing.T) {
	const n, late = 10_000, 50
	eng := &idReads{Engine: mem.New()}
	s := openLog(t, eng, event.Options{Level: holdfast.Memory})
	random := rand.New(rand.NewPCG(1, 2))
	ids, at := random.Perm(n), map[string]uint64{}
	for from := 0; from < n; from += late { // late from each other, and in order else
		for i := range late {
			ids[from+i] = from + (ids[from+i] % late)
		}
	}
	appendNew := func(from, to int) (reads int64) {
		before := eng.n.Load()
		for _, i := range ids[from:to] {
			id := fmt.Sprintf("%08d", i)
			r := appendOK(t, s, named(id)...)
			if want := at[id]; r.Repeated != (want != 0) || want != 0 && r.First != want {
				t.Fatalf("id %s, known at %d: %+v", id, want, r)
			}
			at[id] = r.First
		}
		return eng.n.Load() - before
	}
	appendNew(0, 100)
	if reads := appendNew(100, n/2); reads > 0 {
		t.Errorf("%d reads for ids that grow", reads)
	}
	closeLog(t, s)
	s = openLog(t, eng, event.Options{Level: holdfast.Memory})
	appendNew(n/2, n/2+100)
	if reads := appendNew(n/2+100, n); reads > 0 {
		t.Errorf("%d reads for ids that grow, after it was opened again", reads)
	}
	for id, pos := range at {
		if r := appendOK(t, s, named(id)...); !r.Repeated || r.First != pos {
			t.Fatalf("id %s is known at %d: %+v", id, pos, r)
		}
	}

	// Others far away do not end that.
	for i := range 1000 {
		appendOK(t, s, named(fmt.Sprintf("z%08x", random.Uint32()))...)
		id := fmt.Sprintf("1%07d", i)
		before := eng.n.Load()
		appendOK(t, s, named(id)...)
		if reads := eng.n.Load() - before; reads > 0 && i > 100 {
			t.Fatalf("%d reads for id %s", reads, id)
		}
	}
	closeLog(t, s)
}

// waits calls a function when somebody waits with it.
type waits struct {
	context.Context
	call func()
}

func (w *waits) Done() <-chan struct{} {
	w.call()
	return w.Context.Done()
}

// An id is fresh when it is looked up, because it is in memory, and has left that when it is the append's turn.
func TestFreshIDLeaves(t *testing.T) {
	db, err := kv.Open(mem.New(), kv.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	s, err := event.Open(db, event.Options{Level: holdfast.Memory})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		appendOK(t, s, named(fmt.Sprintf("a%04d", i))...)
	}
	want := appendOK(t, s, named("b")...)
	want.Repeated = true
	waiting, got := make(chan struct{}, 100), make(chan event.Result, 1)
	err = db.Update(ctx, func(tx *kv.Tx) error {
		log := s.In(tx)
		if _, err := log.Last(); err != nil { // it has the turn
			return err
		}
		go func() {
			r, err := s.Append(&waits{ctx, func() { waiting <- struct{}{} }}, named("b")...)
			if err != nil {
				t.Error(err)
			}
			got <- r
		}()
		<-waiting
		for i := range 10_000 {
			if _, err := log.Append(named(fmt.Sprintf("c%04d", i))...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if r := <-got; r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
	closeLog(t, s)
}

// What is imported among fresh ids is known, too.
func TestFreshIDImported(t *testing.T) {
	s := memLog(t)
	for i := range 100 {
		appendOK(t, s, named(fmt.Sprintf("a%04d", i))...)
	}
	e := named("b")[0]
	e.Position = 200
	if _, err := s.Import(ctx, e); err != nil {
		t.Fatal(err)
	}
	if r := appendOK(t, s, named("b")...); !r.Repeated || r.First != 200 {
		t.Errorf("%+v", r)
	}
	if r := appendOK(t, s, named("c")...); r.Repeated {
		t.Errorf("%+v", r)
	}
}
