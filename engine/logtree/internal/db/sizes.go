package db

import (
	"sync/atomic"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
)

// fileSizes are how large files are made: that of segments; that of tables is DB.tables.Limit.
type fileSizes struct {
	policy.Budget
	segment atomic.Int64
}

// usualFiles is how many files are kept open for reading where the process may have twice as many.
const usualFiles = 1000

// resize chooses the size of new files for a log and tables of so many bytes.
func (d *DB) resize(log, tables int64) {
	segment, table := d.sizes.Files(log, tables)
	d.sizes.segment.Store(segment)
	d.tables.Limit.Store(table)
}

// resizeFor is resize for the present log and those tiers. It is called with mu held, or by Open.
func (d *DB) resizeFor(tiers []policy.Tier) {
	tables := int64(0)
	for _, t := range tiers {
		tables += t.FileBytes
	}
	d.resize(d.logBytes(), tables)
}
