//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// writeMessage writes a message of a type to the stream a-1.
func writeMessage(t *testing.T, p *process, token, text string) {
	t.Helper()
	if status, body := p.rpc(token, fmt.Sprintf(`["stream.write","a-1",{"type":"%s","data":{}}]`, text)); status != 200 {
		t.Fatal(status, body)
	}
}

// messagesIn are those of the stream a-1, as a command shows them.
func messagesIn(t *testing.T, dir string) string {
	t.Helper()
	status, list, text := result(t, holdfastCommand(t, "message", "cat", "a-1", "--dir", dir))
	if status != exitOK {
		t.Fatalf("%d %s", status, text)
	}

	return list
}

// TestFollowCommand follows a server, is killed and started again, and takes over when the server is lost.
func TestFollowCommand(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	bucket, copied := "file://"+filepath.Join(dir, "bucket"), filepath.Join(dir, "copy")
	first := serve(t, nil, "--data", filepath.Join(dir, "data"), "--backup", bucket)
	writeMessage(t, first, first.token, "First")

	start := func() (log *lockedBuffer, end func(os.Signal) error) {
		cmd := holdfastCommand(t, "follow", bucket, "--into", copied, "--listen", "127.0.0.1:0")
		log = new(lockedBuffer)
		cmd.Stderr = log
		try(t, cmd.Start())
		ended := false
		t.Cleanup(func() {
			if !ended {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		})

		return log, func(s os.Signal) error {
			ended = true
			try(t, cmd.Process.Signal(s))

			return cmd.Wait()
		}
	}
	log, end := start()
	shows := func(text string) {
		t.Helper()
		first.eventually("followed to "+text+": "+log.String(), func() bool {
			if _, err := os.Stat(filepath.Join(copied, "HOLDFAST")); err != nil {
				return false
			}
			return strings.Contains(messagesIn(t, copied), text)
		})
	}
	shows("First")
	_ = end(syscall.SIGKILL)
	writeMessage(t, first, first.token, "Second")
	log, end = start()
	shows("Second")

	// What it says of itself.
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(log.String())
	answer, err := http.Get("http://" + address + "/metrics")
	try(t, err)
	text, err := io.ReadAll(answer.Body)
	try(t, err)
	try(t, answer.Body.Close())
	for _, want := range []string{"holdfast_follow_lag_seconds", "holdfast_follow_state_timestamp_seconds",
		"holdfast_follow_failing 0"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	if !strings.Contains(log.String(), "following") {
		t.Errorf("log: %s", log)
	}

	// Nothing writes to it, and nobody promotes it while it is followed.
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--data", copied}, {"compact", copied},
		{"promote", copied}} {
		if status, out, text := result(t, holdfastCommand(t, args...)); status != exitError {
			t.Errorf("%q: %d %s%s", args, status, out, text)
		}
	}
	if err := end(syscall.SIGTERM); err != nil {
		t.Errorf("stopped: %v, %s", err, log)
	}
	status, _, said := result(t, holdfastCommand(t, "serve", "--listen", "127.0.0.1:0", "--data", copied))
	if status != exitError || !strings.Contains(said, "holdfast promote") {
		t.Errorf("served: %d %s", status, said)
	}

	// The server writes more, and is lost.
	writeMessage(t, first, first.token, "Third")
	first.stop(syscall.SIGTERM)
	status, out, said := result(t, holdfastCommand(t, "follow", bucket, "--into", copied, "--promote"))
	if status != exitOK || !strings.Contains(out, "promoted") {
		t.Fatalf("promoted: %d %s%s", status, out, said)
	}
	second := serve(t, nil, "--data", copied, "--backup", bucket)
	writeMessage(t, second, first.token, "Fourth")
	second.stop(syscall.SIGTERM)
	into := filepath.Join(dir, "restored")
	if status, _, text := result(t, holdfastCommand(t, "restore", bucket, "--into", into)); status != exitOK {
		t.Fatalf("%d %s", status, text)
	}
	list := messagesIn(t, into)
	for _, want := range []string{"First", "Second", "Third", "Fourth"} {
		if !strings.Contains(list, want) {
			t.Errorf("no %s in %s", want, list)
		}
	}
	if status, _, text := result(t, holdfastCommand(t, "promote", into)); status != exitError ||
		!strings.Contains(text, "follows nothing") {
		t.Errorf("promote of a restored one: %d %s", status, text)
	}
}

// TestRestoreAtPosition restores the states right before a message, also of a namespace, and right before an event.
func TestRestoreAtPosition(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	bucket := "file://" + filepath.Join(dir, "bucket")
	p := serve(t, nil, "--data", filepath.Join(dir, "data"), "--backup", bucket)
	for _, text := range []string{"First", "Second", "Third"} {
		writeMessage(t, p, p.token, text)
	}
	env := []string{"HOLDFAST_URL=" + p.url, "HOLDFAST_TOKEN=" + p.token}
	do := func(args ...string) {
		t.Helper()
		cmd := holdfastCommand(t, args...)
		cmd.Env = append(cmd.Env, env...)
		if status, out, text := result(t, cmd); status != exitOK {
			t.Fatalf("%q: %d %s%s", args, status, out, text)
		}
	}
	do("event", "append", "audit", "{}", "--type", "Opened")
	do("event", "append", "audit", "{}", "--type", "Closed")
	p.stop(syscall.SIGTERM)

	restore := func(want int, args ...string) (dir, text string) {
		t.Helper()
		into := filepath.Join(t.TempDir(), "restored")
		status, out, text := result(t, holdfastCommand(t, append([]string{"restore", bucket, "--into", into}, args...)...))
		if status != want {
			t.Fatalf("%q: %d %s%s", args, status, out, text)
		}
		return into, text
	}
	at, _ := restore(exitOK, "--at-position", "3")
	if list := messagesIn(t, at); !strings.Contains(list, "Second") || strings.Contains(list, "Third") {
		t.Errorf("before the third: %s", list)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(at), "*")); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
	at, _ = restore(exitOK, "--at-position", "2", "--log", "audit")
	status, list, text := result(t, holdfastCommand(t, "event", "cat", "audit", "--dir", at))
	if status != exitOK || !strings.Contains(list, "Opened") || strings.Contains(list, "Closed") {
		t.Errorf("before the second event: %d %s%s", status, list, text)
	}
	if list := messagesIn(t, at); !strings.Contains(list, "Third") {
		t.Errorf("what was written before the event is gone: %s", list)
	}
	for _, args := range [][]string{{"--at-position", "9"}, {"--at-position", "0"},
		{"--at-position", "1", "--namespace", "none"}, {"--log", "audit"},
		{"--at-position", "1", "--at", time.Now().UTC().Format(time.RFC3339)}} {
		if at, text := restore(exitError, args...); text == "" {
			t.Errorf("%q says nothing, in %s", args, at)
		}
	}
}

