package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/bits"
	"slices"
	"syscall"
)

// memFile is an open file of a Mem.
type memFile struct {
	m        *Mem
	n        *node
	name     string
	writable bool
	closed   bool // under m.mu
}

// Name implements [File].
func (f *memFile) Name() string { return f.name }

// check returns the error of a call that has got past begin with err.
func (f *memFile) check(err error, writes bool) error {
	switch {
	case f.closed:
		return fs.ErrClosed
	case err != nil:
		return err
	case writes && !f.writable:
		return syscall.EBADF
	}

	return nil
}

// ReadAt implements [File]. It shows what the process sees, synced or not.
func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	err := f.m.beginRead(Op{OpRead, f.name, "", off, int64(len(b))})
	defer f.m.mu.RUnlock()
	if err = f.check(err, false); err == nil && off < 0 {
		err = syscall.EINVAL
	}
	if err != nil {
		return 0, pathError("read", f.name, err)
	}
	n := int(max(0, min(int64(len(b)), f.n.seen.size-off)))
	if f.n.isBad(off, int64(n)) {
		return 0, pathError("read", f.name, syscall.EIO)
	}
	f.n.read(b[:n], off)
	if n < len(b) {
		return n, io.EOF
	}

	return n, nil
}

// WriteAt implements [File]. The write is a part of the history until the next sync.
func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	last, err := f.m.begin(Op{OpWrite, f.name, "", off, int64(len(b))})
	defer f.m.mu.Unlock()
	n, err := f.writeAt(b, off, last, err)

	return n, pathError("write", f.name, err)
}

// writeAt is WriteAt behind begin, whose results last and err are. It is called with the lock held.
func (f *memFile) writeAt(b []byte, off int64, last bool, err error) (int, error) {
	var short *Short
	if err != nil {
		if short = asShort(err); short != nil {
			err = nil
		}
	}
	if err := f.check(err, true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, syscall.EINVAL
	}
	if off > maxMemFile-int64(len(b)) {
		return 0, syscall.EFBIG
	}
	if f.n.isBad(off, int64(len(b))) {
		return 0, syscall.EIO
	}

	// How much is written: all, or what a power cut in the middle leaves, or what a hook lets pass; and no more than there
	// is room for.
	want := int64(len(b))
	switch {
	case last:
		want = f.m.rnd.Int64N(want + 1)
	case short != nil:
		want = max(0, min(want, short.N))
	}
	n := f.m.reserve(f.n, off, want)
	f.n.write(b[:n], off, f.m.ops)
	f.m.show(f.n, off, off+n)

	switch {
	case last:
		return 0, ErrHalted
	case short != nil:
		return int(n), short.cause()
	case n < want:
		return int(n), syscall.ENOSPC
	}

	return int(n), nil
}

// asShort is the error of a hook that lets a part of a write pass, nil if it is another.
func asShort(err error) *Short {
	var short *Short
	errors.As(err, &short)

	return short
}

// Truncate implements [File].
func (f *memFile) Truncate(size int64) error {
	return pathError("truncate", f.name, f.m.mutate(Op{OpTruncate, f.name, "", size, 0}, func() error {
		if err := f.checkSize(size); err != nil {
			return err
		}
		from := min(size, f.n.seen.size)
		f.n.resize(size, f.m.ops)
		f.m.giveBack(f.n)
		f.m.show(f.n, from, maxMemFile)

		return nil
	}))
}

// Allocate implements [File]. When there is too little room it fails with ENOSPC, and half of
// the time, by the seed, it has taken what there was.
func (f *memFile) Allocate(size int64) error {
	return pathError("allocate", f.name, f.m.mutate(Op{OpAllocate, f.name, "", size, 0}, func() error {
		if err := f.checkSize(size); err != nil && (size != 0 || f.closed) {
			return err
		}
		var err error

		// A file system may have taken a part of the room when it finds that the rest is missing.
		if f.m.missing(f.n, size) > f.m.free() {
			if err = syscall.ENOSPC; f.m.rnd.IntN(2) == 0 {
				return err
			}
		}
		if got := f.m.reserve(f.n, 0, size); got > f.n.seen.size {
			f.n.resize(got, f.m.ops)
		}
		f.m.show(f.n, 0, 0)

		return err
	}))
}

