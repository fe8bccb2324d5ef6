package main

import (
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/kv"
)

// TestBuckets looks at what copy has made of a bbolt file, also where the engine cannot be opened for reading only, and
// at a database that has a name.
func TestBuckets(t *testing.T) {
	at := t.TempDir()
	from := filepath.Join(at, "app.db")
	db, err := bolt.Open(from, 0o600, nil)
	try(t, err)
	try(t, db.Update(func(tx *bolt.Tx) error {
		users, err := tx.CreateBucket([]byte("users"))
		try(t, err)
		index, err := users.CreateBucket([]byte{0, 7})
		try(t, err)
		try(t, users.Put([]byte("ann"), []byte("line 1\nline 2")))
		try(t, users.Put([]byte(`"`), []byte{0xff}))
		try(t, users.SetSequence(17))
		_, err = tx.CreateBucket([]byte("void"))
		try(t, err)
		return index.Put([]byte{1}, []byte("ann"))
	}))
	try(t, db.Close())

	for name, want := range map[string]string{"a": "a", "a > b": `"a > b"`, " ": `" "`, "a ": `"a "`, "a>b c": "a>b c",
		"": `""`} {
		if got := argument([]byte(name)); got != want {
			t.Errorf("%q is shown as %s", name, got)
		}
	}
	for _, engine := range []string{"logtree", "bbolt"} {
		dir := filepath.Join(at, engine)
		status, out, stderr := here(t, "", "copy", from, engine+":"+dir, "--json")
		if status != exitOK || !strings.Contains(out, `"buckets": 3`) || !strings.Contains(out, `"keys": 3`) {
			t.Fatalf("status %d\n%s%s", status, out, stderr)
		}
		for _, c := range []struct {
			status int
			want   []string // lines, or of an error its beginning
			args   []string
		}{
			{exitOK, []string{"bucket keys sequence", "users 2 17", `users > "\x00\a" 1 0`, "void 0 0"}, []string{"list"}},
			{exitOK, []string{"bucket keys sequence", `users > "\x00\a" 1 0`}, []string{"list", "users", `"\x00\x07"`}},
			{exitOK, []string{"line 1", "line 2"}, []string{"get", "users", "ann"}},
			{exitOK, []string{"ann"}, []string{"get", "users", `"\x00\a"`, `"\x01"`}},
			{exitOK,
				[]string{`users  "\""  "\xff"`, `users  ann  "line 1\nline 2"`, `users > "\x00\a"  "\x01"  ann`}, []string{"dump"}},
			{exitOK, []string{`{"bucket":["users"],"sequence":17}`,
				`{"bucket":["users"],"key":"\"\\\"\"","value_base64":"/w=="}`,
				`{"bucket":["users"],"key":"ann","value":"line 1\nline 2"}`,
				`{"bucket":["users","\"\\x00\\a\""],"sequence":0}`,
				`{"bucket":["users","\"\\x00\\a\""],"key":"\"\\x01\"","value":"ann"}`}, []string{"dump", "users", "--json"}},
			{exitOK, nil, []string{"dump", "void"}},
			{exitError, []string{`holdfast: not found: key bob in bucket users`}, []string{"get", "users", "bob"}},
			{exitError, []string{`holdfast: no such bucket: users > no`}, []string{"get", "users", "no", "k"}},
			{exitError, []string{`holdfast: bad option: no bucket is named`}, []string{"get", "users"}},
			{exitError, []string{`holdfast: bad option: "\"a" is not well quoted`}, []string{"get", `"a`, "k"}},
			{exitError, []string{`holdfast: not found: a database called "other"`}, []string{"list", "--database", "other"}},
			{exitError, []string{`holdfast: not found: a database called "other"`}, []string{"dump", "--database", "other"}},
		} {
			args := append([]string{"kv", c.args[0], "--dir", dir}, c.args[1:]...)
			status, stdout, stderr := here(t, "", args...)
			if c.status == exitError {
				if status != exitError || stdout != "" || !strings.HasPrefix(stderr, c.want[0]) {
					t.Errorf("%q: status %d\n%s%s", args, status, stdout, stderr)
				}
				continue
			}
			var lines []string
			for line := range strings.Lines(stdout) {
				if line = strings.TrimRight(line, "\n"); c.args[0] == "list" { // a table
					line = strings.Join(strings.Fields(line), " ")
				}
				lines = append(lines, line)
			}
			if got, want := strings.Join(lines, "\n"), strings.Join(c.want, "\n"); status != exitOK || got != want {
				t.Errorf("%q: status %d\n%s\nwant\n%s\n%s", args, status, got, want, stderr)
			}
		}
	}

	named := filepath.Join(at, "named")
	e, err := all.Open("logtree", named, holdfast.Options{})
	try(t, err)
	other, err := kv.Open(e, kv.Options{Name: "other"})
	try(t, err)
	try(t, other.Update(t.Context(), func(tx *kv.Tx) error { return tx.Bucket("b").Put([]byte("k"), []byte("v")) }))
	try(t, e.Close())
	status, out, stderr := here(t, "", "kv", "get", "--dir", named, "--database", "other", "b", "k")
	if status != exitOK || out != "v\n" {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
}
