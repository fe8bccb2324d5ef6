package crash

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// TestMountsInTurns: a file system that this machine cannot make is left out with a reason, and the others go on; the
// disks of rows that follow each other, and those of one row, have different mounts.
func TestMountsInTurns(t *testing.T) {
	needsDisk(t)
	p, all := &runPlan{}, []Kind{Kill, Power, Faults}
	fat := blockdev.Mount{FS: "fat"}
	if err := p.chooseKinds(nil, all, []blockdev.Mount{fat, {FS: "ext4"}, fat}); err != nil || len(p.Kinds) != 3 {
		t.Fatal(p.Kinds, err)
	}
	if len(p.missing) != 2 || p.missing[0].Kind != Power || p.missing[1].Kind != Faults || p.FS != "ext4" {
		t.Errorf("%v, missing %v", p.FS, p.missing)
	}
	p = &runPlan{}
	if err := p.chooseKinds(nil, all, []blockdev.Mount{fat}); err != nil || !slices.Equal(p.Kinds, []Kind{Kill}) {
		t.Errorf("%v, %v", p.Kinds, err)
	}
	if err := p.chooseKinds([]string{"power"}, all, []blockdev.Mount{fat}); err == nil {
		t.Error("power was named, and is not refused")
	}
	mounts := blockdev.Mounts("")
	for i, m := range mounts {
		if next := mounts[(i+1)%len(mounts)]; m.FS == next.FS {
			t.Errorf("%v is followed by %v", m, next)
		}
	}
	if got := mountsText(blockdev.Mounts("ext4")); got != "ext4, ext4 noauto_da_alloc" {
		t.Errorf("of ext4: %s", got)
	}
}

// TestEvidenceStays: where no place is named, evidence is not below the directory of temporary files, which the system
// may empty, but in the current one.
func TestEvidenceStays(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	t.Chdir(here)
	for dir, want := range map[string]string{"": here, there: there} {
		r, err := newRunner(Standard(), Place{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		kept, err := r.evidenceDir()
		if filepath.Dir(kept) != want || err != nil {
			t.Errorf("evidence of a run in %q is in %s, want it in %s: %v", dir, kept, want, err)
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
	}
}
