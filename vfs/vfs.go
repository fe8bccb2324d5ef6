// Package vfs abstracts the files of a storage engine: the real file system ([OS]), and one in memory that can be
// crashed ([Mem]).
//
//	disk := vfs.NewMem()
//	engine, err := logtree.OpenMem(disk, "d", holdfast.Options{})
//	after := disk.Crash(rnd) // the file system as a power cut may have left it
//
// It is as narrow as an engine that writes logs and immutable files needs. Names are
// paths in the form of the operating system. All methods may be called from many
// goroutines at once unless they say otherwise.
//
// # Faults that Mem may inject
//
//   - Power cuts, between operations, in the middle of one, or of a store to a mapping: of what was not synced (writes,
//     stores, lengths, names) any part may be kept, lost or torn.
//   - Kills, which lose nothing that was written or stored.
//   - Calls that fail, short writes, and failed syncs, which drop what they should have written.
//   - Full disks.
//   - Memory that is given up: what a failed sync dropped is read again as the disk has it.
//   - Bits that rot, files that are cut short, and pages that cannot be read, all of which show in mappings too, the
//     last two as memory faults.
//
// The comment of [Mem] says how far each goes, and what real disks may do beyond it.
package vfs

import "io"

// FS is a file system. Errors are those of package os: test for them with errors.Is and
// fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC.
type FS interface {
	// Create makes a new file, open for reading and writing. It fails with fs.ErrExist
	// if the name is taken.
	Create(name string) (File, error)
	// Open opens a file for reading.
	Open(name string) (File, error)
	// OpenWrite opens a file that exists for reading and writing.
	OpenWrite(name string) (File, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// Rename gives a file another name, atomically replacing a file of that name.
	Rename(from, to string) error
	// Link gives a file another name, which may be in another directory of the same file system: a hard link. Both names
	// are the same file, until one of them is removed or replaced. It fails with fs.ErrExist if the name is taken, and
	// with another error where there are no links, or too many of the file.
	Link(from, to string) error
	// MkdirAll makes a directory and its missing parents.
	MkdirAll(dir string) error
	// List returns the names of a directory's entries, sorted.
	List(dir string) ([]string, error)
	// Size returns a file's length in bytes.
	Size(name string) (int64, error)
	// SyncDir makes the entries of a directory durable: what was created, linked, renamed and removed
	// in it before the call.
	SyncDir(dir string) error
	// Free returns how many bytes can still be written in a directory, about; math.MaxInt64 where that
	// is not known or not limited.
	Free(dir string) int64
}

// File is an open file. Reads and writes name their place; there is no file position.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Name is the name the file was opened with.
	Name() string
	// Size returns the file's length in bytes.
	Size() (int64, error)
	// Truncate sets the file's length. New bytes read as zeros.
	Truncate(size int64) error
	// Allocate reserves room on the device up to size and makes the file at least that long, new
	// bytes reading as zeros. Where the file system can do no such thing, zeros are written behind the file's end, which
	// takes as long; holes below it then have no room, and a later write there may still find the disk full.
	Allocate(size int64) error
	// Datasync makes the contents durable, with what of the metadata is needed to read them
	// back (the length), but not the file's name: see SyncDir. The file must be open for writing: Windows
	// refuses to flush another.
	Datasync() error
	// Sync is Datasync, with all metadata.
	Sync() error
}

// Mapper is a File whose contents can be mapped into memory for reading. A read error of the
// device, or a file cut short, then shows as a memory fault where the page is touched: see
// debug.SetPanicOnFault.
type Mapper interface {
	// Map maps the first size bytes, which must be there. What is written to the file later
	// shows in the mapping. The mapping outlives the file's Close. It is for reading here and there: a page that is
	// not in memory is read alone, without those that follow.
	Map(size int64) (Mapping, error)
}

// Prefetcher is a File that can begin to read before the bytes are asked for.
type Prefetcher interface {
	// Prefetch has the n bytes at off read into the system's cache, and does not wait for it. It is advice, and says
	// nothing of errors: a read does.
	Prefetch(off int64, n int)
}

// WriteBacker is a File whose bytes the system can begin to write to the device before they are synced, so that the
// sync has less to wait for.
type WriteBacker interface {
	// WriteBack has the n bytes at off written, and does not wait until they are. It is advice, makes nothing durable, and
	// says nothing of errors: a sync does.
	WriteBack(off, n int64)
}

// Behind has a file that is appended to written to the device while more is appended. The zero Behind is for a new one.
type Behind struct {
	begun int64 // up to here the system has begun to write it
}

// behindEvery is how many bytes are appended before the system is to begin to write them.
const behindEvery = 1 << 20

// Appended is called when the file has been written up to a size.
func (b *Behind) Appended(f File, size int64) {
	if w, ok := f.(WriteBacker); ok && size-b.begun >= behindEvery {
		w.WriteBack(b.begun, size-b.begun)
		b.begun = size
	}
}

// Cut is called when the file has been cut off at a size.
func (b *Behind) Cut(size int64) { b.begun = min(b.begun, size) }

// Mapping is a file's bytes in memory. They must not be written to, unless they come from
// [WriteMapper].
type Mapping interface {
	Bytes() []byte
	// Unmap ends the mapping; the bytes must not be touched any more.
	Unmap() error
}

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
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
