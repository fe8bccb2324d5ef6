package db

import (
	"math"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// rotateSegment ends the log's present segment and begins the next, with room for a frame of n
// bytes; last says that it may take all the room there is. It is called with mu held.
func (d *DB) rotateSegment(n int, last bool) error {
	need := int64(segmentHeader + beginSize + n + endSize + frameAlign)
	next, ahead := d.next, true // a prepared one is durable
	if next == nil || next.size < need {
		ahead = false
		if d.cur != nil && next == nil {
			d.stalls.Add(1)
		}
		d.drop(next)
		d.next = nil
		id, err := d.number()
		if err != nil {
			return err
		}
		size := max(need, d.segmentSize())
		if n > minSegment { // room for more like this one
			size = max(size, min(4*need, d.segmentLimit))
		}
		if last { // it comes out of what merges need
			size = max(need, min(size, lastRoom))
		}
		start := time.Now()
		if next, err = d.createSegment(id, size, d.leave(last), size <= minSegment); err != nil {
			next, err = d.createSmall(id, size, need, last, err)
		}
		d.reclaim.tight.Store(last || noRoom(err))
		if err == nil && !last {
			d.reclaim.deleting.Store(false)
		}
		if err != nil {
			d.nextFile-- // there is no such file; a full disk that is tried for weeks would use up all numbers
			return err
		}
		if d.watch.long(start) {
			d.watch.waited(start, "a new segment, which was not prepared in time", "path", next.file.Name())
		}
	} else {
		d.next = nil
	}
	mem := d.view.Load().mem
	if d.cur != nil {
		var b [endBody]byte
		successor{next.id, ahead}.put(b[:])
		d.frame(mem, frameEnd, b[:], checksum(b[:]))
		d.prev = d.cur.id
	}
	d.cur, d.off, d.warmAt, d.zeroAt = next, segmentHeader, 0, never
	d.segs[next.id] = next
	next.start, next.baseSeq = d.lsn, d.seq
	if need <= d.segmentLimit {
		d.lastSize = next.size
	}
	var b [beginBody]byte
	begin{seq: d.seq, lsn: d.lsn, prev: d.prev}.put(b[:])
	d.frame(mem, frameBegin, b[:], checksum(b[:]))
	d.wake(d.prepare)
	return nil
}

// segmentSize is that of the next segment: they double until they have their full size, so
// that a small database is a small directory. It is called with mu held.
func (d *DB) segmentSize() int64 {
	return min(max(2*d.lastSize, minSegment), d.segmentLimit)
}

// leave is how much room a new segment leaves on the disk, for what makes more of it: a flush, and a merge of
// everything that empties one segment. It is called with mu held.
func (d *DB) leave(last bool) int64 {
	if last {
		return 0
	}
	largest := int64(0)
	for _, s := range d.segs {
		largest = max(largest, s.used.Load())
	}
	return largest + d.tableLimit/4 + d.reclaim.needed + min(leastStep, d.runLimit)
}

// lastRoom is the size in bytes of a segment that is made for deletes where there is no room for others.
const lastRoom = 64 << 10

// createSmall makes a segment where one of that size could not be made, for which there may be no room.
func (d *DB) createSmall(id uint32, size, need int64, last bool, err error) (*segment, error) {
	least := int64(lastRoom)
	if last {
		least = leastSegment
	}
	for size/2 >= max(need, least) && noRoom(err) {
		size /= 2
		var s *segment
		if s, err = d.createSegment(id, size, d.leave(last), true); err == nil {
			d.logger.Warn("there is little room for the log", "path", s.file.Name(), "bytes", size)
			return s, nil
		}
	}
	return nil, err
}

// leastSegment is the size in bytes of the smallest segment that is tried.
const leastSegment = 4 << 10

// createSegment makes a segment file of the log; its name and length become durable with the first sync. Filled
// with zeros, all its blocks are on the device, and a commit that is synced to it changes no metadata of the file
// system. It fails if there is no room for left more bytes.
func (d *DB) createSegment(id uint32, size, left int64, ahead bool) (*segment, error) {
	s, err := d.newSegment(id, size, left)
	if err != nil {
		return nil, err
	}
	if ahead {
		err = d.writeZeros(s, 0, size)
		s.flags = flagWritten
	}
	if err == nil {
		err = d.finishSegment(s, false)
	}
	if err != nil {
		d.undo(s)
		return nil, err
	}
	return s, nil
}

// newSegment makes a file with room for a segment, but without a header. It fails if there is no room for left more
// bytes.
func (d *DB) newSegment(id uint32, size, left int64) (*segment, error) {
	name := segmentName(d.dir, id)
	if err := d.fs.Remove(name); err == nil {
		d.logger.Warn("removed a file in the way of a new segment", "path", name)
	}
	f, err := d.fs.Create(name)
	if err != nil {
		return nil, ioError("create", name, err)
	}
	s := &segment{id: id, kind: kindLog, size: size, epoch: d.id.epoch(id), file: f, free: d.freeSegment}
	s.refs.Store(1)
	err = f.Allocate(size + left)
	if err == nil && left > 0 {
		err = f.Truncate(size)
	}
	if err != nil {
		d.undo(s)
		return nil, ioError("allocate", name, err)
	}
	return s, nil
}

// undo removes a segment that could not be completed, or is not needed.
func (d *DB) undo(s *segment) {
	s.close()
	d.remove(s.file.Name())
}

// writeZeros writes zeros to a stretch of a new segment's file.
func (d *DB) writeZeros(s *segment, from, to int64) error {
	for at := from; at < to; at += int64(len(zeros)) {
		if _, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at); err != nil {
			return ioError("write", s.file.Name(), err)
		}
	}
	d.otherBytes.Add(to - from)
	return nil
}

