//go:build !linux

package clustertest

import "os/exec"

func leash(*exec.Cmd) {}

func pause(int) bool { return false }

func resume(int) {}
