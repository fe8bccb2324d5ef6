package table

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/vfs"
)

// Reader reads one table. Its methods, other than Close, may be called from many goroutines at once.
//
// The file is read by calls, never through a mapping: what was found in order is a copy that nothing changes any more.
// Blocks, pages of the filter and the index are checked each time they are read; the cache then keeps them. The index
// stays until Close.
type Reader struct {
	path   string
	seed   seed
	t      trailer
	footer [footerSize]byte
	cache  *Cache
	chunks []atomic.Pointer[chunk] // that the cache keeps: the blocks, then the pages of the filter
	x      atomic.Pointer[index]   // nil until it is needed
	f      *files.File
}

// tailSize is how much of the end of a file Open reads at once.
const tailSize = 8 << 10

// Open opens a table. The header, the footer and the meta section are read and checked; blocks, filter and index are
// when they are used. What is not in order, a file of another store or with another number included, is ErrCorrupt
// with the path and offset; a newer format is ErrVersion. The file must stay under its name until Close.
func Open(fsys vfs.FS, open *files.Set, name string, id Identity, cache *Cache) (_ *Reader, err error) {
	r := &Reader{path: name, seed: id.seed(), cache: cache}
	f, err := open.Open(fsys, name)
	if err != nil {
		return nil, r.fault(0, err)
	}
	defer func() {
		if err != nil {
			_ = f.Close() // the other error says more
		}
	}()

	// The size comes first: all that the footer says is checked against it, so that a damaged one makes nobody allocate or
	// read beyond the file.
	size, err := f.Size()
	if err != nil {
		return nil, r.fault(0, err)
	}
	if size < headerSize+footerSize {
		return nil, corrupt(r.path, 0, fmt.Sprintf("%d bytes are too few for a table", size))
	}
	var h [headerSize]byte
	if err := r.fill(f, h[:], 0); err != nil {
		return nil, err
	}
	if err := r.checkHeader(h[:], id); err != nil {
		return nil, err
	}
	r.t.size = size

	// The footer and, of most tables, the meta section are read by one call.
	tail := make([]byte, min(size, tailSize))
	tailAt := size - int64(len(tail))
	if err := r.fill(f, tail, tailAt); err != nil {
		return nil, err
	}
	copy(r.footer[:], tail[len(tail)-footerSize:])
	if problem := r.t.decode(r.footer[:], r.seed); problem != "" {
		return nil, corrupt(r.path, size-footerSize, problem)
	}
	if r.t.meta < tailAt {
		tail, tailAt = make([]byte, size-r.t.meta), r.t.meta
		if err := r.fill(f, tail, tailAt); err != nil {
			return nil, err
		}
	}
	if problem := r.t.decodeMeta(tail[r.t.meta-tailAt:len(tail)-footerSize], r.seed); problem != "" {
		return nil, corrupt(r.path, r.t.meta, problem)
	}
	r.chunks = make([]atomic.Pointer[chunk], r.t.blocks+filterPages(r.t.lines))
	cache.pin(int64(8 * len(r.chunks)))

	// From here on the file may be closed and opened again; same tells whether it is still the same file then.
	r.f = open.Add(fsys, name, f, r.same)

	return r, nil
}

// checkHeader checks that the file is a table of the right database and number. The checksum comes before the version:
// a damaged version is no newer format.
func (r *Reader) checkHeader(h []byte, id Identity) error {
	want := id.bytes()
	switch {
	case string(h[:8]) != headerMagic:
		return corrupt(r.path, 0, "it does not begin as a table does")
	case le.Uint32(h[60:]) != crc32.Checksum(h[:60], castagnoli):
		return corrupt(r.path, 0, "the header's checksum is wrong")
	case le.Uint32(h[8:]) != Version:
		return &holdfast.Error{Op: "read table", Engine: engineName, Path: r.path, Class: holdfast.ErrVersion,
			Detail: fmt.Sprintf("it has format %d, this program knows %d", le.Uint32(h[8:]),
				Version), Remedy: "use the program that wrote it, or a newer one"}
	case string(h[16:40]) != string(want[:]):
		return corrupt(r.path, 16, fmt.Sprintf("it is table %d of store %x, not table %d of store %x", le.Uint64(h[32:]),
			h[16:32], id.ID, id.DB))
	}

	return nil
}

// fault makes an error of one that the file returned. A file that ends too early has been cut.
func (r *Reader) fault(off int64, err error) error {
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return corrupt(r.path, off, "the file is shorter than it was")
	case errors.Is(err, fs.ErrNotExist):
		return corrupt(r.path, off, "the file is missing")
	}

	return &holdfast.Error{Op: "read table", Engine: engineName, Path: r.path, Offset: off, Cause: err}
}

// readAt fills b from the file.
func (r *Reader) readAt(b []byte, off int64) error { return r.fill(r.f, b, off) }

// fill reads all of b from f, which may be another file than the reader's: one that was opened again.
func (r *Reader) fill(f io.ReaderAt, b []byte, off int64) error {
	if n, err := f.ReadAt(b, off); n < len(b) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		if errors.Is(err, holdfast.ErrCorrupt) { // it is another file
			return err
		}

		return r.fault(off, err)
	}

	return nil
}

// same fails unless f, which was opened again, is the same file: a backup put in its place could have the same
// identity.
func (r *Reader) same(f vfs.File) error {
	var footer [footerSize]byte
	at := r.t.size - footerSize
	err := r.fill(f, footer[:], at)
	if err == nil && footer != r.footer {
		err = corrupt(r.path, at, "it is another file than the one that was opened first")
	}

	return err
}

