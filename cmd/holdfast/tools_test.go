package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// TestToolCommands runs inspect, verify, backup and repair on sound and on damaged directories.
func TestToolCommands(t *testing.T) {
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	run := func(want int, say string, args ...string) string {
		t.Helper()
		status, stdout, stderr := here(t, "", args...)
		if status != want || !strings.Contains(stdout+stderr, say) {
			t.Errorf("%v: status %d, want %d, with %q\n%s%s", args, status, want, say, stdout, stderr)
		}
		if strings.Contains(stderr, "panic") {
			t.Errorf("%v: %s", args, stderr)
		}
		return stdout
	}
	for _, engine := range []string{"logtree", "bbolt"} {
		e, err := all.Open(engine, path(engine), holdfast.Options{})
		try(t, err)
		for i := range 100 {
			var b holdfast.Batch
			b.Set(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value %d", i))
			try(t, holdfast.Commit(e, &b, holdfast.Power))
		}
		run(exitOK, "open elsewhere", "inspect", path(engine))
		run(exitError, "POST /v1/server/verify", "verify", path(engine))
		run(exitError, "POST /v1/server/compact", "compact", path(engine))
		run(exitError, "directory in use", "repair", path(engine), "--into", path("no"))
		run(exitError, "GET /v1/server/backup", "backup", path(engine), "--into", path("no"))
		try(t, e.Close())
		run(exitOK, "engine", "inspect", path(engine))
		var in all.InspectResult
		if err := json.Unmarshal([]byte(run(exitOK, "", "inspect", path(engine), "--json")), &in); err != nil ||
			in.Engine != engine || in.Files == 0 {
			t.Errorf("JSON: %v, %+v", err, in)
		}
		run(exitOK, "\ndamage ", "verify", path(engine))
		run(exitOK, "100 keys", "backup", path(engine), "--into", path(engine+"-copy"))
		if engine == "logtree" || engine == "pebble" {
			run(exitOK, "", "backup", path(engine), "--into", path(engine+"-linked"), "--link")
			run(exitOK, "\ndamage ", "verify", path(engine+"-linked"))
		} else {
			run(exitError, "make a backup", "backup", path(engine), "--into", path("no"), "--link")
		}
		run(exitOK, "100 in", "repair", path(engine), "--into", path(engine+"-repaired"))
		run(exitError, "not empty", "repair", path(engine), "--into", path(engine+"-copy"))
		run(exitOK, "", "verify", path(engine+"-copy"))
		if engine == "badger" || engine == "files" {
			run(exitError, "gives back space by itself", "compact", path(engine+"-copy"))
		} else {
			run(exitOK, " now\n", "compact", path(engine+"-copy"))
			run(exitOK, "", "verify", path(engine+"-copy"))
			status, said := exitOK, " now\n"
			if engine == "bbolt" || strings.HasPrefix(engine, "sqlite") {
				status, said = exitError, "only compact everything"
			}
			run(status, said, "compact", path(engine+"-copy"), "--prefix", `\x00"k`)
			run(status, said, "compact", path(engine+"-copy"), "--from", "k1", "--to", "k2")
			run(exitError, "together", "compact", path(engine+"-copy"), "--from", "k1", "--prefix", "k")
			run(exitError, "no key is from", "compact", path(engine+"-copy"), "--from", "k2", "--to", "k1")
			run(exitError, "is no key", "compact", path(engine+"-copy"), "--from", `\q`)
			run(exitOK, "", "verify", path(engine+"-copy"))
		}
		run(exitOK, "", "verify", path(engine+"-repaired"))
	}
	segments, err := filepath.Glob(filepath.Join(path("logtree"), "*.seg"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	b, err := os.ReadFile(segments[0])
	try(t, err)
	b[len(b)/2] ^= 1
	try(t, os.WriteFile(segments[0], b, 0o644))
	run(exitWrong, "damage: ", "verify", path("logtree"))
	run(exitWrong, "damage", "inspect", path("logtree"))
	run(exitWrong, "corrupt", "backup", path("logtree"), "--into", path("no"))
	run(exitWrong, "lost: ", "repair", path("logtree"), "--into", path("salvaged"))
	run(exitOK, "", "verify", path("salvaged"))
	run(exitError, "foreign", "verify", at)
	run(exitError, "foreign", "compact", at)
	run(exitError, "missing: stat", "compact", path("missing"))
	run(exitError, "foreign directory: it has no file HOLDFAST", "backup", at, "--into", path("no"))
	for _, args := range [][]string{{"inspect"}, {"verify"}, {"repair", "--into", path("no")},
		{"backup", "--into", path("no")}} {
		run(exitError, args[0]+" "+path("missing")+": stat", append(args, path("missing"))...)
	}
	for _, command := range []string{"repair", "backup"} {
		run(exitError, "bad option: it lies in "+path("logtree"), command, path("logtree"), "--into",
			filepath.Join(path("logtree"), "data", "sub"))
	}
	run(exitError, "", "verify")
	if _, err := os.Stat(path("no")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused command made something: %v", err)
	}
	if left, err := filepath.Glob(path("*.partial")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestLostEvents: a repair says which events of a log are lost, in numbers that fit together; the log does not open
// before that is accepted, and then has the gap.
func TestLostEvents(t *testing.T) {
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	e, err := all.Open("logtree", path("db"), holdfast.Options{})
	try(t, err)
	log, err := event.Open(kv.On(e), event.Options{Name: "orders"})
	try(t, err)
	for i := range 50 {
		placed := event.Event{Data: fmt.Appendf(nil, "this is event %d.", i+1)}
		if _, err := log.Append(t.Context(), placed); err != nil {
			t.Fatal(err)
		}
	}
	messages, err := message.Open(kv.On(e), message.Options{})
	try(t, err)
	try(t, errors.Join(log.Close(), messages.Close(), e.Close()))
	if n, err := all.BackupDir(t.Context(), path("db"), path("copy")); err != nil || n != 54 {
		t.Fatal(n, err)
	}
	for _, name := range []string{"db", "copy"} {
		segments, err := filepath.Glob(filepath.Join(path(name), "*.seg"))
		if err != nil || len(segments) != 1 {
			t.Fatal(segments, err)
		}
		b, err := os.ReadFile(segments[0])
		try(t, err)
		b[bytes.Index(b, []byte("this is event 17."))] ^= 1
		try(t, os.WriteFile(segments[0], b, 0o644))
		fixed := path(name + "-fixed")
		status, stdout, stderr := here(t, "", "repair", path(name), "--into", fixed)
		for _, words := range []string{"53 in " + fixed, `log "orders"`, "events 1 to 50: 49 are there, 1 lost: 17;",
			"holdfast accept " + fixed} {
			if !strings.Contains(stdout, words) {
				t.Errorf("it does not say %q", words)
			}
		}
		if status != exitWrong || strings.Count(stderr, "\n") > 3 || t.Failed() ||
			!strings.Contains(stderr, `event 17 of log "orders"`) {
			t.Fatalf("status %d\n%s%s", status, stdout, stderr)
		}
		open := func() error {
			e, err := all.Open("logtree", fixed, holdfast.Options{})
			try(t, err)
			defer e.Close()
			_, err = raftlog.Open(e, raftlog.Options{})
			if e.Capabilities().Lost != "" && !errors.Is(err, holdfast.ErrCorrupt) {
				t.Errorf("a new Raft store: %v", err)
			}
			log, err := event.Open(kv.On(e), event.Options{Name: "orders"})
			if err != nil {
				return err
			}
			_, err = log.Read(t.Context(), 1, 0)
			return errors.Join(err, log.Close())
		}
		if err := open(); !errors.Is(err, holdfast.ErrCorrupt) || !strings.Contains(err.Error(), "holdfast accept") {
			t.Errorf("opened before the loss was accepted: %v", err)
		}
		status, stdout, stderr = here(t, "", "accept", fixed)
		if status != exitOK || !strings.Contains(stdout, "1 lost: 17;") {
			t.Errorf("accept: status %d\n%s%s", status, stdout, stderr)
		}
		var gap *event.Gap
		if err := open(); !errors.As(err, &gap) || *gap != (event.Gap{Position: 17, Next: 18}) {
			t.Errorf("opened after the loss was accepted: %v", err)
		}
		status, stdout, stderr = here(t, "", "accept", "--rebuild", fixed)
		if status != exitOK || !strings.Contains(stdout, `log "orders", positions 1 to 50: 49 events are there`) ||
			!strings.Contains(stdout, `namespace "default" of message store ""`) {
			t.Errorf("accept --rebuild: status %d\n%s%s", status, stdout, stderr)
		}
		if err := open(); err != nil {
			t.Errorf("opened after it was rebuilt: %v", err)
		}
	}
}

// TestToolsJSON: the tools say the same with --json, in one object, with the same statuses.
func TestToolsJSON(t *testing.T) {
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	e, err := all.Open("logtree", path("db"), holdfast.Options{})
	try(t, err)
	var b holdfast.Batch
	b.Set([]byte("key"), []byte("value"))
	try(t, errors.Join(holdfast.Commit(e, &b, holdfast.Power), e.Close()))
	for _, args := range [][]string{{"verify", path("db")}, {"repair", path("db"), "--into", path("repaired")},
		{"backup", path("db"), "--into", path("backup")}, {"backup", path("db"), "--link", "--into", path("linked")},
		{"copy", path("db"), "bbolt:" + path("copied")}} {
		status, out, errs := here(t, "", append(args, "--json")...)
		var r toolResult
		if err := json.Unmarshal([]byte(out), &r); err != nil || status != exitOK || errs != "" || r.How == "" ||
			len(r.Damage)+len(r.Lost) > 0 || r.Keys != nil && *r.Keys != 1 || args[0] == "repair" && !*r.Complete {
			t.Errorf("%v: status %d, %v, %s%s", args, status, err, out, errs)
		}
	}

	segments, err := filepath.Glob(filepath.Join(path("db"), "*.seg"))
	try(t, err)
	for _, name := range segments {
		text, err := os.ReadFile(name)
		try(t, err)
		if i := bytes.Index(text, []byte("value")); i >= 0 {
			text[i] ^= 1
			try(t, os.WriteFile(name, text, 0o644))
		}
	}
	for _, args := range [][]string{{"verify", path("db")}, {"repair", path("db"), "--into", path("salvaged")}} {
		status, out, errs := here(t, "", append(args, "--json")...)
		var r toolResult
		if err := json.Unmarshal([]byte(out), &r); err != nil || status != exitWrong || errs != "" ||
			len(r.Damage)+len(r.Lost) == 0 {
			t.Errorf("%v of damage: status %d, %v, %s%s", args, status, err, out, errs)
		}
	}
}
