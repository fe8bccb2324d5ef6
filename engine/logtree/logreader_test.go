package logtree_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// TestLogReader reads a log of several segments in parts of any size: all batches are met in order, each where it
// begins, and damage is one.
func TestLogReader(t *testing.T) {
	e, err := logtree.Open(filepath.Join(t.TempDir(), "db"), holdfast.Options{MemoryBytes: 1 << 20})
	testkit.Try(t, err)
	f, err := logtree.OpenFeed(e, 1<<30)
	testkit.Try(t, err)
	state, err := f.State()
	testkit.Try(t, err)
	manifest := state.Manifest
	state.Release()
	r, n := rand.New(rand.NewPCG(1, 55)), 3000
	for i := range n {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "n-%d", i), make([]byte, r.IntN(2000)))
		b.Delete([]byte("x"))
		testkit.Try(t, holdfast.Commit(e, &b, holdfast.Process))
	}
	list, _, ok, err := f.Log()
	if err != nil || !ok || len(list) < 2 {
		t.Fatal(list, ok, err)
	}

	read := func(flip int64) (met int, err error) {
		log, err := logtree.ReadLog(manifest)
		testkit.Try(t, err)
		for _, s := range list {
			var all []byte
			testkit.Try(t, f.Read(t.Context(), s, func(b []byte) error { all = append(all, b...); return nil }))
			if flip >= 0 && flip < int64(len(all)) {
				all[flip] ^= 1
			}
			for from := s.From; len(all) > 0; {
				part := all[:min(len(all), 1+r.IntN(5000))]
				err := log.Read(s.Name, from, part, func(at int64, ops iter.Seq[holdfast.Op]) bool {
					count := 0
					for op := range ops {
						if want := fmt.Sprintf("n-%d", met); count == 0 && (string(op.Key) != want || op.Kind != holdfast.KindSet) {
							t.Fatalf("batch %d begins with %q", met, op.Key)
						}
						count++
					}
					if count != 2 || at < s.From || at >= from+int64(len(part)) {
						t.Fatalf("batch %d has %d operations, at %d of %d to %d", met, count, at, s.From, from+int64(len(part)))
					}
					met++

					return true
				})
				if err != nil {
					return met, err
				}
				all, from = all[len(part):], from+int64(len(part))
			}
		}

		return met, nil
	}
	if met, err := read(-1); met != n || err != nil {
		t.Errorf("%d of %d batches, %v", met, n, err)
	}
	if met, err := read(100_000); met >= n || !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("damaged: %d of %d batches, %v", met, n, err)
	}
	if _, err := logtree.ReadLog([]byte("no manifest")); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("%v", err)
	}
	f.Close()
	testkit.Try(t, e.Close())
}
