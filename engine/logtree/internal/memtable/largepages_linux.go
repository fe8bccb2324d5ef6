package memtable

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const largePage = 2 << 20

// asked counts, for each large page, how much memory in it has asked for it and is still in use.
var asked struct {
	sync.Mutex
	pages map[uintptr]int
}

// onlyAsked reports whether the system has large pages only for who asks. Where all memory has them, nothing is asked.
var onlyAsked = sync.OnceValue(func() bool {
	b, _ := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return bytes.Contains(b, []byte("[madvise]"))
})

// largePages asks for pages of 2 MiB where b lies, if the system has them only for who asks. A search in a large table
// touches memory anywhere, and the processor has to find out where each page of it is; nor is there a fault for every
// 4 KiB then. It is for memory that is used as a whole, soon, and not given back until it is used again, because all of
// a page is there once a byte of it is.
//
// The pages in which b begins and ends are asked for too: what comes next, mostly allocated behind it, is in them. They
// are the garbage collector's as all of its memory is. Nothing but speed depends on it.
//
// Once b is garbage, it is asked for no more: the system makes large pages, after a while, also of those of which a
// little is in use, and memory that the garbage collector has given back would come back.
func largePages(b []byte) {
	if !onlyAsked() {
		return
	}
	first := unsafe.SliceData(b)
	from := uintptr(unsafe.Pointer(first))
	r := [2]uintptr{from &^ (largePage - 1), (from + uintptr(len(b)) + largePage - 1) &^ (largePage - 1)}

	asked.Lock()
	defer asked.Unlock()
	if asked.pages == nil {
		asked.pages = map[uintptr]int{}
	}
	for page := r[0]; page < r[1]; page += largePage {
		asked.pages[page]++
	}
	advise(r[0], r[1]-r[0], unix.MADV_HUGEPAGE)
	runtime.AddCleanup(first, notAsked, r)
}

// notAsked ends what largePages has asked for.
func notAsked(r [2]uintptr) {
	asked.Lock()
	defer asked.Unlock()

	for page := r[0]; page < r[1]; page += largePage {
		if asked.pages[page]--; asked.pages[page] == 0 {
			delete(asked.pages, page)
			advise(page, largePage, unix.MADV_NOHUGEPAGE)
		}
	}
}

func advise(from, n uintptr, advice uintptr) {
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, n, advice)
}
