package keyspace_test

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task"
)

func TestReserved(t *testing.T) {
	const none, server = "", "the server or projections"
	for _, test := range []struct{ lo, hi, want string }{
		{"", "", "databases"},
		{"a", "e", none}, {"a", "e\x00", none}, {"a", "e\x00\x00", "logs of events"}, {"f", "k", none},
		{"k", "l", "databases"},
		{"keys/", "keys0", none},
		{"e", "f", "logs of events"}, {"email/", "email0", "logs of events"}, {"e\x80x", "e\x81", "logs of events"},
		{"e\x81", "f", none}, {"m", "n", "message stores"}, {"mail/", "mail0", "message stores"}, {"m\x81", "n", none},
		{"m@", "m@\x00", "message stores"}, {"p", "q", none},
		{"p/", "p0", none}, {"r", "s", "Raft stores"}, {"read/", "read0", "Raft stores"}, {"s", "t", server},
		{"s\x00t", "s\x00u", server}, {"sent/", "sent0", none}, {"t", "u", "task stores"},
		{"t\x00t", "t\x00u", "task stores"}, {"t\x04main", "t\x04maio", "task stores"}, {"totals/", "totals0", none},
		{"u", "", none}, {"n", "z", "Raft stores"}, {"\xff", "", none},
	} {
		r := holdfast.Range{Lo: []byte(test.lo), Hi: []byte(test.hi)}
		if got := keyspace.Reserved(r); got != test.want {
			t.Errorf("from %q to %q: %q, want %q", test.lo, test.hi, got, test.want)
		}
	}
	for key, want := range map[string]string{
		"": none, "t": none, "t\x00": "task stores", "t\x00t": "task stores", "t\x03ab": none, "t\x03abc": "task stores",
		"s\x00tID": server, "sent/1": none, "email/7": none, "em" + strings.Repeat("x", 109): "logs of events",
		"r\x00lx": "Raft stores", "read/7": none, "m\x02abs": "message stores", "p": none, "own/1": none,
	} {
		if got := keyspace.ReservedKey([]byte(key)); got != want {
			t.Errorf("key %q: %q, want %q", key, got, want)
		}
	}
}

// Every key that any store writes is reserved, and so is every prefix of it, and no operation of a program is taken on
// it, by any store.
func TestEveryStore(t *testing.T) {
	ctx := context.Background()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	e := mem.New()
	defer e.Close()
	const level = holdfast.Memory
	log, err := event.Open(kv.On(e), event.Options{Name: "log", Level: level})
	check(err)
	defer log.Close()
	_, err = log.Append(ctx, event.Event{ID: "x", Type: "t"})
	check(err)
	check(log.SaveOffset(ctx, "sub", 1))
	messages, err := message.Open(kv.On(e), message.Options{Level: level, RetainEvery: -1})
	check(err)
	defer messages.Close()
	n, err := messages.Namespace(ctx, message.Default)
	check(err)
	_, err = n.Write(ctx, "a-1", message.Message{Type: "t", Data: []byte("{}")})
	check(err)
	tasks, err := task.Open(kv.On(e), task.Options{Level: level})
	check(err)
	defer tasks.Close()
	_, err = tasks.Enqueue(ctx, task.Spec{Kind: "k", ID: "id"})
	check(err)
	p, err := projection.New(projection.Events(log), projection.Options{Name: "p", Prefix: "own/"},
		func(m *projection.Model, _ event.Event) error { m.Set("n", nil); return nil })
	check(err)
	check(p.CatchUp(ctx))

	var keys [][]byte
	it := e.Scan(holdfast.Range{})
	for it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	check(it.Close())
	letters := map[byte]bool{}
	for _, key := range keys {
		if bytes.HasPrefix(key, []byte("own/")) {
			continue
		}
		letters[key[0]] = true
		if keyspace.ReservedKey(key) == "" {
			t.Errorf("key %q of a store is not reserved", key)
		}
		for i := range len(key) + 1 {
			if keyspace.Reserved(holdfast.Prefix(key[:i])) == "" {
				t.Errorf("prefix %q of a store's keys is not reserved", key[:i])
			}
			if i > 0 {
				_, err := projection.New(projection.Events(log), projection.Options{Name: "q", Prefix: string(key[:i])},
					func(*projection.Model, event.Event) error { return nil })
				if !errors.Is(err, holdfast.ErrBadOption) {
					t.Errorf("a projection with the prefix %q: %v", key[:i], err)
				}
			}
		}
		for name, fill := range map[string]func(b *holdfast.Batch){
			"set":          func(b *holdfast.Batch) { b.Set(key, nil) },
			"delete":       func(b *holdfast.Batch) { b.Delete(key) },
			"delete range": func(b *holdfast.Batch) { b.DeleteRange(key, append(bytes.Clone(key), 0)) },
			"delete all":   func(b *holdfast.Batch) { b.DeleteRange(nil, nil) },
		} {
			var batch holdfast.Batch
			fill(&batch)
			if err := log.SaveOffsetFor(ctx, keyspace.Server, "sub", 1, &batch); !errors.Is(err, holdfast.ErrBadKey) {
				t.Errorf("a model with a %s of %q: %v", name, key, err)
			}
		}
	}
	if len(letters) != 4 { // all but that of the Raft store, which its own tests open
		t.Errorf("stores have written keys that begin with %v", letters)
	}
}

// Keys that are written out somewhere, and not made with New, are reserved too.
func TestLiterals(t *testing.T) {
	found := 0
	look := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil || len(text) < 2 || text[0] < 'a' || text[0] > 'z' || text[1] >= ' ' || text[1] == '\n' {
				return true
			}
			found++
			if keyspace.ReservedKey([]byte(text+strings.Repeat("x", int(text[1])))) == "" {
				t.Errorf("%s: keys that begin with %q are of a kind that is not in the table", path, text)
			}
			return true
		})
		return nil
	}
	for _, dir := range []string{"store", "server", "cmd", "client", "examples"} {
		if err := filepath.WalkDir(filepath.Join("../..", dir), look); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	if found < 3 {
		t.Fatal(found)
	}
}
