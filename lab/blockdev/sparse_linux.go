package blockdev

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// nameless makes an empty file in dir that has no name and so is gone with its last user.
func nameless(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir+"/(nameless)"), nil
	}
	f, err := os.CreateTemp(dir, "nameless-")
	if err != nil {
		return nil, err
	}

	return f, os.Remove(f.Name())
}

// zero makes a range read as zeros, without space where the file system can.
func zero(f *os.File, off, n int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return err
	}

	blank := make([]byte, min(n, 1<<20))
	for n > 0 {
		part := blank[:min(n, int64(len(blank)))]
		if _, err := f.WriteAt(part, off); err != nil {
			return err
		}
		off += int64(len(part))
		n -= int64(len(part))
	}

	return nil
}

// copySparse copies what src holds below size to dst, which is empty, and leaves its holes out.
func copySparse(dst, src *os.File, size int64) error {
	if err := dst.Truncate(size); err != nil {
		return err
	}

	// From hole to hole: what was never written takes no space in the copy.
	for off := int64(0); off < size; {
		data, err := unix.Seek(int(src.Fd()), off, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		hole, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return os.NewSyscallError("lseek", err)
		}
		if err := copyRange(dst, data, src, data, min(hole, size)-data); err != nil {
			return err
		}
		off = hole
	}

	return nil
}

// copyRange copies n bytes through a buffer. All of them must be there: a read that ends early leaves in the buffer
// what it held before.
func copyRange(dst *os.File, to int64, src *os.File, from, n int64) error {
	buf := make([]byte, min(max(n, 0), 1<<18))
	for n > 0 {
		part := buf[:min(n, int64(len(buf)))]
		if _, err := src.ReadAt(part, from); err != nil && err != io.EOF {
			return err
		}
		if _, err := dst.WriteAt(part, to); err != nil {
			return err
		}
		to += int64(len(part))
		from += int64(len(part))
		n -= int64(len(part))
	}

	return nil
}

// fill makes dst, which is empty, a copy of the image.
func (im *Image) fill(dst *os.File) error {
	if err := copySparse(dst, im.base, im.size); err != nil {
		return err
	}
	if im.sectors == nil {
		return nil
	}

	all := im.size / Sector
	for i := int64(0); i < all; {
		source, from, n := im.run(i, all-i)
		var err error
		switch source {
		case inBase:
		case zeros:
			err = zero(dst, i*Sector, n*Sector)
		default:
			err = copyRange(dst, i*Sector, im.data, from, n*Sector)
		}
		if err != nil {
			return err
		}
		i += n
	}

	return nil
}
