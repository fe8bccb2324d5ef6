//go:build !windows

package vfs

import (
	"os"
	"syscall"
)

func rename(from, to string) error { return os.Rename(from, to) }

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
