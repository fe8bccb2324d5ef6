package memtable

import (
	"bytes"
	"math"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// near is how many versions of one key an iterator steps over before it searches instead.
const near = 4

// usualRecord is how many bytes of a record, at most, are loaded before it is looked at: three lines of the cache,
// wherever it begins, because the processor guesses wrong where their number changes.
const usualRecord = 2*64 + 1

// Iter walks over the keys of a table in order and shows for each its newest version with a number up
// to maxSeq, KindDelete included; keys without one are left out. It begins before the first key,
// goes to either side, and may be turned round anywhere, from behind either end too.
//
// It is a value: a copy walks on its own. One goroutine uses it at a time, while others read and one
// adds. It is valid until the table or the image is released.
type Iter struct {
	t      *Table
	maxSeq uint64
	l      *leaf // nil before the first key, when no leaf has been chosen yet
	p      perm  // of l, when it was entered: later versions are above maxSeq
	pos    int   // -1 before the first entry, p.count() after the last
	ok     bool  // on a version

	loaded *leaf // whose records the processor was told to load
}

// Iter returns an iterator over the state at maxSeq.
func (t *Table) Iter(maxSeq uint64) Iter { return Iter{t: t, maxSeq: maxSeq, pos: -1} }

// Valid reports whether the iterator is on a version: what the last move returned.
func (it *Iter) Valid() bool { return it.ok }

// Version is the version the iterator is on, of which the last move must have said that there is one.
func (it *Iter) Version() Version {
	slot := it.p.slot(it.pos)
	return it.t.image.version(it.l.rec[slot], it.l.seq[slot])
}

// Expect has the processor load the versions that are next, so that it waits for all at once: the records of a leaf lie
// anywhere. How long they are is not known yet. It may be called when Valid says true.
func (it *Iter) Expect() {
	if it.loaded == it.l {
		return
	}
	it.loaded = it.l
	if next := it.l.next.Load(); next != 0 {
		format.IntoCache(it.t.leaf(next).memory())
	}
	chunks := *it.t.image.chunks.Load()
	for i := it.pos; i < it.p.count(); i++ {
		rec := it.l.rec[it.p.slot(i)]
		b := chunks[rec>>32][uint32(rec):]
		format.IntoCache(b[:min(len(b), usualRecord)])
	}
}

// Seq is Version().Seq, for less.
func (it *Iter) Seq() uint64 { return it.l.seq[it.p.slot(it.pos)] }

// Key is Version().Key, for less.
func (it *Iter) Key() []byte { return it.t.image.key(it.l.rec[it.p.slot(it.pos)]) }

// Ascending returns how many keys the iterator comes to from the first on, and how many of them were added after the
// one before.
func (it *Iter) Ascending() (keys, ascending int64) {
	last := Addr(0)
	for ok := it.First(); ok; ok = it.Next() {
		rec := it.l.rec[it.p.slot(it.pos)]
		if keys++; rec >= last {
			ascending++
		}
		last = rec
	}

	return keys, ascending
}

// Pair is a key and its value. The slices are the image's: valid until it is released, and not to be changed.
type Pair struct{ Key, Value []byte }

// Take appends the present key and those after it, with their values, to dst, and passes over deleted keys, which it
// counts. It ends after most of them, or before a key that is not below bound (if bound is not empty), or whose value
// is not in the image; it is then on the first that it did not take, if there is one. It may be called when Valid says
// true.
func (it *Iter) Take(dst []Pair, most int, bound []byte) (_ []Pair, deleted int) {
	for first := true; most > 0 && it.ok; first = false {
		l, p := it.l, it.p
		n := p.count()
		below := len(bound) == 0
		if !below && !first { // else the last key is far away if only few are wanted
			below = bytes.Compare(it.t.image.key(l.rec[p.slot(n-1)]), bound) < 0
		}

		chunks := *it.t.image.chunks.Load() // after p, which is of versions in them

		it.Expect()
		slot := p.slot(it.pos)
		for {
			// Records are decoded in place, as version does it: this loop is what a scan of a memtable costs.
			rec := l.rec[slot]
			b := chunks[rec>>32][uint32(rec):]
			kind := holdfast.Kind(b[0])
			if kind != holdfast.KindSet && kind != holdfast.KindDelete {
				return dst, deleted
			}
			size, at := int(b[1]), 2
			if size >= 0x80 {
				size, at = long(b[1:], 1)
			}
			key := b[at : at+size : at+size]
			if !below && bytes.Compare(key, bound) >= 0 {
				return dst, deleted
			}
			if kind == holdfast.KindSet {
				b = b[at+size:]
				size, at = int(b[0]), 1
				if size >= 0x80 {
					size, at = long(b, 0)
				}
				dst = append(dst, Pair{key, b[at : at+size : at+size]})
				most--
			} else {
				deleted++
			}

			// The end of this leaf; the outer loop goes on with the next.
			if it.pos+1 == n {
				break
			}
			next := p.slot(it.pos + 1)

			// The windows differ, so the next entry is another key, and its newest version. Otherwise the way of a single step
			// finds that out.
			if l.prefix[slot] == l.prefix[next] || l.seq[next] > it.maxSeq {
				break
			}
			it.pos++
			if slot = next; most == 0 {
				return dst, deleted
			}
		}
		it.forward(it.skipForward())
	}

	return dst, deleted
}

// First moves to the first key and reports whether there is one.
func (it *Iter) First() bool {
	it.l, it.pos = nil, -1
	return it.forward(it.step())
}

// Last moves to the last key and reports whether there is one.
func (it *Iter) Last() bool {
	it.l, it.pos = nil, -1
	if ref := it.t.last.Load(); ref != 0 {
		it.enter(it.t.leaf(ref))

		// What last names may have been replaced by two leaves since.
		for ref = it.l.next.Load(); ref != 0; ref = it.l.next.Load() {
			it.enter(it.t.leaf(ref))
		}
		it.pos = it.p.count()
	}

	return it.backward(it.back())
}

// SeekGE moves to the first key that is not before key and reports whether there is one.
func (it *Iter) SeekGE(key []byte) bool { return it.forward(it.seek(key, math.MaxUint64)) }

// SeekLT moves to the last key that is before key and reports whether there is one.
func (it *Iter) SeekLT(key []byte) bool {
	it.seek(key, math.MaxUint64)
	return it.backward(it.back())
}

// Next moves to the next key and reports whether there is one; from before the first key, to the
// first.
func (it *Iter) Next() bool {
	if !it.ok {
		return it.forward(it.step())
	}
	if it.pos+1 < it.p.count() { // most often, the next entry is another key's newest version
		a, b := it.p.slot(it.pos), it.p.slot(it.pos+1)
		if it.l.prefix[a] != it.l.prefix[b] && it.l.seq[b] <= it.maxSeq {
			it.pos++
			return true
		}
	}

	return it.forward(it.skipForward())
}

// Prev moves to the key before and reports whether there is one; from behind the last key, to the
// last.
func (it *Iter) Prev() bool {
	if !it.ok {
		return it.backward(it.back())
	}
	if it.pos >= 2 { // most often, the entry before is its key's only version
		a, b, c := it.p.slot(it.pos-2), it.p.slot(it.pos-1), it.p.slot(it.pos)
		if it.l.prefix[a] != it.l.prefix[b] && it.l.prefix[b] != it.l.prefix[c] && it.l.seq[b] <= it.maxSeq {
			it.pos--
			return true
		}
	}

	return it.backward(it.skipBack())
}

// forward goes on from an entry that is its key's first (when on says that there is one) to the
// first version that maxSeq shows.
func (it *Iter) forward(on bool) bool {
	for n := 0; on; n++ {
		if it.Seq() <= it.maxSeq {
			break
		}

		// A key that was overwritten often has its versions one behind the other: after a few steps a search is cheaper.
		if n < near {
			on = it.step()
			continue
		}
		n, on = 0, it.seek(it.Key(), it.maxSeq)
	}
	it.ok = on

	return on
}

// skipForward goes from an entry to the first one of the next key.
func (it *Iter) skipForward() bool {
	was := *it
	for n := 0; ; n++ {
		if !it.step() {
			return false
		}
		if !it.same(&was) {
			return true
		}

		// Version 0 is the least there can be, so the search comes to the last entry of the key, or to the next key.
		if n == near {
			if !it.seek(was.Key(), 0) { // only version 0 can still be there
				return false
			}
			if !it.same(&was) {
				return true
			}
		}
	}
}

// backward goes back from an entry that is its key's last to the newest version that maxSeq shows.
func (it *Iter) backward(on bool) bool {
	for on && it.Seq() > it.maxSeq {
		on = it.skipBack()
	}
	if it.ok = on; !on {
		return false
	}

	for n := 0; ; n++ {
		// Backward the versions of a key come from the oldest to the newest. The walk goes on until one is of another key, or
		// too new, and takes one step back.
		was := *it
		if n == near {
			it.seek(was.Key(), it.maxSeq)
			it.ok = true

			return true
		}
		if !it.back() || it.Seq() > it.maxSeq || !it.same(&was) {
			*it = was
			return true
		}
	}
}

// skipBack goes from an entry to the last one of the key before.
func (it *Iter) skipBack() bool {
	was := *it
	for n := 0; ; n++ {
		if !it.back() {
			return false
		}
		if !it.same(&was) {
			return true
		}

		// The search comes to the key's newest version, the first of its entries, so that the next step back leaves the
		// key.
		if n == near {
			it.seek(was.Key(), math.MaxUint64)
		}
	}
}

// same reports whether the keys of two entries are the same.
func (it *Iter) same(other *Iter) bool {
	// Where the windows begin at one place and differ, the keys differ, and the records need not be looked at.
	a, b := it.p.slot(it.pos), other.p.slot(other.pos)
	if it.l.skip == other.l.skip && it.l.prefix[a] != other.l.prefix[b] {
		return false
	}

	return bytes.Equal(it.t.image.key(it.l.rec[a]), it.t.image.key(other.l.rec[b]))
}

// seek goes to the first entry that is not before (key, seq), or behind the last one, and reports
// whether there is one.
func (it *Iter) seek(key []byte, seq uint64) bool {
	g := target{key: key, seq: seq}
	it.l, it.p, it.pos = it.t.find(&g)
	if it.l == nil {
		it.pos = -1
	}
	it.ok = false

	return it.l != nil && it.pos < it.p.count()
}

// enter goes to a leaf as it is now. Entries that come to it later are above maxSeq, so they are not missed.
func (it *Iter) enter(l *leaf) { it.l, it.p = l, perm(l.perm.Load()) }

// step goes to the next entry, or behind the last one, and reports whether there is one.
func (it *Iter) step() bool {
	if it.l == nil {
		ref := it.t.first.Load()
		if ref == 0 {
			return false
		}
		it.enter(it.t.leaf(ref))
		it.pos = -1
	}
	if it.pos++; it.pos < it.p.count() {
		return true
	}
	ref := it.l.next.Load()
	if ref == 0 {
		it.pos = it.p.count()
		return false
	}

	// Of a leaf that was replaced meanwhile, next leads to what follows it. Its own entries were all seen in it.
	it.enter(it.t.leaf(ref))
	it.pos = 0

	return true
}

// back goes to the entry before, or before the first one, and reports whether there is one.
func (it *Iter) back() bool {
	if it.l == nil {
		return false
	}
	if it.pos--; it.pos >= 0 {
		return true
	}
	ref := it.l.prev.Load()
	if ref == 0 {
		it.pos = -1
		return false
	}
	it.enter(it.t.leaf(ref))
	it.pos = it.p.count() - 1

	return true
}
