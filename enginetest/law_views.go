package enginetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

var viewCases = []lawCase{
	{name: "snapshots are fixed", run: fixedSnapshots},
	{name: "iterators are fixed", run: fixedIterators},
	{name: "ranges, both ways", once: true, run: ranges},
	{name: "many at once", once: true, run: manyViews},
	{name: "writers are not blocked", run: unblocked},
	{name: "Metrics counts open ones", once: true, run: countedViews},
	{name: "Close refuses while any is open", run: busyClose},
	{name: "seen by readers", run: func(a *trial) { a.report(5, a.s.watched(a)) }},
}

// snapshot takes one, and closes it when the case ends, if it has not.
func (a *trial) snapshot(e holdfast.Engine) holdfast.Snapshot {
	a.Helper()
	s, err := e.Snapshot()
	if err != nil {
		a.Fatalf("Snapshot: %v", err)
	}
	a.Cleanup(func() { _ = s.Close() })

	return s
}

// closeAll closes views and fails if that does.
func (a *trial) closeAll(views ...interface{ Close() error }) {
	a.Helper()

	for _, v := range views {
		if err := v.Close(); err != nil {
			a.Errorf("Close: %v", err)
		}
	}
}

// A snapshot shows the same, however it is read, while the engine goes on.
func fixedSnapshots(a *trial) {
	e := a.open(a.dir())
	var b holdfast.Batch
	n := uint64(0)
	write := func(many uint64) {
		a.applyScript(e, n+1, n+many)
		n += many
		a.commit(e, &holdfast.Batch{})
	}

	// What came before the snapshot is in it, and nothing of what comes after.
	write(30)
	s := a.snapshot(e)
	want, err := commits.Contents(s, holdfast.Range{})
	if err != nil {
		a.Fatalf("Scan: %v", err)
	}
	check := func() {
		a.Helper()
		a.wantsScript(s, 30, 30)
		backwards, err := commits.Contents(s, holdfast.Range{Reverse: true})
		if err != nil {
			a.Fatalf("Scan: %v", err)
		}
		slices.Reverse(backwards)
		if d := commits.Difference(backwards, want); d != "" {
			a.Errorf("read backwards, a snapshot differs: %s", d)
		}

		for _, p := range want {
			a.wants(s, p.Key, p.Value)
		}
		a.lacks(s, commits.NumberKey(n+1))
		if n > 30 {
			a.lacks(s, commits.NumberKey(n))
		}
	}
	check()
	write(30)
	check()
	b.Reset()

	// Not even a delete of everything, the greatest change there is.
	b.DeleteRange(nil, nil)
	a.commit(e, &b)
	check()
	a.wantsAll(e, holdfast.Range{})
	a.set(e, want[0].Key, "something else")

	var readers sync.WaitGroup
	for range 6 {
		readers.Go(func() {
			got, err := commits.Contents(s, holdfast.Range{})
			if err != nil {
				a.Errorf("Scan: %v", err)
			} else if d := commits.Difference(got, want); d != "" {
				a.Errorf("read by many goroutines, a snapshot differs: %s", d)
			}
		})
	}
	readers.Wait()
	if err := e.Sync(); err != nil && a.s.kept {
		a.Errorf("Sync: %v", err)
	}
	check()

	// Closing twice is allowed; using it afterwards is not.
	a.closeAll(s, s)
	_, err = s.Get(nil, []byte("k"))
	a.wantsErr("Get from a closed snapshot", err, holdfast.ErrClosed)
	_, err = commits.Contents(s, holdfast.Range{})
	a.wantsErr("Scan of a closed snapshot", err, holdfast.ErrClosed)
	a.close(e)
}

