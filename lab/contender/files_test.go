package contender

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// TestFilesPlain: at each level what is written is there, also opened again, in the order of keys; nothing else is
// left in the folder; each write at Power is two syncs, others are none.
func TestFilesPlain(t *testing.T) {
	for _, level := range holdfast.Levels()[:3] {
		dir := filepath.Join(t.TempDir(), "files")
		want := commits.State[string]{{Key: "a", Value: "2"}, {Key: "b", Value: ""}, {Key: "c", Value: "3"}}
		for _, writes := range []bool{true, false} {
			e, err := OpenFilesPlain(dir, holdfast.Options{Level: level})
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range [][2]string{{"c", "3"}, {"a", "longer"}, {"gone", "1"}, {"a", "2"}, {"b", ""}} {
				var b holdfast.Batch
				if b.Set([]byte(kv[0]), []byte(kv[1])); writes {
					if err := holdfast.Commit(e, &b, level); err != nil {
						t.Fatal(err)
					}
				}
			}
			for range 2 { // what is not there can be deleted
				var b holdfast.Batch
				b.Delete([]byte("gone"))
				if err := holdfast.Commit(e, &b, level); err != nil {
					t.Fatal(err)
				}
			}
			if syncs := e.Metrics().Syncs; writes && (level == holdfast.Power) != (syncs == 2*5+2) {
				t.Errorf("%v: %d syncs", level, syncs)
			}
			found, err := commits.Contents(e, holdfast.Range{})
			if d := commits.Difference(found, want); err != nil || d != "" {
				t.Errorf("%v: %v, %s", level, err, d)
			}
			var bad holdfast.Batch
			bad.Set([]byte("../up"), nil)
			if err := holdfast.Commit(e, &bad, level); !errors.Is(err, holdfast.ErrBadKey) {
				t.Errorf("%v", err)
			}
			if _, err := e.Get(nil, []byte("gone")); !errors.Is(err, holdfast.ErrNotFound) {
				t.Errorf("%v", err)
			}
			if err := errors.Join(e.Sync(), e.Close()); err != nil {
				t.Error(err)
			}
			if list, err := os.ReadDir(filepath.Join(dir, "files")); err != nil || len(list) != len(want) {
				t.Errorf("%v, %v", list, err)
			}
		}
	}
}
