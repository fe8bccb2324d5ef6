package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// Tail is what the log holds behind a manifest's position.
type Tail struct {
	End      format.Position // behind the last frame
	Segments []TailSegment   // in the order of the log
	Frames   int64           // begin and end frames included
	Batches  int64
	Synced   uint64 // an lsn up to which the log had been synced, as the manifest and the frames say
	Torn     int64  // bytes behind End of frames that a crash tore
}

// TailSegment is a segment of a [Tail].
type TailSegment struct {
	ID    uint32
	Start uint64 // lsn of its begin frame
	Base  uint64 // number of the last operation before it
	End   int64  // offset in the file behind its last frame
	Torn  int64  // bytes behind End of frames that a crash tore
	Next  uint32 // the segment that its end frame names, 0 if it has none
}

// Last is the segment that was read last.
func (t *Tail) Last() *TailSegment { return &t.Segments[len(t.Segments)-1] }

// TailVisitor is told what [ReadTail] meets, with what was read up to then, which it must not change. An error ends the
// reading. Functions that are nil are left out.
type TailVisitor struct {
	// Begin: the log begins or goes on in t.Last().
	Begin func(t *Tail) error
	// Batch has the operations of a batch frame that begins at that place; t.End is behind it. body is valid until the
	// call returns.
	Batch func(t *Tail, at format.Position, body []byte, ops int) error
	// End: all of t.Last() has been read.
	End func(t *Tail) error
}

// ReadTail reads the log of the database in dir from the manifest's position to its end. segments are the ids of all
// segments that are there. It writes nothing, takes no lock, and reads a segment at a time into memory; the log must
// not grow meanwhile.
//
// The log goes from segment to segment: a full one ends with a frame that names the next. One that was the last when
// the program stopped has none, and the next says that it goes on from there. The first place without a whole frame
// from which no segment goes on ends the log. It was torn by a crash, unless something says that it had been synced:
// the manifest, or a later frame.
//
// ErrCorrupt: what had been synced is damaged or missing, or what was read makes no sense. Errors of other classes are
// those of the file system, or of the visitor. What was read up to then is returned with every error.
func ReadTail(fsys vfs.FS, dir string, m *format.Manifest, segments []uint32, v TailVisitor) (*Tail, error) {
	r := &tailReader{fs: fsys, dir: dir, m: m, v: v, Tail: &Tail{End: m.From, Synced: m.Synced}}

	// Segments that the manifest names are in tables; all others with higher ids may be of the tail.
	old := map[uint32]bool{}

	for _, s := range m.Segments {
		old[s.ID] = true
	}

	for _, id := range segments {
		if id > m.From.Segment && !old[id] {
			r.later = append(r.later, id)
		}
	}
	slices.Sort(r.later)

	return r.Tail, r.read()
}

// tailReader is one reading. Its fields follow the log; what it has found so far is the Tail.
type tailReader struct {
	fs  vfs.FS
	dir string
	m   *format.Manifest
	v   TailVisitor
	*Tail
	later []uint32 // segments that may follow, ascending
}

// tear is where a segment's frames end without an end frame, and the bytes that follow.
type tear struct {
	name  string
	epoch uint32
	off   int64
	seq   uint32 // that a frame there should have
	rest  []byte
}

// read goes from segment to segment until none follows, and then judges the end.
func (r *tailReader) read() error {
	var torn *tear // of the segment read last
	var s *tailFile
	var err error

	// A new database has no position yet. Its log begins in the segment that follows nothing.
	if id := r.m.From.Segment; id != 0 {
		s, err = r.open(id)
	} else {
		s, err = r.next(format.Successor{})
	}

	for s != nil && err == nil {
		var named format.Successor
		named, torn, err = r.segment(s)
		if s.f.Close(); err != nil {
			return err
		}

		// Ids ascend along the log, so that those below this one follow nothing any more.
		for len(r.later) > 0 && r.later[0] <= s.ID {
			r.later = r.later[1:]
		}
		s, err = r.next(named)
	}

	switch {
	case err != nil:
		return err

	// The log has ended. Whether it was torn there, or damaged, the manifest and what lies behind must tell.
	case r.End.LSN < r.m.Synced:
		return r.endsEarly(torn)
	}

	return r.checkEnd(torn)
}

// tailFile is a segment that is open for reading.
type tailFile struct {
	TailSegment
	name  string
	f     vfs.File
	size  int64
	kind  uint32
	epoch uint32
	begin format.Begin
	begun bool // the first frame is whole
}

