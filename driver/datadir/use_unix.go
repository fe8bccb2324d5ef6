//go:build unix

package datadir

import (
	"errors"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast"
)

// fileID tells files apart, whatever their names.
type fileID struct{ dev, ino uint64 }

// idOf returns the id of an open file, and whether it is a regular one. What cannot be asked counts as neither.
func idOf(fd int) (id fileID, regular bool) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return id, false
	}

	return fileID{uint64(st.Dev), uint64(st.Ino)}, st.Mode&unix.S_IFMT == unix.S_IFREG
}

// SameFileSystem reports whether two paths, which are there, lie on one file system; false also if that cannot be told.
func SameFileSystem(a, b string) bool {
	var one, other unix.Stat_t

	return unix.Stat(a, &one) == nil && unix.Stat(b, &other) == nil && one.Dev == other.Dev
}

// reading counts the descriptors of [OpenToRead] for each file. Its lock is held while a file is opened or closed, and
// while open files are listed.
var reading struct {
	sync.Mutex
	count map[fileID]int
}

// OpenToRead opens a file to copy it. Others that copy it at the same time do not find it in use for that. It is closed
// with the function that it returns.
func OpenToRead(path string) (f *os.File, closeFile func() error, err error) {
	// Opened and counted under one lock: openHere would otherwise see a descriptor that is not accounted for.
	reading.Lock()
	defer reading.Unlock()
	if f, err = os.Open(path); err != nil {
		return nil, nil, err
	}
	if reading.count == nil {
		reading.count = map[fileID]int{}
	}
	id, _ := idOf(int(f.Fd()))
	reading.count[id]++

	// A second call would take the count of another reader away.
	return f, sync.OnceValue(func() error {
		reading.Lock()
		defer reading.Unlock()
		if reading.count[id]--; reading.count[id] == 0 {
			delete(reading.count, id)
		}

		return f.Close()
	}), nil
}

// openHere lists the regular files that this process has open, but those of [OpenToRead].
func openHere() (map[fileID]bool, error) {
	reading.Lock()
	defer reading.Unlock()

	// A file is in use if more descriptors of it are open than those that copy it.
	count := map[fileID]int{}
	add := func(fd int) {
		if id, regular := idOf(fd); regular {
			count[id]++
		}
	}

	// Without a list every number that there can be is tried, up to the limit for open files.
	if names, err := listDescriptors(); err == nil {
		for _, name := range names {
			if fd, err := strconv.Atoi(name); err == nil {
				add(fd)
			}
		}
	} else {
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, os.NewSyscallError("getrlimit", err)
		}

		const most = 1 << 20
		for fd := range int(min(uint64(limit.Cur), most)) {
			add(fd)
		}
	}

	open := map[fileID]bool{}
	for id, n := range count {
		if n > reading.count[id] {
			open[id] = true
		}
	}

	return open, nil
}

// checkUnused returns ErrLocked if a file is one of those that are open here, or if another process has it locked.
func checkUnused(op, path string, open map[fileID]bool) error {
	release, err := holdUnused(op, path, open)
	if err != nil {
		return err
	}

	return release()
}

// holdFile is HoldFile with a fresh list of what is open here.
func holdFile(op, path string) (func() error, error) {
	open, err := openHere()
	if err != nil {
		return nil, &holdfast.Error{Op: op, Path: path, Cause: err}
	}

	return holdUnused(op, path, open)
}

// holdUnused is HoldFile, given the files that are open here.
func holdUnused(op, path string, open map[fileID]bool) (release func() error, err error) {
	fail := func(err error) error { return &holdfast.Error{Op: op, Path: path, Cause: err} }
	// It is asked before the file is opened: to close it would be the harm.
	var st unix.Stat_t
	if err := unix.Stat(path, &st); errors.Is(err, unix.ENOENT) {
		return func() error { return nil }, nil
	} else if err != nil {
		return nil, fail(err)
	}
	if open[fileID{uint64(st.Dev), uint64(st.Ino)}] {
		return nil, inUse(op, path, thisProcess)
	}
	f, closeFile, err := OpenToRead(path)
	if err != nil {
		return nil, fail(err)
	}
	defer func() {
		if err != nil {
			_ = closeFile()
		}
	}()
	// Locks of processes, and of open files of the same kind. Any is in the way of one for writing.
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	if err := unix.FcntlFlock(f.Fd(), askLock, &lock); err == nil && lock.Type != unix.F_UNLCK {
		holder := Holder(path)
		if holder == "" && lock.Pid > 0 {
			holder = describeHolders([]int{int(lock.Pid)})
		}

		return nil, inUse(op, path, holder)
	}
	// Where the file system has no locks of a kind, nobody has one.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, inUse(op, path, Holder(path))
	}

	return closeFile, nil
}
