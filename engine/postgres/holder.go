package postgres

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// here names this process for the others that want its space: its machine, for people, and behind a slash what tells it
// from all others for as long as that machine runs. Where the system does not say that, it is empty.
func here() string {
	name, _ := os.Hostname()
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	pids, failed := os.Readlink("/proc/self/ns/pid")
	if err != nil || failed != nil {
		return slashless(name) + "/"
	}

	return fmt.Sprintf("%s/%s %s %d", slashless(name), strings.TrimSpace(string(id)), slashless(pids), os.Getpid())
}

func slashless(s string) string { return strings.ReplaceAll(s, "/", "_") }

// dead reports whether a process, as here has named it, was one of this machine and has ended. Of others it is not
// known.
func dead(process string) bool {
	_, own, _ := strings.Cut(here(), "/")
	machine, pid, ok := cutLast(process)
	if same, _, known := cutLast(own); !ok || !known || same != machine {
		return false
	}
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil || n <= 0 {
		return false
	}

	found, err := os.FindProcess(n)

	return err == nil && errors.Is(found.Signal(syscall.Signal(0)), os.ErrProcessDone)
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ' ')
	if i < 0 {
		return "", "", false
	}

	return s[:i], s[i+1:], true
}
