package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/raftlog"
	"github.com/holdfastdb/holdfast/vfs"
)

// content is what a source says it holds.
type content struct {
	logs []*raft.Log
	keys []stableKey
	Result
}

// readSource reads all of a source as an import does.
func readSource(t testing.TB, path string, o Options) (c content, err error) {
	t.Helper()
	scratch, err := os.MkdirTemp("", "holdfast-test-*")
	ok(t, err)
	s := source{path: path, scratch: scratch}
	defer func() { ok(t, s.close()) }()
	if err = s.open(&o, func(int64, int64) error { return nil }); err == nil {
		err = s.walk(func(log *raft.Log) error {
			c.logs = append(c.logs, log)
			return nil
		})
	}
	c.keys, c.Result = s.keys, s.result
	return c, err
}

// differences counts the entries and stable keys in which two contents differ; many if they do not have the same
// indexes.
func differences(a, b content) (n int) {
	if len(a.logs) != len(b.logs) || len(a.keys) != len(b.keys) {
		return 1 << 20
	}
	for i := range a.logs {
		switch different(a.logs[i], b.logs[i]) {
		case "Index":
			return 1 << 20
		case "":
		default:
			n++
		}
	}
	for i := range a.keys {
		if !bytes.Equal(a.keys[i].name, b.keys[i].name) || !bytes.Equal(a.keys[i].value, b.keys[i].value) {
			n++
		}
	}
	return n
}

func damaged(err error) bool {
	return errors.Is(err, holdfast.ErrCorrupt) || errors.Is(err, holdfast.ErrForeign) ||
		errors.Is(err, holdfast.ErrVersion)
}

// flips calls f with one bit flipped, at n places of a file.
func flips(t *testing.T, rnd *rand.Rand, name string, n int, f func(what string)) {
	t.Helper()
	b, err := os.ReadFile(name)
	ok(t, err)
	used := min(usedBytes(t, name)+64, int64(len(b)))
	for range n {
		at, bit := rnd.Int64N(used), rnd.IntN(8)
		b[at] ^= 1 << bit
		ok(t, os.WriteFile(name, b, 0o600))
		f(fmt.Sprintf("%s, byte %d, bit %d", filepath.Base(name), at, bit))
		b[at] ^= 1 << bit
	}
	ok(t, os.WriteFile(name, b, 0o600))
}

// usedBytes is how long a file is without the zeros at its end, in whole frames.
func usedBytes(t testing.TB, name string) int64 {
	b, err := os.ReadFile(name)
	ok(t, err)
	return int64(len(bytes.TrimRight(b, "\x00"))+7) &^ 7
}

func segments(t testing.TB, path string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(path, "*.wal"))
	ok(t, err)
	return names
}

// TestDamagedBolt flips bits all over a raft-boltdb file. The format has no checksums: a bit inside an entry can turn
// it into another plausible one. What must not happen is that an entry is lost or moved, or that two are wrong.
func TestDamagedBolt(t *testing.T) {
	for _, newTimes := range []bool{false, true} {
		rnd := rand.New(rand.NewPCG(3, 5))
		path := makeBolt(t, newTimes, func(to both) {
			list := logs(rnd, 1, 150)
			list[70].Data = bytesOf(rnd, 20000)
			store(t, rnd, to, list)
			votes(t, to, 7)
			ok(t, to.DeleteRange(1, 30))
			ok(t, to.DeleteRange(140, 150))
		})
		whole, err := readSource(t, path, Options{})
		ok(t, err)
		if len(whole.logs) != 109 {
			t.Fatalf("%d entries", len(whole.logs))
		}
		found, exact, other := 0, 0, 0
		check := func(what string) {
			got, err := readSource(t, path, Options{})
			switch {
			case err != nil && !damaged(err):
				t.Errorf("%s: %v", what, err)
			case err != nil:
				found++
			case differences(whole, got) > 1:
				t.Errorf("%s: %d differences", what, differences(whole, got))
			case differences(whole, got) == 1:
				other++
			default:
				exact++
			}
		}
		flips(t, rnd, path, 250, check)
		t.Logf("one bit: %d errors, %d times exact, %d times one entry is another", found, exact, other)
		if found == 0 || exact == 0 {
			t.Error("this cannot be")
		}

		// The header of a page.
		b, err := os.ReadFile(path)
		ok(t, err)
		size := os.Getpagesize()
		for at := 2 * size; at < len(bytes.TrimRight(b, "\x00")); at += size {
			for range 4 {
				c := bytes.Clone(b)
				c[at+8+rnd.IntN(8)] ^= 1 << rnd.IntN(8)
				ok(t, os.WriteFile(path, c, 0o600))
				check(fmt.Sprintf("header of page %d", at/size))
			}
		}

		// A page that is empty, or another's, and a file that ends in it.
		for page := range len(bytes.TrimRight(b, "\x00"))/size + 1 {
			from, to := page*size, (page+1)*size
			for _, with := range [][]byte{make([]byte, size), b[(page+1)*size : (page+2)*size]} {
				ok(t, os.WriteFile(path, slices.Concat(b[:from], with, b[to:]), 0o600))
				check(fmt.Sprintf("page %d", page))
			}
			ok(t, os.WriteFile(path, b[:from+rnd.IntN(size)], 0o600))
			if _, err := readSource(t, path, Options{}); !damaged(err) {
				t.Errorf("cut in page %d: %v", page, err)
			}
		}
	}
}

