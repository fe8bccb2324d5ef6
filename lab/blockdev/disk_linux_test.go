package blockdev

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// childDir in the environment makes the test binary a child that leaves a disk and an image there until it is killed.
const (
	childDir  = "HOLDFAST_BLOCKDEV_CHILD"
	childSelf = "HOLDFAST_BLOCKDEV_SELF" // it writes itself, if not empty
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Println(leave(dir, os.Getenv(childSelf) != ""))
		return
	}
	os.Exit(m.Run())
}

// options are those of a test's disks; the test ends with a look for what was left.
func options(t *testing.T, fs string) Options {
	t.Helper()
	if err := Check(fs); err != nil {
		t.Skip(err)
	}
	dir, err := realPath(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nothingLeft(t, dir) })
	return Options{FS: fs, Dir: dir}
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir) {
			t.Errorf("still mounted: %s", line)
			point := strings.Fields(line)[4]
			unix.Unmount(point, unix.MNT_FORCE) // so that no process waits for a server that is gone
			unix.Unmount(point, unix.MNT_DETACH)
		}
	}
	names, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, name := range names {
		if backing, err := os.ReadFile(name); err == nil && strings.Contains(string(backing), dir) {
			t.Errorf("%s is still on %s", name, backing)
		}
	}
	left, _ := filepath.Glob(filepath.Join(dir, scratchPrefix+"*"))
	if len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func newDisk(t *testing.T, o Options) *Disk {
	t.Helper()
	d, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, d) })
	return d
}

type closer interface{ Close() error }