// open opens a segment, and reads its header and first frame.
func (r *tailReader) open(id uint32) (_ *tailFile, err error) {
	s := &tailFile{TailSegment: TailSegment{ID: id}, name: format.SegmentName(r.dir, id), epoch: r.m.DB.Epoch(id)}
	s.f, err = r.fs.Open(s.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, format.Corrupt(s.name, 0, "the file is missing", err)
	}
	if err != nil {
		return nil, format.IOError("open", s.name, err)
	}
	defer func() {
		if err != nil {
			s.f.Close()
		}
	}()
	if s.size, err = s.f.Size(); err != nil {
		return nil, format.IOError("read", s.name, err)
	}
	head := make([]byte, format.SegmentHeaderSize+format.BeginSize)
	n, err := s.f.ReadAt(head, 0)
	if n < len(head) && err != io.EOF {
		return nil, format.IOError("read", s.name, err)
	}
	h, err := format.ParseSegmentHeader(head[:n], r.m.DB, id, s.name)
	if err != nil {
		return nil, err
	}
	s.kind = h.Kind

	// A first frame that is damaged is no error yet: only the one who needs it to go on knows whether it had been synced.
	if f, ok := format.ParseFrame(head[min(n, format.SegmentHeaderSize):n], s.epoch); ok {
		s.begin, s.begun = format.ParseBegin(f)
	}

	return s, nil
}

// next opens the segment in which the log goes on from r.End, where an end frame has named one, or has not. It returns
// nil if there is none.
func (r *tailReader) next(named format.Successor) (*tailFile, error) {
	if named.ID != 0 {
		s, err := r.open(named.ID)
		if err == nil || named.Durable || !errors.Is(err, holdfast.ErrCorrupt) {
			return s, err
		}
		// It did not come to be synced; checkEnd looks at what is left of it. If the log has been opened since, it went on
		// in another one.
	}

	for _, id := range r.later {
		s, err := r.open(id)
		if errors.Is(err, holdfast.ErrCorrupt) {
			continue // checkEnd looks at it
		}

		// No end frame has named it: the log was in the segment before when the program ended. The begin frame says from
		// which place of the log it goes on, and a segment of another life names another one.
		follows := format.Begin{Seq: r.End.Seq, LSN: r.End.LSN, Prev: r.End.Segment}
		if err != nil || s.kind == format.SegmentLog && s.begun && s.begin == follows {
			return s, err
		}
		s.f.Close()
	}

	return nil, nil
}

// segment reads the frames of s. It returns the segment that the last of them names, or what follows where there is no
// whole frame.
func (r *tailReader) segment(s *tailFile) (named format.Successor, torn *tear, err error) {
	at := &r.End
	if at.Segment != s.ID || at.Offset == 0 {
		at.Segment, at.Offset = s.ID, format.SegmentHeaderSize
	}
	bad := func(off int64, detail string) (format.Successor, *tear, error) {
		return format.Successor{}, nil, format.Corrupt(s.name, off, detail, nil)
	}

	// The manifest may point into the middle of the segment, whose begin is reckoned back from there.
	s.Start, s.Base = at.LSN-uint64(at.Offset-format.SegmentHeaderSize), at.Seq
	if s.begun && at.Offset > format.SegmentHeaderSize {
		s.Base = s.begin.Seq
	}

	r.Segments = append(r.Segments, s.TailSegment)
	switch {
	// What the manifest says to be in tables must be in the file, and the begin frame must agree with it.
	case at.Offset > s.size:
		return bad(s.size, "the file has been cut short")
	case at.Offset == format.SegmentHeaderSize:
	case !s.begun:
		return bad(format.SegmentHeaderSize, "the first frame is damaged")
	case s.begin.LSN != s.Start || s.begin.Seq > at.Seq:
		return bad(format.SegmentHeaderSize, "the segment does not go with the manifest")
	}

	// The segment is read as a whole: a damaged frame is judged by what lies behind it.
	data := make([]byte, s.size-at.Offset)
	if n, err := s.f.ReadAt(data, at.Offset); n < len(data) {
		return named, nil, format.ReadError(s.name, at.Offset+int64(n), err)
	}
	if err := r.tell(r.v.Begin); err != nil {
		return named, nil, err
	}

	for named.ID == 0 {
		// The epoch tells frames of this segment from those of an earlier file in the same blocks.
		f, ok := format.ParseFrame(data, s.epoch)
		if !ok {
			torn = &tear{name: s.name, epoch: s.epoch, off: at.Offset, seq: uint32(at.Seq - s.Base), rest: data}
			break
		}

		ops := 0
		switch f.Kind {
		case format.KindBegin:
			b, ok := format.ParseBegin(f)
			if !ok || at.Offset != format.SegmentHeaderSize || b.Seq != at.Seq || b.LSN != at.LSN {
				return bad(at.Offset, "the segment does not follow the one before it")
			}
		case format.KindEnd:
			if named, ok = format.ParseEnd(f); !ok {
				return bad(at.Offset, "the last frame makes no sense")
			}
		default:
			if at.Offset == format.SegmentHeaderSize || s.Base+uint64(f.Seq) != at.Seq {
				return bad(at.Offset, "the frame does not follow the one before it")
			}
			if ops, err = format.CheckBatch(f.Body); err != nil {
				return bad(at.Offset, err.Error())
			}
			r.Batches++
		}
		r.Frames++

		// Each frame says how far the log was synced when it was made. A torn place before that is damage.
		if synced, ok := f.Synced(at.LSN); ok {
			r.Synced = max(r.Synced, synced)
		}

		// The end moves on before the visitor is told, so that it knows where the batch ends.
		began, n := *at, f.Size()
		data = data[min(n, len(data)):] // the file may have been cut in the frame's padding
		at.Offset += int64(n)
		at.LSN += uint64(n)
		at.Seq += uint64(ops)
		if ops > 0 && r.v.Batch != nil {
			if err := r.v.Batch(r.Tail, began, f.Body, ops); err != nil {
				return named, nil, err
			}
		}
	}
	last := r.Last()
	last.End, last.Next = at.Offset, named.ID
	if torn != nil {
		last.Torn = tornBytes(torn)
	}
	r.Torn = last.Torn

	return named, torn, r.tell(r.v.End)
}

