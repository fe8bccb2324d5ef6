package scratch_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/scratch"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// TestLikeAnEngine: whatever is written, and read, over a base, is as in an engine that has the base's keys itself.
func TestLikeAnEngine(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		base, model := mem.New(), mem.New()
		key := func() []byte { return fmt.Append(nil, r.IntN(30)) }
		var first holdfast.Batch
		for range r.IntN(30) {
			first.Set(key(), fmt.Append(nil, "base", r.IntN(100)))
		}
		commit(t, base, &first)
		commit(t, model, &first)
		own := scratch.New(base)
		before := dump(t, base, holdfast.Range{})
		for range 20 {
			var b holdfast.Batch
			for range r.IntN(5) {
				switch r.IntN(4) {
				case 0:
					b.Delete(key())
				case 1:
					b.DeleteRange(key(), key())
				default:
					b.Set(key(), fmt.Append(nil, r.IntN(100)))
				}
			}
			snapshot, err := own.Snapshot()
			check(t, err)
			kept := dump(t, snapshot, holdfast.Range{})
			commit(t, own, &b)
			commit(t, model, &b)
			for _, rg := range []holdfast.Range{{}, {Reverse: true}, {Lo: key(), Hi: key(), Reverse: r.IntN(2) == 0}} {
				if got, want := dump(t, own, rg), dump(t, model, rg); got != want {
					t.Fatalf("seed %d: %+v:\n%s, want\n%s", seed, rg, got, want)
				}
			}
			k := key()
			got, err := own.Get([]byte("x"), k)
			want, err2 := model.Get([]byte("x"), k)
			if string(got) != string(want) || err != err2 {
				t.Fatalf("seed %d: %q is %q, %v, want %q, %v", seed, k, got, err, want, err2)
			}
			if now := dump(t, snapshot, holdfast.Range{}); now != kept {
				t.Fatalf("seed %d: a snapshot has changed", seed)
			}
			check(t, snapshot.Close())
		}
		if dump(t, base, holdfast.Range{}) != before {
			t.Fatal("the base has changed")
		}
		for _, e := range []holdfast.Engine{own, model, base} {
			check(t, e.Close())
		}
	}
}

func commit(t *testing.T, e holdfast.Engine, b *holdfast.Batch) {
	t.Helper()
	check(t, holdfast.Commit(e, b, holdfast.Memory))
}

func dump(t *testing.T, r holdfast.Reader, rg holdfast.Range) (text string) {
	t.Helper()
	it := r.Scan(rg)
	for it.Next() {
		text += fmt.Sprintf("%s=%s ", it.Key(), it.Value())
	}
	check(t, it.Close())
	if it.Next() {
		t.Fatal("a closed iterator goes on")
	}
	return text
}

var check = testkit.Try
