package badger

import (
	"errors"
	"fmt"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func commit(t testing.TB, e holdfast.Engine, level holdfast.Level, fill func(b *holdfast.Batch)) {
	t.Helper()
	var b holdfast.Batch
	fill(&b)
	if err := holdfast.Commit(e, &b, level); err != nil {
		t.Fatal(err)
	}
}

func key(n int) []byte { return fmt.Appendf(nil, "key%08d", n) }

func mustOpen(t testing.TB, dir string, h hooks) *engine {
	t.Helper()
	e, err := open(dir, holdfast.Options{}, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
	return e.(*engine)
}

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	e := mustOpen(t, dir, hooks{})
	commit(t, e, holdfast.Power, func(b *holdfast.Batch) { b.Set([]byte("!badger!x"), []byte("1")) })
	v, err := e.Get(nil, []byte("!badger!x"))
	if err != nil || string(v) != "1" {
		t.Fatal(v, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = mustOpen(t, dir, hooks{})
	v, err = e.Get(nil, []byte("!badger!x"))
	if err != nil || string(v) != "1" {
		t.Fatal(v, err)
	}
}
