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
