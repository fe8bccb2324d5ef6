package db

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/night"
	"github.com/holdfastdb/holdfast/vfs"
)

// scanned opens a database that does no work by itself and whose memtables hold all it is given, on files that are
// mapped, or that are read by calls.
func scanned(t *testing.T, mapped bool) (*DB, Config) {
	t.Helper()
	c := testConfig(vfs.OS(), t.TempDir())
	if !mapped {
		c.FS, c.Dir = vfs.NewMem(), "db"
		if err := c.FS.MkdirAll(c.Dir); err != nil {
			t.Fatal(err)
		}
	}
	c.Manual, c.Memory, c.SyncEvery = true, 64<<20, -1
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	c.New = false
	t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, holdfast.ErrClosed) { // a test may have closed it
			t.Error(err)
		}
	})
	return d, c
}

var ways = []struct {
	name   string
	mapped bool
}{{"mapped", true}, {"read calls", false}}

func scanKey(i int) []byte { return fmt.Appendf(nil, "key/%05d", i) }

// TestScanModel compares walks with the reference where many entries are taken at once: dense keys in order, of
// several tiers and memtables that lie among each other, values of all lengths, deletes, and range deletes that
// begin and end anywhere.
func TestScanModel(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			for i := range uint64(3) {
				seed := *seed + i
				t.Logf("-db.seed=%d", seed)
				rnd := rand.New(rand.NewPCG(seed, 1))
				d, _ := scanned(t, way.mapped)
				model := mem.New()
				const keys = 2500
				for round := range 7 {
					var b holdfast.Batch
					most := []int{0, 1, 130, 6000}[rnd.IntN(4)]
					value := func(i int) []byte {
						v := bytes.Repeat([]byte{byte(i), byte(round)}, rnd.IntN(most+1)/2)
						if most == 130 && round%2 == 0 {
							v = bytes.Repeat([]byte{byte(i), byte(round)}, 50) // all of one length
						}
						return v
					}
					lo := rnd.IntN(keys)
					switch rnd.IntN(5) {
					case 0, 1:
						for i := range rnd.IntN(keys - lo) {
							b.Set(scanKey(lo+i), value(i))
						}
					case 2: // some here and there
						for range rnd.IntN(200) {
							b.Set(scanKey(rnd.IntN(keys)), value(lo))
						}
					case 3:
						for i := range rnd.IntN(100) {
							b.Delete(scanKey(min(lo+i*rnd.IntN(20), keys)))
						}
					case 4: // and keys again in the midst of it
						hi := lo + rnd.IntN(keys-lo)
						b.DeleteRange(scanKey(lo), scanKey(hi+1))
						for range rnd.IntN(30) {
							b.Set(scanKey(lo+rnd.IntN(hi-lo+1)), value(lo))
						}
					}
					if round == 0 {
						for i := range keys {
							b.Set(scanKey(i), value(i))
						}
					}
					for _, e := range []interface {
						Apply(*holdfast.Batch, holdfast.Level) (holdfast.Receipt, error)
					}{d, model} {
						receipt, err := e.Apply(&b, holdfast.Memory)
						if err == nil {
							err = receipt.Wait()
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					switch rnd.IntN(3) {
					case 0:
						d.put(t, func(*holdfast.Batch) {})
					case 1:
						d.rotate()
					}
					for range 12 {
						r := holdfast.Range{Reverse: rnd.IntN(2) == 0}
						if rnd.IntN(3) > 0 {
							r.Lo = scanKey(rnd.IntN(keys))
						}
						if rnd.IntN(3) > 0 {
							r.Hi = scanKey(rnd.IntN(keys))
						}
						if rnd.IntN(4) == 0 {
							r.Hi = append(scanKey(rnd.IntN(keys)), 0)
						}
						compare(t, round, d, model, r)
					}
				}
			}
		})
	}
}

// TestScanDamage damages one value in the midst of many that are read at once: a walk shows all before it, either
// way, and then an error, and never the damaged one.
func TestScanDamage(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			d, c := scanned(t, way.mapped)
			defer func() { d.Close() }() // that of the last opening
			const keys = 400
			value := func(i int) []byte { return fmt.Appendf(nil, "value %05d of a hundred bytes or so%66d", i, i) }
			d.put(t, func(b *holdfast.Batch) {
				for i := range keys {
					b.Set(scanKey(i), value(i))
				}
			})
			name := format.SegmentName(c.Dir, 1)
			image, err := vfs.ReadFile(c.FS, name)
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []int{0, 1, 7, 8, 9, 23, 24, 60, 200, keys - 2, keys - 1} {
				// What the walks before have read and found to be right is in memory, and would be handed out again.
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if d, err = Open(c); err != nil {
					t.Fatal(err)
				}
				at := bytes.Index(image, value(bad))
				if at < 0 {
					t.Fatal("the value is not where it should be")
				}
				at += 50
				flip := func() {
					t.Helper()
					image[at] ^= 1
					if way.mapped {
						f, err := os.OpenFile(name, os.O_WRONLY, 0)
						if err != nil {
							t.Fatal(err)
						}
						defer f.Close()
						if _, err := f.WriteAt(image[at:at+1], int64(at)); err != nil {
							t.Fatal(err)
						}
						return
					}
					f, err := c.FS.OpenWrite(name)
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					if _, err := f.WriteAt(image[at:at+1], int64(at)); err != nil {
						t.Fatal(err)
					}
				}
				flip()
				for _, reverse := range []bool{false, true} {
					it := d.Scan(holdfast.Range{Reverse: reverse})
					n, want := 0, bad
					if reverse {
						want = keys - 1 - bad
					}
					for ; it.Next(); n++ {
						i := n
						if reverse {
							i = keys - 1 - n
						}
						if !bytes.Equal(it.Key(), scanKey(i)) || !bytes.Equal(it.Value(), value(i)) {
							t.Fatalf("value %d is damaged, and entry %d is %q = %q", bad, n, it.Key(), it.Value())
						}
					}
					if err := it.Close(); n != want || !errors.Is(err, holdfast.ErrCorrupt) {
						t.Errorf("value %d is damaged: reverse %v showed %d entries, want %d, and %v", bad, reverse, n, want, err)
					}
				}
				flip()
			}
			if n, err := countScan(d); n != keys || err != nil {
				t.Errorf("repaired, it has %d entries, %v", n, err)
			}
		})
	}
}

