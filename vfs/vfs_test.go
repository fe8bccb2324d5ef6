package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
)

// systems are the file systems that must behave alike, each with a directory to work in.
func systems(t *testing.T) map[string]func(t *testing.T) (FS, string) {
	return map[string]func(t *testing.T) (FS, string){
		"os": func(t *testing.T) (FS, string) { return OS(), t.TempDir() },
		"mem": func(t *testing.T) (FS, string) {
			m := NewMem()
			must(t, m.MkdirAll("/data/here"))
			return m, "/data/here"
		},
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func create(t testing.TB, fs FS, name string) File {
	t.Helper()
	f, err := fs.Create(name)
	must(t, err)
	return f
}

func write(t testing.TB, f File, off int64, b []byte) {
	t.Helper()
	if n, err := f.WriteAt(b, off); n != len(b) || err != nil {
		t.Fatalf("WriteAt wrote %d of %d: %v", n, len(b), err)
	}
}

// contentsOf reads a file through a handle of its own.
func contentsOf(t testing.TB, fs FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil && err != io.EOF {
		t.Fatalf("read %d of %d bytes of %s: %v", n, size, name, err)
	}
	return b
}

func has(t testing.TB, fs FS, name string, want []byte) {
	t.Helper()
	if got := contentsOf(t, fs, name); !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes %.40q, want %d bytes %.40q", name, len(got), got, len(want), want)
	}
}

func lists(t testing.TB, fs FS, dir string, want ...string) {
	t.Helper()
	got, err := fs.List(dir)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func TestConformance(t *testing.T) {
	for system, open := range systems(t) {
		t.Run(system, func(t *testing.T) {
			for name, test := range map[string]func(*testing.T, FS, string){
				"names": testNames, "contents": testContents, "lengths": testLengths, "mistakes": testMistakes,
				"closed": testClosed, "removed": testRemoved, "links": testLinks, "concurrent": testConcurrent,
			} {
				t.Run(name, func(t *testing.T) {
					fs, dir := open(t)
					test(t, fs, dir)
				})
			}
		})
	}
}

// testLinks: both names are one file, whatever becomes of the other.
func testLinks(t *testing.T, sys FS, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, sys.MkdirAll(at("d")))
	f := create(t, sys, at("a"))
	defer f.Close()
	write(t, f, 0, []byte("one"))
	must(t, sys.Link(at("a"), at("d/b")))
	wants(t, "Link over a file", sys.Link(at("a"), at("d/b")), fs.ErrExist)
	wants(t, "Link over itself", sys.Link(at("a"), at("a")), fs.ErrExist)
	wants(t, "Link of nothing", sys.Link(at("x"), at("y")), fs.ErrNotExist)
	wants(t, "Link into nothing", sys.Link(at("a"), at("no/b")), fs.ErrNotExist)
	write(t, f, 3, []byte(" two"))
	has(t, sys, at("d/b"), []byte("one two"))
	must(t, f.Truncate(3))
	has(t, sys, at("d/b"), []byte("one"))
	must(t, sys.Rename(at("a"), at("d/b"))) // of one file over itself: nothing is done
	has(t, sys, at("a"), []byte("one"))
	must(t, create(t, sys, at("new")).Close())
	must(t, sys.Rename(at("new"), at("a")))
	has(t, sys, at("a"), nil)
	has(t, sys, at("d/b"), []byte("one"))
	must(t, sys.Link(at("d/b"), at("c")))
	must(t, sys.Remove(at("d/b")))
	has(t, sys, at("c"), []byte("one"))
	lists(t, sys, dir, "a", "c", "d")
}

func testNames(t *testing.T, sys FS, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	lists(t, sys, dir)
	f := create(t, sys, at("b"))
	if f.Name() != at("b") {
		t.Errorf("Name is %q", f.Name())
	}
	write(t, f, 0, []byte("first"))
	must(t, f.Close())
	_, err := sys.Create(at("b"))
	wants(t, "Create over a file", err, fs.ErrExist)
	has(t, sys, at("b"), []byte("first"))

	must(t, sys.MkdirAll(at("d/e")))
	must(t, sys.MkdirAll(at("d/e")))
	must(t, create(t, sys, at("d/e/x")).Close())
	must(t, create(t, sys, at("a")).Close())
	lists(t, sys, dir, "a", "b", "d")
	lists(t, sys, at("d"), "e")

	must(t, sys.Rename(at("b"), at("a"))) // over a file
	lists(t, sys, dir, "a", "d")
	has(t, sys, at("a"), []byte("first"))
	must(t, sys.Rename(at("a"), at("d/e/y"))) // into another directory
	must(t, sys.Rename(at("d/e/y"), at("d/e/y")))
	lists(t, sys, at("d/e"), "x", "y")
	has(t, sys, at("d/e/../e/y"), []byte("first"))
	must(t, sys.SyncDir(at("d/e")))
	must(t, sys.SyncDir(dir))

	must(t, sys.Remove(at("d/e/x")))
	must(t, sys.Remove(at("d/e/y")))
	must(t, sys.Remove(at("d/e")))
	lists(t, sys, at("d"))
}

func testContents(t *testing.T, sys FS, dir string) {
	name := filepath.Join(dir, "f")
	f := create(t, sys, name)
	defer f.Close()
	write(t, f, 0, []byte("hello"))
	write(t, f, 2, []byte("LL"))
	write(t, f, 5000, []byte("end"))
	write(t, f, 9000, nil) // does not lengthen
	must(t, f.Datasync())
	must(t, f.Sync())
	want := append([]byte("heLLo"), make([]byte, 4995)...)
	want = append(want, "end"...)
	has(t, sys, name, want)

	b := make([]byte, 10)
	n, err := f.ReadAt(b, 4998)
	if n != 5 || err != io.EOF || string(b[:n]) != "\x00\x00end" {
		t.Errorf("a read over the end got %q, %v", b[:n], err)
	}
	if n, err := f.ReadAt(b, 1<<40); n != 0 || err != io.EOF {
		t.Errorf("a read far behind the end got %d bytes, %v", n, err)
	}
	if n, err := f.ReadAt(nil, 1<<40); n != 0 || err != nil {
		t.Errorf("a read of nothing got %d bytes, %v", n, err)
	}
	again, err := sys.OpenWrite(name)
	must(t, err)
	write(t, again, 0, []byte("J"))
	must(t, again.Close())
	if _, err := f.ReadAt(b[:1], 0); err != nil || b[0] != 'J' {
		t.Errorf("another handle's write reads as %q, %v", b[:1], err)
	}
}

func testLengths(t *testing.T, sys FS, dir string) {
	name := filepath.Join(dir, "f")
	f := create(t, sys, name)
	defer f.Close()
	size := func(want int64) {
		t.Helper()
		got, err := f.Size()
		must(t, err)
		named, err := sys.Size(name)
		must(t, err)
		if got != want || named != want {
			t.Fatalf("the sizes are %d and %d, want %d", got, named, want)
		}
	}
	size(0)
	must(t, f.Allocate(0))
	size(0)
	write(t, f, 0, bytes.Repeat([]byte("x"), 6000))
	must(t, f.Allocate(100)) // never shorter
	size(6000)
	must(t, f.Allocate(70000))
	size(70000)
	must(t, f.Truncate(5000))
	size(5000)
	must(t, f.Truncate(9000)) // what was cut off is zeros
	size(9000)
	has(t, sys, name, append(bytes.Repeat([]byte("x"), 5000), make([]byte, 4000)...))
	must(t, f.Truncate(100))
	must(t, f.Allocate(8192))
	has(t, sys, name, append(bytes.Repeat([]byte("x"), 100), make([]byte, 8092)...))
	must(t, f.Truncate(0))
	size(0)
}

func testMistakes(t *testing.T, sys FS, dir string) {
	at := func(name string) string { return filepath.Join(dir, name) }
	f := create(t, sys, at("f"))
	defer f.Close()
	must(t, sys.MkdirAll(at("d/e")))
	failing := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	open := func(f File, err error) error {
		if f != nil {
			t.Error("a file beside an error")
		}
		return err
	}
	wants(t, "Open of nothing", open(sys.Open(at("none"))), fs.ErrNotExist)
	wants(t, "OpenWrite of nothing", open(sys.OpenWrite(at("none"))), fs.ErrNotExist)
	wants(t, "Open of an empty name", open(sys.Open("")), fs.ErrNotExist)
	wants(t, "Create in nothing", open(sys.Create(at("none/f"))), fs.ErrNotExist)
	wants(t, "Remove of nothing", sys.Remove(at("none")), fs.ErrNotExist)
	wants(t, "Rename of nothing", sys.Rename(at("none"), at("other")), fs.ErrNotExist)
	wants(t, "Rename into nothing", sys.Rename(at("f"), at("none/f")), fs.ErrNotExist)
	wants(t, "SyncDir of nothing", sys.SyncDir(at("none")), fs.ErrNotExist)
	_, err := sys.List(at("none"))
	wants(t, "List of nothing", err, fs.ErrNotExist)
	_, err = sys.Size(at("none"))
	wants(t, "Size of nothing", err, fs.ErrNotExist)
	failing("Create over a directory", open(sys.Create(at("d"))))
	failing("Open of a directory", open(sys.Open(at("d"))))
	failing("OpenWrite of a directory", open(sys.OpenWrite(at("d"))))
	_, err = sys.Size(at("d"))
	failing("Size of a directory", err)
	_, err = sys.List(at("f"))
	failing("List of a file", err)
	failing("Remove of a full directory", sys.Remove(at("d")))
	failing("Rename over a directory", sys.Rename(at("f"), at("d")))
	failing("MkdirAll over a file", sys.MkdirAll(at("f")))
	failing("MkdirAll below a file", sys.MkdirAll(at("f/d")))
	failing("Create below a file", open(sys.Create(at("f/x"))))
	failing("SyncDir of a file", sys.SyncDir(at("f")))
	failing("a name with a zero byte", open(sys.Create(at("a\x00b"))))

	write(t, f, 0, []byte("abc"))
	_, err = f.WriteAt([]byte("x"), -1)
	failing("a write before the start", err)
	_, err = f.ReadAt(make([]byte, 1), -1)
	failing("a read before the start", err)
	_, err = f.WriteAt([]byte("x"), math.MaxInt64)
	failing("a write at the end of the world", err)
	failing("Truncate to less than nothing", f.Truncate(-1))
	failing("Allocate of less than nothing", f.Allocate(-1))
	if err := f.Truncate(math.MaxInt64); err == nil {
		// Sparse files have no limit on tmpfs, XFS and others.
		if size, err := f.Size(); size != math.MaxInt64 || err != nil {
			t.Errorf("truncated to everything, it has %d bytes, %v", size, err)
		}
		if _, real := sys.(osFS); !real {
			t.Error("Truncate to everything: no error")
		}
	}
	must(t, f.Truncate(3))
	failing("Allocate of everything", f.Allocate(math.MaxInt64))
	must(t, f.Truncate(3))
	r, err := sys.Open(at("f"))
	must(t, err)
	defer r.Close()
	n, err := r.WriteAt([]byte("x"), 0)
	if n != 0 {
		t.Errorf("a file open for reading took %d bytes", n)
	}
	failing("a write to a file open for reading", err)
	failing("Truncate of a file open for reading", r.Truncate(0))
	failing("Allocate in a file open for reading", r.Allocate(10000))
	if _, mem := sys.(*Mem); mem {
		failing("Sync of a file open for reading", r.Sync())
	}
	has(t, sys, at("f"), []byte("abc"))
	lists(t, sys, dir, "d", "f")
}

func testClosed(t *testing.T, sys FS, dir string) {
	f := create(t, sys, filepath.Join(dir, "f"))
	must(t, f.Close())
	_, err := f.ReadAt(make([]byte, 1), 0)
	wants(t, "ReadAt", err, fs.ErrClosed)
	_, err = f.WriteAt(make([]byte, 1), 0)
	wants(t, "WriteAt", err, fs.ErrClosed)
	_, err = f.Size()
	wants(t, "Size", err, fs.ErrClosed)
	wants(t, "Truncate", f.Truncate(10), fs.ErrClosed)
	wants(t, "Allocate", f.Allocate(10), fs.ErrClosed)
	wants(t, "Datasync", f.Datasync(), fs.ErrClosed)
	wants(t, "Sync", f.Sync(), fs.ErrClosed)
	wants(t, "Close", f.Close(), fs.ErrClosed)
}

// testRemoved: a file that is open can be removed and replaced, and is still there for who has it.
func testRemoved(t *testing.T, sys FS, dir string) {
	if _, ok := sys.(osFS); ok && runtime.GOOS == "windows" {
		t.Skip("Windows replaces no open files")
	}
	name := filepath.Join(dir, "f")
	f := create(t, sys, name)
	defer f.Close()
	write(t, f, 0, []byte("old"))
	must(t, sys.Remove(name))
	write(t, f, 3, []byte("er"))
	g := create(t, sys, name)
	defer g.Close()
	write(t, g, 0, []byte("new"))
	b := make([]byte, 5)
	if _, err := f.ReadAt(b, 0); err != nil || string(b) != "older" {
		t.Errorf("the removed file reads as %q, %v", b, err)
	}
	must(t, f.Sync())
	has(t, sys, name, []byte("new"))
}

func testConcurrent(t *testing.T, sys FS, dir string) {
	const workers, writes = 8, 100
	f := create(t, sys, filepath.Join(dir, "shared"))
	defer f.Close()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			own, err := sys.Create(filepath.Join(dir, fmt.Sprint("own", w)))
			if err != nil {
				t.Error(err)
				return
			}
			defer own.Close()
			b, back := bytes.Repeat([]byte{byte('a' + w)}, 100), make([]byte, 100)
			for i := range writes {
				off := int64(i*workers+w) * 100
				_, err1 := f.WriteAt(b, off)
				_, err2 := own.WriteAt(b, int64(i)*100)
				_, err3 := f.ReadAt(back, off)
				if err := errors.Join(err1, err2, err3); err != nil || !bytes.Equal(b, back) {
					t.Errorf("wrote %q, read %q, %v", b[:1], back, err)
					return
				}
				if i%20 == 0 {
					if err := errors.Join(f.Datasync(), sys.SyncDir(dir)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	var want []byte
	for range writes {
		for w := range workers {
			want = append(want, bytes.Repeat([]byte{byte('a' + w)}, 100)...)
		}
	}
	has(t, sys, filepath.Join(dir, "shared"), want)
}

// TestSame does the same random things to the real file system and to Mem and compares what comes
// of each.
func TestSame(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows removes and replaces no open files")
	}
	home := t.TempDir()
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		real, m := OS(), NewMem()
		root := filepath.Join(home, fmt.Sprint(runs))
		if err := errors.Join(real.MkdirAll(root), m.MkdirAll(root)); err != nil {
			r.Fatal(err)
		}
		names := rapid.SampledFrom([]string{"a", "b", "c", "d", "d/a", "d/e", "d/e/b", "none/x"})
		drawName := func(label string) string { return filepath.Join(root, names.Draw(r, label)) }
		sizes := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, 20000),
			rapid.SampledFrom([]int64{511, 512, 4095, 4096, 4097, 8192, -1}))
		var files [][2]File
		opened := func(f1 File, err1 error, f2 File, err2 error) (error, error) {
			if err1 == nil && err2 == nil {
				files = append(files, [2]File{f1, f2})
			}
			return err1, err2
		}
		defer func() {
			for _, pair := range files {
				pair[0].Close()
				pair[1].Close()
			}
		}()
		file := func() [2]File {
			if len(files) == 0 {
				r.Skip()
			}
			return files[rapid.IntRange(0, len(files)-1).Draw(r, "file")]
		}
		same := func(what string, err1, err2 error) {
			r.Helper()
			if class(err1) != class(err2) {
				r.Fatalf("%s: the real one says %v, Mem says %v", what, err1, err2)
			}
		}
		do := func(what string, on func(FS) error) { same(what, on(real), on(m)) }
		r.Repeat(map[string]func(*rapid.T){
			"create": func(*rapid.T) {
				name := drawName("name")
				f1, err1 := real.Create(name)
				f2, err2 := m.Create(name)
				err1, err2 = opened(f1, err1, f2, err2)
				same("create", err1, err2)
			},
			"open": func(*rapid.T) {
				name := drawName("name")
				if rapid.Bool().Draw(r, "write") {
					f1, err1 := real.OpenWrite(name)
					f2, err2 := m.OpenWrite(name)
					err1, err2 = opened(f1, err1, f2, err2)
					same("open", err1, err2)
					return
				}
				f1, err1 := real.Open(name)
				f2, err2 := m.Open(name)
				err1, err2 = opened(f1, err1, f2, err2)
				same("open", err1, err2)
			},
			"remove": func(*rapid.T) {
				name := drawName("name")
				do("remove", func(s FS) error { return s.Remove(name) })
			},
			"rename": func(*rapid.T) {
				from, to := drawName("from"), drawName("to")
				if _, err := real.List(from); err == nil {
					r.Skip() // of directories: not with Mem
				}
				do("rename", func(s FS) error { return s.Rename(from, to) })
			},
			"link": func(*rapid.T) {
				from, to := drawName("from"), drawName("to")
				if _, err := real.List(from); err == nil {
					r.Skip() // of directories: systems differ
				}
				do("link", func(s FS) error { return s.Link(from, to) })
			},
			"mkdir": func(*rapid.T) {
				name := drawName("name")
				do("mkdir", func(s FS) error { return s.MkdirAll(name) })
			},
			"syncdir": func(*rapid.T) {
				name := drawName("name")
				do("syncdir", func(s FS) error { return s.SyncDir(name) })
			},
			"write": func(*rapid.T) {
				pair, off, n := file(), sizes.Draw(r, "off"), max(1, sizes.Draw(r, "len"))
				b := bytes.Repeat([]byte{rapid.Byte().Draw(r, "byte")}, int(n))
				n1, err1 := pair[0].WriteAt(b, off)
				n2, err2 := pair[1].WriteAt(b, off)
				if same("write", err1, err2); n1 != n2 {
					r.Fatalf("wrote %d and %d bytes", n1, n2)
				}
			},
			"read": func(*rapid.T) {
				pair, off, n := file(), sizes.Draw(r, "off"), max(1, sizes.Draw(r, "len"))
				b1, b2 := make([]byte, n), make([]byte, n)
				n1, err1 := pair[0].ReadAt(b1, off)
				n2, err2 := pair[1].ReadAt(b2, off)
				if same("read", err1, err2); n1 != n2 || !bytes.Equal(b1, b2) {
					r.Fatalf("read %d and %d bytes, not the same", n1, n2)
				}
			},
			"truncate": func(*rapid.T) {
				pair, size := file(), sizes.Draw(r, "size")
				same("truncate", pair[0].Truncate(size), pair[1].Truncate(size))
			},
			"allocate": func(*rapid.T) {
				pair, size := file(), sizes.Draw(r, "size")
				same("allocate", pair[0].Allocate(size), pair[1].Allocate(size))
			},
			"sync": func(*rapid.T) {
				pair := file()
				err := pair[1].Datasync()
				if mf := pair[1].(*memFile); !mf.closed && !mf.writable {
					if !errors.Is(err, syscall.EBADF) { // as on Windows
						r.Fatalf("sync of a file that is open for reading: %v", err)
					}
					return
				}
				same("sync", pair[0].Datasync(), err)
			},
			"close": func(*rapid.T) {
				pair := file()
				same("close", pair[0].Close(), pair[1].Close())
			},
			"": func(*rapid.T) {
				compareTrees(r, real, m, root)
				checkHistory(r, m.root, map[*node]bool{})
			},
		})
	})
}

