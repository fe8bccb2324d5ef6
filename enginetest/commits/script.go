package commits

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
)

// Script is a history that is computed from numbers, so that a state can be judged without a record of what was
// written: from the seed, the generation of the process that applied a batch, and the batch's own number, from 1. A
// generation begins where what survived the one before ends. It uses numbers again that a crash has taken
// back; but its batches are others.
//
// Batch n
//
//	sets b/n;
//	sets c/ of n+1 modulo 8, and sets or deletes c/ of n modulo 8, so that the order of neighbours shows;
//	sets, deletes and range-deletes few slots in one of several stripes;
//	now and then sets a large value;
//	ends with setting its stripe's m/stripe.
//
// A batch that is torn anywhere so has one key and lacks another. If Single, each batch is one of those operations; see
// single.
type Script struct {
	Seed   uint64
	Large  int    // 0 for small values, 1 and 2 for larger ones among them
	Keep   uint64 // every 64th batch deletes b/ of all numbers but the last Keep ones; 0 keeps all
	Extra  int    // bytes that every value has more
	Single bool   // each batch has one operation on one key, for engines that do not promise whole batches
}

const (
	stripes     = 8
	slots       = 48
	contested   = 8
	largeSlots  = 8
	trimEvery   = 64
	largestSize = 1<<20 + 200
)

// HeaderSize is the size of what begins a value: the number and generation of the batch that set it.
const HeaderSize = 12

// NumberKey is the key that batch n sets and no other.
func NumberKey(n uint64) string      { return fmt.Sprintf("b/%016x", n) }
func stripeKey(stripe uint64) string { return fmt.Sprintf("m/%02d", stripe) }
func contestedKey(n uint64) string   { return fmt.Sprintf("c/%d", n%contested) }

// SlotKey is a key that many batches set and delete.
func SlotKey(r *rand.Rand) string { return slotKey(r.Uint64N(stripes), r.IntN(slots)) }

func slotKey(stripe uint64, slot int) string { return fmt.Sprintf("s/%02d/%02d", stripe, slot) }

// Mix is a hash of its argument over 64 bits.
func Mix(values ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, v := range values {
		h ^= v
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}

	return h
}

// Random is the source of everything in batch n of a generation.
func (s Script) Random(gen uint32, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(Mix(s.Seed, uint64(gen)), Mix(n)))
}

// Written identifies a value: the batch that set it, and its size.
type Written struct {
	N    uint64
	Gen  uint32
	Size int
}

// String says which batch wrote the value.
func (w Written) String() string { return fmt.Sprintf("what batch %d wrote", w.N) }

// Ops lists the operations of batch n.
func (s Script) Ops(gen uint32, n uint64) []Op[Written] {
	r := s.Random(gen, n)
	ops := make([]Op[Written], 0, 8)
	set := func(key string, size int) { ops = append(ops, Set(key, Written{n, gen, size + s.Extra})) }
	if s.Single {
		if key, deletes := s.single(n); deletes {
			ops = append(ops, Delete[Written](key))
		} else {
			set(key, s.slotSize(r))
		}

		return ops
	}
	set(NumberKey(n), HeaderSize+r.IntN(60))
	if s.Keep > 0 && n%trimEvery == 0 && n > s.Keep {
		ops = append(ops, DeleteRange[Written](NumberKey(0), NumberKey(n-s.Keep)))
	}
	set(contestedKey(n+1), HeaderSize)
	if r.IntN(8) > 0 {
		set(contestedKey(n), HeaderSize)
	} else {
		ops = append(ops, Delete[Written](contestedKey(n)))
	}

	stripe := n % stripes
	for range r.IntN(5) {
		slot := r.IntN(slots)
		switch what := r.IntN(20); {
		case what < 14:
			set(slotKey(stripe, slot), s.slotSize(r))
		case what < 18:
			ops = append(ops, Delete[Written](slotKey(stripe, slot)))
		default:
			ops = append(ops, DeleteRange[Written](slotKey(stripe, slot), slotKey(stripe, slot+r.IntN(12))))
		}
	}
	if often := 400 / (1 + 2*s.Large); r.IntN(often) == 0 {
		size := 20<<10 + r.IntN(60<<10)
		if r.IntN(8) == 0 {
			size = 1<<19 + r.IntN(largestSize-1<<19)
		}
		set(fmt.Sprintf("t/%d", r.IntN(largeSlots)), size)
	}
	set(stripeKey(stripe), HeaderSize)

	return ops
}

// Step is the distance between the numbers of batches that set a key which they alone set, see [NumberKey]: those that
// it divides.
func (s Script) Step() uint64 {
	if s.Single {
		return numbered
	}

	return 1
}

// numbered is how many batches of one operation there are for each that sets b/n.
const numbered = 4

