package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Allocate implements [File] with fallocate, which also gives room to holes below size. Ext2, ext3, network and some
// other file systems have no fallocate; there zeros are written behind the end.
func (f *osFile) Allocate(size int64) error {
	if err := f.checkSize("allocate", size); err != nil {
		return err
	}
	if size == 0 { // fallocate refuses it
		return f.lengthen(size)
	}
	err := f.call("allocate", func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.lengthen(size)
	}

	return err
}

// Datasync implements [File] with fdatasync, which writes the length too if it has changed.
func (f *osFile) Datasync() error { return f.call("datasync", unix.Fdatasync) }

var _ Prefetcher = (*osFile)(nil)

// Prefetch implements [Prefetcher] with fadvise, which reads those pages and no others.
func (f *osFile) Prefetch(off int64, n int) {
	_ = f.call("prefetch", func(fd int) error { return unix.Fadvise(fd, off, int64(n), unix.FADV_WILLNEED) })
}

var _ WriteBacker = (*osFile)(nil)

// WriteBack implements [WriteBacker] with sync_file_range, which leaves errors of the device to the next sync.
func (f *osFile) WriteBack(off, n int64) {
	_ = f.call("write back", func(fd int) error { return unix.SyncFileRange(fd, off, n, unix.SYNC_FILE_RANGE_WRITE) })
}
