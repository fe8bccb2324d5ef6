package migrate

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
)

// The format of raft-wal 0.4. All numbers are little-endian.
//
// wal-meta.db is a bolt file: its bucket wal-meta holds under m, as JSON, the list of segments; its bucket stable holds
// the stable keys. A segment is a file with a header of 32 bytes and then frames, each padded with zeros to a multiple of 8:
//
//	entry    1, 3 zeros, length (4 bytes), an encoded log
//	index    2, 3 zeros, length (4 bytes), the offset (4 bytes) of every entry of the segment; only in a sealed one
//	commit   3, 3 zeros, CRC-32C (4 bytes) of all since the end of the commit before, or since the beginning of the file
//
// Zeros follow the last commit, as the file is allocated ahead. raft-wal itself checks the sum of the last commit only, and
// only when it opens an unsealed segment; here all are checked.
const (
	walMeta       = "wal-meta.db"
	walBucket     = "wal-meta"
	walState      = "m"
	walStable     = "stable"
	walMagic      = 0x58eb6b0d
	walCodec      = 1 // BinaryCodec
	walHeader     = 32
	walFrame      = 8
	walMaxEntry   = 64 << 20 // raft-wal's own limit
	walMaxSegment = 1<<32 - 1

	chunk = 1 << 18 // bytes read at once, a multiple of walFrame

	frameEntry  = 1
	frameIndex  = 2
	frameCommit = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// walInfo is a segment as the metadata has it.
type walInfo struct {
	ID, BaseIndex, MinIndex, MaxIndex, Codec, IndexStart uint64
	CreateTime, SealTime                                 time.Time
	SizeLimit                                            uint32
}

func (w *walInfo) sealed() bool { return !w.SealTime.IsZero() }

// walSegment is a segment that has been checked.
type walSegment struct {
	walInfo
	path string
	end  int64  // behind the last commit that counts; 0 if the file is not there
	last uint64 // the last index that counts, BaseIndex-1 if there is none
}

type walSource struct {
	dir      string
	meta     *boltFile
	read     func(n int64) error // see watched
	segments []walSegment
	dropped  string // what was left out as torn, empty if nothing was
	notes    []string
}

// readState reads the list of segments.
func (w *walSource) readState() ([]walInfo, error) {
	var state []byte
	err := w.meta.walk(w.meta.buckets[walBucket], func(it boltItem) error {
		if it.bucket || string(it.key) != walState {
			return corrupt(w.meta.path, it.off, "the metadata has a key %s", quote(it.key))
		}
		state = bytes.Clone(it.value)
		return nil
	})
	if err != nil || state == nil {
		return nil, err // nil: it was made, and never opened
	}
	var s struct {
		NextSegmentID uint64
		Segments      []walInfo
	}
	d := json.NewDecoder(bytes.NewReader(state))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return nil, corrupt(w.meta.path, 0, "the list of segments: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, corrupt(w.meta.path, 0, "something follows the list of segments")
	}
	for i, seg := range s.Segments {
		bad := func(format string, args ...any) error {
			return corrupt(w.meta.path, 0, "the list of segments: segment %d from index %d: %s", seg.ID, seg.BaseIndex, fmt.Sprintf(format, args...))
		}
		switch {
		case seg.Codec != walCodec:
			return nil, &holdfast.Error{Op: "import", Path: w.dir, Class: holdfast.ErrVersion, Detail: fmt.Sprintf("segment %d has codec %d, not raft-wal's own", seg.ID, seg.Codec),
				Remedy: "copy it with the program that knows the codec"}
		case seg.ID >= s.NextSegmentID:
			return nil, bad("the next one would be %d", s.NextSegmentID)
		case seg.BaseIndex == 0 || seg.MinIndex < seg.BaseIndex:
			return nil, bad("its lowest index is %d", seg.MinIndex)
		case !seg.sealed() && (i < len(s.Segments)-1 || seg.MaxIndex != 0 || seg.IndexStart != 0):
			return nil, bad("it is not sealed, but is not the last, or has an end")
		case seg.sealed() && (seg.MaxIndex < seg.MinIndex || seg.IndexStart < walHeader):
			return nil, bad("it ends with index %d, and its offsets begin at byte %d", seg.MaxIndex, seg.IndexStart)
		case i > 0 && (seg.BaseIndex != s.Segments[i-1].MaxIndex+1 || seg.MinIndex != seg.BaseIndex):
			return nil, bad("it begins with %d, and the one before ends with %d", seg.MinIndex, s.Segments[i-1].MaxIndex)
		}
	}
	return s.Segments, nil
}

// open checks every segment. With drop, an end of the log that was not written whole is left out.
func (w *walSource) open(drop bool) error {
	infos, err := w.readState()
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, info := range infos {
		name := fmt.Sprintf("%020d-%016x.wal", info.BaseIndex, info.ID)
		named[name] = true
		seg := walSegment{walInfo: info, path: filepath.Join(w.dir, name)}
		if err := w.check(&seg, drop); err != nil {
			return err
		}
		w.segments = append(w.segments, seg)
	}
	files, err := filepath.Glob(filepath.Join(escapeGlob(w.dir), "*.wal"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if name := filepath.Base(f); !named[name] {
			w.notes = append(w.notes, name+" is not in the list of segments: it is left over from a truncation, and was not read")
		}
	}
	return nil
}

// escapeGlob makes a pattern that matches dir alone.
func escapeGlob(dir string) string {
	var s []byte
	for i := range len(dir) {
		if c := dir[i]; (c == '*' || c == '?' || c == '[' || c == '\\') && (c != '\\' || filepath.Separator != '\\') {
			s = append(s, '[', c, ']')
		} else {
			s = append(s, c)
		}
	}
	return string(s)
}

// check finds out where seg ends and reads it whole.
func (w *walSource) check(seg *walSegment, drop bool) error {
	f, err := os.Open(seg.path)
	if errors.Is(err, fs.ErrNotExist) {
		e := corrupt(seg.path, 0, "the file of the log from index %d on is not there", seg.BaseIndex)
		if !seg.sealed() {
			if drop {
				seg.last = seg.BaseIndex - 1
				w.drop(seg, e)
				return nil
			}
			e.Remedy = tornRemedy
		}
		return e
	}
	if err != nil {
		return &holdfast.Error{Op: "import", Path: seg.path, Cause: err}
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return &holdfast.Error{Op: "import", Path: seg.path, Cause: err}
	}
	return w.checkFile(watched{f, w.read}, st.Size(), seg, drop)
}

func (w *walSource) checkFile(f io.ReaderAt, size int64, seg *walSegment, drop bool) error {
	r, err := newWalReader(f, size, seg)
	if err != nil {
		return err
	}
	for {
		var typ byte
		if typ, err = r.next(false); err != nil || typ == 0 {
			break
		}
	}
	seg.end, seg.last = r.committed, r.lastCommitted
	var broken *holdfast.Error
	switch {
	case err != nil && (!errors.Is(err, holdfast.ErrCorrupt) || !errors.As(err, &broken)):
		return err // nothing is known of the file
	case err == nil: // zeros from a commit on
		if at, err := r.nonzero(r.off); err != nil {
			return err
		} else if at >= 0 {
			broken = corrupt(seg.path, at, "after index %d there is something behind the last commit", r.lastCommitted)
		}
	}
	if broken != nil && !(seg.sealed() && r.indexAt == int64(seg.IndexStart) && seg.MaxIndex <= r.lastCommitted) {
		switch later, err := r.laterCommit(r.committed, broken.Offset); {
		case err != nil:
			return err
		case later == unclear:
			broken.Detail += "; so much of what follows looks like the ends of batches that it cannot be told whether sound entries are among it"
			return broken
		case later >= 0:
			broken.Detail += fmt.Sprintf("; sound entries follow, up to byte %d", later)
			return broken
		}
		if seg.sealed() {
			return broken
		}
		if !drop {
			broken.Remedy = tornRemedy
			return broken
		}
		w.drop(seg, broken)
	}
	if seg.sealed() {
		switch {
		case r.indexAt != int64(seg.IndexStart):
			return corrupt(seg.path, int64(seg.IndexStart), "the offsets of the entries from index %d to %d are not there", seg.BaseIndex, seg.MaxIndex)
		case seg.MaxIndex > seg.last:
			return corrupt(seg.path, seg.end, "it ends after index %d, and should go to %d", seg.last, seg.MaxIndex)
		}
		seg.last = seg.MaxIndex // what follows was truncated
	}
	if seg.last+1 < seg.MinIndex {
		return corrupt(seg.path, seg.end, "it ends after index %d, and its lowest index should be %d", seg.last, seg.MinIndex)
	}
	return nil
}

// drop notes that what follows seg.last is left out, and why.
func (w *walSource) drop(seg *walSegment, why *holdfast.Error) {
	w.dropped = fmt.Sprintf("everything after index %d: %s", seg.last, why.Detail)
}

const tornRemedy = "if the machine stopped while it was written, this was never acknowledged, and raft-wal would leave it out; to leave it out here too, import with DropTorn (--drop-torn); otherwise restore it from a backup, or let the node join anew"

// walk calls do for every entry that counts, ascending.
func (w *walSource) walk(do func(int64, *raft.Log) error) error {
	for i := range w.segments {
		if seg := &w.segments[i]; seg.end > 0 {
			if err := w.walkSegment(seg, do); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walSource) walkSegment(seg *walSegment, do func(int64, *raft.Log) error) error {
	f, err := os.Open(seg.path)
	if err != nil {
		return &holdfast.Error{Op: "import", Path: seg.path, Cause: err}
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return &holdfast.Error{Op: "import", Path: seg.path, Cause: err}
	}
	return seg.walk(watched{f, w.read}, st.Size(), do)
}

func (seg *walSegment) walk(f io.ReaderAt, size int64, do func(int64, *raft.Log) error) error {
	r, err := newWalReader(f, size, seg)
	if err != nil {
		return err
	}
	var log raft.Log
	for r.off < seg.end {
		index, off := r.index+1, r.off
		wanted := index >= seg.MinIndex && index <= seg.last
		typ, err := r.next(wanted)
		if err != nil {
			return err
		}
		if typ == 0 {
			return corrupt(seg.path, off, "index %d: it has changed since it was checked", index)
		}
		if typ != frameEntry || !wanted {
			continue
		}
		if err := decodeWAL(r.payload, &log); err != nil {
			return corrupt(seg.path, off, "index %d: the entry cannot be read: %v", index, err)
		}
		if log.Index != index {
			return corrupt(seg.path, off, "index %d: the entry is that of index %d", index, log.Index)
		}
		if err := do(off, &log); err != nil {
			return err
		}
	}
	return nil
}

// walReader goes through the frames of a segment.
type walReader struct {
	f    io.ReaderAt
	path string
	size int64
	b    *bufio.Reader

	off     int64 // of the next frame
	index   uint64
	base    uint64
	sum     uint32 // since the last commit
	offsets []uint32
	indexAt int64 // where the offsets begin, if they have been met
	open    bool  // something waits for its commit
	bad     error // the header is

	committed     int64
	lastCommitted uint64
	payload       []byte
	scratch       []byte // see copying
}

func newWalReader(f io.ReaderAt, size int64, seg *walSegment) (*walReader, error) {
	r := &walReader{f: f, path: seg.path, size: size, base: seg.BaseIndex, index: seg.BaseIndex - 1, lastCommitted: seg.BaseIndex - 1}
	if r.size > walMaxSegment {
		return nil, corrupt(seg.path, 0, "it has %d bytes", r.size)
	}
	r.b = bufio.NewReaderSize(io.NewSectionReader(f, 0, r.size), int(min(chunk, r.size)))
	var want [walHeader]byte
	binary.LittleEndian.PutUint64(want[:], walMagic)
	binary.LittleEndian.PutUint64(want[8:], seg.BaseIndex)
	binary.LittleEndian.PutUint64(want[16:], seg.ID)
	binary.LittleEndian.PutUint64(want[24:], seg.Codec)
	var got [walHeader]byte
	n, err := io.ReadFull(r.b, got[:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, &holdfast.Error{Op: "import", Path: seg.path, Cause: err}
	}
	// The header is written with the first commit: a segment that was only made may have none.
	if at, err := r.nonzero(0); err != nil {
		return nil, err
	} else if at < 0 && !seg.sealed() {
		r.off = r.size
		return r, nil
	}
	if n < walHeader || got != want {
		r.bad = corrupt(seg.path, 0, "the header of the log from index %d on is not that of segment %d", seg.BaseIndex, seg.ID)
	}
	r.off, r.open = walHeader, true
	r.sum = crc32.Update(0, castagnoli, got[:])
	return r, nil
}

// next reads a frame and returns its type; 0 is the end, where zeros or nothing follow a commit. The payload of an entry
// is kept in r.payload if keep is set.
func (r *walReader) next(keep bool) (typ byte, err error) {
	var h [walFrame]byte
	bad := func(format string, args ...any) (byte, error) {
		return 0, corrupt(r.path, r.off, "index %d: %s", r.index+1, fmt.Sprintf(format, args...))
	}
	if r.bad != nil {
		return 0, r.bad
	}
	if r.off > r.size-walFrame {
		if r.open {
			return bad("the file ends before its commit")
		}
		return 0, nil
	}
	if _, err := io.ReadFull(r.b, h[:]); err != nil {
		return 0, &holdfast.Error{Op: "import", Path: r.path, Offset: r.off, Cause: err}
	}
	n := int64(binary.LittleEndian.Uint32(h[4:]))
	if h == [walFrame]byte{} {
		if r.open {
			return bad("there are zeros before its commit")
		}
		return 0, nil
	}
	if h[1]|h[2]|h[3] != 0 || h[0] == 0 || h[0] > frameCommit {
		return bad("there is no frame, but %x", h)
	}
	if h[0] == frameCommit {
		if !r.open || uint32(n) != r.sum {
			return bad("the entries up to %d, committed here, have a wrong checksum", r.index)
		}
		r.off += walFrame
		r.open, r.sum, r.committed, r.lastCommitted = false, 0, r.off, r.index
		return h[0], nil
	}
	padded := (n + walFrame - 1) &^ (walFrame - 1)
	if padded > r.size-r.off-walFrame || h[0] == frameEntry && n > walMaxEntry {
		return bad("a frame of %d bytes, in a file of %d", n, r.size)
	}
	if r.indexAt != 0 {
		return bad("there is more behind the offsets of a sealed segment")
	}
	r.sum = crc32.Update(r.sum, castagnoli, h[:])
	r.open = true
	if h[0] == frameIndex {
		return h[0], r.readIndex(n, padded)
	}
	if int64(cap(r.payload)) < padded {
		r.payload = make([]byte, padded)
	}
	r.payload = r.payload[:padded]
	if _, err := io.ReadFull(r.b, r.payload); err != nil {
		return 0, &holdfast.Error{Op: "import", Path: r.path, Offset: r.off, Cause: err}
	}
	r.sum = crc32.Update(r.sum, castagnoli, r.payload)
	r.payload = r.payload[:n]
	if !keep && padded > 1<<20 {
		r.payload = nil
	}
	r.offsets = append(r.offsets, uint32(r.off))
	r.off += walFrame + padded
	r.index++
	return h[0], nil
}

// readIndex compares the offsets in a sealed segment with those that were met.
func (r *walReader) readIndex(n, padded int64) error {
	at := r.off + walFrame
	if n != int64(len(r.offsets))*4 {
		return corrupt(r.path, r.off, "index %d: there are offsets for %d entries, and %d entries", r.index, n/4, len(r.offsets))
	}
	b := make([]byte, padded)
	if _, err := io.ReadFull(r.b, b); err != nil {
		return &holdfast.Error{Op: "import", Path: r.path, Offset: r.off, Cause: err}
	}
	r.sum = crc32.Update(r.sum, castagnoli, b)
	for i, want := range r.offsets {
		if got := binary.LittleEndian.Uint32(b[4*i:]); got != want {
			return corrupt(r.path, at+int64(4*i), "index %d: its offset should be %d, and is %d", r.base+uint64(i), want, got)
		}
	}
	r.indexAt = at
	r.off += walFrame + padded
	return nil
}

// nonzero returns the offset of the first byte from off on that is not zero, -1 if there is none.
func (r *walReader) nonzero(off int64) (int64, error) {
	b := make([]byte, min(chunk, r.size))
	for off < r.size {
		part := b[:min(int64(len(b)), r.size-off)]
		if _, err := r.f.ReadAt(part, off); err != nil {
			return 0, &holdfast.Error{Op: "import", Path: r.path, Offset: off, Cause: err}
		}
		for i, c := range part {
			if c != 0 {
				return off + int64(i), nil
			}
		}
		off += int64(len(part))
	}
	return -1, nil
}

// What laterCommit and batch return where there is no commit to return.
const (
	none    = -1 // there is none
	unclear = -2 // what is left of the budget does not suffice to tell
)

// budget is what a search for later commits may cost. In a file of batches every frame is read and every byte summed up
// twice at most, so what exceeds it are bytes that were made to look like batches, which else would cost the square
// of their number.
type budget struct {
	frames, reads, bytes int64 // headers looked at, pieces read for them, bytes summed up

	piece [1 << 12]byte
	have  []byte // what of piece was read
	at    int64  // from there
}

func newBudget(size int64) *budget {
	return &budget{frames: size/4 + 1<<16, reads: size/512 + 1<<12, bytes: 4*size + 64<<20}
}

// header returns the header of the frame at off, nil if that is over the budget.
func (l *budget) header(r *walReader, off int64) ([]byte, error) {
	if l.frames--; l.frames < 0 {
		return nil, nil
	}
	if off < l.at || off > l.at+int64(len(l.have))-walFrame {
		if l.reads--; l.reads < 0 {
			return nil, nil
		}
		l.at, l.have = off, l.piece[:min(int64(len(l.piece)), r.size-off)]
		if _, err := r.f.ReadAt(l.have, off); err != nil {
			return nil, &holdfast.Error{Op: "import", Path: r.path, Offset: off, Cause: err}
		}
	}
	return l.have[off-l.at:][:walFrame], nil
}

// laterCommit tells damage from a torn end. It looks behind what is broken, from offset from on with something wrong at
// offset at, for entries that some later commit vouches for: a batch that was written when the broken one had
// been. It returns where that commit ends, none, or unclear.
//
// An entry whose data is a sound batch itself is taken for one, so a torn batch with such an entry in it is damage
// here: what is refused wrongly can still be had otherwise, but not what is left out wrongly.
func (r *walReader) laterCommit(from, at int64) (int64, error) {
	// A batch begins behind a commit; with the commit damaged, behind the place at which the reading ended.
	from = max(from, walHeader) &^ (walFrame - 1)
	left := newBudget(r.size)
	b := make([]byte, min(chunk, r.size))
	for off := from; off < r.size; off += chunk {
		part := b[:min(int64(len(b)), r.size-off)]
		if _, err := r.f.ReadAt(part, off); err != nil {
			return 0, &holdfast.Error{Op: "import", Path: r.path, Offset: off, Cause: err}
		}
		for i := 0; i+walFrame <= len(part); i += walFrame {
			// The first four bytes of a commit never change.
			if p := off + int64(i); p == at || part[i] == frameCommit && part[i+1]|part[i+2]|part[i+3] == 0 {
				if end, err := r.batch(p+walFrame, left); err != nil || end != none {
					return end, err
				}
			}
		}
	}
	return none, nil
}

// batch returns the end of the batch that begins at off, none if there is no sound one, or unclear.
func (r *walReader) batch(off int64, left *budget) (int64, error) {
	start := off
	for off <= r.size-walFrame {
		h, err := left.header(r, off)
		if err != nil {
			return 0, err
		}
		if h == nil {
			return unclear, nil
		}
		n := int64(binary.LittleEndian.Uint32(h[4:]))
		if h[1]|h[2]|h[3] != 0 || h[0] == 0 || h[0] > frameCommit || h[0] == frameEntry && n > walMaxEntry {
			return none, nil
		}
		if h[0] != frameCommit {
			off += walFrame + (n+walFrame-1)&^(walFrame-1)
			continue
		}
		if off == start {
			return none, nil
		}
		if left.bytes -= off - start; left.bytes < 0 {
			return unclear, nil
		}
		sum := crc32.New(castagnoli)
		if _, err := io.CopyBuffer(sum, io.NewSectionReader(r.f, start, off-start), r.copying()); err != nil {
			return 0, &holdfast.Error{Op: "import", Path: r.path, Offset: start, Cause: err}
		}
		if sum.Sum32() == uint32(n) {
			return off + walFrame, nil
		}
		return none, nil
	}
	return none, nil
}

// copying returns a buffer for sums.
func (r *walReader) copying() []byte {
	if r.scratch == nil {
		r.scratch = make([]byte, chunk)
	}
	return r.scratch
}
