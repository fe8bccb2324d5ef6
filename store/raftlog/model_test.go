package raftlog_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// model is what a store should be.
type model struct {
	logs      map[uint64]*raft.Log
	stable    map[string]string
	commit    uint64
	staged    *uint64
	monotonic bool
}

func newModel() *model { return &model{logs: map[uint64]*raft.Log{}, stable: map[string]string{}} }

func (m *model) clone() *model {
	c := *m
	c.logs, c.stable = maps.Clone(m.logs), maps.Clone(m.stable)
	return &c
}

func (m *model) indexes() []uint64 { return slices.Sorted(maps.Keys(m.logs)) }

func (m *model) bounds() (first, last uint64) {
	if list := m.indexes(); len(list) > 0 {
		return list[0], list[len(list)-1]
	}
	return 0, 0
}

func (m *model) store(logs []*raft.Log) error {
	_, last := m.bounds()
	for i, log := range logs {
		if m.monotonic && (i > 0 || len(m.logs) > 0) && log.Index != last+1 {
			return raftlog.ErrOrder
		}
		last = log.Index
	}
	for _, log := range logs {
		m.logs[log.Index] = log
	}
	if len(logs) > 0 && m.staged != nil {
		m.commit, m.staged = *m.staged, nil
	}
	return nil
}

func (m *model) remove(lo, hi uint64) error {
	first, last := m.bounds()
	if lo > hi || len(m.logs) == 0 || lo > last || hi < first {
		return nil
	}
	if m.monotonic && lo > first && hi < last {
		return raftlog.ErrOrder
	}
	for index := range m.logs {
		if lo <= index && index <= hi {
			delete(m.logs, index)
		}
	}
	suffix := hi >= last
	_, last = m.bounds()
	m.commit = min(m.commit, last)
	if suffix && m.staged != nil {
		if m.staged = new(min(*m.staged, last)); len(m.logs) == 0 {
			m.staged = nil
		}
	}
	return nil
}

// differs returns an error that names in what a store is not the model.
func (m *model) differs(s *raftlog.Store) error {
	first, last := m.bounds()
	if got, err := s.FirstIndex(); err != nil || got != first {
		return fmt.Errorf("first index %d, %v, want %d", got, err, first)
	}
	if got, err := s.LastIndex(); err != nil || got != last {
		return fmt.Errorf("last index %d, %v, want %d", got, err, last)
	}
	if got, err := s.GetCommitIndex(); err != nil || got != min(m.commit, last) {
		return fmt.Errorf("commit index %d, %v, want %d", got, err, min(m.commit, last))
	}
	look := map[uint64]bool{0: true, 1: true, last + 1: true, math.MaxUint64: true}
	for index := range m.logs {
		look[index], look[index+1], look[index-1] = true, true, true
	}
	for index := range look {
		var got raft.Log
		err := s.GetLog(index, &got)
		switch want := m.logs[index]; {
		case want == nil && err != raft.ErrLogNotFound:
			return fmt.Errorf("entry %d: %+v, %v, want none", index, got, err)
		case want != nil && err != nil:
			return fmt.Errorf("entry %d: %v", index, err)
		case want != nil:
			if err := same(&got, want); err != nil {
				return err
			}
		}
	}
	keys, err := s.Keys()
	if err != nil {
		return err
	}
	if len(keys) != len(m.stable) || !slices.IsSortedFunc(keys, slices.Compare) {
		return fmt.Errorf("the stable keys are %q, want %q", keys, slices.Sorted(maps.Keys(m.stable)))
	}
	for _, key := range keys {
		if got, err := s.Get(key); err != nil || string(got) != m.stable[string(key)] {
			return fmt.Errorf("key %q: %q, %v, want %q", key, got, err, m.stable[string(key)])
		}
	}
	return nil
}

// drawIndex draws an index near one of the log's ends, or far from them: spans become long enough to
// be deleted in chunks.
func (m *model) drawIndex(rt *rapid.T, name string) uint64 {
	first, last := m.bounds()
	near := rapid.SampledFrom([]uint64{0, first, last, last, (first + last) / 2, last + 5_000}).Draw(rt, name+" near")
	return min(near+rapid.Uint64Range(0, 12).Draw(rt, name)-min(near, 6), math.MaxUint64-1)
}

