package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// attach puts a loop device on the open file backing and returns its open node. The device detaches itself when its
// last user is gone: after Close and the unmount, or when this process is killed before it has mounted anything.
func attach(backing int) (*os.File, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer control.Close()
	// The device that is free now may be another process's a moment later.
	for range 1000 {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, os.NewSyscallError("LOOP_CTL_GET_FREE", err)
		}
		dev, err := openLoop(n)
		if err != nil {
			return nil, err
		}

		// One call sets the file and the flag: a process that is killed between two would leave the device for ever.
		err = unix.IoctlLoopConfigure(int(dev.Fd()), &unix.LoopConfig{Fd: uint32(backing),
			Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_AUTOCLEAR}})
		if err == nil {
			return dev, nil
		}
		dev.Close()
		if err != unix.EBUSY {
			return nil, os.NewSyscallError("LOOP_CONFIGURE", err)
		}
	}

	return nil, os.NewSyscallError("LOOP_CONFIGURE", unix.EBUSY)
}

// openLoop opens loop device n, and makes its node where nothing else does.
func openLoop(n int) (*os.File, error) {
	name := fmt.Sprintf("/dev/loop%d", n)
	dev, err := os.OpenFile(name, os.O_RDWR, 0)
	if !os.IsNotExist(err) {
		return dev, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/dev", n))
	if err != nil {
		return nil, err
	}
	majorText, minorText, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	major, err := strconv.ParseUint(majorText, 10, 32)
	if err != nil {
		return nil, err
	}
	minor, err := strconv.ParseUint(minorText, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(uint32(major), uint32(minor)))); err != nil &&
		err != unix.EEXIST {
		return nil, &os.PathError{Op: "mknod", Path: name, Err: err}
	}

	return os.OpenFile(name, os.O_RDWR, 0)
}

// detachAll detaches the loop devices whose backing file mine knows.
func detachAll(mine func(backing string) bool) {
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range names {
		if !backed(name, mine) {
			continue
		}
		dev, err := os.OpenFile("/dev/"+strings.Split(name, "/")[3], os.O_RDWR, 0)
		if err != nil {
			continue
		}
		// Until it was open, it may have been detached, and have become another program's.
		if backed(name, mine) {
			unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0) // gone already, or going: both are well
		}
		dev.Close()
	}
}

// backed reports whether the backing file that sysfs names is one that mine knows.
func backed(name string, mine func(backing string) bool) bool {
	backing, err := os.ReadFile(name)
	return err == nil && mine(strings.TrimSpace(string(backing)))
}
