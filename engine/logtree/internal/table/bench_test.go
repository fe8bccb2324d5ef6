package table

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/vfs"
)

const benchEntries = 1_000_000

var benchKeys = []struct {
	name  string
	pairs func(n int) []pair
}{
	{"ascending", ascending},
	{"scattered", func(n int) []pair { return scattered(n, 1) }},
}

// benchReaders runs f on a table of a million entries in a file, for kinds of keys, sizes of blocks, and caches that
// hold all of it or a tenth.
func benchReaders(b *testing.B, f func(b *testing.B, r *Reader, pairs []pair)) {
	for _, keys := range benchKeys {
		pairs := keys.pairs(benchEntries)
		for _, target := range []int{1 << 10, 2 << 10, 4 << 10, 8 << 10} {
			image, _ := build(b, pairs, target)
			name := filepath.Join(b.TempDir(), "table")
			file, err := vfs.OS().Create(name)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := file.WriteAt(image, 0); err != nil {
				b.Fatal(err)
			}
			file.Close()
			for _, cache := range []struct {
				name string
				size int64
			}{{"warm", 256 << 20}, {"tenth", int64(len(image) / 10)}} {
				b.Run(fmt.Sprintf("%s/block=%d/%s", keys.name, target, cache.name), func(b *testing.B) {
					r, err := Open(vfs.OS(), files.NewSet(8), name, testID, NewCache(cache.size))
					if err != nil {
						b.Fatal(err)
					}
					defer r.Close()
					for _, p := range pairs {
						if _, ok, err := r.Get(p.key); err != nil || !ok {
							b.Fatal(ok, err)
						}
					}
					b.ResetTimer()
					f(b, r, pairs)
				})
			}
		}
	}
}

// shuffled is the keys of the pairs in random order, one behind the other, so that what the loop itself reads is in
// the processor's cache when it is needed; each has extra bytes of zeros behind it.
func shuffled(pairs []pair, extra int) (keys []byte, size int) {
	size = len(pairs[0].key) + extra
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(pairs)) {
		keys = append(append(keys, pairs[i].key...), make([]byte, extra)...)
	}
	return keys, size
}

func BenchmarkGetHit(b *testing.B) {
	benchReaders(b, func(b *testing.B, r *Reader, pairs []pair) {
		keys, size := shuffled(pairs, 0)
		at := 0
		for b.Loop() {
			if _, ok, err := r.Get(keys[at : at+size]); err != nil || !ok {
				b.Fatal(ok, err)
			}
			if at += size; at == len(keys) {
				at = 0
			}
		}
	})
}

// BenchmarkGetMiss looks for keys that the table does not have; about one in a hundred passes the filter.
func BenchmarkGetMiss(b *testing.B) {
	benchReaders(b, func(b *testing.B, r *Reader, pairs []pair) {
		keys, size := shuffled(pairs, 1) // no key of the table has this length
		at := 0
		for b.Loop() {
			if _, ok, err := r.Get(keys[at : at+size]); err != nil || ok {
				b.Fatal(ok, err)
			}
			if at += size; at == len(keys) {
				at = 0
			}
		}
	})
}

// BenchmarkNext is one step of a scan over the whole table. BenchmarkPrev is one the other way.
func BenchmarkNext(b *testing.B) { benchSteps(b, (*Iter).First, (*Iter).Next) }

func BenchmarkPrev(b *testing.B) { benchSteps(b, (*Iter).Last, (*Iter).Prev) }

func benchSteps(b *testing.B, begin, step func(*Iter) bool) {
	benchReaders(b, func(b *testing.B, r *Reader, pairs []pair) {
		it, n, sum := r.Iter(), 0, uint64(0)
		for b.Loop() {
			if n == 0 {
				begin(it)
			} else {
				step(it)
			}
			if n++; n == len(pairs) {
				n = 0
			}
			sum += it.Entry().Place + uint64(it.Key()[15])
		}
		if it.Err() != nil || sum == 0 {
			b.Fatal(it.Err())
		}
	})
}

