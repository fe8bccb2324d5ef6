package measure

import (
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