// TestDamagedMeta: with one of its meta pages damaged, bbolt would go on without what was committed last.
func TestDamagedMeta(t *testing.T) {
	for page := range 2 {
		path := makeBolt(t, false, func(to both) { votes(t, to, 7) })
		b, err := os.ReadFile(path)
		ok(t, err)
		b[page*os.Getpagesize()+40] ^= 1
		ok(t, os.WriteFile(path, b, 0o600))
		_, err = readSource(t, path, Options{})
		wantError(t, err, holdfast.ErrCorrupt, path, fmt.Sprintf("meta page %d", page), "start and stop the program")
		db, err := raftboltdb.NewBoltStore(path)
		ok(t, err)
		ok(t, db.Close())
		_, err = readSource(t, path, Options{})
		ok(t, err)
	}
}

// TestDamagedWAL flips bits all over a raft-wal: in its segments every one that matters is found.
func TestDamagedWAL(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 6))
	path := makeWAL(t, 16<<10, func(to both) {
		store(t, rnd, to, logs(rnd, 1, 200))
		ok(t, to.DeleteRange(1, 60))
		ok(t, to.DeleteRange(180, 200))
		store(t, rnd, to, logs(rnd, 180, 230))
		votes(t, to, 7)
	})
	whole, err := readSource(t, path, Options{})
	ok(t, err)
	names := segments(t, path)
	if len(whole.logs) != 170 || whole.Dropped != "" || len(names) < 3 {
		t.Fatalf("%d entries, dropped: %q, segments: %q", len(whole.logs), whole.Dropped, names)
	}
	found, exact, torn := 0, 0, 0
	for i, name := range names {
		flips(t, rnd, name, 60, func(what string) {
			got, err := readSource(t, path, Options{})
			switch {
			case err == nil && differences(whole, got) == 0:
				exact++
			case err == nil:
				t.Errorf("%s: %d differences", what, differences(whole, got))
			default:
				wantError(t, err, holdfast.ErrCorrupt, "index ", filepath.Base(name))
				found++
			}
			// What is left out on request is the last batch, and said to be.
			got, err = readSource(t, path, Options{DropTorn: true})
			if err != nil || differences(whole, got) == 0 {
				return
			}
			if n := len(got.logs); i < len(names)-1 || got.Dropped == "" || n < len(whole.logs)-20 ||
				differences(content{logs: whole.logs[:n], keys: whole.keys}, got) != 0 {
				t.Errorf("%s: %d entries, dropped: %q", what, len(got.logs), got.Dropped)
			}
			torn++
		})
	}
	t.Logf("segments: %d errors, %d times exact; the last batch left out: %d", found, exact, torn)
	if found == 0 {
		t.Error("no damage was found")
	}

	// Segments that are cut off, swapped, or gone.
	for i, name := range names {
		b, err := os.ReadFile(name)
		ok(t, err)
		other, err := os.ReadFile(names[(i+1)%len(names)])
		ok(t, err)
		for j, with := range [][]byte{other, b[:16], b[:len(b)/2&^7], make([]byte, len(b)), nil} {
			ok(t, os.WriteFile(name, with, 0o644))
			_, err := readSource(t, path, Options{})
			if i == len(names)-1 && err == nil && j > 1 {
				continue // one that is empty, or was not cut where it was in use, is one that was just made, or whole
			}
			wantError(t, err, holdfast.ErrCorrupt)
		}
		ok(t, os.Remove(name))
		_, err = readSource(t, path, Options{})
		wantError(t, err, holdfast.ErrCorrupt, filepath.Base(name))
		ok(t, os.WriteFile(name, b, 0o644))
	}
}

