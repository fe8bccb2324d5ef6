// Package table keeps the tables of logtree: immutable sorted files of keys, with the suffix .run. A value has one
// home, the log; a table says for each of its keys where in the log the value lies, or that the key is deleted.
// It holds no values, and can be rebuilt from the log. Readers believe only copies in memory whose checksum
// they have verified: what rots in the file later is an error when it is read again, or not met at all.
//
// # The bytes of a table, format 1
//
// All numbers are little-endian. A uvarint is seven bits a byte, lowest first, the top bit set on all
// but the last; none here has more than five bytes. A zigzag is a uvarint of a signed number z, stored as z<<1 ^ z>>31.
//
//	+--------+--------+-----+--------+------+--------+-------+------+--------+
//	| header | block  | ... | block  | 0... | filter | index | meta | footer |
//	+--------+--------+-----+--------+------+--------+-------+------+--------+
//	    64                           to a multiple of 64                96
//
// Every checksum is a CRC32C (Castagnoli). That of the header is plain, so that any program can read which
// format it has before it. All others begin from s, the checksum of the store's and the table's
// identity (24 bytes, as in the header), and are then xored with the low half of the file offset
// of what they cover times 0x9E3779B1. A block of another store, of another table, or of another place in this one
// is thus never valid.
//
//	header, 64 bytes
//	+--------------------------+---------+----+----------+----------+------+-----+
//	| 'h''f''r''u''n' 1A 0D 0A | version | 0  | store id | table id | 0... | sum |
//	+--------------------------+---------+----+----------+----------+------+-----+
//	0                          8        12   16         32         40     60    64
//
// A block holds entries in ascending order of their keys, about 4 KiB of them, at most 65536 bytes with its
// end. They are in groups of at most 16. At the beginning of a group everything is written out; the
// others build on the entry before them.
//
//	+-------+-----+-------+---------+-----+-----------+------------+-----+--------------+------+---+-----+
//	| entry | ... | entry | head[0] | ... | head[n-1] | restart[0] | ... | restart[n-1] | skip | n | sum |
//	+-------+-----+-------+---------+-----+-----------+------------+-----+--------------+------+---+-----+
//	                           4                4           2                  2           2     2    4
//
// skip is how many bytes all keys of the block begin with in common. head[i] is what follows them in the first key
// of group i, four bytes as a number whose highest byte is the first, zeros behind a shorter one: a search touches
// the end of the block and one group, and little of what lies between. restart[i] is where group i begins, counted
// from the beginning of the block.
//
//	entry
//	+-----+------------+--------+--------+-----------+-------+---------+-----+
//	| tag | key length | shared | suffix |  segment  | place |  length | sum |
//	+-----+------------+--------+--------+-----------+-------+---------+-----+
//	   1      uvarint    uvarint           uvarint   see below uvarint    4
//
//	tag
//	01  a tombstone: nothing follows the suffix
//	02  no key length: it is that of the key before
//	04  no length: the value is as long as the last one
//	08  no place: the gap is that of the last place
//	10  a segment follows: the value is in another one than the last. The place is then a uvarint,
//	    the offset in the segment. Otherwise it is a zigzag, the gap: the offset less the end
//	    of the last value, modulo 2^32
//	E0  the length of the suffix, 1 to 7, and no shared; 0: shared follows
//
// shared says how many bytes the key has in common with the one before, suffix is the rest. The first entry of
// a group has no shared: its suffix is the whole key. "Last" is the last entry of the group that is no
// tombstone; at its beginning segment, end, gap and length are 0. sum is that of the value.
// Keys written in order, with values of one size, take a tag, a byte or two of suffix and the sum.
//
// The filter is a blocked Bloom filter: ceil(entries*10/512) lines of 64 bytes, and in the line of a key six bits are
// set. With h the key's xxHash64 (seed 0), the line is the high half of the 128-bit product h*lines, and the
// bits are six fields of nine bits, from the top, of the low half of h*0x9E3779B97F4A7C15. Bit b is
// bit b%8 of byte b/8. Each page of 64 lines, the last one perhaps shorter, has a sum in the meta section.
//
// The index has for each block a separator: above all keys before the block, and not above its first one. That of
// the first block is empty. All keys of a table begin with what the smallest and the largest have in common;
// separators are stored without it. head is the first eight bytes of one, as a number whose highest byte is the
// first, zeros behind a shorter one.
//
//	+---------+-----+-------------+-----+---------------+-----+------------+
//	| head[0] | ... | offset[0]   | ... | begin[0]      | ... | separators |
//	+---------+-----+-------------+-----+---------------+-----+------------+
//	 8 each, blocks    4 each, blocks+1    4 each, blocks+1
//
// Block i fills the file from offset[i] to offset[i+1], its separator the separators' bytes from
// begin[i] to begin[i+1].
//
//	meta
//	+----------+-----------------+----------------+---+--------------+----------+---------+-------------+
//	| segments | smallest length | largest length | 0 | segment, ... | smallest | largest | filter sums |
//	+----------+-----------------+----------------+---+--------------+----------+---------+-------------+
//	     4              4                4          4     20 each                             4 each
//
//	segment: id (4), entries with a value in it (8), bytes of those keys and values (8); ascending by id
//
//	footer, 96 bytes
//	 0  filter offset     24  entries       48  blocks (4)          64  end of the blocks   84  'h''f''r''u''n''e''n''d'
//	 8  index offset      32  tombstones    52  filter lines (4)    72  0                   92  sum (4)
//	16  meta offset       40  max sequence  56  index sum (4)       80  version (4)
//	                                        60  meta sum (4)
//
// # Invariants
//
// Keys ascend strictly over the whole table and have 1 to 16384 bytes. There is one way to write a group: shared is
// as long and every number as short as it can be, and what a tag can leave out is left out; searching relies on the
// first of these. Sections touch each other, and the footer ends the file. A reader knows the header's first 12
// bytes and its last 4 in every version; a file with another version and a valid header is refused as a newer one,
// anything else that does not fit as corrupt.
package table

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/holdfastdb/holdfast"
)

