package datadir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxHolders is how many processes are named.
const maxHolders = 3

// describeHolders names processes that have something locked.
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
