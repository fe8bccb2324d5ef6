//go:build unix

package contender

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// allocated is the space a file takes on the device: less than its length where it has holes.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(st.Blocks) * 512
	}
	return info.Size()
}

// syncDir makes the entries of dir safe from power loss.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
