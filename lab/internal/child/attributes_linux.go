package child

import "syscall"

// attributes keep a child apart from the terminal's interrupts, which are the parent's to handle, and kill it when
// the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
