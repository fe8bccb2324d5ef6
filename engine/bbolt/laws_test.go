package bbolt_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open:     bbolt.Open,
		Describe: bbolt.Describe,
		OpenHeld: func(dir string, o holdfast.Options, f *enginetest.Faults) (holdfast.Engine, error) {
			return bbolt.OpenHeld(dir, o, func() { _ = f.Sync(dir) })
		},
	})
}
