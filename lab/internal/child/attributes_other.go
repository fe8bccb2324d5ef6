//go:build !linux

package child

import "syscall"

// attributes are the system's defaults: a child notices the end of its parent by the end of its input.
func attributes() *syscall.SysProcAttr { return nil }