// checkSize refuses a length that no file can have.
func (f *memFile) checkSize(size int64) error {
	if err := f.check(nil, true); err != nil {
		return err
	}
	if size < 0 {
		return syscall.EINVAL
	}
	if size > maxMemFile {
		return syscall.EFBIG
	}

	return nil
}

// Datasync implements [File]. There is no metadata that a Sync would write besides.
func (f *memFile) Datasync() error { return f.Sync() }

// Sync implements [File].
func (f *memFile) Sync() error {
	last, err := f.m.begin(Op{OpSync, f.name, "", 0, 0})
	defer f.m.mu.Unlock()

	switch {
	case f.closed:
		err = fs.ErrClosed
	case !f.writable:
		err = syscall.EBADF

	// The power goes during the sync: it may have come to its end, without anybody learning of it.
	case last:
		if err = ErrHalted; f.m.rnd.IntN(2) == 0 {
			f.n.sync()
		}
	case errors.Is(err, ErrHalted):
	case err != nil:
		f.n.drop(f.m.rnd)
	default:
		f.n.sync()
	}

	return pathError("sync", f.name, err)
}

// Size implements [File].
func (f *memFile) Size() (int64, error) {
	err := f.m.beginRead(Op{OpSize, f.name, "", 0, 0})
	defer f.m.mu.RUnlock()
	if err = f.check(err, false); err != nil {
		return 0, pathError("size", f.name, err)
	}

	return f.n.seen.size, nil
}

// Close implements [File]. The file is closed even if the hook, or a halt, makes it fail.
func (f *memFile) Close() error {
	_, err := f.m.begin(Op{OpClose, f.name, "", 0, 0})
	defer f.m.mu.Unlock()
	if f.closed {
		err = fs.ErrClosed
	} else {
		f.closed = true
		f.m.release(f.n)
	}

	return pathError("close", f.name, err)
}

// Of the room on the disk:

// free returns the bytes that can still be taken.
func (m *Mem) free() int64 {
	if m.capacity < 0 {
		return 1 << 62
	}

	return max(0, m.capacity-m.used)
}

// has reports whether a page has room on the disk.
func (n *node) has(block int64) bool {
	i := int(block / 64)
	return i < len(n.blocks) && n.blocks[i]&(1<<(block%64)) != 0
}

// give gives a page room on the disk. The caller counts it.
func (n *node) give(block int64) {
	for int64(len(n.blocks))*64 <= block {
		n.blocks = append(n.blocks, 0)
	}
	n.blocks[block/64] |= 1 << (block % 64)
}

// missing returns the bytes that n lacks to have room up to size.
func (m *Mem) missing(n *node, size int64) int64 {
	missing := int64(0)
	for block := range pagesOf(size) {
		if !n.has(block) {
			missing += pageSize
		}
	}

	return missing
}

// reserve takes room for the bytes [off, off+want) of n, and returns how many of them have it.
func (m *Mem) reserve(n *node, off, want int64) int64 {
	if want == 0 {
		return 0
	}

	free := m.free()
	end := pagesOf(off + want)
	for block := off / pageSize; block < end; block++ {
		if n.has(block) {
			continue
		}
		if free < pageSize {
			return max(0, block*pageSize-off)
		}
		n.give(block)
		m.used += pageSize
		free -= pageSize
	}

	return want
}

// hold counts a file or a mapping of n that is open now; release ends that.
func (m *Mem) hold(n *node) {
	n.handles++
	m.handles++
}

// release counts a file or a mapping of n less, and gives back what only that had of the room.
func (m *Mem) release(n *node) {
	n.handles--
	m.handles--
	m.giveBack(n)
}

// giveBack gives back the room behind the end of n, all of it if n cannot be reached.
func (m *Mem) giveBack(n *node) {
	if n.names == 0 && n.handles == 0 {
		m.used -= n.room()
		n.blocks = nil

		return
	}
	m.used -= n.room()
	n.clip(n.seen.size)
	m.used += n.room()
}

// room returns the bytes that n takes.
func (n *node) room() int64 {
	count := 0
	for _, word := range n.blocks {
		count += bits.OnesCount64(word)
	}

	return int64(count) * pageSize
}

// clip forgets the room behind size.
func (n *node) clip(size int64) {
	end := pagesOf(size)
	if words := int((end + 63) / 64); words < len(n.blocks) {
		n.blocks = n.blocks[:words]
	}
	if i := int(end / 64); i < len(n.blocks) {
		n.blocks[i] &= 1<<(end%64) - 1
	}
}

