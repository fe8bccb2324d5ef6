package files

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open:     Open,
		Describe: Describe,
		Scale:    8,
		OpenFaulty: func(dir string, o holdfast.Options, f *enginetest.Faults) (holdfast.Engine, error) {
			return openWith(dir, o, hooks{f.Write, f.Sync})
		},
	})
}
