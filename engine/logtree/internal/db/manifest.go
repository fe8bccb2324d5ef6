package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/holdfastdb/holdfast/vfs"
)

// The manifest says which runs are alive, in which tiers, and from which position on the log holds what they do
// not. It is replaced as a whole: written under another name, synced, renamed, and the directory synced.
// Little-endian:
//
//	magic     8   "HOLDFMAN"
//	version   4
//	length    4   of the body
//	sum       4   CRC32C of magic, version, length and body
//	body          uvarints, and strings with their length as uvarint before them
//
// and the body
//
//	database (16 bytes)
//	next file number, next tier number
//	position: segment, offset, lsn, seq
//	synced: an lsn that the log reached before the manifest was written
//	number of tiers, newest first, of each
//	    id, number of refs, of each
//	        run number, lo, hi
//	number of segments that the log has left behind, moved ones included, of each
//	    id, bytes of the file that hold frames, bytes of keys and values in them
const (
	manifestName    = "MANIFEST"
	manifestMagic   = "HOLDFMAN"
	manifestVersion = 1
	manifestHeader  = 20
)

// manifest is the decoded form.
type manifest struct {
	db       dbID
	nextFile uint64
	nextTier uint64
	from     position
	synced   uint64
	tiers    []manifestTier
	segs     []manifestSegment
}

type manifestTier struct {
	id   uint64
	refs []manifestRef
}

type manifestRef struct {
	run    uint64
	lo, hi []byte
}

type manifestSegment struct {
	id      uint32
	size    int64
	payload int64
}

func (m *manifest) encode() []byte {
	b := make([]byte, manifestHeader, 1024)
	put := func(n uint64) { b = binary.AppendUvarint(b, n) }
	str := func(s []byte) { put(uint64(len(s))); b = append(b, s...) }
	b = append(b, m.db[:]...)
	put(m.nextFile)
	put(m.nextTier)
	put(uint64(m.from.seg))
	put(uint64(m.from.off))
	put(m.from.lsn)
	put(m.from.seq)
	put(m.synced)
	put(uint64(len(m.tiers)))
	for _, t := range m.tiers {
		put(t.id)
		put(uint64(len(t.refs)))
		for _, r := range t.refs {
			put(r.run)
			str(r.lo)
			str(r.hi)
		}
	}
	put(uint64(len(m.segs)))
	for _, s := range m.segs {
		put(uint64(s.id))
		put(uint64(s.size))
		put(uint64(s.payload))
	}
	copy(b, manifestMagic)
	binary.LittleEndian.PutUint32(b[8:], manifestVersion)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(b)-manifestHeader))
	sum := crcUpdate(checksum(b[:16]), b[manifestHeader:])
	binary.LittleEndian.PutUint32(b[16:], sum)
	return b
}

// decodeManifest is the inverse of encode; name is for errors.
func decodeManifest(b []byte, name string) (*manifest, error) {
	if len(b) < manifestHeader || string(b[:8]) != manifestMagic {
		return nil, corrupt(name, 0, "it is no manifest", nil)
	}
	body := b[manifestHeader:]
	if crcUpdate(checksum(b[:16]), body) != binary.LittleEndian.Uint32(b[16:]) ||
		uint32(len(body)) != binary.LittleEndian.Uint32(b[12:]) {
		return nil, corrupt(name, 0, "the checksum is wrong", nil)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != manifestVersion {
		return nil, newer(name, v)
	}
	bad := func() (*manifest, error) {
		return nil, corrupt(name, int64(len(b)-len(body)), "the contents make no sense", nil)
	}
	ok := true
	num := func() uint64 {
		n, w := binary.Uvarint(body)
		if w <= 0 {
			ok, body = false, nil
			return 0
		}
		body = body[w:]
		return n
	}
	str := func() []byte {
		n := num()
		if n > uint64(len(body)) {
			ok, body = false, nil
			return nil
		}
		s := bytes.Clone(body[:n])
		body = body[n:]
		return s
	}
	m := &manifest{}
	if len(body) < len(m.db) {
		return bad()
	}
	body = body[copy(m.db[:], body):]
	m.nextFile, m.nextTier = num(), num()
	m.from = position{seg: uint32(num()), off: int64(num()), lsn: num(), seq: num()}
	m.synced = num()
	for n := num(); n > 0 && ok; n-- {
		t := manifestTier{id: num()}
		for k := num(); k > 0 && ok; k-- {
			t.refs = append(t.refs, manifestRef{run: num(), lo: str(), hi: str()})
		}
		m.tiers = append(m.tiers, t)
	}
	for n := num(); n > 0 && ok; n-- {
		m.segs = append(m.segs, manifestSegment{id: uint32(num()), size: int64(num()), payload: int64(num())})
	}
	if !ok || len(body) > 0 {
		return bad()
	}
	return m, nil
}

// readManifest returns nil if there is none.
func readManifest(fsys vfs.FS, dir string) (*manifest, error) {
	name := filepath.Join(dir, manifestName)
	b, err := readFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, ioError("open", name, err)
	}
	return decodeManifest(b, name)
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err == io.EOF && n == len(b) {
		err = nil
	}
	return b[:n], err
}

// writeManifest replaces the manifest durably. Unless the error is fatal the old one is still there.
func writeManifest(fsys vfs.FS, dir string, m *manifest) error {
	name := filepath.Join(dir, manifestName)
	temp := name + ".new"
	if err := writeFile(fsys, temp, m.encode()); err != nil {
		fsys.Remove(temp) // it may take the room that is missing
		return ioError("write", temp, err)
	}
	if err := fsys.Rename(temp, name); err != nil {
		return &fatal{ioError("rename", temp, err)}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return &fatal{ioError("sync", dir, err)}
	}
	return nil
}

// writeFile writes a file of its own and syncs it, replacing an unfinished one.
func writeFile(fsys vfs.FS, name string, b []byte) (err error) {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if n, err := f.WriteAt(b, 0); err != nil {
		return fmt.Errorf("after %d bytes: %w", n, err)
	}
	return f.Sync()
}
