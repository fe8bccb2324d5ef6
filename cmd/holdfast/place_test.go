package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/task"
)

// served starts a server in a process, and returns the arguments with which commands find it.
func serving(t *testing.T) (where []string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	token := "ns_ZGVmYXVsdA_" + strings.Repeat("0123456789abcdef", 4)
	cmd := holdfastCommand(t, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--level", "process")
	cmd.Env = append(cmd.Env, "HOLDFAST_TOKEN="+token)
	cmd.Stderr = io.Discard
	out, err := cmd.StdoutPipe()
	try(t, err)
	try(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for in := bufio.NewScanner(out); in.Scan(); {
		if address := regexp.MustCompile(`http://[0-9.:]+`).FindString(in.Text()); address != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return []string{"--url", address, "--token", token}
		}
	}
	t.Fatal("the server has not told its address")
	return nil
}

// plain takes out of an output what is different each time.
func plain(text string) string {
	for pattern, word := range map[string]string{
		`\d{4}-\d\d-\d\d[T ][0-9:.]+Z`:          "TIME",
		`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}`: "UUID",
		`(hf_|ns_)[0-9A-Za-z]+_[0-9a-f]{64}`:    "SECRET",
		`"id": "[0-9a-f]{16}"`:                  "ID",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, word)
	}
	return text
}

