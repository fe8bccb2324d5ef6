package task_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/task"
)

// A store that is deleted leaves no key, and others are as they were.
func TestDeleteStore(t *testing.T) {
	eng := mem.New()
	for _, name := range []string{"", "a", "ab"} {
		s := openStore(t, eng, task.Options{Name: name, Level: holdfast.Memory})
		enqueue(
			t,
			s,
			task.Spec{ID: "one", Kind: "k", Unique: "u"},
			task.Spec{Kind: "k", Sequence: "s", After: []string{"one"}},
		)
		claim(t, s, task.ClaimOptions{})
		if err := s.Pause(ctx, "q"); err != nil {
			t.Fatal(err)
		}
		if err := task.Delete(ctx, eng, name, holdfast.Memory); !errors.Is(err, holdfast.ErrLocked) {
			t.Errorf("deleted an open store: %v", err)
		}
		storetest.Close(t, s)
	}
	for range 2 {
		if err := task.Delete(ctx, eng, "a", holdfast.Memory); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"": true, "a": false, "ab": true, strings.Repeat("a", 300): false} {
		if there, err := task.Exists(eng, name); err != nil || there != want {
			t.Errorf("store %q: there %v, %v", name, there, err)
		}
	}
	it := eng.Scan(holdfast.Prefix([]byte("t\x01a")))
	defer it.Close()
	if it.Next() {
		t.Errorf("the key %q is left", it.Key())
	}
	list, err := task.Examine(eng)
	if err != nil || len(list) != 2 || len(list[0].Problems)+len(list[1].Problems) > 0 {
		t.Errorf("%+v, %v", list, err)
	}
}
