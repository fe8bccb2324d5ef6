package soak

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/holdfastdb/holdfast"
)

// script is what the writers write. It follows from a seed, so that what must be there follows from how many batches of
// each writer there are.
type script struct {
	Seed    uint64
	Writers int
	Keys    int // of each writer
}

const (
	batchKeys   = 50   // keys that a batch writes
	deleteOne   = 16   // one key of so many is deleted, and not put
	deleteMany  = 2000 // one batch of so many deletes a range, of one key of so many
	largeOne    = 64   // one value of so many is large
	meanBytes   = 9 + (largeOne-1)*210/largeOne + (4<<10+8<<10)/largeOne
	scatter     = 2654435761 // a prime: the first time, keys are put in this stride
	markerSpace = 0xff       // begins the keys that say how many batches of a writer there are
)

// change is an operation of a batch, on the keys from lo up to hi.
type change struct {
	kind   holdfast.Kind
	lo, hi int
}

// loading is how many batches of a writer put each key once.
func (s script) loading() uint64 { return uint64(s.Keys+batchKeys-1) / batchKeys }

// batch calls do for each operation of a writer's n-th batch, from 1.
func (s script) batch(w int, n uint64, pcg *rand.PCG, do func(change)) {
	if n <= s.loading() {
		for i := (n - 1) * batchKeys; i < min(n*batchKeys, uint64(s.Keys)); i++ {
			k := int(i * scatter % uint64(s.Keys))
			do(change{holdfast.KindSet, k, k + 1})
		}

		return
	}
	pcg.Seed(s.Seed+uint64(w), n)
	r := rand.New(pcg)
	if r.IntN(deleteMany) == 0 {
		lo := r.IntN(s.Keys)
		do(change{holdfast.KindDeleteRange, lo, min(lo+s.Keys/deleteMany+1, s.Keys)})
	}

	for range batchKeys {
		k := r.IntN(s.Keys)
		kind := holdfast.KindSet
		if r.IntN(deleteOne) == 0 {
			kind = holdfast.KindDelete
		}
		do(change{kind, k, k + 1})
	}
}

// fill makes b a writer's n-th batch.
func (s script) fill(b *holdfast.Batch, w int, n uint64, pcg *rand.PCG, value []byte) []byte {
	b.Reset()
	s.batch(w, n, pcg, func(c change) {
		switch c.kind {
		case holdfast.KindSet:
			value = s.value(value[:0], w, c.lo, uint32(n))
			b.Set(key(w, c.lo), value)
		case holdfast.KindDelete:
			b.Delete(key(w, c.lo))
		default:
			b.DeleteRange(key(w, c.lo), key(w, c.hi))
		}
	})
	b.Set(marker(w), binary.BigEndian.AppendUint64(nil, n))

	return value
}

// replay returns what there must be after n batches of a writer: of each key the number of the batch that put it, 0 if
// it is not there.
func (s script) replay(w int, n uint64) []uint32 {
	model := make([]uint32, s.Keys)
	var pcg rand.PCG

	for i := uint64(1); i <= n; i++ {
		s.batch(w, i, &pcg, func(c change) {
			if c.kind == holdfast.KindSet {
				model[c.lo] = uint32(i)
			} else {
				clear(model[c.lo:c.hi])
			}
		})
	}

	return model
}

func key(w, i int) []byte { return binary.BigEndian.AppendUint64([]byte{byte(w)}, uint64(i)) }

func marker(w int) []byte { return []byte{markerSpace, byte(w)} }

// span is the range of a writer's keys from lo up to hi.
func span(w, lo, hi int) holdfast.Range { return holdfast.Range{Lo: key(w, lo), Hi: key(w, hi)} }

// value appends the value that a writer's n-th batch puts.
func (s script) value(dst []byte, w, i int, n uint32) []byte {
	x := mix(s.Seed ^ uint64(w)<<56 ^ uint64(i)<<20 ^ uint64(n)*0x9E3779B97F4A7C15)
	size := 20 + int(x>>8%380)
	if x%largeOne == 0 {
		size = 4<<10 + int(x>>8%(16<<10))
	}
	from := len(dst)

	dst = binary.BigEndian.AppendUint32(dst, n)
	for len(dst)-from < size {
		x = mix(x)
		dst = binary.LittleEndian.AppendUint64(dst, x)
	}

	return dst[:from+size]
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), after
// its increment.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB

	return x ^ x>>31
}

// errWrong is what an engine shows and must not.
var errWrong = errors.New("wrong contents")

// own checks that a key of the writers has a value that one of the first most batches of its writer has put there, and
// returns which.
func (s script) own(k, v []byte, most uint64, buf []byte) (w, i int, n uint32, _ []byte, err error) {
	if len(k) != 9 || int(k[0]) >= s.Writers || binary.BigEndian.Uint64(k[1:]) >= uint64(s.Keys) {
		return 0, 0, 0, buf, fmt.Errorf("%w: key %x was never written", errWrong, k)
	}
	w, i = int(k[0]), int(binary.BigEndian.Uint64(k[1:]))
	if len(v) >= 4 {
		n = binary.BigEndian.Uint32(v)
	}
	buf = s.value(buf[:0], w, i, n)
	if n == 0 || uint64(n) > most || !bytes.Equal(buf, v) {
		err = fmt.Errorf("%w: key %d of writer %d has a value that was never written, of %d bytes, which begins %x", errWrong,
			i, w, len(v), v[:min(len(v), 16)])
	}

	return w, i, n, buf, err
}

// compare compares a writer's keys from lo up to hi with what must be there. It returns how many keys there are, and
// their bytes with the values'.
func (s script) compare(r holdfast.Reader, w, lo, hi int, model []uint32) (keys, size int64, err error) {
	all := span(w, lo, hi)
	if hi == s.Keys {
		all.Hi = key(w+1, 0) // what is beyond the last one was never written
	}

	it := r.Scan(all)
	defer func() { err = errors.Join(err, it.Close()) }()
	var buf []byte
	next := lo

	skip := func(upto int) error {
		for ; next < upto; next++ {
			if model[next] != 0 {
				return fmt.Errorf("%w: key %d of writer %d, which batch %d put, is missing", errWrong, next, w, model[next])
			}
		}

		return nil
	}
	for it.Next() {
		var i int
		var n uint32
		if _, i, n, buf, err = s.own(it.Key(), it.Value(), 1<<32-1, buf); err != nil {
			return keys, size, err
		}
		if i < next {
			return keys, size, fmt.Errorf("%w: key %d of writer %d comes after key %d", errWrong, i, w, next-1)
		}
		if err := skip(i); err != nil {
			return keys, size, err
		}
		if next++; n != model[i] {
			return keys, size, fmt.Errorf("%w: key %d of writer %d has the value of batch %d, not of %d (0: none)", errWrong,
				i, w, n, model[i])
		}
		keys, size = keys+1, size+int64(len(it.Key())+len(it.Value()))
	}
	if err := it.Err(); err != nil {
		return keys, size, err
	}

	return keys, size, skip(hi)
}
