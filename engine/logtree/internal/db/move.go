package db

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/vfs"
)

// mover copies values out of segments that are to be emptied, or out of a memtable, into segments of their own. It goes
// on in the same segment from step to step of a compaction: what a step has moved is synced, and counted in the
// segment's used bytes, when the step settles. A flush is one step.
type mover struct {
	d     *DB
	seq   uint64 // the values are no newer than that operation
	flags uint32 // of the segments that it makes

	// The segment that is being written, nil if none is, and the frame in the making.
	seg     *wal.Segment
	at      int64  // where that frame goes
	payload int64  // bytes of keys and values in all of its frames
	buf     []byte // whole frames that are not written yet, then that one: its header, still empty, and records
	start   int    // where it begins in buf
	holes   []hole // in it

	// What the present step does, so that it can be undone.
	ver    *tree.Version  // it reads this version
	was    fill           // the segment when the step began
	fresh  []*wal.Segment // segments that it has begun, seg perhaps among them
	synced []fill         // how far it has filled segments, durably
	moved  int64          // bytes of values that it has moved

	// How values are read.
	val     []byte // the last large one
	ahead   map[uint32]*stretch
	slow    bool // reads are slow
	careful bool // no holes are left: one could not be filled

	// What a sweep gives back when it ends: the log's segments with ids below old were there before the last sweep.
	old      uint32
	oldMoved int64 // bytes of keys and values moved out of them by steps that were installed
	oldNow   int64 // bytes of keys and values moved out of them by the present step

	behind vfs.Behind // of seg
}

// fill is how far a segment is filled.
type fill struct {
	seg         *wal.Segment
	at, payload int64
}

// stretch is part of a segment of moved values, read ahead: what lies there is in the order of the keys that one
// compaction moved, so the next value of it that is asked for lies near.
type stretch struct {
	off int64
	b   []byte
}

// moveAhead is how many bytes are read ahead in a segment, and mostAhead in how many segments at once.
const (
	moveAhead = 32 << 10
	mostAhead = 32
)

// near returns the value that an entry names in a segment, if it is in what was read ahead, or can be: nil otherwise.
// The sum is that of the entry, so a stretch that is damaged, or is something else by now, is never taken: the value is
// then read by the usual way, which names the damage.
func (w *mover) near(s *wal.Segment, e table.Entry) []byte {
	off, n := int64(uint32(e.Place)), int64(e.Len)
	if s == nil || s.Kind != format.SegmentMoved {
		return nil
	}
	a := w.ahead[s.ID]
	if a != nil && off >= a.off && off+n <= a.off+int64(len(a.b)) {
		if v := a.b[off-a.off:][:n]; format.Checksum(v) == e.Sum {
			return v
		}

		return nil
	}
	if n >= moveAhead/4 {
		return nil
	}

	// There is room for so many stretches. A segment that comes later is read a value at a time.
	if a == nil && len(w.ahead) < mostAhead {
		a = &stretch{}
		w.ahead[s.ID] = a
	}
	if size := min(moveAhead, s.Used.Load()-off); a != nil && size >= n {
		if b, err := s.Read(a.b[:0], off, int(size)); err == nil {
			if a.off, a.b = off, b; format.Checksum(b[:n]) == e.Sum {
				return b[:n]
			}
		}
	}

	return nil
}

// hole is room in a frame for a value that has its place there already, and is read when the frame is full. Keys put at
// random have each value in a page of its own. The processor is told of it when its place is noted, and has loaded it
// by then. Where reads are slow, those of a frame are read together, in the order of the log, with many under way at
// once, which is what makes disks fast.
type hole struct {
	off int
	e   table.Entry
}

const (
	slowRead = 5 * time.Microsecond // see DB.slowRead
	readers  = 16
	// timedReads is how many reads of each frame are timed for that, as long as they are fast.
	timedReads = 8
)

// errHole: the value of a hole cannot be read. The step is undone and done again with careful set, which finds out
// which value it is.
var errHole = errors.New("a value that was given a place cannot be read")

