package contender

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/all"
)

// TestVariants: each variant keeps at each level that it gives what is put into it, also when it is opened again, and
// refuses the other levels with a reason.
func TestVariants(t *testing.T) {
	for _, entry := range slices.Concat(Tuned(), Bare()) {
		for _, level := range holdfast.Levels() {
			t.Run(fmt.Sprint(entry.Name, "/", level), func(t *testing.T) {
				t.Parallel()
				variant(t, entry, level)
			})
		}
	}
}

func variant(t *testing.T, entry all.Entry, level holdfast.Level) {
	try := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "db")
	memory := max(8<<20, entry.Describe().MinMemoryBytes)
	open := func() (holdfast.Engine, error) {
		return entry.Open(dir, holdfast.Options{Level: level, MemoryBytes: memory})
	}
	e, err := open()
	promise := entry.Describe().Promise(level)
	if promise.Given == 0 {
		if err == nil {
			var b holdfast.Batch
			b.Set([]byte("k"), nil)
			err = errors.Join(holdfast.Commit(e, &b, level), e.Close())
		}
		if !errors.Is(err, holdfast.ErrLevel) || promise.Why == "" {
			t.Errorf("%v, and the reason is %q", err, promise.Why)
		}
		return
	}
	try(err)
	if c := e.Capabilities(); c.Engine != entry.Name || c.Promise(level).Given != promise.Given || len(c.Settings) == 0 ||
		len(c.Caveats) == 0 {
		t.Errorf("open, it says %+v", c)
	}
	key := func(i int) []byte { return fmt.Appendf(nil, "key-%04d", i) }
	value := func(i, size int) []byte { return slices.Repeat([]byte{byte(i)}, size) }
	var b holdfast.Batch
	for i := range 300 {
		b.Set(key(i), value(i, 1+i*17))
	}
	try(holdfast.Commit(e, &b, level))
	b.Reset()
	b.Delete(key(7))
	b.Set(key(8), value(1, 3))
	try(holdfast.Commit(e, &b, level))
	try(e.Sync())
	for range 2 {
		for i := range 300 {
			got, err := e.Get([]byte("x"), key(i))
			switch want := string(value(i, 1+i*17)); {
			case i == 7 && !errors.Is(err, holdfast.ErrNotFound):
				t.Fatalf("a deleted key: %q, %v", got, err)
			case i == 7:
			case i == 8 && string(got) != "x"+string(value(1, 3)), i != 8 && string(got) != "x"+want, err != nil:
				t.Fatalf("key %d: %d bytes, %v", i, len(got), err)
			}
		}
		it := e.Scan(holdfast.Range{Lo: key(5), Hi: key(10)})
		var found []string
		for it.Next() {
			found = append(found, fmt.Sprintf("%s %d", it.Key(), len(it.Value())))
		}
		if try(it.Close()); fmt.Sprint(found) != "[key-0005 86 key-0006 103 key-0008 3 key-0009 154]" {
			t.Fatalf("found %v", found)
		}
		try(e.Close())
		e, err = open()
		try(err)
	}
	if _, err := open(); !errors.Is(err, holdfast.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	try(e.Close())
}

// TestBareRefusesWhatItDoesNot: a bare library does sets, deletes, gets and scans forwards, and says so of the rest.
func TestBareRefusesWhatItDoesNot(t *testing.T) {
	for _, entry := range Bare() {
		e, err := entry.Open(filepath.Join(t.TempDir(), "db"), holdfast.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b holdfast.Batch
		b.DeleteRange(nil, nil)
		if _, err := e.Apply(&b, holdfast.Power); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%s: %v", entry.Name, err)
		}
		if err := e.Scan(holdfast.Range{Reverse: true}).Err(); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%s: %v", entry.Name, err)
		}
		if _, err := e.Snapshot(); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("%s: %v", entry.Name, err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", entry.Name, err)
		}
	}
}
