package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// content is what a source says it holds.
type content struct {
	logs []*raft.Log
	keys []stableKey
	drop string
}

// readSource reads all of a source as an import does before it stores anything, and again as it copies.
func readSource(path string, o Options) (c content, err error) {
	s, err := openSource(path, &o, nil)
	if err != nil {
		return c, err
	}
	defer s.close()
	if err := s.check(func(*raft.Log) error { return nil }); err != nil {
		return c, err
	}
	err = s.walk(func(log *raft.Log) error {
		l := *log
		c.logs = append(c.logs, &l)
		return nil
	})
	c.keys = s.keys
	if s.wal != nil {
		c.drop = s.wal.dropped
	}
	return c, err
}

// differences counts the fields of entries, and the stable keys, in which two contents differ; many if they
// do not have the same indexes.
func differences(a, b content) int {
	const many = 1 << 20
	if len(a.logs) != len(b.logs) || len(a.keys) != len(b.keys) {
		return many
	}
	n := 0
	for i := range a.logs {
		x := *b.logs[i]
		for range 6 {
			switch field, _ := same(a.logs[i], &x); field {
			case "Index":
				return many
			case "Term":
				x.Term = a.logs[i].Term
			case "Type":
				x.Type = a.logs[i].Type
			case "Data":
				x.Data = a.logs[i].Data
			case "Extensions":
				x.Extensions = a.logs[i].Extensions
			case "AppendedAt":
				x.AppendedAt = a.logs[i].AppendedAt
			default:
				continue
			}
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
	for _, class := range []error{holdfast.ErrCorrupt, holdfast.ErrForeign, holdfast.ErrVersion} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// flips calls f with one bit flipped, at n places of a file.
func flips(t *testing.T, rnd *rand.Rand, name string, n int, f func(off int64)) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	ok(t, err)
	defer file.Close()
	b, err := os.ReadFile(name)
	ok(t, err)
	used := min(usedBytes(t, name)+64, int64(len(b)))
	for range n {
		off := rnd.Int64N(used)
		_, err := file.WriteAt([]byte{b[off] ^ 1<<rnd.IntN(8)}, off)
		ok(t, err)
		f(off)
		_, err = file.WriteAt(b[off:off+1], off)
		ok(t, err)
	}
}

// TestDamagedBolt flips bits all over a raft-boltdb file. The format has no checksums: a bit inside a value can turn it into
// another plausible one. What must not happen is that an entry is lost or moved, or that more than the value with the
// damaged bit is wrong.
func TestDamagedBolt(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 5))
	path := makeBolt(t, seed%2 == 0, func(to both) {
		list := logs(rnd, 1, 150)
		list[70].Data = bytesOf(rnd, 20000)
		store(t, rnd, to, list)
		votes(t, to, 7)
		ok(t, to.DeleteRange(1, 30))
		ok(t, to.DeleteRange(140, 150))
	})
	whole, err := readSource(path, Options{})
	ok(t, err)
	if len(whole.logs) != 109 {
		t.Fatalf("%d entries", len(whole.logs))
	}
	// Keys that the page had earlier, under its present header and all between those of its neighbours, cannot be told
	// from those it should have; where they are not the same, indexes are missing, which an import reports.
	const oldKeys = 1 << 20
	hasGap := func(list []*raft.Log) bool {
		return len(list) > 0 && list[len(list)-1].Index-list[0].Index != uint64(len(list)-1)
	}
	found, exact, value := 0, 0, 0
	check := func(what string, limit int) {
		got, err := readSource(path, Options{})
		if err != nil {
			if !damaged(err) {
				t.Errorf("%s: %v", what, err)
			}
			found++
			return
		}
		switch n := differences(whole, got); {
		case n == 0:
			exact++
		case limit == oldKeys && n > 1 && hasGap(got.logs):
			value++
		case n > min(limit, 1):
			t.Fatalf("%s: %d differences", what, n)
		default:
			value++
		}
	}
	flips(t, rnd, path, 1500, func(off int64) { check(fmt.Sprintf("byte %d", off), 1) })
	t.Logf("one bit: %d errors, %d times exact, %d times one value is another", found, exact, value)
	if found == 0 || exact == 0 {
		t.Error("this cannot be")
	}

	// A page that is another's, an older one of its own, empty, or missing.
	b, err := os.ReadFile(path)
	ok(t, err)
	used := len(b)
	for used > 0 && b[used-1] == 0 {
		used--
	}
	pages := used/os.Getpagesize() + 1
	found, exact, value = 0, 0, 0
	put := func(page int, with []byte) {
		c := bytes.Clone(b)
		copy(c[page*os.Getpagesize():(page+1)*os.Getpagesize()], with)
		ok(t, os.WriteFile(path, c, 0o600))
	}
	for page := range pages {
		put(page, make([]byte, os.Getpagesize()))
		check(fmt.Sprintf("page %d empty", page), 1)
		for range 6 {
			other := rnd.IntN(pages)
			part := bytes.Clone(b[other*os.Getpagesize() : (other+1)*os.Getpagesize()])
			put(page, part)
			check(fmt.Sprintf("page %d is %d", page, other), 1)
			copy(part, b[page*os.Getpagesize():][:boltHeader]) // and says that it is the right one
			put(page, part)
			check(fmt.Sprintf("page %d has the keys of %d", page, other), oldKeys)
		}
		ok(t, os.WriteFile(path, b[:page*os.Getpagesize()+rnd.IntN(os.Getpagesize())], 0o600))
		check(fmt.Sprintf("cut in page %d", page), 0)
	}
	t.Logf("pages: %d errors, %d times exact, %d times one value is another", found, exact, value)
}

