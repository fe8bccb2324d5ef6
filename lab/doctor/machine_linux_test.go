package doctor

import (
	"os"
	"path/filepath"
	"testing"
)

// TestMemoryLimit: the least limit of all groups above counts.
func TestMemoryLimit(t *testing.T) {
	root := t.TempDir()
	write := func(group, limit string) {
		if err := os.MkdirAll(filepath.Join(root, group), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, group, "memory.max"), []byte(limit+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "1000")
	write("a/b", "max")
	write("a/b/c", "3000")
	for groups, want := range map[string]int64{
		"0::/a/b/c\n": 1000, "0::/a/b\n": 1000, "0::/\n": -1, "": -1, "5:memory:/a\n": -1, "1:cpu:/x\n0::/a\n": 1000,
	} {
		if got := memoryLimit(groups, root); got != want {
			t.Errorf("%q: %d, want %d", groups, got, want)
		}
	}
}