// An iterator goes on to show what was there when it was made, whatever happens to it, in
// front of it and behind it.
func fixedIterators(a *trial) {
	for _, reverse := range []bool{false, true} {
		e := a.open(a.dir())
		var b holdfast.Batch
		var want commits.State[string]
		keys := a.s.some(400)
		for i := range keys {
			want = append(want, pairs(fmt.Sprintf("k%03d", i), string(filler(uint64(i), 100)))...)
			b.Set([]byte(want[i].Key), []byte(want[i].Value))
		}
		a.commit(e, &b)
		if reverse {
			slices.Reverse(want)
		}

		// Three iterators: one that has not begun, one in the middle of its walk, and one over a range in which there is
		// nothing yet.
		fresh, under, empty := e.Scan(holdfast.Range{Reverse: reverse}), e.Scan(holdfast.Range{Reverse: reverse}),
			e.Scan(holdfast.Range{Lo: []byte("x"), Reverse: reverse})

		var got commits.State[string]
		for range 10 {
			if !under.Next() {
				a.Fatalf("the iterator ended early: %v", under.Err())
			}
			got = append(got, pairs(string(under.Key()), string(under.Value()))...)
		}

		// Keys in front of it, behind it and between are put and deleted. The entry that it stands on must not change under
		// the caller.
		key, value := under.Key(), under.Value()

		for i := range keys {
			a.apply(e, sets(fmt.Sprintf("k%03d", i), "new", fmt.Sprintf("k%03dx", i), "new", fmt.Sprintf("x%03d", i), "new"))
		}
		b.Reset()
		b.DeleteRange(fmt.Appendf(nil, "k%03d", keys/4), fmt.Appendf(nil, "k%03d", keys*3/4))
		a.commit(e, &b)
		if string(key) != want[9].Key || string(value) != want[9].Value {
			a.Errorf("Key and Value changed, before Next, while the iterator stood still: %s, %s", commits.Quote(key),
				commits.Quote(value))
		}
		rest, err := commits.Drain(under)
		if err != nil {
			a.Errorf("an iterator under which others wrote: %v", err)
		}
		if d := commits.Difference(append(got, rest...), want); d != "" {
			a.Errorf("an iterator that had begun saw what was written later (reverse %v): %s", reverse, d)
		}
		got, err = commits.Drain(fresh)
		if err != nil {
			a.Errorf("an iterator under which others wrote: %v", err)
		}
		if d := commits.Difference(got, want); d != "" {
			a.Errorf("an iterator that had not begun saw what was written after it was made (reverse %v): %s", reverse, d)
		}
		if got, err := commits.Drain(empty); err != nil || len(got) > 0 {
			a.Errorf("an iterator over an empty range saw %d keys written after it was made, %v", len(got), err)
		}
		a.close(e)
	}
}

// Every bound, forwards and backwards, of the engine and of a snapshot.
func ranges(a *trial) {
	e := a.open(a.dir())
	keys := []string{"a", "b", "b\x00", "b\xff", "c", "d\xff\xff", "e"}
	var b holdfast.Batch
	for _, k := range keys {
		b.Set([]byte(k), []byte("v"+k))
		b.Set([]byte(k+"gone"), []byte("deleted"))
	}
	a.commit(e, &b)
	b.Reset()

	for _, k := range keys {
		b.Delete([]byte(k + "gone"))
	}
	a.commit(e, &b)
	s := a.snapshot(e)

	bounds := append([]string{"", "\x00", "a\x00", "b\x00\x00", "bz", "c\x00", "d", "d\xff", "f", "\xff\xff\xff",
		string(filler(1, holdfast.MaxKeySize))}, keys...)
	for _, lo := range bounds {
		for _, hi := range bounds {
			var want []string
			for _, k := range keys {
				if k >= lo && (hi == "" || k < hi) {
					want = append(want, k, "v"+k)
				}
			}
			r := holdfast.Range{Lo: []byte(lo), Hi: []byte(hi)}
			a.wantsAll(e, r, want...)
			a.wantsAll(s, r, want...)

			var back []string
			for i := len(want) - 2; i >= 0; i -= 2 {
				back = append(back, want[i], want[i+1])
			}
			r.Reverse = true
			a.wantsAll(e, r, back...)
			a.wantsAll(s, r, back...)
			if a.Failed() {
				return
			}
		}
	}

	it := e.Scan(holdfast.Range{Lo: []byte("c"), Hi: []byte("d")})
	for range 2 {
		it.Next()
	}
	if it.Next() || it.Err() != nil {
		a.Errorf("Next after the end: another key, or %v", it.Err())
	}
	a.closeAll(it, it)
	if it.Next() {
		a.Errorf("Next after Close found a key")
	}
	// The caller's bounds are its own again once Scan returns.
	lo, hi := []byte("b"), []byte("c")
	it = e.Scan(holdfast.Range{Lo: lo, Hi: hi})
	lo[0], hi[0] = 'e', 'f'
	got, err := commits.Drain(it)
	if d := commits.Difference(got, pairs("b", "vb", "b\x00", "vb\x00", "b\xff", "vb\xff")); d != "" || err != nil {
		a.Errorf("the bounds were changed after Scan: %s, %v", d, err)
	}
	a.closeAll(s)
	a.close(e)
}

// Many snapshots, each of another moment.
func manyViews(a *trial) {
	const many = 40
	e := a.open(a.dir())
	var views []holdfast.Snapshot
	var walks []holdfast.Iterator
	for n := uint64(1); n <= many; n++ {
		a.commit(e, a.s.script.batch(n))
		views = append(views, a.snapshot(e))
		walks = append(walks, views[n-1].Scan(holdfast.Range{}), e.Scan(holdfast.Range{}))
	}

	for i, it := range walks {
		state, err := commits.Drain(it)
		if err != nil {
			a.Fatalf("iterator %d: %v", i, err)
		}
		if n, breaches := a.s.script.judge(state); n != uint64(i/2+1) || len(breaches) > 0 {
			a.Errorf("an iterator made after batch %d saw %d batches: %v", i/2+1, n, breaches)
		}
	}

	for i, s := range views {
		a.wantsScript(s, uint64(i+1), uint64(i+1))
		a.closeAll(s)
	}
	a.close(e)
}

