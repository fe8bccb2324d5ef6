package db

import (
	"math"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// rotateSegment ends the log's present segment and begins the next, with room for a frame of n
// bytes; last says that it may take all the room there is. It is called with mu held.
func (d *DB) rotateSegment(n int, last bool) error {
	need := int64(format.SegmentHeaderSize + format.BeginSize + n + format.EndSize + format.FrameAlign)
	next, ahead := d.next, true // a prepared one is durable
	if next == nil || next.Size < need {
		ahead = false
		if next != nil { // numbers ascend along the log, so that it cannot follow later
			d.dropNext()
		} else if d.log.Current() != nil {
			d.stalls.Add(1)
		}
		id, err := d.number()
		if err != nil {
			return err
		}
		size := max(need, d.segmentSize())
		if n > minSegment { // room for more like this one
			size = max(size, min(4*need, d.sizes.segment.Load()))
		}
		if last { // it comes out of what merges need
			size = max(need, min(size, lastRoom))
		}
		start := time.Now()
		if next, err = d.files.Create(id, size, d.leave(last), size <= minSegment); err != nil {
			next, err = d.createSmall(id, size, need, last, err)
		}
		d.reclaim.tight.Store(last || format.IsNoRoom(err))
		if err == nil && !last {
			d.reclaim.deleting.Store(false)
		}
		if err != nil {
			d.nextFile-- // there is no such file; a full disk that is tried for weeks would use up all numbers
			return err
		}
		if d.watch.Long(start) {
			d.watch.Waited(start, "a new segment, which was not prepared in time", "path", next.File.Name())
		}
	} else {
		d.next = nil
	}
	d.segs[next.ID] = next
	if need <= d.sizes.segment.Load() {
		d.lastSize = next.Size
	}
	d.log.Begin(next, ahead)
	d.wake(d.prepare)
	return nil
}

// segmentSize is that of the next segment: they grow with the log until they have their full size, so
// that a small database is a small directory. It is called with mu held.
func (d *DB) segmentSize() int64 {
	log := int64(0)
	for _, s := range d.segs {
		log += s.Used.Load()
	}
	return min(max(2*d.lastSize, minSegment), max(log/fileShare, leastFull), d.sizes.segment.Load())
}

// leastFull is the size in bytes up to which segments double, whatever the log's size.
const leastFull = 8 << 20

// leave is how much room a new segment leaves on the disk, for what makes more of it: a flush, and a merge of
// everything that empties one segment. It is called with mu held.
func (d *DB) leave(last bool) int64 {
	if last {
		return 0
	}
	largest := int64(0)
	for _, s := range d.segs {
		largest = max(largest, s.Used.Load())
	}
	return largest + d.tableLimit/4 + d.reclaim.needed + min(leastStep, d.tables.Limit.Load())
}

// lastRoom is the size in bytes of a segment that is made for deletes where there is no room for others.
const lastRoom = 64 << 10

// createSmall makes a segment where one of that size could not be made, for which there may be no room.
func (d *DB) createSmall(id uint32, size, need int64, last bool, err error) (*wal.Segment, error) {
	least := int64(lastRoom)
	if last {
		least = leastSegment
	}
	for size/2 >= max(need, least) && format.IsNoRoom(err) {
		size /= 2
		var s *wal.Segment
		if s, err = d.files.Create(id, size, d.leave(last), true); err == nil {
			d.logger.Warn("there is little room for the log", "path", s.File.Name(), "bytes", size)
			return s, nil
		}
	}
	return nil, err
}

// leastSegment is the size in bytes of the smallest segment that is tried.
const leastSegment = 4 << 10

// number returns the number of a new file. Segments have 32 bits for theirs, and one that was used before
// could be that of a file which is alive. It is called with mu held.
func (d *DB) number() (uint32, error) {
	if d.nextFile >= math.MaxUint32 {
		return 0, &holdfast.Error{Op: "create", Engine: format.Name, Path: d.files.Dir, Class: holdfast.ErrTooLarge,
			Detail: "all numbers of files have been used", Remedy: "copy what is in it to a new database"}
	}
	d.nextFile++
	return uint32(d.nextFile), nil
}

// dropNext gives up the segment that is prepared, and reports whether there is one. The next removeObsolete removes its
// file. It is called with mu held.
func (d *DB) dropNext() bool {
	if d.next == nil {
		return false
	}
	d.next.Drop()
	d.next = nil
	return true
}

// newNumber is number for those who do not hold mu.
func (d *DB) newNumber() (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.number()
}

// synced counts a sync of another file than the log's, and what was written to it before.
func (d *DB) synced(bytes int64) {
	d.otherSyncs.Add(1)
	d.otherBytes.Add(bytes)
}
