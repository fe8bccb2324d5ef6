package badger

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest"
)

// The seam for failures is where the engine hands a transaction to the library, and where it
// syncs the library's files.
func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open:     Open,
		Describe: Describe,
		OpenFaulty: func(dir string, o holdfast.Options, f *enginetest.Faults) (holdfast.Engine, error) {
			return open(dir, o, hooks{write: f.Write, sync: f.Sync})
		},
	})
}
