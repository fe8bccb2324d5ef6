package run

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// Reader reads one run. Its methods, other than Close, may be called from many goroutines at once.
//
// A file that can be mapped is: its blocks, filter and index are then read in place, and the file itself is
// closed. A block or a page of the filter is checked when this reader touches it for the first time, the index
// when it is needed first. A memory fault in the mapping (a read error of the device) panics in whoever called
// a Reader or an Iter; with debug.SetPanicOnFault it can be recovered from: no lock is held, the reader stays as it
// was, and an iterator has to be positioned again.
//
// Other files are read in pieces, which are checked each time they are read, through the cache.
type Reader struct {
	path string
	seed seed
	t    trailer

	mapping vfs.Mapping     // nil: not mapped
	data    []byte          // the mapped bytes
	seen    []atomic.Uint32 // bit i: block i is in order, then the pages of the filter. Only for mapped files
	x       atomic.Pointer[index]

	f     vfs.File // nil if mapped
	cache *Cache   // may be nil
	file  uint64   // our name in the cache
}

// tailSize is how much of the end of a file Open reads at once.
const tailSize = 8 << 10

// Open opens a run. The header, the footer and the meta section are read and checked; blocks, filter and index
// are when they are used. What is not in order, a file of another store or with another number included, is ErrCorrupt with
// the path and offset; a newer format is ErrVersion. On success the reader owns f; otherwise
// the caller still does. cache may be nil.
func Open(f vfs.File, id Identity, cache *Cache) (*Reader, error) {
	r := &Reader{path: f.Name(), seed: id.seed(), cache: cache, f: f}
	size, err := f.Size()
	if err != nil {
		return nil, r.fault(0, err)
	}
	if size < headerSize+footerSize {
		return nil, corrupt(r.path, 0, fmt.Sprintf("%d bytes are too few for a run", size))
	}
	var h [headerSize]byte
	if err := r.readAt(h[:], 0); err != nil {
		return nil, err
	}
	if err := r.checkHeader(h[:], id); err != nil {
		return nil, err
	}
	r.t.size = size
	tail := make([]byte, min(size, tailSize))
	tailAt := size - int64(len(tail))
	if err := r.readAt(tail, tailAt); err != nil {
		return nil, err
	}
	if problem := r.t.decode(tail[len(tail)-footerSize:], r.seed); problem != "" {
		return nil, corrupt(r.path, size-footerSize, problem)
	}
	if r.t.meta < tailAt {
		tail, tailAt = make([]byte, size-r.t.meta), r.t.meta
		if err := r.readAt(tail, tailAt); err != nil {
			return nil, err
		}
	}
	if problem := r.t.decodeMeta(tail[r.t.meta-tailAt:len(tail)-footerSize], r.seed); problem != "" {
		return nil, corrupt(r.path, r.t.meta, problem)
	}
	if m, ok := f.(vfs.Mapper); ok {
		if err := r.openMapped(m); err != nil {
			return nil, err
		}
		return r, nil
	}
	if cache != nil {
		r.file = cache.files.Add(1)
	}
	return r, nil
}

func (r *Reader) openMapped(m vfs.Mapper) error {
	mapping, err := m.Map(r.t.size)
	if err != nil {
		return r.fault(0, err)
	}
	if int64(len(mapping.Bytes())) != r.t.size {
		_ = mapping.Unmap() // the other error says more
		return corrupt(r.path, 0, fmt.Sprintf("%d of %d bytes were mapped", len(mapping.Bytes()), r.t.size))
	}
	r.mapping, r.data = mapping, mapping.Bytes()
	r.seen = make([]atomic.Uint32, (r.t.blocks+filterPages(r.t.lines)+31)/32)
	f := r.f
	r.f = nil
	// Nothing was written through it, so there is nothing that closing it could lose.
	_ = f.Close()
	return nil
}

func (r *Reader) checkHeader(h []byte, id Identity) error {
	want := id.bytes()
	switch {
	case string(h[:8]) != headerMagic:
		return corrupt(r.path, 0, "it does not begin as a run does")
	case le.Uint32(h[60:]) != crc32.Checksum(h[:60], castagnoli):
		return corrupt(r.path, 0, "the header's checksum is wrong")
	case le.Uint32(h[8:]) != Version:
		return &holdfast.Error{Op: "read run", Engine: engineName, Path: r.path, Class: holdfast.ErrVersion,
			Detail: fmt.Sprintf("it has format %d, this program knows %d", le.Uint32(h[8:]), Version), Remedy: "use the program that wrote it, or a newer one"}
	case string(h[16:40]) != string(want[:]):
		return corrupt(r.path, 16, fmt.Sprintf("it is run %d of store %x, not run %d of store %x", le.Uint64(h[32:]), h[16:32], id.ID, id.DB))
	}
	return nil
}

// fault makes an error of one that the file returned. A file that ends too early has been cut.
func (r *Reader) fault(off int64, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt(r.path, off, "the file is shorter than it was")
	}
	return &holdfast.Error{Op: "read run", Engine: engineName, Path: r.path, Offset: off, Cause: err}
}

