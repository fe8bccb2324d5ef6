// Package wal is logtree's log: segments, the files that it is made of, the appending, writing and syncing of commits,
// and the reading of the log's tail, for opening and for the tools. It knows frames, and nothing of keys, memtables and
// tables.
//
// Places in the log are lsns: bytes of frames since the log began. Three of them tell how far things are, always synced
// <= written <= appended.
//
// Locks: the caller orders commits by a lock of its own, which it holds around the methods of Log that say so. The
// log's own locks are taken below it: first that for writing, then that of the queue. Waiting for a sync takes neither
// (driver/groupcommit). Methods that do not name the caller's lock take none above the log's own; those that
// write or sync should not be called with it held, for they take as long as the device does.
package wal

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// Watch is told of what took long.
type Watch interface {
	// Long reports whether what began then has taken so long that Waited should be told.
	Long(since time.Time) bool
	// Waited is told that a commit has waited since then, for what and with what details.
	Waited(since time.Time, what string, details ...any)
}

// Config is what a log needs.
type Config struct {
	Files *Files
	Watch Watch

	// Check, if there is one, is asked between a sync and acknowledging it.
	Check func() error

	// OnFail is called once, with any lock held, when the log has failed, before any other call returns that err.
	OnFail func(err error)
}

// Log writes commits to segments and syncs them. Frames are queued in order. The first goroutine that needs them
// written, or synced, does it; syncs are shared by all that wait.
//
// The first failed write or sync stops it: from then on nothing is written, synced or acknowledged that had not been.
type Log struct {
	Config

	// Under the caller's lock.
	cur    *Segment // nil until the first Begin
	end    format.Position
	joined []byte

	appended atomic.Uint64
	written  atomic.Uint64
	synced   atomic.Uint64
	live     atomic.Pointer[[]*Segment] // those that are not known to be synced, in order

	queueMu sync.Mutex // guards queue
	queue   []chunk

	// One goroutine writes at a time, with writeMu held, which covers what follows. The slices of chunks and segments are
	// used in turns: spare becomes the next queue, and clean, which is being synced or was, the next dirty.
	writeMu sync.Mutex
	spare   []chunk
	dirty   []*Segment // written to since they were last synced, in order
	clean   []*Segment
	last    *Segment // written to last

	syncs, bytes, groups atomic.Int64

	share *groupcommit.Committer // of those who wait for syncs; nothing but empty batches goes through it

	// acked has for Memory and for Process the lsn up to which everything has been acknowledged at that level.
	acked  [holdfast.Power]atomic.Uint64
	failed atomic.Pointer[failure]
}

// failure is what stopped the log. It is published before acked is set; fixed says when that is done.
type failure struct {
	err   error
	acked [holdfast.Power]uint64 // by level: all before these lsns had been acknowledged; nothing else is any more
	fixed chan struct{}          // closed when acked is, and OnFail has been called
}

// chunk is a stretch of log that is not written yet.
type chunk struct {
	seg  *Segment
	off  int64
	size int
	b    []byte // nil: it is written, but not counted yet
	end  uint64 // lsn
}

// maxStore is the largest chunk in bytes that is stored through the mapping: a page costs a fault, which
// a write call does not have. Nor is what is synced at once: a sync has to make the pages that
// were stored to read-only again, so that each commit would meet the fault once more.
const maxStore = 2 << 10

// maxJoined is the size in bytes up to which a large batch is put together, to be written by one call.
const maxJoined = 64 << 10

// New returns a log that has not begun.
func New(c Config) *Log {
	l := &Log{Config: c}
	l.live.Store(new([]*Segment))

	// The log borrows the group commit of engines for its syncs alone. What is committed lies in the queue; the empty
	// batches say that somebody waits.
	l.share = groupcommit.New(format.Name, 0, func(*holdfast.Batch, holdfast.Level) error { return l.syncNow() })

	return l
}

// Resume says where the log ends that was there before. It goes on in another segment: Begin. Called with the caller's
// lock held, or before others know of the log.
func (l *Log) Resume(at format.Position) { l.end = at }

// Durable says that all before lsn was durable when the log was opened.
func (l *Log) Durable(lsn uint64) {
	l.appended.Store(lsn)
	l.written.Store(lsn)
	l.synced.Store(lsn)
}

// Current is the segment that frames are added to, nil before the first Begin. Called with the caller's lock held.
func (l *Log) Current() *Segment { return l.cur }

// End is where the next frame goes. Called with the caller's lock held.
func (l *Log) End() format.Position { return l.end }

