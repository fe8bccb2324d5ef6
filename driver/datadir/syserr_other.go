//go:build !windows

package datadir

// systemNoRoom reports whether err is one of the system's own codes for a full device: there are no others.
func systemNoRoom(error) bool { return false }