// readAt fills b from the file.
func (r *Reader) readAt(b []byte, off int64) error {
	if n, err := r.f.ReadAt(b, off); n < len(b) {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return r.fault(off, err)
	}
	return nil
}

// Info says what is in the run.
func (r *Reader) Info() Info { return r.t.info }

// Get returns the entry of key, a tombstone too, and whether there is one.
func (r *Reader) Get(key []byte) (Entry, bool, error) {
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

// MayContain says false if the run has certainly no entry for key: right in more than 98 % of the cases. It
// says true if the filter cannot be read; Get then returns the error.
func (r *Reader) MayContain(key []byte) bool {
	may, err := r.mayContain(key)
	return may || err != nil
}

func (r *Reader) mayContain(key []byte) (bool, error) {
	if r.t.lines == 0 {
		return false, nil
	}
	h := hash(key)
	line := int64(filterLine(h, uint64(r.t.lines)))
	page := line / (pageSize / lineSize)
	if r.data != nil {
		if bit := uint64(r.t.blocks + page); r.seen[bit/32].Load()>>(bit%32)&1 == 0 {
			if _, err := r.filterPage(page); err != nil {
				return false, err
			}
		}
		return hasBits(r.data[r.t.filter+line*lineSize:], h), nil
	}
	b, err := r.filterPage(page)
	if err != nil {
		return false, err
	}
	return hasBits(b[line*lineSize-page*pageSize:], h), nil
}

// filterPage returns a page of the filter, verified.
func (r *Reader) filterPage(page int64) ([]byte, error) {
	lo := r.t.filter + page*pageSize
	hi := min(lo+pageSize, r.t.index)
	return r.piece(lo, hi, int(r.t.blocks+page), le.Uint32(r.t.sums[4*page:]), 0)
}

// piece returns the bytes from lo to hi, verified. Their checksum is sum, or, if end is not 0, stands in the last end bytes.
// bit is theirs in seen.
func (r *Reader) piece(lo, hi int64, bit int, sum uint32, end int) ([]byte, error) {
	if r.data != nil {
		b := r.data[lo:hi:hi]
		if err := r.check(b, lo, sum, end); err != nil {
			return nil, err
		}
		r.seen[bit/32].Or(1 << (bit % 32))
		return b, nil
	}
	if r.cache != nil {
		if b := r.cache.get(cacheKey{r.file, lo}); b != nil {
			return b, nil
		}
	}
	b := make([]byte, hi-lo)
	if err := r.readAt(b, lo); err != nil {
		return nil, err
	}
	if err := r.check(b, lo, sum, end); err != nil {
		return nil, err
	}
	if r.cache != nil {
		r.cache.put(cacheKey{r.file, lo}, b)
	}
	return b, nil
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

// index returns the index, which is verified, and without a mapping read, when it is needed first. Several goroutines may do so
// at once; that costs less than a lock that a memory fault could leave taken.
func (r *Reader) index() (*index, error) {
	if x := r.x.Load(); x != nil {
		return x, nil
	}
	b := r.data
	if b != nil {
		b = b[r.t.index:r.t.meta:r.t.meta]
	} else {
		b = make([]byte, r.t.meta-r.t.index)
		if err := r.readAt(b, r.t.index); err != nil {
			return nil, err
		}
	}
	if err := r.check(b, r.t.index, r.t.indexSum, 0); err != nil {
		return nil, err
	}
	x := r.t.parseIndex(b)
	if r.x.CompareAndSwap(nil, x) && r.data == nil && r.cache != nil {
		r.cache.pinned.Add(int64(len(b)))
	}
	return x, nil
}

// Recheck makes everything in a mapped file be checked again when it is touched next. What has been in order may not be any more: the
// system drops pages, and reads them from the device again. Whoever writes down what it reads must not give rot a new checksum.
func (r *Reader) Recheck() {
	if r.data == nil {
		return
	}
	for i := range r.seen {
		r.seen[i].Store(0)
	}
	r.x.Store(nil)
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
	var b []byte
	if r.data != nil && r.seen[i/32].Load()>>(i%32)&1 != 0 {
		b = r.data[lo:hi:hi]
	} else if b, err = r.piece(lo, hi, i, 0, 4); err != nil {
		return block{}, err
	}
	blk, ok := parseBlock(b)
	if !ok {
		return block{}, r.malformed(x, i)
	}
	return blk, nil
}

// malformed is the error for a block whose checksum is right but not its contents.
func (r *Reader) malformed(x *index, i int) error {
	lo, _ := x.block(i)
	return corrupt(r.path, lo, fmt.Sprintf("block %d is malformed", i))
}

// Close ends reading. Nobody may be using the reader or an iterator of it.
func (r *Reader) Close() error {
	var err error
	if r.mapping != nil {
		err = r.mapping.Unmap()
	} else if r.f != nil {
		err = r.f.Close()
	}
	if x := r.x.Swap(nil); x != nil && r.data == nil && r.cache != nil {
		r.cache.pinned.Add(r.t.index - r.t.meta)
	}
	if r.mapping == nil && r.f != nil && r.cache != nil {
		r.cache.drop(r.file)
	}
	r.mapping, r.data, r.f = nil, nil, nil
	if err != nil {
		return r.fault(0, err)
	}
	return nil
}
