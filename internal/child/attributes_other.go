//go:build !linux

package child

import "syscall"

// tie leaves the system's defaults: a child notices the end of its parent by the end of its input.
func tie(*syscall.SysProcAttr) {}