// Writers finish while a snapshot and iterators are open, however much they write.
func unblocked(a *trial) {
	const batches, size = 200, 64 << 10
	e := a.open(a.dir())
	a.commit(e, sets("a", "1", "b", "1", "c", "1"))
	s := a.snapshot(e)
	views := []holdfast.Iterator{e.Scan(holdfast.Range{}), s.Scan(holdfast.Range{Reverse: true})}
	for _, it := range views {
		if !it.Next() {
			a.Fatalf("the iterator is empty: %v", it.Err())
		}
	}

	// Enough is written that an engine has to give something up, or to grow, if it cannot wait for readers.
	done := make(chan error, 1)
	go func() {
		var err error
		var b holdfast.Batch

		for i := 0; i < batches && err == nil; i++ {
			b.Reset()
			b.Set([]byte(fmt.Sprintf("k%03d", i)), filler(uint64(i), size))
			var r holdfast.Receipt
			if r, err = e.Apply(&b, a.level); err == nil && i%10 == 9 {
				err = r.Wait()
			}
		}
		if err == nil && a.s.kept {
			err = e.Sync()
		}
		done <- err
	}()

	select {
	case err := <-done:
		if err != nil {
			a.Errorf("writing while a snapshot and iterators are open: %v", err)
		}
	case <-time.After(stuck):
		a.Errorf("a writer has waited %v for a snapshot or iterator to be closed", stuck)
	}

	for _, it := range views {
		a.closeAll(it)
	}
	a.wantsAll(s, holdfast.Range{}, "a", "1", "b", "1", "c", "1")
	a.closeAll(s)
	a.wants(e, "k199", string(filler(199, size)))
	a.close(e)
}

// Open views show in Metrics, of the engine and of snapshots alike.
func countedViews(a *trial) {
	e := a.open(a.dir())
	a.set(e, "k", "v")
	wants := func(when string, snapshots, iterators int64) {
		a.Helper()
		m := e.Metrics()
		if m.OpenSnapshots != snapshots || m.OpenIterators != iterators {
			a.Errorf("%s, Metrics counts %d snapshots and %d iterators, want %d and %d", when, m.OpenSnapshots, m.OpenIterators,
				snapshots, iterators)
		}
	}
	wants("at first", 0, 0)
	s1, s2 := a.snapshot(e), a.snapshot(e)
	wants("with two snapshots", 2, 0)
	i1, i2 := e.Scan(holdfast.Range{}), s1.Scan(holdfast.Range{Lo: []byte("z")})
	wants("with two snapshots and two iterators", 2, 2)

	for i1.Next() {
	}
	wants("with one iterator at its end", 2, 2)
	a.closeAll(i1, i1)
	wants("with one iterator closed twice", 2, 1)
	a.closeAll(i2, s2, s2)
	wants("with one snapshot left", 1, 0)
	bad := e.Scan(holdfast.Range{Lo: make([]byte, holdfast.MaxKeySize+1)})
	_ = bad.Close()
	a.closeAll(s1)
	wants("with all closed", 0, 0)
	a.close(e)
}

// Close refuses, leaves the engine as it was, and succeeds once the views are closed.
func busyClose(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	a.set(e, "k", "1")
	it := e.Scan(holdfast.Range{})
	a.wantsErr("Close with an iterator open", e.Close(), holdfast.ErrBusy)
	s := a.snapshot(e)
	a.wantsErr("Close with a snapshot and an iterator open", e.Close(), holdfast.ErrBusy)
	a.set(e, "k", "2")
	a.wants(e, "k", "2")
	a.wants(s, "k", "1")
	got, err := commits.Drain(it)
	if d := commits.Difference(got, pairs("k", "1")); d != "" || err != nil {
		a.Errorf("the iterator after Close had refused: %s, %v", d, err)
	}
	a.wantsErr("Close with a snapshot open", e.Close(), holdfast.ErrBusy)
	a.closeAll(s)
	a.set(e, "l", "3")
	a.close(e)
	a.wantsErr("the second Close", e.Close(), holdfast.ErrClosed)
	if a.s.kept {
		e = a.open(dir)
		a.wantsAll(e, holdfast.Range{}, "k", "2", "l", "3")
		a.close(e)
	}
}
