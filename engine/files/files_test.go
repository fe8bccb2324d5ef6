package files

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	_ "github.com/holdfastdb/holdfast/internal/fixedseed"
	"pgregory.net/rapid"
)

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string, o holdfast.Options) *engine {
	t.Helper()
	e, err := Open(dir, o)
	try(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
			t.Error(err)
		}
	})
	return e.(*engine)
}

func set(t testing.TB, e holdfast.Engine, level holdfast.Level, pairs ...string) {
	t.Helper()
	var b holdfast.Batch
	for i := 0; i < len(pairs); i += 2 {
		b.Set([]byte(pairs[i]), []byte(pairs[i+1]))
	}
	try(t, holdfast.Commit(e, &b, level))
}

// hidden lists the names in the data folder that begin with a dot.
func hidden(t testing.TB, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, dataDir))
	try(t, err)
	for _, f := range list {
		if strings.HasPrefix(f.Name(), ".") {
			names = append(names, f.Name())
		}
	}
	return names
}

// What ls and cat show.
func TestReadable(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{Level: holdfast.Process})
	for key, name := range map[string]string{
		"order-17.json": "order-17.json", "Orders/Q3": "^orders%2f^q3", ".profile.": "%2eprofile%2e", "a b": "a%20b",
		"%^~": "%25%5e%7e", "é\x00": "%c3%a9%00", "con": "%63on", "Con": "^con", "lpt1.txt": "%6cpt1.txt",
		"console": "console",
	} {
		set(t, e, holdfast.Process, key, "value of "+key)
		text, err := os.ReadFile(filepath.Join(dir, dataDir, name))
		value, end, _ := strings.Cut(string(text), "\nholdfast ")
		if err != nil || value != "value of "+key || len(end) != len("0000 12345678\n") {
			t.Errorf("%s, of %q, reads %q, %v", name, key, text, err)
		}
	}
}

// A long key's name begins with it, and its file has all of it. If that cannot be read, the directory cannot be opened
// until the file is removed.
func TestLongKey(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{})
	key := strings.Repeat("long/", 40)
	name, _ := nameOf([]byte(key))
	path := filepath.Join(dir, dataDir, name)
	set(t, e, holdfast.Power, key, "value", "short", "value")
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(name, "long%2flong%2f") ||
		!strings.HasPrefix(string(text), "value"+key+"\nholdfast 00c8 ") {
		t.Errorf("%s reads %q, %v", name, text, err)
	}
	try(t, e.Close())
	for cut := range len(text) {
		try(t, os.WriteFile(path, append(text[:cut:cut], text[cut+1:]...), 0o644))
		e, err := Open(dir, holdfast.Options{})
		if err == nil { // the key is whole
			_, err = e.Get(nil, []byte(key))
			try(t, e.Close())
		}
		if !errors.Is(err, holdfast.ErrCorrupt) || !strings.Contains(err.Error(), path) {
			t.Fatalf("without byte %d: %v", cut, err)
		}
	}
	try(t, os.Remove(path))
	e = open(t, dir, holdfast.Options{})
	if _, err := e.Get(nil, []byte(key)); !errors.Is(err, holdfast.ErrNotFound) {
		t.Error(err)
	}
}

// Names are of characters that every file system keeps, tell the keys apart in whatever case they are read, and say
// the key unless they are long. A name that is no key's has none.
func TestNames(t *testing.T) {
	keys := rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 1, 200),
		rapid.SliceOfN(rapid.SampledFrom([]byte("aAbB.%^~-/é")), 1, 5),
		rapid.Map(rapid.StringMatching(`(con|Nul|com[0-9]|lpt.)(\.[a-c]?)?`), func(s string) []byte { return []byte(s) }),
	)
	rapid.Check(t, func(t *rapid.T) {
		a, b := keys.Draw(t, "a"), keys.Draw(t, "b")
		name, long := nameOf(a)
		other, _ := nameOf(b)
		if strings.EqualFold(name, other) != bytes.Equal(a, b) {
			t.Fatalf("%q and %q for %q and %q", name, other, a, b)
		}
		if len(name) > maxName || name[0] == '.' || name[len(name)-1] == '.' ||
			strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' }) ||
			strings.ContainsAny(name, `<>:"/\|?*`) {
			t.Fatalf("%q for %q", name, a)
		}
		switch base, _, _ := strings.Cut(name, "."); {
		case base == "con", base == "prn", base == "aux", base == "nul",
			len(base) == 4 && (base[:3] == "com" || base[:3] == "lpt") && base[3] >= '0' && base[3] <= '9':
			t.Fatalf("%q is a device, for %q", name, a)
		}
		got, gotLong, ok := keyOf(name)
		if !ok || gotLong != long || !long && !bytes.Equal(got, a) {
			t.Fatalf("%q is read as %q, %v, %v", name, got, gotLong, ok)
		}
		text := string(keys.Draw(t, "any name"))
		if key, long, ok := keyOf(text); ok && !long {
			if again, _ := nameOf(key); again != text {
				t.Fatalf("%q is read as %q, whose name is %q", text, key, again)
			}
		}
	})
}

