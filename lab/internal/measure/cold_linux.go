package measure

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// CanDropPages tells whether [DropPages] works on this system.
const CanDropPages = true

// DropPages syncs each file below dir and has the system drop its pages from memory. Pages that a process has mapped
// and touched stay: nobody may have the files open.
func DropPages(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = f.Sync() // what is not written yet stays
		if err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("drop the pages of %s from memory: %w", path, err)
		}

		return nil
	})
}

// DeviceBytes is how many bytes a process has had devices read, those that were read ahead for it included, and write:
// what it changed in the system's cache, less what was truncated or removed before it was written. -1 if that is not
// known.
func DeviceBytes(pid int) (read, written int64) {
	io := contents("/proc/" + strconv.Itoa(pid) + "/io")
	number := func(name string) int64 {
		n, err := strconv.ParseInt(field(io, name), 10, 64)
		if err != nil {
			return -1
		}

		return n
	}
	read, written = number("read_bytes"), number("write_bytes")
	if cancelled := number("cancelled_write_bytes"); written >= 0 && cancelled >= 0 {
		written -= cancelled
	}

	return read, written
}
