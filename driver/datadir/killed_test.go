package datadir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestKilledMaker: directories and a mark that are there may have been made by a process that was killed before
// they were durable. Who goes on with them makes them so.
func TestKilledMaker(t *testing.T) {
	var synced []string
	syncDir = func(dir string) error {
		synced = append(synced, dir)
		return SyncDir(dir)
	}
	t.Cleanup(func() { syncDir = SyncDir })
	top := t.TempDir()
	made := filepath.Join(top, "made")
	dir := filepath.Join(made, "a", "b")
	try(t, errors.Join(os.Mkdir(made, 0o755), MkdirAll(dir)))
	if want := []string{top, made, filepath.Dir(dir)}; !slices.Equal(synced, want) {
		t.Errorf("making %s where %s is there syncs %q, want %q", dir, made, synced, want)
	}
	id := Spec{Engine: "bbolt", Format: 1}
	if err := writeMark(dir, Mark{Engine: id.Engine, Format: id.Format, making: true}); err != nil {
		t.Fatal(err)
	}
	synced = nil
	h, err := Open(dir, id)
	try(t, err)
	if err := h.Close(); err != nil || !slices.Contains(synced, dir) {
		t.Errorf("opening a directory that is being made syncs %q: %v", synced, err)
	}
}

// try ends the test with err, unless it is nil.
func try(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}
