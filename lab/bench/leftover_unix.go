//go:build unix

package bench

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockName is a file in a run's directory that is locked as long as the run lives. A killed
// run leaves its directory, but not the lock.
const lockName = "RUNNING"

// claim marks dir as that of a living run. The file gets its name once it is locked, or a sweep might take it for one whose
// run is dead.
func claim(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, lockName)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, lockName))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the directories below parent that killed runs have left, and returns their names.
// One without the file may just be being made, and stays.
func sweep(parent string) (swept []string) {
	names, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*", lockName))
	for _, name := range names {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil && os.RemoveAll(filepath.Dir(name)) == nil {
			swept = append(swept, filepath.Dir(name))
		}
		f.Close()
	}
	return swept
}
