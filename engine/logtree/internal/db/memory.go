package db

import (
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
)

// position is a point between two frames of the log.
type position struct {
	seg uint32 // 0 before the first segment
	off int64
	lsn uint64
	seq uint64 // of the last operation before it
}

// table is a memtable: the log's frames since some position, as they are or will be in the
// file, and an index of the operations in them. Whoever holds the database's mu adds to it;
// readers take no lock.
type table struct {
	image *memtable.Image
	index *memtable.Table
	tombs atomic.Pointer[tombs]

	bases      []base // by chunk of the image
	start, end position

	refs atomic.Int32
}

// base is where in the log a chunk of the image begins.
type base struct {
	seg uint32
	off int64
}

func newTable(pool *memtable.Pool, start position) *table {
	image := memtable.NewImage(pool)
	t := &table{image: image, index: memtable.New(image), start: start}
	t.refs.Store(1)
	return t
}

func (t *table) release() {
	if t.refs.Add(-1) == 0 {
		t.index.Release()
		t.image.Release()
	}
}

// empty reports whether nothing has been put into the table.
func (t *table) empty() bool { return t.image.Bytes() == 0 }

func (t *table) bytes() int64 { return t.image.Bytes() + t.index.Bytes() }

// reserve returns room for a frame that goes to off in segment seg.
func (t *table) reserve(seg uint32, off int64, n int) (memtable.Addr, []byte) {
	addr, buf := t.image.Reserve(n)
	if chunk := int(addr >> 32); chunk >= len(t.bases) {
		for len(t.bases) <= chunk {
			t.bases = append(t.bases, base{seg, off - int64(uint32(addr))})
		}
	}
	return addr, buf
}

// place returns where in the log an address of the image is.
func (t *table) place(a memtable.Addr) uint64 {
	b := t.bases[a>>32]
	return uint64(b.seg)<<32 | uint64(b.off+int64(uint32(a)))
}

// add indexes the operations of a batch whose encoding is at addr; the first has the number
// seq. It returns the number of the last.
func (t *table) add(addr memtable.Addr, body []byte, seq uint64) uint64 {
	seq--
	var ranges []tomb
	for at := 0; at < len(body); {
		r, _ := parseRecord(body[at:]) // checked when it was encoded, or when it was read back
		seq++
		if r.kind == holdfast.KindDeleteRange {
			if len(r.value) == 0 || string(r.key) < string(r.value) {
				ranges = append(ranges, tomb{r.key, r.value, seq})
			}
		} else {
			t.index.Add(addr+memtable.Addr(at), r.key, seq)
		}
		at += r.size
	}
	if len(ranges) > 0 {
		t.tombs.Store(t.tombs.Load().with(ranges))
	}
	return seq
}

// get returns the newest version of key that a reader at seq sees in the table, and whether the
// table decides about the key at all.
func (t *table) get(key []byte, seq uint64, ts *tombs) (v memtable.Version, live, decided bool) {
	v, found := t.index.Get(key, seq)
	deleted := ts.covers(key)
	switch {
	case found && v.Seq > deleted:
		return v, v.Kind == holdfast.KindSet, true
	case found || deleted > 0:
		return v, false, true
	}
	return v, false, false
}
