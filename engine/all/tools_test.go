package all_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/logtree"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/night"
)

// some is n, or a tenth of that where every key costs a file.
func some(e all.Entry, n int) int {
	if e.Name == "files" {
		return n / 10
	}
	return n
}

// fill makes a directory with some thousand keys, some of them deleted again, and some with empty values: first,
// in the middle, last and alone in a batch. It is opened several times for that.
func fill(t *testing.T, e all.Entry, dir string, level holdfast.Level) map[string]string {
	t.Helper()
	want := map[string]string{}
	for part := range 3 {
		eng, err := e.Open(dir, holdfast.Options{Level: level})
		try(t, err)
		var b holdfast.Batch
		commit := func() {
			try(t, holdfast.Commit(eng, &b, level))
			b.Reset()
		}
		set := func(key, value string) {
			b.Set([]byte(key), []byte(value))
			want[key] = value
		}
		for i := part * some(e, 10); i < (part+1)*some(e, 10); i++ {
			set(fmt.Sprintf("empty/%d/first", i), "")
			for k := range 100 {
				set(fmt.Sprintf("key/%05d", (i*100+k)*7919%5000), fmt.Sprintf("value %d.%d", i, k))
				if k == 50 {
					set(fmt.Sprintf("empty/%d/middle", i), "")
				}
			}
			key := fmt.Sprintf("key/%05d", i*100*7919%5000)
			b.Delete([]byte(key))
			delete(want, key)
			set(fmt.Sprintf("empty/%d/last", i), "")
			commit()
			if i%3 == 0 {
				set(fmt.Sprintf("empty/%d/alone", i), "")
				commit()
			}
		}
		if part > 0 { // so that what was written before the opening lies where compaction puts it
			if err := holdfast.Compact(t.Context(), eng, holdfast.Range{}); !errors.Is(err, holdfast.ErrUnavailable) {
				try(t, err)
			}
		}
		try(t, eng.Close())
	}
	return want
}

// TestTools: on a sound directory of each engine, at each level that binds it, everything is well and every copy is
// the same.
func TestTools(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		for _, level := range []holdfast.Level{holdfast.Power, holdfast.Process} {
			t.Run(level.String(), func(t *testing.T) {
				at := t.TempDir()
				dir := filepath.Join(at, "db")
				want := fill(t, e, dir, level)
				before := files(t, dir)
				in, err := all.Inspect(dir)
				if err != nil || in.Files == 0 || in.Bytes == 0 || in.Open || in.Capabilities == nil ||
					in.Capabilities.Quorum.Why == "" || (in.Logtree == nil) != (len(in.Notes) > 0) {
					t.Errorf("Inspect: %v, %+v", err, in)
				}
				r, err := all.Repair(t.Context(), dir, filepath.Join(at, "repaired"))
				if err != nil || !r.Complete() || r.Keys != int64(len(want)) {
					t.Errorf("Repair: %v, %+v", err, r)
				}
				if !maps.Equal(files(t, dir), before) {
					t.Error("Inspect or Repair changed the directory")
				}
				v, err := all.Verify(dir)
				if err != nil || len(v.Damage) > 0 || v.Checked == "" || v.Checksums != e.Describe().Checksums {
					t.Errorf("Verify: %v, %+v", err, v)
				}
				if err == nil && v.Logtree == nil && v.Keys != int64(len(want)) {
					t.Errorf("Verify read %d keys, not %d", v.Keys, len(want))
				}
				n, err := all.BackupDir(t.Context(), dir, filepath.Join(at, "copy"))
				if err != nil || n != int64(len(want)) {
					t.Errorf("BackupDir: %d, %v", n, err)
				}
				for _, name := range []string{"repaired", "copy", "db"} {
					if got := contents(t, e.Name, filepath.Join(at, name)); !maps.Equal(got, want) {
						t.Errorf("%s holds %d keys, want %d", name, len(got), len(want))
					}
				}
				names, err := os.ReadDir(at)
				if err != nil || len(names) != 3 {
					t.Errorf("left behind: %v, %v", names, err)
				}
			})
		}
	})
}

