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
		before, _ := DeviceBytes(os.Getpid())
		if before < 0 {
			t.Skip("this system does not tell how much was read")
		}
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
		now, _ := DeviceBytes(os.Getpid())
		return now - before
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

// TestDeviceBytes: what a process writes counts once it is in the system's cache, and what it removes at once does not.
func TestDeviceBytes(t *testing.T) {
	dir, size := t.TempDir(), 4<<20
	if lookDisk(dir).InMemory() {
		t.Skip("temporary files are in memory here: nothing is written to a device")
	}
	write := func(remove bool) int64 {
		_, before := DeviceBytes(os.Getpid())
		if before < 0 {
			t.Skip("this system does not tell how much was written")
		}
		name := filepath.Join(dir, "file")
		if err := os.WriteFile(name, make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
		if remove {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		_, now := DeviceBytes(os.Getpid())
		return now - before
	}
	if n := write(true); n > int64(size/2) {
		t.Errorf("%d bytes of a file of %d that was removed at once", n, size)
	}
	if n := write(false); n < int64(size) || n > int64(2*size) {
		t.Errorf("%d bytes of a file of %d", n, size)
	}
	if read, written := DeviceBytes(-1); read != -1 || written != -1 {
		t.Errorf("of no process: %d, %d", read, written)
	}
}
