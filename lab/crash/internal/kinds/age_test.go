package kinds

import (
	"math/rand/v2"
	"testing"

	"github.com/holdfastdb/holdfast/engine/badger"
	"github.com/holdfastdb/holdfast/engine/bbolt"
	filesengine "github.com/holdfastdb/holdfast/engine/files"
	"github.com/holdfastdb/holdfast/engine/mem"
)

// TestAgedBytes: a quarter of the directories, none of a control or in memory; one with large logs nearly fills them.
func TestAgedBytes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	for name, test := range map[string]struct {
		row         Row
		least, most int64
	}{
		"bbolt":   {Row{Capabilities: bbolt.Describe()}, 2 << 20, 8 << 20},
		"badger":  {Row{Capabilities: badger.Describe()}, fullBytes - 8<<20, fullBytes},
		"mem":     {Row{Capabilities: mem.Describe()}, 0, 0},
		"control": {Row{Control: true, Capabilities: bbolt.Describe()}, 0, 0},
		"files":   {Row{Capabilities: filesengine.Describe()}, 0, 0},
		"a peer":  {Row{Peer: true, Capabilities: bbolt.Describe()}, 0, 0},
	} {
		aged := 0
		for range 200 {
			n := test.row.agedBytes(rnd)
			if n > 0 {
				aged++
			}
			if n != 0 && (n < test.least || n > test.most) {
				t.Errorf("%s: %d bytes", name, n)
			}
		}
		if (aged > 30) != (test.most > 0) || aged > 80 {
			t.Errorf("%s: %d of 200 aged", name, aged)
		}
	}
}

func TestKindOfFile(t *testing.T) {
	for name, want := range map[string]string{
		"/a1/db/000012.vlog": "N.vlog", "MANIFEST-000001": "MANIFEST-N", "data.db-wal": "data.db-wal", "7": "N",
	} {
		if got := kindOfFile(name); got != want {
			t.Errorf("%s is %s, not %s", name, got, want)
		}
	}
}
