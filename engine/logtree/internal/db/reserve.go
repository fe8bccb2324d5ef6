package db

import (
	"errors"
	"path/filepath"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
)

// reserve is a file that takes room on the disk while there is some, in proportion to the database. It is given up when
// there is none left, so that deletes can be logged, and flushes and compactions find room for what gives back more.
// Half of it is only for batches that set nothing. It is used with DB.preparing held.
type reserve struct {
	size int64 // bytes of the file, 0 if there is none
	full int64 // bytes that it had when it was made, before any was given up
}

// makeReserve makes the reserve, or a larger one when the database has grown. It is called with preparing held.
func (d *DB) makeReserve() {
	d.mu.Lock()
	log := d.logBytes()
	d.mu.Unlock()
	reserve := &d.preparing.reserve
	size, grows := d.full().Reserve(log, reserve.size)

	// While somebody waits for room, or a flush has taken the last of it, a reserve would take away what they need.
	if !grows || d.compactor.waiting.Load() > 0 || d.scarce.Load() {
		return
	}

	// A file of that name in another size goes first. If there is no room for a larger one, the next call makes one again.
	d.files.FS.Remove(filepath.Join(d.files.Dir, format.ReserveName))
	reserve.size = 0
	// Where there is little room, the log has more use for it.
	if d.allocateReserve(size, d.sizes.segment.Load()) {
		reserve.size, reserve.full = size, size
	}
}

// restoreReserve makes the reserve again, or what there is room for, after it was given up: for a batch that was
// refused, or a compaction that came to nothing, or more than a flush needed. While a batch makes room for itself with
// it, it stays given up.
func (d *DB) restoreReserve() {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	d.mu.Lock()
	needed := d.mu.removing > 0
	d.mu.Unlock()

	// It is halved until it fits: a smaller reserve is better than none.
	reserve := &d.preparing.reserve
	for size := reserve.full; !needed && size > reserve.size && size >= policy.LeastRestored; size /= 2 {
		if d.growReserve(size) {
			reserve.size = size
		}
	}
}

// growReserve makes the reserve's file that large, if there is room, and reports whether it did.
func (d *DB) growReserve(size int64) bool {
	have := d.preparing.reserve.size
	if have == 0 {
		return d.allocateReserve(size, 0)
	}
	f, err := d.files.FS.OpenWrite(filepath.Join(d.files.Dir, format.ReserveName))
	if err != nil {
		return false
	}
	defer f.Close()

	// An allocation may have succeeded in part. The file is cut back to what the count says it has.
	if f.Allocate(size) != nil {
		_ = f.Truncate(have)
		return false
	}
	return true
}

// allocateReserve makes the reserve's file of that size if there is room for left more bytes, and reports whether
// it did.
func (d *DB) allocateReserve(size, left int64) bool {
	if d.files.FS.Free(d.files.Dir) < size+left { // see wal.Files.Create
		return false
	}
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

// share is how many bytes of the reserve a class may have.
func (r *reserve) share(c class) int64 {
	switch c {
	case deletes:
		return r.size

	// Half of what there was in full stays for batches of nothing but deletes.
	case removal:
		return max(0, r.size-max(r.full/2, policy.LeastRestored))
	}
	return 0
}

// releaseReserve gives up what a class may have of the reserve, and reports whether there was any. It is called with
// preparing held.
func (d *DB) releaseReserve(c class) bool {
	reserve, name := &d.preparing.reserve, filepath.Join(d.files.Dir, format.ReserveName)
	share := reserve.share(c)
	left := reserve.size - share
	switch {
	case share == 0:
		return false
	case left == 0:
		d.files.Remove(name)
	default:
		f, err := d.files.FS.OpenWrite(name)
		if err == nil {
			err = errors.Join(f.Truncate(left), f.Close())
		}
		if err != nil {
			d.logger.Warn("cannot give up a part of the reserve", "path", name, "error", err)
			return false
		}
	}

	reserve.size = left
	return true
}

// giveRoom gives back files that were made for later, and reports whether there were any: a flush or compaction that
// finds no room for itself may make more with it. The reserve is only for deletes, and for what follows from them: c
// says what may be had of it.
func (d *DB) giveRoom(c class) bool {
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
	return d.releaseReserve(c) || gave
}
