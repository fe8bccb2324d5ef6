package enginetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
)

var durableCases = []lawCase{
	{name: "visible after Wait", run: visible},
	{name: "Wait covers all before", run: waitCovers},
	{name: "barrier", run: barrier},
	{name: "receipts", run: receipts},
	{name: "the batch is copied", run: batchCopied},
	{name: "as written", run: asWritten},
	{name: "longest key and value", once: true, run: longest},
	{name: "values are the caller's", run: aliasing},
	{name: "Sync", run: syncs},
	{name: "Close keeps what was not waited for", onDisk: true, run: dropped},
	{name: "kept by Sync", onDisk: true, run: func(a *trial) { a.settledBy("sync") }},
	{name: "kept by a Close that is refused", onDisk: true, run: func(a *trial) { a.settledBy("close") }},
	{name: "kept by the loss window", onDisk: true, run: func(a *trial) { a.settledBy("window") }},
	{name: "kept by compacting", onDisk: true, run: compacted},
	{name: "compacting gives back space", onDisk: true, once: true, run: compactedSpace},
	{name: "kept by checkpoints", onDisk: true, run: checkpointed},
	{name: "long calls that Close ends", onDisk: true, once: true, run: endedByClose},
	{name: "reopened many times", onDisk: true, run: reopened},
	{name: "seen by readers", run: func(a *trial) { a.report(3, a.s.watched(a)) }},
	{name: "kept after kill -9", onDisk: true, run: func(a *trial) { a.report(3, a.s.killed(a)) }},
}

// What has been waited for is there for every way of reading.
func visible(a *trial) {
	e := a.open(a.dir())
	for i := range 20 {
		key, value := fmt.Sprintf("k%02d", i), fmt.Sprintf("v%d", i)
		a.set(e, key, value)
		a.wants(e, key, value)
		a.wantsAll(e, holdfast.Range{Lo: []byte(key)}, key, value)
		s, err := e.Snapshot()
		if err != nil {
			a.Fatalf("Snapshot: %v", err)
		}
		a.wants(s, key, value)
		if err := s.Close(); err != nil {
			a.Fatalf("Close of a snapshot: %v", err)
		}
	}
	var b holdfast.Batch
	b.Delete([]byte("k07"))
	a.commit(e, &b)
	a.lacks(e, "k07")
	a.close(e)
}

// Waiting for one batch is waiting for all before it.
func waitCovers(a *trial) {
	e := a.open(a.dir())
	if err := a.applyScript(e, 1, 50).Wait(); err != nil {
		a.Fatalf("Wait: %v", err)
	}
	a.wantsScript(e, 50, 50)
	a.close(e)
}

// An empty batch writes nothing, and its receipt waits for everything before it.
func barrier(a *trial) {
	e := a.open(a.dir())
	a.commit(e, &holdfast.Batch{})
	a.wantsAll(e, holdfast.Range{})
	a.applyScript(e, 1, 20)
	a.commit(e, &holdfast.Batch{})
	a.wantsScript(e, 20, 20)
	a.close(e)
}

// A receipt can be waited for again, later, by many, and after Close; the zero one is
// settled.
func receipts(a *trial) {
	e := a.open(a.dir())
	if err := (holdfast.Receipt{}).Wait(); err != nil {
		a.Errorf("Wait on the zero Receipt: %v", err)
	}

	var all []holdfast.Receipt
	for i := range 10 {
		all = append(all, a.apply(e, sets(fmt.Sprint(i), "v")))
	}

	for i := range all {
		r := all[len(all)-1-i] // not in the order they were applied
		var waiting sync.WaitGroup

		for range 8 {
			waiting.Go(func() {
				for range 2 {
					if err := r.Wait(); err != nil {
						a.Errorf("Wait: %v", err)
					}
				}
			})
		}
		waiting.Wait()
	}
	late := a.apply(e, sets("late", "v"))
	a.close(e)

	for _, r := range append(all, late) {
		if err := r.Wait(); err != nil {
			a.Errorf("Wait after Close, which kept everything: %v", err)
		}
	}
}

