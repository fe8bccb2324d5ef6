package metrics_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/enginetest"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/server/metrics"
)

// TestLaws: an engine that is watched keeps every law of the contract, and has all that it may have besides.
func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open: func(dir string, o holdfast.Options) (holdfast.Engine, error) {
			e, err := logtree.Open(dir, o)
			if err != nil {
				return nil, err
			}
			return metrics.Watch(e), nil
		},
		Describe: logtree.Describe,
		Scale:    night.Or(1, 8), // by day logtree alone has the largest cases
	})
}
