//go:build unix

package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

var _ Mapper = (*osFile)(nil)

// Map implements [Mapper].
func (f *osFile) Map(size int64) (Mapping, error) {
	m, err := f.mapFile("map", size, unix.PROT_READ)
	if err == nil && size > 0 {
		_ = unix.Madvise(m.Bytes(), unix.MADV_RANDOM) // it is advice: without it, more is read than is touched
	}

	return m, err
}

// mapFile maps the first size bytes. They must be there: touching a page behind the end would be a fault.
func (f *osFile) mapFile(op string, size int64, protection int) (Mapping, error) {
	if err := f.checkSize(op, size); err != nil {
		return nil, err
	}

	length, err := f.Size()
	switch {
	case err != nil:
		return nil, err
	case size > length:
		return nil, pathError(op, f.Name(), fmt.Errorf("%d bytes of a file of %d: %w", size, length, io.ErrUnexpectedEOF))
	case size > math.MaxInt:
		return nil, pathError(op, f.Name(), syscall.ENOMEM)
	case size == 0:
		return &mapping{}, nil // mmap refuses it
	}
	var bytes []byte
	err = f.call(op, func(fd int) (err error) {
		bytes, err = unix.Mmap(fd, 0, int(size), protection, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, err
	}

	return &mapping{bytes: bytes}, nil
}

// mapping is a file in memory.
type mapping struct {
	mu    sync.Mutex // Unmap only
	bytes []byte
	ended bool
}

// Bytes implements [Mapping].
func (m *mapping) Bytes() []byte { return m.bytes }

// Unmap implements [Mapping]. A second call fails with fs.ErrClosed.
func (m *mapping) Unmap() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return os.ErrClosed
	}
	bytes := m.bytes
	m.bytes, m.ended = nil, true
	if len(bytes) == 0 {
		return nil
	}

	return unix.Munmap(bytes)
}

// call makes a system call on the descriptor, which cannot be closed meanwhile.
func (f *osFile) call(op string, do func(fd int) error) error {
	raw, err := f.f.SyscallConn()
	if err != nil {
		return pathError(op, f.Name(), err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			if failed = do(int(fd)); failed != unix.EINTR {
				return
			}
		}
	})
	if err != nil { // it says "use of closed file" in no form that can be tested for
		failed = fs.ErrClosed
	}

	return pathError(op, f.Name(), failed)
}