// TestToolsThroughLinks: a directory can be named by a link to it, and a new one with a slash at its end.
func TestToolsThroughLinks(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		dir, from := filepath.Join(at, "db"), filepath.Join(at, "link")
		want := fill(t, e, dir, holdfast.Power)
		if runtime.GOOS == "windows" { // making a link needs a right
			from = dir
		} else if err := os.Symlink(dir, from); err != nil {
			t.Fatal(err)
		}
		into := func(name string) string { return filepath.Join(at, name) + string(filepath.Separator) }
		r, err := all.Repair(t.Context(), from, into("repaired"))
		if err != nil || !r.Complete() || r.Keys != int64(len(want)) {
			t.Errorf("Repair: %v, %+v", err, r)
		}
		c, err := all.Copy(t.Context(), from, into("copied"), all.CopyOptions{Engine: e.Name})
		if err != nil || c.Keys != int64(len(want)) {
			t.Errorf("Copy: %v, %+v", err, c)
		}
		if n, err := all.BackupDir(t.Context(), from, into("backup")); err != nil || n != int64(len(want)) {
			t.Errorf("BackupDir: %d, %v", n, err)
		}
	})
}

// TestHotBackup: any engine is copied while it is open and written to.
func TestHotBackup(t *testing.T) {
	if _, err := all.Backup(t.Context(), mem.New(), filepath.Join(t.TempDir(), "copy")); !errors.Is(err,
		holdfast.ErrBadOption) {
		t.Errorf("an engine in memory: %v", err)
	}
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		dir := filepath.Join(at, "db")
		eng, err := e.Open(dir, holdfast.Options{})
		try(t, err)
		defer eng.Close()
		// Two keys always go together: a state between batches has both alike.
		commit := func(i int) {
			var b holdfast.Batch
			b.Set([]byte("a"), fmt.Append(nil, i))
			b.Set(fmt.Appendf(nil, "m%d", i%50), make([]byte, 1000))
			b.Set([]byte("z"), fmt.Append(nil, i))
			if err := holdfast.Commit(eng, &b, holdfast.Power); err != nil {
				t.Error(err)
			}
		}
		commit(0)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
					commit(i)
				}
			}
		}()
		for i := range 2 {
			to := filepath.Join(at, fmt.Sprint("copy", i))
			if _, err := all.Backup(t.Context(), eng, to); err != nil {
				t.Error(err)
				continue
			}
			if in, err := all.Inspect(dir); err != nil || !in.Open {
				t.Errorf("Inspect while it is open: %v, %+v", err, in)
			}
			if got := contents(t, e.Name, to); got["a"] == "" || got["a"] != got["z"] {
				t.Errorf("the copy has %q and %q", got["a"], got["z"])
			}
		}
		close(stop)
		<-done
	})
}

// TestToolsOnNothing: what is no directory of ours is refused, and nothing is made.
func TestToolsOnNothing(t *testing.T) {
	at := t.TempDir()
	for dir, want := range map[string]error{filepath.Join(at, "missing"): fs.ErrNotExist, at: holdfast.ErrForeign} {
		if _, err := all.Inspect(dir); !errors.Is(err, want) {
			t.Errorf("Inspect of %s: %v", dir, err)
		}
		if _, err := all.Verify(dir); !errors.Is(err, want) ||
			errors.Is(err, holdfast.ErrForeign) != (want == holdfast.ErrForeign) {
			t.Errorf("Verify of %s: %v", dir, err)
		}
		if _, err := all.Repair(t.Context(), dir, filepath.Join(at, "into")); !errors.Is(err, want) {
			t.Errorf("Repair of %s: %v", dir, err)
		}
		if _, err := all.BackupDir(t.Context(), dir, filepath.Join(at, "into")); !errors.Is(err, want) {
			t.Errorf("BackupDir of %s: %v", dir, err)
		}
	}
	if left, err := os.ReadDir(at); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestToolsOnDamage: damage to a file of an engine with checksums is found, unless the engine does not need what was
// damaged, and a repair that loses something says so. Logtree needs all that its largest file has.
func TestToolsOnDamage(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		if !e.Describe().Checksums {
			return
		}
		at := t.TempDir()
		dir := filepath.Join(at, "db")
		want := fill(t, e, dir, holdfast.Power)
		largest := damageLargest(t, dir, func(b []byte) {
			for i := range min(64, len(b)/2) {
				b[len(b)/4+i] ^= 0x55
			}
		})
		into, needed := filepath.Join(at, "into"), true
		r, err := all.Repair(t.Context(), dir, into)
		if err != nil {
			t.Logf("Repair: %v", err)
			if _, err := os.Stat(into); err == nil {
				t.Error("a failed repair made a directory")
			}
		} else {
			got := contents(t, e.Name, into)
			t.Logf("%d of %d keys salvaged; lost %v, %+v", len(got), len(want), r.Lost, r.Logtree)
			needed = e.Name == logtree.Name || !maps.Equal(got, want)
			if r.Complete() && needed {
				t.Error("it says that nothing is lost")
			}
		}
		if v := verified(t, e, dir); needed && len(v.Damage) == 0 {
			t.Errorf("Verify of %s: %+v", largest, v)
		}
	})
}