// readHoles reads the values of the present frame's holes.
func (w *mover) readHoles() error {
	left := w.holes
	w.holes = w.holes[:0]

	// As long as reads are fast it is done here. Only the first are timed: a goroutine that waits for a processor has made
	// no slow reads.
	if !w.slow && len(left) > 0 {
		first := left[:min(len(left), timedReads)]
		start := time.Now()
		if err := w.readEach(first); err != nil {
			return err
		}
		w.slow = time.Since(start) > time.Duration(len(first))*w.d.slowRead && !w.d.manual
		if left = left[len(first):]; !w.slow {
			return w.readEach(left)
		}
	}
	if len(left) == 0 {
		return nil
	}

	// In the order of the log, by many goroutines at once. They fill parts of one buffer that do not overlap.
	slices.SortFunc(left, func(a, b hole) int { return cmp.Compare(a.e.Place, b.e.Place) })

	var group sync.WaitGroup
	var failed atomic.Bool
	var took atomic.Int64 // by all goroutines, as above
	for part := range slices.Chunk(left, (len(left)+readers-1)/readers) {
		group.Go(func() {
			start := time.Now()
			if w.readEach(part) != nil {
				failed.Store(true)
			}
			took.Add(int64(time.Since(start)))
		})
	}
	group.Wait()
	w.slow = time.Duration(took.Load())/time.Duration(len(left)) > w.d.slowRead
	if failed.Load() {
		return errHole
	}

	return nil
}

// readEach reads the values of those holes, one after the other, and checks four at a time.
func (w *mover) readEach(holes []hole) error {
	for four := range slices.Chunk(holes, 4) {
		var values [4][]byte
		for i, h := range four {
			at, n := int64(uint32(h.e.Place)), int(h.e.Len)
			s := segmentOf(w.ver, uint32(h.e.Place>>32))
			if s == nil {
				return errHole
			}
			v, err := s.Read(w.buf[h.off:h.off:h.off+n], at, n)
			if err != nil {
				return errHole
			}
			values[i] = w.buf[h.off : h.off+n]
			copy(values[i], v) // Read mostly has put it there, but may return other memory
		}
		for i, sum := range format.Checksums(&values) {
			if i < len(four) && sum != four[i].e.Sum {
				return errHole
			}
		}
	}

	return nil
}

// moveFrame is the size in bytes at which a frame of moved values is whole.
const moveFrame = 64 << 10

// begin begins a step, which reads a version.
func (w *mover) begin(ver *tree.Version) {
	w.fresh, w.synced, w.moved, w.ver = nil, nil, 0, ver
	w.ahead = map[uint32]*stretch{}
	w.oldNow = 0
	w.was = fill{w.seg, w.at, w.payload}
}

// commit counts what was moved among the segments' used bytes, and returns the new segments. The step is installed
// next; it is called with edit held, so that no other manifest tells of what may still be undone.
func (w *mover) commit() []*wal.Segment {
	// What the step moved counts from now on. Up to here undo could take it back without anybody having seen it.
	w.oldMoved += w.oldNow
	w.ver, w.careful = nil, false
	for _, x := range w.synced {
		x.seg.Used.Store(x.at)
		x.seg.Payload.Store(x.payload)
		x.seg.Open.Store(x.seg == w.seg)
	}
	if s := w.was.seg; s != nil && s != w.seg {
		s.Open.Store(false)
	}

	return w.fresh
}

