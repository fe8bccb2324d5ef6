package db

import (
	"path/filepath"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
)

// reserve is a file that takes room on the disk while there is some, in proportion to the database. It is given up when
// there is none left, so that deletes can be logged, and flushes and compactions find room for what gives back more. It
// is used with DB.preparing held.
type reserve struct {
	size     int64 // bytes of the file, 0 if there is none
	released int64 // bytes that it had before it was given up, 0 once it is there again
}

// makeReserve makes the reserve, or a larger one when the database has grown. It is called with preparing held.
func (d *DB) makeReserve() {
	d.mu.Lock()
	log := d.logBytes()
	d.mu.Unlock()
	reserve := &d.preparing.reserve
	size, grows := d.full().Reserve(log, reserve.size)
	if !grows || d.compactor.waiting.Load() > 0 || d.scarce.Load() {
		return
	}

	// A file of that name in another size goes first. If there is no room for a larger one, the next call makes one again.
	d.files.FS.Remove(filepath.Join(d.files.Dir, format.ReserveName))
	reserve.size = 0
	// Where there is little room, the log has more use for it.
	if d.allocateReserve(size, d.sizes.segment.Load()) {
		reserve.size = size
	}
}

// restoreReserve makes the reserve again, or what there is room for, after it was given up for a compaction that came
// to nothing.
func (d *DB) restoreReserve() {
	d.preparing.Lock()
	defer d.preparing.Unlock()

	for size := d.preparing.reserve.released; d.preparing.reserve.size == 0 && size >= policy.LeastRestored; size /= 2 {
		if d.allocateReserve(size, 0) {
			d.preparing.reserve = reserve{size: size}
		}
	}
}

// allocateReserve makes the reserve's file of that size if there is room for left more bytes, and reports whether
// it did.
func (d *DB) allocateReserve(size, left int64) bool {
	name := filepath.Join(d.files.Dir, format.ReserveName)
	f, err := d.files.FS.Create(name)
	if err != nil {
		return false
	}

	// Room is asked for together with what is to be left for the log, which the file then gives back.
	ok := f.Allocate(size+left) == nil && (left == 0 || f.Truncate(size) == nil)
	f.Close()
	if !ok {
		d.files.FS.Remove(name)
	}

	return ok
}

// releaseReserve gives up the reserve, and reports whether there was one. It is called with preparing held.
func (d *DB) releaseReserve() bool {
	if d.preparing.reserve.size == 0 {
		return false
	}
	d.preparing.reserve = reserve{released: d.preparing.reserve.size}
	d.files.Remove(filepath.Join(d.files.Dir, format.ReserveName))

	return true
}

// giveRoom gives back files that were made for later, and reports whether there were any: a flush or compaction that
// finds no room for itself may make more with it. The reserve is only for deletes, and for what follows from them.
func (d *DB) giveRoom(reserve bool) bool {
	d.preparing.Lock()
	defer d.preparing.Unlock()

	// The cheapest first: what is not needed any more, then the prepared segment, and the reserve last.
	gave := d.removeObsolete()
	d.mu.Lock()
	dropped := d.dropNext()
	d.mu.Unlock()
	if dropped {
		gave = d.removeObsolete()
	}

	return reserve && d.releaseReserve() || gave
}
