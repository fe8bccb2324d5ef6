package crash

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast/internal/datadir"
	"github.com/holdfastdb/holdfast/lab/crash/blockdev"
)

// scene is what a crash has left, which is kept if it breaks a claim.
type scene struct {
	cell    cell
	history *history
	spec    spec
	when    string
	tree    string          // a copy of the directory
	image   *blockdev.Image // or the disk
}

// take copies a directory, before it is opened, into a new one below another.
func (s *scene) take(below, dir string) error {
	to, err := os.MkdirTemp(below, "before-")
	if err != nil {
		return err
	}
	s.tree = to
	return copyTree(filepath.Join(dir, engineDir), filepath.Join(to, engineDir))
}

// drop removes what was not needed.
func (s *scene) drop() {
	if s.tree != "" {
		_ = os.RemoveAll(s.tree)
	}
}

// copyTree copies a directory, if it is there. One that is too large is left out, and a file says so.
func copyTree(from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, bytes := datadir.Usage(from); bytes <= maxTree {
		return datadir.CopyFiles(from, to)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "TOO-LARGE"), []byte("the directory was too large to be kept\n"), 0o644)
}

// maxTree is how large a directory is copied, in bytes.
const maxTree = 512 << 20