// class is what a program may tell errors apart by.
func class(err error) string {
	for _, known := range []error{fs.ErrNotExist, fs.ErrExist, io.EOF} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "another error"
	}
	return "no error"
}

func compareTrees(t rapid.TB, a, b FS, dir string) {
	list, err1 := a.List(dir)
	other, err2 := b.List(dir)
	if err := errors.Join(err1, err2); err != nil || !slices.Equal(list, other) {
		t.Fatalf("%s holds %q and %q, %v", dir, list, other, err)
	}
	for _, name := range list {
		name = filepath.Join(dir, name)
		if _, err := a.List(name); err == nil {
			compareTrees(t, a, b, name)
			continue
		}
		size1, err1 := a.Size(name)
		size2, err2 := b.Size(name)
		if err := errors.Join(err1, err2); err != nil || size1 != size2 {
			t.Fatalf("%s has %d and %d bytes, %v", name, size1, size2, err)
		}
		f1, err1 := a.Open(name)
		f2, err2 := b.Open(name)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		b1, b2 := make([]byte, size1), make([]byte, size1)
		_, err1 = f1.ReadAt(b1, 0)
		_, err2 = f2.ReadAt(b2, 0)
		f1.Close()
		f2.Close()
		if class(err1) != class(err2) || !bytes.Equal(b1, b2) {
			t.Fatalf("%s reads differently: %v, %v", name, err1, err2)
		}
	}
}

