package clustertest

import (
	"os/exec"
	"syscall"
)

// leash makes a child die with its parent. Elsewhere it ends when its standard input does, which one
// that is paused could not.
func leash(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// pause stops a process until resume, and returns false if that cannot be done. Only the caller's own
// children that it has not waited for may be named.
func pause(pid int) bool { return pid > 0 && syscall.Kill(pid, syscall.SIGSTOP) == nil }

func resume(pid int) { _ = syscall.Kill(pid, syscall.SIGCONT) }