// What a killed process leaves is removed; what is not the engine's stays or is refused.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{})
	set(t, e, holdfast.Power, "k", "v")
	try(t, e.Close())
	for _, name := range []string{newName(7), oldName(8), ".DS_Store"} {
		try(t, os.WriteFile(filepath.Join(dir, dataDir, name), []byte("left"), 0o644))
	}
	e = open(t, dir, holdfast.Options{})
	if got := hidden(t, dir); fmt.Sprint(got) != "[.DS_Store]" || e.Metrics().TornBytes != 4 {
		t.Errorf("left: %v, %d bytes torn", got, e.Metrics().TornBytes)
	}
	try(t, e.Close())
	for _, name := range []string{"Upper", "k~", "%6b", "con"} {
		path := filepath.Join(dir, dataDir, name)
		try(t, os.WriteFile(path, nil, 0o644))
		e, err := Open(dir, holdfast.Options{})
		if !errors.Is(err, holdfast.ErrCorrupt) || !strings.Contains(err.Error(), path) {
			t.Errorf("with a file %s: %v, %v", name, e, err)
		}
		try(t, os.Remove(path))
	}
	// A file under another key's name is damage.
	e = open(t, dir, holdfast.Options{})
	set(t, e, holdfast.Power, "l", "w")
	try(t, os.Rename(filepath.Join(dir, dataDir, "l"), filepath.Join(dir, dataDir, "k")))
	for _, key := range []string{"k", "l"} {
		if got, err := e.Get(nil, []byte(key)); !errors.Is(err, holdfast.ErrCorrupt) {
			t.Errorf("%s is %q, %v", key, got, err)
		}
	}
}

// What a snapshot sees is kept once, and removed with the last snapshot that sees it.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{Level: holdfast.Process, SyncEvery: -1})
	snapshot := func() holdfast.Snapshot {
		s, err := e.Snapshot()
		try(t, err)
		return s
	}
	change := func(values ...string) {
		for _, v := range values {
			set(t, e, holdfast.Process, "a", v, "b", v)
		}
	}
	wants := func(what string, kept int) {
		t.Helper()
		if got := hidden(t, dir); len(got) != kept || e.Metrics().Files != int64(4+kept) {
			t.Errorf("%s: %v are kept, %d files", what, got, e.Metrics().Files)
		}
	}
	change("1", "2")
	wants("no snapshot", 0)
	first := snapshot()
	change("3", "4", "5")
	wants("one snapshot", 2)
	second, third := snapshot(), snapshot()
	change("6", "7")
	wants("two states", 4)
	try(t, first.Close())
	wants("the first closed", 2)
	try(t, second.Close())
	if got, err := third.Get(nil, []byte("a")); string(got) != "5" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	try(t, third.Close())
	wants("all closed", 0)
}

// TestHeap: the index takes no more than the package comment says.
func TestHeap(t *testing.T) {
	const keys = 20_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var index *node
	for i := range keys {
		key := fmt.Appendf(nil, "%016x", i)
		index = index.Set(key, new(file), int64(len(key)))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / keys
	if index.Count() != keys || per > heapPerKey*3/2+16 {
		t.Errorf("%d bytes a key of 16 bytes; %d and the key are said", per, heapPerKey)
	}
	t.Logf("%d bytes a key of 16 bytes", per)
	runtime.KeepAlive(index)
}

// TestOldFilesGo: a file that was replaced goes with the last view that needs it, also while a later view is open.
func TestOldFilesGo(t *testing.T) {
	dir := t.TempDir()
	e := open(t, dir, holdfast.Options{})
	set(t, e, holdfast.Process, "key", "first")
	before, err := e.Snapshot()
	try(t, err)
	set(t, e, holdfast.Process, "key", "second")
	after, err := e.Snapshot()
	try(t, err)
	defer after.Close()

	if old := hidden(t, dir); len(old) != 1 {
		t.Fatalf("kept for the older view: %q", old)
	}
	try(t, before.Close())
	if old := hidden(t, dir); len(old) != 0 {
		t.Errorf("kept, though nobody needs it: %q", old)
	}
}
