package check

import (
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestPinnedFilesStay: what a check of an open database has pinned stays until it is released, though nothing else
// needs it any more, and goes then.
func TestPinnedFilesStay(t *testing.T) {
	fsys := vfs.NewMem()
	d, _ := small(t, fsys)
	defer d.Close()
	p, release, err := d.Pin()
	if err != nil {
		t.Fatal(err)
	}
	files := func() map[string]bool {
		t.Helper()
		list, err := fsys.List(smallDir)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for _, name := range list {
			all[name] = true
		}
		return all
	}
	before := files()
	var b holdfast.Batch
	b.DeleteRange(nil, nil)
	if err := commit(d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	b.Set([]byte("new"), make([]byte, 10<<10))
	for range 20 {
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
	}
	work(t, d, 1000)
	v, err := VerifyPinned(p, func() error { return nil })
	if err != nil || len(v.Damage) > 0 {
		t.Errorf("%v, %v", v, err)
	}
	pinned := files()
	release()
	work(t, d, 1000)
	gone := 0
	for name := range files() {
		delete(pinned, name)
	}
	for name := range pinned {
		if before[name] {
			gone++
		}
	}
	if gone == 0 {
		t.Error("no file was kept for the check alone: it proves nothing")
	}
}
