package storetest

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// This stands in the place of internal/storetest/engines.go in the night: all engines.

// Entry is a kind of engine.
type Entry struct {
	Name     string
	Open     func(dir string, o holdfast.Options) (holdfast.Engine, error)
	Describe func() holdfast.Capabilities
}

// Engines lists the engines that tests of stores run on, the first of which keeps what is in it.
func Engines() (list []Entry) {
	late := Entry{Name: "late", Open: openLate, Describe: describeLate}
	for _, e := range all.Engines() {
		list = append(list, Entry{Name: e.Name, Open: e.Open, Describe: e.Describe})
	}
	return append(list, late)
}

// Lookup returns the engine of that name.
func Lookup(name string) (Entry, error) {
	for _, e := range Engines() {
		if e.Name == name {
			return e, nil
		}
	}
	return Entry{}, fmt.Errorf("there is no engine %q", name)
}
