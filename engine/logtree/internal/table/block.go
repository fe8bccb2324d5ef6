package table

import (
	"bytes"

	"github.com/holdfastdb/holdfast"
)

// The tag of an entry; see the package comment.
const (
	tagTombstone = 1 << iota
	tagKeyLen        // that of the key before
	tagLen           // that of the last value
	tagGap           // that of the last place
	tagSegment       // another one follows
	tagSuffix    = 5 // shift
)

// context is what an entry builds on: the entries of its group before it.
type context struct {
	keyLen                 int
	segment, end, gap, len uint32
}

// appendEntry appends an entry whose key has shared bytes in common with the one before.
// first says that it begins a group; c is then zero and shared is 0.
func (c *context) appendEntry(b, key []byte, shared int, first bool, e Entry) []byte {
	at, tag := len(b), byte(0)
	b = append(b, 0)

	// A key is its length if that differs, what it shares with the one before, and the rest.
	if len(key) == c.keyLen {
		tag |= tagKeyLen
	} else {
		b = appendUvarint(b, uint32(len(key)))
		c.keyLen = len(key)
	}
	if !first {
		if n := len(key) - shared; n < 8 {
			tag |= byte(n) << tagSuffix
		} else {
			b = appendUvarint(b, uint32(shared))
		}
	}
	b = append(b, key[shared:]...)
	if e.Tombstone {
		b[at] = tag | tagTombstone
		return b
	}

	// A place is given by what differs from the usual: values that lie one behind the other, as many bytes apart as the
	// last two, take a bit.
	segment, offset := uint32(e.Place>>32), uint32(e.Place)
	if segment != c.segment {
		tag |= tagSegment
		b = appendUvarint(b, segment)
		b = appendUvarint(b, offset)
		c.segment = segment
	} else if gap := offset - c.end; gap == c.gap {
		tag |= tagGap
	} else {
		b = appendUvarint(b, gap<<1^uint32(int32(gap)>>31))
		c.gap = gap
	}
	if e.Len == c.len {
		tag |= tagLen
	} else {
		b = appendUvarint(b, e.Len)
		c.len = e.Len
	}
	c.end = offset + e.Len
	b[at] = tag

	return le.AppendUint32(b, e.Sum)
}

// appendUvarint is that of encoding/binary, for 32 bits.
func appendUvarint(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}

	return append(b, byte(v))
}

// uvarint reads a number at b[i] and returns where it ends, or an end beyond any block if there is none. The common
// case, one byte, is apart.
func uvarint(b []byte, i int) (uint32, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return uint32(b[i]), i + 1
	}

	return uvarintLong(b, i)
}

// badEnd is an end that no block reaches, so that one comparison at the end of an entry finds out any number that was
// cut off.
const badEnd = 1 << 30

// uvarintLong is uvarint for numbers of more than a byte. Five bytes are the most that 32 bits need.
func uvarintLong(b []byte, i int) (uint32, int) {
	var v uint64

	for shift := 0; shift < 35 && uint(i) < uint(len(b)); shift += 7 {
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if v > 1<<32-1 {
				break
			}

			return uint32(v), i
		}
	}

	return 0, badEnd
}

// block is a data block: its bytes with the end, whose checksum has been verified. All its methods
// stand any bytes: they report false, and never panic.
type block struct {
	b    []byte
	ends int // where the entries end and the heads begin
	n    int // groups
	skip int // what all keys have in common, in bytes

	from *chunk // nil where it did not come from the cache
}

// parseBlock finds the parts of a block.
func parseBlock(b []byte) (block, bool) {
	if len(b) < blockTrailer || len(b) > maxBlock {
		return block{}, false
	}

	// The end of the block has the numbers; the heads, four bytes of each group's first key, and the groups' offsets lie
	// before it.
	end := b[len(b)-blockTrailer:]
	n := int(le.Uint16(end[2:]))
	ends := len(b) - blockTrailer - groupTrailer*n
	if n == 0 || ends < 2 {
		return block{}, false
	}

	return block{b: b, ends: ends, n: n, skip: int(le.Uint16(end))}, true
}

