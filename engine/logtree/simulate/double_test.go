package simulate

import (
	"context"
	"testing"
)

// TestDouble crashes databases, and once more while they are opened again, with the same seeds each time.
func TestDouble(t *testing.T) {
	var all Stats
	for seed := range uint64(40) {
		s, err := run(context.Background(), seed, manner{twofold: true}, nil, nil)
		all.Add(s)
		if err != nil {
			t.Error(err)
		}
	}
	t.Logf("%+v", all)
}
