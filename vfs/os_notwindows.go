//go:build !windows

package vfs

import (
	"os"
	"syscall"
)

// rename replaces to in one step, as POSIX says.
func rename(from, to string) error { return os.Rename(from, to) }

// syncDir makes the entries of a directory durable. What has the name and is none is refused.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	info, err := d.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return pathError("syncdir", dir, syscall.ENOTDIR)
	}

	return d.Sync()
}
