package blockdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// A scratch directory is called scratchPrefix and a random number. It holds nothing but mount points and a file that is
// locked as long as its owner lives; data is in files without names.
const (
	scratchPrefix = "holdfast-disk-"
	lockName      = "LOCK"
	mountName     = "mnt"
	fuseName      = "fuse"
	makeName      = "mkfs" // the file that mkfs is run on
	goneName      = "gone" // a mount point that is being removed
)

// scratch is a scratch directory of this process, whose lock says that it lives.
type scratch struct {
	path string // absolute, without symbolic links, as in mountinfo
	lock *os.File
}

// newScratch makes a scratch directory below parent.
func newScratch(parent string) (*scratch, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	parent, err := realPath(parent)
	if err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, scratchPrefix)
	if err != nil {
		return nil, err
	}
	// It gets its name once it is locked, or a clean-up might take it for one whose owner is dead.
	lock, err := os.CreateTemp(path, lockName)
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil {
		pid := os.Getpid()
		_, err = fmt.Fprintf(lock, "%d %s\n", pid, startOf(pid))
	}
	if err == nil {
		err = os.Rename(lock.Name(), filepath.Join(path, lockName))
	}

	s := &scratch{path, lock}
	for _, name := range []string{mountName, fuseName} {
		if err == nil {
			err = os.Mkdir(s.sub(name), 0o700)
		}
	}
	if err != nil {
		lock.Close()
		os.RemoveAll(path) // nothing is mounted yet

		return nil, err
	}

	return s, nil
}

// realPath is a path as mountinfo has it.
func realPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}

	return filepath.EvalSymlinks(dir)
}

// sub is the path of something in the directory.
func (s *scratch) sub(name string) string { return filepath.Join(s.path, name) }

// remove removes the directory with what belongs in it. A program that did not notice the end of its disk may have gone
// on in the bare mount point; that goes too, unless something is still mounted there, which it must not reach into. The
// lock goes last, so that another clean-up can repeat it.
func (s *scratch) remove() error {
	defer s.lock.Close()

	// Removing a directory in which something is still mounted would remove that file system's files.
	for _, name := range []string{mountName, fuseName} {
		if mounted(s.sub(name)) {
			return &os.PathError{Op: "remove", Path: s.sub(name), Err: unix.EBUSY}
		}
	}
	if err := os.Rename(s.sub(mountName), s.sub(goneName)); err != nil && !os.IsNotExist(err) {
		return err // a process that still writes there does not find it any more
	}

	for _, name := range []string{goneName, fuseName, makeName, lockName} {
		if err := os.RemoveAll(s.sub(name)); err != nil {
			return err
		}
	}

	return os.Remove(s.path)
}

// unmountTimeout bounds how long unmounting waits for the last user of a mount, or for the kernel to let go of what
// uses a mount after its last user has gone.
var unmountTimeout = 30 * time.Second // shorter in a test; a victim on a busy machine took longer than 5

// unmount unmounts path. A mount in use is detached after the timeout: it goes with its last user.
func unmount(path string, timeout time.Duration) error {
	until := time.Now().Add(timeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if err != unix.EBUSY {
			return err
		}
		if time.Now().After(until) {
			break
		}
		time.Sleep(pause)
	}
	if err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
		return err
	}

	return errDetached
}

// errDetached says that the mount goes later, by itself.
var errDetached = errors.New("still in use: detached, to go with its last user")

// CleanUp removes what killed processes have left in dir, their Options.Dir (empty means os.TempDir): mounts, loop
// devices and scratch directories. It touches nothing that a living process owns, nothing of other programs and no
// record or image that was saved. A process that was killed while one of its threads waited for its own disk cannot end
// before this. It returns how many disks and images it removed, and the first failure; it goes on after one.
func CleanUp(dir string) (cleaned int, err error) {
	if dir == "" {
		dir = os.TempDir()
	}
	dir, err = realPath(dir)
	if err != nil {
		return 0, &holdfast.Error{Op: "clean up", Path: dir, Class: holdfast.ErrUnavailable, Cause: err}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, &holdfast.Error{Op: "clean up", Path: dir, Class: holdfast.ErrUnavailable, Cause: err}
	}
	var first error
	failed := func(path string, err error) {
		if err != nil && first == nil {
			first = &holdfast.Error{Op: "clean up", Path: path, Class: holdfast.ErrUnavailable, Cause: err,
				Remedy: "unmount what is mounted below it, and remove it"}
		}
	}

	var dead []*scratch
	for _, entry := range entries {
		st, err := entry.Info()
		if err != nil || !rundir.Own(st) || !strings.HasPrefix(entry.Name(), scratchPrefix) {
			continue
		}

		// Whoever gets the lock knows that the owner is dead; an owner that cannot end keeps it, and is known by its pending
		// SIGKILL.
		path := filepath.Join(dir, entry.Name())
		s, removed, err := takeDead(path)
		failed(path, err)
		if removed {
			cleaned++
		}
		if s != nil {
			dead = append(dead, s)
		}
	}
	// All that wait for a server learn that it is gone, its own process included: they may be what keeps others' mounts
	// in use. What is in use after a second for all of them is detached.
	for _, s := range dead {
		if mounted(s.sub(fuseName)) {
			unix.Unmount(s.sub(fuseName), unix.MNT_FORCE)
		}
	}

	until := time.Now().Add(time.Second)
	for _, s := range dead {
		err := s.cleanUp(until)
		if err == nil {
			cleaned++
		}
		failed(s.path, err)
	}

	return cleaned, first
}

