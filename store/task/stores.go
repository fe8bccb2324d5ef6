package task

import (
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Stores lists the names of the task stores in r, an engine or a snapshot of one, open or not, in the order of their
// lengths and then bytes. It takes a few seeks for each.
func Stores(r holdfast.Reader) (names []string, err error) {
	names, err = keyspace.Names(r, format.Kind)
	return slices.DeleteFunc(names, func(name string) bool { // keys of others can look like those of a store
		var there bool
		if err == nil {
			there, err = Exists(r, name)
		}
		return !there
	}), err
}
