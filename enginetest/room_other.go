//go:build !linux

package enginetest

import (
	"path/filepath"
)

// roomless runs o in a child that limits the length of its files.
func (a *trial) roomless(o order, _ string) ([]string, error) {
	a.Helper()
	return a.startChild(o, nil).wait()
}

func (o *order) enterRoom() (leave func(), err error) { return func() {}, nil }

func (o *order) protectRoom(bool) (bool, error) { return false, nil }

// takeRoom leaves next to no room for what comes.
func (o *order) takeRoom() error { return limitFiles(filepath.Dir(o.Dir)) }
