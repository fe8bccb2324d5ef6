package datadir

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxHolders is how many processes Holder names.
const maxHolders = 3

// Holder says which processes have path locked, as far as the system tells: "" if it does not.
func Holder(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return ""
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer f.Close()
	// 1: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(sys.Dev)), unix.Minor(uint64(sys.Dev)), sys.Ino)
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

func describeHolders(pids []int) string {
	if len(pids) == 0 {
		return ""
	}
	var names []string
	for _, pid := range pids[:min(len(pids), maxHolders)] {
		name := fmt.Sprintf("process %d", pid)
		switch exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); {
		case pid == os.Getpid():
			name = "this process"
		case err == nil:
			name += " (" + filepath.Base(exe) + ")"
		}
		names = append(names, name)
	}
	text := "by " + strings.Join(names, " and ")
	if more := len(pids) - maxHolders; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
