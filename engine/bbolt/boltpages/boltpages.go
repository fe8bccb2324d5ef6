// Package boltpages checks the structure of a file of bbolt before bbolt reads it.
//
//	err := boltpages.CheckFile("data.bbolt", boltpages.Inline) // before bbolt.Open
//
// bbolt trusts every number in a page. Most damage makes it panic, or read memory that is not mapped, which can both be
// caught. One kind cannot: a small bucket is a page within a value of another one, which bbolt copies to Go's heap if
// it is not aligned there. A damaged place of a key in it then makes a slice that points anywhere in the heap, and the
// garbage collector ends the process when it meets that. What [Check] has passed makes no such slice.
package boltpages

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
)

// Sizes in bytes. Numbers are in the byte order of the machine.
const (
	header       = 16 // of a page: id 8, flags 2, count 2, overflow 4
	element      = 16 // of a key: flags 4 (leaf only), place 4, size 4, size of the value 4 (leaf) or page 8 (branch)
	bucketHeader = 16 // root 8, sequence 8
	metaSize     = 64 // magic 4, version 4, page size 4, flags 4, root 16, free list 8, pages 8, transaction 8, sum 8
	smallestPage = 1 << 10
	largestPage  = 1 << 24
)

const (
	branch   = 0x01
	leaf     = 0x02
	freelist = 0x10

	isBucket = 0x01 // a flag of a leaf's element

	magic   = 0xED0CDAED
	version = 2
	noList  = math.MaxUint64 // instead of the page of the free list
)

// Depth says how much of a file is checked.
type Depth int

const (
	// Inline checks the list of buckets and the small buckets in it, all that can end the process. It takes time in
	// proportion to the number of buckets. In a file without a list of free pages it checks what All does: bbolt finds
	// them by reading all others, in a goroutine in which a panic cannot be caught.
	Inline Depth = iota
	// All checks every page that is in use, but not what keys and values say.
	All
)

// Check checks the structure of a file of that many bytes, as bbolt would read it: from the meta page of the last
// transaction. The error is a [Damage] that says in which page something is wrong, or that of reading. A file without a
// sound meta page is bbolt's to refuse: Check returns nil. The file must not change meanwhile.
func Check(f io.ReaderAt, size int64, depth Depth) error {
	m, err := newest(f)
	if err != nil || m == nil {
		return err
	}

	// Looked at first: from here on every page below m.pages lies within the file, and the product does not overflow.
	if m.pages > math.MaxInt64/m.pageSize || int64(m.pages*m.pageSize) > size {
		return damage("the file should have %d pages of %d bytes: it was cut off", m.pages, m.pageSize)
	}
	c := &checker{f: f, meta: m, all: depth == All || m.list == noList, seen: make([]byte, m.pages/8+1)}
	if m.list != noList && c.all {
		if err := c.freeList(); err != nil {
			return err
		}
	}

	// The pages that are still to be checked are kept in a list and not by recursion, whose depth damage could choose.
	c.push(m.root, true)

	for len(c.todo) > 0 {
		next := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		if err := c.page(next.id, next.names); err != nil {
			return err
		}
	}

	return nil
}

// Damage is what is wrong with a file.
type Damage string

// Error implements error.
func (d Damage) Error() string { return string(d) }

// damage returns a Damage.
func damage(format string, args ...any) error { return Damage(fmt.Sprintf(format, args...)) }

// CheckFile is Check of the file of that name.
func CheckFile(name string, depth Depth) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}

	return Check(f, st.Size(), depth)
}

// meta is what is checked of a meta page. list is the page of the free list, tx the transaction that wrote it.
type meta struct{ pageSize, root, list, pages, tx uint64 }

// newest returns the sound meta page of the last transaction, nil if there is none.
func newest(f io.ReaderAt) (*meta, error) {
	first, err := readMeta(f, 0)
	if err != nil {
		return nil, err
	}

	// The second page is found by the page size that the first one says.
	if first != nil {
		second, err := readMeta(f, int64(first.pageSize))
		if second != nil && second.tx > first.tx {
			second.pageSize = first.pageSize
			return second, err
		}

		return first, err
	}

	// The first is damaged, and with it the page size: each that there can be is tried, as bbolt does.
	for at := int64(smallestPage); at <= largestPage; at *= 2 {
		if m, err := readMeta(f, at); m != nil || err != nil {
			return m, err
		}
	}

	return nil, nil
}

// readMeta reads the meta page at an offset, nil if there is none.
func readMeta(f io.ReaderAt, at int64) (*meta, error) {
	var b [metaSize]byte
	if _, err := f.ReadAt(b[:], at+header); err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	u32, u64 := binary.NativeEndian.Uint32, binary.NativeEndian.Uint64
	m := &meta{pageSize: uint64(u32(b[8:])), root: u64(b[16:]), list: u64(b[32:]), pages: u64(b[40:]), tx: u64(b[48:])}

	// The checksum covers the page size too, so a sound page says the right one.
	if u32(b[:]) != magic || u32(b[4:]) != version || u64(b[56:]) != sum.Sum64() ||
		m.pageSize < smallestPage || m.pageSize > largestPage {
		return nil, nil
	}

	return m, nil
}

// checker is one Check.
type checker struct {
	f    io.ReaderAt
	meta *meta
	all  bool
	seen []byte // a bit a page
	todo []root
}

// root is a page of a tree that is to be checked. names is true for the tree of the buckets' names.
type root struct {
	id    uint64
	names bool
}

