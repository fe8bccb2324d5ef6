package format

import (
	"math/rand/v2"
	"testing"
)

// Four sums at once are those of each, whatever the lengths, and wherever the bytes lie.
func TestChecksums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 2000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for range 100_000 {
		var of [4][]byte
		most := r.IntN(1 + r.IntN(1000))
		for i := range of {
			at := r.IntN(1000)
			of[i] = b[at : at+r.IntN(most+1)]
		}
		if got, want := Checksums(&of), checksumsEach(&of); got != want {
			t.Fatalf("the sums of %x are %x, want %x", of, got, want)
		}
	}
}

func BenchmarkChecksums(b *testing.B) {
	var of [4][]byte
	for i := range of {
		of[i] = make([]byte, 100)
	}
	b.Run("four", func(b *testing.B) {
		for b.Loop() {
			Checksums(&of)
		}
	})
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			checksumsEach(&of)
		}
	})
}
