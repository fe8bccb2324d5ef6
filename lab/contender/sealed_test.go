package contender

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
)

// copyingMeta keeps a copy of the whole directory as it is when the first transaction begins: what a process leaves
// that is killed then.
type copyingMeta struct {
	metadb.BoltMetaDB
	dir    string
	copies []string
	make   func() string // the copy's directory; nil to make none
}

func (m *copyingMeta) CommitState(s types.PersistentState) error {
	if m.make != nil && len(m.copies) == 0 {
		to := m.make()
		if err := os.CopyFS(to, os.DirFS(m.dir)); err != nil {
			return err
		}
		m.copies = append(m.copies, to)
	}
	return m.BoltMetaDB.CommitState(s)
}

// TestRaftWALSealed shows docs/findings/raft-wal.md: a kill between the write that seals a file and the transaction
// that notes it leaves a log that keeps what it had acknowledged and takes nothing more. Should this fail with a newer
// raft-wal, the finding is out of date.
func TestRaftWALSealed(t *testing.T) {
	const last = 20
	big := func(index uint64) *raft.Log {
		l := entry(index)
		l.Data = make([]byte, 3000)
		return l
	}
	for name, seal := range map[string]func(w *wal.WAL) error{
		"a suffix is deleted": func(w *wal.WAL) error { return w.DeleteRange(last-4, last) },
		"a file is full": func(w *wal.WAL) error {
			for index := uint64(last + 1); index <= last+30; index++ { // 90 KB; a file takes 64 KiB
				if err := w.StoreLog(big(index)); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			meta := &copyingMeta{dir: dir}
			w, err := wal.Open(dir, wal.WithMetaStore(meta), wal.WithSegmentSize(64<<10))
			if err != nil {
				t.Fatal(err)
			}
			if err := w.StoreLogs(entries(1, last)); err != nil {
				t.Fatal(err)
			}
			meta.make = t.TempDir
			if err := errors.Join(seal(w), w.Close()); err != nil {
				t.Fatal(err)
			}
			if len(meta.copies) != 1 {
				t.Fatal("no transaction was made")
			}

			killed := meta.copies[0]
			for range 2 { // to open it again does not help
				w, err := wal.Open(killed, wal.WithSegmentSize(64<<10))
				if err != nil {
					t.Fatal(err)
				}
				end, err := w.LastIndex()
				if err != nil || end < last {
					t.Errorf("the log ends with %d, %v: acknowledged entries are gone", end, err)
				}
				var got raft.Log
				for index := uint64(1); index <= last; index++ {
					if err := w.GetLog(index, &got); err != nil || string(got.Data) != fmt.Sprintf("data %d", index) {
						t.Errorf("entry %d: %v, %q", index, err, got.Data)
					}
				}
				if err := w.StoreLog(entry(end + 1)); !errors.Is(err, wal.ErrSealed) {
					t.Errorf("an append after the kill gives %v, want %v", err, wal.ErrSealed)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
			}

			// Deleting a suffix does.
			if w, err = wal.Open(killed, wal.WithSegmentSize(64<<10)); err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			end, err := w.LastIndex()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.DeleteRange(end, end), w.StoreLog(entry(end))); err != nil {
				t.Errorf("an append after a deletion: %v", err)
			}
		})
	}
}
