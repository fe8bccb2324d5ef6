package vfs

import "sync/atomic"

// Units of the simulated disk, in bytes: a sector reaches it whole or not at all, a page is what
// is allocated and what a Truncate clears the rest of.
const (
	sectorSize = 512
	pageSize   = 4096
)

// contents are a file's bytes as pages that several contents may share, so that copying them
// costs a pointer a page, and a page of zeros costs nothing. Bytes from size on are zeros.
type contents struct {
	size  int64
	pages []*page // nil, or missing at the end: zeros
	tag   uint64  // of the pages that are only ours
}

// page is a page of contents. Whoever has its tag may write to it; all others copy it first.
type page struct {
	tag   uint64
	bytes [pageSize]byte
}

var lastTag atomic.Uint64

// share returns a copy. From then on either side copies a page before it changes it.
func (c *contents) share() contents {
	// Both sides get a new tag, so the pages that they have now belong to neither.
	c.tag = lastTag.Add(2)
	return contents{c.size, append([]*page(nil), c.pages...), c.tag - 1}
}

// own returns page i for writing.
func (c *contents) own(i int) *page {
	if i >= len(c.pages) {
		c.pages = append(c.pages, make([]*page, i+1-len(c.pages))...)
	}
	p := c.pages[i]

	if p == nil || p.tag != c.tag {
		if c.tag == 0 {
			c.tag = lastTag.Add(1)
		}
		fresh := &page{tag: c.tag}
		if p != nil {
			fresh.bytes = p.bytes
		}
		c.pages[i], p = fresh, fresh
	}

	return p
}

// read fills b from off on; what is beyond size reads as zeros.
func (c *contents) read(b []byte, off int64) {
	for len(b) > 0 {
		i, at := int(off/pageSize), int(off%pageSize)
		n := min(len(b), pageSize-at)
		if i < len(c.pages) && c.pages[i] != nil {
			copy(b[:n], c.pages[i].bytes[at:])
		} else {
			clear(b[:n])
		}
		b, off = b[n:], off+int64(n)
	}
}

// write puts b at off and makes the file long enough.
func (c *contents) write(b []byte, off int64) {
	c.size = max(c.size, off+int64(len(b)))
	for len(b) > 0 {
		n := copy(c.own(int(off / pageSize)).bytes[off%pageSize:], b)
		b, off = b[n:], off+int64(n)
	}
}

// take copies the bytes [lo, hi) of from, without a change of size.
func (c *contents) take(from *contents, lo, hi int64) {
	for lo < hi {
		i, at := int(lo/pageSize), lo%pageSize
		n := min(hi-lo, pageSize-at)
		var source *page
		if i < len(from.pages) {
			source = from.pages[i]
		}

		switch {
		case source != nil:
			copy(c.own(i).bytes[at:at+n], source.bytes[at:at+n])
		case i < len(c.pages) && c.pages[i] != nil:
			clear(c.own(i).bytes[at : at+n])
		}
		lo += n
	}
}

// zero clears everything from off on.
func (c *contents) zero(off int64) {
	i := int(min((off+pageSize-1)/pageSize, int64(len(c.pages))))
	clear(c.pages[i:])
	c.pages = c.pages[:i]
	if at := off % pageSize; at != 0 && int(off/pageSize) < i && c.pages[i-1] != nil {
		clear(c.own(i - 1).bytes[at:])
	}
}

// resize sets the length; bytes beyond it are gone.
func (c *contents) resize(size int64) {
	if size < c.size {
		c.zero(size)
	}
	c.size = size
}
