package raftlog_test

import (
	"bytes"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/keyspace"
)

// All keys of a store are kept from programs that name keys in the commits of other stores.
func TestKeysAreReserved(t *testing.T) {
	e := mem.New()
	s := openStore(t, e, inMemory)
	try(t, s.StoreLog(entry(1, 1)))
	try(t, s.Set([]byte("k"), []byte("v")))
	it := e.Scan(holdfast.Range{})
	defer it.Close()
	keys := 0
	for ; it.Next(); keys++ {
		key := bytes.Clone(it.Key())
		for i := range len(key) + 1 {
			if keyspace.Reserved(holdfast.Prefix(key[:i])) == "" {
				t.Errorf("the prefix %q is not reserved", key[:i])
			}
		}
		if keyspace.ReservedKey(key) == "" {
			t.Errorf("the key %q is not reserved", key)
		}
	}
	if keys < 3 {
		t.Fatal(keys)
	}
	closeStore(t, s)
}