func closeAll(t *testing.T, list ...closer) {
	t.Helper()
	for _, c := range list {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := firstOf(errs...); err != nil {
		t.Fatal(err)
	}
}

// writeSynced makes a file and syncs it and its directory.
func writeSynced(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return firstOf(f.Sync(), syncDir(filepath.Dir(name)))
}

func syncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// withImage mounts an image for as long as look takes.
func withImage(t *testing.T, o Options, im *Image, look func(path string)) {
	t.Helper()
	m, err := im.Mount(t.Context(), o)
	if err != nil {
		t.Errorf("the image does not mount: %v", err)
		return
	}
	look(m.Path())
	closeAll(t, m)
}

// reallyWrite asks the kernel to write a file's pages to the disk, without a flush.
func reallyWrite(f *os.File) error {
	return unix.SyncFileRange(int(f.Fd()), 0, 0,
		unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
}

// TestSyncedSurvives is the heart of it: what was synced before a mark is in every image that is cut after the mark, on
// every file system. Other files are written all the time, so that there is always something to lose.
func TestSyncedSurvives(t *testing.T) {
	for _, fs := range FileSystems() {
		t.Run(fs, func(t *testing.T) {
			o := options(t, fs)
			d := newDisk(t, o)
			dir := filepath.Join(d.Path(), "data")
			must(t, os.Mkdir(dir, 0o700), syncDir(d.Path()))
			noise, err := os.Create(filepath.Join(dir, "noise"))
			must(t, err)
			defer noise.Close()
			name := func(i int) string { return fmt.Sprintf("file-%02d", i) }
			data := func(i int) []byte { return bytes.Repeat([]byte(name(i)), 100*(i+1)) }
			var marks []Position
			for i := range 15 {
				_, err := noise.Write(make([]byte, 50000))
				must(t, err, reallyWrite(noise), writeSynced(filepath.Join(dir, name(i)), data(i)))
				marks = append(marks, d.Mark(uint64(i)))
			}
			must(t, reallyWrite(noise))
			rec := d.Freeze()
			must(t, noise.Close(), d.Close(), rec.Err())
			defer closeAll(t, rec)
			cuts := 0
			for at := int(marks[0]) + 1; at <= rec.Len(); at += 1 + rec.Len()/25 {
				for _, policy := range []Policy{Nothing(), Everything(), Subset(uint64(at)), Subset(uint64(at) + 1)}[at%3:][:2] {
					cuts++
					withImage(t, o, rec.Cut(Position(at), policy), func(path string) {
						for i, mark := range marks {
							if int(mark) >= at {
								break
							}
							if got, err := os.ReadFile(filepath.Join(path, "data", name(i))); err != nil || !bytes.Equal(got, data(i)) {
								t.Errorf("cut at %d, %v: %s was acknowledged at %d and has %d bytes (%v)", at, policy, name(i), mark, len(got),
									err)
							}
						}
					})
				}
			}
			t.Logf("%d events, %d images", rec.Len(), cuts)
			if cuts < 25 {
				t.Errorf("only %d images", cuts)
			}
		})
	}
}

func TestFlushesAreSeen(t *testing.T) {
	for _, fs := range FileSystems() {
		t.Run(fs, func(t *testing.T) {
			d := newDisk(t, options(t, fs))
			f, err := os.Create(filepath.Join(d.Path(), "log"))
			must(t, err)
			defer f.Close()
			before, start := d.Flushes(), d.Position()
			for i := range 200 {
				writes := d.Writes()
				_, err := f.WriteAt([]byte("a commit"), int64(i)*100)
				must(t, err, unix.Fdatasync(int(f.Fd())))
				if d.Writes() == writes {
					t.Fatalf("sync %d returned before anything was written", i)
				}
			}
			seen := d.Flushes() - before
			must(t, f.Close())
			rec := d.Freeze()
			defer closeAll(t, rec)
			var recorded int64
			for i := int(start); i < rec.Len(); i++ {
				if rec.Event(i).Kind == Flush {
					recorded++
				}
			}
			t.Logf("200 fdatasyncs: %d flushes", seen)
			if seen < 200 || recorded < seen {
				t.Errorf("200 fdatasyncs: %d flushes, %d recorded", seen, recorded)
			}
		})
	}
}

// TestUnsyncedIsLost overwrites a file in place and has the kernel write it, but not flush it: a cut may leave it old,
// new or torn.
func TestUnsyncedIsLost(t *testing.T) {
	o := options(t, "ext4")
	d := newDisk(t, o)
	const size = 64 << 10
	was, now := bytes.Repeat([]byte{'o'}, size), bytes.Repeat([]byte{'n'}, size)
	name := filepath.Join(d.Path(), "file")
	must(t, writeSynced(name, was))
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt(now, 0)
	must(t, err, reallyWrite(f), f.Close())
	rec := d.Freeze()
	defer closeAll(t, rec)
	must(t, d.Close())
	end := Position(rec.Len())
	read := func(policy Policy) (got []byte) {
		withImage(t, o, rec.Cut(end, policy), func(path string) {
			got, err = os.ReadFile(filepath.Join(path, "file"))
			must(t, err)
		})
		return got
	}
	if !bytes.Equal(read(Nothing()), was) {
		t.Error("Nothing kept what was not flushed")
	}
	if !bytes.Equal(read(Everything()), now) {
		t.Error("Everything lost what was written")
	}
	var old, new, torn int
	for seed := range uint64(60) {
		got := read(Subset(seed))
		switch n := bytes.Count(got, []byte{'n'}); {
		case len(got) != size:
			t.Fatalf("seed %d: %d bytes", seed, len(got))
		case n == 0:
			old++
		case n == size:
			new++
		default:
			torn++
			for i := 0; i < size; i += Sector {
				if c := bytes.Count(got[i:i+Sector], []byte{'n'}); c != 0 && c != Sector {
					t.Fatalf("seed %d: a sector is torn", seed)
				}
			}
		}
	}
	t.Logf("60 seeds: %d old, %d new, %d torn", old, new, torn)
	if old == 0 || new == 0 || torn == 0 {
		t.Errorf("60 seeds: %d old, %d new, %d torn", old, new, torn)
	}
}

// TestDiscard trims a file system after a file was removed: the disk forgets its blocks.
func TestDiscard(t *testing.T) {
	o := options(t, "ext4")
	d := newDisk(t, o)
	pattern := bytes.Repeat([]byte("what was in the file"), 100000)
	name := filepath.Join(d.Path(), "file")
	must(t, writeSynced(name, pattern), os.Remove(name), syncDir(d.Path()))
	before := d.Position()
	root, err := os.Open(d.Path())
	must(t, err)
	const fitrim = 0xc0185879 // _IOWR('X', 121, struct fstrim_range), the same on x86 and ARM
	trim := struct{ start, len, min uint64 }{len: 1 << 62}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, root.Fd(), fitrim, uintptr(unsafe.Pointer(&trim))); errno != 0 {
		t.Fatal(errno)
	}
	must(t, root.Sync(), root.Close())
	d.Mark(1)
	rec := d.Freeze()
	defer closeAll(t, rec)
	var n int64
	for i := int(before); i < rec.Len(); i++ {
		if e := rec.Event(i); e.Kind == Discard {
			n += e.Length
		}
	}
	if n < int64(len(pattern)) {
		t.Errorf("%d bytes were discarded, want at least those %d of the file", n, len(pattern))
	}
	if im := rec.Cut(before, Everything()); !bytes.Contains(contents(t, im), pattern[:Sector]) {
		t.Error("the file was not on the disk before the discard")
	}
	im := rec.Cut(Position(rec.Len()), Everything())
	if bytes.Contains(contents(t, im), pattern[:Sector]) {
		t.Error("the file is on the disk after the discard")
	}
	withImage(t, o, im, func(path string) { must(t, writeSynced(filepath.Join(path, "new"), pattern)) })
}

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault Fault
		err   syscall.Errno // recorded
		kind  Kind
	}{
		{"write", Fault{Writes: true}, syscall.EIO, Write},
		{"full", Fault{Writes: true, Err: syscall.ENOSPC}, syscall.ENOSPC, Write},
		{"flush", Fault{Flushes: true}, syscall.EIO, Flush},
		{"flush later", Fault{Flushes: true, After: 3}, syscall.EIO, Flush},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := options(t, "ext4")
			d := newDisk(t, o)
			must(t, writeSynced(filepath.Join(d.Path(), "before"), []byte("kept")))
			f, err := os.Create(filepath.Join(d.Path(), "file"))
			must(t, err, f.Sync())
			d.Mark(0)
			d.Fail(test.fault)
			good, failed := 0, error(nil)
			for i := range 20 {
				if _, failed = f.WriteAt(make([]byte, 4096), int64(i)*4096); failed == nil {
					failed = f.Sync()
				}
				if failed != nil {
					break
				}
				good++
			}
			t.Logf("%d syncs succeeded, then: %v", good, failed)
			if !errors.Is(failed, syscall.EIO) && !errors.Is(failed, test.err) {
				t.Errorf("the program was told %v", failed)
			}
			if wantGood := test.fault.After > 0; (good > 0) != wantGood {
				t.Errorf("%d syncs succeeded", good)
			}
			d.Fail(Fault{})
			f.Close()
			rec := d.Freeze()
			defer closeAll(t, rec)
			found := false
			for i := range rec.Len() {
				e := rec.Event(i)
				if e.Err != 0 && (e.Err != test.err || e.Kind != test.kind) {
					t.Errorf("recorded: %v", e)
				}
				found = found || e.Err != 0
			}
			if !found {
				t.Error("no failure is in the record")
			}
			for _, p := range []Policy{Nothing(), Everything(), Subset(1)} {
				withImage(t, o, rec.Cut(Position(rec.Len()), p), func(path string) {
					if got, err := os.ReadFile(filepath.Join(path, "before")); string(got) != "kept" {
						t.Errorf("%v: what was acknowledged before the fault is %q, %v", p, got, err)
					}
				})
			}
		})
	}
}

