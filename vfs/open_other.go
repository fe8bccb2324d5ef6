//go:build !unix

package vfs

const nonBlocking = 0
