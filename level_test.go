package holdfast_test

import (
	"context"
	"testing"

	"github.com/holdfastdb/holdfast"
)

func TestWithLevel(t *testing.T) {
	ctx := context.Background()
	power := holdfast.WithLevel(ctx, holdfast.Power)
	type key struct{}
	for name, c := range map[string]struct {
		ctx  context.Context
		want holdfast.Level
	}{
		"none":            {ctx, holdfast.Process},
		"nil":             {nil, holdfast.Process},
		"named":           {power, holdfast.Power},
		"weaker":          {holdfast.WithLevel(ctx, holdfast.Memory), holdfast.Process},
		"the last counts": {holdfast.WithLevel(power, holdfast.Memory), holdfast.Process},
		"quorum":          {holdfast.WithLevel(ctx, holdfast.Quorum), holdfast.Quorum},
		"taken back":      {holdfast.WithLevel(power, 0), holdfast.Process},
		"inherited":       {context.WithValue(power, key{}, 1), holdfast.Power},
		"no such level":   {holdfast.WithLevel(ctx, 9), 9},
	} {
		if got := holdfast.LevelFrom(c.ctx, holdfast.Process); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	var none context.Context
	if got := holdfast.WithLevel(none, holdfast.Power); got != nil {
		t.Errorf("of no context it made %v", got)
	}
	if n := testing.AllocsPerRun(100, func() { holdfast.LevelFrom(power, holdfast.Process) }); n != 0 {
		t.Errorf("LevelFrom makes %v allocations", n)
	}
}