// TestReadFaults: reads of a place fail, as often as was asked for, and are good again after that.
func TestReadFaults(t *testing.T) {
	o := options(t, "ext4")
	first := newDisk(t, o)
	pattern := bytes.Repeat([]byte("what must be read "), 10_000)
	must(t, writeSynced(filepath.Join(first.Path(), "file"), pattern))
	rec := first.Freeze()
	defer closeAll(t, rec)
	var written []Event
	for i := range rec.Len() {
		if e := rec.Event(i); e.Kind == Write {
			written = append(written, e)
		}
	}
	for name, fault := range map[string]Fault{
		"all": {Reads: true}, "twice": {Reads: true, Times: 2}, "a range": {Reads: true},
	} {
		if name == "a range" { // of the data, which is the largest write
			largest := slices.MaxFunc(written, func(a, b Event) int { return int(a.Length - b.Length) })
			fault.From, fault.To = largest.Offset, largest.Offset+largest.Length
		}
		d, err := Restore(t.Context(), o, rec.Cut(Position(rec.Len()), Everything()))
		must(t, err)
		d.Fail(fault)
		file := filepath.Join(d.Path(), "file")
		for try := 0; ; try++ {
			got, err := os.ReadFile(file)
			if err == nil && !bytes.Equal(got, pattern) {
				t.Errorf("%s: something else is read, and no error", name)
			}
			if try == 0 && d.FailedReads() == 0 || d.FailedReads() > 0 && fault.Times > 0 && d.FailedReads() > fault.Times {
				t.Errorf("%s: %d reads failed", name, d.FailedReads())
			}
			if fault.Times == 0 && !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %v", name, err)
			}
			if fault.Times == 0 || err == nil || try == 9 {
				break
			}
		}
		d.Fail(Fault{})
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, pattern) {
			t.Errorf("%s, and well again: %d bytes, %v", name, len(got), err)
		}
		must(t, d.Close())
	}
}

