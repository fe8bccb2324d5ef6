//go:build unix

package vfs

import "syscall"

const nonBlocking = syscall.O_NONBLOCK
