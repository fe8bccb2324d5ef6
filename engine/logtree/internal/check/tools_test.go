package check

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/vfs"
)

// The tests of the tools, and those of damage, use one small database.
const smallDir = "/db"

var seed = flag.Uint64("check.seed", 1, "first seed of the random histories")

// testConfig opens small files in dir, and does no work by itself.
func testConfig(fsys vfs.FS, dir string) db.Config {
	return db.Config{FS: fsys, Dir: dir, New: true, ID: [16]byte{1, 2, 3}, Memory: 64 << 10,
		Logger: slog.New(slog.DiscardHandler), SyncEvery: -1, Manual: true}
}

// commit applies b and waits.
func commit(d *db.DB, b *holdfast.Batch, level holdfast.Level) error {
	r, err := d.Apply(b, level)
	if err != nil {
		return err
	}
	return r.Wait()
}

// work flushes, and does so many steps of the other work.
func work(t testing.TB, d *db.DB, steps int) {
	t.Helper()
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Work(steps); err != nil {
		t.Fatal(err)
	}
}

// contents is what a reader shows.
func contents(r holdfast.Reader) (map[string]string, error) {
	all := map[string]string{}
	it := r.Scan(holdfast.Range{})
	defer it.Close()
	for it.Next() {
		all[string(it.Key())] = string(it.Value())
	}
	return all, it.Err()
}

// history is what was done to a database.
type history struct {
	want   map[string]string          // in the end
	states []map[string]string        // before each batch of the tail, and after the last
	ever   map[string]map[string]bool // the values that a key had at any time
}

