package db

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestPanicOfACommit: a panic in a commit that writes its values to the log at once, or makes the next segment, leaves
// no lock behind. Nothing follows it, and what is there can be read.
func TestPanicOfACommit(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpWrite, vfs.OpCreate} {
		t.Run(kind.String(), func(t *testing.T) {
			d, c := prepared(t, 64<<10)
			put := func(key string, size int) error {
				var b holdfast.Batch
				b.Set([]byte(key), make([]byte, size))
				return commit(d, &b, holdfast.Process)
			}
			if err := put("before", 1); err != nil {
				t.Fatal(err)
			}
			m := c.FS.(*vfs.Mem)
			m.SetHook(func(op vfs.Op) error {
				if op.Kind == kind {
					panic("a bug")
				}
				return nil
			})
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is swallowed, or there was none")
					}
				}()
				for i := range 100 {
					_ = put(fmt.Sprint("large ", i), d.leastLarge)
				}
			}()
			m.SetHook(nil)
			if err := put("after", 1); !errors.Is(err, holdfast.ErrPoisoned) {
				t.Errorf("what follows is acknowledged: %v", err)
			}
			if v, err := d.Get(nil, []byte("before")); err != nil || len(v) != 1 {
				t.Errorf("%d bytes, %v", len(v), err)
			}
			if err := d.Close(); !errors.Is(err, holdfast.ErrPoisoned) {
				t.Errorf("closing: %v", err)
			}
		})
	}
}
