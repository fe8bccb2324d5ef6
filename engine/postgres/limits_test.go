package postgres

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/night"
)

// Over a slow network a large value takes longer than the patience, and longer than the space may stand still: it is
// waited for as long as it moves, nobody takes the space meanwhile, and other reads wait for it.
func TestSlowNetwork(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e, err := openSlow(t, p, "patience=1s")
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, holdfast.Power, "small", "1")
	const rate, takes = 1 << 20, 6 // seconds
	p.rate.Store(rate)
	value := bytes.Repeat([]byte("0123456789abcdef"), takes*rate/16)
	var b holdfast.Batch
	b.Set([]byte("large"), value)
	r, err := e.Apply(&b, holdfast.Power)
	if err != nil {
		t.Fatal(err)
	}
	began, done := time.Now(), wait(r)
	for {
		select {
		case err := <-done:
			if took := time.Since(began); err != nil || took < takes*time.Second*3/4 {
				t.Errorf("a commit of %d bytes took %v: %v", len(value), took, err)
			}
		default:
			if got, err := e.Get(nil, []byte("small")); string(got) != "1" || err != nil {
				t.Fatalf("Get beside it = %q, %v", got, err)
			}
			other, err := Open(at(os.Getenv(variable), t.Name()), holdfast.Options{})
			if err == nil {
				_ = other.Close()
			}
			if !errors.Is(err, holdfast.ErrLocked) {
				t.Fatalf("a second Open beside it: %v", err)
			}
			continue
		}
		break
	}
	e.cache.drop()
	if got, err := e.Get(nil, []byte("large")); !bytes.Equal(got, value) || err != nil {
		t.Errorf("Get = %d bytes, %v", len(got), err)
	}
	it := e.Scan(holdfast.Range{})
	n := 0
	for ; it.Next(); n++ {
	}
	if err := it.Close(); n != 2 || err != nil {
		t.Errorf("Scan = %d keys, %v", n, err)
	}
}

// openSlow opens the test's space through a proxy.
func openSlow(t *testing.T, p *proxy, parameters string) (*engine, error) {
	opened, err := Open(at(p.dir, t.Name())+"&"+parameters, holdfast.Options{})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = opened.Close() })

	return opened.(*engine), nil
}

// Keys, values and batches at the limit are kept, and those above are refused whole, with the limit named.
func TestLimits(t *testing.T) {
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	refused := func(what string, b *holdfast.Batch, class error, limit string) {
		t.Helper()
		err := holdfast.Commit(e, b, holdfast.Power)
		if !errors.Is(err, class) || !strings.Contains(err.Error(), limit) {
			t.Errorf("%s: %v, want %v and %q", what, err, class, limit)
		}
	}
	var b holdfast.Batch
	b.Set(bytes.Repeat([]byte("k"), maxKeySize), []byte("v"))
	if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
		t.Error(err)
	}
	b.Reset()
	b.Set([]byte("beside"), nil)
	b.Set(bytes.Repeat([]byte("k"), 2700), []byte("v"))
	refused("a key of 2,700 bytes", &b, holdfast.ErrBadKey, "2600")
	b.Reset()
	b.Set([]byte("beside"), make([]byte, holdfast.MaxValueSize+1))
	refused("a value of 64 MiB and a byte", &b, holdfast.ErrTooLarge, "67108864")
	if _, err := e.Get(nil, []byte("beside")); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("of a batch that was refused there is a part: %v", err)
	}
}

// The same with what takes long, and memory that is bounded.
func TestLargeLimits(t *testing.T) {
	night.Only(t, "TestLimits, TestLargeBatch and TestSlowNetwork")
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e, err := openSlow(t, p, "patience=2s")
	if err != nil {
		t.Fatal(err)
	}
	p.rate.Store(8 << 20)
	var b holdfast.Batch
	value := bytes.Repeat([]byte("0123456789abcdef"), holdfast.MaxValueSize/16)
	for _, key := range []string{"a", "b", "c"} {
		b.Set([]byte(key), value)
	}
	b.Set([]byte("d"), value[:maxBatchSize-b.Size()-100])
	last := maxBatchSize - b.Size()
	for n := last; ; n-- {
		more := b.Clone()
		more.Set([]byte("e"), value[:max(0, n)])
		if more.Size() <= maxBatchSize {
			if more.Size() != maxBatchSize {
				t.Fatalf("a batch of %d bytes", more.Size())
			}
			b = more
			break
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := holdfast.Commit(e, &b, holdfast.Power); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 3*maxBatchSize {
		t.Errorf("a batch of %d MiB allocates %d MiB", maxBatchSize>>20, used>>20)
	}
	it, n := e.Scan(holdfast.Range{}), 0
	for ; it.Next(); n++ {
		if got := it.Value(); !bytes.Equal(got, value[:len(got)]) {
			t.Errorf("%s is not what was written", it.Key())
		}
	}
	if err := it.Close(); n != 5 || err != nil {
		t.Errorf("Scan = %d keys, %v", n, err)
	}
	b.Set([]byte("f"), nil)
	if err := holdfast.Commit(e, &b, holdfast.Power); !errors.Is(err, holdfast.ErrTooLarge) ||
		!strings.Contains(err.Error(), "268435456") {
		t.Errorf("a batch above the limit: %v", err)
	}
	if _, err := e.Get(nil, []byte("f")); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("a part of it is there: %v", err)
	}
}

// PgBouncer in transaction mode is told from a server.
func TestPgBouncer(t *testing.T) {
	needServer(t)
	var bouncer string
	for _, name := range []string{"/usr/sbin/pgbouncer", "pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil && bouncer == "" {
			bouncer = path
		}
	}
	if bouncer == "" {
		t.Skip("Debian's package pgbouncer is not installed")
	}
	dir, err := os.MkdirTemp("", "hf-pgb-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	_ = filepath.Join
}
