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

// BytesRead is how many bytes this process has had devices read, those that were read ahead for it included; -1 if that
// is not known.
func BytesRead() int64 {
	n, err := strconv.ParseInt(field(contents("/proc/self/io"), "read_bytes"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}
