package check

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/vfs"
)

// put commits one key at Power.
func put(t *testing.T, d *db.DB, key, value string) {
	t.Helper()
	var b holdfast.Batch
	b.Set([]byte(key), []byte(value))
	if err := commit(d, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
}

// flipIn flips a bit in the middle of the only place where text stands in the database, and returns the file.
func flipIn(t *testing.T, fsys *vfs.Mem, text string) (name string) {
	t.Helper()
	for _, n := range listAll(t, fsys) {
		b := readAll(t, fsys, n)
		if bytes.Count(b, []byte(text)) == 0 {
			continue
		}
		if name != "" || bytes.Count(b, []byte(text)) > 1 {
			t.Fatalf("%q stands in several places", text)
		}
		name = n
		if err := fsys.Flip(n, int64(bytes.Index(b, []byte(text))+len(text)/2), 0); err != nil {
			t.Fatal(err)
		}
	}
	if name == "" {
		t.Fatalf("%q stands nowhere", text)
	}
	return name
}

// TestStaleIsDoubtful: a key whose newer value is gone from the log has the old one in what is repaired, and the repair
// says that there can be such keys, and where the damage is. What was written later is there.
func TestStaleIsDoubtful(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed %v", closed), func(t *testing.T) {
			fsys := vfs.NewMem()
			if err := fsys.MkdirAll(smallDir); err != nil {
				t.Fatal(err)
			}
			c := testConfig(fsys, smallDir)
			c.Memory = 4 << 20 // nothing is flushed
			d, err := db.Open(c)
			if err != nil {
				t.Fatal(err)
			}
			put(t, d, "acct/alice", "OLD")
			for i := range 20 {
				put(t, d, fmt.Sprintf("a%02d", i), "early")
			}
			put(t, d, "acct/alice", "NEWVALUE")
			for i := range 20 {
				put(t, d, fmt.Sprintf("b%02d", i), "late")
			}
			left := fsys.Kill()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if closed {
				left = fsys
			}
			name := flipIn(t, left, "NEWVALUE")
			into := receiver{mem.New()}
			r, err := Repair(left, smallDir, into)
			if err != nil {
				t.Fatal(err)
			}
			got, err := contents(into)
			if err != nil || got["acct/alice"] != "OLD" || len(got) != 41 {
				t.Fatalf("%v, %v; %+v", err, got, r)
			}
			if r.Doubt == "" || r.LostKeys != 0 {
				t.Errorf("%d keys lost, doubt: %q", r.LostKeys, r.Doubt)
			}
			if len(r.Lost) != 1 || r.Lost[0].Path != name || r.Lost[0].Offset == 0 || r.Lost[0].Bytes == 0 ||
				len(r.Lost[0].Maybe) != 1 || string(r.Lost[0].Maybe[0]) != "acct/alice" {
				t.Errorf("what is lost is not said: %+v", r.Lost)
			}
		})
	}
}

// TestStaleInTables: where a table has the place of a key's newest value, the key is lost if that is damaged, and no
// older version of it comes back, wherever the value is: in the log's segments, or moved. A segment that is missing is
// no different, and no other key is in doubt.
func TestStaleInTables(t *testing.T) {
	sound, h := closedSmall(t)
	k, err := readDisk(sound, smallDir)
	if err != nil {
		t.Fatal(err)
	}
	roles := map[bool]int{}
	for _, s := range k.m.Segments {
		for _, damage := range []string{"flip", "deleted"} {
			fsys, p := sound.Clone(), k.parts[s.ID]
			damages[damage](t, fsys, p.name, "")
			r, got := repairSmall(t, fsys, h)
			if r.Doubt != "" {
				t.Errorf("%s %s: %s", damage, p.name, r.Doubt)
			}
			lost := map[string]bool{}
			for _, l := range r.Lost {
				lost[string(l.Key)] = l.Key != nil
			}
			for key, value := range h.want {
				if now, ok := got[key]; ok && now != value || ok == lost[key] {
					t.Errorf("%s %s: %q = %q %v, want %q; lost: %v", damage, p.name, key, now, ok, value, lost[key])
				}
			}
			for key := range got {
				if _, ok := h.want[key]; !ok {
					t.Errorf("%s %s: %q came back", damage, p.name, key)
				}
			}
			roles[p.moved()] += int(r.LostKeys)
		}
	}
	if roles[true] == 0 || roles[false] == 0 {
		t.Errorf("no value was lost: %v", roles)
	}
}

