package main

import (
	"database/sql"
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
	"github.com/holdfastdb/holdfast/store/task"
)

// queryDir makes a directory with a few messages, events and a task.
func queryDir(t *testing.T, engine string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), engine)
	eng, err := all.Open(engine, dir, holdfast.Options{})
	try(t, err)
	db := kv.On(eng)
	store, err := message.Open(db, message.Options{})
	try(t, err)
	messages, err := store.Namespace(t.Context(), message.Default)
	try(t, err)
	for i := range 6 {
		_, err := messages.Write(t.Context(), fmt.Sprint("order-", i%2), message.Message{
			Type: []string{"Placed", "Paid"}[i/3],
			Data: fmt.Appendf(nil, `{"n": %d, "text": "a \"b\",\nc"}`, i)})
		try(t, err)
	}
	log, err := event.Open(db, event.Options{})
	try(t, err)
	_, err = log.Append(t.Context(), event.Event{Type: "odd", Data: []byte{0xff, 0}})
	try(t, err)
	tasks, err := task.Open(db, task.Options{})
	try(t, err)
	_, err = tasks.Enqueue(t.Context(), task.Spec{ID: "t1", Kind: "mail"})
	try(t, err)
	try(t, tasks.Close())
	try(t, log.Close())
	try(t, store.Close())
	try(t, eng.Close())

	return dir
}

// TestQueryCommand asks engines that can be opened for reading only, and others.
func TestQueryCommand(t *testing.T) {
	for _, engine := range []string{"logtree", "badger", "sqlite-go"} {
		dir := queryDir(t, engine)
		before, err := os.ReadFile(filepath.Join(dir, "HOLDFAST"))
		try(t, err)
		for _, c := range []struct {
			status int
			want   string // of the output, or of an error what it has
			args   []string
		}{
			{exitOK, "  type    count(*)\n  Paid           3\n  Placed         3\n",
				[]string{"select type, count(*) from messages where stream like 'order-%' group by 1"}},
			{exitOK, `{"global":1,"n":"a \"b\",\nc","x":null,"y":1.5}` + "\n", []string{"--format", "json",
				"select global, data ->> 'text' as n, null as x, 1.5 as y from messages where global < 2"}},
			{exitOK, "n,data\n0,\"a \"\"b\"\",\nc\"\n", []string{"--format", "csv",
				"select data ->> 'n' as n, data ->> 'text' as data from messages limit 1"}},
			{exitOK, `{"data":"/wA="}` + "\n", []string{"select data from events", "--format=json"}},
			{exitOK, "id,kind,state\nt1,mail,waiting\n", []string{"select id, kind, state from tasks", "--format=csv"}},
			{exitOK, "VIRTUAL TABLE INDEX 0:stream = ? and position >= ?\n",
				[]string{"select * from messages where stream = 'order-1' and position >= 2", "--explain"}},
			{exitOK, "VIRTUAL TABLE INDEX 0:type = ? and backwards\n",
				[]string{"select * from messages where type = 'Paid' order by global desc limit 1", "--explain"}},
			{exitOK, "global\n6\n5\n", []string{"select global from messages order by 1 desc limit 2", "--format=csv"}},
			{exitOK, "messages\nstreams\nevents\nsubscriptions\ntasks\nqueues\nkeys\n", []string{".tables"}},
			{exitOK, "CREATE TABLE events(\n  log TEXT,\n  position INTEGER,", []string{".schema events"}},
			{exitOK, "", []string{"select 1 from messages where stream = 'none'"}},
			{exitOK, "  a  b\n  1  null\n  x  \"\"\n", []string{"select 1 as a, null as b union all select 'x', ''"}},
			{exitError, "may not be modified", []string{"delete from messages"}},
			{exitError, "only statements that read are allowed", []string{"create table t(x)"}},
			{exitError, "no such column: nowhere", []string{"select nowhere"}},
			{exitError, "there are more than 5 rows", []string{"select * from messages", "--rows=5"}},
			{exitError, "longer than 30ms", []string{"with recursive c(x) as (select 1 union all select 1 from c) " +
				"select count(*) from c", "--time=30ms"}},
			{exitError, "there is no command", []string{".quit now"}},
			{exitError, "no such namespace", []string{"-n", "none", "select * from messages"}},
			{exitError, "more than 1 MiB of memory", []string{"--memory=1MiB", "select hex(zeroblob(9000000))"}},
			{exitError, "needs too much memory", []string{"--memory=1MiB",
				"with recursive c(x) as (select 1 union all select x + 1 from c) select 'some text', x from c"}},
		} {
			status, out, stderr := here(t, "", append([]string{"query", dir}, c.args...)...)
			got := out
			if c.status != exitOK {
				got = stderr
			}
			if status != c.status || !strings.Contains(got, c.want) ||
				c.want == "" && !strings.Contains(stderr, "nothing found") {
				t.Errorf("%s %q: status %d\n%s%swant %s", engine, c.args, status, out, stderr, c.want)
			}
		}
		after, err := os.ReadFile(filepath.Join(dir, "HOLDFAST"))
		if err != nil || string(after) != string(before) {
			t.Errorf("%s: HOLDFAST was %q, and is %q, %v", engine, before, after, err)
		}
	}
}

