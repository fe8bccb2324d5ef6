package storetest

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// The stores' own module has no engine over a library. What matters to a store is when an engine shows a batch: logtree
// does when it is applied, late when it is durable, and in FakeEngine the test decides. The night's run has all engines
// of engine/all in the place of this file: see .ci/night.
var engines = []Entry{
	{Name: "logtree", Open: logtree.Open, Describe: logtree.Describe},
	{Name: "late", Open: openLate, Describe: describeLate},
	{Name: "mem", Open: mem.Open, Describe: mem.Describe},
}

// Entry is a kind of engine.
type Entry struct {
	Name     string
	Open     func(dir string, o holdfast.Options) (holdfast.Engine, error)
	Describe func() holdfast.Capabilities
}

// Engines lists the engines that tests of stores run on, the first of which keeps what is in it.
func Engines() []Entry { return engines }

// Lookup returns the engine of that name.
func Lookup(name string) (Entry, error) {
	for _, e := range engines {
		if e.Name == name {
			return e, nil
		}
	}

	return Entry{}, fmt.Errorf("there is no engine %q", name)
}
