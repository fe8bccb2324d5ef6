package filesystems_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8") // what runs beside others waits for disks most of the time
	os.Exit(m.Run())
}

// TestFullDisk fills the disk of each engine, kills the process, makes some room, and again, and opens what is left on
// the full disk: that returns, and says ErrFull if it cannot be. With room, all that was acknowledged is there.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills disks")
	}
	onDisk(t, func(t *testing.T, e all.Entry) {
		size, each := night.Or(int64(64<<20), 40<<20), 8<<20
		if e.Name == "badger" {
			size, each = 488<<20, 64<<20 // it refuses to be opened while its next log, of 128 MiB, has no room
		}
		root := fileSystem(t, blockdev.Options{FS: "ext4", Size: size})
		dir := filepath.Join(root, "db")
		ballast := func(name string) string { return filepath.Join(root, name) }
		for _, name := range []string{"1", "2", "3"} {
			try(t, os.WriteFile(ballast(name), make([]byte, each), 0o644))
		}
		fill := func() (acked int) { // kill -9 ends it
			for _, line := range fullChild(t, "fill", e.Name, dir) {
				word, rest, _ := strings.Cut(line, " ")
				switch word {
				case "ack":
					n, err := strconv.Atoi(rest)
					try(t, err)
					acked = n
				case "error":
					if !strings.HasPrefix(rest, "full") {
						t.Error(rest)
					}
				}
			}
			return acked
		}
		acked := fill()
		if acked == 0 {
			t.Fatal("nothing was acknowledged")
		}
		open := func(where string) {
			t.Helper()
			for _, line := range fullChild(t, "open", e.Name, dir) {
				if line != "opened" && line != "ErrFull" {
					t.Errorf("%s: %s", where, line)
				} else {
					t.Logf("%s: %s", where, line)
				}
			}
		}
		open("full")
		try(t, os.Remove(ballast("1")))
		acked = max(fill(), acked)
		open("full again")
		brim(t, ballast("4"))
		open("to the brim")
		for _, name := range []string{"2", "3", "4"} {
			try(t, os.Remove(ballast(name)))
		}
		for _, line := range fullChild(t, "count", e.Name, dir) {
			if n, err := strconv.Atoi(line); err != nil || n < acked {
				t.Errorf("with room again: %s, of %d that were acknowledged", line, acked)
			}
		}
	})
}

// brim takes all room that is left.
func brim(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	try(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(bytes.Repeat([]byte{1}, size)); err != nil {
			size /= 2
		}
	}
}

// fullChild runs TestFullDiskChild in another process, kills it when it is done, and returns what it says. What works
// on a disk of package blockdev must: that is served by this process, where a thread that reads a mapped page of the
// disk holds up the garbage collector, which holds up those who would serve the page.
func fullChild(t *testing.T, what, engine, dir string) (lines []string) {
	t.Helper()
	self, err := os.Executable()
	try(t, err)
	cmd := exec.Command(self, "-test.run=^TestFullDiskChild$")
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_FULL="+what+" "+engine+" "+dir)
	p, err := child.StartProgram(cmd)
	try(t, err)
	hang := time.AfterFunc(3*time.Minute, func() { _ = p.Signal(syscall.SIGQUIT) })
	for s := bufio.NewScanner(p.Out); s.Scan() && s.Text() != "done"; {
		lines = append(lines, s.Text())
	}
	if !hang.Stop() {
		t.Errorf("%s on %s hangs", what, engine)
	}
	p.Kill()
	_, _ = io.Copy(io.Discard, p.Out)
	_, _ = p.Wait()
	return lines
}

// TestFullDiskChild is what fullChild runs.
func TestFullDiskChild(t *testing.T) {
	task := strings.SplitN(os.Getenv("HOLDFAST_TEST_FULL"), " ", 3)
	if len(task) < 3 {
		t.Skip("it is for another test")
	}
	what := task[0]
	switch what {
	case "write":
		write(task[1], task[2])
	case "verify":
		switch v, err := all.Verify(task[2]); {
		case errors.Is(err, holdfast.ErrCorrupt) || err == nil && len(v.Damage) > 0:
			fmt.Println("error", err, v)
		case err != nil:
			fmt.Println("unreadable")
		}
	case "use":
		use(task[1], task[2])
	default:
		fillOrOpen(what, task[1], task[2])
	}
	fmt.Println("done")
	select {} // until it is killed
}

