package crash

import "syscall"

// childAttributes keep a child apart from the terminal's interrupts, which are the supervisor's to
// handle, and kill it when the thread that started it ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
