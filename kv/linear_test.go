package kv_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/message"
)

// linearState is what is under each key, 0 for nothing, and the version of the stream.
type linearState struct {
	keys    [4]int64
	version int64
}

// linearTx is a transaction, a View or a call of the message namespace; its output is what its steps have returned.
type linearTx struct {
	steps []linearStep
	fails bool // and leaves nothing
}

type linearStep struct {
	kind  string // get, put, add, version, write, or after: a write that expects a version
	key   int
	value int64 // that is put, added or expected
}

// step returns what a step returns, and changes the state.
func (s *linearState) step(o linearStep) int64 {
	switch o.kind {
	case "get":
		return s.keys[o.key]
	case "put":
		s.keys[o.key] = o.value
	case "add":
		s.keys[o.key] += o.value
		return s.keys[o.key]
	case "version":
		return s.version
	case "after":
		if s.version != o.value {
			return -2 // a conflict
		}
		fallthrough
	case "write":
		s.version++
		return s.version
	}
	return 0
}

var linearModel = porcupine.Model{
	Init: func() any { return linearState{version: message.NoStream} },
	Step: func(state, input, output any) (bool, any) {
		s, tx := state.(linearState), input.(linearTx)
		var returned []int64
		for _, o := range tx.steps {
			returned = append(returned, s.step(o))
		}
		if tx.fails {
			return slices.Equal(returned, output.([]int64)), state
		}
		return slices.Equal(returned, output.([]int64)), s
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " ", output) },
}

// Transactions, views and calls of several goroutines at once are as if they had been made one after the other, each at
// a moment between its beginning and its end.
func TestSerializable(t *testing.T) {
	for _, entry := range storetest.Engines() {
		t.Run(entry.Name, func(t *testing.T) {
			t.Parallel()
			first, behind := histories(3)
			for seed := first; seed < behind; seed++ {
				dir := t.TempDir()
				level := holdfast.Process
				if entry.Describe().Strongest() == holdfast.Memory {
					dir, level = "", holdfast.Memory
				}
				engine, err := entry.Open(dir, holdfast.Options{Level: level})
				check(t, err)
				history := linearHistory(t, engine, level, seed)
				check(t, engine.Close())
				if t.Failed() {
					t.Fatalf("HOLDFAST_KV_SEED=%d", seed)
				}
				switch porcupine.CheckOperationsTimeout(linearModel, history, time.Minute) {
				case porcupine.Illegal:
					t.Fatalf("HOLDFAST_KV_SEED=%d: no order of these explains what was seen: %v", seed, history)
				case porcupine.Unknown:
					t.Logf("HOLDFAST_KV_SEED=%d: not decided within a minute", seed)
				}
			}
		})
	}
}

// linearHistory runs some clients and returns what they did and saw.
func linearHistory(t *testing.T, engine holdfast.Engine, level holdfast.Level, seed uint64) []porcupine.Operation {
	db, err := kv.Open(engine, kv.Options{Level: level})
	check(t, err)
	store, err := message.Open(db, message.Options{RetainEvery: -1})
	check(t, err)
	defer storetest.Close(t, store)
	n, err := store.Namespace(ctx, message.Default)
	check(t, err)

	var clock atomic.Int64
	var mu sync.Mutex
	var history []porcupine.Operation
	var clients sync.WaitGroup
	for client := range 8 {
		r := rand.New(rand.NewPCG(seed, uint64(client)))
		clients.Go(func() {
			version := message.NoStream // as it was last seen
			for range 40 {
				in, run := linearRandom(r, version, db, n)
				call := clock.Add(1)
				out, err := run()
				back := clock.Add(1)
				if err != nil {
					t.Error(err)
					return
				}
				for i, o := range in.steps {
					if o.kind == "version" || o.kind == "write" {
						version = out[i]
					}
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: back})
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return history
}

// linearRandom chooses what comes next.
func linearRandom(r *rand.Rand, version int64, db *kv.DB, n *message.Namespace) (in linearTx,
	run func() ([]int64, error)) {
	kinds := []string{"get", "put", "add", "version", "write", "after"}
	steps := func(kinds []string, most int) {
		for range 1 + r.IntN(most) {
			o := linearStep{kind: kinds[r.IntN(len(kinds))], key: r.IntN(4), value: 1 + r.Int64N(1e9)}
			if o.kind == "after" {
				o.value = version + r.Int64N(2)
			}
			in.steps = append(in.steps, o)
		}
	}
	switch r.IntN(5) {
	case 0: // a call that writes: a store's readers see a transaction perhaps a moment later than a View
		steps(kinds[4:], 1)
		return in, func() ([]int64, error) {
			got, err := linearCall(in.steps[0], nil, func(m message.Message, after *int64) (message.Result, error) {
				if after != nil {
					return n.WriteAfter(ctx, "s-1", *after, m)
				}
				return n.Write(ctx, "s-1", m)
			})
			return []int64{got}, err
		}
	case 1:
		steps(kinds[:1], 4)
		return in, func() (out []int64, err error) {
			return out, db.View(ctx, func(tx *kv.Tx) error {
				for _, o := range in.steps {
					v, err := linearGet(tx, o.key)
					if err != nil {
						return err
					}
					out = append(out, v)
				}
				return nil
			})
		}
	}
	steps(kinds, 5)
	in.fails = r.IntN(5) == 0
	return in, func() (out []int64, err error) {
		err = db.Update(ctx, func(tx *kv.Tx) error {
			space := n.In(tx)
			for _, o := range in.steps {
				var got int64
				var err error
				switch o.kind {
				case "get":
					got, err = linearGet(tx, o.key)
				case "add":
					if got, err = linearGet(tx, o.key); err == nil {
						got += o.value
						err = tx.Bucket("b").Put([]byte{byte(o.key)}, fmt.Append(nil, got))
					}
				case "put":
					err = tx.Bucket("b").Put([]byte{byte(o.key)}, fmt.Append(nil, o.value))
				default:
					got, err = linearCall(o, func() (int64, error) { return space.Version("s-1") },
						func(m message.Message, after *int64) (message.Result, error) {
							if after != nil {
								return space.WriteAfter("s-1", *after, m)
							}
							return space.Write("s-1", m)
						})
				}
				if err != nil {
					return err
				}
				out = append(out, got)
			}
			if in.fails {
				return errOwn
			}
			return nil
		})
		if in.fails && err == errOwn {
			err = nil
		}
		return out, err
	}
}

func linearGet(tx *kv.Tx, key int) (v int64, err error) {
	value, err := tx.Bucket("b").Get([]byte{byte(key)})
	if err == holdfast.ErrNotFound {
		return 0, nil
	}
	if err == nil {
		_, err = fmt.Sscan(string(value), &v)
	}
	return v, err
}

func linearCall(o linearStep, version func() (int64, error), write func(message.Message, *int64) (message.Result,
	error)) (int64, error) {
	if o.kind == "version" {
		return version()
	}
	var after *int64
	if o.kind == "after" {
		after = &o.value
	}
	r, err := write(message.Message{Type: "t", Data: []byte("{}")}, after)
	if o.kind == "after" && errors.Is(err, message.ErrConflict) {
		return -2, nil
	}
	return r.Position, err
}
