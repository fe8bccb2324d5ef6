package memtable

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func TestImage(t *testing.T) {
	pool := NewPool(100, 250, 2000)
	im := NewImage(pool)
	type piece struct {
		at   Addr
		want []byte
	}
	var pieces []piece
	reserve := func(n int, chunk Addr, offset Addr) {
		t.Helper()
		a, b := im.Reserve(n)
		if a != chunk<<32|offset || len(b) != n || cap(b) < n {
			t.Fatalf("Reserve(%d) is %x with %d bytes, capacity %d; want chunk %d, offset %d", n, a, len(b), cap(b),
				chunk, offset)
		}
		for i := range b {
			b[i] = byte(len(pieces) + i)
		}
		pieces = append(pieces, piece{a, bytes.Clone(b)})
	}
	reserve(60, 0, 0)
	reserve(40, 0, 60)
	reserve(1, 1, 0)
	reserve(100, 2, 0) // does not straddle
	reserve(1000, 3, 0)
	reserve(5, 4, 0)
	reserve(95, 4, 5)
	reserve(5, 5, 0)
	reserve(0, 5, 5)
	for _, p := range pieces {
		if !bytes.Equal(im.At(p.at, len(p.want)), p.want) {
			t.Errorf("At(%x) is not what was written", p.at)
		}
	}
	if want := int64(5*100 + 1000); im.Bytes() != want {
		t.Errorf("Bytes is %d, want %d", im.Bytes(), want)
	}
	im.Release()
	if im.Bytes() != 0 || pool.Free() != 200 {
		t.Errorf("after Release: %d bytes held, %d free in the pool; want 0 and 200", im.Bytes(), pool.Free())
	}
	pieces = nil
	reserve(10, 0, 0)
	if pool.Free() != 100 {
		t.Errorf("%d bytes free in the pool, want 100", pool.Free())
	}
}

// TestPoolBounds checks that nodes come back to the pool, up to its bound.
func TestPoolBounds(t *testing.T) {
	pool := NewPool(1<<10, 3*leafSlabSize, 1<<30)
	var tables []*Table
	for range 2 {
		table := New(NewImage(pool))
		for i := range uint64(20000) {
			rec, key := put(table.image, 1, []byte{byte(i * 7), byte(i >> 3), byte(i)}, nil)
			table.Add(rec, key, i)
		}
		tables = append(tables, table)
	}
	held := tables[0].Bytes()
	tables[0].Release()
	if free := pool.Free(); free == 0 || free > 3*leafSlabSize || held <= 3*leafSlabSize {
		t.Errorf("%d bytes of %d came back, the bound is %d", free, held, 3*leafSlabSize)
	}
	if tables[0].Len() != 0 || tables[0].Bytes() != 0 {
		t.Error("a released table is not empty")
	}
	free := pool.Free()
	tables[1].Release()
	if pool.Free() < free || pool.Free() > 3*leafSlabSize {
		t.Errorf("%d bytes free, bound %d", pool.Free(), 3*leafSlabSize)
	}
}

// TestPoolMost: what is in use and what is kept stay below the second bound together.
func TestPoolMost(t *testing.T) {
	pool := NewPool(100, 1000, 1000)
	a, b := NewImage(pool), NewImage(pool)
	for range 7 {
		a.Reserve(100)
		b.Reserve(100)
	}
	a.Release()
	if pool.Free() != 300 {
		t.Errorf("%d bytes are kept beside 700 in use, want 300", pool.Free())
	}
	b.Release()
	if pool.Free() != 1000 {
		t.Errorf("%d bytes are kept, want 1000", pool.Free())
	}
	a.Reserve(1000) // is of one frame
	a.Release()
	for range 12 {
		a.Reserve(100)
	}
	if pool.Free() != 0 || pool.used != 1200 {
		t.Errorf("%d bytes are kept and %d in use, want 0 and 1200", pool.Free(), pool.used)
	}
}

// TestPoolKinds: what is kept of one kind makes room for another: large values first, then keys without any.
func TestPoolKinds(t *testing.T) {
	const most = 40 * leafSlabSize
	pool := NewPool(int(leafSlabSize), most*2/3, most)
	im := NewImage(pool)
	for range 40 {
		im.Reserve(int(leafSlabSize))
	}
	im.Release()
	if free := pool.Free(); free < 20*leafSlabSize {
		t.Fatalf("%d bytes are kept", free)
	}
	check := func(what string) {
		t.Helper()
		if sum := pool.used + pool.free; sum > most {
			t.Errorf("%s: %d bytes are in use and %d kept, together at most %d", what, pool.used, pool.free, most)
		}
	}

	var leaves []*leafSlab
	for range 39 {
		leaves = append(leaves, pool.leafSlab(false))
		check("leaves after chunks")
	}
	pool.putNodes(leaves, nil)
	if pool.used != 0 || len(pool.leaves) < 20 {
		t.Errorf("%d bytes are in use, %d slabs of leaves are kept", pool.used, len(pool.leaves))
	}
	for range 30 {
		im.Reserve(int(leafSlabSize))
		check("chunks after leaves")
	}
	im.Release()

	// Frames that have chunks of their own.
	for range 10 {
		im.Reserve(int(3 * leafSlabSize))
		check("larger chunks")
	}
	im.Release()
	if pool.used != 0 {
		t.Errorf("%d bytes are in use when all is given back", pool.used)
	}
}

// TestPoolRests: a pool that is not used gives up what it keeps, and one that is used does not.
func TestPoolRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(100, 1000, 1000)
		im := NewImage(pool)
		use := func(n int) {
			for range n {
				im.Reserve(100)
			}
			im.Release()
			synctest.Wait()
		}
		use(8)
		for range 20 {
			time.Sleep(restAfter / 2)
			use(1)
			if pool.Free() != 800 {
				t.Fatalf("%d bytes are kept of a pool that is used, want 800", pool.Free())
			}
		}

		time.Sleep(2*restAfter + 1)
		synctest.Wait()
		if pool.Free() != 0 || pool.used != 0 {
			t.Fatalf("%d bytes are kept of a pool that is not used, and %d used", pool.Free(), pool.used)
		}
		use(8)
		if pool.Free() != 800 {
			t.Errorf("%d bytes are kept after that, want 800", pool.Free())
		}
		time.Sleep(2*restAfter + 1)
		synctest.Wait()
		if pool.Free() != 0 {
			t.Errorf("%d bytes are kept of a pool that is not used again", pool.Free())
		}
	})
}