// TestPlaces: the commands about data do the same on a server and on a directory.
func TestPlaces(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	e, err := logtree.Open(dir, holdfast.Options{})
	try(t, err)
	try(t, e.Close())
	file := filepath.Join(t.TempDir(), "exported")
	places := map[string][]string{"server": serving(t), "directory": {"--dir", dir}}
	for _, c := range []struct {
		args, in string
		status   int
		want     string
		errs     string // if all went well
	}{
		{args: "event list", errs: "holdfast: nothing found\n"},
		{args: "event append orders a b --type placed", want: "positions 1 to 2\n"},
		{args: "event append orders", in: "c\n\nd \"e\"\n", want: "positions 3 to 4\n"},
		{args: "event append orders x --after 2", status: 1},
		{args: "event append orders", status: 1},
		{args: "event cat orders --limit -1", status: 1},
		{args: "task list --limit -1", status: 1},
		{args: "event cat orders", want: "1  TIME  placed  a\n2  TIME  placed  b\n3  TIME  -  c\n4  TIME  -  d \"e\"\n"},
		{args: "event cat orders --from 2 --limit 1 --json",
			want: `{"position":2,"time":"TIME","type":"placed","id":"UUID","data":"Yg=="}` + "\n"},
		{args: "event cat none", status: 1},
		{args: "event export orders -o FILE", want: "4 events in FILE\n"},
		{args: "event export orders -o FILE", status: 1},
		{args: "event import copy FILE", want: "4 events imported, 0 were there\n"},
		{args: "event import copy FILE", want: "0 events imported, 4 were there\n"},
		{args: "event import copy", in: "{}\n", status: 1},
		{args: "event import copy --renew", in: "{}\nnonsense\n", status: 1},
		{args: "event truncate copy --before 3 --json", want: "{\n  \"removed\": 2\n}\n"},
		{args: "event list", want: "  log     first  last  subscription  at  behind\n" +
			"  copy        3     5  -              -       -\n  orders      1     4  -              -       -\n"},
		{args: "message write order-1 Placed {\"a\":1} --expected -1", want: "position 0 in order-1, global 1\n"},
		{args: "message write order-1 Placed {\"a\":1} --expected -1", status: 1},
		{args: "message write order-1 Paid - --level process", in: `{"b":"<"}`, want: "position 1 in order-1, global 2\n"},
		{args: "message write order-1 Paid {", status: 1},
		{args: "message cat order-1",
			want: "1  TIME  order-1 0  Placed  {\"a\":1}\n2  TIME  order-1 1  Paid  {\"b\":\"<\"}\n"},
		{args: "message cat --category order --type Paid --json", want: `{"id":"UUID","stream":"order-1","position":1,` +
			`"global":2,"type":"Paid","data":{"b":"<"},"time":"TIME"}` + "\n"},
		{args: "message streams", want: "  stream   version  last written\n  order-1        1  TIME\n"},
		{args: "message categories --json",
			want: "[\n  {\n    \"category\": \"order\",\n    \"messages\": 2,\n    \"streams\": 1\n  }\n]\n"},
		{args: "message streams nothing --json", want: "[]\n"},
		{args: "message truncate order-1 --before 1", want: "1 messages removed\n"},
		{args: "message delete order-1 --end", want: "1 messages removed\n"},
		{args: "message write order-1 Placed", status: 1},
		{args: "task enqueue mail hello --id one --queue mail --max-attempts 1", want: "one\n"},
		{args: "task enqueue mail --id one", status: 1},
		{args: "task enqueue mail --delay 2h --unique u", want: "UUID\n"},
		{args: "task pause mail", want: "queue \"mail\" is paused\n"},
		{args: "task list --queue mail", want: "  id   queue  kind  state    attempts  due                   worker\n" +
			"  one  mail   mail  waiting  0 of 1    TIME  -\n"},
		{args: "task queues", want: "  queue    waiting  scheduled  blocked  running  completed  cancelled  dead  paused\n" +
			"  default        0          1        0        0          0          0     0  no\n" +
			"  mail           1          0        0        0          0          0     0  yes\n"},
		{args: "task show one", want: "id        one\nqueue     mail\nkind      mail\nstate     waiting\nattempts  0 of 1\n" +
			"created   TIME\ndue       TIME\npayload   hello\n"},
		{args: "task cancel one", want: "1 cancelled\n"},
		{args: "task retry one", want: "1 run again\n"},
		{args: "task retry", status: 1},
		{args: "task retry --queue mail --json", want: "{\n  \"count\": 0\n}\n"},
		{args: "task delete one", want: "1 removed\n"},
		{args: "task resume mail", want: "queue \"mail\" goes on\n"},
		{args: "task dead", errs: "holdfast: nothing found\n"},
		{args: "task list --state dead", errs: "holdfast: nothing found\n"},
		{args: "task list --state dead --json"},
		{args: "task periodic", errs: "holdfast: nothing found\n"},
		{args: "task periodic --json", want: "[]\n"},
		{args: "token list", errs: "holdfast: nothing found\n"},
		{args: "token list --json", want: "[]\n"},
		{args: "namespace create shop --description none", want: "SECRET\n"},
		{args: "message write a-1 T -n shop", want: "position 0 in a-1, global 1\n"},
		{args: "namespace delete shop", status: 1},
		{args: "namespace delete shop --yes", want: "1 messages removed\n"},
		{args: "message cat -n shop", status: 1},
		{args: "token create --role read --description page", want: "SECRET\n"},
		{args: "token create --role god", status: 1},
		{args: "token revoke nothing", status: 1},
		{args: "event append bytes \xff,\xfe", want: "positions 1 to 1\n"}, // bytes that are no text stay as they are
		{args: "event cat bytes --json", want: `{"position":1,"time":"TIME","id":"UUID","data":"/yz+"}` + "\n"},
		{args: "event append bytes x --type \xff", status: 1},
		{args: "event delete copy", want: "log \"copy\" deleted\n"},
	} {
		for name, where := range places {
			args := append(strings.Fields(strings.ReplaceAll(c.args, "FILE", file+name)), where...)
			status, out, errs := here(t, c.in, args...)
			out = plain(strings.ReplaceAll(out, file+name, "FILE"))
			if status != c.status || (out != c.want || errs != c.errs) && c.status == 0 ||
				c.status != 0 && !strings.HasPrefix(errs, "holdfast: ") || strings.Count(errs, "\n") > 1 {
				t.Errorf("%s: %s: status %d\n%s%s want\n%s", name, c.args, status, out, errs, c.want)
			}
		}
	}
}

// TestPlaceUnknown: without a place, or with two, the command says what to do; a server that is not there is an error.
func TestPlaceUnknown(t *testing.T) {
	for args, want := range map[string]string{
		"event list": "name a server with --url or HOLDFAST_URL",
		"event list --url http://127.0.0.1:1 --dir x": "give one of them", "ready http://127.0.0.1:1": "refused",
		"nodes --url http://127.0.0.1:1": "refused", "nodes --json --url http://127.0.0.1:1": "refused",
		"event list --url nonsense": "http://HOST:PORT", "event list --dir nothing": "no such file",
		"task list --state nonsense --dir x": "waiting",
	} {
		status, out, errs := here(t, "", strings.Fields(args)...)
		if status != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: status %d, %q, %q", args, status, out, errs)
		}
	}
}