// checkHistory checks in all files that the history, made again, gives what is seen.
func checkHistory(t rapid.TB, n *node, done map[*node]bool) {
	if done[n] {
		return
	}
	done[n] = true
	for _, below := range n.entries {
		checkHistory(t, below, done)
	}
	if n.isDir() {
		return
	}
	at := n.start().share()
	for _, c := range n.changes {
		if c.n > 0 {
			at.write(n.log[c.at:c.at+int(c.n)], c.off)
		}
		at.resize(c.size)
	}
	if at.size != n.seen.size {
		t.Fatalf("the history gives %d bytes, seen are %d", at.size, n.seen.size)
	}
	length := roundUp(max(at.size, n.disk.size), pageSize) + pageSize
	a, b := make([]byte, length), make([]byte, length)
	at.read(a, 0)
	n.seen.read(b, 0)
	if !bytes.Equal(a, b) {
		t.Fatal("the history gives other bytes than are seen")
	}
	if c := bytes.Trim(b[n.seen.size:], "\x00"); len(c) > 0 {
		t.Fatal("there are bytes behind the end")
	}
	n.disk.read(a, 0)
	if c := bytes.Trim(a[n.disk.size:], "\x00"); len(c) > 0 {
		t.Fatal("there are bytes behind the end on the disk")
	}
}

