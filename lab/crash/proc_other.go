//go:build !linux

package crash

import "syscall"

// childAttributes are the system's defaults: a child notices the end of the supervisor by the end of its
// input.
func childAttributes() *syscall.SysProcAttr { return nil }
