package raftlog_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// repaired is an engine in which a loss was accepted.
type repaired struct{ holdfast.Engine }

func (r *repaired) Capabilities() holdfast.Capabilities {
	c := r.Engine.Capabilities()
	c.Accepted = "a loss"
	return c
}

// A store that may have lost a vote does not open, whatever key is lost or none; one that is made after the loss does.
func TestAccepted(t *testing.T) {
	var keys [][]byte
	fill := func() holdfast.Engine {
		eng := mem.New()
		s := openStore(t, eng, inMemory)
		try(t, s.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}))
		try(t, s.SetUint64([]byte("CurrentTerm"), 7))
		closeStore(t, s)
		return eng
	}
	it := fill().Scan(holdfast.Range{})
	for it.Next() {
		keys = append(keys, append([]byte{}, it.Key()...))
	}
	try(t, it.Close())
	if len(keys) < 4 {
		t.Fatalf("%d keys", len(keys))
	}
	for _, lost := range append(keys, nil) {
		eng := fill()
		if lost != nil {
			var b holdfast.Batch
			b.Delete(lost)
			try(t, holdfast.Commit(eng, &b, holdfast.Memory))
		}
		for range 2 {
			_, err := raftlog.Open(&repaired{eng}, inMemory)
			wantError(t, err, holdfast.ErrCorrupt)
			if !strings.Contains(err.Error(), "the others of its cluster") {
				t.Error(err)
			}
		}
	}
	eng := &repaired{mem.New()}
	for range 2 {
		s := openStore(t, eng, inMemory)
		try(t, s.SetUint64([]byte("CurrentTerm"), 7))
		closeStore(t, s)
	}
}