// random makes a database of a random history, closed or killed at the end. Every commit is at Power.
func random(t *testing.T, rnd *rand.Rand, closed bool) (*vfs.Mem, history) {
	t.Helper()
	fsys, h := vfs.NewMem(), history{ever: map[string]map[string]bool{}, want: map[string]string{}}
	if err := fsys.MkdirAll(smallDir); err != nil {
		t.Fatal(err)
	}
	keys, batches, most, length := 10+rnd.IntN(50), 20+rnd.IntN(200), 3, 40
	flushes := []int{3, 25, 100, 1000}[rnd.IntN(4)]
	if rnd.IntN(8) == 0 { // so much in so random an order that flushes move values
		keys, batches, most, length, flushes = 2000, 100, 16, 1500, 20
	}
	d, err := openSmall(fsys, true)
	if err != nil {
		t.Fatal(err)
	}
	var b holdfast.Batch
	for i := range batches {
		b.Reset()
		for range 1 + rnd.IntN(most) {
			key := fmt.Sprintf("k%02d", rnd.IntN(keys))
			switch n := rnd.IntN(20); {
			case n < 14:
				value := fmt.Sprintf("%d of %x", i, rnd.Uint64()) + strings.Repeat(".", rnd.IntN(length))
				b.Set([]byte(key), []byte(value))
				if h.ever[key] == nil {
					h.ever[key] = map[string]bool{}
				}
				h.ever[key][value], h.want[key] = true, value
			case n < 19:
				b.Delete([]byte(key))
				delete(h.want, key)
			default:
				hi := fmt.Sprintf("k%02d", rnd.IntN(keys))
				b.DeleteRange([]byte(key), []byte(hi))
				maps.DeleteFunc(h.want, func(k, _ string) bool { return k >= key && k < hi })
			}
		}
		if err := commit(d, &b, holdfast.Power); err != nil {
			t.Fatal(err)
		}
		if rnd.IntN(flushes) == 0 {
			work(t, d, rnd.IntN(5))
		}
		if rnd.IntN(60) == 0 { // the log goes on in another segment
			was := fsys
			if rnd.IntN(2) == 0 {
				fsys = fsys.Kill()
			}
			if err := d.Close(); err != nil {
				t.Fatal(was, err)
			}
			if d, err = openSmall(fsys, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := fsys.Kill()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if closed {
		left = fsys
	}
	return left, h
}

// checkDoubt repairs a damaged database and holds the result against what was there: a key is right, or it is named as
// lost, or there is doubt. It returns how many keys are wrong.
func checkDoubt(t *testing.T, what string, fsys *vfs.Mem, h history, closed bool) (r *Repaired, wrong int) {
	t.Helper()
	r, got := repairSmallAfter(t, fsys, h, closed)
	if !closed && r.TornBytes > 0 { // nothing behind it says that what was torn had been synced
		return r, 0
	}
	lost := map[string]bool{}
	for _, l := range r.Lost {
		lost[string(l.Key)] = l.Key != nil
	}
	for key, value := range got {
		if want, ok := h.want[key]; !ok || want != value {
			if wrong++; r.Doubt == "" {
				t.Errorf("%s: %q = %q, should be %q (%v); %+v", what, key, value, want, ok, r)
			}
		}
	}
	for key := range h.want {
		if _, ok := got[key]; ok == lost[key] && r.Doubt == "" {
			t.Errorf("%s: %q: there %v, named as lost %v", what, key, ok, lost[key])
		}
	}
	return r, wrong
}

// repairSmallAfter is repairSmall where a torn end may be missing.
func repairSmallAfter(t *testing.T, fsys *vfs.Mem, h history, closed bool) (*Repaired, map[string]string) {
	t.Helper()
	if closed {
		return repairSmall(t, fsys, h)
	}
	into := receiver{mem.New()}
	r, err := Repair(fsys, smallDir, into)
	if err != nil {
		t.Fatal(err)
	}
	got, err := contents(into)
	if err != nil {
		t.Fatal(err)
	}
	return r, got
}

// TestRandomDamageIsTold: whatever is damaged in databases with random histories, no key of the repaired one is
// wrong or missing without being named, unless the repair says that there is doubt.
func TestRandomDamageIsTold(t *testing.T) {
	t.Parallel()
	histories, each := night.Or(150, 40), 25
	if testing.Short() {
		histories = 15
	}
	repairs, whole, doubtful, wrong, flushed := 0, 0, 0, 0, 0
	for i := range histories {
		seed := *seed + uint64(i)
		rnd := rand.New(rand.NewPCG(seed, 2))
		closed := i%3 > 0
		sound, h := random(t, rnd, closed)
		in, err := Inspect(sound, smallDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range in.Segments {
			if s.Role == roleFlushed {
				flushed++
			}
		}
		if r, _ := checkDoubt(t, fmt.Sprintf("-check.seed=%d, closed %v, sound", seed, closed), sound, h,
			closed); !r.Complete() {
			t.Fatalf("-check.seed=%d, closed %v: sound, but %+v", seed, closed, r)
		}
		names := slices.DeleteFunc(listAll(t, sound), func(name string) bool {
			return filepath.Ext(name) == "" &&
				rnd.IntN(2) == 0
		})
		for range each {
			fsys, what := sound.Clone(), fmt.Sprintf("-check.seed=%d, closed %v", seed, closed)
			// Where the manifest is damaged too, nobody can tell that the log's last segment is missing, or ends early.
			names, bits := names, !closed
			if rnd.IntN(3) > 0 {
				names = slices.DeleteFunc(slices.Clone(names),
					func(name string) bool { return filepath.Base(name) == format.ManifestName })
			} else {
				bits = true
			}
			for range 1 + rnd.IntN(4) {
				name := names[rnd.IntN(len(names))]
				size, err := fsys.Size(name)
				if err != nil || size == 0 {
					continue
				}
				off := rnd.Int64N(size)
				switch kind := rnd.IntN(12); {
				case kind == 0 && !bits:
					what += ", without " + name
					if err := fsys.Remove(name); err != nil {
						t.Fatal(err)
					}
				case kind == 1 && !bits:
					what += fmt.Sprintf(", %s cut to %d", name, off)
					if err := fsys.CutFile(name, off); err != nil {
						t.Fatal(err)
					}
				case kind == 2 && !bits:
					what += fmt.Sprintf(", zeros from %d of %s", off, name)
					b := readAll(t, fsys, name)
					clear(b[off:min(off+200, size)])
					writeAll(t, fsys, name, b)
				default:
					what += fmt.Sprintf(", a bit of byte %d of %s", off, name)
					if err := fsys.Flip(name, off, rnd.IntN(8)); err != nil {
						t.Fatal(err)
					}
				}
			}
			r, n := checkDoubt(t, what, fsys, h, closed)
			repairs++
			wrong += n
			if r.Complete() {
				whole++
			} else if r.Doubt != "" {
				doubtful++
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d repairs, %d complete, %d doubtful; %d keys wrong; %d segments of flushes", repairs, whole, doubtful, wrong,
		flushed)
	if wrong == 0 || whole == 0 || whole+doubtful == repairs || flushed == 0 {
		t.Error("the damage was too simple")
	}
}

// TestGrossDamageIsTold does each kind of damage to each file, but to the last segment of a database that was
// killed: of that nothing tells how far it went.
func TestGrossDamageIsTold(t *testing.T) {
	wrong := 0
	for _, closed := range []bool{true, false} {
		sound, h := closedSmall(t)
		if !closed {
			sound, h = killedSmall(t)
		}
		in, err := Inspect(sound, smallDir)
		if err != nil {
			t.Fatal(err)
		}
		names := listAll(t, sound)
		for i, name := range names {
			if !closed && name == format.SegmentName(smallDir, in.Log.End.Segment) {
				continue
			}
			for kind, damage := range damages {
				other := names[(i+1)%len(names)]
				if kind == "swapped" && !closed && other == format.SegmentName(smallDir, in.Log.End.Segment) {
					continue
				}
				fsys := sound.Clone()
				damage(t, fsys, name, other)
				_, n := checkDoubt(t, fmt.Sprintf("closed %v, %s, %s", closed, name, kind), fsys, h, closed)
				wrong += n
			}
		}
	}
	if wrong == 0 {
		t.Error("the damage was too simple")
	}
}

// TestDamagedFrameIsNamed: what opening, Inspect and Verify say of a damaged frame with sound ones behind it does
// not read as if the file had been cut short.
func TestDamagedFrameIsNamed(t *testing.T) {
	for _, closed := range []bool{true, false} {
		fsys := vfs.NewMem()
		if err := fsys.MkdirAll(smallDir); err != nil {
			t.Fatal(err)
		}
		c := testConfig(fsys, smallDir)
		d, err := db.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		put(t, d, "before", "1")
		in, err := Inspect(fsys, smallDir)
		if err != nil {
			t.Fatal(err)
		}
		at := in.Log.End.Offset
		put(t, d, "key", "VALUE")
		put(t, d, "behind", "2")
		left := fsys.Kill()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if closed {
			left = fsys
		}
		name := flipIn(t, left, "VALUE")
		v, err := Verify(left, smallDir)
		if err != nil || len(v.Damage) != 1 {
			t.Fatal(err, v)
		}
		var e *holdfast.Error
		if !errors.As(v.Damage[0], &e) || e.Path != name || e.Offset != at ||
			!strings.Contains(e.Detail, "frame is damaged") || strings.Contains(e.Detail, "ends") {
			t.Errorf("closed %v: the frame at byte %d is damaged, but it is said: %v", closed, at, v.Damage[0])
		}
		c.FS, c.New = left, false
		if _, err := db.Open(c); err == nil || err.Error() != v.Damage[0].Error() {
			t.Errorf("closed %v: Open: %v", closed, err)
		}
	}
}

// TestSilentSegments: where a table is gone, what a segment held that tells nothing any more is missing, and the
// repair says so.
func TestSilentSegments(t *testing.T) {
	sound, h := closedSmall(t)
	k, err := readDisk(sound, smallDir)
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, id := range k.tableIDs {
		for _, s := range k.m.Segments {
			for _, harm := range []func(*vfs.Mem, string) error{
				func(fsys *vfs.Mem, name string) error { return fsys.Remove(name) },
				func(fsys *vfs.Mem, name string) error {
					b := readAll(t, fsys, name)
					clear(b[:min(format.SegmentHeaderSize+format.BeginSize, len(b))])
					writeAll(t, fsys, name, b)
					return nil
				},
			} {
				fsys := sound.Clone()
				err := errors.Join(fsys.Remove(format.TableName(smallDir, id)), harm(fsys, format.SegmentName(smallDir, s.ID)))
				if err != nil {
					t.Fatal(err)
				}
				r, got := repairSmall(t, fsys, h)
				missing := int64(0)
				for key := range h.want {
					if _, ok := got[key]; !ok {
						missing++
					}
				}
				if missing > 0 {
					lost++
				}
				if missing > r.LostKeys && r.Doubt == "" {
					t.Errorf("table %d and segment %d: %d keys are missing: %+v", id, s.ID, missing, r)
				}
			}
		}
	}
	if lost == 0 {
		t.Error("nothing was lost")
	}
}
