package simulate

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// traffic makes batches. Their shape is chosen once for a history, so that histories differ.
type traffic struct {
	rnd     *rand.Rand
	keys    int  // different ones, but for the log's
	alpha   bool // short keys of few letters, instead of numbered ones
	log     int  // of 100 operations so many are those of a log
	deletes int
	ranges  int
	ops     int // in a batch, at most
	value   int // bytes, usually at most
	big     int // of 1000 values so many are large
	mark    bool

	next, first int // of the log's keys
	made        int // batches
}

// newTraffic chooses the shape of a history's batches. The order of the calls of rnd is part of what a seed means.
func newTraffic(rnd *rand.Rand) *traffic {
	pick := func(list ...int) int { return list[rnd.IntN(len(list))] }

	return &traffic{
		rnd: rnd, keys: pick(3, 20, 100, 400), alpha: rnd.IntN(3) == 0, log: pick(0, 0, 30, 90), deletes: pick(0, 10, 40),
		ranges: pick(0, 1, 5, 20), ops: pick(1, 4, 12, 40), value: pick(10, 60, 300, 1200), big: pick(0, 0, 5, 30),
		mark: rnd.IntN(2) == 0,
	}
}

// marker is a key that every batch of a history with marks sets, so that each state differs.
const marker = "mark"

// key chooses a key. Few letters, zero and 0xff among them, make neighbours that share prefixes and lie at the ends.
func (t *traffic) key() string {
	if t.alpha {
		b := make([]byte, 1+t.rnd.IntN(4))
		for i := range b {
			b[i] = "\x00ab\xff"[t.rnd.IntN(4)]
		}

		return string(b)
	}
	n := t.rnd.IntN(t.keys)
	if n%17 == 0 {
		return fmt.Sprintf("%s%d", strings.Repeat("long", 5+n), n)
	}

	return fmt.Sprintf("k%04d", n)
}

// logKey is key n of the log, whose keys ascend and are deleted from their beginning on, as in a queue.
func logKey(n int) string { return fmt.Sprintf("log/%08d", n) }

// bound is an end of a range: usually a key.
func (t *traffic) bound() string {
	switch t.rnd.IntN(12) {
	case 0:
		return ""
	case 1:
		return logKey(t.first + t.rnd.IntN(t.next-t.first+2))
	case 2:
		return t.key() + "\x00"
	}

	return t.key()
}

// bounds returns the bounds of a range, a small one half of the time.
func (t *traffic) bounds() (lo, hi string) {
	lo, hi = t.bound(), t.bound()
	if lo > hi && hi != "" && t.rnd.IntN(8) > 0 {
		lo, hi = hi, lo
	}
	if t.rnd.IntN(3) == 0 && lo != "" {
		hi = lo + "\xff"
	}

	return lo, hi
}

// filler is the content of values, after a unique name.
var filler = strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyz.ABCDEFGHIJKLMNOPQRSTUVWXYZ-", 1200)

// newValue makes a value that begins with its unique name, so that a value of the wrong place is found out.
func (t *traffic) newValue(name string) string {
	n := t.rnd.IntN(t.value + 1)
	switch {
	case t.rnd.IntN(1000) < t.big:
		n = 3000 + t.rnd.IntN(12_000)
		if t.rnd.IntN(4) == 0 {
			n += t.rnd.IntN(50_000)
		}
	case t.rnd.IntN(20) == 0:
		return ""
	}
	if n <= len(name) {
		return name
	}
	at := t.rnd.IntN(64)

	return name + filler[at:at+n-len(name)]
}

// batch makes a batch, in the model's form.
func (t *traffic) batch() []op {
	t.made++
	if t.rnd.IntN(60) == 0 {
		return nil // a barrier
	}

	list := make([]op, 0, t.ops+1)
	for i := range 1 + t.rnd.IntN(t.ops) {
		name := fmt.Sprintf("%d.%d:", t.made, i)
		if t.rnd.IntN(100) < t.log {
			if t.next > t.first && t.rnd.IntN(12) == 0 {
				from := "log/"
				if t.made%2 == 0 { // along what is deleted already
					from = logKey(t.first)
				}

				t.first += t.rnd.IntN(t.next - t.first + 1)
				list = append(list, commits.DeleteRange[string](from, logKey(t.first)))
				continue
			}
			t.next++
			list = append(list, commits.Set(logKey(t.next), t.newValue(name)))
			continue
		}

		switch n := t.rnd.IntN(100); {
		case n < t.ranges:
			lo, hi := t.bounds()
			list = append(list, commits.DeleteRange[string](lo, hi))
		case n < t.ranges+t.deletes:
			list = append(list, commits.Delete[string](t.key()))
		default:
			list = append(list, commits.Set(t.key(), t.newValue(name)))
		}
	}
	if t.mark {
		list = append(list, commits.Set(marker, fmt.Sprint(t.made)))
	}

	return list
}

// encode fills b with the operations of a batch.
func encode(b *holdfast.Batch, list []op) {
	commits.Encode(b, list, func(_, value string) []byte { return []byte(value) })
}
