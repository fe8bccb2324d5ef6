package raftlog_test

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/storetest"
	"github.com/holdfastdb/holdfast/store/raftlog"
)

// TestOpenOnFullDisk: where there is no room, a store is opened for reading.
func TestOpenOnFullDisk(t *testing.T) {
	disk := storetest.NewDisk(t)
	s := openStore(t, disk.Engine, raftlog.Options{})
	store(t, s, entries(1, 3, 1)...)
	set(t, s, "vote", "a")
	for range 2 {
		disk.Restart(true)
		_, err := raftlog.Open(disk.Engine, raftlog.Options{Name: "new"})
		wantError(t, err, holdfast.ErrFull)
		s = openStore(t, disk.Engine, raftlog.Options{})
		wantLog(t, s, entries(1, 3, 1)...)
		wantStable(t, s, "vote", "a")
		wantError(t, s.StoreLog(entry(4, 1)), holdfast.ErrFull)
		wantError(t, s.Set([]byte("vote"), []byte("b")), holdfast.ErrFull)
	}
	disk.MakeRoom()
	store(t, s, entry(4, 1))
	set(t, s, "vote", "b")
	disk.Restart(false)
	s = openStore(t, disk.Engine, raftlog.Options{})
	wantLog(t, s, entries(1, 4, 1)...)
	wantStable(t, s, "vote", "b")
	closeStore(t, s)
}
