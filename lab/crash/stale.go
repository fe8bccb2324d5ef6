package crash

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/internal/machines"
	"github.com/holdfastdb/holdfast/lab/internal/rundir"
)

// dirPrefix begins the name of a run's directory; the process's number follows.
const dirPrefix = "holdfast-crash-"

// runDirs says how the directories of runs are made, and what killed runs left is removed, with the mounts in them.
var runDirs = rundir.Options{
	Op: "crash", Prefix: dirPrefix,
	// A killed process that serves a file system, and waits for it in a request of its own, keeps its locks
	// until its connection is ended, which is a part of cleaning up, or even longer.
	Dead: dying,
	Undo: func(dir string) error {
		// A directory with something mounted in it stays, lock file and all, until that can be undone.
		machines.CleanUp(dir)
		_, err := blockdev.CleanUp(dir)
		// The children of a killed run end with its threads, which may be waiting for what was just cleaned.
		for end := time.Now().Add(time.Second); dying(dir) && time.Now().Before(end); {
			time.Sleep(5 * time.Millisecond)
		}

		return err
	},
}

// cleanUpMounted removes what killed runs left in other places than the next run's, where something of it is mounted.
// It returns the names of the directories.
func cleanUpMounted() (cleaned []string) {
	for _, dir := range blockdev.Places() {
		if strings.HasPrefix(filepath.Base(dir), machines.DirPrefix) {
			dir = filepath.Dir(dir)
		}
		if strings.HasPrefix(filepath.Base(dir), dirPrefix) {
			cleaned = append(cleaned, rundir.CleanUp(filepath.Dir(dir), runDirs)...)
		}
	}

	return cleaned
}

// dying reports whether the process that made the directory, whose name has its number, is dead but not gone.
// Where there is no /proc, none is.
func dying(dir string) bool {
	pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
	b, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(b), ") ") // the state follows the name

	return ok && (rest[0] == 'Z' || rest[0] == 'X')
}
