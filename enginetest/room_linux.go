package enginetest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// roomBytes is the size of the file system that a child fills.
const roomBytes = "size=256m"

// roomless runs o in a child that has a small file system at root, in a mount namespace of
// its own: it is gone with the last process in it, whatever happens. Where that is not
// permitted the child limits the length of its files instead.
func (a *trial) roomless(o order, root string) ([]string, error) {
	a.Helper()
	flags := []uintptr{syscall.CLONE_NEWNS, syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER}
	if os.Getuid() != 0 {
		flags = flags[1:]
	}

	for _, f := range flags {
		attr := &syscall.SysProcAttr{Unshareflags: f}
		if f&syscall.CLONE_NEWUSER != 0 {
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		probe := exec.Command("/proc/self/exe", "-test.run", "^$")
		probe.SysProcAttr = attr
		if err := probe.Run(); err != nil {
			a.Logf("no mount namespace: %v", err)
			continue
		}
		o.Mount = root

		return a.startChild(o, attr).wait()
	}

	return a.startChild(o, nil).wait()
}

// enterRoom mounts the small file system, if this process may.
func (o *order) enterRoom() (leave func(), err error) {
	if o.Mount == "" {
		return func() {}, nil
	}
	if err := syscall.Mount("holdfast-test", o.Mount, "tmpfs", 0, roomBytes); err != nil {
		return nil, &os.PathError{Op: "mount", Path: o.Mount, Err: err}
	}

	return func() { _ = syscall.Unmount(o.Mount, syscall.MNT_DETACH) }, nil
}

// protectRoom makes the small file system read-only, or lets it be written to again. It reports
// whether there is one.
func (o *order) protectRoom(on bool) (bool, error) {
	if o.Mount == "" {
		return false, nil
	}
	flags := uintptr(syscall.MS_REMOUNT)
	if on {
		flags |= syscall.MS_RDONLY
	}
	if err := syscall.Mount("holdfast-test", o.Mount, "tmpfs", flags, roomBytes); err != nil {
		return false, &os.PathError{Op: "remount", Path: o.Mount, Err: err}
	}

	return true, nil
}

// takeRoom leaves next to no room for what comes.
func (o *order) takeRoom() error {
	if o.Mount != "" {
		return fillUp(o.Fill)
	}

	return limitFiles(filepath.Dir(o.Dir))
}

// fillUp writes name until there is no room left, and gives back a little.
func fillUp(name string) error {
	const back = 1 << 20
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()

	size := int64(0)
	chunk := bytes.Repeat([]byte{1}, 1<<20)
	for len(chunk) >= 4096 {
		n, err := f.Write(chunk)
		size += int64(n)
		if errors.Is(err, syscall.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			return err
		}
	}

	return f.Truncate(max(size-back, 0))
}
