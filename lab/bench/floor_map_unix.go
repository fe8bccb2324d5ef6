//go:build unix

package bench

import (
	"os"

	"golang.org/x/sys/unix"
)

// canMap is true where floor-map is measured.
const canMap = true

// mapFile maps the first bytes of a file for writing.
func mapFile(f *os.File, size int64) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unmapFile(b []byte) error { return unix.Munmap(b) }
