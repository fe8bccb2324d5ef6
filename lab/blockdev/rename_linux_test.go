package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRenameStartsWriting: ext4 (auto_da_alloc) and btrfs start to write a file when it replaces another, so that each
// replacement costs a write of the device, and none costs a flush. btrfs keeps small files with their names, and writes
// none of them. xfs, and ext4 without that option, write nothing either.
func TestRenameStartsWriting(t *testing.T) {
	const files = 400
	for _, test := range []struct {
		fs, option string
		size       int
		writes     bool
	}{
		{"ext4", "auto_da_alloc", 200, true}, {"ext4", "auto_da_alloc", 8192, true}, {"ext4", "noauto_da_alloc", 8192, false},
		{"btrfs", "", 200, false}, {"btrfs", "", 8192, true}, {"xfs", "", 8192, false},
	} {
		t.Run(fmt.Sprint(test.fs, " ", test.option, " ", test.size), func(t *testing.T) {
			d := newDisk(t, options(t, test.fs))
			if test.option != "" {
				if err := unix.Mount("", d.Path(), "", unix.MS_REMOUNT, test.option); err != nil {
					t.Fatal(err)
				}
			}
			dir, err := os.Open(d.Path())
			if err != nil {
				t.Fatal(err)
			}
			sync := func() {
				if err := unix.Syncfs(int(dir.Fd())); err != nil {
					t.Fatal(err)
				}
			}
			name := filepath.Join(d.Path(), "task")
			replace := func() {
				if err := os.WriteFile(name+".new", make([]byte, test.size), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(name+".new", name); err != nil {
					t.Fatal(err)
				}
			}
			replace()
			sync()
			from := d.Mark(1)
			for range files {
				replace()
			}
			sync() // what is there in the end, and the journal
			to := d.Mark(2)
			dir.Close()
			r := d.Freeze()
			defer r.Close()
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			writes, flushes := 0, 0
			for i := int(from); i < int(to); i++ {
				switch r.Event(i).Kind {
				case Write:
					writes++
				case Flush:
					flushes++
				}
			}
			t.Logf("%d files replaced: %.3f writes and %.3f flushes of the device for each", files,
				float64(writes)/files, float64(flushes)/files)
			// The journal is written every five seconds, too.
			if (writes > files/2) != test.writes || flushes > files/4 {
				t.Errorf("%d writes, %d flushes", writes, flushes)
			}
		})
	}
}
