package filesystems_test

import (
	"bufio"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	cockroach "github.com/cockroachdb/pebble/v2"
	dgraph "github.com/dgraph-io/badger/v4"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/sqlite"
	"github.com/holdfastdb/holdfast/internal/child"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// places are directories on file systems on which locks show differently: stat of a file on btrfs does not have the
// device that the system's list of locks has, and on overlayfs a file has two inodes. Those that cannot be had here are
// skipped.
func places(t *testing.T, f func(t *testing.T, dir string)) {
	t.Run("here", func(t *testing.T) { f(t, t.TempDir()) })
	for _, fs := range blockdev.FileSystems() {
		t.Run(fs, func(t *testing.T) { f(t, fileSystem(t, blockdev.Options{FS: fs})) })
	}
	t.Run("subvolume of btrfs", func(t *testing.T) {
		dir := filepath.Join(fileSystem(t, blockdev.Options{FS: "btrfs"}), "sub")
		if out, err := exec.Command("btrfs", "subvolume", "create", dir).CombinedOutput(); err != nil {
			t.Skipf("%v: %s", err, out)
		}
		f(t, dir)
	})
	t.Run("overlay", func(t *testing.T) {
		root := t.TempDir()
		var layers []any
		for _, name := range []string{"lower", "upper", "work", "merged"} {
			dir := filepath.Join(root, name)
			try(t, os.Mkdir(dir, 0o755))
			layers = append(layers, dir)
		}
		merged := layers[3].(string)
		err := unix.Mount("overlay", merged, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", layers[:3]...))
		if err != nil {
			t.Skipf("overlayfs: %v", err)
		}
		t.Cleanup(func() { try(t, unix.Unmount(merged, 0)) })
		f(t, merged)
	})
}

// fileSystem mounts a new file system until the test ends.
func fileSystem(t *testing.T, o blockdev.Options) string {
	t.Helper()
	if err := blockdev.Check(o.FS); err != nil {
		t.Skip(err)
	}
	o.Dir = t.TempDir()
	m, err := blockdev.MakeFileSystem(t.Context(), o)
	try(t, err)
	t.Cleanup(func() { try(t, m.Close()) })
	return m.Path()
}

// library is one that a program may use without Holdfast.
type library struct {
	name string
	lock string // the file that is locked, after the path, if it is locked with locks of the process
	open func(path string) (io.Closer, error)
}

var libraries = []library{
	{"sqlite", "/", func(path string) (io.Closer, error) {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		_, err = db.Exec("PRAGMA journal_mode=WAL; CREATE TABLE IF NOT EXISTS t(k PRIMARY KEY, v); " +
			"INSERT OR REPLACE INTO t VALUES('a', 'b')")
		return db, err
	}},
	{"pebble", "/LOCK", func(path string) (io.Closer, error) {
		db, err := cockroach.Open(path, &cockroach.Options{Logger: silent{}})
		if err == nil {
			err = db.Set([]byte("a"), []byte("b"), cockroach.Sync)
		}
		return db, err
	}},
	{"bbolt", "", func(path string) (io.Closer, error) { return bolt.Open(path, 0o600, nil) }},
	{"badger", "", func(path string) (io.Closer, error) {
		return dgraph.Open(dgraph.DefaultOptions(path).WithLogger(nil))
	}},
	// The database in a directory of an engine, in other hands than the engine's.
	{"inside", "/data.sqlite", func(path string) (io.Closer, error) {
		db, err := sql.Open("sqlite", path+"/data.sqlite")
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(1)
		_, err = db.Exec("INSERT OR REPLACE INTO kv VALUES('a', 'b')")
		return db, err
	}},
}

// silent logs nothing.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// another runs this test again in another process, which does what it is told by its environment, and returns the first
// line that it says. end ends it.
func another(t *testing.T, what, library, path string) (line string, pid int, end func()) {
	t.Helper()
	self, err := os.Executable()
	try(t, err)
	cmd := exec.Command(self, "-test.run=^TestInUseChild$")
	cmd.Env = append(os.Environ(), "HOLDFAST_TEST_USE="+what+" "+library+" "+path)
	p, err := child.StartProgram(cmd)
	try(t, err)
	line, err = bufio.NewReader(p.Out).ReadString('\n')
	try(t, err)
	return strings.TrimSpace(line), p.PID(), func() {
		p.CloseInput()
		_, _ = io.Copy(io.Discard, p.Out)
		_, err := p.Wait()
		try(t, err)
	}
}

// TestInUseChild is what another runs.
func TestInUseChild(t *testing.T) {
	task := strings.SplitN(os.Getenv("HOLDFAST_TEST_USE"), " ", 3)
	if len(task) < 3 {
		t.Skip("it is for other tests")
	}
	switch what, name, path := task[0], task[1], task[2]; what {
	case "hold":
		for _, l := range libraries {
			if l.name == name {
				db, err := l.open(path)
				try(t, err)
				defer db.Close()
			}
		}
		fmt.Println("open")
	case "ask":
		f, err := os.Open(path)
		try(t, err)
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		try(t, unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock))
		if lock.Type == unix.F_UNLCK {
			fmt.Println("free")
		} else {
			fmt.Println("locked")
		}
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// TestInUse: what another program has open, or this one, is not copied, on any file system, and a program keeps the
// locks that it has.
func TestInUse(t *testing.T) {
	places(t, func(t *testing.T, dir string) {
		for _, l := range libraries {
			t.Run(l.name, func(t *testing.T) { inUseRound(t, l, filepath.Join(dir, l.name)) })
		}
	})
}

func inUseRound(t *testing.T, l library, path string) {
	if l.name == "inside" {
		e, err := sqlite.OpenGo(path, holdfast.Options{})
		try(t, err)
		try(t, e.Close())
	}
	locked := func(holder string) {
		t.Helper()
		tools := map[string]func(into string) error{
			"copy": func(into string) error {
				_, err := all.Copy(t.Context(), path, into, all.CopyOptions{})
				return err
			}}
		if l.name == "inside" {
			tools["repair"] = func(into string) error {
				_, err := all.Repair(t.Context(), path, into)
				return err
			}
		}
		for name, tool := range tools {
			into := filepath.Join(t.TempDir(), "into")
			if err := tool(into); !errors.Is(err, holdfast.ErrLocked) {
				t.Errorf("%s: %v, want ErrLocked", name, err)
			} else if !strings.Contains(err.Error(), holder) {
				t.Errorf("%s: no %q in: %v", name, holder, err)
			}
			if left, err := os.ReadDir(filepath.Dir(into)); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		}
	}

	// By another process, which is named where the system tells.
	line, pid, end := another(t, "hold", l.name, path)
	if line != "open" {
		t.Fatal(line)
	}
	holder := fmt.Sprintf("process %d", pid)
	if strings.Contains(t.Name(), "overlay") {
		holder = ""
	}
	locked(holder)
	end()

	// By this one.
	db, err := l.open(path)
	try(t, err)
	holder = "by this process"
	if strings.Contains(t.Name(), "overlay") && l.name == "badger" {
		holder = "" // a lock of its directory
	}
	locked(holder)
	if l.lock != "" {
		line, _, end := another(t, "ask", l.name, strings.TrimSuffix(path+l.lock, "/"))
		if end(); line != "locked" {
			t.Errorf("its lock is %s", line)
		}
	}
	try(t, db.Close())

	// By nobody, and by two who copy it at the same time.
	copies := make(chan error)
	for range 2 {
		into := filepath.Join(t.TempDir(), "into")
		go func() {
			_, err := all.Copy(t.Context(), path, into, all.CopyOptions{})
			copies <- err
		}()
	}
	for range 2 {
		if err := <-copies; err != nil {
			t.Errorf("closed: %v", err)
		}
	}
}
