package datadir

import (
	"errors"

	"golang.org/x/sys/windows"
)

// systemNoRoom reports whether err is one of the system's own codes for a full device.
func systemNoRoom(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) ||
		errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}
