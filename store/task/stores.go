package task

import (
	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Stores lists the names of the task stores in r, an engine or a snapshot of one, open or not, in the order of their
// lengths and then bytes. It takes a seek for each.
func Stores(r holdfast.Reader) (names []string, err error) {
	from := []byte{format.Kind}
	for {
		it := r.Scan(holdfast.Range{Lo: from, Hi: []byte{format.Kind + 1}})
		name, ok := "", false
		for !ok && it.Next() {
			name, _, _, ok = keyspace.Split(format.Kind, it.Key())
		}
		if err := it.Close(); err != nil || !ok {
			return names, err
		}
		names = append(names, name)
		_, from = keyspace.New(format.Kind, name).Bounds()
	}
}
