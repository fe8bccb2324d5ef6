package crash

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/lab/crash/internal/kinds"
)

// onMachine returns what machines are crashed under, by its name in a plan.
func onMachine(name string) (all.Entry, error) {
	e, err := all.Lookup(kinds.MachineEngine)
	e.Name = name
	e.Open = func(address string, o holdfast.Options) (holdfast.Engine, error) {
		return kinds.OpenOnMachine(name, address, o)
	}
	if name == kinds.InTwoOnMachines {
		e = divided(e, name, dividedOnMachines)
	}

	return e, err
}
