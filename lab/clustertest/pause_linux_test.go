package clustertest

import "syscall"

// pause stops a process until resume, and returns false if that cannot be done. Only the caller's own
// children that it has not waited for may be named.
func pause(pid int) bool { return pid > 0 && syscall.Kill(pid, syscall.SIGSTOP) == nil }

func resume(pid int) { _ = syscall.Kill(pid, syscall.SIGCONT) }
