package kinds

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
)

// Scene is what a crash has left, which is kept if it breaks a claim.
type Scene struct {
	Row     Row
	History *protocol.History
	Spec    protocol.Spec
	When    string
	Tree    string          // a copy of the directory
	Image   *blockdev.Image // or the disk
}

// take copies a directory, before it is opened, into a new one below another.
func (s *Scene) take(below, dir string) error {
	to, err := os.MkdirTemp(below, "before-")
	if err != nil {
		return err
	}
	s.Tree = to

	for name := range files(dir) { // the socket of a server that is dead
		if st, err := os.Lstat(name); err == nil && st.Mode()&fs.ModeSocket != 0 {
			_ = os.Remove(name)
		}
	}

	return CopyTree(filepath.Join(dir, protocol.EngineDir), filepath.Join(to, protocol.EngineDir))
}

// Drop removes what was not needed.
func (s *Scene) Drop() {
	if s.Tree != "" {
		_ = os.RemoveAll(s.Tree)
	}
}

// CopyTree copies a directory, if it is there. One that is too large is left out, and a file says so.
func CopyTree(from, to string) error {
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, bytes := datadir.Usage(from); bytes <= maxTree {
		return datadir.CopyFiles(context.Background(), from, to)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}

	return os.WriteFile(filepath.Join(to, "TOO-LARGE"), []byte("the directory was too large to be kept\n"), 0o644)
}

// maxTree is how large a directory is copied, in bytes.
const maxTree = 512 << 20
