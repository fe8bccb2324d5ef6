package blockdev

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast"
)

// Check returns nil if disks with file system fs (empty means ext4) can be made here, otherwise ErrUnavailable with
// all that is missing, or ErrBadOption for a file system that there is not.
func Check(fs string) error {
	o, err := Options{FS: fs}.withDefaults()
	if err != nil {
		return err
	}
	var missing []string
	if !mayMount() {
		missing = append(missing, "root's right to mount (CAP_SYS_ADMIN)")
	}

	for _, dev := range []string{"/dev/fuse", "/dev/loop-control"} {
		if f, err := os.OpenFile(dev, os.O_RDWR, 0); err != nil {
			missing = append(missing, fmt.Sprintf("%s (%v)", dev, errors.Unwrap(err)))
		} else {
			f.Close()
		}
	}
	info := fileSystems[o.FS]
	for _, command := range []string{info.mkfs, info.check} {
		if _, err := tool(command); command != "" && err != nil {
			missing = append(missing, fmt.Sprintf("%s (Debian package %s)", command, info.pack))
		}
	}
	if kernel := kernelName(o.FS); !kernelHas(kernel) {
		missing = append(missing, "a kernel with "+kernel)
	}
	if len(missing) == 0 {
		return nil
	}

	return &holdfast.Error{Op: "block recorder", Class: holdfast.ErrUnavailable,
		Detail: "missing: " + strings.Join(missing, ", "), Remedy: "run as root where these are there"}
}

// mayMount reports whether this process has CAP_SYS_ADMIN.
func mayMount() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}

	return data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// kernelName is what the kernel calls a file system.
func kernelName(fs string) string { return cmp.Or(fileSystems[fs].kernel, fs) }

// kernelHas reports whether the kernel has a file system, or can load it.
func kernelHas(fs string) bool {
	listed := func() bool {
		list, err := os.ReadFile("/proc/filesystems")
		if err != nil {
			return true // mounting will tell
		}

		for line := range strings.Lines(string(list)) {
			if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] == fs {
				return true
			}
		}

		return false
	}

	return listed() || exec.Command("modprobe", "-q", fs).Run() == nil && listed()
}

// tool finds a command for file systems, also where a user's PATH does not look.
func tool(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}

	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}

	return "", err
}

// fresh keeps, for the life of the process, one image of each new file system that was asked for.
var fresh = struct {
	sync.Mutex
	made map[freshKey]*os.File
}{made: map[freshKey]*os.File{}}

type freshKey struct {
	fs   string
	size int64
}

// newFileSystem returns the contents of a disk with a new, empty file system. It is shared: callers must not write to
// it or close it.
func newFileSystem(ctx context.Context, o Options, s *scratch) (*os.File, error) {
	fresh.Lock()
	defer fresh.Unlock()

	key := freshKey{o.FS, o.Size}
	if f := fresh.made[key]; f != nil {
		return f, nil
	}
	f, err := os.OpenFile(s.sub(makeName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	if err := makeFileSystem(ctx, f, o); err != nil {
		f.Close()
		return nil, err
	}
	fresh.made[key] = f

	return f, nil
}

// makeFileSystem makes a file system in f, of o.Size.
func makeFileSystem(ctx context.Context, f *os.File, o Options) error {
	if err := f.Truncate(o.Size); err != nil {
		return err
	}
	path, err := tool(fileSystems[o.FS].mkfs)
	if err != nil {
		return err
	}
	// mkfs.btrfs looks at what every mounted btrfs is on, and would wait for a server that is gone.
	for _, dir := range Places() {
		_, _ = CleanUp(dir)
	}
	var said bytes.Buffer
	args := slices.Clone(fileSystems[o.FS].args)
	if o.Inodes > 0 {
		args = append(args, "-N", strconv.Itoa(o.Inodes))
	}
	cmd := exec.CommandContext(ctx, path, append(args, f.Name())...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", path, firstOf(ctx.Err(), err), strings.TrimSpace(said.String()))
	}

	return nil
}
