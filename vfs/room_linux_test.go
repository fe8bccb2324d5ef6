package vfs

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// taken returns the bytes that a file takes on the disk; supported is false where fallocate is not.
func taken(t *testing.T, name string) (bytes int64, supported bool) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, 1); err == unix.EOPNOTSUPP {
		return 0, false
	}
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	return st.Blocks * 512, true
}