// TestDamagedWAL flips bits all over a raft-wal: in its segments every one that matters is found.
func TestDamagedWAL(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 6))
	path := makeWAL(t, 16<<10, func(to both) {
		store(t, rnd, to, logs(rnd, 1, 200))
		ok(t, to.DeleteRange(1, 60))
		ok(t, to.DeleteRange(180, 200))
		store(t, rnd, to, logs(rnd, 180, 230))
		votes(t, to, 7)
	})
	whole, err := readSource(path, Options{})
	ok(t, err)
	if len(whole.logs) != 170 || whole.drop != "" {
		t.Fatalf("%d entries, dropped: %q", len(whole.logs), whole.drop)
	}
	segments, err := filepath.Glob(filepath.Join(path, "*.wal"))
	ok(t, err)
	if len(segments) < 3 {
		t.Fatalf("segments: %q", segments)
	}
	found, exact, torn := 0, 0, 0
	for i, name := range segments {
		flips(t, rnd, name, 150, func(off int64) {
			what := fmt.Sprintf("%s, byte %d", filepath.Base(name), off)
			got, err := readSource(path, Options{})
			switch {
			case err == nil && differences(whole, got) == 0:
				exact++
			case err == nil:
				t.Fatalf("%s: %d differences", what, differences(whole, got))
			case !errors.Is(err, holdfast.ErrCorrupt):
				t.Errorf("%s: %v", what, err)
			default:
				found++
			}
			// What is left out on request is the last batch, and said to be.
			got, err = readSource(path, Options{DropTorn: true})
			switch {
			case err != nil && !errors.Is(err, holdfast.ErrCorrupt):
				t.Errorf("%s: %v", what, err)
			case err != nil || differences(whole, got) == 0:
			case i < len(segments)-1 || got.drop == "" || len(got.logs) < len(whole.logs)-20 || differences(content{logs: whole.logs[:len(got.logs)], keys: whole.keys}, got) != 0:
				t.Fatalf("%s: %d entries, dropped: %q", what, len(got.logs), got.drop)
			default:
				torn++
			}
		})
	}
	t.Logf("segments: %d errors, %d times exact; the last batch left out: %d", found, exact, torn)
	if found == 0 { // whether a flip meets the last batch is chance; TestTornWAL is about that
		t.Error("no damage was found")
	}

	// Segments that are cut off, swapped, or gone.
	for i, name := range segments {
		b, err := os.ReadFile(name)
		ok(t, err)
		for _, with := range [][]byte{nil, b[:16], b[:len(b)/2&^7], make([]byte, len(b))} {
			ok(t, os.WriteFile(name, with, 0o644))
			_, err := readSource(path, Options{})
			if i == len(segments)-1 && err == nil {
				continue // one that is empty, or was not cut where it was in use, is one that was just made, or whole
			}
			wantError(t, err, holdfast.ErrCorrupt)
		}
		other, err := os.ReadFile(segments[(i+1)%len(segments)])
		ok(t, err)
		ok(t, os.WriteFile(name, other, 0o644))
		_, err = readSource(path, Options{})
		wantError(t, err, holdfast.ErrCorrupt)
		ok(t, os.Remove(name))
		_, err = readSource(path, Options{})
		wantError(t, err, holdfast.ErrCorrupt, filepath.Base(name))
		ok(t, os.WriteFile(name, b, 0o644))
	}

	// The metadata is a bolt file, in which a digit can become another one: of the lowest index, say.
	found, exact = 0, 0
	flips(t, rnd, filepath.Join(path, walMeta), 500, func(off int64) {
		got, err := readSource(path, Options{})
		switch {
		case err != nil && !damaged(err) && !errors.Is(err, holdfast.ErrBadOption):
			t.Errorf("byte %d of the metadata: %v", off, err)
		case err != nil:
			found++
		case differences(whole, got) <= 1:
			exact++
		default: // the lowest index of all
			n := len(whole.logs) - len(got.logs)
			if n > 0 && differences(content{logs: whole.logs[n:], keys: whole.keys}, got) == 0 || n < 0 && differences(whole, content{logs: got.logs[-n:], keys: got.keys}) == 0 {
				t.Logf("byte %d of the metadata: the log begins %d later, as the damaged number says", off, n)
				return
			}
			t.Fatalf("byte %d of the metadata: %d entries", off, len(got.logs))
		}
	})
	t.Logf("metadata: %d errors, %d times exact or one value another", found, exact)
}

