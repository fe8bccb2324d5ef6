package migrate

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"math"
	"os"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/holdfastdb/holdfast"
)

// The bolt format. All numbers are little-endian: a file of a machine of the other kind is refused.
const (
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	boltHeader    = 16 // of a page: id 8, flags 2, count 2, overflow 4
	boltMeta      = 64 // after the header of pages 0 and 1
	boltElement   = 16 // in a leaf: flags 4, pos 4, key size 4, value size 4; in a branch: pos 4, key size 4, page 8
	boltBucketLen = 16 // root page 8, sequence 8
	boltNoFree    = ^uint64(0)
	boltDepth     = 40 // no tree of 2^48 pages is deeper

	pageBranch = 1
	pageLeaf   = 2
	pageMeta   = 4
	pageFree   = 16
)

// boltFile reads a file of bolt or bbolt without trusting it: bolt's own reader takes every offset in a page for good, and
// with damage reads other memory, or ends the process. This one reads with ReadAt, checks each number against the
// page, the file and the order of keys, and that every page is used exactly once or free, so that an old version of a
// page is never taken for the current one. What it cannot see is damage inside keys that stay in order, and inside
// values: the format has no checksums but on its two meta pages.
type boltFile struct {
	r    io.ReaderAt
	path string
	size int64 // of the file
	page int64 // bytes in a page

	root, free, high uint64 // the root bucket's page, the freelist's, and the number of pages

	buckets map[string]boltBucket // those of the root
	names   []string              // of them, ascending

	seen *bitmap // pages in use, while check runs
	lock *bbolt.DB
}

type boltBucket struct {
	root   uint64 // 0: it is inline
	inline []byte // a page without page number
	off    int64  // of inline in the file
}

// boltItem is one key. Its slices are valid until the walk goes on.
type boltItem struct {
	off        int64 // of the key in the file
	bucket     bool
	key, value []byte
}

type bitmap struct {
	bits []uint64
}

func newBitmap(n uint64) *bitmap { return &bitmap{make([]uint64, n/64+1)} }

// set reports whether the bit was clear.
func (m *bitmap) set(i uint64) bool {
	was := m.has(i)
	m.bits[i/64] |= 1 << (i % 64)
	return !was
}

func (m *bitmap) has(i uint64) bool { return m.bits[i/64]&(1<<(i%64)) != 0 }

// isBolt reports whether one of the places where a meta page can begin holds a bolt magic number.
func isBolt(r io.ReaderAt) bool {
	var b [8]byte
	for _, at := range []int64{0, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16} {
		if _, err := r.ReadAt(b[:], at+boltHeader); err == nil && binary.LittleEndian.Uint32(b[:]) == boltMagic && binary.LittleEndian.Uint32(b[4:]) == boltVersion {
			return true
		}
	}
	return false
}

// openBolt locks the file as bolt's readers do and reads its meta pages and the root bucket. It changes nothing.
func openBolt(path string, read func(n int64) error) (_ *boltFile, err error) {
	b := &boltFile{path: path}
	// The library is asked for its lock, which is the one that writers respect; the file it opened is read here.
	// The timeout is so short that it tries once.
	var f *os.File
	b.lock, err = bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: time.Millisecond, NoStatistics: true,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			var err error
			f, err = os.OpenFile(name, flag, mode)
			return f, err
		}})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, &holdfast.Error{Op: "import", Path: path, Class: holdfast.ErrLocked, Detail: "a process has it open", Remedy: "stop that process first"}
	case errors.As(err, new(*fs.PathError)), errors.As(err, new(syscall.Errno)):
		return nil, &holdfast.Error{Op: "import", Path: path, Cause: err}
	case err != nil: // it only looks at the size of the file and at the meta pages
		return nil, corrupt(path, boltHeader, "%v", err)
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	b.r = watched{f, read}
	st, err := f.Stat()
	if err != nil {
		return nil, &holdfast.Error{Op: "import", Path: path, Cause: err}
	}
	b.size, b.page = st.Size(), int64(b.lock.Info().PageSize)
	if err := b.metas(); err != nil {
		return nil, err
	}
	return b, b.readRoot()
}

func (b *boltFile) close() error { return b.lock.Close() }

