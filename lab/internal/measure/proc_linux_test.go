package measure

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMemory: the pages of a mapped file are resident, and are not the process's own.
func TestMemory(t *testing.T) {
	const size = 32 << 20
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	resident, own := Memory(os.Getpid())
	files := resident - own
	pages, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < size; i += 4096 {
		pages[i] = 1
	}
	if resident, own = Memory(os.Getpid()); own <= 0 || resident-own < files+size/2 {
		t.Errorf("%d bytes are resident, %d its own; of files there were %d before %d more were mapped", resident, own,
			files, size)
	}
	if err := unix.Munmap(pages); err != nil {
		t.Error(err)
	}
	if resident, own := Memory(-1); resident != -1 || own != -1 {
		t.Errorf("of no process: %d, %d", resident, own)
	}
}

// TestUnjournaled: ext4 without a journal is told from one with a journal, and from one of which nothing is known.
func TestUnjournaled(t *testing.T) {
	sys := t.TempDir()
	if err := os.MkdirAll(filepath.Join(sys, "dev/block"), 0o755); err != nil {
		t.Fatal(err)
	}
	for number, device := range map[string]string{"8:1": "sda1", "8:16": "sdb"} {
		to := filepath.Join(sys, "devices", device)
		err := errors.Join(os.MkdirAll(to, 0o755), os.Symlink(to, filepath.Join(sys, "dev/block", number)))
		if err != nil {
			t.Fatal(err)
		}
	}
	for device, task := range map[string]string{"sda1": "<none>", "sdb": "17"} {
		dir := filepath.Join(sys, "fs/ext4", device)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "journal_task"), []byte(task+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for m, want := range map[[3]string]string{
		{"ext4", "/dev/sda1"}: Unjournaled, {"ext4", "/dev/sdb"}: "ext4", {"ext4", "/dev/sdc"}: "ext4",
		{"xfs", "/dev/sda1"}: "xfs", {"ext4", ""}: "ext4", {"", ""}: "", {"overlay", "overlay", "0:40"}: "overlay",
		{"ext4", "/dev/root", "8:1"}: Unjournaled, {"ext4", "/dev/root", "8:16"}: "ext4", {"ext4", "/dev/root"}: "ext4",
	} {
		got := (Mount{FileSystem: m[0], Device: m[1], number: m[2]}).fileSystem(sys)
		if got != want {
			t.Errorf("%v: %q, want %q", m, got, want)
		}
		if family := (Disk{FileSystem: got}).Family(); family != m[0] {
			t.Errorf("%q is of the family %q, want %q", got, family, m[0])
		}
	}
}
