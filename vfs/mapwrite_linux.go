package vfs

import "golang.org/x/sys/unix"

var _ WriteMapper = (*osFile)(nil)

// MapWrite implements [WriteMapper].
func (f *osFile) MapWrite(size int64) (Mapping, error) {
	return f.mapFile("map for writing", size, unix.PROT_READ|unix.PROT_WRITE)
}
