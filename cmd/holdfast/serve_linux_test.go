package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestStoppedEngineOnFullDisk: what an engine says that has stopped is for whoever has it open.
func TestStoppedEngineOnFullDisk(t *testing.T) {
	c := serveCommand{Data: "data"}
	err := c.notOpened("sqlite", &holdfast.Error{Op: "commit", Engine: "sqlite", Class: holdfast.ErrPoisoned,
		Cause: syscall.ENOSPC, Remedy: "fix the cause and reopen"})
	const begin, end = "sqlite serve data: no room on the device: ", "; make room on the disk, or raise the quota"
	if !errors.Is(err, holdfast.ErrFull) || errors.Is(err, holdfast.ErrPoisoned) ||
		!strings.HasPrefix(err.Error(), begin) || !strings.HasSuffix(err.Error(), end) {
		t.Error(err)
	}
	for _, other := range []error{os.ErrPermission, &holdfast.Error{Class: holdfast.ErrPoisoned, Cause: syscall.EIO}} {
		if got := c.notOpened("sqlite", other); got != other {
			t.Error(got)
		}
	}
}

// TestServeOnFullDisk: a server was killed, and others have taken the last byte of its disk. On logtree it starts again
// for reading, and writes are refused until there is room. On others it says in one sentence that there is no room.
func TestServeOnFullDisk(t *testing.T) {
	for _, engine := range []string{"logtree", "pebble", "sqlite"} {
		t.Run(engine, func(t *testing.T) {
			mount := t.TempDir()
			if err := syscall.Mount("holdfast-test", mount, "tmpfs", 0, "size=32m"); err != nil {
				t.Skip("this process may not mount a small file system:", err)
			}
			t.Cleanup(func() { try(t, syscall.Unmount(mount, syscall.MNT_DETACH)) })
			data, files := engine+":"+filepath.Join(mount, "data"), 0
			fill := func() {
				t.Helper()
				files++
				f, err := os.Create(filepath.Join(mount, fmt.Sprint(files)))
				try(t, err)
				for chunk := make([]byte, 1<<20); err == nil || len(chunk) > 1; {
					if err != nil {
						chunk = chunk[:len(chunk)/2]
					}
					_, err = f.Write(chunk)
				}
				if !errors.Is(err, syscall.ENOSPC) {
					t.Fatal(err)
				}
				try(t, f.Close())
			}
			p := serve(t, nil, "--engine", data)
			token := p.token
			write := `["stream.write","a-1",{"type":"T","data":{}}]`
			if status, text := p.rpc(token, write); status != 200 {
				t.Fatal(status, text)
			}
			fill()
			written := 1
			for ; ; written++ {
				if status, text := p.rpc(token, write); status == 507 {
					break
				} else if status != 200 {
					t.Fatal(status, text)
				}
			}
			for range 2 {
				_ = p.cmd.Process.Kill()
				_ = p.cmd.Wait()
				p.stopped = true
				fill()
				if engine != "logtree" {
					// If it begins after all, it has no such address, and says that.
					cmd := holdfastCommand(t, "serve", "--listen", "192.0.2.1:1", "--insecure", "--engine", data)
					status, _, text := result(t, cmd)
					if engine == "sqlite" && strings.Contains(text, "192.0.2.1") { // its log had some room left
						continue
					}
					lines := strings.Split(strings.TrimSpace(text), "\n")
					if last := lines[len(lines)-1]; status != exitError || !strings.HasPrefix(last, "holdfast: "+engine) ||
						!strings.Contains(last, "no room on the device: ") || !strings.Contains(last, "room on the disk") {
						t.Fatalf("status %d: %s", status, text)
					}
					continue
				}
				p = serve(t, nil, "--engine", data)
				if status, text := p.rpc(token, `["stream.get","a-1"]`); status != 200 || !strings.Contains(text, `"T"`) {
					t.Errorf("reading: %d %s", status, text)
				}
				if status, text := p.rpc(token, write); status != 507 {
					t.Errorf("writing: %d %s", status, text)
				}
				p.eventually("says so", func() bool { return strings.Contains(p.log.String(), "the disk is full") })
				res, err := p.client.Get(p.url + "/ready")
				try(t, err)
				var body bytes.Buffer
				_, err = body.ReadFrom(res.Body)
				try(t, errors.Join(err, res.Body.Close()))
				if res.StatusCode != 503 || !strings.Contains(body.String(), `"full"`) {
					t.Errorf("/ready: %d %s", res.StatusCode, &body)
				}
			}
			for n := range files {
				try(t, os.Remove(filepath.Join(mount, fmt.Sprint(n+1))))
			}
			if engine != "logtree" {
				p = serve(t, nil, "--engine", data)
			}
			if status, text := p.rpc(token, write); status != 200 {
				t.Errorf("with room: %d %s", status, text)
			}
			status, text := p.rpc(token, `["stream.get","a-1"]`)
			if n := strings.Count(text, `"T"`); status != 200 || n != min(written+1, 1000) {
				t.Errorf("with room: %d, %d messages of %d", status, n, written+1)
			}
			p.stop(syscall.SIGTERM)
		})
	}
}