func TestFreeze(t *testing.T) {
	o := options(t, "ext4")
	d := newDisk(t, o)
	must(t, writeSynced(filepath.Join(d.Path(), "before"), []byte("1")))
	if at := d.Mark(7); d.Position() != at+1 {
		t.Errorf("the mark is at %d, the position after it %d", at, d.Position())
	}
	rec := d.Freeze()
	n := rec.Len()
	if e := rec.Event(n - 1); e.Kind != Mark || e.Value != 7 {
		t.Errorf("the last event is %v", e)
	}
	flushes := d.Flushes()
	must(t, writeSynced(filepath.Join(d.Path(), "after"), []byte("2")))
	if d.Flushes() == flushes {
		t.Error("flushes after Freeze are not counted")
	}
	if at := d.Mark(8); at != Unrecorded {
		t.Errorf("a mark after Freeze is at %d", at)
	}
	if d.Freeze() != rec || rec.Len() != n {
		t.Error("the record has changed after Freeze")
	}
	closeAll(t, d, d)
	withImage(t, o, rec.Cut(Position(n), Everything()), func(path string) {
		must(t, second(os.Stat(filepath.Join(path, "before"))))
		if _, err := os.Stat(filepath.Join(path, "after")); !os.IsNotExist(err) {
			t.Errorf("what came after Freeze: %v", err)
		}
	})
	closeAll(t, rec)
	if _, err := rec.Cut(Position(n), Everything()).Mount(t.Context(), o); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("an image of a closed record: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestRecordEnds fills the record: the disk goes on.
func TestRecordEnds(t *testing.T) {
	o := options(t, "ext4")
	d := newDisk(t, o)
	d.rec.mu.Lock()
	d.rec.limit = d.rec.end + 1<<20
	d.rec.mu.Unlock()
	must(t, writeSynced(filepath.Join(d.Path(), "large"), make([]byte, 8<<20)),
		writeSynced(filepath.Join(d.Path(), "small"), []byte("1")))
	rec := d.Freeze()
	defer closeAll(t, rec)
	if !errors.Is(rec.Err(), holdfast.ErrTooLarge) {
		t.Errorf("the record of %d events: %v", rec.Len(), rec.Err())
	}
	withImage(t, o, rec.Cut(Position(rec.Len()), Everything()), func(string) {})
}

// TestRestore cuts the power, goes on from there, and cuts it again.
func TestRestore(t *testing.T) {
	for _, fs := range FileSystems() {
		t.Run(fs, func(t *testing.T) {
			o := options(t, fs)
			d := newDisk(t, o)
			for round := range 3 {
				must(t, writeSynced(filepath.Join(d.Path(), fmt.Sprint(round)), []byte("kept")))
				at := d.Mark(uint64(round)) + 1
				must(t, os.WriteFile(filepath.Join(d.Path(), fmt.Sprintf("lost-%d", round)), []byte("lost"), 0o600))
				rec := d.Freeze()
				closeAll(t, d)
				im := rec.Cut(at, Subset(uint64(round)))
				next, err := Restore(t.Context(), Options{Dir: o.Dir}, im)
				must(t, err)
				t.Cleanup(func() { closeAll(t, next) })
				closeAll(t, rec) // the new disk is independent
				d = next
				if d.Position() == 0 || d.Flushes() == 0 {
					t.Errorf("mounting is not in the record: %d events, %d flushes", d.Position(), d.Flushes())
				}
				for i := range round + 1 {
					if got, err := os.ReadFile(filepath.Join(d.Path(), fmt.Sprint(i))); string(got) != "kept" {
						t.Fatalf("round %d: file %d is %q, %v", round, i, got, err)
					}
				}
			}
			rec := d.Freeze()
			defer closeAll(t, rec)
			withImage(t, o, rec.Cut(0, Nothing()), func(path string) { must(t, second(os.Stat(filepath.Join(path, "2")))) })
		})
	}
}

func TestSaveAndOpen(t *testing.T) {
	o := options(t, "ext4")
	d := newDisk(t, o)
	must(t, writeSynced(filepath.Join(d.Path(), "file"), []byte("evidence")))
	rec := d.Freeze()
	im := rec.Cut(Position(rec.Len()), Everything())
	name := filepath.Join(t.TempDir(), "image")
	must(t, im.Save(name))
	if err := im.Save(name); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("saved over another: %v", err)
	}
	want := contents(t, im)
	closeAll(t, rec)
	again, err := OpenImage(name, "")
	must(t, err)
	if again.fs != "ext4" || !bytes.Equal(contents(t, again), want) {
		t.Error("it is not the image that was saved")
	}
	withImage(t, o, again, func(path string) {
		if got, err := os.ReadFile(filepath.Join(path, "file")); string(got) != "evidence" {
			t.Errorf("%q, %v", got, err)
		}
	})
	if info, err := os.Stat(name); err != nil || info.Sys().(*syscall.Stat_t).Blocks*512 > 64<<20 {
		t.Errorf("the saved image is not sparse: %d blocks, %v", info.Sys().(*syscall.Stat_t).Blocks, err)
	}
	if _, err := OpenImage(name, "xfs"); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("256 MiB opened as xfs: %v", err)
	}
	if _, err := again.Mount(t.Context(), Options{FS: "xfs", Dir: o.Dir}); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("ext4 mounted as xfs: %v", err)
	}
}

