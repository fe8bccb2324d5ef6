package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

var try = testkit.Try

// raftSource fills a store as a Raft server does, with entries of so many bytes.
func raftSource(t *testing.T, to interface {
	raft.LogStore
	raft.StableStore
}, entries, bytes int) {
	t.Helper()
	var batch []*raft.Log
	for i := range entries {
		batch = append(batch, &raft.Log{Index: uint64(i + 3), Term: 4, Data: fmt.Appendf(nil, "%0*d", bytes, i),
			AppendedAt: time.Unix(1700000000+int64(i), 5)})
		if len(batch) == 1000 || i == entries-1 {
			try(t, to.StoreLogs(batch))
			batch = nil
		}
	}
	try(t, to.SetUint64([]byte("CurrentTerm"), 5))
	try(t, to.SetUint64([]byte("LastVoteTerm"), 5))
	try(t, to.Set([]byte("LastVoteCand"), []byte("10.0.0.1:8300")))
}

func boltSource(t *testing.T, dir string, entries, bytes int) string {
	t.Helper()
	path := filepath.Join(dir, "raft.db")
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, NoSync: true})
	try(t, err)
	raftSource(t, db, entries, bytes)
	try(t, db.Close())
	return path
}

// TestRaftCommands imports from both kinds of sources, into new and old directories, and looks at what is there.
func TestRaftCommands(t *testing.T) {
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	run := func(want int, say []string, args ...string) string {
		t.Helper()
		status, stdout, stderr := here(t, "", append([]string{"raft"}, args...)...)
		for _, s := range append(say, "") {
			if status != want || !strings.Contains(stdout+stderr, s) {
				t.Errorf("%v: status %d, want %d, with %q\n%s%s", args, status, want, s, stdout, stderr)
			}
		}
		if strings.ContainsRune(stdout+stderr, '\x1b') || strings.Contains(stderr, "panic") ||
			want != exitOK && strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: %s", args, stderr)
		}
		return stdout
	}
	bolt := boltSource(t, at, 250, 100)
	walDir := path("wal")
	try(t, os.Mkdir(walDir, 0o755))
	w, err := wal.Open(walDir, wal.WithSegmentSize(8<<10), wal.WithLogger(hclog.NewNullLogger()))
	try(t, err)
	raftSource(t, w, 100, 40)
	run(exitError, []string{"directory in use"}, "import", walDir, "--into", path("no"))
	try(t, w.Close())

	all3 := []string{"250, of index 3 to 252", "CurrentTerm, LastVoteCand, LastVoteTerm",
		"current term  5; the last entry's is 4", "read back", "raft-boltdb"}
	run(exitOK, append(all3, "logtree"), "import", bolt, "--into", path("new"))
	run(exitOK, append(all3, "bbolt"), "import", at, "--into", "bbolt:"+path("b"))
	run(exitOK, append(all3, "pebble"), "import", bolt, "--into", "pebble:"+path("p")+"?memory=16MiB")
	run(exitOK, []string{"100, of index 3 to 102", "raft-wal", `"b"`}, "import", walDir, "--into", path("new"), "--name",
		"b")
	run(exitOK, nil, "import", walDir, "--into", "bbolt:"+path("b"), "--name", "b", "--drop-torn")
	try(t, os.Mkdir(path("empty"), 0o755))
	run(exitOK, nil, "import", walDir, "--into", path("empty"))

	for _, e := range all.Engines() {
		switch caps := e.Describe(); {
		case !caps.AtomicBatches:
			run(exitError, []string{"a crash can tear a batch"}, "import", bolt, "--into", e.Name+":"+path("no"))
		case caps.Power.Given == holdfast.Power:
			run(exitOK, append(all3, e.Name), "import", bolt, "--into", e.Name+":"+path("every-"+e.Name))
			run(exitOK, []string{"250, with 0 gaps"}, "inspect", path("every-"+e.Name), "--all")
		}
	}
	for _, dir := range []string{path("new"), path("b"), "bbolt:" + path("b")} {
		run(exitOK, []string{`""`, `"b"`, "index 3 to 252, term 4 to 4", "index 3 to 102", "2023-11-14T22:13:20.000000005Z",
			`"10.0.0.1:8300"`}, "inspect", dir)
	}
	run(exitOK, []string{"100, with 0 gaps, in 1 terms", "LogCommand", "100"}, "inspect", path("new"), "--name", "b",
		"--all")
	var list []raftlog.Inspection
	out := run(exitOK, nil, "inspect", path("p"), "--json", "--all")
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Last != 252 ||
		list[0].Full.Entries != 250 || len(list[0].Keys) != 3 || *list[0].Keys[0].Number != 5 {
		t.Errorf("%v: %s", err, out)
	}
	e, err := all.Open("logtree", path("new"), holdfast.Options{})
	try(t, err)
	run(exitError, []string{"directory in use", "close it there first", "holdfast inspect"}, "inspect", path("new"))
	run(exitError, []string{"directory in use"}, "import", bolt, "--into", path("new"), "--name", "c")
	s, err := raftlog.Open(e, raftlog.Options{Name: "b"})
	try(t, err)
	var log raft.Log
	if err := s.GetLog(102, &log); err != nil || !strings.HasSuffix(string(log.Data), "0099") ||
		!log.AppendedAt.Equal(time.Unix(1700000099, 5)) {
		t.Errorf("%+v, %v", log, err)
	}
	try(t, s.Close())
	try(t, e.Close())

	run(exitError, []string{`"b" is not empty`}, "import", bolt, "--into", path("new"), "--name", "b")
	run(exitError, []string{"not empty", "new or empty"}, "import", bolt, "--into", walDir)
	for _, into := range []string{walDir, filepath.Join(walDir, "sub"), "bbolt:" + filepath.Join(walDir, "a", "b")} {
		run(exitError, []string{"bad option", "name a directory elsewhere"}, "import", walDir, "--into", into)
	}
	run(exitError, []string{"bad option", "which an engine made"}, "import", walDir, "--into",
		filepath.Join(path("b"), "sub"))
	run(exitError, []string{"made by engine logtree"}, "import", bolt, "--into", "bbolt:"+path("new"), "--name", "c")
	run(exitError, []string{`no engine "rocks"`, "logtree"}, "import", bolt, "--into", "rocks:"+path("no"))
	run(exitError, []string{"power loss"}, "import", bolt, "--into", "bbolt:"+path("no")+"?level=process")
	run(exitError, []string{"mem"}, "import", bolt, "--into", "mem:"+path("no"))
	run(exitError, []string{"not a directory"}, "import", bolt, "--into", filepath.Join(bolt, "no"))
	run(exitOK, nil, "import", bolt, "--into", filepath.Join(path("made"), "deep"))
	run(exitError, []string{"no directory"}, "import", bolt, "--into", "")
	run(exitError, []string{"--into"}, "import", bolt)
	run(exitError, []string{"<source>"}, "import", "--into", path("no"))
	run(exitError, []string{"import", "inspect", "raft --help"})
	run(exitError, []string{"raft-boltdb", "raft-wal"}, "import", path("missing"), "--into", path("no"))
	run(exitError, []string{"foreign"}, "import", path("p"), "--into", path("no"))
	run(exitError, []string{"foreign"}, "inspect", walDir)
	run(exitError, []string{"not found"}, "inspect", path("new"), "--name", "c")
	run(exitOK, []string{"Copy the log"}, "import", "--help")

	// A key that may be a number.
	w, err = wal.Open(walDir, wal.WithSegmentSize(8<<10), wal.WithLogger(hclog.NewNullLogger()))
	try(t, err)
	try(t, w.SetUint64([]byte("mine"), 1))
	try(t, w.Close())
	run(exitError, []string{`"mine"`, "--number"}, "import", walDir, "--into", path("no"))
	run(exitOK, nil, "import", walDir, "--into", path("mine"), "--number", "mine")
	run(exitOK, []string{`\x00\x01"`}, "inspect", path("mine"))

	// Damage.
	segments, err := filepath.Glob(filepath.Join(walDir, "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatal(segments, err)
	}
	b, err := os.ReadFile(segments[0])
	try(t, err)
	b[500] ^= 1
	try(t, os.WriteFile(segments[0], b, 0o644))
	run(exitWrong, []string{"corrupt", "index ", "at byte"}, "import", walDir, "--into", path("no"), "--number", "mine")
	for _, no := range []string{path("no"), path("no.partial")} {
		if _, err := os.Stat(no); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a refused command made something: %v", err)
		}
	}
	if left, err := filepath.Glob(path("*.partial")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestRaftInspectShowsTheOthers: a store that cannot be shown hides no other one.
func TestRaftInspectShowsTheOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	e, err := all.Open("logtree", dir, holdfast.Options{})
	try(t, err)
	for _, name := range []string{"a", "b", "c"} {
		s, err := raftlog.Open(e, raftlog.Options{Name: name})
		try(t, err)
		try(t, s.StoreLog(&raft.Log{Index: 8, Term: 1}))
		try(t, s.Close())
	}
	var b holdfast.Batch
	b.Set([]byte("r\x01bm"), []byte("no description"))
	b.Set([]byte("record/17"), []byte("another program's"))
	try(t, holdfast.Commit(e, &b, holdfast.Power))
	try(t, e.Close())

	status, stdout, stderr := here(t, "", "raft", "inspect", dir)
	if status != exitWrong || strings.Count(stdout, "index 8 to 8") != 2 || strings.Count(stdout, "error ") != 1 ||
		strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "corrupt") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	status, stdout, stderr = here(t, "", "raft", "inspect", dir, "--json")
	var list []struct {
		Name, Error string
		Last        uint64
	}
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || status != exitWrong || len(list) != 3 ||
		list[0].Last != 8 || list[1].Error == "" || list[1].Name != "b" || list[2].Last != 8 {
		t.Errorf("status %d, %v\n%s%s", status, err, stdout, stderr)
	}
}