// Apply copies: the batch, and the memory of the caller's keys and values, are free at once.
func batchCopied(a *trial) {
	e := a.open(a.dir())
	var b holdfast.Batch
	key, value := make([]byte, 3), make([]byte, 300)
	var last holdfast.Receipt
	for i := range 100 {
		copy(key, fmt.Sprintf("k%02d", i))
		copy(value, bytes.Repeat([]byte{byte(i)}, len(value)))
		b.Set(key, value)
		last = a.apply(e, &b)
		b.Reset()
		b.Set([]byte("changed"), []byte("by reuse"))
		b.Reset()
	}
	if err := last.Wait(); err != nil {
		a.Fatalf("Wait: %v", err)
	}

	var want []string
	for i := range 100 {
		want = append(want, fmt.Sprintf("k%02d", i), string(bytes.Repeat([]byte{byte(i)}, len(value))))
	}
	a.wantsAll(e, holdfast.Range{}, want...)
	a.close(e)
}

// Keys and values are bytes: empty values, zero bytes, prefixes of each other, in the order of
// bytes.Compare.
func asWritten(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	pairs := []string{
		"\x00", "", "\x00\x00", "zero", "\x00\x01", "\x00", "\n", "a\nb", " ", "space", "a", "\xff\xfe", "a\x00", "a0",
		"ab", "",
		"b", "\x00\x00\x00", "é", "utf-8", "\xfe\xff", "x", "\xff", "y", "\xff\x00", "z", "\xff\xff\xff\xff", "the end",
	}
	a.commit(e, sets(pairs...))
	check := func(e holdfast.Engine) {
		a.Helper()
		a.wantsAll(e, holdfast.Range{}, pairs...)

		for i := 0; i < len(pairs); i += 2 {
			a.wants(e, pairs[i], pairs[i+1])
		}
		a.lacks(e, "a\x00\x00")
		a.lacks(e, "\xff\xff")
	}
	check(e)
	a.closeAndCheck(e, dir, check)
}

// The longest key and value that the engine says it takes come back.
func longest(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	caps := e.Capabilities()
	key := string(filler(1, int(min(caps.MaxKeySize, holdfast.MaxKeySize))))
	value := strings.Repeat(string(filler(2, 1<<20)),
		holdfast.MaxValueSize>>20)[:min(caps.MaxValueSize, holdfast.MaxValueSize)]
	check := func(e holdfast.Engine) {
		a.Helper()
		a.wants(e, key, value)
		a.wantsAll(e, holdfast.Range{}, key, value)
	}
	a.set(e, key, value)
	check(e)
	a.closeAndCheck(e, dir, check)
}

// Get appends to dst, and what it returns stays as it is whatever happens later.
func aliasing(a *trial) {
	e := a.open(a.dir())
	a.commit(e, sets("k", "value", "empty", ""))
	got, err := e.Get([]byte("before:"), []byte("k"))
	if err != nil || string(got) != "before:value" {
		a.Errorf("Get with dst \"before:\" returned %q, %v", got, err)
	}
	got, err = e.Get([]byte("before:"), []byte("empty"))
	if err != nil || string(got) != "before:" {
		a.Errorf("Get of an empty value with dst \"before:\" returned %q, %v", got, err)
	}
	got, err = e.Get([]byte("before:"), []byte("none"))
	if !errors.Is(err, holdfast.ErrNotFound) || string(got) != "before:" {
		a.Errorf("Get of a key that is not there, with dst \"before:\", returned %q, %v", got, err)
	}
	room := make([]byte, 0, 100)
	got, err = e.Get(room, []byte("k"))
	if err != nil || string(got) != "value" || &got[:1][0] != &room[:1][0] {
		a.Errorf("Get into a buffer with room returned %q, %v, and made a new one", got, err)
	}
	got, err = e.Get(nil, []byte("k"))
	if err != nil {
		a.Fatalf("Get: %v", err)
	}

	for i := range got {
		got[i] = 'x' // it is the caller's
	}
	a.wants(e, "k", "value")
	a.set(e, "k", "other")
	if string(got) != "xxxxx" {
		a.Errorf("what Get returned changed under the caller: %q", got)
	}
	a.close(e)
}

