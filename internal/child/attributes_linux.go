package child

import "syscall"

// tie keeps the terminal's interrupts from a child, which are the parent's to handle, and kills it when the thread that
// started it ends.
func tie(a *syscall.SysProcAttr) {
	a.Setpgid = true
	a.Pdeathsig = syscall.SIGKILL
}
