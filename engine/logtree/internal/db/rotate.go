package db

import (
	"errors"
	"io/fs"
	"math"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// rotateSegment ends the log's present segment and begins the next, with room for a frame of n
// bytes. It is called with mu held.
func (d *DB) rotateSegment(n int) error {
	need := int64(segmentHeader + beginSize + n + endSize + frameAlign)
	next, ahead := d.next, true // a prepared one is durable
	if next == nil || next.size < need {
		ahead = false
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
		if next, err = d.createSegment(id, kindLog, size, false, size <= minSegment); err != nil {
			return err
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
	d.cur, d.off, d.warmAt = next, segmentHeader, 0
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

// createSegment makes a segment file. One that is prepared is durable when it returns; otherwise its
// name and length become so with the first sync. Written ahead, all its blocks are on the
// device, and a commit that is synced to it changes no metadata of the file system.
func (d *DB) createSegment(id uint32, kind uint32, size int64, prepared, ahead bool) (_ *segment, err error) {
	name := segmentName(d.dir, id)
	if err := d.fs.Remove(name); err == nil {
		d.logger.Warn("removed a file in the way of a new segment", "path", name)
	}
	f, err := d.fs.Create(name)
	if err != nil {
		return nil, ioError("create", name, err)
	}
	s := &segment{id: id, kind: kind, size: size, epoch: d.id.epoch(id), file: f, free: d.freeSegment}
	s.refs.Store(1)
	defer func() {
		if err != nil {
			s.close()
			d.fs.Remove(name)
		}
	}()
	if ahead {
		s.flags = flagWritten
	}
	if err := f.Allocate(size); err != nil {
		return nil, ioError("allocate", name, err)
	}
	if ahead {
		zeros := make([]byte, min(size, 1<<20))
		for at := int64(0); at < size; at += int64(len(zeros)) {
			if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
				return nil, ioError("write", name, err)
			}
		}
		d.otherBytes.Add(size)
	}
	return s, d.finishSegment(s, prepared)
}

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
	s := &segment{id: id, kind: kindLog, flags: flagWritten, size: old.size, epoch: d.id.epoch(id), file: f, free: d.freeSegment}
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

// A segment is written ahead if Power commits in the last one came at least as often as every
// aheadEvery bytes: writing every byte once more costs more than it saves where commits are large.
const aheadEvery = 64 << 10

// aheadAlways is the size in bytes up to which a segment is written ahead in any case: it costs
// little, and at first there is nothing to go by.
const aheadAlways = 4 << 20

// number returns the number of a new file. Segments have 32 bits for theirs, and one that was used before
// could be that of a file which is alive. It is called with mu held.
func (d *DB) number() (uint32, error) {
	if d.nextFile >= math.MaxUint32 {
		return 0, &holdfast.Error{Op: "create", Engine: Name, Path: d.dir, Class: holdfast.ErrTooLarge, Detail: "all numbers of files have been used", Remedy: "copy what is in it to a new database"}
	}
	d.nextFile++
	return uint32(d.nextFile), nil
}

// prepareNext makes the segment that will follow the present one, if it is missing, and removes
// what is not needed any more. It reports whether there was anything to do.
func (d *DB) prepareNext() (bool, error) {
	swept := d.sweep()
	d.mu.Lock()
	if d.next != nil || d.cur == nil {
		d.mu.Unlock()
		return swept, nil
	}
	id, err := d.number()
	if err != nil {
		d.mu.Unlock()
		return swept, nil // the log says so when it comes to that
	}
	size, last := d.segmentSize(), d.lastSize
	var old *segment
	if n := len(d.spare); n > 0 && d.spare[n-1].size == size {
		old, d.spare = d.spare[n-1], d.spare[:n-1]
	}
	d.mu.Unlock()

	var s *segment
	if old != nil {
		s, err = d.reuseSegment(old, id)
	} else {
		s, err = d.createSegment(id, kindLog, size, true, d.syncedCommits.Swap(0) >= last/aheadEvery || size <= aheadAlways)
	}
	if err != nil {
		// The log makes one itself when it comes to that, and fails if it cannot.
		d.logger.Warn("cannot prepare a log segment", "error", err)
		return swept, nil
	}
	d.mu.Lock()
	if d.cur.id < s.id {
		d.next = s
	} else {
		d.drop(s) // the log could not wait, and made one with a later id; ids ascend along the log
	}
	d.mu.Unlock()
	return true, nil
}

// warmAhead reads what of the log's present segment comes next, if nobody has written those blocks before: the
// system so has memory for them, which otherwise commits would have to wait for, page by page.
func (d *DB) warmAhead() (bool, error) {
	d.mu.Lock()
	s := d.cur
	if s == nil || s.in == nil || s.flags&flagWritten != 0 {
		d.mu.Unlock()
		return false, nil
	}
	from, end := max(s.warmed, d.off), min(d.off+warmBytes, s.size)
	if from >= end {
		d.mu.Unlock()
		return false, nil
	}
	s.warmed = min(from+warmPiece, end)
	s.acquire()
	d.mu.Unlock()
	defer s.release()
	b := warmBuffers.Get().(*[warmPiece]byte)
	defer warmBuffers.Put(b)
	_, err := s.file.ReadAt(b[:min(warmPiece, end-from)], from)
	return err == nil, nil // the log will meet the error too, if it matters
}

const (
	warmBytes = 8 << 20   // so far ahead of the log's end
	warmPiece = 256 << 10 // read at a time
)

var warmBuffers = sync.Pool{New: func() any { return new([warmPiece]byte) }}

// drop gives up a prepared segment, if there is one.
func (d *DB) drop(s *segment) {
	if s != nil {
		s.dead.Store(true)
		s.release()
	}
}

// maxSpare is the number of files that are kept to be used again.
const maxSpare = 1

// freeSegment is called when nobody needs a dead segment any more, with any lock held.
func (d *DB) freeSegment(s *segment) {
	d.discard(func() {
		size, err := d.fs.Size(segmentName(d.dir, s.id)) // the last one of a session was cut by Close
		d.mu.Lock()
		keep := err == nil && size == s.size && s.kind == kindLog && s.size == d.segmentSize() && len(d.spare) < maxSpare && s.flags&flagWritten != 0
		if keep {
			d.spare = append(d.spare, s)
		}
		d.mu.Unlock()
		if !keep {
			d.remove(segmentName(d.dir, s.id))
		}
	})
}

func (d *DB) freeRun(f *runFile) {
	d.discard(func() { d.remove(runName(d.dir, f.id)) })
}

func (d *DB) discard(f func()) {
	d.trashMu.Lock()
	d.trash = append(d.trash, f)
	d.trashMu.Unlock()
	d.wake(d.prepare)
}

// sweep removes what was discarded, and reports whether there was anything.
func (d *DB) sweep() bool {
	d.trashMu.Lock()
	todo := d.trash
	d.trash = nil
	d.trashMu.Unlock()
	for _, f := range todo {
		f()
	}
	return len(todo) > 0
}

// remove removes a file that is not needed. If it stays, opening the database removes it.
func (d *DB) remove(name string) {
	if err := d.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		d.logger.Warn("cannot remove a file that is not needed", "path", name, "error", err)
	}
}

// Work does background work in the caller's goroutine until there is none left, or limit pieces
// are done; it returns how many. It is for databases opened with Config.Manual.
func (d *DB) Work(limit int) (n int, err error) {
	for n < limit {
		did := false
		for _, f := range []func() (bool, error){d.flush, d.mergeOnce, d.prepareNext} {
			ok, err := f()
			if err != nil {
				return n, d.log.fail(err)
			}
			did = did || ok
		}
		if !did {
			return n, nil
		}
		n++
	}
	return n, nil
}

// background runs f whenever c says so, and on until f has nothing to do.
func (d *DB) background(c chan struct{}, f func() (bool, error)) {
	d.done.Go(func() {
		for {
			select {
			case <-d.stop:
				return
			case <-c:
			}
			for more := true; more; {
				var err error
				more, err = f()
				if errors.Is(err, errStopped) {
					return
				}
				if err != nil {
					d.log.fail(err)
					return
				}
				select {
				case <-d.stop:
					return
				default:
				}
			}
		}
	})
}

// errStopped ends background work when the database is closed.
var errStopped = &holdfast.Error{Op: "work", Engine: Name, Class: holdfast.ErrClosed}
