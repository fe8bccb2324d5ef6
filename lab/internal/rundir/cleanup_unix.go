//go:build unix

package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// claim marks dir as that of a living run, until the file is closed or the process ends. The file gets its name once
// it is locked, or a clean-up might take it for one whose run is dead.
func claim(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, Lock)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, Lock))
	}
	if err != nil {
		f.Close()
		return nil, err
	}

	return f, nil
}

// Own reports whether what has this description is a directory that the user of this process made. The system's
// temporary directory is everybody's: whatever else has the name of a run's directory there, a link to elsewhere or
// another user's directory, is left alone.
func Own(st fs.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return st.IsDir() && ok && int(sys.Uid) == os.Geteuid()
}

// CleanUp removes the directories below parent whose names begin with the prefix and that killed runs of this user have
// left, and returns their names. One without the file may just be being made, and stays.
func CleanUp(parent string, o Options) (cleaned []string) {
	names, _ := filepath.Glob(filepath.Join(escape(parent), o.Prefix+"*", Lock))
	for _, name := range names {
		dir := filepath.Dir(name)
		if st, err := os.Lstat(dir); err != nil || !Own(st) {
			continue
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		free := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil || o.Dead != nil && o.Dead(dir)
		if free && still(f, name) && (o.Undo == nil || o.Undo(dir) == nil) && clean(dir) == nil {
			cleaned = append(cleaned, dir)
		}
		f.Close()
	}

	return cleaned
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

// clean removes the directory of a killed run. Its children die with it, but not before it, and may be making files:
// under another name they do not find it. The lock file goes last, so that the next clean-up finds what cannot be
// removed now.
func clean(dir string) error {
	gone := dir + "-gone"
	if err := os.Rename(dir, gone); err != nil {
		return err
	}

	for pause := time.Millisecond; ; pause *= 2 {
		entries, err := os.ReadDir(gone)
		for _, e := range entries {
			if e.Name() != Lock {
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