// TestQueryInUse: a directory that is open elsewhere is refused, and the error says what to do.
func TestQueryInUse(t *testing.T) {
	dir := queryDir(t, "logtree")
	eng, err := all.OpenDir("", dir, holdfast.Options{})
	try(t, err)
	defer eng.Close()
	status, _, stderr := here(t, "", "query", dir, "select 1")
	if status != exitError || !strings.Contains(stderr, "holdfast query --url http://HOST:PORT SQL") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// TestQueryPlaces: a server answers as a directory does, but for keys, wherever it is named.
func TestQueryPlaces(t *testing.T) {
	where := serving(t) // --url URL --token TOKEN
	address, token := where[1], where[3]
	dir := queryDir(t, "logtree")
	for _, args := range [][]string{{"message", "import"}} {
		_, exported, stderr := here(t, "", "message", "export", "--dir", dir)
		if status, _, stderr2 := here(t, exported, append(args, where...)...); status != exitOK {
			t.Fatal(status, stderr, stderr2)
		}
	}
	for _, args := range [][]string{
		{"select type, count(*) from messages where stream like 'order-%' group by 1"},
		{"select global, data ->> 'text' as n, null as x, 1.5 as y, x'00ff' as b from messages", "--format", "json"},
		{"select global, data, x'00ff' as b, '' as e, 1e300, 2.0 from messages", "--format", "csv"},
		{"select global, data, x'00ff' as b, '' as e, 1e300, null from messages"},
		{"select * from messages where stream = 'order-1' and position >= 2", "--explain"},
		{"select global from messages order by 1 desc limit 2", "--format=csv"},
		{".schema events"}, {".schema none"}, {".what"}, {"delete from messages"}, {"select nowhere"}, {"select 1; select 2"},
		{"select * from messages", "--rows=5", "--format=csv"}, {"select * from streams where stream = 'none'"},
		{"with recursive c(x) as (select 1 union all select 1 from c) select count(*) from c", "--time=30ms"},
		{"-n", "none", "select * from messages"}, {"--memory=1MiB", "select hex(zeroblob(9000000))"},
		{"--memory=1MiB", "with recursive c(x) as (select 1 union all select x + 1 from c) select 'some text', x from c"},
	} {
		status, out, stderr := here(t, "", append([]string{"query", dir}, args...)...)
		for name, ask := range map[string]func() (int, string, string){
			"URL": func() (int, string, string) {
				return here(t, "", append([]string{"query", address, "--token", token}, args...)...)
			},
			"--url": func() (int, string, string) {
				return here(t, "", append(append([]string{"query"}, where...), args...)...)
			},
			"environment": func() (int, string, string) {
				t.Setenv("HOLDFAST_URL", address)
				t.Setenv("HOLDFAST_TOKEN", token)
				defer os.Unsetenv("HOLDFAST_URL")
				return here(t, "", append([]string{"query"}, args...)...)
			},
		} {
			gotStatus, got, gotErr := ask()
			if gotStatus != status || got != out || (gotErr == "") != (stderr == "") {
				t.Errorf("%s %q: status %d\n%s%s\nthe directory: %d\n%s%s", name, args, gotStatus, got, gotErr, status, out, stderr)
			}
		}
	}
	if status, out, stderr := here(t, "", append([]string{"query", ".tables"}, where...)...); status != exitOK ||
		out != "messages\nstreams\nevents\nsubscriptions\ntasks\nqueues\n" {
		t.Error(status, out, stderr)
	}
	prompt := "select 1 as a;\n.tables\nselect \xff;"
	status, out, stderr := here(t, prompt, append([]string{"query", "--format=json"}, where...)...)
	if status != exitError ||
		!strings.HasPrefix(out, "{\"a\":1}\nmessages\n") ||
		!strings.Contains(stderr, "UTF-8") {
		t.Error(status, out, stderr)
	}
	for want, args := range map[string][]string{
		"name a place":                 append([]string{dir, "select 1"}, where...),
		"name a directory or the":      {},
		"--database is about keys":     append([]string{"--database=x", "select 1"}, where...),
		"check the token":              {"--url", address, "--token", "nonsense", "select 1"},
		"is not one of a server":       {"--url", "ftp://x", "select 1"},
		"no such table: keys":          append([]string{"select * from keys"}, where...),
		"connection refused":           {"http://127.0.0.1:1", "select 1"},
		"there is no such":             {"none at all", "select 1"},
		"this needs a token with role": nil,
	} {
		if args == nil {
			_, reader, _ := here(t, "", append([]string{"token", "create", "--role=write"}, where...)...)
			args = []string{"--url", address, "--token", strings.TrimSpace(reader), "select 1"}
		}
		if status, out, stderr := here(t, "", append([]string{"query"}, args...)...); status != exitError ||
			!strings.Contains(stderr, want) && want != "there is no such" {
			t.Errorf("%q: status %d\n%s%s", args, status, out, stderr)
		}
	}
	t.Setenv("HOLDFAST_TOKEN", "")
	if status, out, stderr := here(t, "", "query", "--url", address, "select 1"); status != exitError ||
		!strings.Contains(stderr, "give it by --token") {
		t.Error(status, out, stderr)
	}
	_, asker, _ := here(t, "", append([]string{"token", "create", "--role=query"}, where...)...)
	if status, out, stderr := here(t, "", "query", address, "select 1 as a", "--format=csv", "--token",
		strings.TrimSpace(asker)); status != exitOK || out != "a\n1\n" {
		t.Error(status, out, stderr)
	}
}

// TestQueryPrompt: statements come from the standard input, on several lines each. The first that is wrong ends it.
func TestQueryPrompt(t *testing.T) {
	dir := queryDir(t, "logtree")
	in := ".schema queues\nselect count(*)\n  from messages;\n\nselect 'a;b';select 1"
	status, out, stderr := here(t, in, "query", dir, "--format", "csv")
	if want := "count(*)\n6\n"; status != exitError || !strings.Contains(out, want) ||
		!strings.HasPrefix(out, "CREATE TABLE queues") || !strings.Contains(stderr, "more than one statement") {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
	status, out, stderr = here(t, "select 1 as a; \nselect 2 as b -- the last", "query", dir, "--format", "json")
	if status != exitOK || out != "{\"a\":1}\n{\"b\":2}\n" {
		t.Errorf("status %d\n%s%s", status, out, stderr)
	}
}

// TestExportCommand: what is exported is what a query shows, and no file is overwritten.
func TestExportCommand(t *testing.T) {
	dir := queryDir(t, "logtree")
	file := filepath.Join(t.TempDir(), "all.db")
	if status, _, stderr := here(t, "", "export", dir, "--sqlite", file); status != exitOK {
		t.Fatal(status, stderr)
	}
	db, err := sql.Open("sqlite", file) // another library than that which wrote it
	try(t, err)
	defer db.Close()
	var messages, tasks int
	var total string
	try(t, db.QueryRow("select (select count(*) from messages), (select count(*) from tasks), "+
		"(select data ->> 'n' from messages where stream = 'order-1' and position = 2)").Scan(&messages, &tasks, &total))
	if messages != 6 || tasks != 1 || total != "5" {
		t.Error(messages, tasks, total)
	}
	if status, _, stderr := here(t, "", "export", dir, "--sqlite", file); status != exitError ||
		!strings.Contains(stderr, "name a new file") {
		t.Error(status, stderr)
	}
}
