//go:build unix

package enginetest

import (
	"io/fs"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// limitFiles keeps this process from making any file longer than the longest below dir is
// now, and a little.
func limitFiles(dir string) error {
	longest := int64(0)
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				longest = max(longest, info.Size())
			}
		}

		return nil
	})
	if err != nil {
		return err
	}
	signal.Ignore(unix.SIGXFSZ) // so that the write fails instead
	limit := uint64(longest + 1<<20)

	return unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit})
}
