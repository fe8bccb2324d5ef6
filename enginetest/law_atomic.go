package enginetest

import (
	"github.com/holdfastdb/holdfast"
)

var atomicCases = []lawCase{
	{name: "later operations win", run: laterWins},
	{name: "range deletes", run: rangeDeletes},
	{name: "seen whole", run: func(a *trial) { a.report(1, a.s.watched(a)) }},
	{name: "refused whole", run: refusedWhole},
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
