package db

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// Name is the engine's name, for errors.
const Name = "logtree"

// A segment is a file of frames that begins with a header, little-endian:
//
//	magic     8   "HOLDFSEG"
//	version   4
//	id        4   also the file's name
//	database 16   identity of the directory it belongs to
//	kind      4   1: of the log, 2: moved
//	flags     4   1: the whole file was written and synced before it was used
//	size      8   of the file, while the log writes to it
//	zero     12
//	sum       4   CRC32C of all before
const (
	segmentMagic   = "HOLDFSEG"
	segmentVersion = 1
	segmentHeader  = 64

	kindLog   = 1
	kindMoved = 2

	flagWritten = 1
)

// dbID tells a database's files from another's.
type dbID [16]byte

// epoch is mixed into the checksums of a segment's frames, so that what an earlier user of
// the same blocks wrote never looks valid.
func (id dbID) epoch(segment uint32) uint32 {
	return checksum(binary.LittleEndian.AppendUint32(append([]byte("epoch"), id[:]...), segment))
}

// segment is an open one. Its reference count belongs to the versions that need it and to the
// log; see release.
type segment struct {
	id    uint32
	kind  uint32
	flags uint32
	size  int64 // of the file as the header has it
	epoch uint32
	file  vfs.File
	out   []byte // writable mapping of the file, nil if writes go through the file
	unout func() error
	in    vfs.Mapping // nil where files cannot be mapped

	start   uint64       // lsn of its begin frame
	baseSeq uint64       // of the begin frame
	used    atomic.Int64 // bytes of the file that hold frames, header included
	payload atomic.Int64 // bytes of keys and values in them
	reach   atomic.Int64 // where its last far frame ends
	saved   atomic.Pointer[saved]
	torn    int64 // bytes behind them that a crash tore, as the last opening found it
	ended   bool  // its last frame names the next segment, as the last opening found it
	warmed  int64 // see warmAhead; under the database's mu
	durable bool  // its name and length are synced; only the syncing goroutine looks

	open    atomic.Bool // of moved values: a merge still adds to it
	damaged atomic.Bool // a value in it cannot be read: it is not emptied

	refs atomic.Int32
	dead atomic.Bool // to be removed, or used again, at the last release
	free func(*segment)
}

func segmentName(dir string, id uint32) string {
	return filepath.Join(dir, fmt.Sprintf("%08d.seg", id))
}

// numbered returns the number of a file's name with that extension.
func numbered(name, ext string) (uint64, bool) {
	stem, ok := strings.CutSuffix(name, ext)
	if !ok || len(stem) < 8 {
		return 0, false
	}
	n, err := strconv.ParseUint(stem, 10, 64)
	return n, err == nil && n > 0
}

func (s *segment) header(db dbID) []byte {
	h := make([]byte, segmentHeader)
	copy(h, segmentMagic)
	binary.LittleEndian.PutUint32(h[8:], segmentVersion)
	binary.LittleEndian.PutUint32(h[12:], s.id)
	copy(h[16:], db[:])
	binary.LittleEndian.PutUint32(h[32:], s.kind)
	binary.LittleEndian.PutUint32(h[36:], s.flags)
	binary.LittleEndian.PutUint64(h[40:], uint64(s.size))
	binary.LittleEndian.PutUint32(h[60:], checksum(h[:60]))
	return h
}

// parseSegmentHeader fills s from the header of file id.
func (s *segment) parseHeader(h []byte, db dbID, id uint32, name string) error {
	if len(h) < segmentHeader || string(h[:8]) != segmentMagic {
		return corrupt(name, 0, "it is no segment", nil)
	}
	if binary.LittleEndian.Uint32(h[60:]) != checksum(h[:60]) {
		return corrupt(name, 0, "the header's checksum is wrong", nil)
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != segmentVersion {
		return newer(name, v)
	}
	if dbID(h[16:32]) != db {
		return corrupt(name, 0, "it belongs to another database", nil)
	}
	if got := binary.LittleEndian.Uint32(h[12:]); got != id {
		return corrupt(name, 0, fmt.Sprintf("it is segment %d", got), nil)
	}
	s.id, s.kind, s.flags = id, binary.LittleEndian.Uint32(h[32:]), binary.LittleEndian.Uint32(h[36:])
	s.size = int64(binary.LittleEndian.Uint64(h[40:]))
	if s.kind != kindLog && s.kind != kindMoved || s.size < segmentHeader || s.size > 1<<32 {
		return corrupt(name, 0, "the header makes no sense", nil)
	}
	return nil
}

// openSegment opens segment id for reading.
func openSegment(fsys vfs.FS, dir string, db dbID, id uint32, noMap bool) (_ *segment, err error) {
	name := segmentName(dir, id)
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, corrupt(name, 0, "the file is missing", err)
	}
	if err != nil {
		return nil, ioError("open", name, err)
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	h := make([]byte, segmentHeader)
	if n, err := f.ReadAt(h, 0); n < len(h) {
		if !errors.Is(err, io.EOF) {
			return nil, ioError("read", name, err)
		}
		return nil, corrupt(name, 0, "it is too short for a header", err)
	}
	s := &segment{file: f, epoch: db.epoch(id), durable: true}
	if err := s.parseHeader(h, db, id, name); err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, ioError("open", name, err)
	}
	s.used.Store(size)
	if !noMap {
		s.mapIn(size)
	}
	s.refs.Store(1)
	return s, nil
}

