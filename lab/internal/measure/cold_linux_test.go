package measure

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDropPages: after it, reading a file asks the device for all of it.
func TestDropPages(t *testing.T) {
	dir := t.TempDir()
	if lookDisk(dir).InMemory() {
		t.Skip("temporary files are in memory here: there is no device to read from")
	}
	name, size := filepath.Join(dir, "a", "file"), 1<<20
	if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
	read := func() int64 {
		before := BytesRead()
		if before < 0 {
			t.Skip("this system does not tell how much was read")
		}
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		return BytesRead() - before
	}
	if n := read(); n > int64(size/2) {
		t.Fatalf("%d bytes were read of a file of %d that was just written", n, size)
	}
	if err := DropPages(dir); err != nil {
		t.Fatal(err)
	}
	if n := read(); n < int64(size) {
		t.Errorf("%d bytes were read of a file of %d that is not in memory", n, size)
	}
}
