package measure

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RAM is a limit of the memory that some processes have together, with the system's cache of the files that they
// use: data larger than memory, on a machine that has more.
type RAM struct{ dir string }

// LimitRAM makes a limit of that many bytes, by a control group of the kernel, which needs root. Close removes it.
func LimitRAM(bytes int64) (*RAM, error) {
	parent, file, err := memoryGroup()
	if err != nil {
		return nil, err
	}
	r := &RAM{filepath.Join(parent, fmt.Sprintf("holdfast-%d", os.Getpid()))}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(r.dir, file), strconv.AppendInt(nil, bytes, 10), 0o644); err != nil {
		return nil, errors.Join(err, r.Close())
	}

	return r, nil
}

// memoryGroup returns the directory of this process's own group, and the name of the file with its limit.
func memoryGroup() (dir, file string, err error) {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}

	root := "/sys/fs/cgroup"
	for line := range strings.Lines(string(groups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}

		switch {
		case parts[1] == "memory":
			return filepath.Join(root, "memory", parts[2]), "memory.limit_in_bytes", nil
		case parts[0] == "0" && exists(filepath.Join(root, "cgroup.controllers")):
			// A group that has processes has no groups with limits below it.
			return filepath.Join(root, filepath.Dir(parts[2])), "memory.max", nil
		}
	}

	return "", "", errors.New("the kernel has no control groups for memory")
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// Add puts a process under the limit, with what it allocates from now on.
func (r *RAM) Add(pid int) error {
	return os.WriteFile(filepath.Join(r.dir, "cgroup.procs"), strconv.AppendInt(nil, int64(pid), 10), 0o644)
}

// Close removes the limit, under which no process may be any more.
func (r *RAM) Close() error {
	// The kernel takes a while to forget those that have ended.
	for tries := 0; ; tries++ {
		err := os.Remove(r.dir)
		if !errors.Is(err, syscall.EBUSY) || tries == 500 {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
