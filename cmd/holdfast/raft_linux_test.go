package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startImport starts an import of a large source in an empty directory and returns when it is copying.
func startImport(t *testing.T, into string) (kill func(syscall.Signal) (status int, stderr string), dir string) {
	t.Helper()
	source := boltSource(t, t.TempDir(), 30000, 2000)
	cmd := holdfastCommand(t, "raft", "import", source, "--into", into)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	try(t, cmd.Start())
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		var n int64
		_ = filepath.WalkDir(filepath.Join(cmd.Dir, "new.partial"), func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if info, err := d.Info(); err == nil && !d.IsDir() {
				n += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return nil
		})
		if n > 4<<20 {
			break
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("nothing is copied: %s", stderr.String())
		}
	}
	return func(sig syscall.Signal) (int, string) {
		try(t, cmd.Process.Signal(sig))
		_ = cmd.Wait()
		return cmd.ProcessState.ExitCode(), stderr.String()
	}, cmd.Dir
}

// TestInterruptedImportLeavesNothing: one line, status 130, no directory.
func TestInterruptedImportLeavesNothing(t *testing.T) {
	kill, dir := startImport(t, "new")
	if status, stderr := kill(syscall.SIGINT); status != exitInterrupted || stderr != "holdfast: interrupted\n" {
		t.Errorf("status %d: %q", status, stderr)
	}
	checkEmpty(t, dir)
}

// TestKilledImportIsUnfinished: what it leaves has another name, and cannot be mistaken for a store.
func TestKilledImportIsUnfinished(t *testing.T) {
	kill, dir := startImport(t, "bbolt:new")
	kill(syscall.SIGKILL)
	if _, err := os.Stat(filepath.Join(dir, "new")); !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status int
		say    string
		args   []string
	}{
		{exitWrong, "not finished", []string{"inspect", "new.partial"}},
		{exitError, "new.partial: bad option: it is there already", []string{"import", boltSource(t, t.TempDir(), 5, 5), "--into", "new"}},
		{exitOK, "5, of index 3 to 7", []string{"import", boltSource(t, t.TempDir(), 5, 5), "--into", "new.partial"}},
		{exitOK, "index 3 to 7", []string{"inspect", "new.partial"}},
	} {
		cmd := holdfastCommand(t, append([]string{"raft"}, c.args...)...)
		cmd.Dir = dir
		status, stdout, stderr := result(t, cmd)
		if status != c.status || !strings.Contains(stdout+stderr, c.say) {
			t.Errorf("%v: status %d\n%s%s", c.args, status, stdout, stderr)
		}
	}
}

// TestImportKeepsTheDirectory: an empty directory is filled through a link to it, which stays, and keeps its mode and owner.
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
	if status, _, stderr := result(t, holdfastCommand(t, "raft", "import", source, "--into", dangling)); status != exitError || !strings.Contains(stderr, "name a directory") {
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
	if after.Mode() != before.Mode() || int(after.Sys().(*syscall.Stat_t).Uid) != uid || after.Sys().(*syscall.Stat_t).Gid != before.Sys().(*syscall.Stat_t).Gid {
		t.Errorf("%v, %+v; it was %v", after.Mode(), after.Sys(), before.Mode())
	}
	if status, stdout, stderr := result(t, holdfastCommand(t, "raft", "inspect", real)); status != exitOK || !strings.Contains(stdout, "index 3 to 7") {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
}