// damageLargest changes the largest file below dir that a closed engine needs, and names it.
func damageLargest(t *testing.T, dir string, change func([]byte)) (largest string) {
	t.Helper()
	var content []byte
	for name := range files(t, dir) {
		b, err := os.ReadFile(name)
		try(t, err)
		if len(b) > len(content) && filepath.Ext(name) != ".mem" && filepath.Base(name) != "HOLDFAST" {
			largest, content = name, b
		}
	}
	change(content)
	try(t, os.WriteFile(largest, content, 0o644))
	return largest
}

// verified is what Verify says of dir; of damage, once and in one line.
func verified(t *testing.T, e all.Entry, dir string) *all.VerifyResult {
	t.Helper()
	v, err := all.Verify(dir)
	if err != nil || v.Checksums != e.Describe().Checksums {
		t.Fatalf("Verify: %+v, %v", v, err)
	}
	for _, d := range v.Damage {
		if strings.Contains(d.Error(), "\n") || errors.Is(d, holdfast.ErrPoisoned) {
			t.Errorf("damage in several lines, or a consequence of other damage: %v", d)
		}
	}
	return v
}

// TestNewerFormat: no tool works on a directory of a format that it does not know, nor makes anything.
func TestNewerFormat(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		dir, into := filepath.Join(at, "db"), filepath.Join(at, "into")
		fill(t, e, dir, holdfast.Power)
		mark := filepath.Join(dir, "HOLDFAST")
		text, err := os.ReadFile(mark)
		try(t, err)
		try(t, os.WriteFile(mark, []byte(strings.Replace(string(text), "format 1\n", "format 9\n", 1)), 0o644))
		_, repaired := all.Repair(t.Context(), dir, into)
		_, verified := all.Verify(dir)
		_, backedUp := all.BackupDir(t.Context(), dir, into)
		_, copied := all.Copy(t.Context(), dir, into, all.CopyOptions{})
		for tool, err := range map[string]error{
			"Repair": repaired, "Verify": verified, "BackupDir": backedUp, "Copy": copied,
		} {
			if !errors.Is(err, holdfast.ErrVersion) {
				t.Errorf("%s: %v", tool, err)
			}
		}
		if left, err := os.ReadDir(at); err != nil || len(left) != 1 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestToolsInterrupted: when the context has ended, or there is none, a tool stops with an error and leaves nothing.
func TestToolsInterrupted(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		dir, into := filepath.Join(at, "db"), filepath.Join(at, "into")
		fill(t, e, dir, holdfast.Power)
		ended, stop := context.WithCancel(t.Context())
		stop()
		for _, c := range []struct{ ctx, want any }{{ended, context.Canceled}, {nil, holdfast.ErrBadOption}} {
			ctx, _ := c.ctx.(context.Context)
			_, repaired := all.Repair(ctx, dir, into)
			_, backedUp := all.BackupDir(ctx, dir, into)
			_, copied := all.Copy(ctx, dir, into, all.CopyOptions{})
			for tool, err := range map[string]error{"Repair": repaired, "BackupDir": backedUp, "Copy": copied} {
				if !errors.Is(err, c.want.(error)) {
					t.Errorf("%s: %v, want %v", tool, err, c.want)
				}
			}
		}
		if left, err := os.ReadDir(at); err != nil || len(left) != 1 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestCopyOfDamagedNamesIt: an error is about the source, not about the copy of it that was opened.
func TestCopyOfDamagedNamesIt(t *testing.T) {
	at := t.TempDir()
	dir, into := filepath.Join(at, "db"), filepath.Join(at, "into")
	pebble, err := all.Lookup("pebble")
	try(t, err)
	fill(t, pebble, dir, holdfast.Power)
	logs, err := filepath.Glob(filepath.Join(dir, "data", "*.log"))
	try(t, err)
	manifests, err := filepath.Glob(filepath.Join(dir, "data", "MANIFEST-*"))
	try(t, err)
	for _, name := range append(logs, manifests...) {
		try(t, os.WriteFile(name, bytes.Repeat([]byte("damage"), 1000), 0o644))
	}
	_, copied := all.Copy(t.Context(), dir, into, all.CopyOptions{})
	_, repaired := all.Repair(t.Context(), dir, into)
	for tool, err := range map[string]error{"Copy": copied, "Repair": repaired} {
		if err == nil || !strings.Contains(err.Error(), dir) || strings.Contains(err.Error(), into) {
			t.Errorf("%s: %v", tool, err)
		}
	}
	if v := verified(t, pebble, dir); len(v.Damage) != 1 {
		t.Errorf("Verify: %+v", v)
	}
}

// TestLeftOvers: what a killed tool has left is removed by the next one, with the copy of its source.
func TestLeftOvers(t *testing.T) {
	at := t.TempDir()
	dir := filepath.Join(at, "db")
	pebble, err := all.Lookup("pebble")
	try(t, err)
	fill(t, pebble, dir, holdfast.Power)
	for what, do := range map[string]func(into string) error{
		"repair": func(into string) error { _, err := all.Repair(t.Context(), dir, into); return err },
		"copy":   func(into string) error { _, err := all.Copy(t.Context(), dir, into, all.CopyOptions{}); return err },
		"backup": func(into string) error { _, err := all.BackupDir(t.Context(), dir, into); return err },
	} {
		into := filepath.Join(at, what)
		mark, err := os.ReadFile(filepath.Join(dir, "HOLDFAST"))
		try(t, errors.Join(err, os.MkdirAll(filepath.Join(into+".partial", "TEMP", "sub"), 0o755),
			os.WriteFile(filepath.Join(into+".partial", "HOLDFAST.partial"), mark, 0o644)))
		if err := do(into); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(filepath.Join(into, "TEMP")); err == nil {
			t.Errorf("%s has left its work", what)
		}
	}
	if left, err := os.ReadDir(at); err != nil || len(left) != 4 {
		t.Errorf("%v, %v", left, err)
	}
}

// TestTemp: every engine works with a directory for a time in its own, a backup and a checkpoint are made there, and it
// is gone when the engine is opened again.
func TestTemp(t *testing.T) {
	onDisk(t, func(t *testing.T, entry all.Entry) {
		dir := filepath.Join(t.TempDir(), "db")
		fill(t, entry, dir, holdfast.Power)
		level := entry.Describe().Strongest()
		e, err := entry.Open(dir, holdfast.Options{Level: level})
		try(t, err)
		temp := datadir.Temp(dir)
		try(t, os.Mkdir(temp, 0o700))
		keys, err := all.Backup(t.Context(), e, filepath.Join(temp, "backup"))
		if err != nil || keys == 0 {
			t.Errorf("backup: %d keys, %v", keys, err)
		}
		err = holdfast.Checkpoint(t.Context(), e, filepath.Join(temp, "checkpoint"))
		if _, ok := e.(holdfast.Checkpointer); ok != (err == nil) {
			t.Errorf("checkpoint: %v", err)
		}
		if err := holdfast.Compact(t.Context(), e, holdfast.Range{}); err != nil && !errors.Is(err, holdfast.ErrUnavailable) {
			t.Error(err)
		}
		try(t, e.Close())
		if v := verified(t, entry, dir); len(v.Damage) > 0 {
			t.Errorf("%+v", v)
		}
		e, err = entry.Open(dir, holdfast.Options{Level: level})
		try(t, err)
		if _, err := os.Stat(temp); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
		try(t, e.Close())
	})
}

// TestCopyApart: no copy is made in the directory that is copied, nor is anything else.
func TestCopyApart(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		dir := filepath.Join(at, "db")
		fill(t, e, dir, holdfast.Power)
		into := []string{dir, filepath.Join(dir, "sub"), filepath.Join(dir, "data"),
			filepath.Join(dir, "data", "sub", "deep"), at}
		if link := filepath.Join(at, "link"); runtime.GOOS != "windows" {
			try(t, os.Symlink(dir, link))
			into = append(into, filepath.Join(link, "sub"), link)
		}
		before := files(t, dir)
		for _, to := range into {
			if _, err := all.Repair(t.Context(), dir, to); !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("Repair into %s: %v", to, err)
			}
			if _, err := all.BackupDir(t.Context(), dir, to); !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("BackupDir into %s: %v", to, err)
			}
		}
		if !maps.Equal(files(t, dir), before) {
			t.Error("the directory was changed")
		}
		eng, err := e.Open(dir, holdfast.Options{})
		try(t, err)
		for _, to := range into {
			if _, err := all.Backup(t.Context(), eng, to); !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("Backup into %s: %v", to, err)
			}
		}
		try(t, eng.Close())
		for _, name := range into[1:] {
			if _, err := os.Stat(name + ".partial"); err == nil {
				t.Errorf("%s.partial was left", name)
			}
		}
		// The mark tells who made a directory; without it, it is still the source.
		if e.Name != logtree.Name {
			return
		}
		try(t, os.Remove(filepath.Join(dir, "HOLDFAST")))
		if _, err := all.Repair(t.Context(), dir, filepath.Join(dir, "sub")); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("Repair without a mark: %v", err)
		}
	})
}

