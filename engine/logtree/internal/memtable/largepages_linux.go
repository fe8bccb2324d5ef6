package memtable

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// largePages asks for pages of 2 MiB where b lies, if the system has them only for who asks. A search in a large table
// touches memory anywhere, and the processor has to find out where each page of it is; nor is there a fault for every
// 4 KiB then. It is for memory that is used as a whole, soon, and not given back until it is used again, because all of
// a page is there once a byte of it is.
//
// The pages in which b begins and ends are asked for too: what comes next, mostly allocated behind it, is in them. They
// are the garbage collector's as all of its memory is. Nothing but speed depends on it.
func largePages(b []byte) {
	const page = 2 << 20
	from := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	to := (from + uintptr(len(b)) + page - 1) &^ (page - 1)
	from &^= page - 1

	_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_HUGEPAGE)
}
