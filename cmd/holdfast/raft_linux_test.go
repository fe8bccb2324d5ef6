package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast/internal/testkit"
)

// stopImport imports a large source in an empty directory and sends a signal in the middle of copying. One that was
// done before the signal came is repeated with a larger source.
func stopImport(t *testing.T, into string, sig syscall.Signal) (status int, stderr, dir string) {
	t.Helper()
	for entries := 30_000; ; entries *= 2 {
		source := boltSource(t, t.TempDir(), entries, 2000)
		cmd := holdfastCommand(t, "raft", "import", source, "--into", into)
		var said bytes.Buffer
		cmd.Stderr = &said
		try(t, cmd.Start())
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		if !testkit.Holds(func() bool {
			select {
			case <-ended:
				return true
			default:
				return copied(filepath.Join(cmd.Dir, "new.partial")) > 4<<20
			}
		}) {
			_ = cmd.Process.Kill()
			<-ended
			t.Fatalf("nothing is copied: %s", said.String())
		}
		_ = cmd.Process.Signal(sig)
		<-ended
		if status = cmd.ProcessState.ExitCode(); status != exitOK || entries > 200_000 {
			return status, said.String(), cmd.Dir
		}
		t.Logf("%d entries were imported before the signal came", entries)
	}
}

// copied is how many bytes the files below dir take.
func copied(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := d.Info(); err == nil && !d.IsDir() {
			n += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return n
}

// TestInterruptedImportLeavesNothing: one line, status 130, no directory.
func TestInterruptedImportLeavesNothing(t *testing.T) {
	status, stderr, dir := stopImport(t, "new", syscall.SIGINT)
	if status != exitInterrupted || stderr != "holdfast: interrupted\n" {
		t.Errorf("status %d: %q", status, stderr)
	}
	checkEmpty(t, dir)
}

// TestKilledImportIsUnfinished: what it leaves has another name, cannot be mistaken for a store, and is removed by the
// next one.
func TestKilledImportIsUnfinished(t *testing.T) {
	_, _, dir := stopImport(t, "bbolt:new", syscall.SIGKILL)
	if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		say    string
		args   []string
	}{
		{exitError, "foreign directory", []string{"inspect", "new.partial"}},
		{exitOK, "5, of index 3 to 7", []string{"import", boltSource(t, t.TempDir(), 5, 5), "--into", "new"}},
		{exitOK, "index 3 to 7", []string{"inspect", "new"}},
	} {
		cmd := holdfastCommand(t, append([]string{"raft"}, c.args...)...)
		cmd.Dir = dir
		status, stdout, stderr := result(t, cmd)
		if status != c.status || !strings.Contains(stdout+stderr, c.say) {
			t.Errorf("%v: status %d\n%s%s", c.args, status, stdout, stderr)
		}
	}
}

// TestImportKeepsTheDirectory: an empty directory is filled through a link to it, which stays, and keeps its mode and
// owner.
func TestImportKeepsTheDirectory(t *testing.T) {
	at := t.TempDir()
	source := boltSource(t, at, 5, 5)
	real, link, dangling := filepath.Join(at, "real"), filepath.Join(at, "link"), filepath.Join(at, "dangling")
	try(t, os.Mkdir(real, 0o700))
	try(t, os.Chmod(real, 0o700|os.ModeSetgid))
	uid := os.Getuid()
	if uid == 0 {
		uid = 12345
		try(t, os.Chown(real, uid, 54321))
		try(t, os.Chmod(real, 0o700|os.ModeSetgid))
	}
	before, err := os.Stat(real)
	try(t, err)
	try(t, os.Symlink("real", link))
	try(t, os.Symlink("nothing", dangling))
	if status, _, stderr := result(t, holdfastCommand(t, "raft", "import", source, "--into",
		dangling)); status != exitError || !strings.Contains(stderr, "name a directory") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if status, _, stderr := result(t, holdfastCommand(t, "raft", "import", source, "--into", link)); status != exitOK {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for _, name := range []string{link, dangling} {
		if st, err := os.Lstat(name); err != nil || st.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no link any more: %v, %v", name, st, err)
		}
	}
	after, err := os.Stat(real)
	try(t, err)
	if after.Mode() != before.Mode() || int(after.Sys().(*syscall.Stat_t).Uid) != uid ||
		after.Sys().(*syscall.Stat_t).Gid != before.Sys().(*syscall.Stat_t).Gid {
		t.Errorf("%v, %+v; it was %v", after.Mode(), after.Sys(), before.Mode())
	}
	if status, stdout, stderr := result(t, holdfastCommand(t, "raft", "inspect", real)); status != exitOK ||
		!strings.Contains(stdout, "index 3 to 7") {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
}
