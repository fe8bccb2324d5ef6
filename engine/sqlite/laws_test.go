package sqlite_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/sqlite"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLawsGo(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open:     sqlite.OpenGo,
		Describe: sqlite.DescribeGo,
		OpenHeld: func(dir string, o holdfast.Options, f *enginetest.Faults) (holdfast.Engine, error) {
			return sqlite.Held(sqlite.OpenGo, dir, o, func() { _ = f.Sync(dir) })
		},
	})
}