// TestImportOfADirectory: what is wrong with the file is told, and not that a server has more in its log.
func TestImportOfADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	e, err := logtree.Open(dir, holdfast.Options{})
	try(t, err)
	try(t, e.Close())
	for _, args := range []string{"event import log", "event import --renew log", "message import"} {
		status, _, errs := here(t, "", append(strings.Fields(args), dir, "--dir", dir)...)
		if status != 1 || !strings.Contains(errs, dir+" is a directory; name a file") {
			t.Errorf("%s: status %d, %q", args, status, errs)
		}
	}
}

// TestTail: a tail shows what is written after it has begun, on a server, and ends with an interrupt.
func TestTail(t *testing.T) {
	where := serving(t)
	run := func(args ...string) {
		t.Helper()
		if status, _, errs := here(t, "", append(args, where...)...); status != 0 {
			t.Fatalf("%q: %s", args, errs)
		}
	}
	run("message", "write", "a-1", "T")
	run("message", "write", "a-1", "T")
	if status, out, errs := here(t, "", "ready", where[1]); status != exitOK || out != "ready\n" {
		t.Errorf("ready: status %d, %q, %s", status, out, errs)
	}
	cmd := holdfastCommand(t, append([]string{"message", "tail", "--last", "1", "--json"}, where...)...)
	out, err := cmd.StdoutPipe()
	try(t, err)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	try(t, cmd.Start())
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	in := bufio.NewScanner(out)
	for at := int64(2); at < 4; at++ {
		var m api.Message
		if !in.Scan() || json.Unmarshal(in.Bytes(), &m) != nil || m.Global != at {
			t.Fatalf("%q at %d, %s", in.Text(), at, errs.String())
		}
		if at == 2 { // it is there: what comes now is new
			run("message", "write", "b-1", "T")
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil { // as on Windows
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return
	}
	_, _ = io.Copy(io.Discard, out)
	err = cmd.Wait()
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != exitInterrupted {
		t.Errorf("%v, %s", err, errs.String())
	}
}

// TestInspectStores: inspect tells what is in the stores of a directory, and neither it nor the commands that only read
// change a byte of it.
func TestInspectStores(t *testing.T) {
	for _, engine := range []string{"logtree", "bbolt"} {
		t.Run(engine, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			fill(t, engine, dir)
			before := contents(t, dir)
			status, out, errs := here(t, "", "inspect", dir, "--json")
			var in inspection
			if err := json.Unmarshal([]byte(out), &in); status != 0 || err != nil || in.Stores == nil {
				t.Fatalf("status %d, %v\n%s%s", status, err, out, errs)
			}
			f := in.Stores
			if len(f.Logs) != 2 || f.Logs[1].Name != "orders" || f.Logs[1].Last != 3 || len(f.Logs[1].Subscriptions) != 1 ||
				f.Logs[1].Subscriptions[0] != (api.Subscriber{Name: "mails", Position: 1, Lag: 2}) {
				t.Errorf("logs: %+v", f.Logs)
			}
			if len(f.Messages) != 1 || len(f.Messages[0].Namespaces) != 2 {
				t.Fatalf("messages: %+v", f.Messages)
			}
			n := f.Messages[0].Namespaces[1]
			if n.ID != "shop" || n.Messages != 2 || n.Streams != 2 || n.Last != 2 || n.Categories != 1 ||
				len(n.Subscriptions) != 1 || n.Subscriptions[0].Name != "work" || n.Subscriptions[0].Behind != 2 {
				t.Errorf("namespace: %+v", n)
			}
			if len(f.Tasks) != 2 || f.Tasks[0].Store != "" || len(f.Tasks[0].Queues) != 1 ||
				f.Tasks[0].Queues[0].Counts["waiting"] != 2 || f.Tasks[1].Store != "shop" {
				t.Errorf("tasks: %+v", f.Tasks)
			}
			if len(f.Databases) != 2 || f.Databases[1].Database != "other" || len(f.Databases[0].Buckets) != 26 ||
				f.Databases[0].Buckets[0] != `"\x00"` || f.Databases[0].Buckets[1] != "table-0" {
				t.Errorf("databases: %+v", f.Databases)
			}
			if len(f.Raft) != 1 || f.Raft[0].Last != 1 {
				t.Errorf("raft: %+v", f.Raft)
			}
			status, out, errs = here(t, "", "inspect", dir)
			for _, want := range []string{"orders", "mails", "shop", "work", "mail", "raft store", "table-10", "and 6 more"} {
				if !strings.Contains(out, want) || status != 0 {
					t.Errorf("status %d, no %q in\n%s%s", status, want, out, errs)
				}
			}
			for _, args := range []string{"event list", "event cat orders", "message cat -n shop",
				"message subscriptions -n shop",
				"task list", "token list", "namespace list"} {
				status, out, errs := here(t, "", append(strings.Fields(args), "--dir", dir)...)
				if status != 0 || out == "" && args != "token list" || strings.HasPrefix(args, "message sub") &&
					!strings.Contains(out, "(not known)") {
					t.Errorf("%s: status %d, %q, %s", args, status, out, errs)
				}
			}
			// What keeps the stores' changes in memory meanwhile is not the engine.
			for args, want := range map[string]string{
				"task show nothing":            "task get: not found",
				"task list --queue mail -n x":  "message namespace: no such namespace",
				"event cat orders --from 100":  "event read: ahead of the log",
				"message cat -n shop --from 9": "event read: ahead of the log",
			} {
				status, _, errs := here(t, "", append(strings.Fields(args), "--dir", dir)...)
				if status != 1 || !strings.HasPrefix(errs, "holdfast: "+engine+" "+want) {
					t.Errorf("%s: status %d, %s", args, status, errs)
				}
			}
			if status, _, errs := here(t, "", "event", "tail", "orders", "--dir", dir); status != 1 {
				t.Errorf("tail: status %d, %s", status, errs)
			}
			if after := contents(t, dir); !maps.Equal(before, after) {
				t.Error("reading has changed the directory")
			}
			held, err := all.OpenDir("", dir, holdfast.Options{})
			try(t, err)
			status, out, _ = here(t, "", "inspect", dir)
			if status != 0 || !strings.Contains(out, "open elsewhere: only that program") {
				t.Errorf("open elsewhere: status %d\n%s", status, out)
			}
			status, _, errs = here(t, "", "event", "list", "--dir", dir)
			if status != 1 || !strings.Contains(errs, "in use") {
				t.Errorf("open elsewhere: status %d, %s", status, errs)
			}
			try(t, held.Close())
		})
	}
}

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	try(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		try(t, err)
		files[e.Name()] = string(b)
	}
	return files
}

