package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/vfs"
)

// Segment is an open one. Its reference count belongs to the versions and memtables that need it, and to the database;
// the last Release closes it. Values are read from many goroutines at once; its file is written by one at a time.
//
// File, Start and BaseSeq are set before others can see the segment, Torn and Ended by the opening that finds them.
// File is used by those who write; once that is over (Share), it may be closed at any time.
type Segment struct {
	format.SegmentHeader
	File    vfs.File
	Epoch   uint32
	Start   uint64       // lsn of its begin frame
	BaseSeq uint64       // of the begin frame
	Used    atomic.Int64 // bytes of the file that hold frames, header included
	Payload atomic.Int64 // bytes of keys and values in them
	Torn    int64        // bytes behind them that a crash tore, as the last opening found it
	Ended   bool         // its last frame names the next segment, as the last opening found it

	Open    atomic.Bool // of moved values: a compaction still adds to it
	Damaged atomic.Bool // a value in it cannot be read: it is not emptied
	Dead    atomic.Bool // Free is to be called at the last release

	out     []byte // writable mapping of the file, nil if writes go through the file
	unout   func() error
	read    atomic.Pointer[files.File]  // see Share; reads go through it then
	in      atomic.Pointer[vfs.Mapping] // nil: it is not mapped, or cannot be
	reach   atomic.Int64                // where its last large batch ends
	saved   atomic.Pointer[saved]       // of it, once the log has failed
	recent  atomic.Pointer[recent]      // nil until it is read
	durable bool                        // its name and length are synced; only the syncing goroutine looks

	refs  atomic.Int32
	files *Files
}

// saved is a stretch of a segment's file as it was when the log failed.
type saved struct {
	from int64
	b    []byte
}

// Files opens, makes and removes segments of a directory. Its methods may be called from many goroutines at once.
type Files struct {
	FS     vfs.FS
	Set    *files.Set // of segments that are shared
	Dir    string
	DB     format.DatabaseID
	NoMap  bool // read and write by file calls even where files can be mapped
	Logger *slog.Logger
	Stop   <-chan struct{} // filling with zeros ends when it is closed

	// Free is called, with any lock held, when the last reference to a dead segment is gone and its file closed.
	Free func(*Segment)

	Syncs, Bytes atomic.Int64 // synced and written, but for what the log does
	mapped       atomic.Int64 // segments
}

// mostMapped is how many segments are mapped at a time. The system has a limit for a process, often 65,530, behind
// which the program itself gets no memory. Others are read by calls.
const mostMapped = 4096