// TestDamagedMetadata flips bits in the metadata of a raft-wal, which has no checksums: what may happen is that a
// stable key is another one, or that the log begins at another index of its first segment.
func TestDamagedMetadata(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 8))
	path := makeWAL(t, 16<<10, func(to both) {
		store(t, rnd, to, logs(rnd, 1, 200))
		ok(t, to.DeleteRange(1, 60))
		votes(t, to, 7)
	})
	whole, err := readSource(t, path, Options{})
	ok(t, err)
	found, exact := 0, 0
	flips(t, rnd, filepath.Join(path, metadb.FileName), 200, func(what string) {
		got, err := readSource(t, path, Options{})
		if err != nil {
			if found++; !damaged(err) && !errors.Is(err, holdfast.ErrBadOption) {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		exact++
		n := min(len(got.logs), len(whole.logs))
		a, b := content{logs: whole.logs[len(whole.logs)-n:], keys: whole.keys},
			content{logs: got.logs[len(got.logs)-n:], keys: got.keys}
		if n == 0 || differences(a, b) > 1 {
			t.Errorf("%s: %d entries", what, len(got.logs))
		}
	})
	if found == 0 || exact == 0 {
		t.Errorf("%d errors, %d times exact or one value another", found, exact)
	}
}

// TestTornWAL cuts the last batch short in every way, and compares what is imported on request with what raft-wal
// itself makes of it.
func TestTornWAL(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 7))
	for _, batches := range [][]int{{3}, {2, 1}, {4, 2, 3}} {
		var list []*raft.Log
		var before int64
		path := t.TempDir()
		w := openWAL(t, path, 32<<10)
		votes(t, w, 9)
		name := segments(t, path)[0]
		for i, n := range batches {
			if i == len(batches)-1 {
				before = usedBytes(t, name)
			}
			more := logs(rnd, uint64(len(list)+1), uint64(len(list)+n))
			ok(t, w.StoreLogs(more))
			list = append(list, more...)
		}
		ok(t, w.Close())
		whole, err := os.ReadFile(name)
		ok(t, err)
		end := usedBytes(t, name)
		kept := len(list) - batches[len(batches)-1]
		for at := before; at < end; at += 1 + rnd.Int64N(80) {
			for _, how := range []string{"zeros", "cut", "garbage", "hole"} {
				what := fmt.Sprintf("%s from byte %d of %d to %d", how, at, before, end)
				b := bytes.Clone(whole)
				switch how {
				case "zeros":
					clear(b[at:])
				case "cut":
					b = b[:at]
				case "garbage":
					copy(b[at:end], bytesOf(rnd, int(end-at)))
				case "hole":
					clear(b[at:min(at+64, end)])
				}
				ok(t, os.WriteFile(name, b, 0o644))
				same := int64(len(b)) >= end && bytes.Equal(b[:end], whole[:end])
				begun := int64(len(b)) > before && len(bytes.Trim(b[before:], "\x00")) > 0
				_, err := readSource(t, path, Options{})
				if same || !begun {
					ok(t, err)
				} else {
					wantError(t, err, holdfast.ErrCorrupt, fmt.Sprintf("index %d", kept+1), "--drop-torn")
				}
				got, err := readSource(t, path, Options{DropTorn: true})
				if n := len(got.logs); err != nil || n != kept && !(same && n == len(list)) {
					t.Fatalf("%s: %d entries, %v", what, n, err)
				}
				if dropped := got.Dropped != ""; dropped != (begun && !same) {
					t.Errorf("%s: dropped: %q", what, got.Dropped)
				}
				again := openWAL(t, copySource(t, path), 32<<10)
				if theirs, err := again.LastIndex(); err != nil || theirs != uint64(len(got.logs)) {
					t.Errorf("%s: %d entries, raft-wal finds %d; %v", what, len(got.logs), theirs, err)
				}
				ok(t, again.Close())
			}
		}
		// With a sound batch behind it, it is no torn end, whether it is in an entry or in the commit.
		for _, at := range []int64{before - 20, before - 8, before - 1} {
			if before > 0 {
				b := bytes.Clone(whole)
				b[at] ^= 4
				ok(t, os.WriteFile(name, b, 0o644))
				_, err := readSource(t, path, Options{DropTorn: true})
				wantError(t, err, holdfast.ErrCorrupt, "batches seem to follow")
			}
		}
		// A segment whose file a power cut has taken.
		ok(t, os.Remove(name))
		_, err = readSource(t, path, Options{})
		wantError(t, err, holdfast.ErrCorrupt, filepath.Base(name), "--drop-torn")
		got, err := readSource(t, path, Options{DropTorn: true})
		if err != nil || len(got.logs) != 0 ||
			got.Dropped != "everything after index 0: index 1: the segment that begins with it is not there" {
			t.Errorf("%d entries, dropped: %q, %v", len(got.logs), got.Dropped, err)
		}
	}
}

