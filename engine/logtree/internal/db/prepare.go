package db

import (
	"sync"
)

// prepareNext does the next step towards the segment that will follow the present one, if it is missing, and removes
// what is not needed any more. It reports whether there was anything to do.
func (d *DB) prepareNext() (bool, error) {
	d.preparing.Lock()
	defer d.preparing.Unlock()
	swept := d.removeObsolete()
	did, err := d.prepareStep()
	if !did && err == nil {
		d.makeReserve()
	}
	return swept || did, err // the log makes one itself when it comes to that, and says so if it cannot
}

// A segment is filled with zeros if Power commits in the last one came at least as often as every
// zeroEvery bytes: writing every byte once more costs more than it saves where commits are large.
const zeroEvery = 64 << 10

// zeroAlways is the size in bytes up to which a segment is filled with zeros in any case: it costs
// little, and at first there is nothing to go by.
const zeroAlways = 4 << 20

// prepareStep begins to make the next segment, or goes on with it, and reports whether there was anything to do.
// After an error nothing is left of it. It is called with preparing held.
func (d *DB) prepareStep() (bool, error) {
	if d.making == nil {
		return d.beginNext()
	}
	to := d.zeroTarget()
	if to == d.zeroed {
		return false, nil
	}
	return true, d.zeroUpTo(to)
}

// beginNext begins to make the next segment if it is missing, and completes it if it need not be filled with zeros.
// It is called with preparing held.
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
	d.making, d.zeroed = s, size
	if d.syncedCommits.Swap(0) >= last/zeroEvery || size <= zeroAlways {
		s.flags, d.zeroed = flagWritten, 0
		return true, nil
	}
	return true, d.zeroUpTo(size)
}

// zeroTarget returns how far the segment in the making should be filled with zeros next. It goes on as the log
// does, in chunks, so that a commit seldom finds the device busy with much else, and is complete when the log still
// has some room left in its present segment. Next to a small one it is made at once. It is called with preparing
// held.
func (d *DB) zeroTarget() int64 {
	s := d.making
	to := min(d.zeroed+min(max(s.size/minZeroChunks, minZeroChunk), zeroChunk), s.size)
	if d.manual {
		return to
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	left := max(d.cur.size/leftShare, leastLeft)
	at := int64(float64(d.zeroed) / float64(s.size) * float64(d.cur.size-left))
	if d.cur.id < s.id && d.off < at {
		d.zeroAt = at
		return d.zeroed
	}
	return to
}

// zeroUpTo fills the segment in the making with zeros up to there, and completes it if that is its end. It is called
// with preparing held.
func (d *DB) zeroUpTo(to int64) (err error) {
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
	if d.zeroed < to {
		if err := d.writeZeros(s, d.zeroed, to); err != nil {
			return err
		}
		d.zeroed = to
		if to < s.size && to%zeroSync == 0 {
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
	zeroChunk     = 1 << 20 // bytes of a segment that are filled with zeros at a time
	zeroSync      = 8 << 20 // and synced together
	minZeroChunks = 8       // that a segment is filled in,
	minZeroChunk  = 4 << 10 // of so many bytes at least
	leftShare     = 8       // the share of the log's segment that is left when the next is complete,
	leastLeft     = 2 << 20 // and so many bytes at least
)

// warmAhead reads what of the log's present segment comes next, if those blocks have not been written before: the
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
	s.warmed = min(from+warmChunk, end)
	s.acquire()
	d.mu.Unlock()
	defer s.release()
	b := warmBuffers.Get().(*[warmChunk]byte)
	defer warmBuffers.Put(b)
	_, err := s.file.ReadAt(b[:min(warmChunk, end-from)], from)
	return err == nil, nil // the log will meet the error too, if it matters
}

const (
	warmBytes = 8 << 20   // so far ahead of the log's end
	warmChunk = 256 << 10 // read at a time
)

var warmBuffers = sync.Pool{New: func() any { return new([warmChunk]byte) }}

// drop gives up a prepared segment, if there is one.
func (d *DB) drop(s *segment) {
	if s != nil {
		s.dead.Store(true)
		s.release()
	}
}
