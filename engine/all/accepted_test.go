package all_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// That a loss was accepted is known to the engine, and to every copy of its directory; another loss is another.
func TestAccepted(t *testing.T) {
	for _, name := range []string{"logtree", "bbolt", "pebble"} {
		t.Run(name, func(t *testing.T) {
			at := t.TempDir()
			path := func(name string) string { return filepath.Join(at, name) }
			check := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			var b holdfast.Batch
			b.Set([]byte("key"), []byte("value"))
			e, err := all.Open(name, path("db"), holdfast.Options{})
			check(err)
			check(holdfast.Commit(e, &b, holdfast.Power))
			check(e.Close())
			lose := func() {
				mark := filepath.Join(path("db"), "HOLDFAST")
				text, err := os.ReadFile(mark)
				check(err)
				check(os.WriteFile(mark, append(text, "lost a key\n"...), 0o644))
				lost, err := all.AcceptLoss(path("db"))
				if check(err); lost != "a key" {
					t.Fatalf("lost %q", lost)
				}
			}
			accepted := func(dir string) string {
				t.Helper()
				e, err := all.OpenDir("", path(dir), holdfast.Options{})
				check(err)
				defer e.Close()
				if c := e.Capabilities(); c.Lost != "" {
					t.Errorf("%s: lost %q", dir, c.Lost)
				}
				return e.Capabilities().Accepted
			}
			if got := accepted("db"); got != "" {
				t.Fatalf("accepted %q before", got)
			}
			lose()
			first := accepted("db")
			_, err = all.BackupDir(t.Context(), path("db"), path("backup"))
			check(err)
			_, err = all.Copy(t.Context(), path("db"), path("copy"), all.CopyOptions{Engine: "logtree"})
			check(err)
			_, err = all.Repair(t.Context(), path("db"), path("repaired"))
			check(err)
			for _, dir := range []string{"backup", "copy", "repaired"} {
				if got := accepted(dir); got != first || first == "" {
					t.Errorf("%s: accepted %q, want %q", dir, got, first)
				}
			}
			if lose(); accepted("db") == first {
				t.Error("two losses are one")
			}
		})
	}
}