// move copies a value and returns its new place. A value that is damaged stays where it is, and so does its segment:
// it is reported, and everything else goes on.
func (w *mover) move(key []byte, e table.Entry) (uint64, error) {
	// A value is taken from what was read ahead, or left as a hole, or read now if it is large. With careful set no hole
	// is left, which finds the value that is damaged.
	var err error
	s := segmentOf(w.ver, uint32(e.Place>>32))
	value := w.near(s, e)
	late := value == nil && e.Len > 0 && e.Len < moveAhead && !w.careful
	switch {
	case late && s != nil && !w.slow:
		format.IntoCache(s.Mapped(int64(uint32(e.Place)), int(e.Len)))
	case value == nil && !late:
		if w.val, err = w.ver.Value(w.val[:0], e); err != nil {
			if errors.Is(err, holdfast.ErrCorrupt) {
				w.d.compactor.rotten(s, key, err)
				return e.Place, nil
			}

			return 0, err
		}
		value = w.val
	}

	n := int(e.Len)
	place, err := w.record(key, n)
	if err != nil {
		return 0, err
	}
	if late {
		w.holes = append(w.holes, hole{len(w.buf), e})
		w.buf = slices.Grow(w.buf, n)[:len(w.buf)+n]
	} else {
		w.buf = append(w.buf, value...)
	}

	// A sweep gives back the log that was there before the last one; how much of it has moved tells writers what will be
	// free at its end.
	if s.ID < w.old && s.Kind == format.SegmentLog || s.Flags&format.FlagFlushed != 0 {
		w.oldNow += int64(len(key) + n)
	}

	return place, w.recorded(key, n)
}

// put copies a value that is in memory, and returns its new place.
func (w *mover) put(key, value []byte) (uint64, error) {
	place, err := w.record(key, len(value))
	if err != nil {
		return 0, err
	}
	w.buf = append(w.buf, value...)

	return place, w.recorded(key, len(value))
}

// record begins the record of a value of n bytes in the present frame, of the present segment if it fits, and returns
// the value's place. The caller appends the value to the frame, and calls recorded.
func (w *mover) record(key []byte, n int) (place uint64, err error) {
	d := w.d
	size := int64(format.FrameSize(len(key) + n + 16))

	// Sixteen bytes are more than a record has besides its key and value, so the frame cannot come out longer.
	if w.seg != nil && w.at+int64(format.FrameSize(w.size()))+size > d.sizes.segment.Load() {
		if err := w.seal(); err != nil {
			return 0, err
		}
	}
	if w.seg == nil {
		if err := w.create(size); err != nil {
			return 0, err
		}
	}
	if w.size() == 0 {
		w.buf = append(w.buf, make([]byte, format.FrameHeader)...)
	}
	w.buf = append(w.buf, byte(holdfast.KindSet))
	w.buf = binary.AppendUvarint(w.buf, uint64(len(key)))
	w.buf = append(w.buf, key...)
	w.buf = binary.AppendUvarint(w.buf, uint64(n))

	// The place is final: the frame begins at w.at, and what precedes the value in it is in the buffer.
	return uint64(w.seg.ID)<<32 | uint64(w.at+int64(w.size())), nil
}

// size is how long the present frame is.
func (w *mover) size() int { return len(w.buf) - w.start }

// recorded counts a value that was added, and ends the frame if that is enough.
func (w *mover) recorded(key []byte, n int) error {
	w.payload += int64(len(key) + n)
	w.moved += int64(n)
	if w.size() < moveFrame {
		return nil
	}

	return w.endFrame()
}

// endFrame ends the present frame, if there is one, and writes what is worth it.
func (w *mover) endFrame() error {
	if w.size() == 0 {
		return nil
	}
	if err := w.readHoles(); err != nil {
		return err
	}

	// Only now is the frame whole: its checksum covers what the holes have been filled with.
	w.putFrame(format.KindBatch)

	return w.write(w.d.sizes.MoveWrite())
}

// putFrame makes what is in the buffer behind the last frame, with room for the header, a frame.
func (w *mover) putFrame(kind format.FrameKind) {
	frame := w.buf[w.start:]
	body := frame[format.FrameHeader:]

	// The number of the operation is 0, and how far the log is synced is not said: neither means anything in a segment
	// of moved values.
	format.PutFrameHeader(frame, w.seg.Epoch, kind, len(body), format.Checksum(body), 0, math.MaxUint32)
	n := format.FrameSize(len(body))
	w.buf = append(w.buf, make([]byte, n-len(frame))...)
	w.at += int64(n)
	w.start = len(w.buf)
}

