package db

import (
	"testing"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
)

// TestMoverMemory: what a large value has made of a mover's buffer is not kept beside the small ones that follow.
func TestMoverMemory(t *testing.T) {
	d, _ := manualWith(t, 32<<20)
	defer d.Close()
	v := d.latest().view
	defer v.release()
	w := &mover{d: d}
	w.begin(v.ver)
	defer w.undo()

	for i, n := range []int{100 << 10, 3 << 20, 100, 100} {
		if _, err := w.put(scattered(i), make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	if w.start == 0 || cap(w.buf) > 2*policy.MaxMoveWrite {
		t.Errorf("a buffer of %d bytes is kept, for %d", cap(w.buf), len(w.buf))
	}
}
