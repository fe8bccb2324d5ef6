package enginetest

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
)

var orderedCases = []lawCase{
	{name: "overwrites", run: overwrites},
	{name: "levels mixed", run: mixedLevels},
	{name: "seen in order", run: func(a *asked) { a.report(2, a.s.watched(a)) }},
	{name: "in order after kill -9", onDisk: true, run: func(a *asked) { a.report(2, a.s.killed(a)) }},
}

// Of many batches on one key the last one applied wins, whoever waits for which.
func overwrites(a *asked) {
	dir := a.dir()
	e := a.open(dir)
	var last holdfast.Receipt
	for i := range 200 {
		r := a.apply(e, sets("k", fmt.Sprint(i), "n", fmt.Sprint(i)))
		if i%50 == 49 {
			last = r
		}
	}
	if err := last.Wait(); err != nil {
		a.Fatalf("Wait: %v", err)
	}
	a.wantsAll(e, holdfast.Range{}, "k", "199", "n", "199")
	a.close(e)
	if a.s.kept {
		e = a.open(dir)
		a.wantsAll(e, holdfast.Range{}, "k", "199", "n", "199")
		a.close(e)
	}
}

// Order does not depend on the levels asked for.
func mixedLevels(a *asked) {
	dir := a.dir()
	e := a.open(dir)
	var given []holdfast.Level
	for _, l := range holdfast.Levels() {
		if e.Capabilities().Promise(l).Given != 0 {
			given = append(given, l)
		}
	}
	const batches = 60
	var b holdfast.Batch
	for n := uint64(1); n <= batches; n++ {
		level := given[int(n*n/3)%len(given)]
		r, err := e.Apply(a.s.script().batch(&b, n), level)
		if err != nil {
			a.Fatalf("Apply at %v: %v", level, err)
		}
		if n%7 != 0 {
			continue
		}
		if err := r.Wait(); err != nil {
			a.Fatalf("Wait at %v: %v", level, err)
		}
		a.wantsScript(e, n, n)
	}
	a.commit(e, &holdfast.Batch{})
	a.wantsScript(e, batches, batches)
	a.close(e)
	if a.s.kept {
		e = a.open(dir)
		a.wantsScript(e, batches, batches)
		a.close(e)
	}
}