// TestTornWAL cuts the last batch short in every way, and compares what is imported on request with what raft-wal itself
// makes of it.
func TestTornWAL(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 7))
	for _, batches := range [][]int{{3}, {2, 1}, {4, 2, 3}} {
		var list []*raft.Log
		var before int64
		path := t.TempDir()
		w := openWAL(t, path, 32<<10)
		votes(t, w, 9)
		last := func() string {
			names, err := filepath.Glob(filepath.Join(path, "*.wal"))
			ok(t, err)
			return names[len(names)-1]
		}
		for i, n := range batches {
			if i == len(batches)-1 {
				before = usedBytes(t, last())
			}
			more := logs(rnd, uint64(len(list)+1), uint64(len(list)+n))
			ok(t, w.StoreLogs(more))
			list = append(list, more...)
		}
		ok(t, w.Close())
		name := last()
		whole, err := os.ReadFile(name)
		ok(t, err)
		end := usedBytes(t, name)
		kept := list[:len(list)-batches[len(batches)-1]]
		for at := before; at < end; at += 1 + rnd.Int64N(80) {
			for _, how := range []string{"zeros", "cut", "garbage", "hole"} {
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
				same := bytes.Equal(b[:min(int64(len(b)), end)], whole[:min(int64(len(b)), end)]) && int64(len(b)) >= end
				got, err := readSource(path, Options{})
				begun := int64(len(b)) > before && len(bytes.Trim(b[before:], "\x00")) > 0
				if !begun && before > 0 || same {
					ok(t, err)
				} else if err == nil && len(got.logs) == len(kept) && how == "cut" && at == 0 {
					// an empty file is one that was just made
				} else if err == nil && how == "zeros" && at == 0 {
				} else {
					wantError(t, err, holdfast.ErrCorrupt)
				}
				got, err = readSource(path, Options{DropTorn: true})
				if err != nil {
					t.Fatalf("%s from byte %d of %d to %d: %v", how, at, before, end, err)
				}
				if n := len(got.logs); n != len(kept) && !(same && n == len(list)) {
					t.Fatalf("%s from byte %d of %d to %d: %d entries", how, at, before, end, n)
				}
				again := openWAL(t, copySource(t, path), 32<<10)
				theirs, err := again.LastIndex()
				ok(t, err)
				if theirs != uint64(len(got.logs)) {
					t.Errorf("%s from byte %d of %d to %d: %d entries, raft-wal finds %d", how, at, before, end, len(got.logs), theirs)
				}
				ok(t, again.Close())
			}
		}
		ok(t, os.WriteFile(name, whole, 0o644))

		// With a sound batch behind it, it is no torn end.
		if before > 0 {
			b := bytes.Clone(whole)
			b[before-20] ^= 4
			ok(t, os.WriteFile(name, b, 0o644))
			_, err := readSource(path, Options{DropTorn: true})
			wantError(t, err, holdfast.ErrCorrupt, "sound entries follow")
			ok(t, os.WriteFile(name, whole, 0o644))
		}
	}
}

