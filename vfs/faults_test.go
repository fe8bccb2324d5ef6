package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"testing"
)

func TestCapacity(t *testing.T) {
	m, f := synced(t, "/f", make([]byte, 5000)) // two pages
	if m.Used() != 2*pageSize {
		t.Fatalf("%d bytes are used", m.Used())
	}
	m.SetCapacity(3*pageSize + 100)
	write(t, f, 8000, []byte("xxxx")) // in room that is there
	n, err := f.WriteAt(make([]byte, 10_000), 8000)
	wants(t, "a write over the capacity", err, syscall.ENOSPC)
	if n != 3*pageSize-8000 {
		t.Errorf("%d bytes of it were written", n)
	}
	if size, _ := f.Size(); size != 3*pageSize || m.Used() != 3*pageSize {
		t.Errorf("the file has %d bytes, %d are used", size, m.Used())
	}
	n, err = f.WriteAt([]byte("x"), 3*pageSize)
	wants(t, "a write to a full disk", err, syscall.ENOSPC)
	if n != 0 {
		t.Error("it wrote")
	}
	write(t, f, 0, make([]byte, 3*pageSize)) // over what is there
	must(t, f.Truncate(100_000))             // a hole needs no room
	_, err = f.WriteAt([]byte("x"), 90_000)
	wants(t, "a write into a hole", err, syscall.ENOSPC)
	must(t, f.Truncate(pageSize+1))
	if m.Used() != 2*pageSize {
		t.Errorf("after a cut %d bytes are used", m.Used())
	}

	g := create(t, m, "/g")
	must(t, g.Allocate(pageSize))
	none, some := 0, 0
	for run := range uint64(50) {
		c := m.Clone()
		c.Seed(*seed + run)
		c.SetCapacity(5 * pageSize)
		h, err := c.OpenWrite("/g")
		must(t, err)
		wants(t, "Allocate", h.Allocate(4*pageSize), syscall.ENOSPC)
		switch size, _ := h.Size(); size {
		case pageSize:
			none++
		case 3 * pageSize:
			some++
		default:
			t.Fatalf("it made the file %d bytes long", size)
		}
	}
	if none == 0 || some == 0 {
		t.Errorf("Allocate took nothing %d times, something %d times", none, some)
	}

	must(t, m.Remove("/f")) // f is open and keeps its room
	if m.Used() != 3*pageSize {
		t.Errorf("an open file was removed: %d bytes are used", m.Used())
	}
	must(t, f.Close())
	if m.Used() != pageSize {
		t.Errorf("and closed: %d bytes are used", m.Used())
	}
	h := create(t, m, "/h")
	write(t, h, 0, make([]byte, 2*pageSize))
	must(t, m.Rename("/h", "/g")) // frees the old g, once that is closed
	must(t, g.Close())
	if m.Used() != 2*pageSize {
		t.Errorf("after a rename over it: %d bytes are used", m.Used())
	}
	if used := m.CrashNothing().Used(); used != 2*pageSize { // of f, which is back
		t.Errorf("what was removed comes back with %d bytes", used)
	}
	must(t, errors.Join(h.Sync(), m.SyncDir("/")))
	write(t, h, 0, make([]byte, 2*pageSize))
	must(t, h.Truncate(1))
	if used := m.CrashNothing().Used(); m.Used() != pageSize || used != 2*pageSize {
		t.Errorf("cut to %d bytes, what was cut off comes back with %d", m.Used(), used)
	}
	must(t, errors.Join(h.Allocate(2*pageSize), h.Sync()))
	write(t, h, 2*pageSize-1, []byte("1"))
	grown := m.Clone()
	grown.SetCapacity(-1)
	hh, err := grown.OpenWrite("/g")
	must(t, err)
	write(t, hh, 0, make([]byte, 9*pageSize))
	if used := grown.CrashNothing().Used(); grown.Used() != 9*pageSize || used != 2*pageSize {
		t.Errorf("grown to %d bytes, what is durable has %d", grown.Used(), used)
	}
	for _, c := range []*Mem{m.Clone(), m.CrashAll()} {
		if c.Used() != 2*pageSize {
			t.Errorf("a copy uses %d bytes", c.Used())
		}
		full, err := c.OpenWrite("/g")
		must(t, err)
		_, err = full.WriteAt(make([]byte, 4*pageSize), 0)
		wants(t, "a copy's capacity", err, syscall.ENOSPC)
		c.SetCapacity(-1)
		write(t, full, 0, make([]byte, 100*pageSize))
	}
}

