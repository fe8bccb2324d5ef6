package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "--version"} {
		status, out, stderr := here(t, "", arg)
		for _, want := range []string{"holdfast", runtime.Version(), "github.com/cockroachdb/pebble/v2", "go.etcd.io/bbolt",
			"sqlite-go"} {
			if status != exitOK || stderr != "" || !strings.Contains(out, want) {
				t.Errorf("status %d, no %q in\n%s%s", status, want, out, stderr)
			}
		}
	}
	_, out, _ := here(t, "", "version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || v.Go != runtime.Version() || len(v.Libraries) < 6 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPage: columns are aligned below their names, and on a terminal what is wide is folded.
func TestPage(t *testing.T) {
	for width, want := range map[int]string{
		0:  "name    one two three four\nlonger  five\n\na    b  c\n100  2  more\n",
		20: "name    one two\n        three four\nlonger  five\n\na    b  c\n100  2  more\n",
	} {
		var out strings.Builder
		p := newPage(&out)
		p.width = width
		p.line("name\tone two three four")
		p.line("longer\tfive")
		p.line("\na\tb\tc")
		p.line("100\t2\tmore")
		if err := p.end(); err != nil || out.String() != want {
			t.Errorf("%d columns: %q, want %q; %v", width, out.String(), want, err)
		}
	}
}

func TestHelpCommand(t *testing.T) {
	for _, args := range [][]string{{}, {"copy"}, {"raft"}, {"raft", "import"}} {
		_, want, _ := here(t, "", with(args, "--help")...)
		status, out, stderr := here(t, "", with([]string{"help"}, args...)...)
		if status != exitOK || stderr != "" || out != want || !strings.HasSuffix(out, exitHelp) {
			t.Errorf("%q: status %d\n%s%s", args, status, out, stderr)
		}
		for line := range strings.Lines(out) {
			if len(line) > 81 {
				t.Errorf("%q: %d columns: %s", args, len(line), line)
			}
		}
	}
	status, out, stderr := here(t, "", "help", "raft", "no")
	if status != exitError || out != "" ||
		stderr != "holdfast: help: there is no command \"raft no\"; see holdfast raft --help\n" {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
}

func TestCopyCommand(t *testing.T) {
	at := t.TempDir()
	from, to := filepath.Join(at, "app.db"), filepath.Join(at, "new")
	db, err := bolt.Open(from, 0o600, nil)
	try(t, err)
	try(t, db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		try(t, err)
		return b.Put([]byte("k"), []byte("v"))
	}))
	status, _, stderr := result(t, holdfastCommand(t, "copy", from, to))
	if status != exitError || !strings.Contains(stderr, "directory in use") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d: %s", status, stderr)
	}
	try(t, db.Close())
	for _, c := range []struct {
		status int
		say    string
		args   []string
	}{
		{exitOK, "1, 2 B with their values", []string{from, to}},
		{exitOK, "1, 4 B with their values", []string{from, to + "5", "--separator", "/"}},
		{exitOK, "logtree", []string{to, "pebble:" + to + "2?memory=16MiB"}},
		{exitOK, "1, 2 B with their values", []string{from, "bbolt:" + to + "3", "--only", "b"}},
		{exitError, "it is not empty", []string{from, to}},
		{exitError, `the separator "ab" has 2 bytes`, []string{from, to + "4", "--separator", "ab"}},
		{exitError, "holdfast copy --help", []string{t.TempDir(), to + "4"}},
		{exitError, "no such file", []string{filepath.Join(at, "gone"), to + "4"}},
		{exitError, "rocks", []string{from, "rocks:" + to + "4"}},
		{exitError, "must be written to a directory", []string{from, "mem:" + to + "4"}},
	} {
		status, stdout, stderr := here(t, "", with([]string{"copy"}, c.args...)...)
		if status != c.status || !strings.Contains(stdout+stderr, c.say) || strings.Count(stderr, "\n") > 1 {
			t.Errorf("%q: status %d\n%s%s", c.args, status, stdout, stderr)
		}
	}
	entries, err := os.ReadDir(at)
	if try(t, err); len(entries) != 5 {
		t.Errorf("%v", entries)
	}
	// What is copied from an engine has the database in it.
	status, out, stderr := here(t, "", "kv", "get", "--dir", "pebble:"+to+"2", "b", "k")
	if status != exitOK || out != "v\n" {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	e, err := all.Open("logtree", to+"5", holdfast.Options{})
	try(t, err)
	if v, err := e.Get(nil, []byte("b/k")); err != nil || string(v) != "v" {
		t.Errorf("%q, %v", v, err)
	}
	try(t, e.Close())
}
