package db

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// memTable is a memtable: the log's frames since some position, as they are or will be in the
// file, and an index of the operations in them. It is added to with the database's mu held; readers take no lock.
type memTable struct {
	image           *memtable.Image
	index           *memtable.Table
	rangeTombstones atomic.Pointer[tree.RangeTombstones]

	bases      []base // ascending by addr
	deletes    int64  // operations that delete
	start, end format.Position

	// Frames of large values are in the log only: so many bytes of them, in these segments. It has a reference to each.
	large int64
	segs  atomic.Pointer[[]*wal.Segment]

	refs atomic.Int32
}

// base is where in the log a stretch of the image begins, which goes on until the next base.
type base struct {
	addr memtable.Addr
	seg  uint32
	off  int64
}

// newMemTable returns an empty memtable of the log from start on. The caller has its one reference.
func newMemTable(pool *memtable.Pool, start format.Position) *memTable {
	image := memtable.NewImage(pool)
	t := &memTable{image: image, index: memtable.New(image), start: start}
	t.refs.Store(1)

	return t
}

// release gives up a reference; the last one gives the memory back to the pool, and the segments of large values.
func (t *memTable) release() {
	if t.refs.Add(-1) == 0 {
		t.index.Release()
		t.image.Release()
		if p := t.segs.Load(); p != nil {
			for _, s := range *p {
				s.Release()
			}
		}
	}
}

// empty reports whether nothing has been put into the table.
func (t *memTable) empty() bool { return t.image.Bytes() == 0 }

// bytes is the memory that the table takes, with what is reserved and not yet used.
func (t *memTable) bytes() int64 { return t.image.Bytes() + t.index.Bytes() }

// weight is how full the table is, to be compared with the limit of its bytes.
func (t *memTable) weight() int64 { return t.bytes() + t.large/largeWeight }

// reserve returns room for a frame that goes to off in segment seg.
func (t *memTable) reserve(seg uint32, off int64, n int) (memtable.Addr, []byte) {
	// Frames that lie one behind the other, in the image and in the log, share a base. A new one begins where either of
	// them jumps: another segment, or another chunk of the image.
	addr, buf := t.image.Reserve(n)
	if n := len(t.bases); n == 0 || t.bases[n-1].place(addr) != uint64(seg)<<32|uint64(off) ||
		addr>>32 != t.bases[n-1].addr>>32 {
		t.bases = append(t.bases, base{addr, seg, off})
	}

	return addr, buf
}

// place returns where in the log an address is that lies behind the base.
func (b *base) place(a memtable.Addr) uint64 {
	return uint64(b.seg)<<32 | uint64(b.off+int64(a-b.addr))
}

// placer finds the places of values, best when each lies near the one before.
type placer struct {
	t  *memTable
	at int // the base of the last one
}

// of returns where in the log the value at an address of the image is.
func (p *placer) of(value memtable.Addr) uint64 {
	// An empty value at the end of a body has the address at which the next base may begin, which is another place of the
	// log. The byte before a value is its length, and always lies in the value's own record.
	a := value - 1

	bases := p.t.bases

	// Values are asked for in the order of their keys. Those of ascending keys lie in the base of the one before; for
	// others the base is searched.
	if b := bases[p.at:]; a < b[0].addr || len(b) > 1 && a >= b[1].addr {
		i, found := slices.BinarySearchFunc(bases, a, func(b base, a memtable.Addr) int { return cmp.Compare(b.addr, a) })
		if !found {
			i--
		}
		p.at = i
	}

	return bases[p.at].place(value)
}

// add indexes the operations of a batch whose encoding is at addr, and in the log in segment s; the first has the
// number seq.
func (t *memTable) add(s *wal.Segment, addr memtable.Addr, body []byte, seq uint64) {
	seq--

	payload := int64(0)
	var ranges []tree.RangeTombstone
	for at := 0; at < len(body); {
		r, _ := format.ParseRecord(body[at:]) // checked when it was encoded, or when it was read back
		seq++
		payload += int64(len(r.Key) + len(r.Value))
		if r.Kind != holdfast.KindSet {
			t.deletes++
		}
		if r.Kind == holdfast.KindDeleteRange {
			if len(r.Value) == 0 || string(r.Key) < string(r.Value) {
				ranges = append(ranges, tree.RangeTombstone{Lo: r.Key, Hi: r.Value, Seq: seq})
			}
		} else {
			t.index.Add(addr+memtable.Addr(at), r.Key, seq)
		}
		at += r.Size
	}

	// Range deletes are stored after the keys of the batch, and both are seen only once the batch is visible.
	if len(ranges) > 0 {
		t.rangeTombstones.Store(t.rangeTombstones.Load().With(ranges, t.quiet))
	}
	s.Payload.Add(payload)
}

// quietKeys is how many keys a range delete looks at to join a neighbour: as many as most items of a queue have.
const quietKeys = 16

// quiet reports whether it is sure that no version in [lo, hi) is newer than after: it does not look at many.
func (t *memTable) quiet(lo, hi []byte, after uint64) bool {
	// Deletes of single keys count as versions too: only what is certain to be covered may be joined.
	it := t.index.Iter(math.MaxUint64)
	ok := it.SeekGE(lo)
	for n := 0; ok && (len(hi) == 0 || bytes.Compare(it.Key(), hi) < 0); n++ {
		if n == quietKeys || it.Seq() > after {
			return false
		}
		ok = it.Next()
	}

	return true
}

// get returns the newest version of key that a reader at seq sees in the table, and whether the
// table decides about the key at all.
func (t *memTable) get(key []byte, seq uint64, ts *tree.RangeTombstones) (v memtable.Version, live, decided bool) {
	// A range tombstone and a version are compared by their numbers: the newer of the two decides.
	v, found := t.index.Get(key, seq)
	deleted := ts.Covers(key)
	switch {
	case found && v.Seq > deleted:
		return v, v.Kind == holdfast.KindSet, true
	case found || deleted > 0:
		return v, false, true
	}

	return v, false, false
}

// walked is the table as a walk with those range tombstones sees it.
func (t *memTable) walked(ts *tree.RangeTombstones) tree.Memtable {
	return tree.Memtable{Index: t.index, Tombstones: ts, Values: t}
}