// group returns where group g, which exists, begins and ends.
func (b *block) group(g int) (lo, hi int, ok bool) {
	at := len(b.b) - blockTrailer - 2*b.n + 2*g
	lo, hi = int(le.Uint16(b.b[at:])), b.ends
	if g+1 < b.n {
		hi = int(le.Uint16(b.b[at+2:]))
	}

	// Groups lie one behind the other from the first byte on. Whatever a damaged restart says, the caller stays within
	// the entries.
	return lo, hi, lo < hi && hi <= b.ends && (g > 0 || lo == 0)
}

// firstKey is the first key of a group.
func (b *block) firstKey(g int) ([]byte, bool) {
	lo, hi, ok := b.group(g)
	if !ok {
		return nil, false
	}
	n, i := uvarint(b.b, lo+1)
	if n > holdfast.MaxKeySize || int(n) > hi-i {
		return nil, false
	}

	return b.b[i : i+int(n)], true
}

// head is that of group g.
func (b *block) head(g int) uint32 { return le.Uint32(b.b[b.ends+4*g:]) }

// searchHeads returns the last group whose first key is at most key, or below it if strict; -1 if there is none. Key
// must begin as all keys of the block do, which is not checked: that would cost a look at the beginning of the block.
func (b *block) searchHeads(key []byte, strict bool) (int, bool) {
	want := uint32(head(key[b.skip:]) >> 32)
	heads := b.b[b.ends : b.ends+4*b.n]

	// The heads decide nearly always, and lie together in a line or two of the processor's cache.
	at, n := 0, b.n // the last head <= want is in [at, at+n), if there is one
	for n > 1 {
		half := n / 2
		if le.Uint32(heads[4*(at+half):]) <= want {
			at += half
		}
		n -= half
	}
	if h := b.head(at); h > want {
		return -1, true // so is the very first
	} else if h < want {
		return at, true
	}
	// Equal heads decide nothing.
	most := 0
	if strict {
		most = -1
	}

	lo, hi := -1, at+1 // lo fits or is -1, hi does not
	for mid := at; lo+1 < hi; mid = (lo + hi) / 2 {
		fits := b.head(mid) < want
		if !fits {
			first, ok := b.firstKey(mid)
			if !ok {
				return 0, false
			}
			fits = bytes.Compare(first, key) <= most
		}
		if fits {
			lo = mid
		} else {
			hi = mid
		}
	}

	return lo, true
}

// search is searchHeads for any key.
func (b *block) search(key []byte, strict bool) (int, bool) {
	first, ok := b.firstKey(0)
	if !ok || len(first) < b.skip {
		return 0, false
	}
	if prefix := first[:b.skip]; len(key) < b.skip || string(key[:b.skip]) != string(prefix) {
		if bytes.Compare(key, prefix) < 0 {
			return -1, true
		}

		return b.n - 1, true
	}

	return b.searchHeads(key, strict)
}

// get finds key in the block. ok is false if the block is malformed.
func (b *block) get(key []byte) (e Entry, found, ok bool) {
	if len(key) < b.skip {
		return Entry{}, false, true
	}
	// If key does not begin as all keys of the block do, this may be any group, and find will not find it there.
	g, ok := b.searchHeads(key, false)
	if !ok || g < 0 {
		return Entry{}, false, ok
	}
	lo, hi, ok := b.group(g)
	if !ok {
		return Entry{}, false, false
	}

	return find(b.b, lo, hi, key)
}

