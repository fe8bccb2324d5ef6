package contender

import (
	"errors"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestStudy4SyncsNothing: neither for its commits nor when it is told to, and it does not say that it gives Power.
func TestStudy4SyncsNothing(t *testing.T) {
	e, err := Study().Open(t.TempDir(), holdfast.Options{Level: holdfast.Process})
	if err != nil {
		t.Fatal(err)
	}
	before := e.Metrics().Syncs
	var b holdfast.Batch
	b.Set([]byte("k"), []byte("v"))
	if err := errors.Join(holdfast.Commit(e, &b, holdfast.Process), e.Sync()); err != nil {
		t.Error(err)
	}
	if after := e.Metrics().Syncs; before < 0 || after != before {
		t.Errorf("%d syncs, and %d before", after, before)
	}
	if err := holdfast.Commit(e, &b, holdfast.Power); !errors.Is(err, holdfast.ErrLevel) {
		t.Errorf("at Power: %v", err)
	}
	if c := e.Capabilities(); c.Engine != Study4 || c.Promise(holdfast.Process).Given != holdfast.Process {
		t.Errorf("%+v", c)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
