package table

import (
	"bytes"
	"fmt"

	"github.com/holdfastdb/holdfast"
)

// trailer is what the footer says, with what meta says in info.
type trailer struct {
	info                Info
	size                int64 // of the file
	dataEnd             int64
	filter, index, meta int64 // where the sections begin
	blocks, lines       int64
	indexSum, metaSum   uint32
	sums                []byte // those of the filter's pages
	prefix              []byte // what all keys begin with
}

// encode builds the footer.
func (t *trailer) encode(s seed) []byte {
	b := make([]byte, footerSize)
	for i, v := range []uint64{uint64(t.filter), uint64(t.index), uint64(t.meta), uint64(t.info.Entries),
		uint64(t.info.Tombstones), t.info.MaxSeq} {
		le.PutUint64(b[8*i:], v)
	}
	le.PutUint32(b[48:], uint32(t.blocks))
	le.PutUint32(b[52:], uint32(t.lines))
	le.PutUint32(b[56:], t.indexSum)
	le.PutUint32(b[60:], t.metaSum)
	le.PutUint64(b[64:], uint64(t.dataEnd))
	le.PutUint32(b[80:], Version)
	copy(b[84:], footerMagic)
	le.PutUint32(b[92:], s.sum(t.size-footerSize, b[:92]))

	return b
}

// decode reads the footer b of a file of t.size bytes and checks all that it says against that size. If it makes no
// sense it says why.
func (t *trailer) decode(b []byte, s seed) (problem string) {
	switch {
	case string(b[84:92]) != footerMagic:
		return "it does not end with the end of a table: it is cut off, or something was appended"
	case le.Uint32(b[92:]) != s.sum(t.size-footerSize, b[:92]):
		return "the footer's checksum is wrong"
	case le.Uint32(b[80:]) != Version:
		return "header and footer have different versions"
	}

	u := func(at int) uint64 { return le.Uint64(b[at:]) }
	size := uint64(t.size)
	filter, index, meta, entries, tombstones, dataEnd := u(0), u(8), u(16), u(24), u(32), u(64)
	blocks, lines := uint64(le.Uint32(b[48:])), uint64(le.Uint32(b[52:]))

	// All numbers are unsigned and bounded by the size of the file before they are used, so that no sum of them overflows.
	ok := dataEnd >= headerSize && dataEnd <= maxData && dataEnd <= size &&
		filter == (dataEnd+lineSize-1)/lineSize*lineSize &&
		// An entry has at least two bytes, a block at least blockLeast: this bounds what is computed from them.
		entries <= dataEnd/2 && tombstones <= entries && blocks <= dataEnd/blockLeast &&
		(entries == 0) == (blocks == 0) && (blocks == 0) == (dataEnd == headerSize) && blocks <= entries &&
		lines == uint64(filterLines(int64(entries))) && index == filter+lines*lineSize &&
		meta >= index+blocks*16+8 && meta <= size && size-meta >= metaFixed+footerSize
	if !ok {
		return "the footer contradicts itself"
	}
	t.info = Info{Entries: int64(entries), Tombstones: int64(tombstones), FileBytes: t.size, MaxSeq: u(40)}
	t.filter, t.index, t.meta, t.dataEnd = int64(filter), int64(index), int64(meta), int64(dataEnd)
	t.blocks, t.lines = int64(blocks), int64(lines)
	t.indexSum, t.metaSum = le.Uint32(b[56:]), le.Uint32(b[60:])

	return ""
}

// encodeMeta builds the meta section.
func encodeMeta(info Info, sums []byte) []byte {
	b := make([]byte, 0, metaFixed+len(info.Segments)*segmentSize+len(info.Smallest)+len(info.Largest)+len(sums))
	b = le.AppendUint32(b, uint32(len(info.Segments)))
	b = le.AppendUint32(b, uint32(len(info.Smallest)))
	b = le.AppendUint32(b, uint32(len(info.Largest)))
	b = le.AppendUint32(b, 0)

	for _, use := range info.Segments {
		b = le.AppendUint32(b, use.ID)
		b = le.AppendUint64(b, uint64(use.Entries))
		b = le.AppendUint64(b, uint64(use.Bytes))
	}
	b = append(b, info.Smallest...)
	b = append(b, info.Largest...)

	return append(b, sums...)
}

