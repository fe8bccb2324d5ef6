package table

import (
	"bytes"
	"fmt"
	"slices"
)

// Verify reads the whole table and checks all there is to check: every checksum, whether it was verified before or not,
// the order of the keys, the counts, and that the index, the filter, the bounds and the use of segments are
// what the entries make them. It needs as much memory as the filter takes. The first thing that is wrong is its error.
func (r *Reader) Verify() error {
	x, err := r.index()
	if err != nil {
		return err
	}
	v := verifier{r: r, x: x, place: headerSize, filter: make([]byte, r.t.lines*lineSize), use: map[uint32]*SegmentUse{}}
	if err := v.index(); err != nil {
		return err
	}

	for i := range x.n {
		if err := v.block(i); err != nil {
			return err
		}
	}

	return v.rest()
}

// verifier adds up what the blocks hold, to be compared with what the index, the filter and the footer say.
type verifier struct {
	r     *Reader
	x     *index
	buf   []byte
	place int64 // where the next block begins
	win   window
	last  []byte // key
	group []byte // written again

	entries, tombstones int64
	filter              []byte
	use                 map[uint32]*SegmentUse
}

// read returns bytes of the table, past the cache; they are valid until the next call.
func (v *verifier) read(lo, hi int64) ([]byte, error) {
	v.buf = slices.Grow(v.buf[:0], int(hi-lo))[:hi-lo]
	return v.buf, v.r.readAt(v.buf, lo)
}

// index checks the checksum of the index, and that its places ascend.
func (v *verifier) index() error {
	t := &v.r.t
	b, err := v.read(t.index, t.meta)
	if err != nil {
		return err
	}
	if err := v.r.check(b, t.index, t.indexSum, 0); err != nil {
		return err
	}

	bad := le.Uint32(v.x.begins) != 0 || int(le.Uint32(v.x.begins[4*v.x.n:])) != len(v.x.separators) ||
		int64(le.Uint32(v.x.offsets[4*v.x.n:])) != t.dataEnd
	for i := range v.x.n {
		s := v.x.separator(i)
		bad = bad || s == nil || head(s) != le.Uint64(v.x.heads[8*i:]) || (i == 0) != (len(s) == 0)
	}
	if bad {
		return corrupt(v.r.path, t.index, "the index is malformed")
	}

	return nil
}

// block checks block i, and that the index leads to it.
func (v *verifier) block(i int) error {
	at, end, err := v.r.span(v.x, i)
	if err != nil {
		return err
	}
	if at != v.place {
		return corrupt(v.r.path, at, fmt.Sprintf("block %d does not begin where the one before ends", i))
	}
	v.place = end
	b, err := v.read(at, end)
	if err != nil {
		return err
	}
	if err := v.r.check(b, at, 0, 4); err != nil {
		return err
	}
	blk, ok := parseBlock(b)
	if !ok {
		return v.r.malformed(v.x, i)
	}

	for g := range blk.n {
		if !v.win.decode(&blk, g) {
			return v.r.malformed(v.x, i)
		}
		// Searching relies on it that groups are written in the one way there is.
		lo, hi, _ := blk.group(g)

		for j := 1; j < v.win.n; j++ {
			if bytes.Compare(v.win.key(j-1), v.win.key(j)) >= 0 {
				return corrupt(v.r.path, at, fmt.Sprintf("in block %d keys do not ascend", i))
			}
		}
		if v.group = v.win.appendTo(v.group[:0]); !bytes.Equal(v.group, b[lo:hi]) {
			return v.r.malformed(v.x, i)
		}

		for j := range v.win.n {
			key, e := v.win.key(j), v.win.entries[j]
			if uint64(uint32(e.Place))+uint64(e.Len) > 1<<32 {
				return v.r.malformed(v.x, i)
			}
			if v.entries > 0 && bytes.Compare(v.last, key) >= 0 {
				return corrupt(v.r.path, at, fmt.Sprintf("in block %d keys do not ascend", i))
			}
			if g == 0 && j == 0 {
				if err := v.separator(i, key); err != nil {
					return err
				}
			}
			v.last = append(v.last[:0], key...)
			v.entry(key, e)
		}
	}

	// What a search goes by, the heads and the common prefix, is made again of the keys.
	first, ok := blk.firstKey(0)
	ok = ok && blk.skip == common(first, v.last)
	for g := 0; ok && g < blk.n; g++ {
		first, ok = blk.firstKey(g)
		ok = ok && blk.head(g) == uint32(head(first[blk.skip:])>>32)
	}
	if !ok {
		return corrupt(v.r.path, at, fmt.Sprintf("the heads of block %d are not those of its keys", i))
	}

	return nil
}

