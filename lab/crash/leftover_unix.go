//go:build unix

package crash

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
)

// lockName is a file in a run's directory that is locked as long as the run lives. A killed
// run leaves its directory, but not the lock.
const lockName = "RUNNING"

// claim marks dir as that of a living run.
func claim(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the directories below parent that killed runs have left, with the mounts in them, and returns
// their names. One without the file may just be being made, and stays.
func sweep(parent string) (swept []string) {
	names, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*", lockName))
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			dir := filepath.Dir(name)
			// A directory with something mounted in it stays, lock file and all, until that can be undone.
			if _, err := blockdev.Sweep(dir); err == nil && os.RemoveAll(dir) == nil {
				swept = append(swept, dir)
			}
		}
		f.Close()
	}
	return swept
}