// TestRemedies: what an error says to do works.
func TestRemedies(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		says := func(err, class error, words ...string) {
			t.Helper()
			for _, w := range words {
				if !errors.Is(err, class) || !strings.Contains(err.Error(), w) {
					t.Errorf("%v; want %v with %q", err, class, w)
				}
			}
		}
		dir := filepath.Join(at, e.Name)
		want := fill(t, e, dir, holdfast.Power)
		eng, err := e.Open(dir, holdfast.Options{})
		try(t, err)
		_, err = all.BackupDir(t.Context(), dir, filepath.Join(at, "into"))
		says(err, holdfast.ErrLocked, "backup "+dir, "Backup of package engine/all")
		try(t, eng.Close())
		try(t, os.WriteFile(filepath.Join(dir, "HOLDFAST"), []byte("holdfast 1\nengine\x00"), 0o644))
		_, opened := e.Open(dir, holdfast.Options{})
		_, copied := all.BackupDir(t.Context(), dir, filepath.Join(at, "into"))
		into := dir + "-repaired"
		r, err := all.Repair(t.Context(), dir, into)
		if e.Name != logtree.Name {
			says(opened, holdfast.ErrCorrupt, "restore the file")
			says(copied, holdfast.ErrCorrupt, "restore the file")
			says(err, holdfast.ErrCorrupt, "restore the file")
			return
		}
		says(opened, holdfast.ErrCorrupt, "holdfast repair", "restore the file")
		says(copied, holdfast.ErrCorrupt, "holdfast repair", "restore the file")
		if err != nil || r.Keys != int64(len(want)) {
			t.Errorf("Repair: %+v, %v", r, err)
		}
		check := func() {
			t.Helper()
			v, err := all.Verify(dir)
			if err != nil || len(v.Damage) != 1 || !strings.Contains(v.Damage[0].Error(), "holdfast repair") {
				t.Errorf("Verify: %+v, %v", v, err)
			}
		}
		check()
		// The same if the file is gone: the others are known to be logtree's.
		try(t, os.Remove(filepath.Join(dir, "HOLDFAST")))
		for _, o := range []holdfast.Options{{}, {ReadOnly: true}} {
			_, opened = e.Open(dir, o)
			says(opened, holdfast.ErrCorrupt, "HOLDFAST is missing", "holdfast repair", "restore it")
		}
		_, copied = all.BackupDir(t.Context(), dir, filepath.Join(at, "into"))
		says(copied, holdfast.ErrCorrupt, "holdfast repair", "restore the file")
		if r, err := all.Repair(t.Context(), dir, dir+"-again"); err != nil || r.Keys != int64(len(want)) || !r.Complete() {
			t.Errorf("Repair: %+v, %v", r, err)
		}
		check()
	})
}