// find looks for key in the group b[lo:hi]. It builds no keys: match is how many bytes key has in
// common with the entry before, which is below it, and what the next one shares with that says most.
func find(b []byte, lo, hi int, key []byte) (e Entry, found, ok bool) {
	var c context
	match := 0

	for i, n := lo, 0; i < hi; n++ {
		if n == groupSize {
			return Entry{}, false, false
		}
		tag := b[i]
		i++
		before := c.keyLen
		if tag&tagKeyLen == 0 {
			var v uint32

			v, i = uvarint(b, i)
			c.keyLen = int(v)
		}

		// One comparison finds out both a length of 0, which wraps round, and one that is too long.
		if uint(c.keyLen-1) >= holdfast.MaxKeySize {
			return Entry{}, false, false
		}
		shared := 0
		if n > 0 {
			if shared = c.keyLen - int(tag>>tagSuffix); shared == c.keyLen {
				var v uint32
				v, i = uvarint(b, i)
				shared = int(v)

			}
			if uint(shared) >= uint(c.keyLen) || shared > before {
				return Entry{}, false, false
			}
		} else if tag>>tagSuffix != 0 {
			return Entry{}, false, false
		}
		suffix := c.keyLen - shared
		if suffix > hi-i {
			return Entry{}, false, false
		}
		// shared is as long as it can be, so the key before differs from this one right behind it.
		if shared < match {
			return Entry{}, false, true
		}

		// This entry shares with the one before as much as the key does, so it is the first that can go further.
		if shared == match {
			have, want := b[i:i+suffix], key[match:]
			same := common(have, want)
			match += same
			switch {
			case same == len(want) && same == len(have):
				found = true
			case same == len(want), same < len(have) && have[same] > want[same]:
				return Entry{}, false, true
			}
		}
		i += suffix

		if tag&tagTombstone != 0 {
			if found {
				return Entry{Tombstone: true}, true, i <= hi
			}
			continue
		}

		var v uint32
		switch {
		case tag&tagSegment != 0:
			c.segment, i = uvarint(b, i)
			c.end, i = uvarint(b, i)
		case tag&tagGap == 0:
			v, i = uvarint(b, i)
			c.gap = v>>1 ^ -(v & 1)
			c.end += c.gap
		default:
			c.end += c.gap
		}

		// What the tag does not change is as in the entry before.
		if tag&tagLen == 0 {
			c.len, i = uvarint(b, i)
		}
		if i > hi-4 {
			return Entry{}, false, false
		}
		if found {
			return Entry{Place: uint64(c.segment)<<32 | uint64(c.end), Len: c.len, Sum: le.Uint32(b[i:])}, true, true
		}

		// The next value is measured from the end of this one, found or not.
		c.end += c.len
		i += 4
	}

	return Entry{}, false, true
}

// window is a group, or some that follow each other, with the keys built and the entries decoded, so that an
// iterator moves in it both ways. The zero value is an empty one; its memory is used again.
type window struct {
	n       int
	entries [windowSize]Entry
	begin   [windowSize + 1]uint32 // of the keys in keys
	keys    []byte                 // all of its capacity may be written to

	groups int                   // how many are in it
	first  [windowGroups + 1]int // entry of each, and where the last one ends
	looked [windowGroups]bool    // whether values shows what the cache has of it
	values [windowSize][]byte    // of entries; nil where the cache does not have them
}

const (
	windowGroups = 4 // at most
	windowSize   = windowGroups * groupSize
)

// key is that of entry i.
func (w *window) key(i int) []byte {
	lo, hi := w.begin[i], w.begin[i+1]
	return w.keys[lo:hi:hi]
}

// keySlack lets short keys be copied in chunks of fixed size.
const keySlack = 32

// grow makes room for n bytes of keys at offset at.
func (w *window) grow(at, n int) {
	keys := make([]byte, max(2*len(w.keys), at+n+keySlack, 512))
	copy(keys, w.keys[:at])
	w.keys = keys
}

// decode fills the window with a group of b. If it is malformed it reports false, and the window is empty.
func (w *window) decode(blk *block, g int) bool {
	w.n, w.groups = 0, 0
	return w.add(blk, g)
}