func TestMap(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no mappings on Windows")
	}
	for name, system := range mappable(t) {
		t.Run(name, func(t *testing.T) { testMap(t, system) })
	}
}

// mappable are the file systems whose files can be mapped.
func mappable(t *testing.T) map[string]FS {
	m := NewMem()
	m.SetMapping(true)
	t.Cleanup(m.Unmap)
	return map[string]FS{"os": OS(), "mem": m}
}

func testMap(t *testing.T, system FS) {
	dir := t.TempDir()
	must(t, system.MkdirAll(dir))
	name := filepath.Join(dir, "f")
	f := create(t, system, name)
	mapper := f.(Mapper)
	empty, err := mapper.Map(0)
	must(t, err)
	if len(empty.Bytes()) != 0 {
		t.Error("an empty mapping has bytes")
	}
	must(t, empty.Unmap())
	must(t, f.Allocate(10000))
	write(t, f, 0, []byte("before"))
	m, err := mapper.Map(10000)
	must(t, err)
	write(t, f, 9000, []byte("after"))
	must(t, f.Close())
	b := m.Bytes()
	if len(b) != 10000 || string(b[:6]) != "before" || string(b[9000:9005]) != "after" {
		t.Errorf("the mapping has %d bytes, %q and %q", len(b), b[:6], b[9000:9005])
	}
	must(t, m.Unmap())
	wants(t, "a second Unmap", m.Unmap(), fs.ErrClosed)

	f, err = system.Open(name)
	must(t, err)
	defer f.Close()
	m, err = f.(Mapper).Map(6)
	must(t, err)
	if string(m.Bytes()) != "before" {
		t.Errorf("mapped from a file open for reading: %q", m.Bytes())
	}
	must(t, m.Unmap())
	_, err = f.(Mapper).Map(10001)
	wants(t, "more than there is", err, io.ErrUnexpectedEOF)
	_, err = f.(Mapper).Map(-1)
	wants(t, "less than nothing", err, syscall.EINVAL)
	must(t, f.Close())
	_, err = f.(Mapper).Map(1)
	wants(t, "a closed file", err, fs.ErrClosed)
}