// TestScatteredDamage: a repair of any engine with checksums takes over what lies between two damaged places, not
// only what is before and behind them, each key once.
func TestScatteredDamage(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		if !e.Describe().Checksums {
			return
		}
		at := t.TempDir()
		dir := filepath.Join(at, "db")
		eng, err := e.Open(dir, holdfast.Options{})
		try(t, err)
		rnd, want := rand.NewChaCha8([32]byte{1}), map[string]string{}
		var b holdfast.Batch
		n := some(e, 20000)
		for i := range n {
			value := make([]byte, 100)
			rnd.Read(value)
			key := fmt.Sprintf("key/%08d", i*7919%n)
			b.Set([]byte(key), value)
			want[key] = string(value)
			if b.Len() == 100 {
				try(t, holdfast.Commit(eng, &b, holdfast.Process)) // Close syncs
				b.Reset()
			}
		}
		try(t, eng.Close())
		largest := damageLargest(t, dir, func(b []byte) {
			// Pebble looks for the bit that flipped in a damaged block, one after the other, which takes longer than all else.
			for _, fifth := range night.Or([]int{1, 2, 4}, []int{1, 4}) {
				b[len(b)/5*fifth] ^= 0x40
			}
		})
		into := filepath.Join(at, "into")
		r, err := all.Repair(t.Context(), dir, into)
		if err != nil {
			if v := verified(t, e, dir); len(v.Damage) == 0 || !errors.Is(err, holdfast.ErrCorrupt) {
				t.Errorf("Repair: %v; Verify: %+v", err, v)
			}
			return // the engine does not open it
		}
		if v := verified(t, e, dir); len(v.Damage) == 0 {
			t.Error("Verify finds no damage")
		}
		got := contents(t, e.Name, into)
		for key, value := range got {
			if want[key] != value {
				t.Fatalf("%s is %q, want %q", key, value, want[key])
			}
		}
		t.Logf("%s: %d of %d keys: %v", filepath.Base(largest), len(got), len(want), r.Lost)
		if len(got) < len(want)*95/100 || r.Keys != int64(len(got)) || r.Complete() && len(got) < len(want) {
			t.Errorf("%d keys in it, %d salvaged, of %d", len(got), r.Keys, len(want))
		}
	})
}

