package contender

import (
	"encoding/binary"
	"errors"
	"os"
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
	const last = rounds * batch
	if err := s.DeleteRange(1, last-keep); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()

	// The library learns of garbage in compactions, which come when memtables are full: stable keys fill them.
	small := make([]byte, badgerThreshold-1)
	testkit.Until(t, "the end of the oldest file", func() bool {
		b := s.db.NewWriteBatch()
		defer b.Cancel()
		for i := range uint64(badgerMemTable / len(small)) {
			key := binary.BigEndian.AppendUint64([]byte{badgerStable}, i)
			if err := errors.Join(b.Set(key, small), b.Delete(badgerKey(i%(last-keep)+1))); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(b.Flush(), s.collect()); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(filepath.Join(dir, "data", "000001.vlog"))

		return errors.Is(err, os.ErrNotExist)
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