func TestMapWrite(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux maps files for writing")
	}
	for name, system := range mappable(t) {
		t.Run(name, func(t *testing.T) { testMapWrite(t, system) })
	}
}

func testMapWrite(t *testing.T, system FS) {
	dir := t.TempDir()
	must(t, system.MkdirAll(dir))
	name := filepath.Join(dir, "f")
	f := create(t, system, name)
	defer f.Close()
	mapper := f.(WriteMapper)
	must(t, f.Allocate(10000))
	write(t, f, 0, []byte("one"))
	m, err := mapper.MapWrite(10000)
	must(t, err)
	if copy(m.Bytes()[9997:], "two"); string(m.Bytes()[:3]) != "one" {
		t.Errorf("the mapping begins with %q", m.Bytes()[:3])
	}
	b := make([]byte, 3)
	if _, err := f.ReadAt(b, 9997); err != nil || string(b) != "two" {
		t.Errorf("what was written through the mapping reads as %q, %v", b, err)
	}
	in, err := f.(Mapper).Map(9998)
	must(t, err)
	write(t, f, 5000, []byte("three"))
	copy(m.Bytes()[4990:], "four")
	shown := string(in.Bytes()[4990:4994]) + string(in.Bytes()[5000:5005]) + string(in.Bytes()[9997:])
	if shown != "fourthreet" {
		t.Errorf("another mapping shows %q", shown)
	}
	must(t, errors.Join(f.Datasync(), m.Unmap(), in.Unmap()))
	if got := contentsOf(t, system, name); string(got[:3]) != "one" || string(got[9997:]) != "two" {
		t.Errorf("after Unmap the file has %q and %q", got[:3], got[9997:])
	}
	_, err = mapper.MapWrite(10001)
	wants(t, "more than there is", err, io.ErrUnexpectedEOF)
	r, err := system.Open(name)
	must(t, err)
	defer r.Close()
	_, err = r.(WriteMapper).MapWrite(10000)
	wants(t, "a file open for reading", err, fs.ErrPermission)
}

