package vfs

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// OS returns the file system of the operating system.
//
//	            Datasync           Sync          Allocate               SyncDir         Mapper
//	Linux       fdatasync          fsync         fallocate, or longer   fsync           yes
//	macOS       F_FULLFSYNC        F_FULLFSYNC   longer                 F_FULLFSYNC     yes
//	other Unix  fsync              fsync         longer                 fsync           yes
//	Windows     FlushFileBuffers   the same      longer                 nothing         no
//
// On Windows directories cannot be flushed; Rename writes through instead, and the log of NTFS
// takes created and removed names to the disk with the next file that is flushed. There are no
// mappings there because a mapped file can be neither cut nor removed.
//
// A call that a signal interrupts is made again. New files get mode 0644 and directories 0755,
// less the umask. A symbolic link is followed.
func OS() FS { return osFS{} }

type osFS struct{}

// Create implements [FS].
func (osFS) Create(name string) (File, error) {
	return open("create", name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open implements [FS].
func (osFS) Open(name string) (File, error) { return open("open", name, os.O_RDONLY) }

// OpenWrite implements [FS].
func (osFS) OpenWrite(name string) (File, error) { return open("open", name, os.O_RDWR) }

// open opens a regular file. Whatever else stands in its place is refused, before it is read or waited for.
func open(op, name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag|nonBlocking, 0o644) // a pipe is not waited for
	if err != nil {
		return nil, err
	}

	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir(): // some systems open a directory for reading
		err = pathError(op, name, syscall.EISDIR)
	case !info.Mode().IsRegular():
		err = pathError(op, name, ErrNotRegular)
	}
	if err != nil {
		f.Close()
		return nil, err
	}

	return &osFile{f}, nil
}

// ErrNotRegular: there is a pipe, a socket or a device in the place of a file.
var ErrNotRegular = fmt.Errorf("it is no regular file: %w", fs.ErrInvalid)

// Remove implements [FS].
func (osFS) Remove(name string) error { return os.Remove(name) }

// Rename implements [FS].
func (osFS) Rename(from, to string) error { return rename(from, to) }

// Link implements [FS].
func (osFS) Link(from, to string) error { return os.Link(from, to) }

// MkdirAll implements [FS].
func (osFS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o755) }

// List implements [FS].
func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // which opens directories only: to open a pipe could take for ever
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}

	return names, nil
}

// Size implements [FS].
func (osFS) Size(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	if info.IsDir() {
		return 0, pathError("stat", name, syscall.EISDIR)
	}

	return info.Size(), nil
}

// SyncDir implements [FS].
func (osFS) SyncDir(dir string) error { return syncDir(dir) }

// osFile is an open file. It hides what else os.File can do, the file position above all.
type osFile struct{ f *os.File }

// Name implements [File].
func (f *osFile) Name() string { return f.f.Name() }

// ReadAt implements [File].
func (f *osFile) ReadAt(b []byte, off int64) (int, error) { return f.f.ReadAt(b, off) }

// WriteAt is one pwrite, and another for what a short one left.
func (f *osFile) WriteAt(b []byte, off int64) (int, error) { return f.f.WriteAt(b, off) }

// Truncate implements [File].
func (f *osFile) Truncate(size int64) error { return f.f.Truncate(size) }

// Sync is F_FULLFSYNC on macOS, FlushFileBuffers on Windows and fsync elsewhere.
func (f *osFile) Sync() error { return f.f.Sync() }

// Close implements [File].
func (f *osFile) Close() error { return f.f.Close() }

// Size implements [File].
func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}

	return info.Size(), nil
}

// lengthen is Allocate where the file system has no call for it: zeros are written, so that room is found missing here
// and not by a later write.
func (f *osFile) lengthen(size int64) error {
	at, err := f.Size()
	for err == nil && at < size {
		n := min(size-at, int64(len(zeros)))
		_, err = f.f.WriteAt(zeros[:n], at)
		at += n
	}

	return err
}

var zeros [16 << 10]byte // never changed; in one page of the system's cache, which is written as a whole

// checkSize refuses a size below 0, which systems answer differently.
func (f *osFile) checkSize(op string, size int64) error {
	if size < 0 {
		return pathError(op, f.Name(), syscall.EINVAL)
	}

	return nil
}

// pathError is the error of an operation on a name, nil if err is.
func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}

	return &fs.PathError{Op: op, Path: name, Err: err}
}
