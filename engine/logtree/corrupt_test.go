package logtree

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// past is what a test has written: the state in the end, and all values that a key ever had.
type past struct {
	want map[string]string
	ever map[string]map[string]bool
}

// write makes a database of many small segments and runs, with overwrites and deletes of both kinds.
func write(t *testing.T, dir string, rnd *rand.Rand) past {
	t.Helper()
	p := past{map[string]string{}, map[string]map[string]bool{}}
	e, err := Open(dir, holdfast.Options{MemoryBytes: holdfast.MinMemoryBytes, SyncEvery: -1})
	try(t, err)
	var b holdfast.Batch
	for i := range 600 {
		b.Reset()
		for range 1 + rnd.IntN(4) {
			key := fmt.Sprintf("key/%03d", rnd.IntN(300))
			if rnd.IntN(3) == 0 {
				key = fmt.Sprintf("log/%05d", i)
			}
			value := fmt.Sprintf("%d %x", i, make([]byte, rnd.IntN(60)))
			b.Set([]byte(key), []byte(value))
			p.want[key] = value
			if p.ever[key] == nil {
				p.ever[key] = map[string]bool{}
			}
			p.ever[key][value] = true
		}
		if key := fmt.Sprintf("key/%03d", rnd.IntN(300)); i%7 == 0 {
			b.Delete([]byte(key))
			delete(p.want, key)
		}
		if i%200 == 199 {
			b.DeleteRange(fmt.Appendf(nil, "log/%05d", i-150), fmt.Appendf(nil, "log/%05d", i-50))
			maps.DeleteFunc(p.want, func(key, _ string) bool {
				return key >= fmt.Sprintf("log/%05d", i-150) && key < fmt.Sprintf("log/%05d", i-50)
			})
		}
		try(t, holdfast.Commit(e, &b, holdfast.Levels()[rnd.IntN(2)]))
	}
	try(t, e.Close())
	return p
}

// harm does one damage to a file of dir, and says which.
func harm(t *testing.T, dir string, rnd *rand.Rand) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	try(t, err)
	name := filepath.Join(dir, entries[rnd.IntN(len(entries))].Name())
	b, err := os.ReadFile(name)
	try(t, err)
	kind := rnd.IntN(10)
	if kind == 0 {
		try(t, os.Remove(name))
		return "removed " + filepath.Base(name)
	}
	if len(b) == 0 {
		return "nothing"
	}
	at := rnd.IntN(len(b))
	what := fmt.Sprintf("byte %d of %s flipped", at, filepath.Base(name))
	switch {
	case kind == 1:
		b, what = b[:at], fmt.Sprintf("%s cut at %d", filepath.Base(name), at)
	case kind < 4:
		at &^= 511
		clear(b[at:min(at+512, len(b))])
		what = fmt.Sprintf("sector at %d of %s zeroed", at, filepath.Base(name))
	default:
		b[at] ^= 1 << rnd.IntN(8)
	}
	try(t, os.WriteFile(name, b, 0o644))
	return what
}

// read reads all that can be read of dir by scan and by key. It fails if something is wrong without an error, and
// returns whether there was one.
func (p past) read(t *testing.T, dir string, o holdfast.Options) (failed bool) {
	t.Helper()
	e, err := Open(dir, o)
	if err != nil {
		return true
	}
	defer e.Close()
	n := 0
	for _, reverse := range []bool{false, true} {
		it := e.Scan(holdfast.Range{Reverse: reverse})
		for n = 0; it.Next(); n++ {
			if want, ok := p.want[string(it.Key())]; !ok || want != string(it.Value()) {
				t.Errorf("a scan shows %q = %q, want %q", it.Key(), it.Value(), want)
			}
		}
		if err := it.Close(); err != nil {
			failed = true
		} else if n != len(p.want) {
			t.Errorf("a scan shows %d keys of %d", n, len(p.want))
		}
	}
	for key := range p.ever {
		got, err := e.Get(nil, []byte(key))
		want, ok := p.want[key]
		switch {
		case err != nil && !errors.Is(err, holdfast.ErrNotFound):
			failed = true
		case (err == nil) != ok || string(got) != want:
			t.Errorf("Get of %q is %q, %v, want %q", key, got, err, want)
		}
	}
	return failed
}

// TestCorrupted: whatever happens to the files of a database, of its backup and of a repaired copy, no answer is wrong,
// Verify finds what reading meets, and a repair accounts for all that is missing or old in what it makes, which says
// so.
func TestCorrupted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	p := write(t, path("db"), rnd)
	e, err := Open(path("db"), holdfast.Options{ReadOnly: true})
	try(t, err)
	_, err = Backup(t.Context(), e, path("backup"))
	try(t, errors.Join(err, e.Close()))
	if r, err := Repair(t.Context(), path("db"), path("repaired"), holdfast.Options{}); err != nil || !r.Complete() {
		t.Fatal(r, err)
	}
	for i := range 30 {
		source := []string{"db", "backup", "repaired"}[i%3]
		dir, into := path(fmt.Sprint("damaged", i)), path(fmt.Sprint("fixed", i))
		try(t, os.CopyFS(dir, os.DirFS(path(source))))
		var what []string
		for range 1 + rnd.IntN(3) {
			what = append(what, harm(t, dir, rnd))
		}
		v, err := Verify(dir)
		found := err != nil || len(v.Damage) > 0
		r, err := Repair(t.Context(), dir, into, holdfast.Options{})
		if err == nil {
			p.account(t, r, into)
		} else if !errors.Is(err, holdfast.ErrVersion) {
			t.Errorf("Repair: %v", err)
		}
		failed := p.read(t, dir, holdfast.Options{ReadOnly: true})
		if later := p.read(t, dir, holdfast.Options{}); failed != later {
			t.Errorf("opened for reading it fails: %v, for writing: %v", failed, later)
		}
		if failed && !found {
			t.Error("it cannot be read, but Verify finds nothing")
		}
		if t.Failed() {
			t.Fatalf("try %d, %s: %q\n%+v", i, source, what, r)
		}
		try(t, errors.Join(os.RemoveAll(dir), os.RemoveAll(into)))
	}
}

// account checks what a repair has made against what it says.
func (p past) account(t *testing.T, r *RepairResult, into string) {
	t.Helper()
	e, err := Open(into, holdfast.Options{ReadOnly: true})
	try(t, err)
	defer e.Close()
	got := contents(t, e)
	missing, old := int64(0), int64(0)
	for key, value := range got {
		if !p.ever[key][value] {
			t.Errorf("%q is %q, which it never was", key, value)
		}
		if p.want[key] != value {
			old++
		}
	}
	for key := range p.want {
		if _, ok := got[key]; !ok {
			missing++
		}
	}
	if r.Complete() != (e.Capabilities().Lost == "") || r.Complete() != (r.Summary() == "") {
		t.Errorf("it lost %q, says the directory, %q the result", e.Capabilities().Lost, r.Summary())
	}
	told := r.Doubt != "" || old == 0 && missing == r.LostKeys
	if r.Keys != int64(len(got)) || r.Complete() && missing+old > 0 || !told {
		t.Errorf("%d keys, %d missing, %d old or deleted ones", len(got), missing, old)
	}
}
