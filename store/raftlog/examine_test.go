package raftlog_test

import (
	"reflect"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

// TestExamine: entries that are taken out of a store are found missing, what is damaged is named, and what was
// deleted counts for nothing.
func TestExamine(t *testing.T) {
	eng := mem.New()
	s, err := raftlog.Open(eng, raftlog.Options{Name: "node", Level: holdfast.Memory})
	try(t, err)
	for i := uint64(1); i <= 20; i++ {
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: []byte("data")}); err != nil {
			t.Fatal(err)
		}
	}
	try(t, s.SetUint64([]byte("CurrentTerm"), 1))
	try(t, s.DeleteRange(1, 3))
	try(t, s.Close())
	examined := func(want raftlog.Report) {
		t.Helper()
		got, err := raftlog.Examine(eng)
		if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("\n got %+v, %v\nwant %+v", got, err, want)
		}
	}
	examined(raftlog.Report{Name: "node", First: 4, Last: 20, Entries: 17, Stable: 1})
	keys := format.NewPrefix("node")
	var b holdfast.Batch
	b.Delete(keys.Log(nil, 4))
	b.DeleteRange(keys.Log(nil, 9), keys.Log(nil, 12))
	b.Set(keys.Log(nil, 6), []byte("damaged"))
	b.Set(keys.Stable(nil, []byte("CurrentTerm")), []byte("damaged"))
	dead := format.Span{Lo: 14, Hi: 16}
	meta := format.Meta{Entries: true, First: 4, Dead: []format.Span{dead}}
	b.Set(keys.Meta(), format.AppendMeta(nil, keys.Meta(), meta))
	try(t, holdfast.Commit(eng, &b, holdfast.Memory))
	want := raftlog.Report{Name: "node", First: 5, Last: 20, Entries: 10, Stable: 1,
		Gaps:    []raftlog.Missing{{4, 4}, {9, 11}, {14, 16}},
		Damaged: []string{`entry 6 of raft store "node"`, `stable value "CurrentTerm" of raft store "node"`}}
	examined(want)
	b.Reset()
	b.Delete(keys.Meta())
	try(t, holdfast.Commit(eng, &b, holdfast.Memory))
	want.Undescribed, want.Entries, want.Gaps = true, 13, want.Gaps[1:2]
	examined(want)
}
