package blockdev

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// testFile returns an empty file that goes with the test.
func testFile(t *testing.T, contents []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, contents, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// testRecorder returns a recorder of a disk that holds base.
func testRecorder(t *testing.T, base []byte, limit int64) *recorder {
	t.Helper()
	return newRecorder(&Record{fs: "ext4", size: int64(len(base)), base: testFile(t, base), data: testFile(t, nil)}, limit)
}

// sectorsOf returns n sectors that all say who wrote them and which they are.
func sectorsOf(writer byte, n int) []byte {
	var b []byte
	for i := range n {
		b = append(b, bytes.Repeat([]byte{writer, byte(i)}, Sector/2)...)
	}
	return b
}

func contents(t *testing.T, im *Image) []byte {
	t.Helper()
	b := make([]byte, im.size)
	if _, err := im.base.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	all := im.size / Sector
	for i := int64(0); i < all; {
		source, from, n := im.run(i, all-i)
		switch part := b[i*Sector : (i+n)*Sector]; source {
		case inBase:
		case zeros:
			clear(part)
		default:
			if _, err := im.data.ReadAt(part, from); err != nil {
				t.Fatal(err)
			}
		}
		i += n
	}
	return b
}

func write(r *recorder, off int64, data []byte) {
	r.add(event{kind: Write, off: off, n: int64(len(data))}, [][]byte{data})
}

// TestCutModel compares cuts of random histories with a model that keeps, for each sector, what it may hold.
func TestCutModel(t *testing.T) {
	const sectors = 64
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		base := sectorsOf(0, sectors)
		r := testRecorder(t, base, maxRecord)
		s := struct {
			now     []byte   // if nothing is lost
			durable []byte   // if all is lost that may be
			since   [][]byte // what it was after each event since the last flush
		}{now: bytes.Clone(base), durable: bytes.Clone(base)}
		for i := range 80 {
			n := 1 + rng.IntN(8)
			at := rng.IntN(sectors - n + 1)
			var failed uint32
			if rng.IntN(10) == 0 {
				failed = uint32(syscall.EIO)
			}
			place := s.now[at*Sector : (at+n)*Sector]
			switch k := rng.IntN(10); {
			case k < 6:
				data := sectorsOf(byte(1+i), n)
				if failed != 0 {
					r.add(event{kind: Write, off: int64(at) * Sector, n: int64(n) * Sector, err: failed}, nil)
					break
				}
				r.add(event{kind: Write, off: int64(at) * Sector, n: int64(n) * Sector}, [][]byte{data[:Sector], data[Sector:]})
				copy(place, data)
			case k < 7:
				r.add(event{kind: Discard, off: int64(at) * Sector, n: int64(n) * Sector, err: failed}, nil)
				if failed == 0 {
					clear(place)
				}
			case k < 8:
				r.add(event{kind: Flush, err: failed}, nil)
				if failed == 0 {
					s.durable, s.since = bytes.Clone(s.now), nil
				}
			default:
				if got := r.mark(uint64(i)); int(got) != i {
					t.Fatalf("mark at %d, event %d", got, i)
				}
			}
			s.since = append(s.since, bytes.Clone(s.now))
			rec := r.rec // nothing is added while it is cut
			end := Position(rec.Len())
			if got := contents(t, rec.Cut(end, Nothing())); !bytes.Equal(got, s.durable) {
				t.Fatalf("seed %d, event %d: Nothing keeps %d, want what was flushed", seed, i, differs(got, s.durable))
			}
			if got := contents(t, rec.Cut(end, Everything())); !bytes.Equal(got, s.now) {
				t.Fatalf("seed %d, event %d: Everything differs at %d", seed, i, differs(got, s.now))
			}
			im := rec.Cut(end, Subset(seed))
			got := contents(t, im)
			if !bytes.Equal(got, contents(t, rec.Cut(end, Subset(seed)))) {
				t.Fatalf("seed %d, event %d: the same seed gives another image", seed, i)
			}
			for sector := range sectors {
				part := func(b []byte) []byte { return b[sector*Sector : (sector+1)*Sector] }
				ok := bytes.Equal(part(got), part(s.durable))
				for _, b := range s.since {
					ok = ok || bytes.Equal(part(got), part(b))
				}
				if !ok {
					t.Fatalf("seed %d, event %d: sector %d holds what it never held since the flush", seed, i, sector)
				}
			}
		}
	}
}

