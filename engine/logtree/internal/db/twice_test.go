package db

import (
	"bytes"
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
	if _, err := d.reclaim.mergeOnce(); err == nil || !renamed {
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

// sameFS is a file system on which what is written to segments is compared with what they hold.
type sameFS struct {
	vfs.FS
	t     *testing.T
	bytes int // written
}

func (s *sameFS) OpenWrite(name string) (vfs.File, error) {
	f, err := s.FS.OpenWrite(name)
	if err != nil {
		return nil, err
	}
	return sameFile{f, s}, nil
}

type sameFile struct {
	vfs.File
	s *sameFS
}

func (f sameFile) WriteAt(b []byte, off int64) (int, error) {
	f.s.bytes += len(b)
	was := make([]byte, len(b))
	if _, err := f.ReadAt(was, off); err != nil || !bytes.Equal(was, b) {
		f.s.t.Errorf("%d bytes at %d of %s change: %v", len(b), off, f.Name(), err)
	}
	return f.File.WriteAt(b, off)
}

// TestWriteAgainChangesNothing: what Open writes over acknowledged frames are the bytes that are there, so that
// a torn write of them is harmless. It is torn here, at sectors, at each operation.
func TestWriteAgainChangesNothing(t *testing.T) {
	d, c := manualWith(t, 4<<20)
	mem := c.FS.(*vfs.Mem)
	if err := mem.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	const commits = 40 // of some 60 bytes: they share sectors
	for i := range commits {
		var b holdfast.Batch
		b.Set(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value %d", i))
		level := holdfast.Power
		if i >= commits/2 && i < commits-1 { // the last sync is of many frames, and none says that it was made
			level = holdfast.Process
		}
		if err := commit(d, &b, level); err != nil {
			t.Fatal(err)
		}
	}
	for n := int64(1); ; n++ {
		killed := mem.Kill()
		killed.Seed(uint64(n))
		killed.HaltAfter(n)
		same := &sameFS{FS: killed, t: t}
		c.FS = same
		_, err := Open(c)
		for seed := range uint64(20) {
			c.FS = killed.Crash(rand.New(rand.NewPCG(seed, uint64(n))))
			d, err := Open(c)
			if err != nil {
				t.Fatalf("power cut at operation %d of Open, seed %d: %v", n, seed, err)
			}
			for i := range commits {
				if v, err := d.Get(nil, fmt.Appendf(nil, "key %d", i)); err != nil || string(v) != fmt.Sprintf("value %d", i) {
					t.Fatalf("power cut at operation %d of Open, seed %d: key %d is %q, %v", n, seed, i, v, err)
				}
			}
		}
		if err == nil {
			if same.bytes < 500 {
				t.Errorf("Open wrote %d bytes again: this test is about more", same.bytes)
			}
			return
		}
	}
}
