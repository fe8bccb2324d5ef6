//go:build unix

package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
)

// mappedMem returns a Mem in which the given file is durable, an open handle of it, and its bytes in memory, to
// store to.
func mappedMem(t testing.TB, name string, b []byte) (*Mem, File, []byte) {
	t.Helper()
	m, f := synced(t, name, b)
	must(t, f.Close())
	m.SetMapping(true)
	t.Cleanup(m.Unmap)
	f, err := m.OpenWrite(name)
	must(t, err)
	mapped, err := f.(WriteMapper).MapWrite(int64(len(b)))
	must(t, err)
	return m, f, mapped.Bytes()
}

// faults reports whether do meets a memory fault.
func faults(do func()) (met bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			_ = r.(interface{ Addr() uintptr })
			met = true
		}
	}()
	do()
	return false
}

var sink byte

// touch and scribble read a byte and write one.
func touch(b []byte) func()    { return func() { sink += b[0] } }
func scribble(b []byte) func() { return func() { b[0]++ } }

func TestStoreIsUnsynced(t *testing.T) {
	m, f, b := mappedMem(t, "/f", sectors("ab"))
	copy(b, sectors("A"))
	has(t, m, "/f", sectors("Ab"))
	has(t, m.Kill(), "/f", sectors("Ab"))
	has(t, m.CrashNothing(), "/f", sectors("ab"))
	has(t, m.CrashAll(), "/f", sectors("Ab"))
	has(t, m.Kill().CrashNothing(), "/f", sectors("ab"))
	must(t, f.Datasync())
	copy(b[sectorSize:], sectors("B"))
	exactly(t, outcomes(m, func(c *Mem) string { return strings.ReplaceAll(show(t, "/f")(c), "?", "B") }), "Ab", "AB")
	must(t, f.Sync())
	exactly(t, outcomes(m, show(t, "/f")), "AB")
}

// TestStoreIsTorn: the device may take a page while a store to it is under way, and what was stored of it so far.
func TestStoreIsTorn(t *testing.T) {
	m, f, b := mappedMem(t, "/f", []byte("..."))
	copy(b, "12")
	text := func(m *Mem) string { return string(contentsOf(t, m, "/f")) }
	exactly(t, outcomes(m, text), "...", "1..", ".2.", "12.")
	must(t, f.Datasync())
	copy(b[1:], "34")
	exactly(t, outcomes(m, text), "12.", "13.", "124", "134")
}

func TestFailedSyncOfStores(t *testing.T) {
	lost := 0
	for n := range uint64(10) {
		m, f, b := mappedMem(t, "/f", sectors("abc"))
		m.Seed(n)
		copy(b, sectors("A"))
		m.SetHook(Faults(Fault{Kind: OpSync}))
		wants(t, "Sync", f.Sync(), syscall.EIO)
		m.SetHook(nil)
		copy(b[2*sectorSize:], sectors("C"))
		must(t, f.Sync())
		found := contentsOf(t, m.CrashNothing(), "/f")
		if !bytes.Equal(b, sectors("AbC")) || found[2*sectorSize] != 'C' {
			t.Errorf("mapped, %q...; after a power cut, %q, %q", b[:1], found[0], found[2*sectorSize])
		}
		if found[0] == 'a' {
			lost++
		}
		m.DropCaches()
		if !bytes.Equal(b, found) {
			t.Error("the mapping does not show what is on the disk")
		}
		has(t, m, "/f", found)
	}
	if lost == 0 || lost == 10 {
		t.Errorf("a failed sync has dropped what was stored %d times of 10", lost)
	}
}

// TestMappedRot: what was read once may be dropped, and be rotten when it is read again.
func TestMappedRot(t *testing.T) {
	m, _, b := mappedMem(t, "/f", sectors("ab"))
	b[0] = 'A'
	touch(b)()
	must(t, m.Flip("/f", 700, 0))
	if b[700] != 'b'^1 || b[0] != 'A' || b[699] != 'b' {
		t.Errorf("the mapping shows %q, %q, %q", b[0], b[699], b[700])
	}
	must(t, m.CutFile("/f", 600))
	if b[0] != 'A' || b[600] != 0 {
		t.Errorf("after a cut in its page: %q, %q", b[0], b[600])
	}
}

