package db

import (
	"errors"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// TestRefusedNumbers: batches that a full disk refuses use up no numbers of files, of which there are 32 bits.
func TestRefusedNumbers(t *testing.T) {
	x := newDrive(t, 1<<20)
	x.fs.SetCapacity(4 << 20)
	set := func(b *holdfast.Batch, i int) { b.Set(scattered(i), make([]byte, 100)) }
	if _, err := x.each(1_000_000, set); !errors.Is(err, holdfast.ErrFull) {
		t.Fatal(err)
	}
	var b holdfast.Batch
	set(&b, 1_000_001)
	for commit(x.d, &b, holdfast.Power) == nil { // the last of the segment
	}
	before := x.d.nextFile
	const n = 200
	for range n {
		if err := commit(x.d, &b, holdfast.Power); !errors.Is(err, holdfast.ErrFull) {
			t.Fatal(err)
		}
	}
	if used := x.d.nextFile - before; used > n/10 {
		t.Errorf("%d refused batches have used up %d numbers", n, used)
	}
	v, err := Verify(x.fs, "db")
	if err != nil {
		t.Fatal(err)
	}
	for _, note := range v.Notes {
		if note == reserveName+" is not the database's" {
			t.Error(note)
		}
	}
}

// TestDeletesFromTheReserve: where somebody else has taken the last byte, the reserve is kept for deletes. It once
// went into emptying a segment for which it was not enough, which gave nothing back: 141 deletes were possible.
func TestDeletesFromTheReserve(t *testing.T) {
	x := newDrive(t, 64<<20)
	if _, err := x.each(20_000, func(b *holdfast.Batch, i int) { b.Set(scattered((i*i+i/3)%10_000), make([]byte, 4000)) }); err != nil {
		t.Fatal(err)
	}
	if err := x.d.Close(); err != nil {
		t.Fatal(err)
	}
	x.fs.SetCapacity(x.fs.Used())
	x.open()
	for i := range 2_000 {
		var b holdfast.Batch
		b.Delete(scattered(i))
		if err := commit(x.d, &b, holdfast.Power); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
		if i%10 == 0 {
			x.work()
		}
	}
}
