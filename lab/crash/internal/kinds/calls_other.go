//go:build !linux

package kinds

import "errors"

const auditArch = 0

// KillBefore works on Linux only.
func KillBefore(string, int) error { return errors.New("kill before system calls: it needs Linux") }
