package memtable

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// TestLargePages: a table that is not small has asked the system for large pages where its chunks and leaves lie.
func TestLargePages(t *testing.T) {
	if !onlyAsked() {
		t.Skip("this system does not have large pages for who asks only")
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

// TestLargePagesEnd: what is garbage is not advised any more. The system makes large pages, in the background, where a
// little is in use: 300 databases were closed, all but 6 MiB of their memory was given back, and it came back.
func TestLargePagesEnd(t *testing.T) {
	if !onlyAsked() {
		t.Skip("this system does not have large pages for who asks only")
	}
	last := func() uintptr {
		im := NewImage(NewPool(1<<20, 0, 0))
		for range 20 {
			im.Reserve(1 << 20)
		}
		chunks := *im.chunks.Load()
		at := uintptr(unsafe.Pointer(&chunks[10][0]))
		if !advised(t, at) {
			t.Error("a chunk is not advised")
		}
		runtime.KeepAlive(im)

		return at
	}()
	for range 500 {
		runtime.GC()
		if !advised(t, last) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a chunk that is garbage is advised")
}

// TestFewLargePages: small tables ask for none, however small their chunks are.
func TestFewLargePages(t *testing.T) {
	im := NewImage(NewPool(13<<10, 0, 0))
	before := askedPages()
	for range 20 {
		im.Reserve(13 << 10)
	}
	if n := askedPages(); n > before {
		t.Errorf("%d pages are asked for, before it %d", n, before)
	}
	runtime.KeepAlive(im)
}

func askedPages() int {
	asked.Lock()
	defer asked.Unlock()

	return len(asked.pages)
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