// Open opens segment id for reading, shared, with one reference. Used is the file's length. ErrCorrupt: it is missing,
// or its header is damaged.
func (f *Files) Open(id uint32) (_ *Segment, err error) {
	name := format.SegmentName(f.Dir, id)
	file, err := f.Set.Open(f.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, format.Corrupt(name, 0, "the file is missing", err)
	}
	if err != nil {
		return nil, format.IOError("open", name, err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	head, err := f.header(file, id)
	if err != nil {
		return nil, err
	}
	s := f.segment(head, file)
	s.durable = true
	size, err := file.Size()
	if err != nil {
		return nil, format.IOError("open", name, err)
	}
	s.Used.Store(size)
	s.Share()

	return s, nil
}

// header reads the header of segment id.
func (f *Files) header(file vfs.File, id uint32) (head format.SegmentHeader, err error) {
	h, name := make([]byte, format.SegmentHeaderSize), format.SegmentName(f.Dir, id)
	if n, err := file.ReadAt(h, 0); n < len(h) {
		if !errors.Is(err, io.EOF) {
			return head, format.IOError("read", name, err)
		}

		return head, format.Corrupt(name, 0, "it is too short for a header", err)
	}

	return format.ParseSegmentHeader(h, f.DB, id, name)
}

// Share says that nobody writes to the segment any more: its file may be closed when too many are open, and is opened
// again when it is read. Called once, by the one who knows.
func (s *Segment) Share() {
	f := s.files
	s.read.Store(f.Set.Add(f.FS, s.File.Name(), s.File, func(file vfs.File) error {
		_, err := f.header(file, s.ID)
		return err
	}))
}

// Reading returns a segment with that file, of which size bytes are used, to be opened when it is read, whatever its
// header says.
func (f *Files) Reading(head format.SegmentHeader, name string, size int64) *Segment {
	s := &Segment{SegmentHeader: head, files: f}
	s.Used.Store(size)
	s.read.Store(f.Set.Later(f.FS, name))

	return s
}

// Shared reports whether Share was called.
func (s *Segment) Shared() bool { return s.read.Load() != nil }

// segment returns one for that file with a reference, in which only the header is used.
func (f *Files) segment(head format.SegmentHeader, file vfs.File) *Segment {
	s := &Segment{SegmentHeader: head, File: file, Epoch: f.DB.Epoch(head.ID), files: f}
	s.refs.Store(1)
	s.Used.Store(format.SegmentHeaderSize)

	return s
}

// create makes the file of a segment.
func (f *Files) create(head format.SegmentHeader) (*Segment, error) {
	name := format.SegmentName(f.Dir, head.ID)
	if err := f.FS.Remove(name); err == nil {
		f.Logger.Warn("removed a file in the way of a new segment", "path", name)
	}
	file, err := f.FS.Create(name)
	if err != nil {
		return nil, format.IOError("create", name, err)
	}

	return f.segment(head, file), nil
}

// Create makes a segment of the log of that size, with one reference; its name and length become durable with the
// first sync, or by Settle. With zeros it is filled with them: all its blocks are then on the device, and a commit
// that is synced to it changes no metadata of the file system. It fails if there is no room for left more bytes, and
// with ErrStopped. After an error nothing is left of it.
func (f *Files) Create(id uint32, size, left int64, zeros bool) (_ *Segment, err error) {
	s, err := f.create(format.SegmentHeader{ID: id, Kind: format.SegmentLog, Size: size})
	if err != nil {
		return nil, err
	}

	defer func() {
		if err != nil {
			f.Undo(s)
		}
	}()

	// More is allocated than is kept, so that the segment is made only where left bytes remain for others. What is known
	// not to be there is not asked for: an allocation that fails has taken all the room for a moment. Where nothing is to
	// be left, for deletes, it is tried whatever the file system says of itself.
	if err = syscall.ENOSPC; left == 0 || f.FS.Free(f.Dir) >= size+left {
		err = s.File.Allocate(size + left)
	}
	if err == nil && left > 0 {
		err = s.File.Truncate(size)
	}
	if err != nil {
		return nil, format.IOError("allocate", s.File.Name(), err)
	}
	if zeros {
		s.Flags = format.FlagWritten
		if err := f.fill(s); err != nil {
			return nil, err
		}
	}

	// The header is written after the zeros, whose flag it has.
	if _, err := s.File.WriteAt(s.Encode(f.DB), 0); err != nil {
		return nil, format.IOError("write", s.File.Name(), err)
	}
	if f.NoMap {
		return s, nil
	}

	// One mapping to read and one to write: that for writing goes when the segment is full.
	s.MapIn(s.File, size)
	if m, ok := s.File.(vfs.WriteMapper); ok {
		// Without the mapping, writes go through the file.
		if out, err := m.MapWrite(size); err == nil {
			s.out, s.unout = out.Bytes(), out.Unmap
		}
	}

	return s, nil
}

// fill fills a new segment's file with zeros. What has been written is synced every fillSync bytes, so that a commit
// seldom finds the device busy with much else.
func (f *Files) fill(s *Segment) error {
	for at := int64(0); at < s.Size; at += int64(len(zeros)) {
		select {
		case <-f.Stop:
			return ErrStopped
		default:
		}
		if _, err := s.File.WriteAt(zeros[:min(int64(len(zeros)), s.Size-at)], at); err != nil {
			return format.IOError("write", s.File.Name(), err)
		}
		if at > 0 && at%fillSync == 0 {
			f.Syncs.Add(1)
			if err := s.File.Datasync(); err != nil {
				return format.IOError("sync", s.File.Name(), err)
			}
		}
	}
	f.Bytes.Add(s.Size)

	return nil
}

// ErrStopped is the error of a segment that was not made because [Files].Stop was closed.
var ErrStopped = errors.New("closing")

// zeros are what one write call fills with. It makes one page of the system's cache where pages may be large, as on
// ext4 since Linux 6.16, and one store to the mapping makes all of that dirty: the next sync writes it.
var zeros [16 << 10]byte

const fillSync = 8 << 20

// CreateMoved makes a segment of moved values, of that size at most and with those flags, with one reference. It is
// open, not mapped, and takes no room yet. After an error nothing is left of it.
func (f *Files) CreateMoved(id, flags uint32, size int64) (*Segment, error) {
	s, err := f.create(format.SegmentHeader{ID: id, Kind: format.SegmentMoved, Flags: flags, Size: size})
	if err != nil {
		return nil, err
	}
	s.Open.Store(true)
	if _, err := s.File.WriteAt(s.Encode(f.DB), 0); err != nil {
		f.Undo(s)
		return nil, format.IOError("write", s.File.Name(), err)
	}

	return s, nil
}

// Settle makes a new segment and its name durable.
func (f *Files) Settle(s *Segment) error {
	f.Syncs.Add(2)
	return s.settle(f.FS, f.Dir)
}

// settle syncs the file and then the directory, so that a name which survives leads to a whole file.
func (s *Segment) settle(fsys vfs.FS, dir string) error {
	if err := s.File.Sync(); err != nil {
		return format.IOError("sync", s.File.Name(), err)
	}
	if err := fsys.SyncDir(dir); err != nil {
		return format.IOError("sync", dir, err)
	}
	s.durable = true

	return nil
}

// Undo closes and removes a segment that could not be completed, or is not needed, whatever its references.
func (f *Files) Undo(s *Segment) {
	s.Close()
	f.Remove(s.File.Name())
}

// Remove removes a file that is not needed. If it stays, opening the database removes it.
func (f *Files) Remove(name string) {
	if err := f.FS.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.Logger.Warn("cannot remove a file that is not needed", "path", name, "error", err)
	}
}

// MapIn maps the file's first bytes for reading where files can be mapped; elsewhere, and where too many are, it is
// read by calls. Of several calls the first that maps something counts.
func (s *Segment) MapIn(file vfs.File, size int64) {
	m, ok := file.(vfs.Mapper)
	if !ok || size <= 0 {
		return
	}

	// The count is taken before the mapping, and given back if nothing comes of it: many goroutines at once stay below the
	// limit.
	if s.files.mapped.Add(1) > mostMapped {
		s.files.mapped.Add(-1)
		return
	}
	in, err := m.Map(size)
	if err == nil && s.in.CompareAndSwap(nil, &in) {
		return
	}
	if err == nil {
		_ = in.Unmap() // another goroutine was faster
	}
	s.files.mapped.Add(-1)
}

// mapShared maps a segment that is shared, when it is read first.
func (s *Segment) mapShared(f *files.File) {
	if !s.files.NoMap && s.files.mapped.Load() < mostMapped {
		_ = f.With(func(file vfs.File) error {
			s.MapIn(file, s.Used.Load())
			return nil
		})
	}
}

// name is the file's, for errors.
func (s *Segment) name() string {
	if s.File == nil {
		return format.SegmentName(s.files.Dir, s.ID)
	}

	return s.File.Name()
}

// Acquire adds a reference, for a caller that knows of one.
func (s *Segment) Acquire() { s.refs.Add(1) }

// Release gives up a reference. The last one closes the file and, if the segment is dead, calls [Files.Free].
func (s *Segment) Release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	s.Close()

	// Dead was set before the owner gave up its reference, so that the last to let go sees it.
	if s.Dead.Load() {
		s.files.Free(s)
	}
}