// pagesOf is how many pages so many bytes touch.
func pagesOf(size int64) int64 { return (size + pageSize - 1) / pageSize }

// Of the contents:

// write makes b seen at off, and remembers that it is not synced.
func (n *node) write(b []byte, off, seq int64) { n.record(b, off, seq, false) }

// record is write, for a store through a mapping too.
func (n *node) record(b []byte, off, seq int64, stored bool) {
	if len(b) == 0 {
		return
	}
	n.seen.write(b, off)
	n.changes = append(n.changes, change{seq, off, int64(len(b)), len(n.log), n.seen.size, stored})
	n.log = append(n.log, b...)
	n.bound()
}

// resize changes the length, and remembers that it is not synced. Pages beyond it that could not be read are gone.
func (n *node) resize(size, seq int64) {
	if size == n.seen.size {
		return
	}
	n.seen.resize(size)
	maps.DeleteFunc(n.bad, func(page int64, _ bool) bool { return page*pageSize >= size })
	n.changes = append(n.changes, change{seq: seq, size: size})
	n.bound()
}

// bound keeps the history short: when it is too long, one write of what is there now takes the
// place of all that were made to the same bytes.
func (n *node) bound() {
	if int64(len(n.log)) <= 1<<20+2*n.seen.size && len(n.changes) <= max(1<<14, n.most) {
		return
	}

	// The history that is dropped could only have shown states in between. What is kept has the shortest length since the
	// last sync, the bytes that are seen now, and the present length.
	seq := n.changes[len(n.changes)-1].seq
	low := n.low()
	var fresh []change
	var log []byte
	size := n.start().size
	if low < size {
		size = low
		fresh = append(fresh, change{seq: seq, size: low})
	}

	for _, r := range n.dirty() {
		hi := min(r.hi, n.seen.size)
		if r.lo >= hi {
			continue
		}
		at := len(log)
		log = append(log, make([]byte, hi-r.lo)...)
		n.seen.read(log[at:], r.lo)
		size = max(size, hi)
		fresh = append(fresh, change{seq, r.lo, hi - r.lo, at, size, false})
	}
	if size != n.seen.size || n.disk.size != n.seen.size {
		fresh = append(fresh, change{seq: seq, size: n.seen.size})
	}
	n.changes, n.log, n.most = fresh, log, 2*len(fresh)
}

// start returns what was seen before the first change.
func (n *node) start() *contents {
	if n.base != nil {
		return n.base
	}

	return &n.disk
}

// low returns the shortest that the file was since the last sync.
func (n *node) low() int64 {
	low := n.seen.size
	for _, c := range n.changes {
		low = min(low, c.size)
	}

	return low
}

// span is the bytes from lo up to, not including, hi.
type span struct{ lo, hi int64 }

// dirty returns the sectors that were written to, as ascending and separate spans.
func (n *node) dirty() []span {
	var list []span
	for _, c := range n.changes {
		if c.n > 0 {
			list = append(list, span{c.off / sectorSize * sectorSize, roundUp(c.off+c.n, sectorSize)})
		}
	}
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b span) int {
		switch {
		case a.lo < b.lo:
			return -1
		case a.lo > b.lo:
			return 1
		}

		return 0
	})

	// Spans that touch become one.
	merged := list[:1]
	for _, r := range list[1:] {
		if last := &merged[len(merged)-1]; r.lo <= last.hi {
			last.hi = max(last.hi, r.hi)
		} else {
			merged = append(merged, r)
		}
	}

	return merged
}

// roundUp is the next multiple of to.
func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// sync makes the dirty sectors and the length durable. Sectors that a failed sync dropped are not
// dirty.
func (n *node) sync() {
	if len(n.changes) == 0 {
		return
	}

	// What was cut off and written anew must not show old bytes between.
	if low := n.low(); low < n.disk.size {
		n.disk.resize(low)
	}

	for _, r := range n.dirty() {
		n.disk.take(&n.seen, r.lo, r.hi)
	}
	n.disk.size = n.seen.size
	n.forget()

	// What a failed sync dropped is still seen and not on the disk, so the base stays apart from it.
	if n.base != nil {
		base := n.seen.share()
		n.base = &base
	}
}

// forget empties the history.
func (n *node) forget() {
	n.changes, n.log, n.most = n.changes[:0], n.log[:0], 0
	if cap(n.log) > 1<<20 {
		n.log = nil
	}
}
