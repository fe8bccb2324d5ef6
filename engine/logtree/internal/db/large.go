package db

import (
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// A batch of large values is not copied into the memtable's image. Apply writes its frame to the log's
// file at once, whatever its level, and the index names the places of its values there, as tables do. It does so
// with the order's lock held, where else it would copy: so the values are in the file before
// they are visible, and the queue needs to know only that they are.
const (
	// mostLarge is the size in bytes from which on values are large, and a memtable's largeShare of values if
	// that is less.
	mostLarge  = 4 << 10
	largeShare = 64

	// largeWeight is how many bytes of such frames count as one of memory in how full a memtable is: they
	// cost none, but have to be replayed.
	largeWeight = 4
)

// large reports whether the batch of that encoding and so many operations stays in the log: its values are large, and
// it deletes no range.
func (d *DB) large(body []byte, ops int) bool {
	// The average decides, which costs nothing. A few small values among large ones may stay in the log too.
	if len(body)/ops < d.leastLarge {
		return false
	}

	for at := 0; at < len(body); {
		r, _ := format.ParseRecord(body[at:])
		if r.Kind == holdfast.KindDeleteRange {
			return false
		}
		at += r.Size
	}

	return true
}

// addLarge is add for a batch whose encoding is not in the image: its frame is at off in segment s.
func (t *memTable) addLarge(s *wal.Segment, off int64, body []byte, seq uint64) {
	// The reference comes before the index: a reader that finds an entry must find its segment.
	t.keep(s)
	t.large += int64(format.FrameSize(len(body)))

	// Sets are indexed by their place in the log. A delete has no value, and its key is copied into the image, which the
	// index points to.
	off += format.FrameHeader
	payload := int64(0)
	for at := 0; at < len(body); {
		r, _ := format.ParseRecord(body[at:])
		payload += int64(len(r.Key) + len(r.Value))
		if r.Kind == holdfast.KindDelete {
			t.deletes++
			addr, own := t.image.Reserve(r.Size)
			copy(own, body[at:])
			t.index.Add(addr, own[r.Size-len(r.Key):], seq)
		} else {
			place := uint64(s.ID)<<32 | uint64(off+int64(at+r.ValueAt))
			t.index.AddPointer(r.Key, memtable.Pointer{At: place, Len: uint32(len(r.Value)), Sum: format.Checksum(r.Value)}, seq)
		}
		seq++
		at += r.Size
	}
	s.Payload.Add(payload)
}

// keep makes the table hold a reference to s, from before anything in it is indexed.
func (t *memTable) keep(s *wal.Segment) {
	var old []*wal.Segment
	if p := t.segs.Load(); p != nil {
		old = *p
	}
	if n := len(old); n > 0 && old[n-1] == s {
		return
	}

	// The slice is replaced, never changed: readers walk over it without a lock.
	s.Acquire()
	segs := append(slices.Clip(old), s)
	t.segs.Store(&segs)
}

// Value appends a version's value to dst.
func (t *memTable) Value(dst []byte, v *memtable.Version) ([]byte, error) {
	if !v.InLog {
		return append(dst, v.Value...), nil
	}

	// The newest segment is the last one, and the likeliest.
	if p := t.segs.Load(); p != nil {
		segs := *p
		for i := len(segs) - 1; i >= 0; i-- {
			if segs[i].ID == uint32(v.Pointer.At>>32) {
				return segs[i].Unflushed(dst, int64(uint32(v.Pointer.At)), int(v.Pointer.Len), v.Pointer.Sum)
			}
		}
	}

	return dst, format.Corrupt("", 0,
		fmt.Sprintf("the memtable names segment %d, which it does not hold", v.Pointer.At>>32), nil)
}
