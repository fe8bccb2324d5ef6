package datadir

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// quick tells whether a name still leads to a file, without allocating.
type quick struct {
	name *byte // ends with a zero byte
	file unix.Statx_t
}

// newQuick notes the file's numbers. If the kernel cannot tell them, same is always false, and Check looks in the
// ordinary way.
func newQuick(name string, f *os.File) (q quick) {
	var err error
	if q.name, err = unix.BytePtrFromString(name); err == nil {
		err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO, &q.file)
	}
	if err != nil { // not on this kernel
		q.name = nil
	}

	return q
}

// same is true only if the name leads to the file.
func (q *quick) same() bool {
	if q.name == nil {
		return false
	}
	var st unix.Statx_t
	// The name is absolute: no directory is needed.
	_, _, errno := unix.Syscall6(unix.SYS_STATX, 0, uintptr(unsafe.Pointer(q.name)), 0, unix.STATX_INO,
		uintptr(unsafe.Pointer(&st)), 0)

	return errno == 0 && st.Ino == q.file.Ino && st.Dev_major == q.file.Dev_major && st.Dev_minor == q.file.Dev_minor
}