// Fits reports whether a frame of n bytes with so many operations can be added to the present segment, and an end frame
// behind it. Called with the caller's lock held.
func (l *Log) Fits(n, ops int) bool {
	// A sequence number in a frame has 32 bits.
	return l.cur != nil && l.end.Offset+int64(n)+format.EndSize <= l.cur.Size &&
		l.end.Seq+uint64(ops)-l.cur.BaseSeq < 1<<32
}

// Begin ends the present segment, if there is one, and goes on in next, whose name is durable if that is said. Called
// with the caller's lock held.
func (l *Log) Begin(next *Segment, durable bool) {
	// The end frame names the next segment, and whether its name is durable. If it is not, and a crash takes the file, its
	// absence is no damage.
	if l.cur != nil {
		b := make([]byte, format.EndSize)
		format.Successor{ID: next.ID, Durable: durable}.Put(b[format.FrameHeader:])
		l.add(b, format.KindEnd, format.EndBody, format.Checksum(b[format.FrameHeader:]), 0)
	}
	first := format.Begin{Seq: l.end.Seq, LSN: l.end.LSN, Prev: l.end.Segment}
	next.Start, next.BaseSeq = first.LSN, first.Seq

	// Segments that are synced to their end leave the list. It is replaced, never changed: Fail reads it without a lock.
	live := *l.live.Load()
	for synced := l.synced.Load(); len(live) > 1 && live[1].Start <= synced; {
		live = live[1:]
	}
	live = append(slices.Clone(live), next)
	l.live.Store(&live)
	l.cur, l.end.Segment, l.end.Offset = next, next.ID, format.SegmentHeaderSize
	b := make([]byte, format.BeginSize)
	first.Put(b[format.FrameHeader:])
	l.add(b, format.KindBegin, format.BeginBody, format.Checksum(b[format.FrameHeader:]), 0)
}

// Append adds a batch, which fits, with so many operations. buf is its frame, with the body, of that length and
// checksum, behind room for the header and zeros behind it; the log fills in the header. It must not change until the
// log is synced, unless the log fails. Frames that lie behind each other in one array, which buf's capacity tells, are
// written together. Called with the caller's lock held.
func (l *Log) Append(buf []byte, body int, sum uint32, ops int) {
	l.add(buf, format.KindBatch, body, sum, ops)
}

// add fills in the header and queues the frame. Called with the caller's lock held, like what it calls.
func (l *Log) add(buf []byte, kind format.FrameKind, body int, sum uint32, ops int) {
	l.header(buf, kind, body, sum)
	l.push(buf, len(buf), ops)
}

// header fills the header of the next frame, whose body has that length and checksum.
func (l *Log) header(dst []byte, kind format.FrameKind, body int, sum uint32) {
	unsynced := min(l.end.LSN-l.synced.Load(), 1<<32-1)
	format.PutFrameHeader(dst, l.cur.Epoch, kind, body, sum, uint32(l.end.Seq-l.cur.BaseSeq), uint32(unsynced))
}

// AppendLarge writes a batch, which fits, to the log's file at once, so that the batch need not stay in memory: when it
// has returned, values are read with [Segment.Unflushed]. body has so many operations and that checksum. It returns
// false if it cannot be written, or the log has failed: nothing was added then. Called with the caller's lock held.
func (l *Log) AppendLarge(body []byte, sum uint32, ops int) bool {
	// The caller holds its lock, so nothing else comes to the end of the log meanwhile: the frame can be written before it
	// is counted.
	n := format.FrameSize(len(body))
	start := time.Now()
	err := l.writeLarge(body, n, sum)
	if l.Watch.Long(start) {
		l.Watch.Waited(start, "writing to the log", "path", l.cur.File.Name(), "bytes", n)
	}
	if err != nil {
		l.Fail(err)
		return false
	}

	// Fail saves the large batches up to reach. Either it sees this one, or the failure is seen here, and the batch goes
	// to memory.
	l.cur.reach.Store(l.end.Offset + int64(n))
	if l.Err() != nil {
		return false // what saves it may have missed it
	}
	l.push(nil, n, ops)

	return true
}

// writeLarge writes the frame, of n bytes. What pads it is zero in a new segment. Its header goes last, so that what is
// cut short is no frame.
func (l *Log) writeLarge(body []byte, n int, sum uint32) error {
	var h [format.FrameHeader]byte
	l.header(h[:], format.KindBatch, len(body), sum)

	// Header and body in one call if the copy costs less than a second call.
	if n <= maxJoined {
		l.joined = append(append(l.joined[:0], h[:]...), body...)

		return l.cur.Write(l.joined, l.end.Offset)
	}
	if err := l.cur.Write(body, l.end.Offset+format.FrameHeader); err != nil {
		return err
	}

	return l.cur.Write(h[:], l.end.Offset)
}