// separator checks that of block i, whose first key is given, against the key before.
func (v *verifier) separator(i int, first []byte) error {
	if i == 0 {
		if !bytes.Equal(first, v.r.t.info.Smallest) {
			return corrupt(v.r.path, v.r.t.meta, "the smallest key is not the first one")
		}

		return nil
	}
	s := append(bytes.Clone(v.x.prefix), v.x.separator(i)...)
	if bytes.Compare(v.last, s) >= 0 || bytes.Compare(s, first) > 0 {
		return corrupt(v.r.path, v.r.t.index, fmt.Sprintf("the separator of block %d is not between the keys next to it", i))
	}

	return nil
}

// entry counts an entry.
func (v *verifier) entry(key []byte, e Entry) {
	v.entries++
	if h := hash(key); len(v.filter) > 0 {
		setBits(v.filter[filterLine(h, uint64(v.r.t.lines))*lineSize:], h)
	}
	if e.Tombstone {
		v.tombstones++
		return
	}
	id := uint32(e.Place >> 32)
	use := v.use[id]
	if use == nil {
		use = &SegmentUse{ID: id}
		v.use[id] = use
	}
	use.Entries++
	use.Bytes += int64(len(key)) + int64(e.Len)
}

// rest checks what the entries add up to.
func (v *verifier) rest() error {
	r, info := v.r, v.r.t.info
	switch {
	case v.place != r.t.dataEnd:
		return corrupt(r.path, v.place, "the last block does not end where the blocks end")
	case v.entries != info.Entries || v.tombstones != info.Tombstones:
		return corrupt(r.path, info.FileBytes-footerSize,
			fmt.Sprintf("it has %d entries, %d of them tombstones; the footer says %d and %d", v.entries, v.tombstones,
				info.Entries, info.Tombstones))
	case !bytes.Equal(v.last, info.Largest):
		return corrupt(r.path, r.t.meta, "the largest key is not the last one")
	}
	if len(v.use) != len(info.Segments) {
		return corrupt(r.path, r.t.meta, "the segments are not those of the entries")
	}

	for _, use := range info.Segments {
		if have := v.use[use.ID]; have == nil || *have != use {
			return corrupt(r.path, r.t.meta, fmt.Sprintf("the use of segment %d is not that of the entries", use.ID))
		}
	}

	// No byte of the file is left out: the zeros that pad it, and then the filter, which must be what the keys make it.
	pad, err := v.read(r.t.dataEnd, r.t.filter)
	if err != nil {
		return err
	}

	for i, c := range pad {
		if c != 0 {
			return corrupt(r.path, r.t.dataEnd+int64(i), "there is something between the blocks and the filter")
		}
	}

	for page := range filterPages(r.t.lines) {
		lo := r.t.filter + page*pageSize
		hi := min(lo+pageSize, r.t.index)
		b, err := v.read(lo, hi)
		if err != nil {
			return err
		}
		if err := r.check(b, lo, le.Uint32(r.t.sums[4*page:]), 0); err != nil {
			return err
		}
		if !bytes.Equal(b, v.filter[lo-r.t.filter:hi-r.t.filter]) {
			return corrupt(r.path, lo, "the filter is not that of the keys")
		}
	}

	return nil
}
