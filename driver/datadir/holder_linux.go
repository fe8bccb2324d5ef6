package datadir

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Holder says which processes have path locked, as far as the system tells: "" if it does not, which does not mean that
// there are none. In a container, other containers' do not show.
func Holder(path string) string {
	var st unix.Statx_t
	if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO|unix.STATX_MNT_ID, &st) != nil {
		return ""
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer f.Close()

	// 1: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF
	file := fmt.Sprintf("%s:%d", device(&st), st.Ino)
	var pids []int
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 || fields[1] == "->" || fields[5] != file { // the arrow is for one that waits
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil && pid > 0 && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}

	return describeHolders(pids)
}

// device is the file system of a file as /proc/locks writes it. Each subvolume of btrfs has a device of its own for
// stat; the locks have the mount's.
func device(st *unix.Statx_t) string {
	major, minor := st.Dev_major, st.Dev_minor
	if mounts, err := os.Open("/proc/self/mountinfo"); err == nil && st.Mask&unix.STATX_MNT_ID != 0 {
		defer mounts.Close()
		id := strconv.FormatUint(st.Mnt_id, 10)
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime ...
		for lines := bufio.NewScanner(mounts); lines.Scan(); {
			if fields := strings.Fields(lines.Text()); len(fields) > 2 && fields[0] == id {
				_, _ = fmt.Sscanf(fields[2], "%d:%d", &major, &minor)
				break
			}
		}
	}

	return fmt.Sprintf("%02x:%02x", major, minor)
}
