package sqlite

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest"
)

func TestLaws(t *testing.T) {
	describe := map[string]func() holdfast.Capabilities{Name: Describe, NameGo: DescribeGo}
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, enginetest.Harness{
				Open:     open,
				Describe: describe[name],
				OpenHeld: func(dir string, o holdfast.Options, f *enginetest.Faults) (holdfast.Engine, error) {
					e, err := open(dir, o)
					if err == nil {
						e.(*engine).hold = func() { _ = f.Sync(dir) }
					}
					return e, err
				},
			})
		})
	}
}
