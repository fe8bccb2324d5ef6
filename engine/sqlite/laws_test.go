package sqlite

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest"
	"github.com/holdfastdb/holdfast/internal/night"
)

func TestLaws(t *testing.T) {
	describe := map[string]func() holdfast.Capabilities{Name: Describe, NameGo: DescribeGo}
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			if name == NameGo && len(engines) > 1 {
				night.Only(t, "without cgo, as in .ci/run; here, all tests but this one have both engines")
			}
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