// TestCopyIntoEmptyDirectory: a copy keeps the mode of the empty directory that it takes the place of, and a link to
// it.
func TestCopyIntoEmptyDirectory(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("on Windows, links need a privilege, and files have no modes")
	}
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		dir := filepath.Join(at, "db")
		want := fill(t, e, dir, holdfast.Power)
		for what, makeCopy := range map[string]func(into string) error{
			"backup": func(into string) error { _, err := all.BackupDir(t.Context(), dir, into); return err },
			"repair": func(into string) error { _, err := all.Repair(t.Context(), dir, into); return err },
		} {
			into, link := filepath.Join(at, what), filepath.Join(at, what+"-link")
			try(t, errors.Join(os.Mkdir(into, 0o700), os.Symlink(into, link), makeCopy(link)))
			if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("%s of %s: the link is no link: %v", what, e.Name, err)
			}
			if st, err := os.Stat(into); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("%s of %s: the mode is not 0700: %v", what, e.Name, err)
			}
			if got := contents(t, e.Name, into); !maps.Equal(got, want) {
				t.Errorf("%s of %s holds %d keys, want %d", what, e.Name, len(got), len(want))
			}
		}
	})
}

// TestOpenDir: a directory is opened with the engine that made it, at its level, and for reading where the engine has
// that. A name is only for another engine that has the same directories.
func TestOpenDir(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		dir := filepath.Join(t.TempDir(), "db")
		fill(t, e, dir, holdfast.Process)
		for _, name := range []string{"", e.Name} {
			eng, err := all.OpenDir(name, dir, holdfast.Options{ReadOnly: true})
			if err != nil {
				t.Fatalf("%q for %s: %v", name, e.Name, err)
			}
			c := eng.Capabilities()
			if name != "" && c.Engine != name || (c.Strongest() == 0) != e.Describe().ReadOnly {
				t.Errorf("%q for %s: %+v", name, e.Name, c)
			}
			if err := eng.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, other := range all.Engines() {
			eng, err := all.OpenDir(other.Name, dir, holdfast.Options{ReadOnly: true})
			if err == nil {
				err = eng.Close()
			}
			same := family(other.Name) == family(e.Name)
			if same != (err == nil) && other.Describe().Strongest() != 0 || !same && !errors.Is(err, holdfast.ErrForeign) {
				t.Errorf("%s for %s: %v", other.Name, e.Name, err)
			}
		}
	})
}

