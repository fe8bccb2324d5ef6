//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
)

// A server with --backup is killed, then another is stopped, both on one directory. What the first had uploaded, and
// all that the second was told, can be restored, and so can the time in between.
func TestServeBackup(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	bucket, data := "file://"+filepath.Join(dir, "bucket"), filepath.Join(dir, "data")
	identity, err := age.GenerateX25519Identity()
	try(t, err)
	keyFile := filepath.Join(dir, "key.txt")
	try(t, os.WriteFile(keyFile, []byte("# a comment\n"+identity.String()+"\n"), 0o600))
	key := identity.Recipient().String()
	write := func(p *process, token, text string) {
		t.Helper()
		status, body := p.rpc(token, fmt.Sprintf(`["stream.write","a-1",{"type":"%s","data":{}}]`, text))
		if status != 200 {
			t.Fatal(status, body)
		}
	}
	restore := func(more ...string) (has string, status int, text string) {
		t.Helper()
		into := filepath.Join(t.TempDir(), "restored")
		args := append([]string{"restore", bucket, "--into", into, "--identity", keyFile, "--json"}, more...)
		status, out, text := result(t, holdfastCommand(t, args...))
		if status != exitOK {
			return "", status, text
		}
		var r struct{ Counts struct{ Time time.Time } }
		try(t, json.Unmarshal([]byte(out), &r))
		_, list, _ := result(t, holdfastCommand(t, "message", "cat", "a-1", "--dir", into))

		return list, status, out
	}

	if _, status, text := restore(); status != exitError || !strings.Contains(text, "bucket") {
		t.Errorf("a restore of no bucket: %d %s", status, text)
	}
	if _, err := os.Stat(filepath.Join(dir, "bucket")); err == nil {
		t.Error("a restore has made a bucket")
	}
	status, _, text := result(t, holdfastCommand(t, "verify", "file://"+t.TempDir()))
	if status != exitError || !strings.Contains(text, "no state") {
		t.Errorf("verify of an empty directory: %d %s", status, text)
	}
	first := serve(t, nil, "--data", data, "--backup", bucket)
	if !strings.Contains(first.log.String(), "same file system") {
		t.Error("nobody is warned that the backup is on the same file system as the data")
	}
	write(first, first.token, "First")
	first.eventually("uploaded", func() bool {
		list, _, _ := restore()
		return strings.Contains(list, "First")
	})
	try(t, first.cmd.Process.Kill())
	_ = first.cmd.Wait()
	first.stopped = true
	between := time.Now()

	env := []string{"HOLDFAST_BACKUP_RECIPIENTS=" + key}
	second := serve(t, env, "--data", data, "--backup", bucket, "--backup-compress")
	write(second, first.token, "Second")
	second.stop(syscall.SIGTERM)
	if list, _, text := restore(); !strings.Contains(list, "First") || !strings.Contains(list, "Second") {
		t.Errorf("restored: %s %s", list, text)
	}
	list, _, text := restore("--at", between.UTC().Format(time.RFC3339Nano))
	if !strings.Contains(list, "First") || strings.Contains(list, "Second") {
		t.Errorf("restored of before: %s %s", list, text)
	}
	if status, out, text := result(t, holdfastCommand(t, "verify", bucket)); status != exitOK ||
		!strings.Contains(out, "generations  2, with 2 bases") {
		t.Errorf("verify: %d %s %s", status, out, text)
	}
}

// What cannot be backed up is refused when the server starts.
func TestServeBackupRefused(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{
		{"--engine", "mem:", "--backup", "file://" + t.TempDir()},
		{"--data", filepath.Join(t.TempDir(), "data"), "--backup", "nothing"},
		{"--data", data, "--backup", "file://" + data},
		{"--data", data, "--backup", "file://" + data + "/backup"},
		{"--data", data, "--backup", "file://holdfast-no-host" + t.TempDir()},
		{"--data", data, "--backup", "file:holdfast-relative"},
		{"--data", data, "--backup", "file://"},
		{"--data", filepath.Join(t.TempDir(), "data"), "--backup", "file://" + t.TempDir(), "--backup-keep", "much"},
	} {
		status, _, text := result(t, holdfastCommand(t, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...))
		if status != exitError || !strings.Contains(text, "--backup") {
			t.Errorf("%q: %d %s", args, status, text)
		}
	}
}
