package keyspace_test

import (
	"bytes"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
)

// The keys of stores whose names begin alike, or end like a table, do not mix.
func TestWalk(t *testing.T) {
	e, err := mem.Open("", holdfast.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	names := []string{"", "n", "na", "nam", "\x00", "n\x01", "\xff"}
	var b holdfast.Batch
	for _, letter := range []byte{'d', 'e', 'f'} {
		b.Set([]byte{letter}, nil)      // no store's
		b.Set([]byte{letter, 200}, nil) // nor this
	}
	for _, kind := range []keyspace.Kind{keyspace.Events, keyspace.Messages} {
		for _, name := range names {
			p := keyspace.New(kind, name)
			b.Set(p.Key(nil, 'a', "rest"), []byte(name))
			b.Set(p.Numbered(nil, 'b', 258), []byte(name))
		}
	}
	if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	at := ""
	err = keyspace.Walk(e, keyspace.Events, func(name string) {
		if _, again := seen[name]; again {
			t.Errorf("store %q begins twice", name)
		}
		at, seen[name] = name, 0
	}, func(table byte, rest, key, value []byte) {
		seen[at]++
		p := keyspace.New(keyspace.Events, at)
		n, numbered := p.Number(key)
		switch {
		case string(value) != at:
			t.Errorf("%q holds %q in store %q", key, value, at)
		case table == 'a' && (string(rest) != "rest" || numbered), table == 'b' && (n != 258 || !numbered):
			t.Errorf("%q in store %q: table %c, %q, number %d", key, at, table, rest, n)
		case !bytes.Equal(p.Rest(key), rest):
			t.Errorf("%q goes on with %q, and with %q", key, p.Rest(key), rest)
		}
	})
	if err != nil || len(seen) != len(names) {
		t.Fatal(seen, err)
	}
	for name, keys := range seen {
		if keys != 2 {
			t.Errorf("store %q has %d keys", name, keys)
		}
	}
}