// TestServeCopies backs up servers on engines that are copied as a whole, restores them, and serves what was restored.
func TestServeCopies(t *testing.T) {
	for _, engine := range []string{"pebble", "badger", "bbolt", "sqlite"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel() // it waits
			dir := t.TempDir()
			bucket, data := "file://"+filepath.Join(dir, "bucket"), engine+":"+filepath.Join(dir, "data")
			args := []string{"--engine", data, "--backup", bucket, "--backup-every", "100ms", "--backup-compress"}
			p := serve(t, nil, args...)
			writeMessage(t, p, p.token, "First")
			into := ""
			p.eventually("a copy", func() bool {
				into = filepath.Join(t.TempDir(), "restored")
				status, _, _ := result(t, holdfastCommand(t, "restore", bucket, "--into", into))
				return status == exitOK && strings.Contains(messagesIn(t, into), "First")
			})
			p.stop(syscall.SIGTERM)
			if status, out, text := result(t, holdfastCommand(t, "verify", bucket)); status != exitOK {
				t.Errorf("verify: %d %s%s", status, out, text)
			}
			if status, out, text := result(t, holdfastCommand(t, "inspect", into)); status != exitOK ||
				!strings.Contains(out, engine) {
				t.Errorf("inspect: %d %s%s", status, out, text)
			}
			again := serve(t, nil, "--engine", engine+":"+into)
			writeMessage(t, again, p.token, "Second")
			again.stop(syscall.SIGTERM)

			// It says how often, or is refused.
			status, _, text := result(t, holdfastCommand(t, "serve", "--listen", "127.0.0.1:0", "--engine", data, "--backup",
				bucket))
			if status != exitError || !strings.Contains(text, "--backup-every") {
				t.Errorf("without a time: %d %s", status, text)
			}
		})
	}
}

// TestBaseless: a restore or a copy that had to take an older generation says so, and --promote does not wait for what
// cannot come.
func TestBaseless(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	at := filepath.Join(dir, "bucket")
	bucket := "file://" + at
	try(t, os.Mkdir(at, 0o700))
	status, _, text := result(t, holdfastCommand(t, "follow", bucket, "--into", filepath.Join(dir, "a"), "--promote"))
	if status != exitError || !strings.Contains(text, "there is no state in the bucket") {
		t.Errorf("promoted from an empty bucket: %d %s", status, text)
	}

	token := ""
	for _, text := range []string{"First", "Second"} {
		p := serve(t, nil, "--data", filepath.Join(dir, "data"), "--backup", bucket)
		if token == "" {
			token = p.token
		}
		writeMessage(t, p, token, text)
		p.stop(syscall.SIGTERM)
	}
	found, err := filepath.Glob(filepath.Join(at, "2*"))
	try(t, err)
	if len(found) != 2 {
		t.Fatal(found)
	}
	last := filepath.Base(found[1])
	try(t, os.RemoveAll(filepath.Join(found[1], "base")))
	for i, args := range [][]string{{"restore", bucket}, {"follow", bucket, "--promote"}} {
		into := filepath.Join(dir, fmt.Sprint("into ", i))
		status, _, text := result(t, holdfastCommand(t, append(args, "--into", into)...))
		if list := messagesIn(t, into); status != exitOK || !strings.Contains(text, "warning") ||
			!strings.Contains(text, last) || !strings.Contains(list, "First") || strings.Contains(list, "Second") {
			t.Errorf("%q: %d %s%s", args, status, text, list)
		}
	}
	status, out, text := result(t, holdfastCommand(t, "verify", bucket))
	if status != exitOK || !strings.Contains(out, last) {
		t.Errorf("verified: %d %s%s", status, out, text)
	}

	// A copy whose log is damaged can be taken over as it is.
	logs, err := filepath.Glob(filepath.Join(found[0], "log", "*"))
	try(t, err)
	damaged := logs[len(logs)-1]
	try(t, os.WriteFile(damaged, []byte("damaged"), 0o600))
	into := filepath.Join(dir, "late")
	status, _, text = result(t, holdfastCommand(t, "follow", bucket, "--into", into, "--promote"))
	if status != exitWrong || !strings.Contains(text, "holdfast promote takes the copy over") {
		t.Errorf("promoted with a damaged log: %d %s", status, text)
	}
	if status, _, text = result(t, holdfastCommand(t, "promote", into)); status != exitOK {
		t.Errorf("promoted as it is: %d %s", status, text)
	}
}
