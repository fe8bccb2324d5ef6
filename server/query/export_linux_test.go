package query_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast/internal/testkit"
)

// TestExportToAFullDisk: the error names the file, of which nothing is left.
func TestExportToAFullDisk(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("holdfast-test", mount, "tmpfs", 0, "size=16k"); err != nil {
		t.Skip("this process may not mount a small file system:", err)
	}
	t.Cleanup(func() { testkit.Try(t, syscall.Unmount(mount, syscall.MNT_DETACH)) })
	file := filepath.Join(mount, "all.db")
	err := open(t, fill(t)).Export(t.Context(), file)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "room") {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(mount, "*")); err != nil || len(left) > 0 {
		t.Error("left:", left, err)
	}
}
