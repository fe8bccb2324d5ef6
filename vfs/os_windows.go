package vfs

import (
	"os"

	"golang.org/x/sys/windows"
)

// rename returns when the new name is on the disk, because syncDir cannot see to that.
func rename(from, to string) error {
	f, err := windows.UTF16PtrFromString(from)
	if err == nil {
		var t *uint16
		if t, err = windows.UTF16PtrFromString(to); err == nil {
			err = windows.MoveFileEx(f, t, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
		}
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// syncDir only checks that dir is there: Windows has no call that flushes a directory.
func syncDir(dir string) error {
	_, err := osFS{}.List(dir)
	return err
}
