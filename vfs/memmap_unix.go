//go:build unix

package vfs

import "golang.org/x/sys/unix"

// allocateRegion returns memory that is not the garbage collector's, so that access to it can be taken away.
func allocateRegion(size int) ([]byte, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func freeRegion(b []byte) error { return unix.Munmap(b) }

func protectRegion(b []byte, may access) error {
	return unix.Mprotect(b, [...]int{unix.PROT_NONE, unix.PROT_READ, unix.PROT_READ | unix.PROT_WRITE}[may])
}