// push queues a frame of n bytes at the log's end.
func (l *Log) push(b []byte, n, ops int) {
	p := chunk{seg: l.cur, off: l.end.Offset, size: n, b: b, end: l.end.LSN + uint64(n)}

	// The place is fixed here, under the caller's lock. The queue has a lock of its own, because the writer empties it
	// without the caller's.
	l.end.Offset += int64(n)
	l.end.LSN, l.end.Seq = p.end, l.end.Seq+uint64(ops)
	l.queueMu.Lock()
	if n := len(l.queue); n == 0 || !l.queue[n-1].extend(p) {
		l.queue = append(l.queue, p)
	}
	l.queueMu.Unlock()
	l.appended.Store(p.end)
}

// extend adds next to p if it goes on where p ends, in memory and in the file.
func (p *chunk) extend(next chunk) bool {
	if p.seg != next.seg || p.off+int64(p.size) != next.off || (p.b == nil) != (next.b == nil) {
		return false
	}
	if p.b != nil {
		// Memory goes on where the byte behind p, within its capacity, is the first of next: both lie in one chunk of the
		// image.
		if cap(p.b) <= p.size || &p.b[:p.size+1][p.size] != &next.b[0] {
			return false
		}
		p.b = p.b[:p.size+next.size]
	}
	p.size, p.end = p.size+next.size, next.end

	return true
}

// Appended is the lsn up to which frames have been added.
func (l *Log) Appended() uint64 { return l.appended.Load() }

// Written is the lsn up to which the operating system has the log.
func (l *Log) Written() uint64 { return l.written.Load() }

// Synced is the lsn up to which the log survives power loss.
func (l *Log) Synced() uint64 { return l.synced.Load() }

// Fill adds to the counters that the log knows: its groups, syncs and bytes written.
func (l *Log) Fill(m *holdfast.Metrics) {
	m.Groups, m.Poison = l.groups.Load(), l.Err()
	m.Syncs += l.syncs.Load() + l.Files.Syncs.Load()
	m.BytesWritten += l.bytes.Load() + l.Files.Bytes.Load()
}

// Err is what stopped the log, nil while it works.
func (l *Log) Err() error {
	// Whoever sees the failure waits until OnFail has been told, so that all see the same state of things.
	if f := l.failed.Load(); f != nil {
		<-f.fixed
		return f.err
	}

	return nil
}

// Fail stops the log, and returns what stopped it: the first cause stays. It may be called with any lock held.
//
// After a failed sync the system may drop pages that it shows, and reads must go on: large batches that are not known
// to be synced are copied back to memory.
func (l *Log) Fail(err error) error {
	f := &failure{err: groupcommit.Poisoned(format.Name, err), fixed: make(chan struct{})}
	if l.failed.CompareAndSwap(nil, f) {
		// What had been acknowledged stays so, and what is synced is safe whatever failed. Nothing beyond that is
		// acknowledged any more, so that two callers who ask about the same frame get the same answer.
		f.acked[holdfast.Process] = max(l.acked[holdfast.Process].Load(), l.synced.Load())
		f.acked[holdfast.Memory] = max(l.acked[holdfast.Memory].Load(), f.acked[holdfast.Process])
		l.OnFail(f.err)
		close(f.fixed)

		// Reads of large batches must not depend on pages that the system may drop.
		for _, s := range *l.live.Load() {
			s.save(l.synced.Load())
		}
	}

	return l.Err()
}

// Acknowledge is called when all before lsn is as safe as its level, Memory or Process, asks, and returns nil if that
// may be acknowledged. Once the log has failed, only what had been acknowledged or synced is: after a failed sync the
// system may drop what it had taken, without a crash. Asked again, it gives the same answer.
func (l *Log) Acknowledge(lsn uint64, level holdfast.Level) error {
	for a := l.acked[level].Load(); a < lsn && !l.acked[level].CompareAndSwap(a, lsn); {
		a = l.acked[level].Load()
	}
	// If there is no failure here, acked was raised before a later failure reads it.
	if f := l.failed.Load(); f != nil {
		if <-f.fixed; lsn > f.acked[level] {
			return f.err
		}
	}

	return nil
}

// Write returns when everything up to lsn is in the operating system's hands.
func (l *Log) Write(lsn uint64) error {
	if l.written.Load() >= lsn {
		return nil
	}

	// One goroutine writes what all have queued. Those who come meanwhile wait here, and mostly find theirs written.
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if l.written.Load() >= lsn {
		return nil
	}

	return l.write(false)
}