// metas reads the two meta pages, of which the one with the higher transaction counts. Both must be sound: with one
// damaged, bolt itself would go on from the other, and forget what was committed last.
func (b *boltFile) metas() error {
	if b.page < 512 || b.page > 1<<26 || b.page&(b.page-1) != 0 {
		return corrupt(b.path, boltHeader, "a page size of %d", b.page)
	}
	newest := int64(-1)
	for i := range int64(2) {
		m, err := b.read(i*b.page, boltHeader+boltMeta)
		if err != nil {
			return err
		}
		bad := func(what string) error {
			e := corrupt(b.path, i*b.page, "meta page %d: %s: what was committed last may be missing", i, what)
			e.Remedy = "if the machine stopped while it was written, start and stop the program it belongs to, and try again; otherwise restore the file from a backup"
			return e
		}
		u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(m[boltHeader+at:]) }
		u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(m[boltHeader+at:]) }
		sum := fnv.New64a()
		sum.Write(m[boltHeader : boltHeader+56])
		txid := int64(u64(48))
		switch {
		case u32(0) != boltMagic || u32(4) != boltVersion || u64(56) != sum.Sum64():
			return bad("its checksum is wrong")
		case binary.LittleEndian.Uint64(m) != uint64(i) || binary.LittleEndian.Uint16(m[8:]) != pageMeta || int64(u32(8)) != b.page || txid < 0 || txid%2 != i:
			return bad("it does not belong there")
		}
		if txid > newest {
			newest, b.root, b.free, b.high = txid, u64(16), u64(32), u64(40)
		}
	}
	if b.high < 3 || b.high > uint64(b.size/b.page) {
		return corrupt(b.path, 0, "it should have %d pages of %d bytes and has %d bytes: it was cut off", b.high, b.page, b.size)
	}
	return nil
}

func (b *boltFile) read(off, n int64) ([]byte, error) {
	return b.readInto(nil, off, n)
}

