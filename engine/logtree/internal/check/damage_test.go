package check

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
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

func readAll(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// writeAll replaces a file.
func writeAll(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	f, err := fsys.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func listAll(t testing.TB, fsys vfs.FS) (names []string) {
	t.Helper()
	list, err := fsys.List(smallDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range list {
		names = append(names, filepath.Join(smallDir, name))
	}
	return names
}

// isDamage reports whether an error is one that damage may be answered with.
func isDamage(err error) bool {
	return errors.Is(err, holdfast.ErrCorrupt) || errors.Is(err, holdfast.ErrVersion) ||
		errors.Is(err, holdfast.ErrForeign)
}

// TestEveryByteFlipped changes each byte of each file in turn, by day every third. Reading everything then gives the
// right answer or an error that says what it is, and in that case Verify finds something; a repair makes nothing up.
// Where the database was not closed, damage to the very last commit is as if it had been torn.
func TestEveryByteFlipped(t *testing.T) {
	t.Parallel()
	closed, h := closedSmall(t)
	killed, _ := killedSmall(t)
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		testEveryByte(t, closed, h, 0, func(string) int { return 1 })
	})
	t.Run("killed", func(t *testing.T) {
		t.Parallel()
		testEveryByte(t, killed, h, 1, func(name string) int {
			if _, err := closed.Size(name); err == nil && bytes.Equal(readAll(t, killed, name), readAll(t, closed, name)) {
				return 7 // the closed database has this file too
			}
			return 1
		})
	})
}

// testEveryByte changes every byte of sound, or each of so many bytes of a file as step says. So many of the last
// batches may be missing then.
func testEveryByte(t *testing.T, sound *vfs.Mem, h history, torn int, step func(name string) int) {
	rnd := rand.New(rand.NewPCG(*seed, 1))
	flips, refused, found, repaired, complete := 0, 0, 0, 0, 0
	for _, name := range listAll(t, sound) {
		step := step(name)
		if testing.Short() { // the race detector makes it slow, and there is one goroutine
			step = 17
		} else if !night.Is() {
			step *= 3
		}
		size, err := sound.Size(name)
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(rnd.IntN(step)); off < size; off += int64(step) {
			fsys, bit := sound.Clone(), rnd.IntN(8)
			if err := fsys.Flip(name, off, bit); err != nil {
				t.Fatal(err)
			}
			flips++
			v, err := Verify(fsys, smallDir)
			damaged := err != nil || len(v.Damage) > 0
			if damaged {
				found++
			}
			if off%5 == 0 { // takes longest
				r, err := Repair(fsys, smallDir, receiver{mem.New()})
				if err != nil {
					t.Fatal(err)
				}
				if repaired++; r.Complete() {
					complete++
				}
				if r.TornBytes == 0 {
					repairSmall(t, fsys, h)
				}
			}
			read := readSmall
			if off%5 == 0 {
				read = readBoth
			}
			got, err := read(fsys)
			if err != nil {
				if refused++; !isDamage(err) || !damaged {
					t.Fatalf("bit %d of byte %d of %s: %v; Verify: %v", bit, off, name, err, damaged)
				}
				continue
			}
			if !slices.ContainsFunc(h.states[len(h.states)-1-torn:],
				func(s map[string]string) bool { return maps.Equal(got, s) }) {
				t.Fatalf("bit %d of byte %d of %s: %s", bit, off, name, difference(got, h.want))
			}
		}
	}
	t.Logf("%d flips: %d refused, %d found by Verify; %d of %d repairs complete", flips, refused, found, complete,
		repaired)
	if refused < flips/4 || found < refused {
		t.Error("too little was found")
	}
}

// TestLastFrameFlipped changes each bit of what a killed database wrote last. That may look like a frame that was torn,
// but then the report says so: what is not there and was not torn has been lost.
func TestLastFrameFlipped(t *testing.T) {
	t.Parallel()
	sound, h := killedSmall(t)
	in, err := Inspect(sound, smallDir)
	if err != nil {
		t.Fatal(err)
	}
	name, torn := format.SegmentName(smallDir, in.Log.End.Segment), 0
	for off := in.Log.End.Offset - 48; off < in.Log.End.Offset; off++ {
		for bit := range 8 {
			fsys := sound.Clone()
			if err := fsys.Flip(name, off, bit); err != nil {
				t.Fatal(err)
			}
			v, err := Verify(fsys, smallDir)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readSmall(fsys)
			if err == nil && !maps.Equal(got, h.want) {
				if torn++; v.TornBytes == 0 {
					t.Errorf("bit %d of byte %d: nothing was torn, but %s", bit, off, difference(got, h.want))
				}
			}
		}
	}
	if torn == 0 {
		t.Error("no flip looked like a torn frame")
	}
}

// TestTailCutAtEveryByte cuts the last segment of a killed database at each length: what is then read is a prefix
// of what was committed, or the damage is named.
func TestTailCutAtEveryByte(t *testing.T) {
	t.Parallel()
	sound, h := killedSmall(t)
	k, err := readDisk(sound, smallDir)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := k.tail(nil)
	if err != nil {
		t.Fatal(err)
	}
	first, seen := tail.Segments[0].ID, map[int]bool{}
	for _, s := range tail.Segments {
		id, p := s.ID, k.parts[s.ID]
		for size := range p.size {
			fsys := sound.Clone()
			if err := fsys.CutFile(p.name, size); err != nil {
				t.Fatal(err)
			}
			v, err := Verify(fsys, smallDir)
			damaged := err != nil || len(v.Damage) > 0
			got, err := readBoth(fsys)
			if err != nil {
				if !isDamage(err) || !damaged {
					t.Fatalf("segment %d, the %dth, cut at %d: %v; Verify: %v", id, id-first, size, err, damaged)
				}
				continue
			}
			i := slices.IndexFunc(h.states, func(s map[string]string) bool { return maps.Equal(s, got) })
			if i < 0 || damaged {
				t.Fatalf("segment %d cut at %d: prefix %d; Verify: %v; %s", id, size, i, v.Damage, difference(got, h.want))
			}
			seen[i] = true
		}
	}
	if len(seen) < 5 || !seen[len(h.states)-1] {
		t.Errorf("only prefixes %v were seen", seen)
	}
}

// damages are what can happen to a file. other is one of the same kind.
var damages = map[string]func(t *testing.T, fsys *vfs.Mem, name, other string){
	"flip": func(t *testing.T, fsys *vfs.Mem, name, _ string) {
		b := readAll(t, fsys, name)
		b[len(b)/3] ^= 4
		writeAll(t, fsys, name, b)
	},
	"first sector": func(t *testing.T, fsys *vfs.Mem, name, _ string) {
		b := readAll(t, fsys, name)
		clear(b[:min(512, len(b))])
		writeAll(t, fsys, name, b)
	},
	"second sector": func(t *testing.T, fsys *vfs.Mem, name, _ string) {
		b := readAll(t, fsys, name)
		clear(b[min(512, len(b)-50):min(1024, len(b))])
		writeAll(t, fsys, name, b)
	},
	"cut": func(t *testing.T, fsys *vfs.Mem, name, _ string) {
		b := readAll(t, fsys, name)
		writeAll(t, fsys, name, b[:len(b)/2])
	},
	"emptied": func(t *testing.T, fsys *vfs.Mem, name, _ string) { writeAll(t, fsys, name, nil) },
	"deleted": func(t *testing.T, fsys *vfs.Mem, name, _ string) {
		if err := fsys.Remove(name); err != nil {
			t.Fatal(err)
		}
	},
	"swapped": func(t *testing.T, fsys *vfs.Mem, name, other string) {
		a, b := readAll(t, fsys, name), readAll(t, fsys, other)
		writeAll(t, fsys, name, b)
		writeAll(t, fsys, other, a)
	},
	"foreign": func(t *testing.T, fsys *vfs.Mem, name, _ string) {
		writeAll(t, fsys, name, []byte("To whom it may concern: this is a letter."))
	},
}

// TestDamage does each kind of damage to a file of each kind: opening never gives a wrong answer, Verify finds it,
// and a repair salvages what does not depend on it.
func TestDamage(t *testing.T) {
	for state, make := range map[string]func(testing.TB) (*vfs.Mem, history){"closed": closedSmall,
		"killed": killedSmall} {
		sound, h := make(t)
		in, err := Inspect(sound, smallDir)
		if err != nil {
			t.Fatal(err)
		}
		byRole := map[string][]string{}
		for _, f := range in.Files {
			if f.Role == roleLog && slices.Contains(in.Log.Segments, in.Log.End.Segment) &&
				f.Name == filepath.Base(format.SegmentName("", in.Log.End.Segment)) {
				f.Role = "log's end"
			}
			if f.Role != roleLeft {
				byRole[f.Role] = append(byRole[f.Role], filepath.Join(smallDir, f.Name))
			}
		}
		all := slices.Concat(slices.Collect(maps.Values(byRole))...)
		slices.Sort(all)
		for role, names := range byRole {
			for kind, damage := range damages {
				for i, name := range names {
					t.Run(state+"/"+role+"/"+kind+"/"+filepath.Base(name), func(t *testing.T) {
						fsys := sound.Clone()
						other := names[(i+1)%len(names)]
						if other == name {
							other = all[(slices.Index(all, name)+1)%len(all)]
						}
						damage(t, fsys, name, other)
						v, err := Verify(fsys, smallDir)
						if err != nil {
							t.Fatal(err)
						}
						got, err := readBoth(fsys)
						switch {
						case err != nil && !isDamage(err):
							t.Error(err)
						case err != nil && len(v.Damage) == 0:
							t.Errorf("Verify finds nothing, but %v", err)
						case err == nil && !slices.ContainsFunc(h.states, func(s map[string]string) bool { return maps.Equal(got, s) }):
							t.Error(difference(got, h.want))
						case err == nil && state == "closed" && !maps.Equal(got, h.want):
							t.Error(difference(got, h.want))
						}
						if err == nil && len(v.Damage) > 0 && role == "log's end" {
							t.Errorf("opening is content, but Verify finds %v", v.Damage)
						}
						for _, d := range v.Damage {
							if !isDamage(d) {
								t.Error(d)
							}
						}
						if len(v.Damage) == 0 { // a tail that was torn
							if role != "log's end" || state == "closed" {
								t.Error("Verify finds nothing")
							}
							return
						}
						r, salvaged := repairSmall(t, fsys, h)
						right, wrong := 0, 0
						for key, value := range salvaged {
							if h.want[key] == value {
								right++
							} else {
								wrong++
							}
						}
						t.Logf("%d of %d keys right, %d wrong; lost %v, doubt: %s", right, len(h.want), wrong, r.Lost, r.Doubt)
						least := len(h.want) / 2
						if kind == "swapped" { // that are two files of few
							least = len(h.want) / 3
						}
						if right < least {
							t.Errorf("of %d keys only %d were salvaged; %+v", len(h.want), right, r)
						}
						if wrong > 0 && r.Doubt == "" && r.TornBytes == 0 {
							t.Errorf("%d keys are wrong, and there is no doubt", wrong)
						}
					})
				}
			}
		}
	}
}

// TestRepairWithoutIndex takes away tables, or the manifest, of databases with random histories whose segments
// have been reclaimed many times. The log alone still has every key; what it cannot tell, deletes that are gone above
// all, is in doubt.
func TestRepairWithoutIndex(t *testing.T) {
	t.Parallel()
	right, wrong := 0, 0
	for i := range uint64(60) {
		seed := *seed + 99 + i
		fsys, h := random(t, rand.New(rand.NewPCG(seed, 1)), true)
		if v, err := Verify(fsys, smallDir); err != nil || len(v.Damage) > 0 {
			t.Fatalf("history %d: sound, but %v %v", seed, err, v.Damage)
		}
		for _, name := range listAll(t, fsys) {
			if filepath.Ext(name) == ".seg" {
				continue
			}
			broken := fsys.Clone()
			if err := broken.Remove(name); err != nil {
				t.Fatal(err)
			}
			r, got := repairSmall(t, broken, h)
			if r.Doubt == "" {
				t.Fatalf("history %d without %s: no doubt: %+v", seed, name, r)
			}
			for key, value := range h.want {
				if _, ok := got[key]; !ok {
					t.Fatalf("history %d without %s: %q = %q is lost, and in the log", seed, name, key, value)
				}
			}
			for key, value := range got {
				if h.want[key] == value {
					right++
				} else {
					wrong++
				}
			}
		}
	}
	t.Logf("%d keys right, %d wrong", right, wrong)
	if *seed == 1 && (wrong == 0 || wrong > right/10) {
		t.Error("the histories were too simple, or too much is wrong")
	}
}

// TestNewerVersions: files of a later format are told from damaged ones.
func TestNewerVersions(t *testing.T) {
	sound, _ := closedSmall(t)
	in, err := Inspect(sound, smallDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range in.Files {
		name := filepath.Join(smallDir, f.Name)
		b := readAll(t, sound, name)
		b[8]++ // all kinds have the version there
		switch f.Role {
		case roleManifest:
			binary.LittleEndian.PutUint32(b[16:], format.UpdateChecksum(format.Checksum(b[:16]), b[format.ManifestHeader:]))
		default: // headers end with their checksum
			binary.LittleEndian.PutUint32(b[60:], format.Checksum(b[:60]))
		}
		fsys := sound.Clone()
		writeAll(t, fsys, name, b)
		if _, err := readSmall(fsys); !errors.Is(err, holdfast.ErrVersion) {
			t.Errorf("%s: %v", f.Name, err)
		}
		v, err := Verify(fsys, smallDir)
		switch {
		case f.Role == roleManifest && errors.Is(err, holdfast.ErrVersion):
		case f.Role != roleManifest && err == nil && slices.ContainsFunc(v.Damage,
			func(err error) bool { return errors.Is(err, holdfast.ErrVersion) }):
		default:
			t.Errorf("Verify of %s: %v, %+v", f.Name, err, v)
		}
		if _, err := Repair(fsys, smallDir, receiver{mem.New()}); f.Role == roleManifest &&
			!errors.Is(err, holdfast.ErrVersion) {
			t.Errorf("Repair of %s: %v", f.Name, err)
		}
	}
}

// TestAllDamageIsReported: Verify does not stop at the first damage.
func TestAllDamageIsReported(t *testing.T) {
	fsys, _ := closedSmall(t)
	names := listAll(t, fsys)
	for _, name := range names {
		if filepath.Ext(name) == ".seg" || filepath.Ext(name) == ".run" {
			b := readAll(t, fsys, name)
			b[len(b)/2] ^= 1
			writeAll(t, fsys, name, b)
		}
	}
	v, err := Verify(fsys, smallDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if filepath.Ext(name) != "" && !slices.ContainsFunc(v.Damage, func(err error) bool {
			var e *holdfast.Error
			return errors.As(err, &e) && e.Path == name
		}) {
			t.Errorf("nothing is said of %s: %v", name, v.Damage)
		}
	}
}

// TestDamagedValueBehindDamagedBlock: a value whose place stands behind the damaged first block of its table is
// checked all the same.
func TestDamagedValueBehindDamagedBlock(t *testing.T) {
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll(smallDir); err != nil {
		t.Fatal(err)
	}
	c := testConfig(fsys, smallDir)
	c.New, c.Sizes = true, db.Sizes{Memtable: 1 << 20, Segment: 1 << 20, Table: 1 << 20}
	d, err := db.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		put(t, d, fmt.Sprintf("key/%06d", i), fmt.Sprintf("value %d.", i))
	}
	if err := errors.Join(d.Flush(), d.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range listAll(t, fsys) {
		if filepath.Ext(name) == ".run" {
			b := readAll(t, fsys, name)
			b[100] ^= 1
			writeAll(t, fsys, name, b)
		}
	}
	flipIn(t, fsys, "value 1990.")
	v, err := Verify(fsys, smallDir)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(v.Damage, func(err error) bool { return strings.Contains(err.Error(), "key/001990") }) {
		t.Errorf("%d entries were read, and of the value nothing is said: %v", v.Entries, v.Damage)
	}
	r, err := Repair(fsys, smallDir, receiver{mem.New()})
	if err != nil {
		t.Fatal(err)
	}
	const keys = `it may have had any keys from "key/000000" on before "key/0`
	if !slices.ContainsFunc(v.Damage, func(err error) bool { return strings.Contains(err.Error(), keys) }) ||
		!slices.ContainsFunc(r.Lost, func(l Loss) bool { return strings.Contains(l.Why, keys) }) {
		t.Errorf("of the keys in the block nothing is said: %v; %+v", v.Damage, r.Lost)
	}
}