// write writes whole frames up to the last multiple of least in the file that they reach.
func (w *mover) write(least int64) error {
	from := w.at - int64(w.start)
	n := int(w.at/least*least - from)
	if n <= 0 {
		return nil
	}
	if err := w.seg.Write(w.buf[:n], from); err != nil {
		return err
	}
	w.d.otherBytes.Add(int64(n))

	// What a large value has made of the buffer is not kept.
	kept := w.buf[:0]
	if cap(kept) > 2*policy.MaxMoveWrite {
		kept = nil
	}
	w.buf = append(kept, w.buf[n:]...)
	w.start -= n

	// The device is busy with what was written while the compaction goes on, and settle has less to wait for.
	w.behind.Appended(w.seg.File, from+int64(n))

	return nil
}

// create begins a segment that has room for a value of that size. It is noted in fresh before its first frame is
// written, so that undo removes it.
func (w *mover) create(size int64) error {
	d := w.d
	id, err := d.newNumber()
	if err != nil {
		return err
	}
	s, err := d.files.CreateMoved(id, w.flags, max(d.sizes.segment.Load(), format.SegmentHeaderSize+format.BeginSize+size))
	if err != nil {
		return err
	}
	w.seg, w.at, w.payload, w.fresh = s, format.SegmentHeaderSize, 0, append(w.fresh, s)
	w.behind = vfs.Behind{}

	// The begin frame says how new the values in the segment can be. That is why a compaction may take in newer tiers only
	// while no segment is open.
	w.buf = append(w.buf[:0], make([]byte, format.FrameHeader+format.BeginBody)...)
	w.start = 0
	format.Begin{Seq: w.seq}.Put(w.buf[format.FrameHeader:])
	w.putFrame(format.KindBegin)

	return nil
}

// settle makes durable what was moved, but for the names of new files.
func (w *mover) settle() error {
	if w.seg == nil {
		return nil
	}
	err := w.endFrame()
	if err == nil {
		err = w.write(1)
	}
	if err != nil {
		return err
	}

	s := w.seg

	// Nothing was added in this step, and what earlier steps added is durable.
	if s == w.was.seg && w.at == w.was.at {
		return nil
	}
	w.d.otherSyncs.Add(1)
	if err := s.File.Sync(); err != nil {
		return format.IOError("sync", s.File.Name(), err)
	}
	w.synced = append(w.synced, fill{s, w.at, w.payload})

	return nil
}

// seal completes the present segment: nothing is added to it any more. It stays open until the step is installed,
// though nothing may name it any more: what the step adds to it does.
func (w *mover) seal() error {
	if err := w.settle(); err != nil {
		return err
	}
	if s := w.seg; s != nil {
		w.seg = nil
	}

	return nil
}

// end gives up the present segment, between steps.
func (w *mover) end() {
	if w.seg != nil {
		w.seg.Open.Store(false)
		w.seg = nil
	}
}

// undo removes what this step has written.
func (w *mover) undo() {
	for _, s := range w.fresh {
		w.d.files.Undo(s)
	}

	// The segment in which the step went on stays. What the step added to it is in no manifest, and is cut off.
	w.seg, w.at, w.payload = w.was.seg, w.was.at, w.was.payload
	w.behind.Cut(w.at)
	w.buf, w.start, w.holes, w.fresh, w.synced, w.ver = w.buf[:0], 0, w.holes[:0], nil, nil, nil

	// If the manifest could not be written, commit has counted what is cut off here.
	if s := w.seg; s != nil {
		s.Open.Store(true)
		s.Used.Store(w.at)
		s.Payload.Store(w.payload)
		if err := s.File.Truncate(w.at); err != nil { // what is behind means nothing; it only takes room
			w.d.logger.Warn("cannot cut off what an abandoned compaction has written", "path", s.File.Name(), "error", err)
		}
	}
}