// Places names the directories, each the Options.Dir of some process, that have disks or images mounted in them.
// Whether their owners live, [CleanUp] finds out.
func Places() (dirs []string) {
	for _, at := range mountPoints() {
		path := filepath.Dir(at)
		if dir := filepath.Dir(path); strings.HasPrefix(filepath.Base(path), scratchPrefix) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}

	return dirs
}

// Unshare gives the calling thread mounts of its own, without those of disks and images but for the one whose Path is
// at. A process that is begun there, and makes others their own mounts, keeps no other disk from being closed. The
// thread must not be used for anything else.
func Unshare(at string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}

	for _, other := range mountPoints() {
		dir := filepath.Dir(other)
		if dir == filepath.Dir(at) || !strings.HasPrefix(filepath.Base(dir), scratchPrefix) {
			continue
		}
		if err := unix.Unmount(other, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return os.NewSyscallError("umount", err)
		}
	}

	return nil
}

// takeDead returns the scratch directory at path, locked, if it is one whose owner is dead. One without a lock may have
// been removed instead.
func takeDead(path string) (s *scratch, removed bool, err error) {
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|unix.O_NOFOLLOW, 0)

	if os.IsNotExist(err) {
		// Just being made, or being removed, or left at such a moment. The last is empty, and old.
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > time.Minute {
			return nil, os.Remove(path) == nil, nil // not if it holds anything
		}

		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if _, _, ours := ownerOf(lock); !ours || unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil && !dying(lock) {
		lock.Close()
		return nil, false, nil // its owner lives, or no Disk has made it
	}

	return &scratch{path, lock}, false, nil
}

// cleanUp removes what the owner of s has left. What is in use after until is detached.
func (s *scratch) cleanUp(until time.Time) error {
	// The file system first: it holds the loop device, which holds the FUSE file. Its I/O fails at once, so
	// there is no need to wait for a victim that still has files open.
	for _, name := range []string{mountName, fuseName} {
		for mounted(s.sub(name)) {
			if err := unmount(s.sub(name), time.Until(until)); err != nil && err != errDetached {
				s.lock.Close()
				return err
			}
		}
		if name == mountName {
			detachAll(s.backs)
		}
	}

	return s.remove()
}

// ownerOf reads which process a lock file names, and when it began.
func ownerOf(lock *os.File) (pid int, start string, ok bool) {
	n, _ := fmt.Fscan(io.NewSectionReader(lock, 0, 100), &pid, &start)
	return pid, start, n == 2
}

// dying reports whether the owner named in a lock file was killed, but cannot end, and so still holds the lock: one of
// its threads waits in the kernel for the disk that the others do not serve any more. An owner that is not seen from
// here, as in another container, is alive.
func dying(lock *os.File) bool {
	pid, start, ok := ownerOf(lock)
	fields := processStat(pid)

	return ok && len(fields) > 0 && startOf(pid) == start && (fields[0] == "Z" || fields[0] == "X" || killed(pid))
}

// killed reports whether a process has a SIGKILL waiting for its first thread.
func killed(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}

	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if name == "SigPnd" || name == "ShdPnd" {
			if set, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil && set>>(unix.SIGKILL-1)&1 != 0 {
				return true
			}
		}
	}

	return false
}

// startOf returns when a process started, in the kernel's own units; with the number it names the process.
func startOf(pid int) string {
	if fields := processStat(pid); len(fields) > 19 {
		return fields[19]
	}

	return "?"
}

// processStat returns the fields of /proc/PID/stat from the state on, none if there is no such process.
func processStat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}

	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

// backs reports whether the backing file of a loop device belongs to s.
func (s *scratch) backs(backing string) bool {
	return strings.HasPrefix(backing, s.path+"/") || strings.HasPrefix(backing, "/memfd:"+filepath.Base(s.path)+" ")
}

// mounted reports whether something is mounted at path.
func mounted(path string) bool { return slices.Contains(mountPoints(), path) }

// mountPoints lists where something is mounted, as the calling thread sees it.
func mountPoints() (list []string) {
	info, _ := os.ReadFile("/proc/thread-self/mountinfo")
	for line := range strings.Lines(string(info)) {
		// 36 35 98:0 /root /point options ...
		if f := strings.Fields(line); len(f) > 4 {
			list = append(list, unescape.Replace(f[4]))
		}
	}

	return list
}

// unescape undoes how mountinfo writes blanks and backslashes.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// closeWhenDone calls closer when ctx is done, unless *stop is called first.
func closeWhenDone(ctx context.Context, stop *func() bool, closer func() error) {
	stored := make(chan struct{})
	*stop = context.AfterFunc(ctx, func() {
		<-stored // closer reads *stop
		closer()
	})
	close(stored)
}
