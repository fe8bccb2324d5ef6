package enginetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfastdb/holdfast"
)

// Compacting changes nothing that can be read, now or after opening again, while others write and read.
func compacted(a *trial) {
	dir, all := a.dir(), holdfast.Range{}
	e := a.open(dir)
	c, ok := e.(holdfast.Compactor)
	if !ok {
		a.Logf("does not apply: the engine is no Compactor")
		a.wantsErr("Compact of an engine that cannot", holdfast.Compact(context.Background(), e, all),
			holdfast.ErrUnavailable)
		a.close(e)

		return
	}
	const n = 200
	a.commitScript(e, 1, n/2)
	s := a.snapshot(e)
	a.commitScript(e, n/2+1, n)
	var none context.Context
	a.wantsErr("Compact without a context", c.Compact(none, all), holdfast.ErrBadOption)
	ended, end := context.WithCancel(context.Background())
	end()
	a.wantsErr("Compact with a context that has ended", c.Compact(ended, all), context.Canceled)

	// A writer goes on all the while, and a snapshot stays open.
	var group sync.WaitGroup
	group.Go(func() { a.commitScript(e, n+1, 2*n) })
	part := holdfast.Range{Lo: []byte("e"), Hi: []byte("p"), Reverse: true}
	partly := c.Compact(context.Background(), part)
	if partly != nil && !errors.Is(partly, holdfast.ErrUnavailable) {
		a.Errorf("Compact of a range: %v", partly)
	}
	a.wantsErr("Compact with a bound that is too long",
		c.Compact(context.Background(), holdfast.Range{Hi: make([]byte, holdfast.MaxKeySize+1)}), holdfast.ErrBadKey)
	if err := c.Compact(context.Background(), holdfast.Range{Lo: []byte("b"), Hi: []byte("a")}); err != nil {
		a.Errorf("Compact of an empty range: %v", err)
	}

	for i := range 3 {
		if err := holdfast.Compact(context.Background(), e, all); err != nil {
			a.Errorf("Compact %d: %v", i, err)
		}
	}
	group.Wait()

	// The snapshot still shows its state, which compacting must not take away.
	a.wantsScript(s, n/2, n/2)
	a.closeAll(s)
	if err := c.Compact(context.Background(), all); err != nil {
		a.Errorf("Compact: %v", err)
	}
	a.wantsScript(e, 2*n, 2*n)
	a.set(e, "after", "it")
	a.closeAndCheck(e, dir, func(e holdfast.Engine) {
		a.wants(e, "after", "it")
		var b holdfast.Batch
		b.Delete([]byte("after"))
		a.commit(e, &b)
		a.wantsScript(e, 2*n, 2*n)
	})
	a.wantsErr("Compact after Close", c.Compact(context.Background(), all), holdfast.ErrClosed)
}

// Compacting gives back space: afterwards the directory takes less than all that was in it.
func compactedSpace(a *trial) {
	e := a.open(a.dir())
	defer a.close(e)
	all := holdfast.Range{}
	if _, ok := e.(holdfast.Compactor); !ok || e.Metrics().DiskBytes == holdfast.Unknown {
		a.Logf("does not apply: the engine is no Compactor, or does not tell its size")
		return
	}

	const size, keys = 64 << 10, 256
	r := a.random()
	var b holdfast.Batch
	for i := range keys {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(r.Uint32())
		}
		b.Reset()
		b.Set(fmt.Appendf(nil, "key%d", i), value)
		a.apply(e, &b)
	}
	a.commit(e, &holdfast.Batch{})
	b.Reset()

	for i := range keys - 1 {
		b.Delete(fmt.Appendf(nil, "key%d", i))
	}
	a.commit(e, &b)
	if err := holdfast.Compact(context.Background(), e, all); err != nil {
		a.Fatalf("Compact: %v", err)
	}
	if !eventually(func() bool { return e.Metrics().DiskBytes < size*keys/2 }) {
		a.Errorf("after %d bytes were written and almost all deleted, the directory has %d", size*keys, e.Metrics().DiskBytes)
	}
	value, err := e.Get(nil, fmt.Appendf(nil, "key%d", keys-1))
	if err != nil || len(value) != size {
		a.Errorf("what was not deleted has %d bytes: %v", len(value), err)
	}
}
