package enginetest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfastdb/holdfast"
)

// script is a run of batches numbered from 1, each made from its number alone. Whoever
// knows that n of them took effect knows the whole state, so that a state can be judged
// without a record of what was written.
//
// Batch n adds the keys a/n, m/n and z/n for good, far apart, and works on few slots that
// later batches overwrite and delete again. Where batches can be torn it adds a/n and does
// no more.
type script struct {
	atomic bool
	fat    int // bytes that every value has more
}

func (s *suite) script() script { return script{atomic: s.caps.AtomicBatches} }

const slots = 16

// parts lists the keys that a batch adds for good.
func (s script) parts() []string {
	if s.atomic {
		return []string{"a", "m", "z"}
	}
	return []string{"a"}
}

func partKey(part string, n uint64) string { return fmt.Sprintf("%s/%08d", part, n) }

func slotKey(slot uint64) string { return fmt.Sprintf("slot/%02d", slot) }

// value is what a key written by batch n holds: its number, and some bytes that depend on the
// key, now and then many.
func (s script) value(key string, n uint64) []byte {
	size := int(n * 37 % 120)
	if n%29 == 0 {
		size = 5000
	}
	h := n
	for _, c := range []byte(key) {
		h = h*31 + uint64(c)
	}
	return append(binary.BigEndian.AppendUint64(nil, n), filler(h, size+s.fat)...)
}

// batch makes batch n in b.
func (s script) batch(b *holdfast.Batch, n uint64) *holdfast.Batch {
	b.Reset()
	for i, part := range s.parts() {
		key := partKey(part, n)
		b.Set([]byte(key), s.value(key, n))
		if i > 0 || !s.atomic {
			continue
		}
		// The slots come between the parts, so that a batch torn anywhere has one part and
		// lacks another.
		if lo, hi, clear := cleared(n); clear {
			b.DeleteRange([]byte(slotKey(lo)), []byte(slotKey(hi)))
		}
		for _, slot := range []uint64{n % slots, n * 7 % slots} {
			b.Set([]byte(slotKey(slot)), s.value(slotKey(slot), n))
		}
		if n%5 == 0 {
			b.Delete([]byte(slotKey(n * 3 % slots)))
		}
	}
	return b
}

// cleared says which slots batch n deletes by range, if any.
func cleared(n uint64) (lo, hi uint64, clear bool) {
	lo = n * 5 % slots
	return lo, lo + n%7, n%11 == 0
}

// slotsAfter is the number of the batch that wrote each slot once n batches took effect, 0
// for a slot that is not there.
func (s script) slotsAfter(n uint64) (state [slots]uint64) {
	if !s.atomic {
		return state
	}
	for i := uint64(1); i <= n; i++ {
		if lo, hi, clear := cleared(i); clear {
			for slot := lo; slot < min(hi, slots); slot++ {
				state[slot] = 0
			}
		}
		state[i%slots], state[i*7%slots] = i, i
		if i%5 == 0 {
			state[i*3%slots] = 0
		}
	}
	return state
}

// finding is a breach of a law.
type finding struct {
	law  int
	text string
}

// judge says how many batches a state holds, and what in it no number of batches explains.
// The pairs may come in any order.
func (s script) judge(state []pair) (n uint64, breaches []finding) {
	breach := func(law int, format string, args ...any) {
		if len(breaches) < 10 {
			breaches = append(breaches, finding{law, fmt.Sprintf(format, args...)})
		}
	}
	found := map[uint64]int{} // parts of each batch
	inSlot := map[string]string{}
	seen := map[string]bool{}
	most := uint64(0)
	for _, p := range state {
		if seen[p.key] {
			breach(2, "key %q is there twice", p.key)
			continue
		}
		seen[p.key] = true
		part, rest, _ := strings.Cut(p.key, "/")
		number, err := strconv.ParseUint(rest, 10, 64)
		switch {
		case part == "slot" && s.atomic && err == nil && number < slots && p.key == slotKey(number):
			inSlot[p.key] = p.value
		case err == nil && number > 0 && p.key == partKey(part, number) && slices.Contains(s.parts(), part):
			if p.value != string(s.value(p.key, number)) {
				breach(3, "%q holds %s, which was never written", p.key, show([]byte(p.value)))
			}
			found[number]++
			most = max(most, number)
		default:
			breach(3, "key %s is there, which was never written", show([]byte(p.key)))
		}
	}
	for i := uint64(1); i <= most; i++ {
		switch found[i] {
		case len(s.parts()):
			if n == i-1 {
				n = i
			} else {
				breach(2, "batch %d is there, batch %d, applied before it, is not", i, n+1)
				return n, breaches
			}
		case 0:
		default:
			breach(1, "batch %d is there in part: %d of %d keys", i, found[i], len(s.parts()))
			return n, breaches
		}
	}
	for slot, writer := range s.slotsAfter(n) {
		key := slotKey(uint64(slot))
		value, ok := inSlot[key]
		switch {
		case writer == 0 && ok:
			breach(2, "after batch %d, %q should be deleted, but holds %s", n, key, s.writer(value))
		case writer != 0 && !ok:
			breach(2, "after batch %d, %q should hold what batch %d wrote, but is not there", n, key, writer)
		case writer != 0 && value != string(s.value(key, writer)):
			breach(2, "after batch %d, %q should hold what batch %d wrote, but holds %s", n, key, writer, s.writer(value))
		}
	}
	return n, breaches
}

// writer names the batch that wrote a value.
func (s script) writer(value string) string {
	if len(value) < 8 {
		return show([]byte(value))
	}
	return fmt.Sprintf("what batch %d wrote", binary.BigEndian.Uint64([]byte(value)))
}