// Version is the format that this package writes, and the only one that it reads.
const Version = 1

// Entry says where a key's value is. A table has one per key.
type Entry struct {
	Place     uint64 // segment id << 32 | offset of the value's first byte in that segment's file
	Len       uint32 // of the value, in bytes
	Sum       uint32 // CRC32C (Castagnoli) of the value
	Tombstone bool   // the key is deleted in older tables; the other fields are 0
}

// Identity says which file this is. It is in the header and is mixed into every checksum, so that
// a file of another store, another table, or an old one under a new name is never taken for it.
type Identity struct {
	DB [16]byte // the store's
	ID uint64   // the table's, never used twice in a store
}

// SegmentUse is how much of a log segment a table refers to.
type SegmentUse struct {
	ID      uint32
	Entries int64 // whose value lies in it
	Bytes   int64 // of their keys and values
}

// Info describes a table. Its slices are shared and must not be written to.
type Info struct {
	Entries    int64 // tombstones included
	Tombstones int64
	FileBytes  int64
	Smallest   []byte // the first key; nil if there is no entry
	Largest    []byte // the last key
	Segments   []SegmentUse
	MaxSeq     uint64 // as given to Finish
}

const (
	engineName = "logtree"

	headerMagic = "hfrun\x1a\r\n"
	footerMagic = "hfrunend"
	headerSize  = 64
	footerSize  = 96
	metaFixed   = 16
	segmentSize = 20

	blockTarget  = 4 << 10 // a block is closed when its entries and their heads have reached it
	maxBlock     = 64 << 10
	groupSize    = 16 // entries in a group, at most
	groupTrailer = 6  // head and restart
	blockTrailer = 8  // skip, count and sum
	blockLeast   = 2 + groupTrailer + blockTrailer
	maxData      = 1<<32 - 1 // end of the last block, for offsets of four bytes
)

var (
	le         = binary.LittleEndian
	be         = binary.BigEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// bytes is the identity as the header has it.
func (id Identity) bytes() (b [24]byte) {
	copy(b[:], id.DB[:])
	le.PutUint64(b[16:], id.ID)

	return b
}

// seed begins the checksums of one table.
type seed uint32

func (id Identity) seed() seed {
	b := id.bytes()
	return seed(crc32.Checksum(b[:], castagnoli))
}

// sum is the checksum of b, the bytes at offset off.
func (s seed) sum(off int64, b []byte) uint32 {
	return crc32.Update(uint32(s), castagnoli, b) ^ uint32(off)*0x9E3779B1
}

// header is the first 64 bytes of the table's file. Its own checksum has no seed, so that any program can read the
// version before it knows whose file it is.
func header(id Identity) []byte {
	h := make([]byte, headerSize)
	copy(h, headerMagic)
	le.PutUint32(h[8:], Version)
	b := id.bytes()
	copy(h[16:], b[:])
	le.PutUint32(h[60:], crc32.Checksum(h[:60], castagnoli))

	return h
}

// corrupt is ErrCorrupt for damage at offset off of a table.
func corrupt(path string, off int64, detail string) error {
	return &holdfast.Error{Op: "read table", Engine: engineName, Path: path, Offset: off, Class: holdfast.ErrCorrupt,
		Detail: detail,
		Remedy: "rebuild the index from the log, or restore a backup"}
}

// common returns how many bytes a and b begin with in common.
func common(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]

	i := 0

	for ; i+8 <= n; i += 8 {
		if x := le.Uint64(a[i:]) ^ le.Uint64(b[i:]); x != 0 {
			return i + trailingBytes(x)
		}
	}

	for i < n && a[i] == b[i] {
		i++
	}

	return i
}

// head is the first eight bytes of key as a number that orders as they do; zeros stand for
// those that are missing, so equal heads decide nothing.
func head(key []byte) uint64 {
	if len(key) >= 8 {
		return be.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)

	return be.Uint64(b[:])
}