// TestScanBesideRot changes a mapped value to and fro while scans read it: what was checked is what they hand out.
// Before values were copied first, a sixth of these scans handed out one that was wrong. Long values are read anew by
// each scan, short ones stay in memory once they were read and found to be right.
func TestScanBesideRot(t *testing.T) {
	for _, length := range []int{100, 2200} {
		t.Run(fmt.Sprint(length), func(t *testing.T) { scanBesideRot(t, length) })
	}
}

func scanBesideRot(t *testing.T, length int) {
	t.Parallel()
	d, c := scanned(t, true)
	value := func(i int) []byte { return fmt.Appendf(nil, "value %05d of many bytes, or so%*d", i, length-30, i) }
	keys := 40_000 / length
	d.put(t, func(b *holdfast.Batch) {
		for i := range keys {
			b.Set(scanKey(i), value(i))
		}
	})
	name := format.SegmentName(c.Dir, 1)
	image, err := vfs.ReadFile(c.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(image, value(keys/2)) + 50
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rot sync.WaitGroup
	var stop atomic.Bool
	rot.Go(func() {
		for flip := byte(0); !stop.Load(); flip ^= 1 {
			if _, err := f.WriteAt([]byte{image[at] ^ flip}, int64(at)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	scans := 3000
	if testing.Short() {
		scans = 300
	}
	for range scans {
		it := d.Scan(holdfast.Range{})
		for i := 0; it.Next(); i++ {
			if !bytes.Equal(it.Value(), value(i)) {
				t.Errorf("entry %d is %q", i, it.Value())
			}
		}
		if err := it.Close(); err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
			t.Error(err)
		}
	}
	stop.Store(true)
	rot.Wait()
}

func countScan(d *DB) (n int, err error) {
	it := d.Scan(holdfast.Range{})
	for it.Next() {
		n++
	}
	return n, it.Close()
}

// TestScanBesideWriters: a walk sees the state that was there when it began, while others overwrite and delete all
// of it, and flushes and merges go on.
func TestScanBesideWriters(t *testing.T) {
	t.Parallel()
	c := testConfig(vfs.OS(), t.TempDir())
	c.Memory = 1 << 20
	d, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	const keys = 3000
	rounds := night.Or(24, 9)
	// Every key has the round of its last batch; a batch is all keys, so a state is of one round only.
	write := func(round int) {
		var b holdfast.Batch
		if round%3 == 2 {
			b.DeleteRange(scanKey(0), scanKey(keys))
		}
		for i := range keys {
			b.Set(scanKey(i), fmt.Appendf(nil, "round %06d %50d", round, i))
		}
		if err := commit(d, &b, holdfast.Memory); err != nil {
			t.Error(err)
		}
	}
	write(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for round := 1; round <= rounds; round++ {
			write(round)
		}
	}()
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			for last := false; !last; {
				select {
				case <-done:
					last = true
				default:
				}
				it := d.Scan(holdfast.Range{Reverse: g == 1})
				n, round := 0, ""
				for ; it.Next(); n++ {
					i := n
					if g == 1 {
						i = keys - 1 - n
					}
					v := it.Value()
					if n == 0 {
						round = string(v[:12])
					}
					if !bytes.Equal(it.Key(), scanKey(i)) || string(v) != fmt.Sprintf("%s %50d", round, i) {
						t.Errorf("entry %d of %s is %q = %q", n, round, it.Key(), v)
						break
					}
				}
				if err := it.Close(); err != nil || n != keys {
					t.Errorf("%d entries, %v", n, err)
					return
				}
			}
		})
	}
	readers.Wait()
	<-done
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestScanAllocations: a walk allocates no more when it is longer.
func TestScanAllocations(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		d, _ := scanned(t, true)
		var b holdfast.Batch
		for i := range 5000 {
			b.Set(scanKey(i), make([]byte, 100))
		}
		if err := commit(d, &b, holdfast.Memory); err != nil {
			t.Fatal(err)
		}
		if flushed {
			d.put(t, func(*holdfast.Batch) {})
		}
		for _, reverse := range []bool{false, true} {
			n := testing.AllocsPerRun(20, func() {
				it := d.Scan(holdfast.Range{Reverse: reverse})
				for it.Next() {
				}
				if err := it.Close(); err != nil {
					t.Fatal(err)
				}
			})
			if n > 100 { // the iterator; its memory, where the pools have been emptied, as the race detector does by chance
				t.Errorf("flushed %v, reverse %v: %v allocations for 5000 entries", flushed, reverse, n)
			}
		}
	}
}