// tell calls one of the visitor's functions, if it is there.
func (r *tailReader) tell(f func(*Tail) error) error {
	if f == nil {
		return nil
	}

	return f(r.Tail)
}

// tornBytes is how much of what follows the frames may be frames that a crash tore. What else is there belongs to an
// earlier life of the file.
func tornBytes(t *tear) int64 {
	b := t.rest
	if len(b) < format.FrameHeader {
		return format.Extent(b)
	}
	torn := int64(0)

	// The first frame behind the end may be torn anywhere. Its header, if it is one, says how far it would have gone.
	if word := binary.LittleEndian.Uint32(b[4:]); word != 0 {
		torn = min(int64(format.FrameSize(int(word>>2))), format.Extent(b))
	}

	for f := range t.frames() {
		torn = max(torn, int64(f.At+f.Len))
	}

	return torn
}

// frames are the whole frames somewhere behind a tear.
func (t *tear) frames() iter.Seq[format.Stretch] { return wholeFrames(t.rest, t.epoch, t.seq) }

// wholeFrames are those in b that are anywhere.
func wholeFrames(b []byte, epoch, seq uint32) iter.Seq[format.Stretch] {
	return func(yield func(format.Stretch) bool) {
		for s := range format.Stretches(b, epoch, seq) {
			if s.Kind != 0 && !yield(s) {
				return
			}
		}
	}
}

// endsEarly is the error of a log whose frames end before what the manifest says had been synced. torn is nil if it is
// not known what was there.
func (r *tailReader) endsEarly(torn *tear) error {
	n := r.m.Synced - r.End.LSN
	detail := fmt.Sprintf("the log ends %d bytes before what had been synced", n)
	if torn != nil && format.Extent(torn.rest) > 0 {
		detail = fmt.Sprintf("the frame is damaged; from it on, %d bytes of log had been synced", n)
		for f := range torn.frames() {
			detail += fmt.Sprintf(", and sound frames follow it, the first at byte %d", torn.off+int64(f.At))
			break
		}
	}

	return format.Corrupt(format.SegmentName(r.dir, max(r.End.Segment, 1)), r.End.Offset, detail, nil)
}

// checkEnd returns ErrCorrupt if something behind the end of the log says that more than was found had been synced.
func (r *tailReader) checkEnd(t *tear) error {
	if t != nil {
		// A whole frame behind the tear can have reached the disk before the torn one did, without a sync. It proves damage
		// only if it says that more than what is left had been synced.
		for f := range t.frames() {
			if synced, ok := f.Synced(r.End.LSN + uint64(f.At)); ok && synced > r.End.LSN {
				return format.Corrupt(t.name, t.off,
					fmt.Sprintf("a frame is damaged that had been synced: one at byte %d says so", t.off+int64(f.At)), nil)
			}
		}
	}

	// The same for segments that the log does not reach: their frames may say that they, or what is before them, had been
	// synced.
	for _, id := range r.later {
		name := format.SegmentName(r.dir, id)
		b, err := vfs.ReadFile(r.fs, name)
		if err != nil {
			return format.ReadError(name, 0, err)
		}
		if len(b) < format.SegmentHeaderSize {
			continue
		}
		if h, err := format.ParseSegmentHeader(b, r.m.DB, id, name); err == nil && h.Kind != format.SegmentLog {
			continue // moved values that no table came to name
		}
		r.Torn += format.Extent(b[format.SegmentHeaderSize:])

		begins, start := false, uint64(0) // where in the log, if its first frame is whole
		for f := range wholeFrames(b[format.SegmentHeaderSize:], r.m.DB.Epoch(id), 0) {
			if g, ok := format.ParseBegin(f.Frame); ok && f.At == 0 {
				begins, start = true, g.LSN
			}
			// A sync that was under way when the segment was begun is known to its later frames only.
			if synced, ok := f.Synced(start + uint64(f.At)); ok && begins && synced > r.End.LSN {
				return format.Corrupt(format.SegmentName(r.dir, max(r.End.Segment, 1)), r.End.Offset,
					fmt.Sprintf("the log ends before what segment %d says had been synced", id), nil)
			}
			if own, ok := f.Synced(uint64(f.At)); ok && own > 0 {
				return format.Corrupt(name, format.SegmentHeaderSize,
					fmt.Sprintf("a frame at byte %d says that the segment had been synced, but the log does not reach it",
						format.SegmentHeaderSize+f.At), nil)
			}
		}
	}

	return nil
}