// push has a page of a tree checked later. Without all, only the tree of names is.
func (c *checker) push(id uint64, names bool) {
	if c.all || names {
		c.todo = append(c.todo, root{id, names})
	}
}

// extent is a page, or what is one within a value.
type extent struct {
	name  string
	at    int64 // in the file
	size  uint64
	flags uint16
	count uint64
}

// read reads the header of a page of the file.
func (c *checker) read(id uint64) (x extent, err error) {
	// Pages 0 and 1 are the meta pages.
	if id < 2 || id >= c.meta.pages {
		return x, damage("page %d is named, and the file's are 2 to %d", id, c.meta.pages-1)
	}

	// A tree that leads back into itself would never end.
	if c.seen[id/8]&(1<<(id%8)) != 0 {
		return x, damage("page %d is named twice", id)
	}
	c.seen[id/8] |= 1 << (id % 8)
	x.name, x.at = fmt.Sprintf("page %d", id), int64(id*c.meta.pageSize)
	var b [header]byte
	if _, err := c.f.ReadAt(b[:], x.at); err != nil {
		return x, err
	}
	if own := binary.NativeEndian.Uint64(b[:]); own != id {
		return x, damage("%s says that it is page %d", x.name, own)
	}
	overflow := uint64(binary.NativeEndian.Uint32(b[12:]))

	// Written this way round so that the sum cannot overflow.
	if overflow >= c.meta.pages-id {
		return x, damage("%s does not end within the file", x.name)
	}
	x.flags, x.count = binary.NativeEndian.Uint16(b[8:]), uint64(binary.NativeEndian.Uint16(b[10:]))
	x.size = (overflow + 1) * c.meta.pageSize

	return x, nil
}

// freeList checks the list of free pages.
func (c *checker) freeList() error {
	x, err := c.read(c.meta.list)
	if err != nil {
		return err
	}
	if x.flags != freelist {
		return damage("%s should be the list of free pages and has the flags %#x", x.name, x.flags)
	}
	room := (x.size - header) / 8
	if x.count == math.MaxUint16 { // the number is the first of the list
		var b [8]byte
		if _, err := c.f.ReadAt(b[:], x.at+header); err != nil {
			return err
		}
		x.count = binary.NativeEndian.Uint64(b[:])
		room--
	}
	if x.count > room {
		return damage("%s lists %d free pages and has room for %d", x.name, x.count, room)
	}

	return nil
}

// page checks a page of the file.
func (c *checker) page(id uint64, names bool) error {
	x, err := c.read(id)
	if err != nil {
		return err
	}

	return c.elements(x, names)
}

// elements checks the keys of a page, and has the pages checked that they lead to.
func (c *checker) elements(x extent, names bool) error {
	if x.flags != leaf && x.flags != branch {
		return damage("%s should hold keys and has the flags %#x", x.name, x.flags)
	}

	// count has 16 bits here, so the product is small.
	data := header + x.count*element // where the first key begins
	if data > x.size {
		return damage("%s has %d keys by its header, and room for fewer", x.name, x.count)
	}
	b := make([]byte, x.count*element)
	if _, err := c.f.ReadAt(b, x.at+header); err != nil {
		return err
	}

	for i := range x.count {
		// A leaf's element has flags in front, which a branch's lacks.
		e := b[i*element:]
		word := func(n int) uint64 { return uint64(binary.NativeEndian.Uint32(e[4*n:])) }
		place, key, value := word(0), word(1), uint64(0)
		if x.flags == leaf {
			place, key, value = word(1), word(2), word(3)
		}
		// With fewer keys by the header than there are, bbolt would leave out the others.
		if i == 0 && place != x.count*element {
			return damage("%s has %d keys by its header, and %d by where they begin", x.name, x.count, place/element)
		}

		// Places count from the element itself, not from the page.
		at := header + i*element + place
		if at < data || at+key+value > x.size {
			return damage("key %d of %s does not lie within it", i, x.name)
		}
		if x.flags == branch {
			c.push(binary.NativeEndian.Uint64(e[8:]), names)
		} else if word(0)&isBucket != 0 {
			if err := c.bucket(x, i, at+key, value); err != nil {
				return err
			}
		}
	}

	return nil
}

// bucket checks the bucket in the value of key i, which begins at an offset in x.
func (c *checker) bucket(x extent, i, at, size uint64) error {
	name := fmt.Sprintf("the bucket of key %d of %s", i, x.name)
	if size < bucketHeader {
		return damage("%s has %d bytes", name, size)
	}
	var b [bucketHeader + header]byte
	if _, err := c.f.ReadAt(b[:bucketHeader], x.at+int64(at)); err != nil {
		return err
	}

	// A root that is not 0 is a page of its own. Else the bucket's only page follows here, within the value.
	if root := binary.NativeEndian.Uint64(b[:]); root != 0 {
		c.push(root, false)
		return nil
	}
	if size < uint64(len(b)) {
		return damage("%s has %d bytes", name, size)
	}
	if _, err := c.f.ReadAt(b[:], x.at+int64(at)); err != nil {
		return err
	}
	inner := b[bucketHeader:]
	inline := extent{name, x.at + int64(at) + bucketHeader, size - bucketHeader, binary.NativeEndian.Uint16(inner[8:]),
		uint64(binary.NativeEndian.Uint16(inner[10:]))}
	if inline.flags != leaf {
		return damage("%s should hold keys and has the flags %#x", name, inline.flags)
	}

	return c.elements(inline, false)
}
