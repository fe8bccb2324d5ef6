package machines

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/testkit"
)

// newLab makes a lab for a test.
func newLab(t *testing.T, o Options) *Lab {
	t.Helper()
	if err := Check(o); err != nil {
		t.Skip("machines are not tested: ", err)
	}
	o.Dir = t.TempDir()
	l, err := New(t.Context(), o)
	testkit.Try(t, err)
	t.Cleanup(func() { testkit.Try(t, l.Close()) })

	return l
}

func TestX(t *testing.T) {
	b := time.Now()
	step := func(s string, err error) {
		fmt.Println(s, time.Since(b), err)
		b = time.Now()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	l := newLab(t, Options{})
	step("new", nil)
	step("isolate", l.Isolate(ctx, A))
	p, err := l.Failover(ctx, Longest)
	step("failover", err)
	fmt.Println(p.Name())
	step("heal", l.Heal(ctx))
	step("rejoin", l.Rejoin(ctx, A))
	step("lose", l.Machine(C).Lose(ctx))
	step("on", l.Machine(C).PowerOn(ctx))
	step("rejoin", l.Rejoin(ctx, C))
	step("close", l.Close())
}
