package route_test

import (
	"testing"

	"github.com/holdfastdb/holdfast/server/route"
)

// TestAfter: what is to come after a request comes at its end, and at once if that has passed.
func TestAfter(t *testing.T) {
	c, calls := &route.Context{Context: t.Context()}, ""
	c.After(func() { calls += "a" })
	c.After(func() { calls += "b" })
	if calls != "" {
		t.Errorf("before the end: %q", calls)
	}
	if c.End(); calls != "ab" {
		t.Errorf("at the end: %q", calls)
	}
	if c.After(func() { calls += "c" }); calls != "abc" {
		t.Errorf("after the end: %q", calls)
	}
}