// mapIn maps the file for reading where files can be mapped; elsewhere it is read by calls.
func (s *segment) mapIn(size int64) {
	if m, ok := s.file.(vfs.Mapper); ok && size > 0 {
		if in, err := m.Map(size); err == nil {
			s.in = in
		}
	}
}

func (s *segment) acquire() { s.refs.Add(1) }

// release gives up a reference. The last one closes the file and, if the segment is dead,
// hands it to free.
func (s *segment) release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	s.close()
	if s.dead.Load() {
		s.free(s)
	}
}

func (s *segment) close() {
	s.unmapOut()
	if s.in != nil {
		s.in.Unmap()
		s.in = nil
	}
	s.file.Close()
}

func (s *segment) unmapOut() {
	if s.out != nil {
		s.unout()
		s.out, s.unout = nil, nil
	}
}

// read appends n bytes at off to dst. The caller guards against memory faults.
func (s *segment) read(dst []byte, off int64, n int) ([]byte, error) {
	return s.readTo(dst, off, n, s.used.Load())
}

// readTo is read in a file of which the first end bytes hold something.
func (s *segment) readTo(dst []byte, off int64, n int, end int64) ([]byte, error) {
	if v := s.saved.Load(); v != nil && n >= 0 && off >= v.from && off+int64(n) <= v.from+int64(len(v.b)) {
		return append(dst, v.b[off-v.from:][:n]...), nil
	}
	if off < segmentHeader || n < 0 || off+int64(n) > end {
		return dst, corrupt(s.file.Name(), off, fmt.Sprintf("a value of %d bytes is not in the file", n), nil)
	}
	if s.in != nil {
		if b := s.in.Bytes(); off+int64(n) <= int64(len(b)) {
			return append(dst, b[off:off+int64(n)]...), nil
		}
	}
	old := len(dst)
	dst = grow(dst, n)[:old+n]
	if _, err := s.file.ReadAt(dst[old:], off); err != nil {
		return dst[:old], readError(s.file.Name(), off, err)
	}
	return dst, nil
}

// grow returns dst with room for n more bytes.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return append(dst, make([]byte, n)...)[:len(dst)]
}

// value appends the value of a run's entry to dst.
func (s *segment) value(dst []byte, off int64, n int, sum uint32) ([]byte, error) {
	old := len(dst)
	dst, err := s.read(dst, off, n)
	if err != nil {
		return dst, err
	}
	return s.checked(dst, old, off, sum)
}

// write writes frames at off, by a store to the mapping if that is wanted and there is one. Where it
// faults, the write call then says what is wrong.
func (s *segment) write(p []byte, off int64, store bool) error {
	if store && s.out != nil && off+int64(len(p)) <= int64(len(s.out)) {
		if guarded(func() { copy(s.out[off:], p) }) == nil {
			return nil
		}
	}
	if _, err := s.file.WriteAt(p, off); err != nil {
		return ioError("write", s.file.Name(), err)
	}
	return nil
}

func corrupt(name string, off int64, detail string, cause error) error {
	return &holdfast.Error{Op: "read", Engine: Name, Path: name, Offset: off, Class: holdfast.ErrCorrupt,
		Detail: detail, Cause: cause,
		Remedy: "restore a backup, or salvage what is intact: holdfast repair"}
}

func newer(name string, version uint32) error {
	return &holdfast.Error{Op: "open", Engine: Name, Path: name, Class: holdfast.ErrVersion,
		Detail: fmt.Sprintf("format %d", version),
		Remedy: "use the release of holdfast that wrote it, or a later one"}
}

// ioError says what was being done to which file. It has no class: the poison, or Open, says
// more.
func ioError(op, name string, err error) error {
	return &holdfast.Error{Op: op, Engine: Name, Path: name, Cause: err}
}

// readError is for a read that failed where the file should have had bytes.
func readError(name string, off int64, err error) error {
	return corrupt(name, off, "it cannot be read", err)
}