// add is decode for a group that follows the last one in the window. If it is malformed the window stays as it was.
func (w *window) add(blk *block, g int) bool {
	lo, hi, ok := blk.group(g)
	if !ok {
		return false
	}
	// What follows the entries, at least 14 bytes, lets a short suffix be read as eight bytes.
	b := blk.b
	var c context
	at := 0

	if w.n > 0 {
		at = int(w.begin[w.n])
	}

	prev, n := at, 0 // where the key before begins
	entries, begin := w.entries[w.n:w.n+groupSize], w.begin[w.n:w.n+groupSize+1]

	// The entries are read as find reads them; here every key is built, and every value noted.
	for i := lo; i < hi; n++ {
		if n == groupSize {
			return false
		}
		tag := b[i]
		i++
		if tag&tagKeyLen == 0 {
			var v uint32
			v, i = uvarint(b, i)
			c.keyLen = int(v)
		}
		if uint(c.keyLen-1) >= holdfast.MaxKeySize {
			return false
		}
		shared := 0

		// The first key of a group is whole, so that a group can be read without the one before.
		if n > 0 {
			if shared = c.keyLen - int(tag>>tagSuffix); shared == c.keyLen {
				var v uint32
				v, i = uvarint(b, i)
				shared = int(v)
			}

			// A key cannot share more than the key before has, nor be the beginning of it, which would sort before it.
			if uint(shared) >= uint(c.keyLen) || shared > at-prev {
				return false
			}
		} else if tag>>tagSuffix != 0 {
			return false
		}
		suffix := c.keyLen - shared
		if suffix > hi-i {
			return false
		}

		// The slack lets the copies of fixed size below write beyond the key, but never beyond the memory.
		if at+c.keyLen+keySlack > len(w.keys) {
			w.grow(at, c.keyLen)
		}

		// Most keys are short. Copies of fixed size, of which a part is written over by the next, are faster than copies that
		// count. The longer ones are taken where they are needed only.
		if shared <= 16 && suffix <= 8 {
			*(*[16]byte)(w.keys[at:]) = *(*[16]byte)(w.keys[prev:])
			*(*[8]byte)(w.keys[at+shared:]) = *(*[8]byte)(b[i:])
		} else if shared <= 32 && suffix <= 16 && i+16 <= len(b) {
			*(*[32]byte)(w.keys[at:]) = *(*[32]byte)(w.keys[prev:])
			*(*[16]byte)(w.keys[at+shared:]) = *(*[16]byte)(b[i:])
		} else {
			copy(w.keys[at:], w.keys[prev:prev+shared])
			copy(w.keys[at+shared:], b[i:i+suffix])
		}
		i += suffix
		begin[n] = uint32(at)
		prev, at = at, at+c.keyLen
		e := &entries[n]
		if tag&tagTombstone != 0 {
			*e = Entry{Tombstone: true}
			continue
		}

		// Where the value lies is told by what differs from the value before: another segment, or a gap behind its end, or
		// nothing.
		switch {
		case tag&tagSegment != 0:
			c.segment, i = uvarint(b, i)
			c.end, i = uvarint(b, i)
		case tag&tagGap == 0:
			var v uint32
			v, i = uvarint(b, i)
			c.gap = v>>1 ^ -(v & 1)
			c.end += c.gap
		default:
			c.end += c.gap
		}
		if tag&tagLen == 0 {
			c.len, i = uvarint(b, i)
		}
		if i > hi-4 {
			return false
		}
		e.Place, e.Len, e.Sum, e.Tombstone = uint64(c.segment)<<32|uint64(c.end), c.len, le.Uint32(b[i:]), false
		c.end += c.len
		i += 4
	}

	// The end of the last key. w.n grows only now, so a malformed group leaves the window as it was.
	begin[n] = uint32(at)
	w.n += n
	w.looked[w.groups] = false
	w.groups++
	w.first[w.groups] = w.n

	return true
}

// show makes values those of group g, which lie one behind the other in b, or none if b is nil.
func (w *window) show(g int, b []byte) {
	at := 0
	for i := w.first[g]; i < w.first[g+1]; i++ {
		if b == nil {
			w.values[i] = nil
			continue
		}
		end := at + int(w.entries[i].Len)
		w.values[i] = b[at:end:end]
		at = end
	}
}

// appendTo appends the group as a writer writes it: there is one way to.
func (w *window) appendTo(b []byte) []byte {
	var c context
	for i := range w.n {
		shared := 0
		if i > 0 {
			shared = common(w.key(i-1), w.key(i))
		}
		b = c.appendEntry(b, w.key(i), shared, i == 0, w.entries[i])
	}

	return b
}

// search returns the first entry of the window whose key is at least key; n if there is none.
func (w *window) search(key []byte) int {
	lo, hi := 0, w.n
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if bytes.Compare(w.key(mid), key) < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}

	return lo
}
