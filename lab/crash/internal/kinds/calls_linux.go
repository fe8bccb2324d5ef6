package kinds

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// auditArch is what a filter of system calls sees of the machine, 0 if it is not known.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// callNumbers returns the system calls of a name.
func callNumbers(name string) []uint32 {
	// amd64 alone has the older calls, which C libraries make.
	const rename, unlink = 82, 87
	old := runtime.GOARCH == "amd64"
	switch name {
	case "sync":
		return []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_MSYNC, unix.SYS_SYNC_FILE_RANGE}
	case "name":
		if old {
			return []uint32{unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, rename, unlink}
		}

		return []uint32{unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT}
	case "write":
		return []uint32{unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_WRITEV}
	case "size":
		return []uint32{unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE}
	}

	return nil
}

// The parts of the kernel's structures for the user notifications of seccomp(2).
const (
	notificationBytes = 80
	answerBytes       = 24
	firstArgument     = 16 // of a call, in what a filter sees; its low half, where bytes are little-endian
)

// KillBefore makes the kernel ask before each system call of a name in this process, and ends it with SIGKILL before
// the n-th: everything before it has happened, and nothing of it.
func KillBefore(name string, n int) error {
	numbers := callNumbers(name)
	if auditArch == 0 || len(numbers) == 0 {
		return fmt.Errorf("kill before system calls %q: not on this system", name)
	}
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	answer := func(what uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what} }

	// A filter is a program: it compares, and its jumps are relative and only go forward.
	filter := []unix.SockFilter{
		load(4), // the architecture
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: auditArch, Jt: 1},
		answer(unix.SECCOMP_RET_ALLOW),
		load(0), // the number of the call
	}
	jump := func(how uint16, k uint32, yes, no int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, K: k, Jt: uint8(yes), Jf: uint8(no)}
	}
	var plain []unix.SockFilter // what is asked of write(2), which ends before the two answers
	if name == "write" {
		// Go's runtime writes, too, and that where no other thread may continue, so that nobody would answer: 8 bytes to wake
		// a thread, and to standard error. The protocol goes to standard output.
		plain = []unix.SockFilter{
			jump(unix.BPF_JEQ, unix.SYS_WRITE, 0, 4),
			load(firstArgument), jump(unix.BPF_JGT, uint32(unix.Stderr), 0, 2),
			load(firstArgument + 2*8), jump(unix.BPF_JGT, 8, 1, 0),
		}
	}

	// Each comparison that hits jumps over the comparisons that follow, to the questions about write(2) or to the last
	// answer.
	for i, number := range numbers {
		filter = append(filter, jump(unix.BPF_JEQ, number, len(numbers)-i+len(plain), 0))
	}
	filter = append(append(filter, plain...), answer(unix.SECCOMP_RET_ALLOW), answer(unix.SECCOMP_RET_USER_NOTIF))
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	// The filter is set by a thread, and TSYNC gives it to all threads of the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("PR_SET_NO_NEW_PRIVS", err)
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|
		unix.SECCOMP_FILTER_FLAG_TSYNC|unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}

	go func() {
		// The kernel holds each of these calls until it is answered. The n-th gets no answer: the process is killed with the
		// call not begun.
		for seen := 0; ; {
			var notification [notificationBytes]byte
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_RECV,
				uintptr(unsafe.Pointer(&notification)))
			if errno != 0 {
				continue // interrupted, or the caller is gone
			}
			if seen++; seen == n {
				_ = unix.Kill(unix.Getpid(), unix.SIGKILL)

				select {}
			}
			var answer [answerBytes]byte
			copy(answer[:8], notification[:8]) // which one
			binary.NativeEndian.PutUint32(answer[20:], unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE)
			_, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&answer)))
		}
	}()

	return nil
}
