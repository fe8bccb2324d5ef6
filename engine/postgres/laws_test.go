package postgres

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	needServer(t)
	enginetest.Run(t, enginetest.Harness{
		Open: openAt, Describe: Describe, NoDirectory: "the files are the server's", Scale: 4,
		OpenHeld: func(dir string, o holdfast.Options, f *enginetest.Faults) (holdfast.Engine, error) {
			e, err := openAt(dir, o)
			if err == nil {
				e.(*engine).hold = func() { _ = f.Sync(dir) }
			}
			return e, err
		},
	})
}
