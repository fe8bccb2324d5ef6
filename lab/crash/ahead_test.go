package crash

import (
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/lab/blockdev"
	"github.com/holdfastdb/holdfast/lab/crash/internal/flawed"
)

// The two that differ in the order of their writes.
const (
	logFirst   = "writes its log first"
	indexFirst = "writes its index first"
)

// TestWriteBackFindsBrokenOrder: an index page that is written before the log that it speaks of is synced shows only
// where pages reach the disk that nobody has synced. The test goes on until it is found, most often on the first disk.
// The right order is not found fault with.
func TestWriteBackFindsBrokenOrder(t *testing.T) {
	needsDisk(t)
	night.Only(t, "TestPower runs the same code, and TestWriteBack of package kinds sees pages written back")
	dir := t.TempDir()
	r, err := newRunner(labs()[uncontrolled], Place{Dir: dir, Keep: t.TempDir(), Child: victims(uncontrolled, dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	broken := func(name string, seed uint64) bool {
		c := row(Power, holdfast.Power)
		c.Engine, c.Level, c.Mounts, c.Capabilities = name, holdfast.Power, blockdev.Mounts("")[:1], flawed.Describe()
		tally := newTally(c, seed)
		tally.keep = r.evidenceDir
		if err := r.kinds.Session(t.Context(), c, seed, 0, 5, 0, tally); err != nil {
			t.Fatal(err)
		}
		result := tally.finish()
		if result.Verdict == Broken && !strings.Contains(result.Why, "the index has") {
			t.Fatalf("%s: %s", name, result.Why)
		}
		t.Logf("%s, seed %d: %s after %d cuts", name, seed, result.Verdict, result.Cuts)
		return result.Verdict == Broken
	}
	const first = 2 // pages are written back with this seed
	if broken(logFirst, first) {
		t.Errorf("%s, and is BROKEN", logFirst)
	}
	for seed := uint64(first); !broken(indexFirst, seed); seed++ {
		if seed == 100 {
			t.Fatalf("%s, and was not found out on %d disks", indexFirst, seed)
		}
	}
}