func TestMemoryFaults(t *testing.T) {
	page := int(unit)
	m, f, b := mappedMem(t, "/f", make([]byte, 4*page))
	second := b[page:]
	if faults(touch(second)) || faults(scribble(b)) {
		t.Fatal("a fault without a reason")
	}
	must(t, m.Spoil("/f", 0, int64(page)+1))
	if faults(touch(b)) || !faults(touch(second)) || !faults(scribble(second)) || faults(touch(b[2*page:])) {
		t.Error("not what was spoiled faults: the second page, the first being dirty")
	}
	_, err := f.ReadAt(make([]byte, 1), int64(page))
	wants(t, "a read", err, syscall.EIO)
	_, err = f.WriteAt(make([]byte, 1), int64(page))
	wants(t, "a write", err, syscall.EIO)
	must(t, f.Sync())
	m.Unspoil()
	if faults(scribble(second)) {
		t.Error("a fault after Unspoil")
	}
	must(t, f.Truncate(int64(3*page)))
	if !faults(touch(b[3*page:])) || faults(touch(b[3*page-1:])) {
		t.Error("the end is elsewhere")
	}
	must(t, f.Truncate(int64(4*page)))
	if last := b[3*page:]; faults(touch(last)) || !faults(scribble(last)) {
		t.Error("a hole takes a store, or cannot be read")
	}
	must(t, f.Allocate(int64(4*page)))
	in, err := f.(Mapper).Map(1)
	must(t, err)
	if faults(scribble(b[3*page:])) || in.Bytes()[0] != b[0] {
		t.Error("no store where there is room")
	}
	m.Halt()
	if !faults(scribble(b)) || faults(touch(b)) {
		t.Error("without power a store succeeds, or a read fails")
	}
	wants(t, "spoiling nothing", m.Spoil("/g", 0, 1), fs.ErrNotExist)
}

// TestReadMappingIsReadOnly: as the operating system has it.
func TestReadMappingIsReadOnly(t *testing.T) {
	m, f, _ := mappedMem(t, "/f", sectors("ab"))
	m.Unmap()
	in, err := f.(Mapper).Map(2)
	must(t, err)
	if b := in.Bytes(); !faults(scribble(b)) || faults(touch(b)) {
		t.Error("a store to a mapping for reading succeeds")
	}
	_, err = f.(Mapper).Map(100000)
	if err == nil {
		t.Error("more is mapped than there is")
	}
	m.SetHook(Faults(Fault{Kind: OpMap}))
	_, err = f.(WriteMapper).MapWrite(2)
	wants(t, "a hook", err, syscall.EIO)
	must(t, in.Unmap())
}

// TestMappedHistories stores and writes at random, and compares with plain bytes: after a kill all is there;
// after a power cut each byte is one that was there since the last sync.
func TestMappedHistories(t *testing.T) {
	t.Parallel()
	const size = 3*pageSize + 100
	for n := range uint64(60) {
		rnd := seeded(*seed + n)
		m, f, b := mappedMem(t, "/f", make([]byte, size))
		m.Seed(n)
		now := make([]byte, size)
		could := make([][256]bool, size)
		settle := func() {
			for i := range could {
				could[i] = [256]bool{}
				could[i][now[i]] = true
			}
		}
		settle()
		for range 60 {
			off := rnd.IntN(size)
			part := bytes.Repeat([]byte{byte(rnd.IntN(256))}, 1+rnd.IntN(min(700, size-off)))
			switch rnd.IntN(8) {
			case 0:
				must(t, f.Datasync())
				settle()
				continue
			case 1, 2:
				write(t, f, int64(off), part)
			default:
				copy(b[off:], part)
			}
			copy(now[off:], part)
			for i := off; i < off+len(part); i++ {
				could[i][now[i]] = true
			}
		}
		if !bytes.Equal(b, now) {
			t.Fatalf("seed %d: the mapping shows something else", *seed+n)
		}
		has(t, m.Kill(), "/f", now)
		has(t, m.CrashAll(), "/f", now)
		for range 20 {
			found := contentsOf(t, m.Crash(rnd), "/f")
			for i := range found {
				if !could[i][found[i]] {
					t.Fatalf("seed %d: byte %d is %d after a power cut, which it never was", *seed+n, i, found[i])
				}
			}
		}
		must(t, errors.Join(f.Sync(), f.Close()))
		has(t, m.CrashNothing(), "/f", now)
		m.Unmap()
	}
}