// TestUnmountable mounts garbage.
func TestUnmountable(t *testing.T) {
	o := options(t, "ext4")
	name := filepath.Join(t.TempDir(), "garbage")
	must(t, os.WriteFile(name, bytes.Repeat([]byte("garbage!"), 4<<20), 0o600))
	im, err := OpenImage(name, "ext4")
	must(t, err)
	if _, err := im.Mount(t.Context(), o); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("mounting garbage: %v", err)
	}
	if _, err := Restore(t.Context(), o, im); !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("restoring garbage: %v", err)
	}
	if _, err := OpenImage(name+"x", ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening nothing: %v", err)
	}
	must(t, os.WriteFile(name, []byte("short"), 0o600))
	if _, err := OpenImage(name, ""); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("opening five bytes: %v", err)
	}
}

// TestUnfinishedRepair: a check that did not come to its end has repaired nothing, and one that found more than it
// could mend tells of a file system that is no good.
func TestUnfinishedRepair(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for script, want := range map[string]error{
		"exit 0": nil, "exit 1": nil, "exit 3": nil,
		"exit 4": holdfast.ErrCorrupt, "exit 9": holdfast.ErrCorrupt,
		"exit 33": holdfast.ErrUnavailable, "kill -9 $$": holdfast.ErrUnavailable,
	} {
		if err := os.WriteFile(filepath.Join(dir, "e2fsck"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := repair(t.Context(), "disk", Unjournaled); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", script, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := repair(ctx, "disk", Unjournaled); err != context.Canceled {
		t.Errorf("when its context has ended: %v", err)
	}
}

// TestMakeFileSystem: files can be written and read in a new file system, and nothing is left when it is closed, also
// if its context has ended.
func TestMakeFileSystem(t *testing.T) {
	for _, fs := range FileSystems() {
		t.Run(fs, func(t *testing.T) {
			o := options(t, fs)
			o.Size = 1 << 30
			m, err := MakeFileSystem(t.Context(), o)
			must(t, err, writeSynced(filepath.Join(m.Path(), "file"), []byte("1")))
			var st unix.Statfs_t
			if must(t, unix.Statfs(m.Path(), &st)); int64(st.Blocks)*st.Bsize < o.Size*3/4 {
				t.Errorf("%d blocks of %d bytes", st.Blocks, st.Bsize)
			}
			closeAll(t, m)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := MakeFileSystem(ended, o); !errors.Is(err, context.Canceled) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// TestManyAtOnce runs disks and images side by side; all have the same UUID.
func TestManyAtOnce(t *testing.T) {
	for _, fs := range FileSystems() {
		t.Run(fs, func(t *testing.T) {
			o := options(t, fs)
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					d, err := New(t.Context(), o)
					if err != nil {
						t.Error(err)
						return
					}
					defer closeAll(t, d)
					mine := fmt.Sprintf("of disk %d", i)
					if err := writeSynced(filepath.Join(d.Path(), "file"), []byte(mine)); err != nil {
						t.Error(err)
						return
					}
					d.Mark(0)
					rec := d.Freeze()
					defer closeAll(t, rec)
					im := rec.Cut(Position(rec.Len()), Nothing())
					for range 2 {
						m, err := im.Mount(t.Context(), o)
						if err != nil {
							t.Error(err)
							return
						}
						defer closeAll(t, m)
						if got, err := os.ReadFile(filepath.Join(m.Path(), "file")); string(got) != mine {
							t.Errorf("disk %d: %q, %v", i, got, err)
						}
					}
				})
			}
			all.Wait()
		})
	}
}

// TestCancel ends contexts at all times: nothing is left.
func TestCancel(t *testing.T) {
	o := options(t, "ext4")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := New(ended, o); !errors.Is(err, context.Canceled) {
		t.Errorf("New after the end: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d, err := New(ctx, o)
	must(t, err, writeSynced(filepath.Join(d.Path(), "file"), []byte("1")))
	rec := d.Freeze()
	defer closeAll(t, rec)
	im := rec.Cut(Position(rec.Len()), Everything())
	m, err := im.Mount(ctx, o)
	must(t, err)
	cancel()
	closeAll(t, d, m) // waits for what cancel began
	nothingLeft(t, o.Dir)
	if _, err := im.Mount(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("Mount after the end: %v", err)
	}
	if _, err := Restore(ctx, o, im); !errors.Is(err, context.Canceled) {
		t.Errorf("Restore after the end: %v", err)
	}
	for i := range 12 { // in the midst of it
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		if d, err := New(ctx, o); err == nil {
			cancel()
			closeAll(t, d)
		} else if !errors.Is(err, ctx.Err()) {
			t.Errorf("New, ended after %d ms: %v", i, err)
		}
		cancel()
		nothingLeft(t, o.Dir)
	}
}

// TestCloseInUse closes a disk while a file on it is open.
func TestCloseInUse(t *testing.T) {
	defer func(was time.Duration) { unmountTimeout = was }(unmountTimeout)
	unmountTimeout = 50 * time.Millisecond
	o := options(t, "ext4")
	d, err := New(t.Context(), o)
	must(t, err)
	f, err := os.Create(filepath.Join(d.Path(), "file"))
	must(t, err)
	rec := d.Freeze()
	defer closeAll(t, rec)
	if err := d.Close(); !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("closed in use: %v", err)
	}
	if names, _ := filepath.Glob(o.Dir + "/*"); len(names) != 0 {
		t.Errorf("left: %v", names)
	}
	if _, err := f.Write([]byte("x")); err == nil {
		err = f.Sync()
		if err == nil {
			t.Error("a write to a closed disk succeeded")
		}
	}
	f.Close()
	testkit.Receive(t, "the end of the server, which went with its last user", d.served)
}

// leave makes a disk and an image in dir and waits to be killed in the midst of writing: a program of its own writes,
// or, which is worse, this process, whose thread then waits for the server that is killed with it.
func leave(dir string, self bool) error {
	ctx := context.Background()
	d, err := New(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	im := &Image{fs: "ext4", size: d.rec.rec.size, base: d.rec.rec.base}
	m, err := im.Mount(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	if !self {
		cmd := exec.Command("sh", "-c", `while dd if=/dev/zero of="$0/file" bs=100k count=1 conv=fsync; do :; done`, d.Path())
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		if err := writeSynced(filepath.Join(m.Path(), "file"), make([]byte, i%100000)); err != nil {
			return err
		}
		if !self {
			continue
		}
		if err := writeSynced(filepath.Join(d.Path(), "file"), make([]byte, i%100000)); err != nil {
			return err
		}
	}
}

func TestCleanUp(t *testing.T) {
	o := options(t, "ext4")
	if n, err := CleanUp(o.Dir); n != 0 || err != nil {
		t.Fatalf("cleaned %d of nothing, %v", n, err)
	}
	alive := newDisk(t, o)
	must(t, os.Mkdir(filepath.Join(o.Dir, scratchPrefix+"young"), 0o700), os.Mkdir(filepath.Join(o.Dir, "other"), 0o700),
		os.WriteFile(filepath.Join(o.Dir, scratchPrefix+"file"), nil, 0o600))
	defer os.Remove(filepath.Join(o.Dir, scratchPrefix+"file"))
	for _, self := range []string{"", "1"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+o.Dir, childSelf+"="+self)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		out, err := cmd.StdoutPipe()
		must(t, err, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		if line != "ready\n" {
			t.Fatalf("the child says %q, %v", line, err)
		}
		if n, err := CleanUp(o.Dir); n != 0 || err != nil {
			t.Errorf("cleaned %d of the living, %v", n, err)
		}
		must(t, cmd.Process.Kill())
		cleaned := 0
		if !testkit.Holds(func() bool {
			n, err := CleanUp(o.Dir)
			must(t, err)
			cleaned += n
			return cleaned >= 2
		}) || cleaned != 2 {
			t.Fatalf("cleaned %d of two", cleaned)
		}
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the program that writes
		cmd.Wait()                                      // it could not end before it was cleaned, perhaps
		if n, err := CleanUp(o.Dir); n != 0 || err != nil {
			t.Errorf("cleaned %d again, %v", n, err)
		}
	}
	must(t, writeSynced(filepath.Join(alive.Path(), "file"), []byte("alive")),
		second(os.Stat(filepath.Join(o.Dir, "other"))))
	closeAll(t, alive)
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(filepath.Join(o.Dir, scratchPrefix+"young"), old, old))
	if n, err := CleanUp(o.Dir); n != 1 || err != nil {
		t.Errorf("cleaned %d empty directories, %v", n, err)
	}
	if _, err := CleanUp(filepath.Join(o.Dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cleaned what is missing: %v", err)
	}
}

func TestCheck(t *testing.T) {
	if err := Check("vfat"); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("vfat: %v", err)
	}
	t.Setenv("PATH", "/nonexistent")
	for _, fs := range FileSystems() {
		if err := Check(fs); err != nil && (!errors.Is(err, holdfast.ErrUnavailable) ||
			!strings.Contains(err.Error(), "missing: ")) {
			t.Errorf("%s: %v", fs, err)
		}
	}
}

// TestServerRefuses gives the server what no block device asks for.
func TestServerRefuses(t *testing.T) {
	r := testRecorder(t, make([]byte, 16*Sector), maxRecord)
	s := newServer(r, 16*Sector)
	s.live = testFile(t, make([]byte, 16*Sector))
	for _, where := range [][2]uint64{{1, Sector}, {0, 100}, {15 * Sector, 2 * Sector}, {1 << 63, Sector}, {0, 1 << 63}} {
		if s.inside(where[0], where[1]) {
			t.Errorf("%d bytes at %d are taken for part of the disk", where[1], where[0])
		}
	}
	if !s.inside(0, 16*Sector) || !s.inside(15*Sector, Sector) {
		t.Error("the disk is refused")
	}
	const keep = unix.FALLOC_FL_KEEP_SIZE
	for mode, want := range map[uint32]syscall.Errno{0: syscall.EOPNOTSUPP, keep: syscall.EOPNOTSUPP,
		unix.FALLOC_FL_COLLAPSE_RANGE:    syscall.EOPNOTSUPP,
		unix.FALLOC_FL_PUNCH_HOLE | keep: 0, unix.FALLOC_FL_ZERO_RANGE | keep: 0} {
		if got := s.fallocate(mode, 0, Sector); got != want {
			t.Errorf("fallocate %#x: %v, want %v", mode, got, want)
		}
	}
	if got := s.fallocate(unix.FALLOC_FL_PUNCH_HOLE|keep, 1, Sector); got != syscall.EINVAL {
		t.Errorf("a discard of half sectors: %v", got)
	}
	if n := r.position(); n != 2 {
		t.Errorf("%d events", n)
	}
}

// TestChildrenDoNotHoldTheServer: no program that the owner of a disk starts has its FUSE device open, or the
// connection would last as long as that program, which may be waiting for it.
func TestChildrenDoNotHoldTheServer(t *testing.T) {
	d := newDisk(t, options(t, "ext4"))
	out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
	must(t, err)
	if strings.Contains(string(out), "/dev/fuse") {
		t.Errorf("a child of the owner of %s has\n%s", d.Path(), out)
	}
}

// TestCloseWritesNothing: what the kernel holds back is not written to a disk that is thrown away.
func TestCloseWritesNothing(t *testing.T) {
	for _, fs := range FileSystems() {
		t.Run(fs, func(t *testing.T) {
			o := options(t, fs)
			d := newDisk(t, o)
			fd, err := unix.Dup(int(d.server.live.Fd()))
			must(t, err)
			live := os.NewFile(uintptr(fd), "live")
			defer live.Close()
			must(t, os.WriteFile(filepath.Join(d.Path(), "file"), bytes.Repeat([]byte("unsynced"), 8<<20/8), 0o600))
			d.Fail(Fault{Writes: true}) // nothing is kept before Close
			var before, after unix.Stat_t
			must(t, unix.Fstat(fd, &before), d.Close(), unix.Fstat(fd, &after))
			if before.Blocks != after.Blocks || before.Mtim != after.Mtim {
				t.Errorf("closing wrote: %d blocks, then %d", before.Blocks, after.Blocks)
			}
		})
	}
}