// Drop gives up a segment that is not needed, with its file.
func (s *Segment) Drop() {
	s.Dead.Store(true)
	s.Release()
}

// Close closes the file, whatever its references.
func (s *Segment) Close() {
	// The caller says that nobody reads through the mappings that go here.
	s.unmapOut()
	if in := s.in.Swap(nil); in != nil {
		_ = (*in).Unmap()
		s.files.mapped.Add(-1)
	}
	if f := s.read.Load(); f != nil {
		_ = f.Close() // nothing was written through it
		return
	}
	s.File.Close()
}

// unmapOut gives up the mapping for writing. Only the one who writes, or closes, calls it.
func (s *Segment) unmapOut() {
	if s.out != nil {
		s.unout()
		s.out, s.unout = nil, nil
	}
}

// Filled is how many bytes of the file hold frames, its header included.
func (s *Segment) Filled() int64 { return s.Used.Load() }

// Read appends n bytes at off to dst, which must lie in what is used. ErrCorrupt: there are no such bytes, or they
// cannot be read.
func (s *Segment) Read(dst []byte, off int64, n int) ([]byte, error) {
	return s.readTo(dst, off, n, s.Used.Load())
}

// Mapped returns the n bytes at off in the segment's mapping, which may fault when they are touched and may change: see
// [format.Guarded]. It returns nil if they had better be read by [Segment.Read]: not mapped, or perhaps not in memory.
func (s *Segment) Mapped(off int64, n int) []byte {
	// A segment whose log has failed is read from what was saved, so no mapping is given out.
	m := s.in.Load()
	if m == nil || n <= 0 || n >= recentLimit || off < format.SegmentHeaderSize || off+int64(n) > s.Used.Load() ||
		s.saved.Load() != nil {
		return nil
	}
	if in := (*m).Bytes(); off+int64(n) <= int64(len(in)) && s.recent.Load().has(off, n) {
		return in[off:][:n:n]
	}

	return nil
}