// fillOrOpen opens an engine, looks at what is in it, and, if it is to be filled, writes until that is refused.
func fillOrOpen(what, engine, dir string) {
	size := 24_000
	if engine == "badger" || engine == "pebble" { // they need more room, and longer until it is full
		size = night.Or(size, 5*size)
	}
	key := func(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
	set := func(e holdfast.Engine, n int) error {
		var b holdfast.Batch
		b.Set(key(n), bytes.Repeat([]byte{byte(n)}, size))
		return holdfast.Commit(e, &b, e.Capabilities().Strongest())
	}
	e, err := all.Open(engine, dir, holdfast.Options{MemoryBytes: map[string]int64{"pebble": 4 << 20}[engine]})
	switch {
	case err == nil:
	case errors.Is(err, holdfast.ErrFull):
		fmt.Println("ErrFull")
	default:
		fmt.Println("error", err)
	}
	if err == nil {
		n := 0
		it := e.Scan(holdfast.Range{})
		for it.Next() {
			if n++; !bytes.Equal(it.Key(), key(n)) {
				fmt.Printf("error key %x after %d\n", it.Key(), n-1)
			}
		}
		if err := it.Close(); err != nil {
			fmt.Println("error", err)
		}
		switch what {
		case "open":
			fmt.Println("opened")
		case "count":
			err = set(e, n+1)
			fmt.Println(n)
			if err != nil {
				fmt.Println("error", err)
			}
			if err := e.Close(); err != nil {
				fmt.Println("error", err)
			}
		case "fill":
			for {
				err := set(e, n+1)
				if err != nil {
					full := errors.Is(err, holdfast.ErrFull) || errors.Is(err, syscall.ENOSPC)
					fmt.Println("error", map[bool]string{true: "full", false: "other"}[full], err)
					break
				}
				n++
				fmt.Println("ack", n)
			}
		}
	}
}

// written is how many keys write writes in each of three openings.
const written = 200

// write opens an engine three times, and writes in it each time.
func write(engine, dir string) {
	for part := range 3 {
		e, err := all.Open(engine, dir, holdfast.Options{})
		for i := 0; i < written && err == nil; i++ {
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "%d/%04d", part, i), bytes.Repeat([]byte{byte(i)}, 500))
			b.Set(fmt.Appendf(nil, "empty/%d/%04d", part, i), nil)
			err = holdfast.Commit(e, &b, holdfast.Power)
		}
		if err == nil {
			err = e.Close()
		}
		if err != nil {
			fmt.Println("error", err)
			return
		}
	}
}

// TestVerifyUnreadable: what the device cannot read is an error of Verify and no damage, wherever it happens.
func TestVerifyUnreadable(t *testing.T) {
	if err := blockdev.Check("ext4"); err != nil {
		t.Skip(err)
	}
	onDisk(t, func(t *testing.T, e all.Entry) {
		if e.Name == "logtree" || e.Name == "bbolt" {
			t.Skip("logtree verifies by itself, and bbolt reads through a mapping")
		}
		o := blockdev.Options{FS: "ext4", Dir: t.TempDir()}
		disk, err := blockdev.New(t.Context(), o)
		try(t, err)
		if lines := fullChild(t, "write", e.Name, filepath.Join(disk.Path(), "db")); len(lines) > 0 {
			t.Fatal(lines)
		}
		rec := disk.Freeze()
		try(t, disk.Close())
		defer rec.Close()
		image := rec.Cut(blockdev.Position(rec.Len()), blockdev.Everything())
		failed := 0
		for after := int64(0); after < 30; after += night.Or[int64](3, 10) {
			d, err := blockdev.Restore(t.Context(), o, image)
			try(t, err)
			d.Fail(blockdev.Fault{Reads: true, After: after})
			switch lines := fullChild(t, "verify", e.Name, filepath.Join(d.Path(), "db")); {
			case slices.Equal(lines, []string{"unreadable"}):
				failed++
			case len(lines) > 0:
				t.Errorf("after %d reads: %q", after, lines)
			}
			d.Fail(blockdev.Fault{})
			try(t, d.Close())
		}
		if failed == 0 {
			t.Error("no read failed: the test covers nothing")
		}
	})
}
