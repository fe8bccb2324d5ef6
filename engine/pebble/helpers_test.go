package pebble

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holdfastdb/holdfast"
)

func try(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startOn opens a database on a file system in memory, without a home, and closes it when the
// test ends, if the test has not.
func startOn(t testing.TB, fs vfs.FS, o holdfast.Options) *engine {
	t.Helper()
	o, err := o.WithDefaults()
	try(t, err)
	e, err := start(fs, "data", here, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// numbered is a batch that sets key n to a value of size bytes that tells n.
func numbered(b *holdfast.Batch, n uint64, size int) *holdfast.Batch {
	b.Reset()
	value := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(value, n)
	b.Set(numberedKey(n), value)
	return b
}

func numberedKey(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte("k"), n) }

// count returns how many numbered keys there are, which must be 1 to count without a gap.
func count(r holdfast.Reader) (uint64, error) {
	it := r.Scan(holdfast.Range{Lo: []byte("k"), Hi: []byte("l")})
	defer it.Close()
	n := uint64(0)
	for it.Next() {
		n++
		if got := binary.BigEndian.Uint64(it.Key()[1:]); got != n {
			return n - 1, fmt.Errorf("after key %d comes key %d: not a prefix", n-1, got)
		}
		if got := binary.BigEndian.Uint64(it.Value()); got != n {
			return n, fmt.Errorf("key %d has the value of %d", n, got)
		}
	}
	return n, it.Err()
}

func commit(t testing.TB, e *engine, n uint64, level holdfast.Level) {
	t.Helper()
	if err := holdfast.Commit(e, numbered(new(holdfast.Batch), n, 64), level); err != nil {
		t.Fatalf("commit %d at %v: %v", n, level, err)
	}
}

// never is for tests that count syncs themselves.
var never = holdfast.Options{SyncEvery: -1}

// here is Check of a directory that is not replaced.
func here() error { return nil }