// Prefetch has the n bytes at off read soon, where the system can do that, and does not wait for it.
func (s *Segment) Prefetch(off int64, n int) {
	prefetch := func(file vfs.File) error {
		if f, ok := file.(vfs.Prefetcher); ok && off >= 0 && n > 0 {
			f.Prefetch(off, n)
		}

		return nil
	}
	if f := s.read.Load(); f != nil {
		_ = f.With(prefetch) // a file that cannot be opened is an error of the read that follows
	} else {
		_ = prefetch(s.File)
	}
}

// readTo is Read in a file of which the first end bytes hold something.
func (s *Segment) readTo(dst []byte, off int64, n int, end int64) ([]byte, error) {
	// First what was saved when the log failed: the file may not have it any more.
	if v := s.saved.Load(); v != nil && n >= 0 && off >= v.from && off+int64(n) <= v.from+int64(len(v.b)) {
		return append(dst, v.b[off-v.from:][:n]...), nil
	}
	if off < format.SegmentHeaderSize || n < 0 || off+int64(n) > end {
		return dst, format.Corrupt(s.name(), off, fmt.Sprintf("a value of %d bytes is not in the file", n), nil)
	}

	// Then the mapping, if calls have read these pages lately: they are in memory.
	var in []byte
	if m := s.in.Load(); m != nil && n > 0 && n < recentLimit {
		in = (*m).Bytes()
	}
	mapped := off+int64(n) <= int64(len(in))
	if mapped && s.recent.Load().has(off, n) {
		out := dst
		if format.Guarded(func() { out = append(out, in[off:off+int64(n)]...) }) == nil {
			return out, nil
		} // the read call says what is wrong
	}

	// And otherwise a read call, which is noted, so that the next read of the same pages is a copy.
	old := len(dst)
	if cap(dst)-old < n {
		dst = append(dst, make([]byte, n)...)
	}
	dst = dst[:old+n]
	if err := s.call(dst[old:], off); err != nil {
		return dst[:old], err
	}
	if mapped {
		s.note(off, n, len(in))
	} else if f := s.read.Load(); f != nil && n > 0 && n < recentLimit && s.in.Load() == nil {
		s.mapShared(f)
	}

	return dst, nil
}

