package db

import (
	"fmt"
	"math/rand/v2"
	"path"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// TestOldManifestKeepsItsFiles kills the program after a manifest was renamed and before its directory was synced, and
// cuts the power while the next Open works. If the old manifest is back then, so are the runs that it names.
func TestOldManifestKeepsItsFiles(t *testing.T) {
	d, c := manualWith(t, 4<<20)
	mem := c.FS.(*vfs.Mem)
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	for round := range 6 {
		d.put(t, func(b *holdfast.Batch) {
			for i := range 200 {
				b.Set(fmt.Appendf(nil, "key %04d", i), fmt.Appendf(nil, "value %d", round))
			}
		})
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	renamed := false
	mem.SetHook(func(op vfs.Op) error {
		renamed = renamed || op.Kind == vfs.OpRename && path.Base(op.To) == manifestName
		if op.Kind == vfs.OpSyncDir && renamed {
			return syscall.EIO
		}
		return nil
	})
	if _, err := d.mergeOnce(); err == nil || !renamed {
		t.Fatalf("the merge ends with %v, the manifest renamed: %v", err, renamed)
	}
	for n := int64(1); ; n++ {
		killed := mem.Kill()
		killed.HaltAfter(n)
		c.FS = killed
		if d, err := Open(c); err == nil {
			if err := d.Close(); err == nil {
				return
			}
		}
		for seed := range uint64(20) {
			c.FS = killed.Crash(rand.New(rand.NewPCG(seed, uint64(n))))
			d, err := Open(c)
			if err != nil {
				t.Fatalf("power cut at operation %d after the kill, seed %d: %v", n, seed, err)
			}
			for i := range 200 {
				if v, err := d.Get(nil, fmt.Appendf(nil, "key %04d", i)); err != nil || string(v) != "value 5" {
					t.Fatalf("power cut at operation %d after the kill, seed %d: key %d is %q, %v", n, seed, i, v, err)
				}
			}
		}
	}
}
