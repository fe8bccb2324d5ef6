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
	if status != exitError || !strings.Contains(stderr, "--url") {
		t.Errorf("status %d: %s", status, stderr)
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