// TestDamageLeavesNothing: an import of a damaged source leaves nothing in the engine, says where the damage is, and
// neither a copy nor the source is changed.
func TestDamageLeavesNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	list := logs(rnd, 1, 100)
	data := []byte("the data of the entry that will be damaged, which is long enough to be found in the file")
	list[60].Data = data
	e := memory(t, vfs.NewMem())
	sources(t, func(t *testing.T, kind string, make func(func(both)) string) {
		path := make(func(to both) { store(t, rnd, to, list) })
		for _, name := range append(segments(t, path), path) {
			b, err := os.ReadFile(name)
			at := bytes.LastIndex(b, data)
			if err != nil || at < 0 {
				continue
			}
			if kind == "raft-boltdb" {
				at = bytes.LastIndex(b[:at], []byte("Index")) + len("Index")
			}
			b[at] ^= 0x20
			ok(t, os.WriteFile(name, b, 0o600))
			before := contentsOf(t, path)
			scratch := filepath.Join(t.TempDir(), "scratch")
			_, err = Import(t.Context(), path, e, Options{Scratch: scratch})
			wantError(t, err, holdfast.ErrCorrupt, filepath.Base(name), "index ")
			wantNothing(t, e)
			wantUnchanged(t, path, before)
			if _, err := os.Stat(scratch); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the copy is left: %v", err)
			}
			return
		}
		t.Fatal("the entry is not found")
	})
}

// TestImplausible: what raft never stores is damage, wherever it comes from.
func TestImplausible(t *testing.T) {
	e := memory(t, vfs.NewMem())
	for name, test := range map[string]struct {
		fill func(both)
		say  string
	}{
		"term goes back": {func(to both) {
			ok(t, to.StoreLogs([]*raft.Log{{Index: 1, Term: 3}, {Index: 2, Term: 2}}))
		}, "index 2: term 2 comes after term 3"},
		"type": {func(to both) { ok(t, to.StoreLog(&raft.Log{Index: 1, Type: 77})) }, "index 1: its type is 77"},
		"term to come": {func(to both) {
			votes(t, to, 5)
			ok(t, to.StoreLog(&raft.Log{Index: 1, Term: 6}))
		}, "index 1: its term is 6, and the current one is 5"},
		"vote without term": {func(to both) {
			ok(t, to.SetUint64([]byte(lastVoteTerm), 5))
		}, "vote in term 5, and the current term is 0"},
		"vote to come": {func(to both) {
			ok(t, to.SetUint64([]byte(lastVoteTerm), 5))
			ok(t, to.SetUint64([]byte(currentTerm), 4))
		}, "vote in term 5"},
		"candidate alone": {func(to both) { ok(t, to.Set([]byte(lastVoteCand), []byte("a"))) }, "no term of it"},
		"term is no number": {func(to both) {
			ok(t, to.Set([]byte(currentTerm), []byte("five")))
		}, `"CurrentTerm" has 4 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			sources(t, func(t *testing.T, _ string, make func(func(both)) string) {
				_, err := Import(t.Context(), make(test.fill), e, Options{})
				wantError(t, err, holdfast.ErrCorrupt, test.say)
			})
		})
	}
	wantNothing(t, e)
}

// TestScratch: what is already where the copy of the source would be made is left alone, and so is the engine.
func TestScratch(t *testing.T) {
	path := makeBolt(t, false, func(to both) { votes(t, to, 3) })
	e := memory(t, vfs.NewMem())
	scratch := t.TempDir()
	mine := filepath.Join(scratch, "mine")
	ok(t, os.WriteFile(mine, nil, 0o600))
	_, err := Import(t.Context(), path, e, Options{Scratch: scratch})
	wantError(t, err, holdfast.ErrBadOption, scratch, "remove it if an interrupted import has left it")
	wantNothing(t, e)
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	_, err = raftlog.Inspect(e, "", false)
	wantError(t, err, holdfast.ErrNotFound)
}