// decodeMeta reads the meta section and copies what it keeps.
func (t *trailer) decodeMeta(b []byte, s seed) (problem string) {
	if t.metaSum != s.sum(t.meta, b) {
		return "the checksum of the meta section is wrong"
	}
	segments, small, large := int64(le.Uint32(b)), int64(le.Uint32(b[4:])), int64(le.Uint32(b[8:]))
	sums := 4 * filterPages(t.lines)
	if segments*segmentSize+small+large+sums+metaFixed != int64(len(b)) || segments > t.info.Entries ||
		small > holdfast.MaxKeySize || large > holdfast.MaxKeySize || (small == 0) != (t.blocks == 0) {
		return "the meta section has a wrong length"
	}
	b = b[metaFixed:]

	entries := uint64(0)
	for i := range segments {
		use := SegmentUse{ID: le.Uint32(b), Entries: int64(le.Uint64(b[4:])), Bytes: int64(le.Uint64(b[12:]))}
		b = b[segmentSize:]
		if i > 0 && use.ID <= t.info.Segments[i-1].ID || use.Entries <= 0 || use.Entries > t.info.Entries || use.Bytes <= 0 {
			return fmt.Sprintf("the use of segment %d makes no sense", use.ID)
		}
		entries += uint64(use.Entries)
		t.info.Segments = append(t.info.Segments, use)
	}
	if entries != uint64(t.info.Entries-t.info.Tombstones) {
		return "the use of segments does not add up"
	}
	if t.blocks > 0 {
		t.info.Smallest, t.info.Largest = bytes.Clone(b[:small]), bytes.Clone(b[small:small+large])
		switch c := bytes.Compare(t.info.Smallest, t.info.Largest); {
		// A single entry is both the smallest and the largest, and keys ascend strictly.
		case c > 0, c == 0 && t.info.Entries > 1, c < 0 && t.info.Entries == 1:
			return "the smallest key does not go with the largest"
		}
		t.prefix = t.info.Smallest[:common(t.info.Smallest, t.info.Largest)]
	}
	t.sums = bytes.Clone(b[small+large:])

	return ""
}

// index is the section that finds a key's block. Its bytes have been verified, but it is not checked
// that they make sense: each access does, for its part.
type index struct {
	n                                  int
	prefix                             []byte
	heads, offsets, begins, separators []byte
}

// parseIndex divides the section's bytes; decode has checked that they are enough.
func (t *trailer) parseIndex(b []byte) *index {
	n := int(t.blocks)

	return &index{n: n, prefix: t.prefix, heads: b[:8*n], offsets: b[8*n : 12*n+4], begins: b[12*n+4 : 16*n+8],
		separators: b[16*n+8:]}
}

// block is where block i begins and ends.
func (x *index) block(i int) (lo, hi int64) {
	return int64(le.Uint32(x.offsets[4*i:])), int64(le.Uint32(x.offsets[4*i+4:]))
}

// separator is that of block i, without the prefix; nil if it makes no sense.
func (x *index) separator(i int) []byte {
	lo, hi := uint64(le.Uint32(x.begins[4*i:])), uint64(le.Uint32(x.begins[4*i+4:]))
	if lo > hi || hi > uint64(len(x.separators)) {
		return nil
	}

	return x.separators[lo:hi]
}

// find returns the last block whose separator is not above key: it has key, if any block has, and what is
// below key in other blocks is in those before it. -1 if all keys are above.
func (x *index) find(key []byte) int {
	// The prefix is not in the separators. A key without it is before all blocks, or behind them.
	p := len(x.prefix)

	if len(key) < p || string(key[:p]) != string(x.prefix) {
		if bytes.Compare(key, x.prefix) < 0 {
			return -1
		}

		return x.n - 1
	}
	if x.n == 0 {
		return -1
	}

	key = key[p:]
	want := head(key)
	at, n := 0, x.n // the last head <= want is in [at, at+n), if there is one
	for n > 1 {
		half := n / 2
		if le.Uint64(x.heads[8*(at+half):]) <= want {
			at += half
		}
		n -= half
	}
	if le.Uint64(x.heads[8*at:]) != want {
		return at // the first separator is empty, so its head is never above
	}
	// Equal heads decide nothing: look at the separators themselves, backwards by doubling steps, then
	// between the last two.
	lo, hi := -1, at+1 // lo fits or is -1, hi does not
	for step := 1; hi > 0; step *= 2 {
		i := max(0, hi-step)
		if le.Uint64(x.heads[8*i:]) < want || bytes.Compare(x.separator(i), key) <= 0 {
			lo = i
			break
		}
		hi = i
	}

	for lo+1 < hi {
		mid := int(uint(lo+hi) / 2)
		if le.Uint64(x.heads[8*mid:]) < want || bytes.Compare(x.separator(mid), key) <= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}

	return lo
}
