package db

import (
	"cmp"
	"sync/atomic"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
)

// fileSizes are how large files are made. They grow with what is stored, so that the number of files stays small.
type fileSizes struct {
	chosen  Sizes
	memory  int64
	room    int64 // bytes that the database can have on its disk
	segment atomic.Int64
}

// usualFiles is how many files are kept open for reading where the process may have twice as many.
const usualFiles = 1000

// fileShare is how many files of a kind there are before they are made larger, up to their full size: of the log, the
// present segment and the next take room that nothing is in, and one is given back as a whole.
const fileShare = 64

// resize chooses the size of new files for a log and an index of so many bytes.
func (d *DB) resize(log, index int64) {
	z := &d.sizes
	d.sizes.segment.Store(cmp.Or(z.chosen.Segment,
		min(max(z.memory/4, log/fileShare), maxSegment, max(z.room/16, minSegment))))
	d.tables.Limit.Store(cmp.Or(z.chosen.Run, min(max(z.memory/16, index/fileShare), maxRun, max(z.room/64, leastStep))))
}

// resizeFor is resize for the present log and those tiers. It is called with mu held, or by Open.
func (d *DB) resizeFor(tiers []tree.Tier) {
	var log, index int64
	for _, s := range d.segs {
		log += s.Used.Load()
	}
	for i := range tiers {
		index += tiers[i].Bytes()
	}
	d.resize(log, index)
}
