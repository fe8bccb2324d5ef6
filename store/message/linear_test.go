package message_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/message"
)

// linearOp is one operation on a namespace, and what it returned.
type linearOp struct {
	client    int
	call, ret int64

	// A write of one message with that id to each stream, expecting a version unless it is anyVersion; or, if id is 0,
	// reading all of the first stream, or its version if versionOnly is true.
	id          int
	streams     []int
	expected    []int64
	versionOnly bool

	results  []message.Result
	conflict *message.Conflict
	version  int64
	ids      []int // read
}

const anyVersion = -2

// linearState is what is in a namespace: the ids of the messages of each stream.
type linearState struct {
	streams [3][]int
	total   int64
	places  map[int][]message.Result // of each write, by id; never changed, but copied
}

func linearStream(i int) string { return []string{"a-1", "a-2", "b"}[i] }

// step reports whether an operation may return what it did in that state, and the state after it.
func (s linearState) step(o linearOp) (bool, linearState) {
	if o.id == 0 {
		in := s.streams[o.streams[0]]
		if o.versionOnly {
			return o.version == int64(len(in))-1, s
		}
		return slices.Equal(o.ids, in), s
	}
	if first, known := s.places[o.id]; known {
		repeat := slices.Clone(first)
		for i := range repeat {
			repeat[i].Repeated = true
		}
		return o.conflict == nil && slices.Equal(o.results, repeat), s
	}
	for i, stream := range o.streams {
		if version := int64(len(s.streams[stream])) - 1; o.expected[i] != anyVersion && o.expected[i] != version {
			want := message.Conflict{Stream: linearStream(stream), Expected: o.expected[i], Actual: version}
			return o.conflict != nil && *o.conflict == want, s
		}
	}
	if o.conflict != nil {
		return false, s
	}
	next := linearState{s.streams, s.total, map[int][]message.Result{}}
	for id, places := range s.places {
		next.places[id] = places
	}
	for i, stream := range o.streams {
		next.total++
		if o.results[i] != (message.Result{Position: int64(len(s.streams[stream])), Global: next.total}) {
			return false, s
		}
		next.streams[stream] = append(slices.Clone(s.streams[stream]), o.id)
	}
	next.places[o.id] = o.results
	return true, next
}

// linearizable looks for an order of all operations that agrees with their times and results.
func linearizable(history []linearOp) error {
	var ops []porcupine.Operation
	for _, o := range history {
		ops = append(ops, porcupine.Operation{ClientId: o.client, Input: o, Call: o.call, Return: o.ret})
	}
	model := porcupine.Model{
		Init: func() any { return linearState{} },
		Step: func(state, input, _ any) (bool, any) { return state.(linearState).step(input.(linearOp)) },
		Equal: func(a, b any) bool {
			x, y := a.(linearState), b.(linearState)
			return x.total == y.total && slices.EqualFunc(x.streams[:], y.streams[:], slices.Equal[[]int])
		},
	}
	switch porcupine.CheckOperationsTimeout(model, ops, 2*time.Minute) {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("%d operations could not be checked within two minutes", len(ops))
	}
	return fmt.Errorf("not linearizable: no order of %d operations explains what they returned", len(ops))
}

