package task_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/task"
)

// TestStores: the stores of an engine are listed, and nothing else that looks like one.
func TestStores(t *testing.T) {
	e := mem.New()
	want := []string{"", "a", "b", "long name"}
	var b holdfast.Batch
	for _, key := range []string{"t", "t\x00", "t\x01", "sx", "u", "task:" + strings.Repeat("x", 200)} {
		b.Set([]byte(key), nil)
	}
	if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		s, err := task.Open(kv.On(e), task.Options{Name: name, Level: holdfast.Memory})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Enqueue(ctx, task.Spec{Kind: "k"}, task.Spec{Kind: "k"}); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
	}
	if got, err := task.Stores(e); !slices.Equal(got, want) || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	storetest.Close(t, e)
	if got, err := task.Stores(e); len(got) > 0 || err == nil {
		t.Errorf("of a closed engine: %q, %v", got, err)
	}
}