func TestFaults(t *testing.T) {
	m, f := synced(t, "/dir.log", []byte("0123456789"))
	full := errors.New("a cause of its own")
	m.SetHook(Faults(
		Fault{Kind: OpWrite, Name: "*.log", Skip: 1, Count: 2, Err: full, Short: 3},
		Fault{Kind: OpRead, Lo: 4, Hi: 6},
		Fault{Kind: OpRemove, Err: syscall.EROFS},
		Fault{Kind: OpClose, Count: 1},
	))
	write(t, f, 0, []byte("AAAAA"))
	for range 2 {
		n, err := f.WriteAt([]byte("BBBBB"), 5)
		wants(t, "WriteAt", err, full)
		if n != 3 {
			t.Errorf("a short write wrote %d bytes", n)
		}
	}
	g := create(t, m, "/other")
	write(t, g, 0, []byte("not matched"))
	b := make([]byte, 4)
	for off := range int64(7) {
		_, err := f.ReadAt(b, off)
		if want := off > 0 && off < 6; errors.Is(err, syscall.EIO) != want || !want && err != nil {
			t.Errorf("a read of [%d, %d): %v", off, off+4, err)
		}
	}
	wants(t, "Remove", m.Remove("/other"), syscall.EROFS)
	wants(t, "Close", g.Close(), syscall.EIO)
	wants(t, "Close again", g.Close(), fs.ErrClosed)
	write(t, f, 8, []byte("C"))
	m.SetHook(nil)
	has(t, m, "/dir.log", []byte("AAAAABBBC9"))
	m.SetHook(func(Op) error { return &Short{N: 1} })
	n, err := f.WriteAt([]byte("DD"), 8)
	wants(t, "a Short without a cause", err, io.ErrShortWrite)
	if n != 1 {
		t.Errorf("it wrote %d bytes", n)
	}
	m.SetHook(nil)
	has(t, m, "/dir.log", []byte("AAAAABBBD9"))

	var ops []Op
	m.SetHook(func(op Op) error {
		m.Ops() // a hook may ask
		ops = append(ops, op)
		return nil
	})
	before := m.Ops()
	write(t, f, 2, []byte("xy"))
	must(t, errors.Join(f.Datasync(), f.Truncate(5), m.Rename("/dir.log", "/z"), m.SyncDir("/")))
	_, err = m.Size("/z")
	must(t, err)
	want := []Op{
		{Kind: OpWrite, Name: "/dir.log", Offset: 2, Len: 2}, {Kind: OpSync, Name: "/dir.log"},
		{Kind: OpTruncate, Name: "/dir.log", Offset: 5}, {Kind: OpRename, Name: "/dir.log", To: "/z"},
		{Kind: OpSyncDir, Name: "/"}, {Kind: OpSize, Name: "/z"},
	}
	if !slices.Equal(ops, want) || m.Ops()-before != 5 {
		t.Errorf("%d operations counted, seen %v, want %v", m.Ops()-before, ops, want)
	}
}

func TestDamage(t *testing.T) {
	m, f := synced(t, "/f", bytes.Repeat([]byte("a"), 10_000))
	must(t, m.Flip("/f", 5000, 1))
	damaged := bytes.Repeat([]byte("a"), 10_000)
	damaged[5000] = 'c'
	has(t, m, "/f", damaged)
	has(t, m.CrashNothing(), "/f", damaged)
	for what, err := range map[string]error{
		"behind the end": m.Flip("/f", 10_000, 0), "before the start": m.Flip("/f", -1, 0), "a ninth bit": m.Flip("/f", 0, 8),
		"a longer file": m.CutFile("/f", 10_000), "no length": m.CutFile("/f", -1),
	} {
		wants(t, what, err, syscall.EINVAL)
	}
	wants(t, "Flip of nothing", m.Flip("/none", 0, 0), fs.ErrNotExist)
	wants(t, "CutFile of nothing", m.CutFile("/none", 0), fs.ErrNotExist)
	must(t, m.CutFile("/f", 5001))
	has(t, m.CrashNothing(), "/f", damaged[:5001])
	if size, err := f.Size(); size != 5001 || err != nil {
		t.Errorf("who has it open sees %d bytes, %v", size, err)
	}
	if m.Used() != 2*pageSize {
		t.Errorf("%d bytes are used", m.Used())
	}
}