// linearClients works on a namespace from several goroutines and returns what they did. An operation whose context
// ended before it had its place is left out: it must have had no effect.
func linearClients(t *testing.T, n *message.Namespace, each int) (history []linearOp) {
	t.Helper()
	var (
		clock, ids atomic.Int64
		group      sync.WaitGroup

		mu    sync.Mutex
		begun []linearOp // writes
	)
	for client := range 6 {
		r := rand.New(rand.NewPCG(5, uint64(client)))
		group.Go(func() {
			for range each {
				o := linearOp{client: client, streams: r.Perm(3)[:1]}
				ctx, cancel := context.WithCancel(ctx)
				var writes []streamWrite
				switch what := r.IntN(10); {
				case what == 0:
				case what == 1:
					o.versionOnly = true
				default:
					if what == 2 {
						o.streams = r.Perm(3)[:2]
					}
					o.id = int(ids.Add(1))
					mu.Lock()
					if what == 3 && len(begun) > 0 { // one that may be known, or under way, to the same streams
						old := begun[max(0, len(begun)-1-r.IntN(20))]
						o.id, o.streams = old.id, old.streams
					}
					begun = append(begun, o)
					mu.Unlock()
				}
				for _, stream := range o.streams {
					w := streamWrite{Stream: linearStream(stream), Messages: []message.Message{linearMessage(o.id, stream)}}
					o.expected = append(o.expected, anyVersion)
					if r.IntN(3) > 0 && o.id > 0 {
						version, ok, err := n.Version(ctx, w.Stream)
						if err != nil {
							t.Error(err)
						}
						if !ok {
							version = message.NoStream
						}
						o.expected[len(o.expected)-1], w.Expected = version, &version
					}
					writes = append(writes, w)
				}
				if r.IntN(12) == 0 {
					group.Go(cancel) // at any moment
				}
				o.call = clock.Add(1)
				err := linearDo(ctx, n, &o, writes)
				o.ret = clock.Add(1)
				cancel()
				if errors.Is(err, context.Canceled) {
					continue
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				history = append(history, o)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return history
}

func linearMessage(id, stream int) message.Message {
	return message.Message{Type: "t", ID: fmt.Sprintf("00000000-0000-4000-800%d-%012d", stream, id),
		Data: fmt.Appendf(nil, `{"id":%d}`, id)}
}

func linearDo(ctx context.Context, n *message.Namespace, o *linearOp, writes []streamWrite) error {
	stream := writes[0].Stream
	switch {
	case o.versionOnly:
		version, ok, err := n.Version(ctx, stream)
		if o.version = version; !ok {
			o.version = message.NoStream
		}
		return err
	case o.id == 0:
		for m, err := range n.Read(ctx, message.Query{Stream: stream}) {
			if err != nil {
				return err
			}
			var id int
			if _, err := fmt.Sscanf(string(m.Data), `{"id":%d}`, &id); err != nil {
				return err
			}
			o.ids = append(o.ids, id)
		}
		return nil
	}
	results, err := writeAll(ctx, n, writes...)
	o.results = results
	if errors.As(err, &o.conflict) {
		return nil
	}
	return err
}

// TestLinearizable: writes with and without versions, repeats, writes to two streams, versions and reads happen as if
// one after the other, and global positions tell the order; on every engine at every level that it gives.
func TestLinearizable(t *testing.T) {
	storetest.Targets(t, func(t *testing.T, tg *target) {
		s := openStore(t, tg.Engine, message.Options{Name: "linear", Level: tg.Level})
		defer closeStore(t, s)
		if err := linearizable(linearClients(t, namespace(t, s, message.Default), 40)); err != nil {
			t.Error(err)
		}
	})
}

// TestLinearizableWhileUnsettled: the same where batches are durable one by one, and later than they are applied.
func TestLinearizableWhileUnsettled(t *testing.T) {
	storetest.FakeEngines(t, func(t *testing.T, st *storetest.FakeEngine) {
		s := openStore(t, st, message.Options{Level: holdfast.Memory})
		n := namespace(t, s, message.Default)
		st.Hold()
		var done atomic.Bool
		var settling sync.WaitGroup
		settling.Go(func() {
			for !done.Load() {
				st.Locked(func() {
					if st.Settled < st.Applied {
						st.Settle()
					}
				})
				runtime.Gosched()
			}
		})
		history := linearClients(t, n, 100)
		done.Store(true)
		settling.Wait()
		st.Release(-1)
		closeStore(t, s)
		conflicts, repeats := 0, 0
		for _, o := range history {
			if o.conflict != nil {
				conflicts++
			}
			if len(o.results) > 0 && o.results[0].Repeated {
				repeats++
			}
		}
		if conflicts == 0 || repeats == 0 {
			t.Errorf("%d conflicts and %d repeats: nothing was tested", conflicts, repeats)
		}
		if err := linearizable(history); err != nil {
			t.Error(err)
		}
	})
}

// TestLinearModel: histories that must not be are found.
func TestLinearModel(t *testing.T) {
	type at = message.Result
	one, a := int64(0), []int{0}
	write := func(client int, call, ret int64, id int, expected int64, r message.Result) linearOp {
		return linearOp{client: client, call: call, ret: ret, id: id, streams: a, expected: []int64{expected},
			results: []message.Result{r}}
	}
	first := write(1, 1, 2, 1, message.NoStream, at{Position: 0, Global: 1})
	read := func(call, ret int64, ids ...int) linearOp {
		return linearOp{client: 3, call: call, ret: ret, streams: a, ids: ids}
	}
	for what, test := range map[string]struct {
		history []linearOp
		good    bool
	}{
		"two writes":    {[]linearOp{first, write(2, 1, 4, 2, 0, at{Position: 1, Global: 2}), read(5, 6, 1, 2)}, true},
		"both win":      {[]linearOp{first, write(2, 1, 4, 2, message.NoStream, at{Position: 0, Global: 2})}, false},
		"a gap":         {[]linearOp{first, write(2, 3, 4, 2, 0, at{Position: 1, Global: 3})}, false},
		"a repeat":      {[]linearOp{first, write(2, 3, 4, 1, 7, at{Position: 0, Global: 1, Repeated: true})}, true},
		"written twice": {[]linearOp{first, write(2, 3, 4, 1, 0, at{Position: 1, Global: 2})}, false},
		"read late":     {[]linearOp{first, read(3, 4)}, false},
		"read early":    {[]linearOp{write(1, 3, 4, 1, -1, at{Position: 0, Global: 1}), read(1, 2, 1)}, false},
		"a false conflict": {[]linearOp{first, {client: 2, call: 3, ret: 4, id: 2, streams: a, expected: []int64{one},
			conflict: &message.Conflict{Stream: linearStream(0), Expected: one, Actual: 1}}}, false},
		"a true conflict": {[]linearOp{first, {client: 2, call: 3, ret: 4, id: 2, streams: a, expected: []int64{5},
			conflict: &message.Conflict{Stream: linearStream(0), Expected: 5, Actual: 0}}}, true},
	} {
		if err := linearizable(test.history); (err == nil) != test.good {
			t.Errorf("%s: %v", what, err)
		}
	}
}