func (b *boltFile) readInto(buf []byte, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off > b.size-n {
		return nil, corrupt(b.path, off, "%d bytes are beyond the end of the file", n)
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := b.r.ReadAt(buf, off); err != nil {
		return nil, &holdfast.Error{Op: "import", Path: b.path, Offset: off, Cause: err}
	}
	return buf, nil
}

// readPage reads a page with what overflows from it.
func (b *boltFile) readPage(id uint64, buf []byte) ([]byte, error) {
	if id < 2 || id >= b.high {
		return nil, corrupt(b.path, 0, "page %d is referred to, of %d", id, b.high)
	}
	off := int64(id) * b.page
	head, err := b.readInto(buf, off, boltHeader)
	if err != nil {
		return nil, err
	}
	more := uint64(binary.LittleEndian.Uint32(head[12:]))
	if binary.LittleEndian.Uint64(head) != id || more >= b.high-id {
		return nil, corrupt(b.path, off, "page %d: its header is that of page %d with %d more", id, binary.LittleEndian.Uint64(head), more)
	}
	if more > 0 { // the number may be damaged: what the page holds is asked before so much is read
		if err := b.checkOverflow(id, int64(more)+1); err != nil {
			return nil, err
		}
	}
	if b.seen != nil {
		for i := id; i <= id+more; i++ {
			if !b.seen.set(i) {
				return nil, corrupt(b.path, off, "page %d is used twice", i)
			}
		}
	}
	return b.readInto(head, off, int64(more+1)*b.page)
}

// checkOverflow reports whether bolt would give so many pages to what the first of them says it holds. It gives as many
// as are needed, or, in old versions and to a freelist, one more than is needed where the last would be full.
func (b *boltFile) checkOverflow(id uint64, pages int64) error {
	off := int64(id) * b.page
	bad := func(used int64) error {
		return corrupt(b.path, off, "page %d goes on for %d pages of %d bytes, and has %d bytes in them", id, pages, b.page, used)
	}
	head, err := b.read(off, boltHeader+8)
	if err != nil {
		return err
	}
	flags, n := binary.LittleEndian.Uint16(head[8:]), int64(binary.LittleEndian.Uint16(head[10:]))
	used := int64(boltHeader)
	switch {
	case flags == pageFree:
		count := uint64(n)
		if n == 0xFFFF {
			count = binary.LittleEndian.Uint64(head[boltHeader:])
			used += 8
		}
		if count > b.high {
			return corrupt(b.path, off, "a list of %d free pages, of %d", count, b.high)
		}
		used += 8 * int64(count)
		// The pages were counted before these here were taken from among them, and before the count went below 0xFFFF.
		if most := (used+8*pages+8)/b.page + 1; pages > most || (used+b.page-1)/b.page > pages {
			return bad(used)
		}
		return nil
	case n > 0 && (flags == pageLeaf || flags == pageBranch):
		// The keys are packed, in order: the last tells where they end.
		last := used + (n-1)*boltElement
		e, err := b.read(off+last, boltElement)
		if err != nil {
			return err
		}
		u32 := func(at int) int64 { return int64(binary.LittleEndian.Uint32(e[at:])) }
		if used = last + u32(0) + u32(4); flags == pageLeaf {
			used = last + u32(4) + u32(8) + u32(12)
		}
	}
	if used > math.MaxInt32 { // bolt's values are shorter
		return bad(used)
	}
	if needed := (used + b.page - 1) / b.page; pages < needed || pages > used/b.page+1 {
		return bad(used)
	}
	return nil
}

// items splits a page into its keys. In a branch the value of an item is a page number.
func (b *boltFile) items(page []byte, off int64, do func(i, n int, it boltItem) error) error {
	if len(page) < boltHeader {
		return corrupt(b.path, off, "a page of %d bytes", len(page))
	}
	leaf := binary.LittleEndian.Uint16(page[8:]) == pageLeaf
	n := int(binary.LittleEndian.Uint16(page[10:]))
	at := boltHeader + n*boltElement // where the next key is: they are packed, in order
	if at > len(page) {
		return corrupt(b.path, off, "%d keys in a page of %d bytes", n, len(page))
	}
	for i := range n {
		start := boltHeader + i*boltElement
		u32 := func(at int) int64 { return int64(binary.LittleEndian.Uint32(page[start+at:])) }
		var it boltItem
		pos, key, value := u32(0), u32(4), int64(0)
		if leaf {
			pos, key, value = u32(4), u32(8), u32(12)
			flags := u32(0)
			if it.bucket = flags == 1; flags > 1 {
				return corrupt(b.path, off+int64(start), "flags %d", flags)
			}
		}
		if int64(start)+pos != int64(at) || key == 0 || key+value > int64(len(page)-at) {
			return corrupt(b.path, off+int64(start), "key %d of its page is at %d with %d and %d bytes, and should be at %d of %d", i, int64(start)+pos, key, value, at, len(page))
		}
		it.off = off + int64(at)
		it.key = page[at : at+int(key) : at+int(key)]
		at += int(key)
		if leaf {
			it.value = page[at : at+int(value) : at+int(value)]
			at += int(value)
		} else {
			it.value = page[start+8 : start+16 : start+16]
		}
		if err := do(i, n, it); err != nil {
			return err
		}
	}
	return nil
}

// walk calls do for every key of a bucket, ascending.
func (b *boltFile) walk(bucket boltBucket, do func(boltItem) error) error {
	var last []byte
	leaf := func(it boltItem, lo, hi []byte) error {
		if last != nil && bytes.Compare(it.key, last) <= 0 || bytes.Compare(it.key, lo) < 0 || hi != nil && bytes.Compare(it.key, hi) >= 0 {
			return corrupt(b.path, it.off, "the key %s is out of order", quote(it.key))
		}
		last = append(last[:0], it.key...)
		return do(it)
	}
	if bucket.root == 0 {
		if len(bucket.inline) < boltHeader || binary.LittleEndian.Uint16(bucket.inline[8:]) != pageLeaf {
			return corrupt(b.path, bucket.off, "a bucket without keys and without a page")
		}
		return b.items(bucket.inline, bucket.off, func(_, _ int, it boltItem) error { return leaf(it, nil, nil) })
	}
	var visit func(id uint64, depth int, lo, hi []byte) error
	visit = func(id uint64, depth int, lo, hi []byte) error {
		if depth > boltDepth {
			return corrupt(b.path, int64(id)*b.page, "a tree more than %d pages deep", boltDepth)
		}
		page, err := b.readPage(id, nil)
		if err != nil {
			return err
		}
		off := int64(id) * b.page
		switch flags := binary.LittleEndian.Uint16(page[8:]); {
		case flags == pageLeaf:
			if n := binary.LittleEndian.Uint16(page[10:]); n == 0 && depth > 0 {
				return corrupt(b.path, off, "page %d has no keys", id)
			}
			return b.items(page, off, func(_, _ int, it boltItem) error { return leaf(it, lo, hi) })
		case flags != pageBranch || binary.LittleEndian.Uint16(page[10:]) == 0:
			return corrupt(b.path, off, "page %d with flags %#x and %d keys is neither leaf nor branch", id, flags, binary.LittleEndian.Uint16(page[10:]))
		}
		type child struct {
			key  []byte
			page uint64
		}
		var children []child
		if err := b.items(page, off, func(_, _ int, it boltItem) error {
			if bytes.Compare(it.key, lo) < 0 || hi != nil && bytes.Compare(it.key, hi) >= 0 ||
				len(children) > 0 && bytes.Compare(it.key, children[len(children)-1].key) <= 0 {
				return corrupt(b.path, it.off, "the key %s is out of order", quote(it.key))
			}
			children = append(children, child{it.key, binary.LittleEndian.Uint64(it.value)})
			return nil
		}); err != nil {
			return err
		}
		for i, c := range children {
			upper := hi
			if i+1 < len(children) {
				upper = children[i+1].key
			}
			if err := visit(c.page, depth+1, c.key, upper); err != nil {
				return err
			}
		}
		return nil
	}
	return visit(bucket.root, 0, nil, nil)
}

// nested reads the bucket that an item is.
func (b *boltFile) nested(it boltItem) (boltBucket, error) {
	if len(it.value) < boltBucketLen {
		return boltBucket{}, corrupt(b.path, it.off, "the bucket %s has %d bytes", quote(it.key), len(it.value))
	}
	return boltBucket{root: binary.LittleEndian.Uint64(it.value), inline: bytes.Clone(it.value[boltBucketLen:]),
		off: it.off + int64(len(it.key)) + boltBucketLen}, nil
}

func (b *boltFile) readRoot() error {
	b.buckets = map[string]boltBucket{}
	return b.walk(boltBucket{root: b.root}, func(it boltItem) error {
		if !it.bucket {
			return corrupt(b.path, it.off, "the key %s is in no bucket", quote(it.key))
		}
		bucket, err := b.nested(it)
		b.buckets[string(it.key)] = bucket
		b.names = append(b.names, string(it.key))
		return err
	})
}

// check reads the whole file: every page below high is used once, or free, and not both.
func (b *boltFile) check() error {
	b.seen = newBitmap(b.high)
	defer func() { b.seen = nil }()
	free, err := b.freelist()
	if err != nil {
		return err
	}
	var visit func(bucket boltBucket, depth int) error
	visit = func(bucket boltBucket, depth int) error {
		if depth > boltDepth {
			return corrupt(b.path, bucket.off, "buckets more than %d deep", boltDepth)
		}
		return b.walk(bucket, func(it boltItem) error {
			if !it.bucket {
				return nil
			}
			inner, err := b.nested(it)
			if err != nil {
				return err
			}
			return visit(inner, depth+1)
		})
	}
	if err := visit(boltBucket{root: b.root}, 0); err != nil {
		return err
	}
	if free == nil {
		return nil
	}
	for i := uint64(2); i < b.high; i++ {
		if used := b.seen.has(i); used == free.has(i) {
			return corrupt(b.path, int64(i)*b.page, "page %d is %s", i, map[bool]string{true: "in use and free", false: "neither in use nor free"}[used])
		}
	}
	return nil
}

// freelist returns the free pages, nil if the file does not say.
func (b *boltFile) freelist() (*bitmap, error) {
	if b.free == boltNoFree {
		return nil, nil
	}
	page, err := b.readPage(b.free, nil)
	if err != nil {
		return nil, err
	}
	off := int64(b.free) * b.page
	n, ids := uint64(binary.LittleEndian.Uint16(page[10:])), page[boltHeader:]
	if binary.LittleEndian.Uint16(page[8:]) != pageFree {
		return nil, corrupt(b.path, off, "page %d is no list of free pages", b.free)
	}
	if n == 0xFFFF {
		n, ids = binary.LittleEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		return nil, corrupt(b.path, off, "a list of %d free pages in %d bytes", n, len(page))
	}
	free := newBitmap(b.high)
	for i := range n {
		id := binary.LittleEndian.Uint64(ids[8*i:])
		if id < 2 || id >= b.high || !free.set(id) {
			return nil, corrupt(b.path, off, "page %d, of %d, is listed as free", id, b.high)
		}
	}
	return free, nil
}

// corrupt is damage at that offset of a source.
func corrupt(path string, off int64, format string, args ...any) *holdfast.Error {
	return &holdfast.Error{Op: "import", Path: path, Offset: off, Class: holdfast.ErrCorrupt, Detail: fmt.Sprintf(format, args...), Remedy: "restore it from a backup, or let the node join anew"}
}

// quote shows the beginning of a key.
func quote(k []byte) string {
	if len(k) > 40 {
		return fmt.Sprintf("%+q...", k[:40])
	}
	return fmt.Sprintf("%+q", k)
}
