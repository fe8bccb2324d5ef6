package db

import (
	"errors"
	"math"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// rotateSegment ends the log's present segment and begins the next, with room for a frame of n bytes; last says that it
// may take all the room there is. It is called with mu held.
func (d *DB) rotateSegment(n int, last bool) error {
	need := int64(format.SegmentHeaderSize + format.BeginSize + n + format.EndSize + format.FrameAlign)

	// Mostly the next one is prepared, and its name is durable.
	s, ahead := d.mu.next, true
	kept := false
	if s != nil && s.Size >= need {
		d.mu.next = nil
	} else {
		ahead = false
		if s != nil { // numbers ascend along the log, so that it cannot follow later
			d.dropNext()
		} else if d.log.Current() != nil {
			d.stalls.Add(1)
		}
		var err error
		if s, err = d.newSegment(n, need, last); err != nil {
			return err
		}
		kept = last
	}

	// The segment is known before the log goes on in it: a commit is in the log as soon as it has its place.
	d.mu.segs[s.ID] = s
	for _, f := range d.mu.feeds {
		f.hold(s)
	}
	if need <= d.sizes.segment.Load() { // one for a single large batch says nothing of the others
		d.mu.lastSize = s.Size
	}
	d.log.Begin(s, ahead)
	d.mu.kept = kept
	d.wake(d.prepare)

	return nil
}

// newSegment makes a segment of the log that was not prepared in time, see rotateSegment; it takes need bytes at least.
// It is called with mu held.
func (d *DB) newSegment(n int, need int64, last bool) (*wal.Segment, error) {
	id, err := d.number()
	if err != nil {
		return nil, err
	}

	// A commit waits for this. So the file is not filled with zeros, unless it is small.
	size := d.full().NewSegment(d.nextSegmentSize(), need, n, last)
	start := time.Now()
	s, err := d.files.Create(id, size, d.leave(last), size <= policy.MinSegment)
	if err != nil {
		s, err = d.createSmall(id, size, need, last, err)
	}

	// Tight makes compactions urgent. It stays until a segment could be made without the last of the room.
	d.compactor.tight.Store(last || format.IsNoRoom(err))
	if err != nil {
		d.mu.nextFile-- // there is no such file; a full disk that is tried for weeks would use up all numbers
		return nil, err
	}
	if !last {
		d.compactor.removing.Store(int32(ordinary))
	}
	if d.watch.Long(start) {
		d.watch.Waited(start, "a new segment, which was not prepared in time", "path", s.File.Name())
	}

	return s, nil
}

// createSmall makes a segment where one of that size could not be made, for which there may be no room.
func (d *DB) createSmall(id uint32, size, need int64, last bool, err error) (*wal.Segment, error) {
	for format.IsNoRoom(err) {
		if e := (*holdfast.Error)(nil); errors.As(err, &e) && e.Op == "create" { // an inode is missing, whatever the size
			break
		}
		var ok bool
		if size, ok = policy.SmallerSegment(size, need, last); !ok {
			break
		}
		var s *wal.Segment
		if s, err = d.files.Create(id, size, d.leave(last), true); err == nil {
			d.logger.Warn("there is little room for the log", "path", s.File.Name(), "bytes", size)
			return s, nil
		}
	}

	return nil, err
}

// number returns the number of a new file. Segments have 32 bits for theirs, and one that was used before
// could be that of a file which is alive. It is called with mu held.
func (d *DB) number() (uint32, error) {
	if d.mu.nextFile >= math.MaxUint32 {
		return 0, &holdfast.Error{Op: "create", Engine: format.Name, Path: d.files.Dir, Class: holdfast.ErrTooLarge,
			Detail: "all numbers of files have been used", Remedy: "copy what is in it to a new database"}
	}
	d.mu.nextFile++

	return uint32(d.mu.nextFile), nil
}

// dropNext gives up the segment that is prepared, and reports whether there is one. The next removeObsolete removes its
// file. It is called with mu held.
func (d *DB) dropNext() bool {
	if d.mu.next == nil {
		return false
	}
	d.mu.next.Drop()
	d.mu.next = nil

	return true
}

// returnNumber gives back the number of a file that is gone and was named nowhere, if it was the last: a compaction
// that is tried for weeks on a full disk would use up all numbers.
func (d *DB) returnNumber(id uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.nextFile == uint64(id) {
		d.mu.nextFile--
	}
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
