package db

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// fullDrive is a database of 20 MB of values on a disk without a byte left, with a segment of the log that is full.
func fullDrive(t *testing.T) *drive {
	t.Helper()
	x := newDrive(t, 8<<20)
	if _, err := x.each(20_000, func(b *holdfast.Batch, i int) {
		b.Set(scattered(i), make([]byte, 1000))
		if i%50 == 0 {
			b.Delete(scattered(-1 - i)) // memtables hold deletes, as those of stores do
		}
	}); err != nil {
		t.Fatal(err)
	}
	x.fs.SetCapacity(x.fs.Used())
	x.fill(0)
	if x.reserved() == 0 {
		t.Fatal("there is no reserve")
	}
	return x
}

// fill commits sets until none is admitted, however small, and returns how many were.
func (x *drive) fill(from int) (n int) {
	x.t.Helper()
	for size := 1000; ; {
		var b holdfast.Batch
		b.Set(scattered(1_000_000+from+n), make([]byte, size))
		switch err := commit(x.d, &b, holdfast.Power); {
		case err == nil:
			n++
		case !errors.Is(err, holdfast.ErrFull):
			x.t.Fatal(err)
		case size == 0:
			return n
		default:
			size /= 2
		}
	}
}

// reserved is how large the reserve is on the disk.
func (x *drive) reserved() int64 {
	size, err := x.fs.Size(filepath.Join("db", format.ReserveName))
	if err != nil {
		return 0
	}
	return size
}

// TestRemovalsFromTheReserve: on a full disk a batch that removes something and notes that with a small set is
// admitted, as stores make them, but only as long as more than half of the reserve is left: then batches of deletes
// alone go on.
// Only they were admitted once, so that a store could remove nothing but all of itself.
func TestRemovalsFromTheReserve(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, test := range []struct {
		name     string
		removes  func(b *holdfast.Batch, i int)
		noted    int
		admitted bool
	}{
		{"delete", func(b *holdfast.Batch, i int) { b.Delete(scattered(i)) }, 200, true},
		{"range", func(b *holdfast.Batch, i int) { b.DeleteRange(scattered(i), append(scattered(i), 0)) }, 200, true},
		{"most", func(b *holdfast.Batch, i int) { b.Delete(scattered(i)) }, maxNoted - len("head"), true},
		{"too much", func(b *holdfast.Batch, i int) { b.Delete(scattered(i)) }, maxNoted - len("head") + 1, false},
		{"no delete", func(*holdfast.Batch, int) {}, 200, false},
	} {
		x := fullDrive(t)
		before := x.reserved()
		n := 0
		var err error
		for ; n < 100_000; n++ {
			var b holdfast.Batch
			test.removes(&b, n)
			b.Set([]byte("head"), make([]byte, test.noted))
			if err = commit(x.d, &b, holdfast.Power); err != nil {
				break
			}
		}
		if !errors.Is(err, holdfast.ErrFull) {
			t.Fatalf("%s: after %d: %v, want ErrFull where no room is made in the background", test.name, n, err)
		}
		if (n > 0) != test.admitted {
			t.Errorf("%s: %d were admitted: %v", test.name, n, err)
		}
		left := x.reserved()
		if least := before / 2; left < least || !test.admitted && left < before {
			t.Errorf("%s: the reserve had %d bytes, and has %d after %d were admitted and one refused", test.name, before, left,
				n)
		}
		for i := range 1000 {
			var b holdfast.Batch
			b.Delete(scattered(i))
			if err := commit(x.d, &b, holdfast.Power); err != nil {
				t.Fatalf("%s: delete %d: %v", test.name, i, err)
			}
		}
		t.Logf("%s: %d admitted, reserve %d of %d", test.name, n, left, before)
	}
}

// TestRefusedKeepsTheReserve: what is refused leaves the reserve as it was.
func TestRefusedKeepsTheReserve(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, refused := range map[string]func(b *holdfast.Batch){
		"set": func(b *holdfast.Batch) { b.Set([]byte("key"), make([]byte, 1000)) },
		"deletes larger than the reserve": func(b *holdfast.Batch) {
			for i := range 200_000 {
				b.Delete(scattered(i))
			}
		},
		"a delete and a large set": func(b *holdfast.Batch) {
			b.Delete(scattered(1))
			b.Set([]byte("key"), make([]byte, 2<<20))
		},
	} {
		x := fullDrive(t)
		before := x.reserved()
		var b holdfast.Batch
		refused(&b)
		for range 10 {
			if err := commit(x.d, &b, holdfast.Power); !errors.Is(err, holdfast.ErrFull) {
				t.Fatalf("%s: %v, want ErrFull", name, err)
			}
			if left := x.reserved(); left < before/2 {
				t.Errorf("%s: %d of %d bytes of the reserve are left", name, left, before)
				break
			}
		}
	}
}

// TestReserveIsForDeletes: sets do not get the room that deletes have had from the reserve, nor what is left of it when
// the database is closed and opened again.
func TestReserveIsForDeletes(t *testing.T) {
	t.Parallel()
	x := fullDrive(t)
	for i := range 100 {
		var b holdfast.Batch
		b.Delete(scattered(i))
		if err := commit(x.d, &b, holdfast.Power); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
		if n := x.fill(i); n > 0 {
			t.Fatalf("%d sets were admitted after delete %d", n, i)
		}
	}
	before := x.reserved()
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	x.open()
	if left := x.reserved(); left < before/2 {
		t.Errorf("the reserve had %d bytes, and %d after reopening", before, left)
	}
}
