package db

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"sync"
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
		d.tight.Store(last || noRoom(err))
		if err == nil && !last {
			d.deleting.Store(false)
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
	d.cur, d.off, d.warmAt, d.pieceAt = next, segmentHeader, 0, never
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
	return largest + d.tableLimit/4 + d.needed + min(leastStep, d.runLimit)
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

// createSegment makes a segment file of the log; its name and length become durable with the first sync. Written
// ahead, all its blocks are on the device, and a commit that is synced to it changes no metadata of the file system. It
// fails if there is no room for left bytes besides.
func (d *DB) createSegment(id uint32, size, left int64, ahead bool) (*segment, error) {
	s, err := d.newSegment(id, size, left)
	if err != nil {
		return nil, err
	}
	if ahead {
		err = d.writeAhead(s, 0, size)
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

// newSegment makes a file with room for a segment, but without a header. It fails if there is no room for left bytes
// besides.
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

// writeAhead writes zeros to a stretch of a new segment's file.
func (d *DB) writeAhead(s *segment, from, to int64) error {
	for at := from; at < to; at += int64(len(zeros)) {
		if _, err := s.file.WriteAt(zeros[:min(int64(len(zeros)), to-at)], at); err != nil {
			return ioError("write", s.file.Name(), err)
		}
	}
	d.otherBytes.Add(to - from)
	return nil
}

var zeros [aheadPiece]byte

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

// prepareNext does the next step towards the segment that will follow the present one, if it is missing, and removes
// what is not needed any more. It reports whether there was anything to do.
func (d *DB) prepareNext() (bool, error) {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	swept := d.sweep()
	did, err := d.prepareStep()
	if !did && err == nil {
		d.makeReserve()
	}
	return swept || did, err // the log makes one itself when it comes to that, and says so if it cannot
}

// The reserve is a file that takes room on the disk while there is some, in proportion to the database. It is given
// up when there is none left, so that deletes can be logged, and flushes and merges find room for what gives back
// more.
const (
	reserveName  = "RESERVE"
	reserveShare = 16 // of the log's bytes
	leastReserve = 64 << 10
)

// makeReserve makes the reserve, or a larger one when the database has grown. It is called with preparing held.
func (d *DB) makeReserve() {
	var log int64
	d.mu.Lock()
	for _, s := range d.segs {
		log += s.used.Load()
	}
	wanting := d.wanting.Load() > 0
	d.mu.Unlock()
	size := min(log/reserveShare, d.segmentLimit/2)
	if size < leastReserve || size < 2*d.reserve || wanting {
		return
	}
	name := filepath.Join(d.dir, reserveName)
	d.fs.Remove(name)
	d.reserve = 0
	f, err := d.fs.Create(name)
	if err != nil {
		return
	}
	// Where there is little room, the log has more use for it.
	if f.Allocate(size+d.segmentLimit) == nil && f.Truncate(size) == nil {
		d.reserve = size
	}
	f.Close()
	if d.reserve == 0 {
		d.fs.Remove(name)
	}
}

// keepReserve makes the reserve again, or what there is room for, after it was given up for a merge that came to
// nothing.
func (d *DB) keepReserve() {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	name := filepath.Join(d.dir, reserveName)
	for size := d.released; d.reserve == 0 && size >= leastReserve/4; size /= 2 {
		f, err := d.fs.Create(name)
		if err != nil {
			return
		}
		if f.Allocate(size) == nil {
			d.reserve, d.released = size, 0
		}
		f.Close()
		if d.reserve == 0 {
			d.fs.Remove(name)
		}
	}
}

// releaseReserve gives up the reserve, and reports whether there was one. It is called with preparing held.
func (d *DB) releaseReserve() bool {
	if d.reserve == 0 {
		return false
	}
	d.released, d.reserve = d.reserve, 0
	d.remove(filepath.Join(d.dir, reserveName))
	return true
}

// prepareStep begins to make the next segment, or goes on with it, and reports whether there was anything to do.
// After an error nothing is left of it. It is called with preparing held.
func (d *DB) prepareStep() (bool, error) {
	if d.making == nil {
		return d.beginNext()
	}
	to := d.nextPiece()
	if to == d.made {
		return false, nil
	}
	return true, d.makePiece(to)
}

// beginNext begins to make the next segment if it is missing, and completes it if it need not be written ahead. It is
// called with preparing held.
func (d *DB) beginNext() (bool, error) {
	d.mu.Lock()
	if d.next != nil || d.cur == nil {
		d.mu.Unlock()
		return false, nil
	}
	id, err := d.number()
	if err != nil {
		d.mu.Unlock()
		return false, nil // the log says so when it comes to that
	}
	size, last := d.segmentSize(), d.lastSize
	left := d.leave(false)
	var old *segment
	if n := len(d.spare); n > 0 && d.spare[n-1].size == size {
		old, d.spare = d.spare[n-1], d.spare[:n-1]
	}
	d.mu.Unlock()

	if old != nil {
		s, err := d.reuseSegment(old, id)
		if err == nil {
			d.follow(s)
		}
		return true, err
	}
	s, err := d.newSegment(id, size, left)
	if err != nil {
		return false, err
	}
	d.making, d.made = s, size
	if d.syncedCommits.Swap(0) >= last/aheadEvery || size <= aheadAlways {
		s.flags, d.made = flagWritten, 0
		return true, nil
	}
	return true, d.makePiece(size)
}

// nextPiece returns how far the segment in the making should be written ahead next. It goes on as the log does, in
// pieces, so that a commit seldom finds the device busy with much else, and is complete when the log still has some
// room left in its present segment. Next to a small one it is made at once. It is called with preparing held.
func (d *DB) nextPiece() int64 {
	s := d.making
	to := min(d.made+min(max(s.size/leastPieces, leastPiece), aheadPiece), s.size)
	if d.manual {
		return to
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	left := max(d.cur.size/leftShare, leastLeft)
	at := int64(float64(d.made) / float64(s.size) * float64(d.cur.size-left))
	if d.cur.id < s.id && d.off < at {
		d.pieceAt = at
		return d.made
	}
	return to
}

// makePiece writes the segment in the making ahead up to there, and completes it if that is its end. It is called
// with preparing held.
func (d *DB) makePiece(to int64) (err error) {
	s := d.making
	defer func() {
		if err != nil {
			d.making = nil
			d.undo(s)
		}
	}()
	d.mu.Lock()
	late := d.cur.id > s.id
	d.mu.Unlock()
	if late { // the log could not wait, and made one with a later id; ids ascend along the log
		d.making = nil
		d.undo(s)
		return nil
	}
	if d.made < to {
		if err := d.writeAhead(s, d.made, to); err != nil {
			return err
		}
		d.made = to
		if to < s.size && to%aheadSync == 0 {
			d.otherSyncs.Add(1)
			if err := s.file.Datasync(); err != nil {
				return ioError("sync", s.file.Name(), err)
			}
		}
	}
	if to < s.size {
		return nil
	}
	if err := d.finishSegment(s, true); err != nil {
		return err
	}
	d.making = nil
	d.follow(s)
	return nil
}

// follow makes a prepared segment the next one.
func (d *DB) follow(s *segment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cur.id < s.id && d.next == nil {
		d.next = s
	} else {
		d.drop(s)
	}
}

const (
	aheadPiece  = 1 << 20 // bytes of a segment that are written ahead at a time
	aheadSync   = 8 << 20 // and synced together
	leastPieces = 8       // that a segment is written ahead in,
	leastPiece  = 4 << 10 // of so many bytes at least
	leftShare   = 8       // the share of the log's segment that is left when the next is complete,
	leastLeft   = 2 << 20 // and so many bytes at least
)

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
		for a, f := range []func() (bool, error){d.flushOnce, d.mergeOnce, d.prepareNext} {
			ok, err := f()
			did = did || ok && err == nil
			if err = d.worked(activity(a), err); err != nil {
				return n, err
			}
		}
		if !did {
			return n, nil
		}
		n++
	}
	return n, nil
}

// worked notes how background work ended. What failed has been undone and is tried again: only what leaves two
// manifests stops the database, and is returned.
func (d *DB) worked(a activity, err error) error {
	if err == nil {
		d.troubles[a].Store(nil)
		return nil
	}
	if isFatal(err) || d.log.err() != nil {
		return d.log.fail(err)
	}
	if d.troubles[a].Swap(&err) == nil {
		d.logger.Warn("background work failed, and is tried again", "work", a, "error", err)
	}
	return nil
}

// background runs f whenever c says so, and on until f has nothing to do. What fails is tried again after a while.
func (d *DB) background(a activity, c chan struct{}, f func() (bool, error)) {
	d.done.Go(func() {
		pause := leastRetry
		for {
			select {
			case <-d.stop:
				return
			case <-c:
			}
			for more := true; more; {
				d.watch.during(a, true)
				var err error
				more, err = f()
				d.watch.during(a, false)
				if d.worked(a, err) != nil {
					return
				}
				if err != nil {
					more = false
					retry := time.AfterFunc(pause, func() { d.wake(c) })
					defer retry.Stop()
					pause = min(2*pause, mostRetry)
				} else if more {
					pause = leastRetry
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

// How long background work that failed waits before it is tried again.
const (
	leastRetry = 100 * time.Millisecond
	mostRetry  = 10 * time.Second
)