func differs(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i / Sector
		}
	}
	return -1
}

// TestSubsetTears: seeds reach every outcome: whole, lost, torn, in order and not.
func TestSubsetTears(t *testing.T) {
	base := sectorsOf(0, 16)
	r := testRecorder(t, base, maxRecord)
	write(r, 0, sectorsOf(1, 8))
	write(r, 8*Sector, sectorsOf(2, 8))
	rec := r.freeze()
	var whole, torn, lost, second, gap int
	for seed := range uint64(300) {
		im := rec.Cut(2, Subset(seed))
		b := contents(t, im)
		newIn := func(half, writer int) (n int) {
			for i := range 8 {
				if b[(half*8+i)*Sector] == byte(writer) {
					n++
				}
			}
			return n
		}
		one, two := newIn(0, 1), newIn(1, 2)
		if f := im.Counts(); f.Kept+f.Torn+f.Lost != 2 || f.Torn == 0 && (one+two != 8*f.Kept) {
			t.Fatalf("seed %d: %+v, but %d and %d sectors are there", seed, f, one, two)
		}
		switch one {
		case 8:
			whole++
		case 0:
			lost++
		default:
			torn++
			if b[0] == 0 {
				gap++ // a later sector without the first one
			}
		}
		if one == 0 && two == 8 {
			second++
		}
	}
	if whole < 30 || torn < 15 || lost < 30 || second < 10 || gap < 5 {
		t.Errorf("of 300 seeds: %d whole, %d torn (%d without their first sector), %d lost, %d with only the second write",
			whole, torn, gap, lost, second)
	}
}

// TestTorn: only the last write parts, at sectors, and a failed one is none.
func TestTorn(t *testing.T) {
	base := sectorsOf(0, 16)
	r := testRecorder(t, base, maxRecord)
	write(r, 0, sectorsOf(1, 8))
	write(r, 8*Sector, sectorsOf(2, 8))
	r.add(event{kind: Write, off: 0, n: 8 * Sector, err: uint32(syscall.EIO)}, nil)
	r.mark(1)
	rec := r.freeze()
	ends := map[int]bool{}
	for seed := range uint64(100) {
		im := rec.Cut(Position(rec.Len()), Torn(seed))
		b := contents(t, im)
		if !bytes.Equal(b[:8*Sector], sectorsOf(1, 8)) || im.Counts() != (CutCounts{Kept: 1, Torn: 1}) {
			t.Fatalf("seed %d: %+v, or what came first is not whole", seed, im.Counts())
		}
		n := 0
		for i := range 8 {
			if b[(8+i)*Sector] == 2 {
				n++
			}
		}
		ends[n] = true
	}
	if len(ends) < 7 || Torn(3).String() != "torn:3" {
		t.Errorf("the last write parts after %v sectors; %v", ends, Torn(3))
	}
}

// TestLied: a flush that was a lie covers nothing, and what the one before it covers is there.
func TestLied(t *testing.T) {
	base := sectorsOf(0, 4)
	r := testRecorder(t, base, maxRecord)
	states := [][]byte{bytes.Clone(base)} // at each flush
	for writer := byte(1); writer <= 3; writer++ {
		data := sectorsOf(writer, 1)
		write(r, int64(writer-1)*Sector, data)
		state := bytes.Clone(states[len(states)-1])
		copy(state[int64(writer-1)*Sector:], data)
		states = append(states, state)
		r.add(event{kind: Flush, err: uint32(syscall.EIO)}, nil)
		r.add(event{kind: Flush}, nil)
	}
	rec := r.freeze()
	for n, want := range map[int]int{-1: 3, 0: 3, 1: 2, 2: 1, 3: 0, 9: 0} {
		im := rec.Cut(Position(rec.Len()), Nothing().Lied(n))
		if got := contents(t, im); !bytes.Equal(got, states[want]) || im.Counts().Lost != 3-want {
			t.Errorf("%d lies: not what was there at flush %d, %+v", n, want, im.Counts())
		}
		if got := contents(t, rec.Cut(Position(rec.Len()), Everything().Lied(n))); !bytes.Equal(got, states[3]) {
			t.Errorf("%d lies, and all was kept in the end: something is not there", n)
		}
	}
	if text := Subset(7).Lied(2).String(); text != "subset:7 since 2 flushes before" {
		t.Error(text)
	}
}