func (m *model) drawLogs(rt *rapid.T) []*raft.Log {
	_, last := m.bounds()
	at := last + 1
	if rapid.IntRange(0, 3).Draw(rt, "elsewhere") == 0 {
		at = m.drawIndex(rt, "index")
	}
	small := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 20))
	shuffled := rapid.IntRange(0, 5).Draw(rt, "shuffled") == 0
	var logs []*raft.Log
	for range rapid.IntRange(0, 8).Draw(rt, "entries") {
		log := &raft.Log{
			Index: at, Term: rapid.Uint64().Draw(rt, "term"), Type: raft.LogType(rapid.Byte().Draw(rt, "type")),
			Data: small.Draw(rt, "data"), Extensions: small.Draw(rt, "extensions"),
		}
		if rapid.Bool().Draw(rt, "timed") {
			log.AppendedAt = time.Unix(rapid.Int64().Draw(rt, "second"), rapid.Int64Range(0, 999_999_999).Draw(rt, "nanosecond"))
		}
		logs = append(logs, log)
		if at++; shuffled {
			at = m.drawIndex(rt, "index")
		} else if !m.monotonic && rapid.IntRange(0, 9).Draw(rt, "gap") == 0 {
			at += 3
		}
	}
	return logs
}

// work is a store that is driven together with its model.
type work struct {
	*model
	s *raftlog.Store
}

// actions are what may be done to a store; each does it to both and compares what they say.
func (w *work) actions() map[string]func(*rapid.T) {
	key := rapid.SampledFrom([]string{"", "CurrentTerm", "LastVoteTerm", "LastVoteCand", "x"})
	agree := func(rt *rapid.T, got, want error) {
		if !errors.Is(got, want) {
			rt.Fatalf("got %v, want %v", got, want)
		}
	}
	return map[string]func(*rapid.T){
		"store": func(rt *rapid.T) {
			logs := w.drawLogs(rt)
			agree(rt, w.s.StoreLogs(logs), w.store(logs))
		},
		"append": func(rt *rapid.T) {
			_, last := w.bounds()
			log := entry(last+1, rapid.Uint64().Draw(rt, "term"))
			agree(rt, w.s.StoreLog(log), w.store([]*raft.Log{log}))
		},
		"delete": func(rt *rapid.T) {
			lo, hi := w.drawIndex(rt, "lo"), w.drawIndex(rt, "hi")
			agree(rt, w.s.DeleteRange(lo, hi), w.remove(lo, hi))
		},
		"set": func(rt *rapid.T) {
			k, v := key.Draw(rt, "key"), string(rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(rt, "value"))
			agree(rt, w.s.Set([]byte(k), []byte(v)), nil)
			w.stable[k] = v
		},
		"get": func(rt *rapid.T) {
			k := key.Draw(rt, "key")
			got, err := w.s.Get([]byte(k))
			if want, ok := w.stable[k]; ok && (err != nil || string(got) != want) || !ok && err != raftlog.ErrKeyNotFound {
				rt.Fatalf("key %q: %q, %v, want %q", k, got, err, want)
			}
		},
		"stage": func(rt *rapid.T) {
			index := w.drawIndex(rt, "commit")
			agree(rt, w.s.StageCommitIndex(index), nil)
			w.staged = &index
		},
		"": func(rt *rapid.T) {
			if err := w.differs(w.s); err != nil {
				rt.Fatal(err)
			}
		},
	}
}

// TestModel does random things to a store and to its model, and compares what they say.
func TestModel(t *testing.T) {
	targets(t, func(t *testing.T, tg *target) {
		stores := 0
		rapid.Check(t, func(rt *rapid.T) {
			stores++
			if tg.Level == holdfast.Power && stores%4 > 0 { // what waits for the device is tried less
				return
			}
			m := newModel()
			m.monotonic = rapid.IntRange(0, 2).Draw(rt, "monotonic") == 0
			o := raftlog.Options{Name: fmt.Sprint("model ", stores), Level: tg.Level, Monotonic: m.monotonic}
			s, err := raftlog.Open(tg.Engine, o)
			if err != nil {
				rt.Fatal(err)
			}
			w := &work{m, s}
			defer func() { _ = w.s.Close() }()
			actions := w.actions()
			actions["reopen"] = func(rt *rapid.T) {
				if err := w.s.Close(); err != nil {
					rt.Fatal(err)
				}
				if w.staged = nil; rapid.IntRange(0, 15).Draw(rt, "engine") == 0 {
					tg.Reopen(t)
				}
				if w.s, err = raftlog.Open(tg.Engine, o); err != nil {
					rt.Fatal(err)
				}
			}
			rt.Repeat(actions)
		})
	})
}