// Info says what is in the table.
func (r *Reader) Info() Info { return r.t.info }

// Get returns the entry of key, a tombstone too, and whether there is one.
func (r *Reader) Get(key []byte) (Entry, bool, error) {
	// The filter spares most reads of a block for keys that are not there.
	if may, err := r.mayContain(key); !may || err != nil {
		return Entry{}, false, err
	}
	x, err := r.index()
	if err != nil {
		return Entry{}, false, err
	}
	i := x.find(key)
	if i < 0 {
		return Entry{}, false, nil
	}
	blk, err := r.block(x, i)
	if err != nil {
		return Entry{}, false, err
	}
	e, found, ok := blk.get(key)
	if !ok {
		return Entry{}, false, r.malformed(x, i)
	}

	return e, found, nil
}

// MayContain says false if the table has certainly no entry for key: right in more than 98 % of the cases. It
// says true if the filter cannot be read; Get then returns the error.
func (r *Reader) MayContain(key []byte) bool {
	may, err := r.mayContain(key)
	return may || err != nil
}

// mayContain is MayContain with the error of a filter that cannot be read.
func (r *Reader) mayContain(key []byte) (bool, error) {
	if r.t.lines == 0 {
		return false, nil
	}

	// One line of the filter decides, and one page of it is read.
	h := hash(key)
	line := int64(filterLine(h, uint64(r.t.lines)))
	page := line / (pageSize / lineSize)
	lo := r.t.filter + page*pageSize
	p, err := r.chunk(int(r.t.blocks+page), lo, min(lo+pageSize, r.t.index), le.Uint32(r.t.sums[4*page:]), 0)
	if err != nil {
		return false, err
	}

	return hasBits(p.data[line*lineSize-page*pageSize:], h), nil
}

// chunk returns chunk i, the bytes from lo to hi, verified: from the cache, or from the file. Their checksum is sum,
// or, if end is not 0, stands in the last end bytes.
func (r *Reader) chunk(i int, lo, hi int64, sum uint32, end int) (*chunk, error) {
	if p := r.chunks[i].Load(); p != nil {
		p.use()
		return p, nil
	}
	b := slices.Grow([]byte(nil), int(hi-lo))[:hi-lo] // its capacity is what it takes in memory
	if err := r.readAt(b, lo); err != nil {
		return nil, err
	}
	if err := r.check(b, lo, sum, end); err != nil {
		return nil, err
	}

	// Only what was found to be right is kept.
	p := &chunk{slot: &r.chunks[i], data: b}
	if blk, ok := parseBlock(b); ok && end > 0 {
		p.groups = make([]atomic.Pointer[chunk], blk.n)
	}
	r.cache.put(p)

	return p, nil
}

// check verifies a checksum.
func (r *Reader) check(b []byte, off int64, sum uint32, end int) error {
	n := len(b) - end
	if end > 0 {
		sum = le.Uint32(b[n:])
	}
	if r.seed.sum(off, b[:n]) != sum {
		return corrupt(r.path, off, fmt.Sprintf("the checksum of %d bytes is wrong", len(b)))
	}

	return nil
}

// index returns the index, which is read and verified when it is needed first. Several goroutines may do so at once;
// that costs less than a lock.
func (r *Reader) index() (*index, error) {
	if x := r.x.Load(); x != nil {
		return x, nil
	}
	b := make([]byte, r.t.meta-r.t.index)
	if err := r.readAt(b, r.t.index); err != nil {
		return nil, err
	}
	if err := r.check(b, r.t.index, r.t.indexSum, 0); err != nil {
		return nil, err
	}

	// Of several goroutines that have read it, one keeps its copy, and counts it.
	if r.x.CompareAndSwap(nil, r.t.parseIndex(b)) {
		r.cache.pin(int64(len(b)))
	}

	return r.x.Load(), nil
}

// span is where block i is; the index may say anything.
func (r *Reader) span(x *index, i int) (lo, hi int64, err error) {
	if lo, hi = x.block(i); lo < headerSize || hi > r.t.dataEnd || hi-lo < blockLeast || hi-lo > maxBlock {
		return 0, 0, corrupt(r.path, r.t.index, fmt.Sprintf("the index has block %d from byte %d to %d", i, lo, hi))
	}

	return lo, hi, nil
}

// block returns block i.
func (r *Reader) block(x *index, i int) (block, error) {
	lo, hi, err := r.span(x, i)
	if err != nil {
		return block{}, err
	}
	p, err := r.chunk(i, lo, hi, 0, 4)
	if err != nil {
		return block{}, err
	}
	blk, ok := parseBlock(p.data)
	if !ok {
		return block{}, r.malformed(x, i)
	}
	blk.from = p

	return blk, nil
}

// malformed is the error for a block whose checksum is right but not its contents.
func (r *Reader) malformed(x *index, i int) error {
	lo, _ := x.block(i)
	return corrupt(r.path, lo, fmt.Sprintf("block %d is malformed", i))
}

// Close ends reading. The reader and its iterators must not be in use.
func (r *Reader) Close() error {
	if r.chunks == nil {
		return nil
	}
	pinned := int64(8 * len(r.chunks))
	if r.x.Swap(nil) != nil {
		pinned += r.t.meta - r.t.index
	}

	// What the cache counts for the reader is given back whether the file closes or not.
	r.cache.drop(r)
	err := r.f.Close()
	r.cache.pin(-pinned)
	r.chunks = nil
	if err != nil {
		return r.fault(0, err)
	}

	return nil
}
