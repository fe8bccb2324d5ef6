package enginetest

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/internal/night"
	"pgregory.net/rapid"
)

var modelFor = flag.Duration("enginetest.model", night.Or(10*time.Second, time.Second),
	"how long random histories of one engine are compared with the model")

// model compares random histories of the engine with engine/mem. The flags of rapid say how
// many there are, and -enginetest.model how long it may take.
func (s *suite) model(t *testing.T) {
	if f := flag.Lookup("rapid.seed"); f.Value.String() == "0" {
		if err := f.Value.Set(fmt.Sprint(*seedFlag)); err != nil {
			t.Fatal(err)
		}
	}
	var (
		end    = time.Now().Add(*modelFor / time.Duration(min(s.Scale, 2)))
		root   = t.TempDir()
		run    int
		failed bool
	)
	rapid.Check(t, func(t *rapid.T) {
		// Once something failed, time is rapid's, to find the shortest history that does.
		if !failed && time.Now().After(end) {
			return
		}
		defer func() { failed = failed || t.Failed() }()
		run++
		dir := ""
		if s.kept {
			dir = filepath.Join(root, fmt.Sprint(run))
			defer os.RemoveAll(dir)
		}
		h := &history{t: t, s: s, dir: dir, level: rapid.SampledFrom(s.levels()).Draw(t, "level"), model: mem.New()}
		h.open()
		defer h.end()
		t.Repeat(map[string]func(*rapid.T){
			"apply":            func(t *rapid.T) { h.t = t; h.apply() },
			"apply and wait":   func(t *rapid.T) { h.t = t; h.apply(); h.settle() },
			"get":              func(t *rapid.T) { h.t = t; h.get() },
			"scan":             func(t *rapid.T) { h.t = t; h.settle(); h.scan(h.engine, h.model) },
			"snapshot":         func(t *rapid.T) { h.t = t; h.snapshot() },
			"read a snapshot":  func(t *rapid.T) { h.t = t; h.readSnapshot() },
			"close a snapshot": func(t *rapid.T) { h.t = t; h.closeSnapshot() },
			"iterate":          func(t *rapid.T) { h.t = t; h.iterate() },
			"sync":             func(t *rapid.T) { h.t = t; h.sync() },
			"reopen":           func(t *rapid.T) { h.t = t; h.reopen() },
		})
		h.settle()
		h.compare(h.engine, h.model, holdfast.Range{})
	})
	t.Logf("%d histories", run)
}

// history is one engine and its model, and views of both that were taken together.
type history struct {
	t         *rapid.T
	s         *suite
	dir       string
	level     holdfast.Level
	given     []holdfast.Level // what the open engine gives something for
	engine    holdfast.Engine
	model     holdfast.Engine
	pending   []holdfast.Receipt
	snapshots []twoReaders
	iterators []twoIterators
}

type twoReaders struct{ engine, model holdfast.Snapshot }

type twoIterators struct{ engine, model holdfast.Iterator }

// Keys are short and of few bytes, so that they collide; of those that compare in a telling
// way.
var (
	modelKey = rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 1, 3),
		func(b []byte) string { return string(b) })
	modelBound = rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 0, 3),
		func(b []byte) string { return string(b) })
	modelValue = rapid.Custom(func(t *rapid.T) []byte {
		size := rapid.SampledFrom([]int{0, 1, 7, 100, 100, 1000, 5000, 70_000}).Draw(t, "size")
		return filler(rapid.Uint64Range(0, 1000).Draw(t, "filler"), size)
	})
	modelRange = rapid.Custom(func(t *rapid.T) holdfast.Range {
		return holdfast.Range{
			Lo: []byte(modelBound.Draw(t, "lo")), Hi: []byte(modelBound.Draw(t, "hi")), Reverse: rapid.Bool().Draw(t, "reverse"),
		}
	})
)

func (h *history) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%v", err)
	}
}

func (h *history) open() {
	var err error
	h.engine, err = h.s.Open(h.dir, holdfast.Options{Level: h.level})
	h.must(err)
	h.given = h.engine.Capabilities().Levels()
}

func (h *history) apply() {
	var b holdfast.Batch
	for range rapid.IntRange(0, 6).Draw(h.t, "operations") {
		switch rapid.IntRange(0, 9).Draw(h.t, "operation") {
		default:
			b.Set([]byte(modelKey.Draw(h.t, "key")), modelValue.Draw(h.t, "value"))
		case 0, 1, 2:
			b.Delete([]byte(modelKey.Draw(h.t, "key")))
		case 3:
			b.DeleteRange([]byte(modelBound.Draw(h.t, "lo")), []byte(modelBound.Draw(h.t, "hi")))
		}
	}
	r, err := h.engine.Apply(&b, rapid.SampledFrom(h.given).Draw(h.t, "at"))
	h.must(err)
	h.must(holdfast.Commit(h.model, &b, holdfast.Memory))
	h.pending = append(h.pending, r)
}