// write writes what is queued, to be synced at once or not. It is called with writeMu held.
func (l *Log) write(toSync bool) error {
	if err := l.Err(); err != nil {
		return err
	}

	defer func() {
		if p := recover(); p != nil { // what it took from the queue will never be written
			_ = l.Fail(fmt.Errorf("panic: %v", p))
			panic(p)
		}
	}()
	l.queueMu.Lock()

	// The two slices take turns: one is filled while the other is written.
	todo := l.queue
	l.queue = l.spare[:0]
	l.queueMu.Unlock()

	for i := range todo {
		p := &todo[i]
		if p.b != nil {
			if err := l.writeChunk(p, !toSync && p.size <= maxStore); err != nil {
				return l.Fail(err)
			}
		}

		// Used goes on before written does: whoever sees that the frame is written may read it.
		p.seg.Used.Store(p.off + int64(p.size))
		l.bytes.Add(int64(p.size))
		if l.last != p.seg {
			if l.last != nil {
				l.last.unmapOut() // it is full
			}
			l.last = p.seg
		}

		// Of the segments that are to be synced, the last may be written to again; the order is that of the log.
		if n := len(l.dirty); n == 0 || l.dirty[n-1] != p.seg {
			l.dirty = append(l.dirty, p.seg)
		}
		l.written.Store(p.end)
	}
	if len(todo) > 0 {
		l.groups.Add(1)
	}

	// The spare slice must not keep images of memtables from being freed.
	clear(todo)
	l.spare = todo[:0]

	return nil
}

// writeChunk writes one, by a store to the mapping if that is wanted and there is one.
func (l *Log) writeChunk(p *chunk, store bool) error {
	if store {
		return p.seg.store(p.b, p.off)
	}
	start := time.Now()
	err := p.seg.Write(p.b, p.off)
	if l.Watch.Long(start) {
		l.Watch.Waited(start, "writing to the log", "path", p.seg.File.Name(), "bytes", p.size)
	}

	return err
}

// Settle returns when no write is in progress any more. The log must have failed, or have nothing to write.
func (l *Log) Settle() {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	l.last = nil
}

// Sync returns when everything up to lsn survives power loss. One sync is made for all who have begun to wait since
// the last one began; a lone caller syncs without meeting another goroutine.
func (l *Log) Sync(lsn uint64) error {
	if l.synced.Load() >= lsn {
		return nil
	}

	err := l.share.Sync()
	if l.synced.Load() >= lsn {
		return nil // an error is that of a later one
	}

	return l.Fail(err)
}

// syncNow writes and syncs everything queued so far. One goroutine at a time calls it.
func (l *Log) syncNow() error {
	start := time.Now()
	files, target, err := l.writeToSync()
	if err != nil {
		return err
	}
	written := time.Now()

	// In the order of the log. After the first that fails the log has stopped, and the others are left.
	for _, s := range files {
		if err := l.syncSegment(s); err != nil {
			return l.Fail(err)
		}
	}

	// Between the sync and its acknowledgement: if the directory is not ours any more, what was synced is not there for
	// the next opening.
	if l.Check != nil {
		if err := l.Check(); err != nil {
			return l.Fail(err)
		}
	}
	if l.Watch.Long(start) && len(files) > 0 {
		l.Watch.Waited(start, "a sync of the log", "path", files[len(files)-1].File.Name(), "write", written.Sub(start),
			"sync", time.Since(written))
	}

	// Not what is written now, but what was when the sync began.
	l.synced.Store(target)

	return nil
}

// writeToSync writes what is queued and returns the segments to be synced, and what then is. It leaves no lock behind
// when it panics: those who wait for syncs get an error then.
func (l *Log) writeToSync() (files []*Segment, target uint64, err error) {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if err := l.write(true); err != nil {
		return nil, 0, err
	}

	// Writing goes on while these are synced, without the lock. What is written meanwhile makes its segment dirty again.
	files, l.dirty, l.clean = l.dirty, l.clean[:0], l.dirty

	return files, l.written.Load(), nil
}

// syncSegment makes durable what is written to s, and its name.
func (l *Log) syncSegment(s *Segment) error {
	l.syncs.Add(1)

	// The first sync of a segment that the log had no time to prepare also makes its name and length durable.
	if !s.durable {
		return s.settle(l.Files.FS, l.Files.Dir)
	}
	if err := s.File.Datasync(); err != nil {
		return format.IOError("sync", s.File.Name(), err)
	}

	return nil
}