// TestAllocateTakesRoom asks the disk itself, where there is fallocate.
func TestAllocateTakesRoom(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux reserves room")
	}
	name := filepath.Join(t.TempDir(), "f")
	f := create(t, OS(), name)
	defer f.Close()
	const size = 8 << 20
	must(t, f.Truncate(size)) // a hole
	must(t, f.Allocate(size))
	got, supported := taken(t, name)
	if !supported {
		t.Skip("this file system has no fallocate")
	}
	if got < size {
		t.Errorf("the file takes %d bytes, want %d", got, size)
	}
}

func TestKindNames(t *testing.T) {
	seen := map[string]bool{}
	for k := OpCreate; k <= OpClose; k++ {
		if name := k.String(); name == "" || name == "none" || seen[name] || strings.ToLower(name) != name {
			t.Errorf("kind %d is called %q", k, name)
		} else {
			seen[name] = true
		}
	}
	if Kind(0).String() != "none" || Kind(200).String() != "none" {
		t.Error("what is no kind has a name")
	}
}

// TestFree: the operating system knows how much room there is, and a limited Mem what is left of its capacity.
func TestFree(t *testing.T) {
	if free := OS().Free(t.TempDir()); free <= 0 {
		t.Errorf("%d bytes are free", free)
	}
	m := NewMem()
	if free := m.Free("/"); free != math.MaxInt64 {
		t.Errorf("without a limit, %d bytes are free", free)
	}
	m.SetCapacity(1 << 20)
	f, err := m.Create("/f")
	must(t, err)
	must(t, f.Allocate(64<<10))
	if free := m.Free("/"); free != 1<<20-64<<10 {
		t.Errorf("%d bytes are free", free)
	}
}

// writtenBack notes what the system is to write.
type writtenBack struct {
	File
	parts [][2]int64
}

func (f *writtenBack) WriteBack(off, n int64) { f.parts = append(f.parts, [2]int64{off, n}) }

// TestBehind: of a file that is appended to, what is written back is all but the last part, once, and again what was
// cut off and written anew. One that cannot do that is left alone.
func TestBehind(t *testing.T) {
	f, b := &writtenBack{}, Behind{}
	for _, size := range []int64{1, behindEvery - 1, behindEvery, behindEvery + 5, 3 * behindEvery} {
		b.Appended(f, size)
	}
	b.Cut(2 * behindEvery)
	b.Appended(f, 3*behindEvery)
	b.Cut(4 * behindEvery)
	want := [][2]int64{{0, behindEvery}, {behindEvery, 2 * behindEvery}, {2 * behindEvery, behindEvery}}
	if !slices.Equal(f.parts, want) {
		t.Errorf("%v, want %v", f.parts, want)
	}
	b.Appended(struct{ File }{}, 9*behindEvery)
}