var zeros [zeroChunk]byte

// reuseSegment makes a segment of the file of one that is not needed any more. All its blocks
// are there and have been written.
func (d *DB) reuseSegment(old *segment, id uint32) (_ *segment, err error) {
	from, name := segmentName(d.dir, old.id), segmentName(d.dir, id)
	if err := d.fs.Rename(from, name); err != nil {
		return nil, ioError("rename", from, err)
	}
	defer func() {
		if err != nil {
			d.fs.Remove(name)
		}
	}()
	f, err := d.fs.OpenWrite(name)
	if err != nil {
		return nil, ioError("open", name, err)
	}
	s := &segment{id: id, kind: kindLog, flags: flagWritten, size: old.size, epoch: d.id.epoch(id), file: f,
		free: d.freeSegment}
	s.refs.Store(1)
	if err := d.finishSegment(s, true); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// finishSegment writes the header and maps the file.
func (d *DB) finishSegment(s *segment, durable bool) error {
	name := s.file.Name()
	if _, err := s.file.WriteAt(s.header(d.id), 0); err != nil {
		return ioError("write", name, err)
	}
	s.used.Store(segmentHeader)
	if durable {
		d.otherSyncs.Add(2)
		if err := s.file.Sync(); err != nil {
			return ioError("sync", name, err)
		}
		if err := d.fs.SyncDir(d.dir); err != nil {
			return ioError("sync", d.dir, err)
		}
		s.durable = true
	}
	if d.noMap {
		return nil
	}
	s.mapIn(s.size)
	if m, ok := s.file.(vfs.WriteMapper); ok && s.kind == kindLog {
		// Without the mapping, writes go through the file.
		if out, err := m.MapWrite(s.size); err == nil {
			s.out, s.unout = out.Bytes(), out.Unmap
		}
	}
	return nil
}

// number returns the number of a new file. Segments have 32 bits for theirs, and one that was used before
// could be that of a file which is alive. It is called with mu held.
func (d *DB) number() (uint32, error) {
	if d.nextFile >= math.MaxUint32 {
		return 0, &holdfast.Error{Op: "create", Engine: Name, Path: d.dir, Class: holdfast.ErrTooLarge,
			Detail: "all numbers of files have been used", Remedy: "copy what is in it to a new database"}
	}
	d.nextFile++
	return uint32(d.nextFile), nil
}
