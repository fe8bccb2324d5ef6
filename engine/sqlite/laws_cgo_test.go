//go:build cgo

package sqlite_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/sqlite"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	enginetest.Run(t, enginetest.Harness{
		Open:     sqlite.Open,
		Describe: sqlite.Describe,
		OpenHeld: func(dir string, o holdfast.Options, f *enginetest.Faults) (holdfast.Engine, error) {
			return sqlite.Held(sqlite.Open, dir, o, func() { _ = f.Sync(dir) })
		},
	})
}