// small makes a database of a few KiB on fsys that has everything: several tiers, a table that is cut, moved
// values, segments that the log has left behind, and a tail of several segments.
func small(t testing.TB, fsys vfs.FS) (*db.DB, history) {
	t.Helper()
	if err := fsys.MkdirAll(smallDir); err != nil {
		t.Fatal(err)
	}
	d, err := openSmall(fsys, true)
	if err != nil {
		t.Fatal(err)
	}
	h := history{ever: map[string]map[string]bool{}}
	model := mem.New()
	rnd := rand.New(rand.NewPCG(7, 7))
	var b holdfast.Batch
	write := func(fill func()) {
		b.Reset()
		fill()
		if err := errors.Join(commit(d, &b, holdfast.Power), holdfast.Commit(model, &b, holdfast.Memory)); err != nil {
			t.Fatal(err)
		}
	}
	set := func(key string, i int) {
		value := fmt.Sprintf("value %d %x", i, rnd.Uint64())
		b.Set([]byte(key), []byte(value))
		if h.ever[key] == nil {
			h.ever[key] = map[string]bool{}
		}
		h.ever[key][value] = true
	}
	flush := func() {
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	state := func() map[string]string {
		all, err := contents(model)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for i := range 100 {
		write(func() {
			set(fmt.Sprintf("k%02d", i%12), i)
			set(fmt.Sprintf("log/%04d", i), i)
		})
	}
	flush()
	for _, lo := range []string{"log/0010", "log/0005"} {
		if _, err := d.Work(100); err != nil {
			t.Fatal(err)
		}
		write(func() { b.DeleteRange([]byte(lo), []byte("log/0022")) })
		write(func() { b.Delete([]byte("k03")) })
		flush()
	}
	for i := range 4 {
		write(func() { set(fmt.Sprintf("k%02d", i), 100+i) })
	}
	flush()
	for i := range 40 {
		h.states = append(h.states, state())
		write(func() {
			set(fmt.Sprintf("k%02d", i%3), 200+i)
			if i%5 == 0 {
				b.Delete(fmt.Appendf(nil, "log/%04d", 30+i/5))
			}
			if i == 20 {
				b.DeleteRange([]byte("log/0050"), nil)
			}
		})
	}
	h.want = state()
	h.states = append(h.states, h.want)
	return d, h
}

// openSmall opens it with tiny files.
func openSmall(fsys vfs.FS, create bool) (*db.DB, error) {
	c := testConfig(fsys, smallDir)
	c.New, c.Sizes = create, db.Sizes{Memtable: 256 << 10, Segment: 1 << 10, Table: 1 << 10}
	return db.Open(c)
}

// closedSmall is a small database that was closed, killedSmall one as kill -9 leaves it.
func closedSmall(t testing.TB) (*vfs.Mem, history) {
	t.Helper()
	fsys := vfs.NewMem()
	d, h := small(t, fsys)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys, h
}

func killedSmall(t testing.TB) (*vfs.Mem, history) {
	t.Helper()
	fsys := vfs.NewMem()
	d, h := small(t, fsys)
	left := fsys.Kill()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return left, h
}

// readSmall opens it and reads everything, by scan and by key.
func readSmall(fsys vfs.FS) (map[string]string, error) { return readOpened(openSmall(fsys, false)) }

// readBoth opens it for reading only before it does what readSmall does. Both must show the same.
func readBoth(fsys vfs.FS) (map[string]string, error) {
	c := testConfig(fsys, smallDir)
	c.New, c.ReadOnly, c.Sizes = false, true, db.Sizes{Memtable: 256 << 10}
	shown, early := readOpened(db.Open(c))
	found, err := readSmall(fsys)
	if (early == nil) != (err == nil) || isDamage(early) != isDamage(err) {
		return found, fmt.Errorf("opened for reading: %v, for writing: %v", early, err)
	}
	if err == nil && !maps.Equal(shown, found) {
		return found, fmt.Errorf("opened for reading and for writing: %s", difference(shown, found))
	}
	return found, err
}

func readOpened(d *db.DB, err error) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	all, err := contents(d)
	for key, value := range all {
		got, e := d.Get(nil, []byte(key))
		if e == nil && string(got) != value {
			e = fmt.Errorf("Get(%q) is %q, a scan shows %q", key, got, value)
		}
		err = errors.Join(err, e)
	}
	return all, errors.Join(err, d.Close())
}

// TestSmallHasEverything makes sure that the other tests meet all kinds of files.
func TestSmallHasEverything(t *testing.T) {
	fsys, h := closedSmall(t)
	in, err := Inspect(fsys, smallDir)
	if err != nil || len(in.Damage) > 0 {
		t.Fatal(err, in)
	}
	roles, bytes := map[string]int{}, int64(0)
	for _, f := range in.Files {
		roles[f.Role]++
		bytes += f.Bytes
	}
	cut := false
	for _, tier := range in.Manifest.Tiers {
		for _, r := range tier.Refs {
			cut = cut || len(r.Lo) > 0 || len(r.Hi) > 0
		}
	}
	t.Logf("%d bytes, %v, %d tiers, %d keys, log %+v", bytes, roles, len(in.Manifest.Tiers), len(h.want), in.Log)
	if !cut || roles[roleMoved] == 0 || roles[roleOldLog] == 0 || len(in.Manifest.Tiers) < 2 ||
		len(in.Log.Segments) < 2 || roles[roleTable] < 3 {
		t.Errorf("%v; cut: %v", roles, cut)
	}
	var garbage float64
	for _, s := range in.Segments {
		garbage = max(garbage, s.Garbage)
		if s.Used > s.Bytes || s.Payload > s.Used || s.Payload > 0 && s.Live > s.Payload {
			t.Errorf("%+v", s)
		}
	}
	if garbage == 0 {
		t.Error("no segment has garbage")
	}
}

// receiver takes what is repaired.
type receiver struct{ holdfast.Engine }

func (receiver) Sync() error { return nil }

// repairSmall repairs it, and checks that nothing is wrong: that each value was its key's once, and all is as
// it was, if the repair says so.
func repairSmall(t *testing.T, fsys vfs.FS, h history) (*Repaired, map[string]string) {
	t.Helper()
	into := receiver{mem.New()}
	r, err := Repair(fsys, smallDir, into)
	if err != nil {
		t.Fatal(err)
	}
	got, err := contents(into)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range got {
		if !h.ever[key][value] {
			t.Fatalf("%q = %q, which it never was", key, value)
		}
	}
	if r.Complete() && !maps.Equal(got, h.want) {
		t.Fatalf("the repair says that it is complete, but %s", difference(got, h.want))
	}
	if r.Keys != int64(len(got)) {
		t.Fatalf("%d keys, not %d", r.Keys, len(got))
	}
	return r, got
}

// difference says where two differ.
func difference(got, want map[string]string) string {
	return commits.Difference(commits.StateOf(got), commits.StateOf(want))
}

// TestVerifyAndRepairClean: in a sound database nothing is damaged, and a repair is a copy.
func TestVerifyAndRepairClean(t *testing.T) {
	for name, make := range map[string]func(testing.TB) (*vfs.Mem, history){"closed": closedSmall, "killed": killedSmall} {
		t.Run(name, func(t *testing.T) {
			fsys, h := make(t)
			v, err := Verify(fsys, smallDir)
			if err != nil || len(v.Damage) > 0 {
				t.Fatal(err, v.Damage)
			}
			if v.Tables < 3 || v.Values < 20 || v.Frames < 60 || v.Batches < 50 || v.Segments < 6 {
				t.Errorf("too little was checked: %+v", v)
			}
			r, got := repairSmall(t, fsys, h)
			if !r.Complete() || !maps.Equal(got, h.want) {
				t.Errorf("%+v: %s", r, difference(got, h.want))
			}
			if _, err := Inspect(fsys, smallDir); err != nil {
				t.Error(err)
			}
			fsys.SetHook(func(op vfs.Op) error {
				if op.Kind.Mutates() && op.Kind != vfs.OpOpen {
					t.Errorf("%v changes the directory", op)
				}
				return nil
			})
			for _, look := range []func() error{
				func() error { _, err := Inspect(fsys, smallDir); return err },
				func() error { _, err := Verify(fsys, smallDir); return err },
				func() error { _, err := Repair(fsys, smallDir, receiver{mem.New()}); return err },
				func() error {
					c := testConfig(fsys, smallDir)
					c.ReadOnly, c.Sizes = true, db.Sizes{Memtable: 2 << 10} // a replay fills many memtables
					got, err := readOpened(db.Open(c))
					if err == nil && !maps.Equal(got, h.want) {
						t.Errorf("opened for reading: %s", difference(got, h.want))
					}
					return err
				},
			} {
				if err := look(); err != nil {
					t.Error(err)
				}
			}
			fsys.SetHook(nil)
			if got, err := readSmall(fsys); err != nil || !maps.Equal(got, h.want) {
				t.Errorf("%v: %s", err, difference(got, h.want))
			}
		})
	}
}

// TestShortageIsNoDamage: a file that cannot be opened or read since the process is short of something, as of file
// descriptors, is not damaged. The tools once said so, of the manifest too, and a repair then took old values.
func TestShortageIsNoDamage(t *testing.T) {
	for name, make := range map[string]func(testing.TB) (*vfs.Mem, history){"closed": closedSmall, "killed": killedSmall} {
		fsys, h := make(t)
		looks := map[string]func() (damage any, n int, err error){
			"inspect": func() (any, int, error) {
				in, err := Inspect(fsys, smallDir)
				if err != nil {
					return nil, 0, err
				}
				return in.Damage, len(in.Damage), nil
			},
			"verify": func() (any, int, error) {
				v, err := Verify(fsys, smallDir)
				if err != nil {
					return nil, 0, err
				}
				return v.Damage, len(v.Damage), nil
			},
			"repair": func() (any, int, error) {
				into := receiver{mem.New()}
				r, err := Repair(fsys, smallDir, into)
				if err != nil {
					return nil, 0, err
				}
				got, err := contents(into)
				if err == nil && r.Complete() && !maps.Equal(got, h.want) {
					t.Errorf("%s, repair: %s", name, difference(got, h.want))
				}
				return r, len(r.Lost) + len(r.Doubt), err
			},
			"open": func() (any, int, error) {
				c := testConfig(fsys, smallDir)
				c.ReadOnly = true
				_, err := readOpened(db.Open(c))
				return nil, 0, err
			},
		}
		for what, look := range looks {
			for _, kind := range []vfs.Kind{vfs.OpOpen, vfs.OpRead} {
				failed := true
				for skip := 0; failed; skip++ { // from the first to the last, one after the other, and the one behind it
					n := 0
					fsys.SetHook(func(op vfs.Op) error {
						if op.Kind != kind {
							return nil
						}
						if n++; n > skip && n <= skip+2 { // a set of open files tries twice
							return syscall.EMFILE
						}
						return nil
					})
					damage, bad, err := look()
					if failed = n > skip; bad > 0 || errors.Is(err, holdfast.ErrCorrupt) {
						t.Fatalf("%s, %s: without file descriptors for %v %d: %v, %v", name, what, kind, skip, err, damage)
					}
					if !failed && err != nil {
						t.Errorf("%s, %s: %v", name, what, err)
					}
					fsys.SetHook(nil)
				}
			}
		}
	}
}

// vanishing is a file system on which a file is removed once the directory has been listed.
type vanishing struct {
	*vfs.Mem
	name string
}

func (v vanishing) Open(name string) (vfs.File, error) {
	if name == v.name {
		return nil, fs.ErrNotExist
	}
	return v.Mem.Open(name)
}

func (v vanishing) Size(name string) (int64, error) {
	if name == v.name {
		return 0, fs.ErrNotExist
	}
	return v.Mem.Size(name)
}

// TestInspectBesideWriter: an open database may remove any of its files while it is inspected. Inspect once panicked if
// that was a segment.
func TestInspectBesideWriter(t *testing.T) {
	fsys, _ := killedSmall(t)
	names, err := fsys.List(smallDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		in, err := Inspect(vanishing{fsys, filepath.Join(smallDir, name)}, smallDir)
		if err != nil {
			t.Errorf("without %s: %v", name, err)
		} else if len(in.Files) != len(names) {
			t.Errorf("without %s: %d files", name, len(in.Files))
		}
	}
}