// call reads by a read call.
func (s *Segment) call(b []byte, off int64) (err error) {
	f := s.read.Load()
	if f == nil {
		if _, err = s.File.ReadAt(b, off); err == nil {
			return nil
		}
		// If it was shared meanwhile, its file may have been closed.
		if f = s.read.Load(); f == nil {
			return format.ReadError(s.name(), off, err)
		}
	}

	// From here on the file belongs to the set of those that are open. It is opened again if it was closed, which may fail
	// for reasons that say nothing about the data.
	opened := false
	err = f.With(func(file vfs.File) error {
		opened = true
		_, err := file.ReadAt(b, off)

		return err
	})
	switch {
	case err == nil || !opened && errors.Is(err, holdfast.ErrCorrupt):
		return err
	case opened:
		return format.ReadError(s.name(), off, err)
	case errors.Is(err, fs.ErrNotExist):
		return format.Corrupt(s.name(), 0, "the file is missing", err)
	}

	return format.IOError("open", s.name(), err) // most likely it passes
}

// Value appends the value of n bytes at off to dst, if it has that checksum; ErrCorrupt otherwise. It must lie in what
// is used.
func (s *Segment) Value(dst []byte, off int64, n int, sum uint32) ([]byte, error) {
	return s.value(dst, off, n, sum, s.Used.Load())
}

// Unflushed is [Segment.Value] for a value of a large batch that no table names yet: Used may not have come to
// it.
func (s *Segment) Unflushed(dst []byte, off int64, n int, sum uint32) ([]byte, error) {
	return s.value(dst, off, n, sum, s.Size)
}

// value is Value in a file of which the first end bytes may hold something.
func (s *Segment) value(dst []byte, off int64, n int, sum uint32, end int64) ([]byte, error) {
	old := len(dst)
	dst, err := s.readTo(dst, off, n, end)
	if err == nil && format.Checksum(dst[old:]) != sum {
		return dst[:old], format.Corrupt(s.name(), off, fmt.Sprintf("the checksum of a value of %d bytes is wrong", n),
			nil)
	}

	return dst, err
}

// Write writes frames at off by a write call.
func (s *Segment) Write(p []byte, off int64) error {
	if _, err := s.File.WriteAt(p, off); err != nil {
		return format.IOError("write", s.name(), err)
	}

	return nil
}

// store is Write by a store to the mapping, if there is one. Where it faults, the write call then says what is wrong.
func (s *Segment) store(p []byte, off int64) error {
	if s.out != nil && off+int64(len(p)) <= int64(len(s.out)) {
		if format.Guarded(func() { copy(s.out[off:], p) }) == nil {
			return nil
		}
	}

	return s.Write(p, off)
}

// save keeps a copy of the large batches that lie behind the lsn synced. What cannot be read is read again, and
// checked, when it is asked for.
func (s *Segment) save(synced uint64) {
	// All behind what is synced, up to the end of the last large batch. Small batches in it are in memory too; one piece
	// is simpler.
	from, to := int64(format.SegmentHeaderSize), s.reach.Load()
	if synced > s.Start {
		from += int64(synced - s.Start)
	}
	if from >= to || s.saved.Load() != nil {
		return
	}

	b := make([]byte, to-from)
	n, _ := s.File.ReadAt(b, from)
	s.saved.Store(&saved{from, b[:n]})
}

// Pinned is one moment of an open database, whose files stay until who has it gives it back.
type Pinned struct {
	FS       vfs.FS
	Dir      string
	Manifest *format.Manifest         // of the tables then
	Log      []format.ManifestSegment // that the log was in from the manifest's position on, with how far it went
	End      format.Position          // of the log
	Growing  map[uint32]bool          // the segments that may grow: the log's last, and those that a compaction adds to
}