// Sync makes everything applied before it visible, and is refused only where there is
// nothing to sync to.
func syncs(a *trial) {
	e := a.open(a.dir())
	err := e.Sync()
	if !a.s.kept {
		a.wantsErr("Sync", err, holdfast.ErrLevel)
		return
	}
	if err != nil {
		a.Errorf("Sync of an empty engine: %v", err)
	}
	a.applyScript(e, 1, 30)
	if err := e.Sync(); err != nil {
		a.Errorf("Sync: %v", err)
	}
	a.wantsScript(e, 30, 30)
	a.close(e)
}

// A batch whose receipt is dropped is kept all the same.
func dropped(a *trial) {
	dir := a.dir()
	e := a.open(dir)
	a.applyScript(e, 1, 100)
	a.close(e)
	e = a.open(dir)
	a.wantsScript(e, 100, 100)
	a.close(e)
}

// What is there is there in every later session, and sessions that write nothing change
// nothing.
func reopened(a *trial) {
	dir := a.dir()
	n := uint64(0)

	for session := range 6 {
		e := a.open(dir)
		a.wantsScript(e, n, n)

		for range session % 3 * 20 {
			n++
			a.commit(e, a.s.script.batch(n))
		}
		a.wantsScript(e, n, n)
		a.close(e)
	}
}

// settleBatches is how many batches are applied without waiting for them.
const settleBatches = 40

// settleSyncs is how many syncs of the loss window are waited for after them.
const settleSyncs = 8

// settledBy lets a process die without Close, after something else than Wait has brought what
// it applied to the device: Sync, a Close that was refused with ErrBusy, or the loss window.
func (a *trial) settledBy(how string) {
	dir := a.dir()
	lines, err := a.runChild(order{Role: "settle", Dir: dir, How: how})
	if err != nil || len(lines) != 1 {
		a.Fatalf("the process that writes says %q, %v", lines, err)
	}
	if why, ok := strings.CutPrefix(lines[0], "does not apply: "); ok {
		a.Logf("does not apply: %s", why)
		return
	}
	if lines[0] != "settled" {
		a.Fatalf("the process that writes says %q", lines)
	}
	e := a.open(dir)
	a.wantsScript(e, settleBatches, settleBatches+settleSyncs)
	a.close(e)
}

func (s *suite) childSettles(o order, t *reporter) error {
	options := holdfast.Options{Level: o.Level, SyncEvery: -1}
	if o.How == "window" {
		options.SyncEvery = 5 * time.Millisecond
	}
	e, err := s.Open(o.Dir, options)
	if err != nil {
		return err
	}
	next := uint64(0)

	apply := func() error {
		next++
		_, err := e.Apply(s.script.batch(next), o.Level)

		return err
	}
	for range settleBatches {
		if err := apply(); err != nil {
			return err
		}
	}

	switch o.How {
	case "sync":
		err = e.Sync()
	case "close":
		if _, err = e.Snapshot(); err != nil {
			return err
		}
		if err := e.Close(); !errors.Is(err, holdfast.ErrBusy) {
			return fmt.Errorf("with a snapshot open, Close returned %v", err)
		}
	case "window":
		if s.caps.Promise(o.Level).Given >= holdfast.Power || e.Metrics().Syncs == holdfast.Unknown {
			t.say("does not apply: there is no window at %v, or its syncs are not counted", o.Level)
			return nil
		}
		// The first to be seen may be of a pass that began before the last batch. A pass counts a few: of the log, of a
		// file that has grown.
		for range settleSyncs {
			before := e.Metrics().Syncs
			if err := apply(); err != nil {
				return err
			}
			if !eventually(func() bool { return e.Metrics().Syncs > before }) {
				return fmt.Errorf("the loss window has passed without a sync")
			}
		}
	}
	if err != nil {
		return err
	}
	t.say("settled")

	return nil // the process ends here, and nothing is closed
}
