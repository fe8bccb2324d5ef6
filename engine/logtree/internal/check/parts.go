package check

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// interval is the keys in [lo, hi); an empty hi is the end.
type interval struct{ lo, hi []byte }

func (i interval) has(key []byte) bool {
	return bytes.Compare(i.lo, key) <= 0 && (len(i.hi) == 0 || bytes.Compare(key, i.hi) < 0)
}

func (i interval) String() string {
	s := "any keys"
	if len(i.lo) > 0 {
		s += fmt.Sprintf(" from %.40q on", i.lo)
	}
	if len(i.hi) > 0 {
		s += fmt.Sprintf(" before %.40q", i.hi)
	}
	return s
}

func (i interval) empty() bool { return len(i.hi) > 0 && bytes.Compare(i.lo, i.hi) >= 0 }

// and is what lies in [lo, hi) too.
func (i interval) and(lo, hi []byte) interval {
	if bytes.Compare(i.lo, lo) < 0 {
		i.lo = lo
	}
	if len(i.hi) == 0 || len(hi) > 0 && bytes.Compare(hi, i.hi) < 0 {
		i.hi = hi
	}
	return i
}

// end is the least key above all of a ref's.
func end(r *tree.Ref) []byte {
	if len(r.Hi) > 0 {
		return r.Hi
	}
	return append(bytes.Clone(r.Table.Info.Largest), 0)
}

// entries calls visit with the entries of a ref that can be read: up to damage, and from the end back to it. It
// returns the interval in which others may be, and what is wrong there, or visit's error. What lies between several
// damaged places is not read.
func entries(r *tree.Ref, visit func(key []byte, e run.Entry) error) (gap interval, damage, err error) {
	gap = interval{bytes.Clone(r.Lo), end(r)}
	var it run.Iter
	r.Table.Reader.Init(&it)
	for ok := it.SeekGE(gap.lo); ok && gap.has(it.Key()); ok = it.Next() {
		gap.lo = append(append(gap.lo[:0], it.Key()...), 0)
		if err := visit(it.Key(), it.Entry()); err != nil {
			return gap, nil, err
		}
	}
	if damage = it.Err(); damage == nil {
		return gap, nil, nil
	}
	r.Table.Reader.Init(&it)
	for ok := it.SeekLT(gap.hi); ok && gap.has(it.Key()); ok = it.Prev() {
		gap.hi = append([]byte(nil), it.Key()...)
		if err := visit(it.Key(), it.Entry()); err != nil {
			return gap, damage, err
		}
	}
	return gap, damage, nil
}

// piece is a part of a segment, [from, to).
type piece struct {
	p        *part
	from, to int64
}

// listed is what the manifest says of a segment, nil if it is not among those that the log has left behind.
func (k *disk) listed(id uint32) *format.ManifestSegment {
	if k.m != nil {
		for i := range k.m.Segments {
			if s := &k.m.Segments[i]; s.ID == id {
				return s
			}
		}
	}
	return nil
}

// pieceOf is the part of a segment that holds frames, as far as the manifest says it.
func (k *disk) pieceOf(p *part) piece {
	to := p.size
	if s := k.listed(p.id); s != nil {
		to = s.Size
	}
	return piece{p, format.SegmentHeaderSize, to}
}

// pieces are the log's segments in its order, which is that of their numbers. A later one begins where the log ended
// when it was made: what older ones hold beyond that had been cut off.
func (k *disk) pieces() (all []piece) {
	least := uint64(math.MaxUint64)
	for _, id := range slices.Backward(k.segs) {
		p := k.parts[id]
		x := k.pieceOf(p)
		if p.moved() || !p.begun && !p.framed && p.headerErr == nil { // the last is one that was never used
			continue
		}
		if p.begun {
			if p.begin.LSN >= least {
				continue
			}
			if n := least - p.begin.LSN; n < uint64(x.to-x.from) {
				x.to = x.from + int64(n)
			}
			least = p.begin.LSN
		}
		all = append(all, x)
	}
	slices.Reverse(all)
	return all
}

// behind are the pieces behind a position of the log's tail.
func (k *disk) behind(at format.Position) (all []piece) {
	for _, x := range k.pieces() {
		if x.p.id == at.Segment {
			x.from = max(x.from, at.Offset)
		}
		if x.p.id >= at.Segment && x.from < x.to && (x.p.id == k.m.From.Segment || k.listed(x.p.id) == nil) {
			all = append(all, x)
		}
	}
	return all
}

// segment returns a segment for reading values, and nil if it cannot be opened. A damaged header does not matter for
// that.
func (k *disk) segment(id uint32) *wal.Segment {
	s, ok := k.open[id]
	if p := k.parts[id]; !ok && p != nil {
		if f, err := k.fs.Open(p.name); err == nil {
			s = &wal.Segment{SegmentHeader: format.SegmentHeader{ID: id}, File: f}
			s.Used.Store(p.size)
			s.MapIn(p.size)
		}
	}
	k.open[id] = s
	return s
}

func (k *disk) close() {
	for _, s := range k.open {
		if s != nil {
			s.Close()
		}
	}
}

// value appends to dst the value that an entry names, if it has the right checksum and stands
// in the log as the value of that key.
func (k *disk) value(dst []byte, s *wal.Segment, key []byte, e run.Entry) ([]byte, error) {
	off := int64(uint32(e.Place))
	head := append(bytes.Clone(key), binary.AppendUvarint(nil, uint64(e.Len))...)
	old, err := len(dst), error(nil)
	fault := wal.Guarded(func() {
		if dst, err = s.Read(dst, off-int64(len(head)), len(head)+int(e.Len)); err != nil {
			return
		}
		if got := dst[old:]; !bytes.Equal(got[:len(head)], head) {
			err = format.Corrupt(s.File.Name(), off, fmt.Sprintf("there is no value of %d bytes of key %.40q", e.Len, key), nil)
		} else if format.Checksum(got[len(head):]) != e.Sum {
			err = format.Corrupt(s.File.Name(), off,
				fmt.Sprintf("the checksum of the value of key %.40q, %d bytes, is wrong", key, e.Len), nil)
		}
	})
	if fault != nil {
		err = format.Corrupt(s.File.Name(), off, fmt.Sprintf("the value of key %.40q cannot be read", key), fault)
	}
	if err != nil {
		return dst[:old], err
	}
	n := copy(dst[old:], dst[old+len(head):])
	return dst[:old+n], nil
}
