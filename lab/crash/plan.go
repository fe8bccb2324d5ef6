package crash

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"github.com/holdfastdb/holdfast"
)

// op is one operation of a batch, without the bytes of its value.
type op struct {
	kind    holdfast.Kind
	key, hi string // hi ends a range
	size    int    // of the value
}

// plan says what every batch of a history contains. All of it follows from the seed, the
// generation of the victim that applied the batch, and its number. A generation begins where
// what survived the one before ends, and so uses numbers again that a crash has taken back; but its
// batches are others.
type plan struct{ seed uint64 }

// What the key-value plan works on. A batch n
//
//	adds b/n, so that it can be seen for as long as the last kept ones are there;
//	sets, deletes and range-deletes few slots in one of several stripes;
//	now and then sets a large value;
//	ends with setting its stripe's m/stripe.
const (
	stripes     = 8
	slots       = 48
	largeSlots  = 8
	kept        = 512 // numbers that b/ keeps at least
	trimEvery   = 64
	headerSize  = 12 // of a value: number and generation
	largestSize = 1<<20 + 200
)

func numberKey(n uint64) string      { return fmt.Sprintf("b/%016x", n) }
func stripeKey(stripe uint64) string { return fmt.Sprintf("m/%02d", stripe) }
func slotKey(stripe uint64, slot int) string {
	return fmt.Sprintf("s/%02d/%02d", stripe, slot)
}

// mix spreads what it is given over 64 bits.
func mix(values ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, v := range values {
		h ^= v
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// random is the source of everything in batch n of a generation.
func (p plan) random(gen uint32, n uint64) *rand.Rand {
	return rand.New(rand.NewPCG(mix(p.seed, uint64(gen)), mix(n)))
}

// weight is what kind of values a history has: 0 small ones, 1 and 2 larger ones too.
func (p plan) weight() uint64 { return mix(p.seed, 77) % 3 }

// batch lists the operations of batch n.
func (p plan) batch(gen uint32, n uint64) []op {
	r := p.random(gen, n)
	ops := make([]op, 0, 8)
	ops = append(ops, op{kind: holdfast.KindSet, key: numberKey(n), size: headerSize + r.IntN(60)})
	if n%trimEvery == 0 && n > kept {
		ops = append(ops, op{kind: holdfast.KindDeleteRange, key: numberKey(0), hi: numberKey(n - kept)})
	}
	stripe := n % stripes
	for range r.IntN(5) {
		slot := r.IntN(slots)
		switch what := r.IntN(20); {
		case what < 14:
			ops = append(ops, op{kind: holdfast.KindSet, key: slotKey(stripe, slot), size: p.slotSize(r)})
		case what < 18:
			ops = append(ops, op{kind: holdfast.KindDelete, key: slotKey(stripe, slot)})
		default:
			ops = append(ops, op{kind: holdfast.KindDeleteRange, key: slotKey(stripe, slot), hi: slotKey(stripe, slot+r.IntN(12))})
		}
	}
	if often := 400 / (1 + 2*int(p.weight())); r.IntN(often) == 0 {
		size := 20<<10 + r.IntN(60<<10)
		if r.IntN(8) == 0 {
			size = 1<<19 + r.IntN(largestSize-1<<19)
		}
		ops = append(ops, op{kind: holdfast.KindSet, key: fmt.Sprintf("t/%d", r.IntN(largeSlots)), size: size})
	}
	return append(ops, op{kind: holdfast.KindSet, key: stripeKey(stripe), size: headerSize})
}

func (p plan) slotSize(r *rand.Rand) int {
	limit := 150
	if w := p.weight(); w > 0 {
		switch r.IntN(10) {
		case 0:
			limit = 8 << 10 * int(w)
		case 1, 2:
			limit = 2 << 10
		}
	}
	return headerSize + r.IntN(limit)
}

// value appends what a key holds that batch n has set: its number and generation, and bytes that follow
// from them and the key.
func (p plan) value(dst []byte, gen uint32, n uint64, key string, size int) []byte {
	dst = binary.BigEndian.AppendUint64(dst, n)
	dst = binary.BigEndian.AppendUint32(dst, gen)
	h := fnv.New64a()
	h.Write([]byte(key))
	source := rand.NewPCG(mix(p.seed, uint64(gen), n), h.Sum64())
	for size -= headerSize; size >= 8; size -= 8 {
		dst = binary.LittleEndian.AppendUint64(dst, source.Uint64())
	}
	for last := source.Uint64(); size > 0; size-- {
		dst = append(dst, byte(last))
		last >>= 8
	}
	return dst
}

// header reads what value has put first.
func header(value []byte) (n uint64, gen uint32, ok bool) {
	if len(value) < headerSize {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(value), binary.BigEndian.Uint32(value[8:]), true
}

// digest stands for a value in what children tell of it.
type digest [16]byte

func digestOf(value []byte) (d digest) {
	sum := sha256.Sum256(value)
	copy(d[:], sum[:])
	return d
}

// fill makes batch n in b. scratch is reused; it returns the longer one.
func (p plan) fill(b *holdfast.Batch, scratch []byte, gen uint32, n uint64) []byte {
	b.Reset()
	for _, o := range p.batch(gen, n) {
		switch o.kind {
		case holdfast.KindSet:
			scratch = p.value(scratch[:0], gen, n, o.key, o.size)
			b.Set([]byte(o.key), scratch)
		case holdfast.KindDelete:
			b.Delete([]byte(o.key))
		case holdfast.KindDeleteRange:
			b.DeleteRange([]byte(o.key), []byte(o.hi))
		}
	}
	return scratch
}

// written is where a key's value is from.
type written struct {
	n    uint64
	gen  uint32
	size int
}

// state is what there is after some batches, as a model.
type state map[string]written

// apply lets batch n take effect. Where deleted is not nil it remembers which batch deleted each
// key last.
func (s state) apply(p plan, gen uint32, n uint64, deleted map[string]uint64) {
	drop := func(key string) {
		if _, ok := s[key]; ok && deleted != nil {
			deleted[key] = n
		}
		delete(s, key)
	}
	for _, o := range p.batch(gen, n) {
		switch o.kind {
		case holdfast.KindSet:
			s[o.key] = written{n, gen, o.size}
		case holdfast.KindDelete:
			drop(o.key)
		case holdfast.KindDeleteRange:
			for key := range s {
				if strings.Compare(key, o.key) >= 0 && strings.Compare(key, o.hi) < 0 {
					drop(key)
				}
			}
		}
	}
}