// TestEveryPrefix does random things and then opens what each prefix of the batches leaves, which is
// what a crash leaves: it is the state before an operation or after it, and never between, but for a
// StoreLogs over the engine's limit. The engine's limits vary, so that there are operations of
// several batches. Afterwards nothing is left of what was deleted.
func TestEveryPrefix(t *testing.T) {
	for _, native := range []bool{true, false} {
		for _, ops := range []int64{0, 4, 7} {
			for _, bytes := range []int64{0, 2300} {
				t.Run(fmt.Sprintf("native=%v/operations=%d/bytes=%d", native, ops, bytes), func(t *testing.T) {
					rapid.Check(t, func(rt *rapid.T) { everyPrefix(rt, native, ops, bytes) })
				})
			}
		}
	}
}

func everyPrefix(rt *rapid.T, native bool, ops, bytes int64) {
	st := newFakeEngine()
	st.Record, st.Native, st.Ops, st.MaxBatch = true, native, ops, bytes
	s, err := raftlog.Open(st, inMemory)
	if err != nil {
		rt.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	w := &work{newModel(), s}

	// legal are the states that may be found after so many batches.
	legal := map[int][]*model{0: {w.model.clone()}, 1: {w.model.clone()}}
	actions := w.actions()
	for name, action := range actions {
		if name == "" || name == "get" {
			continue
		}
		actions[name] = func(rt *rapid.T) {
			before, from := w.model.clone(), len(st.Batches)
			action(rt)
			after := w.model.clone()
			after.staged = nil
			for n := from; n <= len(st.Batches); n++ {
				if legal[n] = append(legal[n], after); n < len(st.Batches) {
					legal[n] = append(legal[n], before)
				}
			}
		}
	}
	// A call of several batches leaves the first of its entries.
	actions["store"] = func(rt *rapid.T) {
		before, from := w.model.clone(), len(st.Batches)
		logs := w.drawLogs(rt)
		if err := w.s.StoreLogs(logs); err != nil {
			rt.Fatal(err)
		}
		for i := range logs {
			part := before.clone()
			part.staged = nil
			_ = part.store(logs[:i])
			for n := from; n < len(st.Batches); n++ {
				legal[n] = append(legal[n], part)
			}
		}
		_ = w.store(logs)
		legal[len(st.Batches)] = append(legal[len(st.Batches)], w.model.clone())
	}
	rt.Repeat(actions)

	eng := mem.New()
	check := func(n int) {
		s, err := raftlog.Open(eng, inMemory)
		if err != nil {
			rt.Fatalf("after %d batches: %v", n, err)
		}
		defer func() { _ = s.Close() }()
		var wrong error
		var state *model
		for _, m := range slices.Backward(legal[n]) {
			if wrong = m.differs(s); wrong == nil {
				state = m
				break
			}
		}
		if state == nil {
			rt.Fatalf("after %d batches of %d the store is in none of %d states: %v", n, len(st.Batches), len(legal[n]), wrong)
		}
		if n%4 != 0 {
			return
		}
		// Going on from there: what was left of a deletion is removed.
		if err := s.DeleteRange(3, 2); err != nil {
			rt.Fatal(err)
		}
		if err := state.differs(s); err != nil {
			rt.Fatalf("after %d batches and a deletion of nothing: %v", n, err)
		}
	}
	check(0)
	for n, b := range st.Batches {
		if err := holdfast.Commit(eng, b, holdfast.Memory); err != nil {
			rt.Fatal(err)
		}
		copied := mem.New()
		copyAll(rt, copied, eng)
		eng, copied = copied, eng // what is checked may be written to
		check(n + 1)
		eng = copied
	}
	// The description, perhaps the commit index, and what the model has.
	if err := s.DeleteRange(1, 0); err != nil {
		rt.Fatal(err)
	}
	if got, want := storetest.Keys(st, holdfast.Range{}), 1+len(w.logs)+len(w.stable); got != want && got != want+1 {
		rt.Fatalf("there are %d keys, want %d", got, want)
	}
}

func copyAll(rt *rapid.T, to, from holdfast.Engine) {
	var b holdfast.Batch
	it := from.Scan(holdfast.Range{})
	for it.Next() {
		b.Set(it.Key(), it.Value())
	}
	if err := errors.Join(it.Close(), holdfast.Commit(to, &b, holdfast.Memory)); err != nil {
		rt.Fatal(err)
	}
}