// BenchmarkSeek is SeekGE to a random key of the table, and one step.
func BenchmarkSeek(b *testing.B) {
	benchReaders(b, func(b *testing.B, r *Reader, pairs []pair) {
		keys, size := shuffled(pairs[:benchEntries-1], 0)
		it, at := r.Iter(), 0
		for b.Loop() {
			if !it.SeekGE(keys[at:at+size]) || !it.Next() {
				b.Fatal(it.Err())
			}
			if at += size; at == len(keys) {
				at = 0
			}
		}
	})
}

// BenchmarkBuild adds entries to tables of a million; it prints how long the file is per entry, too.
func BenchmarkBuild(b *testing.B) {
	for _, keys := range benchKeys {
		pairs := keys.pairs(benchEntries)
		for _, target := range []int{1 << 10, 2 << 10, 4 << 10, 8 << 10} {
			b.Run(fmt.Sprintf("%s/block=%d", keys.name, target), func(b *testing.B) {
				var w *Writer
				f, n := &memFile{b: make([]byte, 64<<20)}, 0
				size := int64(0)
				for b.Loop() {
					if n == 0 {
						w = NewWriter(f, testID)
						w.target = target
					}
					if err := w.Add(pairs[n].key, pairs[n].e); err != nil {
						b.Fatal(err)
					}
					if n++; n == len(pairs) {
						info, err := w.Finish(1)
						if err != nil {
							b.Fatal(err)
						}
						n, size = 0, info.FileBytes
					}
				}
				if size > 0 {
					b.ReportMetric(float64(size)/float64(len(pairs)), "B/entry")
				}
			})
		}
	}
}

// BenchmarkGroup is Get and Next with groups of several sizes.
func BenchmarkGroup(b *testing.B) {
	for _, keys := range benchKeys {
		pairs := keys.pairs(benchEntries)
		probes, size := shuffled(pairs, 0)
		for _, group := range []int{4, 8, 16} {
			f := new(memFile)
			w := NewWriter(f, testID)
			w.group = group
			for _, p := range pairs {
				if err := w.Add(p.key, p.e); err != nil {
					b.Fatal(err)
				}
			}
			info, err := w.Finish(0)
			if err != nil {
				b.Fatal(err)
			}
			r, err := openMem(f, testID, NewCache(256<<20))
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/group=%d/get", keys.name, group), func(b *testing.B) {
				for at := 0; b.Loop(); at = (at + size) % len(probes) {
					if _, ok, err := r.Get(probes[at : at+size]); err != nil || !ok {
						b.Fatal(ok, err)
					}
				}
				b.ReportMetric(float64(info.FileBytes)/float64(len(pairs)), "B/entry")
			})
			b.Run(fmt.Sprintf("%s/group=%d/next", keys.name, group), func(b *testing.B) {
				it := r.Iter()
				for b.Loop() {
					if !it.Next() && !it.First() {
						b.Fatal(it.Err())
					}
				}
			})
		}
	}
}

// BenchmarkOpen opens and closes a table of a million entries, and finds one key in it.
func BenchmarkOpen(b *testing.B) {
	image, _ := build(b, ascending(benchEntries), blockTarget)
	name := filepath.Join(b.TempDir(), "table")
	file, err := vfs.OS().Create(name)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := file.WriteAt(image, 0); err != nil {
		b.Fatal(err)
	}
	file.Close()
	key := ascending(1)[0].key
	for _, gets := range []int{0, 1} {
		b.Run(fmt.Sprintf("gets=%d", gets), func(b *testing.B) {
			cache := NewCache(16 << 20)
			for i := uint64(0); b.Loop(); i++ {
				r, err := Open(vfs.OS(), files.NewSet(8), name, testID, cache)
				if err != nil {
					b.Fatal(err)
				}
				if gets > 0 {
					binary.BigEndian.PutUint64(key[8:], i%benchEntries)
					if _, ok, err := r.Get(key); err != nil || !ok {
						b.Fatal(ok, err)
					}
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHash is the filter's hash of keys of some lengths.
func BenchmarkHash(b *testing.B) {
	for _, n := range []int{8, 16, 24, 64, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			key, sum := make([]byte, n), uint64(0)
			for b.Loop() {
				sum += hash(key)
			}
			if sum == 0 {
				b.Fatal()
			}
		})
	}
}