// TestUnknownEngine: a directory of an engine that this build does not have is inspected as far as that goes, and
// otherwise refused.
func TestUnknownEngine(t *testing.T) {
	at := t.TempDir()
	dir, into := filepath.Join(at, "db"), filepath.Join(at, "into")
	mark := []byte("holdfast 1\nengine rocks\nformat 1\n")
	try(t, errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "HOLDFAST"), mark, 0o644)))
	if in, err := all.Inspect(dir); err != nil || in.Engine != "rocks" || in.Capabilities != nil || len(in.Notes) != 1 {
		t.Errorf("Inspect: %+v, %v", in, err)
	}
	_, opened := all.OpenDir("", dir, holdfast.Options{})
	_, verified := all.Verify(dir)
	_, repaired := all.Repair(t.Context(), dir, into)
	_, copied := all.BackupDir(t.Context(), dir, into)
	for what, err := range map[string]error{"OpenDir": opened, "Verify": verified, "Repair": repaired,
		"BackupDir": copied} {
		if !errors.Is(err, holdfast.ErrUnavailable) || !strings.Contains(err.Error(), "rocks") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, err := os.ReadDir(at); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestNothingForNothing: a tool that fails makes nothing, not even the directories above the one that it should make,
// whatever is wrong with the source.
func TestNothingForNothing(t *testing.T) {
	at := t.TempDir()
	damaged := filepath.Join(at, "damaged.sqlite")
	try(t, os.WriteFile(damaged, append([]byte("SQLite format 3\x00"), bytes.Repeat([]byte("x"), 8192)...), 0o644))
	foreign := filepath.Join(at, "foreign")
	try(t, os.Mkdir(foreign, 0o755))
	source := filepath.Join(at, "source")
	pebble, err := all.Lookup("pebble")
	try(t, err)
	fill(t, pebble, source, holdfast.Power)
	ended, stop := context.WithCancel(t.Context())
	stop()
	into := filepath.Join(at, "x", "y", "z")
	for name, tool := range map[string]func(ctx context.Context, from string) error{
		"Copy": func(ctx context.Context, from string) error {
			_, err := all.Copy(ctx, from, into, all.CopyOptions{})
			return err
		},
		"Repair": func(ctx context.Context, from string) error {
			_, err := all.Repair(ctx, from, into)
			return err
		},
		"BackupDir": func(ctx context.Context, from string) error {
			_, err := all.BackupDir(ctx, from, into)
			return err
		},
		"CheckpointDir": func(ctx context.Context, from string) error { return all.CheckpointDir(ctx, from, into) },
	} {
		for _, c := range []struct {
			ctx  context.Context
			from string
		}{{t.Context(), filepath.Join(at, "nosuch")}, {t.Context(), foreign}, {t.Context(), damaged}, {ended, source}} {
			if err := tool(c.ctx, c.from); err == nil {
				t.Errorf("%s from %s: no error", name, c.from)
			}
			if _, err := os.Lstat(filepath.Join(at, "x")); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("%s from %s left something: %v", name, c.from, err)
			}
		}
	}
	try(t, os.MkdirAll(filepath.Join(at, "x", "y"), 0o755)) // another's
	_, err = all.Copy(t.Context(), damaged, into, all.CopyOptions{})
	if !errors.Is(err, holdfast.ErrCorrupt) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(into)); err != nil {
		t.Errorf("a directory that was there is gone: %v", err)
	}
}

// endsAfter is a context that has ended when it has been asked so many times.
type endsAfter struct {
	context.Context
	left atomic.Int64
}

func (e *endsAfter) Err() error {
	if e.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestCopyEndsAnywhere: a copy asks whether its context has ended for every key that it writes, compares and counts.
// Wherever that is, it stops, and leaves nothing.
func TestCopyEndsAnywhere(t *testing.T) {
	onDisk(t, func(t *testing.T, e all.Entry) {
		at := t.TempDir()
		dir, into := filepath.Join(at, "db"), filepath.Join(at, "into")
		fill(t, e, dir, holdfast.Power)
		keys := int64(len(contents(t, e.Name, dir)))
		for asks := int64(0); ; asks += 1 + night.Or(asks/3, asks) {
			ctx := &endsAfter{Context: t.Context()}
			ctx.left.Store(asks)
			_, err := all.Copy(ctx, dir, into, all.CopyOptions{Engine: e.Name})
			if err == nil {
				if asked := asks - ctx.left.Load(); asked < 3*keys {
					t.Errorf("%d keys were copied, and the context was asked %d times", keys, asked)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("ended when it was asked %d times: %v", asks, err)
			}
			if left, err := os.ReadDir(at); err != nil || len(left) != 1 {
				t.Fatalf("left: %v, %v", left, err)
			}
		}
	})
}
