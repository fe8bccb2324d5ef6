//go:build !linux

package clustertest

func pause(int) bool { return false }

func resume(int) {}
