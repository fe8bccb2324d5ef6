//go:build unix

package crash

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
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

// dying reports whether the process that made the directory, whose name has its number, is dead but not gone.
func dying(dir string) bool {
	pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
	b, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(b), ") ") // the state follows the name
	return ok && (rest[0] == 'Z' || rest[0] == 'X')
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
		dir := filepath.Dir(name)
		// A killed process that serves a file system, and waits for it in a request of its own, keeps its locks
		// until its connection is ended, which is a part of sweeping, or even longer.
		free := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil || dying(dir)
		if free && still(f, name) {
			// A directory with something mounted in it stays, lock file and all, until that can be undone.
			_, err := blockdev.Sweep(dir)
			// The children of a killed run end with its threads, which may be waiting for what was just swept.
			for end := time.Now().Add(time.Second); dying(dir) && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			if err == nil && clean(dir) == nil {
				swept = append(swept, dir)
			}
		}
		f.Close()
	}
	return swept
}

// still reports whether f is what name names: a run that ends removes its directory before it lets go of the lock.
func still(f *os.File, name string) bool {
	was, err := f.Stat()
	if err != nil {
		return false
	}
	is, err := os.Stat(name)
	return err == nil && os.SameFile(was, is)
}

// clean removes the directory of a killed run. Its children die with it, but not before it, and may be making files: under
// another name they do not find it. The lock file goes last, so that the next sweep finds what cannot be removed now.
func clean(dir string) error {
	gone := dir + "-gone"
	if err := os.Rename(dir, gone); err != nil {
		return err
	}
	for pause := time.Millisecond; ; pause *= 2 {
		entries, err := os.ReadDir(gone)
		for _, e := range entries {
			if e.Name() != lockName {
				err = errors.Join(err, os.RemoveAll(filepath.Join(gone, e.Name())))
			}
		}
		if err == nil {
			return os.RemoveAll(gone)
		}
		if !errors.Is(err, unix.ENOTEMPTY) || pause > time.Second {
			return err
		}
		time.Sleep(pause) // something was just being made
	}
}