// usedBytes is how long a file is without the zeros at its end, in whole frames.
func usedBytes(t testing.TB, name string) int64 {
	b, err := os.ReadFile(name)
	ok(t, err)
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return int64(n+7) &^ 7
}

// TestDamageLeavesNothing: an import of a damaged source stores nothing and says where it is damaged.
func TestDamageLeavesNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	list := logs(rnd, 1, 100)
	list[60].Data = []byte("the data of the entry that will be damaged, which is long enough to be found in the file")
	e := memory(t, vfs.NewMem())
	for _, path := range []string{
		makeWAL(t, 1<<20, func(to both) { store(t, rnd, to, list) }),
		makeBolt(t, false, func(to both) { store(t, rnd, to, list) }),
	} {
		name := path
		if names, err := filepath.Glob(filepath.Join(path, "*.wal")); err == nil && len(names) > 0 {
			name = names[0]
		}
		b, err := os.ReadFile(name)
		ok(t, err)
		at := bytes.LastIndex(b, list[60].Data)
		if at < 0 {
			t.Fatal("not found")
		}
		for b[at] != 'D' && name == path && !bytes.HasPrefix(b[at:], []byte("Data")) {
			at-- // the name of the field, in msgpack
		}
		b[at] ^= 0x20
		ok(t, os.WriteFile(name, b, 0o600))
		_, err = Import(t.Context(), path, e, Options{})
		wantError(t, err, holdfast.ErrCorrupt, filepath.Base(name), "index 6", "at byte")
		wantNothing(t, e)
	}
}

// TestImplausible: what raft never stores is damage, wherever it comes from.
func TestImplausible(t *testing.T) {
	e := memory(t, vfs.NewMem())
	for name, test := range map[string]struct {
		fill func(both)
		say  string
	}{
		"term goes back":    {func(to both) { ok(t, to.StoreLogs([]*raft.Log{{Index: 1, Term: 3}, {Index: 2, Term: 2}})) }, "index 2: term 2 comes after term 3"},
		"type":              {func(to both) { ok(t, to.StoreLog(&raft.Log{Index: 1, Type: 77})) }, "index 1: its type is 77"},
		"term to come":      {func(to both) { votes(t, to, 5); ok(t, to.StoreLog(&raft.Log{Index: 1, Term: 6})) }, "index 1: its term is 6, and the current one is 5"},
		"vote without term": {func(to both) { ok(t, to.SetUint64([]byte(lastVoteTerm), 5)) }, "no current term"},
		"vote to come": {func(to both) {
			ok(t, to.SetUint64([]byte(lastVoteTerm), 5))
			ok(t, to.SetUint64([]byte(currentTerm), 4))
		}, "vote in term 5"},
		"candidate alone":   {func(to both) { ok(t, to.Set([]byte(lastVoteCand), []byte("a"))) }, "no term of it"},
		"term is no number": {func(to both) { ok(t, to.Set([]byte(currentTerm), []byte("five"))) }, `"CurrentTerm" has 4 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			sources(t, func(t *testing.T, _ Kind, make func(func(both)) string) {
				_, err := Import(t.Context(), make(test.fill), e, Options{})
				wantError(t, err, holdfast.ErrCorrupt, test.say)
			})
		})
	}
	wantNothing(t, e)
}
