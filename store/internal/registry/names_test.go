package registry_test

import (
	"errors"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/internal/registry"
)

// TestNames: a store can be made only under a name that can be shown; one that has another is removed all the same.
func TestNames(t *testing.T) {
	for name, good := range map[string]bool{"": true, "n\u00fcr 1": true, "a\nb": false, "\x1b[2J": false,
		"a\u009bb": false, "\xff": false, "too long": false} {
		for _, any := range []bool{false, true} {
			l, err := registry.Claim(mem.New(), registry.Request{Kind: "task", Thing: "store", Name: name, MaxName: 7,
				Level: holdfast.Memory, Prefix: "p" + name, AnyName: any})
			if ok := good || any && len(name) <= 7; ok != (err == nil) || !ok && !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("%q, any name %v: %v", name, any, err)
			}
			if err == nil {
				l.Release()
			}
		}
	}
}
