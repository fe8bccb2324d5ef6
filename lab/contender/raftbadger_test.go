package contender

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast/internal/testkit"
)

// TestRaftBadgerCollects: the value log of a log whose front is deleted keeps what was deleted, until it is collected.
// The entries that are left are there then.
func TestRaftBadgerCollects(t *testing.T) {
	const keep, rounds, batch = 1000, 30, 500
	dir := t.TempDir()
	e := open(t, RaftBadgers()[0], dir)
	s := e.(RaftEngine).RaftStore().(*raftBadger)
	extensions := make([]byte, 8<<10)
	for n := range uint64(rounds) {
		var logs []*raft.Log
		for i := range uint64(batch) {
			log := entry(n*batch + i + 1)
			log.Extensions = extensions
			logs = append(logs, log)
		}
		if err := s.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func() {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = open(t, RaftBadgers()[0], dir)
		s = e.(RaftEngine).RaftStore().(*raftBadger)
	}
	reopen()
	const last = rounds * batch
	if err := s.DeleteRange(1, last-keep); err != nil {
		t.Fatal(err)
	}
	files := func() int {
		list, err := filepath.Glob(filepath.Join(dir, "data", "*.vlog"))
		if err != nil {
			t.Fatal(err)
		}

		return len(list)
	}
	before := files()

	// The library learns of garbage in compactions of what was flushed, and closing flushes.
	reopen()
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	// The library compacts on its own, too, and Flatten does not wait for that.
	testkit.Until(t, "files that are collected", func() bool {
		if err := errors.Join(s.db.Flatten(1), s.collect()); err != nil {
			t.Fatal(err)
		}

		return before >= 4 && files() <= before-2
	})
	if first, err := s.FirstIndex(); err != nil || first != last-keep+1 {
		t.Errorf("the log begins with %d, %v", first, err)
	}
	for index := uint64(last - keep + 1); index <= last; index++ {
		var log raft.Log
		if err := s.GetLog(index, &log); err != nil || string(log.Data) != string(entry(index).Data) ||
			len(log.Extensions) != len(extensions) {
			t.Fatalf("entry %d: %v", index, err)
		}
	}
}