// fill makes a directory with a store of each kind.
func fill(t *testing.T, engine, dir string) {
	t.Helper()
	ctx := context.Background()
	e, err := all.Open(engine, dir, holdfast.Options{})
	try(t, err)
	for _, name := range []string{"", "orders"} {
		l, err := event.Open(kv.On(e), event.Options{Name: name})
		try(t, err)
		_, err = l.Append(ctx, event.Event{Type: "a"}, event.Event{}, event.Event{})
		try(t, err)
		try(t, l.SaveOffset(ctx, "mails", 1))
		try(t, l.Close())
	}
	m, err := message.Open(kv.On(e), message.Options{})
	try(t, err)
	_, err = m.Create(ctx, message.NamespaceOptions{ID: "shop"})
	try(t, err)
	n, err := m.Namespace(ctx, "shop")
	try(t, err)
	for _, stream := range []string{"a-1", "a-2"} {
		_, err = n.Write(ctx, stream, message.Message{Type: "T", Data: []byte(`{}`)})
		try(t, err)
	}
	work, err := n.Subscribe(ctx, "work", message.SubscriptionOptions{})
	try(t, err)
	try(t, work.Close())
	try(t, m.Close())
	for _, name := range []string{"", "shop"} {
		k, err := task.Open(kv.On(e), task.Options{Name: name})
		try(t, err)
		_, err = k.Enqueue(ctx, task.Spec{Kind: "k", Queue: "mail"}, task.Spec{Kind: "k", Queue: "mail"})
		try(t, err)
		try(t, k.Close())
	}
	for _, name := range []string{"", "other"} {
		db, err := kv.Open(e, kv.Options{Name: name})
		try(t, err)
		try(t, db.Update(ctx, func(tx *kv.Tx) error {
			for n := range 25 {
				_ = tx.Bucket(fmt.Sprint("table-", n), "within").Put([]byte("k"), nil)
			}
			return tx.Bucket("\x00").Put([]byte("k"), nil)
		}))
	}
	r, err := raftlog.Open(e, raftlog.Options{Name: "node"})
	try(t, err)
	try(t, r.StoreLog(&raft.Log{Index: 1, Term: 1, Data: []byte("x")}))
	try(t, r.Close())
	try(t, e.Close())
}