// TestRaftErrorsSayWhatToDo.
func TestRaftErrorsSayWhatToDo(t *testing.T) {
	at := t.TempDir()
	bolt := boltSource(t, at, 5, 5)
	dir := filepath.Join(at, "d")
	walDir := filepath.Join(at, "wal")
	try(t, os.Mkdir(walDir, 0o755))
	w, err := wal.Open(walDir, wal.WithLogger(hclog.NewNullLogger()))
	try(t, err)
	try(t, w.Close())
	for _, c := range []struct {
		status int
		say    []string
		args   []string
	}{
		{exitOK, []string{"5, of index 3 to 7"}, []string{"raft", "import", bolt, "--into", dir}},
		{exitError, []string{"import " + dir + ": bad option",
			`the store "" is not empty; the engine has one store, which has no name`, "--name"},
			[]string{"raft", "import", bolt, "--into", dir}},
		{exitError, []string{"inspect " + dir + ": not found",
			`the store "zz" is not there; the engine has one store, which has no name`},
			[]string{"raft", "inspect", dir, "--name", "zz"}},
		{exitError, []string{"foreign", "holdfast raft import"}, []string{"raft", "inspect", at}},
		{exitError, []string{"foreign", "holdfast raft import"}, []string{"raft", "inspect", walDir}},
		{exitError, []string{"holdfast raft import"}, []string{"raft", "inspect", bolt}},
		{exitError, []string{"see holdfast raft inspect --help"}, []string{"raft", "inspect"}},
		{exitError, []string{"see holdfast raft import --help"}, []string{"raft", "import", bolt}},
		{exitError, []string{"see holdfast raft --help"}, []string{"raft", "export"}},
		{exitError, []string{"see holdfast bench --help"}, []string{"bench", "--nothing"}},
		{exitError, []string{"the commands are: serve, ready, nodes, bench, report, advise, compare"}, []string{"nothing"}},
		{exitOK, []string{"for writing"}, []string{"raft", "--help"}},
		{exitOK, []string{"for writing"}, []string{"raft", "inspect", "--help"}},
	} {
		status, stdout, stderr := here(t, "", c.args...)
		text := strings.Join(strings.Fields(stdout+stderr), " ")
		for _, s := range c.say {
			if status != c.status || !strings.Contains(text, s) {
				t.Errorf("%q: status %d, want %d and %q\n%s%s", c.args, status, c.status, s, stdout, stderr)
			}
		}
	}
}
