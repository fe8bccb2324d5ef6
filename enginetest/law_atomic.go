package enginetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
)

var atomicCases = []lawCase{
	{name: "later operations win", run: laterWins},
	{name: "range deletes", run: rangeDeletes},
	{name: "seen whole", run: func(a *trial) { a.report(1, a.s.watched(a)) }},
	{name: "refused whole", run: refusedWhole},
	{name: "in part, from its beginning, after kill -9", onDisk: true, once: true, needs: notAtomic, run: inPart},
	{name: "whole after kill -9", onDisk: true, run: func(a *trial) { a.report(1, a.s.killed(a)) }},
}

// Within a batch, a later operation on a key wins.
func laterWins(a *trial) {
	e := a.open(a.dir())
	a.commit(e, sets("a", "0", "b", "0", "c", "0"))
	var b holdfast.Batch
	b.Set([]byte("a"), []byte("1"))
	b.Set([]byte("a"), []byte("2"))
	b.Delete([]byte("b"))
	b.Set([]byte("b"), []byte("3"))
	b.Set([]byte("c"), []byte("4"))
	b.Delete([]byte("c"))
	b.Delete([]byte("was never there"))
	a.commit(e, &b)
	a.wantsAll(e, holdfast.Range{}, "a", "2", "b", "3")
	a.close(e)
}

// A range delete removes what the batches before it, and the operations before it in its own
// batch, have put there, and nothing that comes after.
func rangeDeletes(a *trial) {
	dir := a.dir()
	e := a.open(dir)

	fill := func() {
		a.commit(e, sets("a", "0", "b", "0", "bb", "0", "c", "0", "d", "0"))
	}
	for _, c := range []struct {
		lo, hi string
		left   []string
	}{
		{"b", "c", []string{"a", "0", "c", "0", "d", "0"}},
		{"b", "b", []string{"a", "0", "b", "0", "bb", "0", "c", "0", "d", "0"}},
		{"c", "b", []string{"a", "0", "b", "0", "bb", "0", "c", "0", "d", "0"}},
		{"b\x00", "c\x00", []string{"a", "0", "b", "0", "d", "0"}},
		{"", "c", []string{"c", "0", "d", "0"}},
		{"bb", "", []string{"a", "0", "b", "0"}},
		{"e", "", []string{"a", "0", "b", "0", "bb", "0", "c", "0", "d", "0"}},
		{"", "", nil},
	} {
		fill()
		var b holdfast.Batch
		b.DeleteRange([]byte(c.lo), []byte(c.hi))
		a.commit(e, &b)
		a.wantsAll(e, holdfast.Range{}, c.left...)
		if a.Failed() {
			a.Fatalf("... after a DeleteRange of [%q, %q)", c.lo, c.hi)
		}
	}

	fill()
	var b holdfast.Batch
	b.Set([]byte("bx"), []byte("1"))
	b.DeleteRange([]byte("b"), []byte("d"))
	b.Set([]byte("c"), []byte("1"))
	b.DeleteRange(nil, []byte("b"))
	a.commit(e, &b)
	a.wantsAll(e, holdfast.Range{}, "c", "1", "d", "0")

	// Several batches that may become one transaction.
	for _, text := range []string{"1", "2"} {
		b.Reset()
		b.DeleteRange(nil, nil)
		a.apply(e, &b)
		a.apply(e, sets("k"+text, text))
	}
	a.commit(e, &holdfast.Batch{})
	a.wantsAll(e, holdfast.Range{}, "k2", "2")
	a.closeAndCheck(e, dir, func(e holdfast.Engine) { a.wantsAll(e, holdfast.Range{}, "k2", "2") })
}

// A batch of which one operation is bad has no effect at all.
func refusedWhole(a *trial) {
	e := a.open(a.dir())
	a.set(e, "k", "1")
	b := sets("k", "2", "l", "2")
	b.Set(nil, []byte("no key"))
	b.Set([]byte("m"), []byte("2"))
	_, err := e.Apply(b, a.level)
	a.wantsErr("Apply of a batch with an empty key", err, holdfast.ErrBadKey)
	a.commit(e, &holdfast.Batch{})
	a.wantsAll(e, holdfast.Range{}, "k", "1")
	a.close(e)
}

// notAtomic says why batches are never there in part.
func notAtomic(s *suite) string {
	if s.caps.AtomicBatches {
		return "its batches are whole after a crash (Capabilities.AtomicBatches)"
	}

	return ""
}

// partKeys is how many keys each batch sets that is torn.
const partKeys = 16

func partKey(i int) []byte { return fmt.Appendf(nil, "part/%02d", i) }

// inPart kills a process that sets the same keys again and again, in one batch each time. Of the last batch the
// first operations may be there, and of no other one is any missing.
func inPart(a *trial) {
	dir, rnd := a.dir(), a.random()
	last := uint64(0)

	for range killRounds {
		c := a.startChild(order{Role: "part", Dir: dir, From: last + 1}, nil)
		acked := last

		for line, ok := c.next(); ok; line, ok = c.next() {
			n, err := strconv.ParseUint(strings.TrimPrefix(line, "ack "), 10, 64)
			if err != nil {
				a.Fatalf("the child said %q", line)
			}

			// The kill comes at a random moment after the first acknowledgement, so that it falls into a batch.
			if acked == last {
				time.AfterFunc(time.Duration(rnd.Int64N(int64(50*time.Millisecond))), c.Kill)
			}
			acked = n
		}
		err := c.ended()
		if acked == last {
			a.Fatalf("the writing process was not killed: %v", err)
		}

		e := a.open(dir)
		var found []uint64
		for i := range partKeys {
			text, err := e.Get(nil, partKey(i))
			if errors.Is(err, holdfast.ErrNotFound) {
				text, err = []byte("0"), nil
			}
			if err != nil {
				a.Fatalf("Get: %v", err)
			}
			n, err := strconv.ParseUint(string(text), 10, 64)
			if err != nil {
				a.Fatalf("a key has the value %q", text)
			}

			// The keys are set in order: the first ones may be of the batch that was cut off, and the others are of the one
			// before.
			if i > 0 && (n > found[i-1] || n+1 < found[0]) {
				a.Errorf("of batch %d there are other operations than its first ones: the keys are of batches %d, and the "+
					"next of %d", found[0], found, n)
			}
			found = append(found, n)
		}
		if end := found[partKeys-1]; end < acked && a.given() >= holdfast.Process {
			a.Errorf("batch %d was acknowledged, and the last key is of batch %d", acked, end)
		}
		a.Logf("%d acknowledged; the keys are of batches %d to %d", acked, found[partKeys-1], found[0])
		last = found[0]
		a.close(e)
	}
}

// childParts commits batches until it is killed.
func (s *suite) childParts(o order, t *reporter) error {
	e, err := s.Open(o.Dir, holdfast.Options{Level: o.Level})
	if err != nil {
		return err
	}

	for n := o.From; ; n++ {
		var b holdfast.Batch
		for i := range partKeys {
			b.Set(partKey(i), strconv.AppendUint(nil, n, 10))
		}
		if err := holdfast.Commit(e, &b, o.Level); err != nil {
			return err
		}
		t.say("ack %d", n)
	}
}