// settle waits for everything applied, so that engine and model can be compared.
func (h *history) settle() {
	if n := len(h.pending); n > 0 {
		h.must(h.pending[n-1].Wait())
		h.must(h.pending[rapid.IntRange(0, n-1).Draw(h.t, "receipt")].Wait())
		h.pending = nil
	}
}

func (h *history) sync() {
	if h.s.kept {
		h.must(h.engine.Sync())
		h.pending = nil
	}
}

func (h *history) get() {
	h.settle()
	h.getFrom(h.engine, h.model)
}

func (h *history) getFrom(engine, model holdfast.Reader) {
	h.t.Helper()
	key := []byte(modelKey.Draw(h.t, "key"))
	got, err := engine.Get([]byte("dst"), key)
	want, wantErr := model.Get([]byte("dst"), key)
	if !bytes.Equal(got, want) || !errors.Is(err, wantErr) {
		h.t.Fatalf("Get(%q) = %s, %v; want %s, %v", key, commits.Quote(got), err, commits.Quote(want), wantErr)
	}
}

func (h *history) scan(engine, model holdfast.Reader) {
	h.t.Helper()
	h.compare(engine, model, modelRange.Draw(h.t, "range"))
}

func (h *history) compare(engine, model holdfast.Reader, r holdfast.Range) {
	h.t.Helper()
	got, err := commits.Contents(engine, r)
	h.must(err)
	want, err := commits.Contents(model, r)
	h.must(err)
	if d := commits.Difference(got, want); d != "" {
		h.t.Fatalf("Scan of [%q, %q), reverse %v: %s", r.Lo, r.Hi, r.Reverse, d)
	}
}

func (h *history) snapshot() {
	h.settle()
	if len(h.snapshots) == 4 {
		h.closeSnapshot()
	}
	engine, err := h.engine.Snapshot()
	h.must(err)
	model, err := h.model.Snapshot()
	h.must(err)
	h.snapshots = append(h.snapshots, twoReaders{engine, model})
}

func (h *history) readSnapshot() {
	if len(h.snapshots) == 0 {
		return
	}
	s := rapid.SampledFrom(h.snapshots).Draw(h.t, "snapshot")
	h.getFrom(s.engine, s.model)
	h.scan(s.engine, s.model)
}

func (h *history) closeSnapshot() {
	if len(h.snapshots) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.snapshots)-1).Draw(h.t, "snapshot")
	s := h.snapshots[i]
	h.snapshots = append(h.snapshots[:i], h.snapshots[i+1:]...)
	h.compare(s.engine, s.model, holdfast.Range{})
	h.must(s.engine.Close())
	h.must(s.model.Close())
}

// iterate goes on with an iterator that was opened earlier, or opens one.
func (h *history) iterate() {
	if len(h.iterators) < 3 && rapid.Bool().Draw(h.t, "new") {
		h.settle()
		r := modelRange.Draw(h.t, "range")
		h.iterators = append(h.iterators, twoIterators{h.engine.Scan(r), h.model.Scan(r)})

		return
	}
	if len(h.iterators) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.iterators)-1).Draw(h.t, "iterator")
	it := h.iterators[i]

	for range rapid.IntRange(1, 5).Draw(h.t, "steps") {
		if h.step(it) {
			continue
		}
		h.iterators = append(h.iterators[:i], h.iterators[i+1:]...)
		h.must(it.engine.Close())
		h.must(it.model.Close())

		return
	}
}

// step moves both iterators and reports whether there was another key.
func (h *history) step(it twoIterators) bool {
	h.t.Helper()
	got, want := it.engine.Next(), it.model.Next()
	switch {
	case got != want:
		h.t.Fatalf("Next of an iterator opened earlier is %v, %v; want %v", got, it.engine.Err(), want)
	case got && !bytes.Equal(it.engine.Key(), it.model.Key()):
		h.t.Fatalf("an iterator opened earlier is at %q, want %q", it.engine.Key(), it.model.Key())
	case got && !bytes.Equal(it.engine.Value(), it.model.Value()):
		h.t.Fatalf("an iterator opened earlier has %s at %q, want %s", commits.Quote(it.engine.Value()), it.engine.Key(),
			commits.Quote(it.model.Value()))
	}

	return got
}

func (h *history) reopen() {
	if !h.s.kept {
		return
	}
	h.closeViews()
	h.must(h.engine.Close())
	h.pending = nil
	h.open()
	h.compare(h.engine, h.model, holdfast.Range{})
}

func (h *history) closeViews() {
	for _, it := range h.iterators {
		for h.step(it) {
		}
		h.must(it.engine.Close())
		h.must(it.model.Close())
	}

	h.iterators = nil
	for _, s := range h.snapshots {
		h.compare(s.engine, s.model, holdfast.Range{})
		h.must(s.engine.Close())
		h.must(s.model.Close())
	}
	h.snapshots = nil
}

// end closes everything, also after a failure.
func (h *history) end() {
	for _, it := range h.iterators {
		_ = it.engine.Close()
	}

	for _, s := range h.snapshots {
		_ = s.engine.Close()
	}
	_ = h.engine.Close()
}
