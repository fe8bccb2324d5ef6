package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast/lab/internal/measure"
)

const (
	dsyncFlag  = unix.O_DSYNC
	directFlag = unix.O_DSYNC | unix.O_DIRECT
)

// lookAt reads what the kernel tells of a directory's file system and device. What it does not tell stays unknown.
func lookAt(dir string) Place {
	mount := measure.MountOf(dir)
	p := Place{MountPoint: mount.Point, MountOptions: mount.Options, ReadAhead: -1, FreeBytes: -1, TotalBytes: -1,
		MemoryLimit: -1, OpenFiles: -1, Mappings: -1}
	if sys := mount.Sys(); sys != "" {
		if kib := number(filepath.Join(sys, "queue/read_ahead_kb")); kib >= 0 {
			p.ReadAhead = kib << 10
		}
		// All are listed, with the one in force in brackets.
		if _, rest, ok := strings.Cut(read(filepath.Join(sys, "queue/scheduler")), "["); ok {
			p.Scheduler, _, _ = strings.Cut(rest, "]")
		}

		below, _ := os.ReadDir(filepath.Join(sys, "slaves"))
		for _, device := range below {
			text := device.Name()
			if cache := read(filepath.Join("/sys/class/block", text, "queue/write_cache")); cache != "" {
				text += " (" + cache + " cache)"
			}
			p.Below = append(p.Below, text)
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil {
		p.FreeBytes, p.TotalBytes = int64(fs.Bavail)*int64(fs.Bsize), int64(fs.Blocks)*int64(fs.Bsize)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		p.OpenFiles = int64(min(limit.Cur, 1<<62))
	}
	p.Mappings = number("/proc/sys/vm/max_map_count")
	p.MemoryLimit = memoryLimit(read("/proc/self/cgroup"), "/sys/fs/cgroup")

	return p
}

// memoryLimit is the least that a control group of this process, or one above it, permits; -1 if none does. It knows
// the second version of control groups.
func memoryLimit(groups, root string) int64 {
	limit := int64(-1)
	for l := range strings.Lines(groups) {
		path, ok := strings.CutPrefix(strings.TrimSpace(l), "0::")
		if !ok {
			continue
		}

		// A limit holds for all groups below it, so each level up to the root is asked.
		for at := filepath.Join(root, path); len(at) >= len(root); at = filepath.Dir(at) {
			if n := number(filepath.Join(at, "memory.max")); n >= 0 && (limit < 0 || n < limit) {
				limit = n
			}
		}
	}

	return limit
}

// read is a small file's text, empty if it cannot be read.
func read(name string) string {
	b, _ := os.ReadFile(name)
	return strings.TrimSpace(string(b))
}

// number reads a file that holds a number; -1 if there is none, as where it says max.
func number(name string) int64 {
	n, err := strconv.ParseInt(read(name), 10, 64)
	if err != nil {
		return -1
	}

	return n
}

// alignedBlock is memory as O_DIRECT wants it.
func alignedBlock() []byte {
	// Twice as much is allocated, so that an aligned block lies somewhere in it.
	b := make([]byte, 2*block)
	skip := block - int(uintptr(unsafe.Pointer(&b[0]))%block)

	return b[skip%block:][:block]
}