// single is what batch n of one operation does: every fourth sets b/n; of the three that follow, each sets or deletes
// another key. What is deleted is there, so that every batch changes something. None depends on the generation.
func (s Script) single(n uint64) (key string, deletes bool) {
	slot := func(n uint64) string {
		x := Mix(s.Seed, n)
		return slotKey(x%stripes, int(x/stripes%slots))
	}
	switch n % (2 * numbered) {
	case 0, numbered:
		return NumberKey(n), false
	case 1, 7:
		return slot(n), false
	case 5:
		return slot(n - numbered), true
	case 2, 6:
		if old := n - 2; s.Keep > 0 && old > s.Keep {
			return NumberKey(old - s.Keep), true
		}
	}

	return contestedKey(n), false
}

// lastSingle is the last batch of one operation of which something is there, if that before it which set b/n was n.
func (s Script) lastSingle(n uint64, from holdfast.Reader) (uint64, error) {
	for end := n + numbered; n+1 < end; n++ {
		key, deletes := s.single(n + 1)
		got, err := from.Get(nil, []byte(key))
		switch f := NewFound(key, got); {
		case err != nil && !errors.Is(err, holdfast.ErrNotFound):
			return n, err
		case err != nil && !deletes, err == nil && deletes && f.N <= n+1, err == nil && !deletes && f.N < n+1:
			return n, nil
		}
	}

	return n, nil
}

func (s Script) slotSize(r *rand.Rand) int {
	limit := 150
	if s.Large > 0 {
		switch r.IntN(10) {
		case 0:
			limit = 8 << 10 * s.Large
		case 1, 2:
			limit = 2 << 10
		}
	}

	return HeaderSize + r.IntN(limit)
}

// Value appends the value that w identifies: its number and generation, and bytes that follow from them and the key.
func (s Script) Value(dst []byte, key string, w Written) []byte {
	dst = binary.BigEndian.AppendUint64(dst, w.N)
	dst = binary.BigEndian.AppendUint32(dst, w.Gen)
	h := fnv.New64a()
	h.Write([]byte(key))

	source := rand.NewPCG(Mix(s.Seed, uint64(w.Gen), w.N), h.Sum64())
	size := w.Size - HeaderSize
	for ; size >= 8; size -= 8 {
		dst = binary.LittleEndian.AppendUint64(dst, source.Uint64())
	}

	for last := source.Uint64(); size > 0; size-- {
		dst = append(dst, byte(last))
		last >>= 8
	}

	return dst
}

// Fill makes batch n in b, and returns it. Of scratch it uses the memory, and keeps what it has grown to there.
func (s Script) Fill(b *holdfast.Batch, scratch *[]byte, gen uint32, n uint64) *holdfast.Batch {
	return Encode(b, s.Ops(gen, n), func(key string, w Written) []byte {
		*scratch = s.Value((*scratch)[:0], key, w)
		return *scratch
	})
}

// Encode makes a commit in b, and returns it. value makes the bytes of a value.
func Encode[V comparable](b *holdfast.Batch, commit []Op[V], value func(key string, v V) []byte) *holdfast.Batch {
	b.Reset()

	for _, o := range commit {
		switch o.Kind {
		case holdfast.KindSet:
			b.Set([]byte(o.Key), value(o.Key, o.Value))
		case holdfast.KindDelete:
			b.Delete([]byte(o.Key))
		case holdfast.KindDeleteRange:
			b.DeleteRange([]byte(o.Key), []byte(o.Hi))
		}
	}

	return b
}

// Digest is a hash of the bytes of a value.
type Digest [16]byte

// DigestOf returns the digest of some bytes.
func DigestOf(value []byte) (d Digest) {
	sum := sha256.Sum256(value)
	copy(d[:], sum[:])

	return d
}

// Found is something found in an engine or store: a key, or a position of a log.
type Found struct {
	Key string
	N   uint64 // as its value says, 0 if that says nothing
	Gen uint32
	Len int
	Sum Digest
}

// NewFound describes a value found under key.
func NewFound(key string, value []byte) Found {
	f := Found{Key: key, Len: len(value), Sum: DigestOf(value)}
	if len(value) >= HeaderSize {
		f.N, f.Gen = binary.BigEndian.Uint64(value), binary.BigEndian.Uint32(value[8:])
	}

	return f
}

// String describes the key and its value, as failures print them.
func (f Found) String() string {
	return fmt.Sprintf("%s of batch %d, generation %d, %d bytes, digest %.4x", Quote(f.Key), f.N, f.Gen, f.Len, f.Sum)
}

