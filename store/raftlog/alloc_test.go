package raftlog_test

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// TestAllocations: storing allocates nothing, however many entries there are; getting allocates what
// the caller keeps; the indexes cost nothing.
func TestAllocations(t *testing.T) {
	if storetest.Race {
		t.Skip("the race detector makes sync.Pool forget")
	}
	s := openStore(t, storetest.Nothing(), inMemory)
	next := uint64(1)
	measure := func(name string, most float64, f func() error) {
		t.Helper()
		var err error
		if got := storetest.Allocations(200, func() {
			if e := f(); e != nil {
				err = e
			}
		}); err != nil || got > most {
			t.Errorf("%s: %v allocations, want at most %v; %v", name, got, most, err)
		}
	}
	one, many := batchOf(0, 1), batchOf(0, 128)
	measure("StoreLog", 0, func() error {
		one[0].Index, next = next, next+1
		return s.StoreLog(one[0])
	})
	measure("StoreLogs", 0, func() error {
		for _, log := range many {
			log.Index, next = next, next+1
		}
		return s.StoreLogs(many)
	})
	measure("StoreLogs with a commit index", 0, func() error {
		one[0].Index, next = next, next+1
		if err := s.StageCommitIndex(next - 1); err != nil {
			return err
		}
		return s.StoreLogs(one)
	})
	measure("LastIndex", 0, func() error { _, err := s.LastIndex(); return err })
	measure("FirstIndex", 0, func() error { _, err := s.FirstIndex(); return err })
	closeStore(t, s)

	s = memStore(t, raftlog.Options{})
	store(t, s, entries(1, 100, 1)...)
	try(t, s.SetUint64([]byte("CurrentTerm"), 7))
	var log raft.Log
	key := []byte("CurrentTerm")
	measure("GetLog", 1, func() error { return s.GetLog(66, &log) }) // with extensions
	if len(log.Extensions) == 0 || cap(log.Extensions) != len(log.Extensions) || cap(log.Data) != len(log.Data) {
		t.Errorf("%+v has room to grow", log)
	}
	measure("GetLog of none", 0, func() error {
		if err := s.GetLog(1000, &log); err != raft.ErrLogNotFound {
			return err
		}
		return nil
	})
	measure("Get", 1, func() error { _, err := s.Get(key); return err })
	measure("GetUint64", 0, func() error { _, err := s.GetUint64(key); return err })
}
