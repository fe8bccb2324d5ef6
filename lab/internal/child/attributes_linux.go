package child

import "syscall"

// attributes keep the terminal's interrupts from a child, which are the parent's to handle, and kill it when
// the thread that started it ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