func TestRecordAccess(t *testing.T) {
	r := testRecorder(t, make([]byte, 16*Sector), maxRecord)
	data := sectorsOf(7, 2)
	write(r, Sector, data)
	r.add(event{kind: Write, off: 0, n: Sector, err: uint32(syscall.EIO)}, nil)
	r.add(event{kind: Flush}, nil)
	r.mark(42)
	r.add(event{kind: Flush, err: uint32(syscall.EIO)}, nil)
	rec := r.freeze()
	if rec.Len() != 5 || rec.Err() != nil {
		t.Fatalf("len %d, %v", rec.Len(), rec.Err())
	}
	for i, want := range []Event{
		{Kind: Write, Offset: Sector, Length: 2 * Sector},
		{Kind: Write, Length: Sector, Err: syscall.EIO},
		{Kind: Flush},
		{Kind: Mark, Value: 42},
		{Kind: Flush, Err: syscall.EIO},
	} {
		got := rec.Event(i)
		got.At = 0
		if got != want {
			t.Errorf("event %d is %v, want %v", i, got, want)
		}
		if got.String() == "" {
			t.Errorf("event %d has no text", i)
		}
	}
	for i := 1; i < 5; i++ {
		if rec.Event(i).At < rec.Event(i-1).At {
			t.Errorf("event %d is before %d", i, i-1)
		}
	}
	if rec.Event(-1) != (Event{}) || rec.Event(5) != (Event{}) {
		t.Error("an event outside the record")
	}
	for at, want := range map[Position]int{-5: 0, 0: 0, 2: 0, 3: 3, 4: 3, 5: 3, 99: 3} {
		if got := rec.Durable(at); got != want {
			t.Errorf("durable before %d: %d, want %d", at, got, want)
		}
	}
	for _, at := range []Position{-1, 0} {
		if !bytes.Equal(contents(t, rec.Cut(at, Everything())), make([]byte, 16*Sector)) {
			t.Errorf("a cut at %d is not the base", at)
		}
	}
	im := rec.Cut(99, Everything())
	if b := contents(t, im); !bytes.Equal(b[Sector:3*Sector], data) || b[0] != 0 {
		t.Error("a cut past the end is not all that was written")
	}
	if r.mark(1) != Unrecorded || rec.Len() != 5 {
		t.Error("a mark after the end was recorded")
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
}

func TestRecordLimit(t *testing.T) {
	r := testRecorder(t, make([]byte, 16*Sector), 8*Sector)
	for range 10 {
		write(r, 0, sectorsOf(1, 1)) // each counts for two sectors
	}
	rec := r.freeze()
	if rec.Len() != 4 || !errors.Is(rec.Err(), holdfast.ErrTooLarge) {
		t.Errorf("%d events, %v", rec.Len(), rec.Err())
	}
	r = testRecorder(t, make([]byte, Sector), maxRecord)
	r.rec.data.Close() // the scratch file fails
	write(r, 0, sectorsOf(1, 1))
	if rec := r.freeze(); rec.Len() != 0 || !errors.Is(rec.Err(), holdfast.ErrUnavailable) {
		t.Errorf("%d events, %v", rec.Len(), rec.Err())
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{FS: "vfat"}, {Size: -1}, {Size: 1 << 20}, {Size: 256<<20 + 1}, {Size: 32 << 30}, {FS: "xfs", Size: 256 << 20},
	} {
		if _, err := o.withDefaults(); !errors.Is(err, holdfast.ErrBadOption) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, fs := range append(FileSystems(), "") {
		o, err := Options{FS: fs}.withDefaults()
		if err != nil || o.Size < MinSize(o.FS) || MinSize(o.FS) == 0 {
			t.Errorf("%q: %+v, %v", fs, o, err)
		}
	}
}