// Judge judges what was found, in any order. generation returns that which applied a batch. Batches after issued
// cannot be there, and those up to least must be.
func (s Script) Judge(found []Found, generation func(n uint64) uint32, least, issued uint64) Verdict {
	var strange Verdict
	state := make(State[Written], 0, len(found))
	last := uint64(0)
	for _, f := range found {
		if why := s.strange(f, generation, issued); why != "" {
			strange.Find(Wrong, "%v: %s", f, why)
			continue
		}
		state = append(state, Entry[Written]{f.Key, Written{f.N, f.Gen, f.Len}})
		last = max(last, f.N)
	}

	for s.Single && last < issued { // deletions show by nothing else
		if _, deletes := s.single(last + 1); !deletes {
			break
		}
		last++
	}
	slices.SortStableFunc(state, func(a, b Entry[Written]) int { return strings.Compare(a.Key, b.Key) })
	state = slices.CompactFunc(state, func(a, b Entry[Written]) bool {
		if a.Key == b.Key {
			strange.Find(Wrong, "%s is there twice", Quote(b.Key))
		}

		return a.Key == b.Key
	})
	v := History[Written]{
		Last: last, Least: least, Ops: func(n uint64) []Op[Written] { return s.Ops(generation(n), n) },
	}.Judge(state)
	v.Findings = append(strange.Findings, v.Findings...)

	return v
}

// strange says why f can never have been written, "" if it was.
func (s Script) strange(f Found, generation func(n uint64) uint32, issued uint64) string {
	switch {
	case f.N == 0 || f.N > issued:
		return "no batch wrote it"
	case f.Gen != generation(f.N):
		return "a crash had taken that batch back"
	}

	why := "that batch did not write this key"
	for _, o := range s.Ops(f.Gen, f.N) {
		switch {
		case o.Kind != holdfast.KindSet || o.Key != f.Key:
		case f.Len != o.Value.Size:
			why = fmt.Sprintf("it was written with %d bytes", o.Value.Size)
		case f.Sum != DigestOf(s.Value(nil, f.Key, o.Value)):
			why = "its bytes are damaged"
		default:
			why = ""
		}
	}

	return why
}

// recentKeys is how many of the keys b/ are looked at by Recent.
const recentKeys = 600

// Recent looks at the last batches in a snapshot, by Scan and by Get: the numbers have no holes, and the last batch is
// there whole. It costs less than Judge. It returns the number of the last batch.
func (s Script) Recent(from holdfast.Snapshot) (n uint64, v Verdict, err error) {
	last := uint64(0)
	read := func(r holdfast.Range, most int, see func(f Found)) (n int) {
		it := from.Scan(r)
		for ; n < most && it.Next(); n++ {
			value := it.Value()
			see(NewFound(string(it.Key()), value[:min(len(value), HeaderSize)]))
		}
		err = errors.Join(err, it.Close())

		return n
	}
	before, step := uint64(0), s.Step()
	keys := read(holdfast.Range{Lo: []byte("b/"), Hi: []byte("b0"), Reverse: true}, recentKeys, func(f Found) {
		switch {
		case f.Key != NumberKey(f.N):
			v.Find(Wrong, "%s holds a value of batch %d", Quote(f.Key), f.N)
		case last == 0:
			last = f.N
		case f.N != before-step:
			v.Find(OutOfOrder, "batches %d and %d are there, and none between", f.N, before)
		}
		before = f.N
	})
	end := last // of all batches, where last is of those that set b/
	if s.Single && err == nil {
		end, err = s.lastSingle(last, from)
	}
	if first := step; keys < recentKeys && before > 0 {
		switch {
		case s.Single && s.Keep > 0 && end > s.Keep+2:
			first = (end-s.Keep-2)/numbered*numbered + numbered
		case !s.Single && s.Keep > 0 && last > s.Keep:
			first = last - s.Keep
		}
		if before > first {
			v.Find(OutOfOrder, "the last batch is %d, and batch %d is not there", last, before-step)
		}
	}
	marks := map[string]uint64{}
	read(holdfast.Range{Lo: []byte("m/"), Hi: []byte("m0")}, 2*stripes, func(f Found) { marks[f.Key] = f.N })

	for n := last; n > 0 && n+stripes > last && !s.Single; n-- {
		if mark := marks[stripeKey(n%stripes)]; mark != n {
			v.Find(Torn, "batch %d is there in part: the last batch is %d, and %s is of batch %d", max(n, mark), last,
				stripeKey(n%stripes), mark)
		}
		delete(marks, stripeKey(n%stripes))
	}

	for key, mark := range marks {
		v.Find(Torn, "batch %d is there in part: the last batch is %d, and there is %s", mark, last, Quote(key))
	}

	for n := max(last, 2*step) - step; n <= last+step && err == nil; n += step {
		got, missing := from.Get(nil, []byte(NumberKey(n)))
		switch f := NewFound(NumberKey(n), got); {
		case missing != nil && !errors.Is(missing, holdfast.ErrNotFound):
			err = missing
		case (missing == nil) != (n <= last):
			v.Find(OutOfOrder, "the last batch is %d by Scan, and Get of %s answers %v", last, f.Key, missing)
		case missing == nil:
			if why := s.strange(f, func(uint64) uint32 { return f.Gen }, last); why != "" {
				v.Find(Wrong, "%v: %s", f, why)
			}
		}
	}

	return end, v, err
}
