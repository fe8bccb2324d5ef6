package memtable

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"unsafe"
)

// TestLargePages: a table that is not small has asked the system for large pages where its chunks and leaves lie.
func TestLargePages(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/mm/transparent_hugepage/enabled"); err != nil {
		t.Skip("this system has no large pages: ", err)
	}

	table := New(NewImage(NewPool(0, 0, 0)))
	for i := range uint64(400_000) {
		rec, key := put(table.image, 1, fmt.Appendf(nil, "%09d", i*618_033%400_000), make([]byte, 20))
		table.Add(rec, key, i)
	}
	chunks, leaves := *table.image.chunks.Load(), *table.leaves.Load()
	if len(chunks) < 10 || len(leaves) <= 2*fewSlabs {
		t.Fatalf("%d chunks and %d slabs of leaves", len(chunks), len(leaves))
	}

	for _, c := range chunks[1:] {
		if at := uintptr(unsafe.Pointer(&c[0])); !advised(t, at) {
			t.Errorf("a chunk at %x is not advised", at)
		}
	}
	for _, l := range leaves[fewSlabs:] {
		if at := uintptr(unsafe.Pointer(l)); !advised(t, at) {
			t.Errorf("leaves at %x are not advised", at)
		}
	}
}

// advised reports whether the mapping with an address has the flag by which large pages are asked for.
func advised(t *testing.T, at uintptr) bool {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}

	inside := false
	for line := range bytes.Lines(maps) {
		var lo, hi uintptr
		if n, _ := fmt.Sscanf(string(line), "%x-%x ", &lo, &hi); n == 2 {
			inside = lo <= at && at < hi
		}
		if flags, ok := bytes.CutPrefix(line, []byte("VmFlags:")); ok && inside {
			return bytes.Contains(flags, []byte(" hg"))
		}
	}
	t.Fatalf("no mapping has %x", at)

	return false
}
