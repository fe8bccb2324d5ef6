package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
)

// SetMapping says whether files that are opened from now on implement [Mapper] and [WriteMapper].
// Call [Mem.Unmap] when their users are gone: the memory of mappings is not the garbage collector's.
func (m *Mem) SetMapping(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mapping = on
}

// Unmap ends all mappings, as the end of a process does. Their bytes must not be touched any more.
func (m *Mem) Unmap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absorb()

	for len(m.mapped) > 0 {
		m.unmap(m.mapped[0])
	}
}

// Spoil makes the device unable to read the pages of a file that have a byte in [lo, hi), until
// [Mem.Unspoil] or a cut of the file takes them away. Reads and writes that touch them fail with EIO,
// and touching them in a mapping is a memory fault, by the pages of the operating system. Pages with bytes
// that are not on the device yet stay in memory, and are left out. The error is fs.ErrNotExist.
func (m *Mem) Spoil(name string, lo, hi int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.absorb()
	n, err := m.file(name)
	if err != nil {
		return pathError("spoil", name, err)
	}

	for page := max(lo, 0) / pageSize; page < pagesOf(min(hi, n.seen.size)); page++ {
		if slices.ContainsFunc(n.dirty(), func(s span) bool { return s.lo < (page+1)*pageSize && page*pageSize < s.hi }) {
			continue
		}
		if n.bad == nil {
			n.bad = map[int64]bool{}
			m.spoiled = append(m.spoiled, n)
		}
		n.bad[page] = true
	}
	m.protect(n)

	return nil
}

// Unspoil makes all that [Mem.Spoil] made unreadable readable again.
func (m *Mem) Unspoil() {
	m.mu.Lock()
	defer m.mu.Unlock()

	for _, n := range m.spoiled {
		n.bad = nil
		m.protect(n)
	}
	m.spoiled = nil
}

// isBad reports whether some of the bytes [off, off+size) cannot be read.
func (n *node) isBad(off, size int64) bool {
	for page := off / pageSize; len(n.bad) > 0 && page < pagesOf(off+size); page++ {
		if n.bad[page] {
			return true
		}
	}

	return false
}

// access is what can be done to a page of a region without a memory fault.
type access uint8

const (
	nothing access = iota
	reading
	writing
)

// region is the memory that all mappings of a file share, so that each shows at once what is stored
// through another. It shows what is seen of the file, and is compared with that at every operation: what differs was
// stored. A program stores without a call, so the moment of a store is not known better than that.
type region struct {
	bytes   []byte   // whole units; nil when it is gone
	may     []access // of each unit, as the system was told
	maps    int      // mappings
	writers int      // of them those for writing
}

// unit is what access can be given to: the system's page, or ours if that is larger.
var unit = int64(max(pageSize, os.Getpagesize()))

// mappedFile is a memFile that can be mapped.
type mappedFile struct{ *memFile }

var (
	_ Mapper      = mappedFile{}
	_ WriteMapper = mappedFile{}
)

// Map implements [Mapper].
func (f mappedFile) Map(size int64) (Mapping, error) { return f.mapFile("map", size, false) }

// MapWrite implements [WriteMapper]. A store to a page that has no room on the disk is a memory fault, though
// there may be some: write it first, or Allocate.
func (f mappedFile) MapWrite(size int64) (Mapping, error) {
	return f.mapFile("map for writing", size, true)
}

// mapFile is Map and MapWrite. The first one fixes how long the file's region is.
func (f *memFile) mapFile(op string, size int64, writes bool) (Mapping, error) {
	_, err := f.m.begin(Op{OpMap, f.name, "", 0, size})
	defer f.m.mu.Unlock()
	n := f.n
	if err = f.check(err, false); err == nil {
		switch {
		case size < 0:
			err = syscall.EINVAL
		case writes && !f.writable:
			err = syscall.EACCES
		case size > n.seen.size:
			err = fmt.Errorf("%d bytes of a file of %d: %w", size, n.seen.size, io.ErrUnexpectedEOF)
		case n.region != nil && size > int64(len(n.region.bytes)):
			err = errors.ErrUnsupported // mappings of before would have to move
		}
	}
	if err != nil {
		return nil, pathError(op, f.name, err)
	}

	// The first mapping makes the region, which all others share. It cannot grow: a mapping must not move.
	if n.region == nil {
		b, err := allocateRegion(int(roundUp(max(n.seen.size, 1), unit)))
		if err != nil {
			return nil, pathError(op, f.name, err)
		}
		n.region = &region{bytes: b, may: slices.Repeat([]access{writing}, len(b)/int(unit))}
		n.seen.read(b, 0)
		f.m.mapped = append(f.m.mapped, n)
	}
	r := n.region
	r.maps++
	if writes {
		r.writers++
	}
	f.m.hold(n)
	f.m.protect(n)

	return &memMapping{m: f.m, n: n, r: r, bytes: r.bytes[:size:size], writes: writes}, nil
}

// memMapping is one mapping of a file: a part of the region that all its mappings share.
type memMapping struct {
	m      *Mem
	n      *node
	r      *region
	bytes  []byte
	writes bool
	ended  bool
}

// Bytes implements [Mapping].
func (p *memMapping) Bytes() []byte { return p.bytes }

// Unmap implements [Mapping]. What was stored stays stored.
func (p *memMapping) Unmap() error {
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if p.ended {
		return os.ErrClosed
	}
	p.m.absorb()
	p.bytes, p.ended = nil, true
	p.r.maps--
	if p.writes {
		p.r.writers--
	}

	switch {
	case p.r.bytes == nil:
	case p.r.maps == 0:
		p.m.unmap(p.n)
	default:
		p.m.protect(p.n)
	}
	p.m.release(p.n)

	return nil
}

// unmap gives the memory of n's region back.
func (m *Mem) unmap(n *node) {
	if err := freeRegion(n.region.bytes); err != nil {
		panic(err)
	}
	n.region.bytes, n.region = nil, nil
	m.mapped = slices.DeleteFunc(m.mapped, func(o *node) bool { return o == n })
}

// absorb makes what was stored through mappings a part of what is seen. It is called with m.mu held, before
// anything else is done.
func (m *Mem) absorb() {
	if m.halted {
		return
	}

	for _, n := range m.mapped {
		n.absorb(m.ops)
	}
}

// absorb compares the region with what is seen, sector by sector, and records each difference as a store.
func (n *node) absorb(seq int64) {
	r := n.region
	if r.writers == 0 {
		return
	}

	var now, was [sectorSize]byte
	for at := int64(0); at < min(int64(len(r.bytes)), n.seen.size); at += sectorSize {
		if r.may[at/unit] == nothing {
			continue
		}

		// The program may store at the same time. What is compared is a copy, so that one state of the sector enters the
		// history.
		copy(now[:], r.bytes[at:])
		if n.seen.read(was[:], at); now == was {
			continue
		}

		lo, hi := int64(0), min(sectorSize, n.seen.size-at) // what is behind the end is not the file's
		for lo < hi && now[lo] == was[lo] {
			lo++
		}

		for lo < hi && now[hi-1] == was[hi-1] {
			hi--
		}
		n.record(now[lo:hi], at+lo, seq, true)
	}
}

// show makes mappings show the bytes [lo, hi) as they are seen now.
func (m *Mem) show(n *node, lo, hi int64) {
	r := n.region
	if r == nil {
		return
	}

	// The pages are made writable for this, and get the access that they should have behind it.
	if hi = min(hi, int64(len(r.bytes))); lo < hi {
		for u := lo / unit; u*unit < hi; u++ {
			r.allow(u, writing)
		}
		n.seen.read(r.bytes[lo:hi], lo)
	}
	m.protect(n)
}

// protect gives the pages of n's region the access that they should have.
func (m *Mem) protect(n *node) {
	r := n.region
	if r == nil {
		return
	}

	for u := range int64(len(r.may)) {
		may := writing
		if r.writers == 0 || m.halted {
			may = reading
		}
		if u*unit >= n.seen.size {
			may = nothing
		}

		for page := u * unit / pageSize; page*pageSize < min((u+1)*unit, n.seen.size); page++ {
			if n.bad[page] {
				may = nothing
			} else if !n.has(page) {
				may = min(may, reading)
			}
		}
		r.allow(u, may)
	}
}

// allow changes the access to a unit.
func (r *region) allow(u int64, may access) {
	if r.may[u] == may {
		return
	}
	if err := protectRegion(r.bytes[u*unit:(u+1)*unit], may); err != nil {
		panic(err)
	}
	r.may[u] = may
}

// halt ends the power: from now on stores are memory faults.
func (m *Mem) halt() {
	if m.halted {
		return
	}

	// The pages lose their access for writing first, and then what was stored until that moment is taken in.
	m.halted = true
	for _, n := range m.mapped {
		m.protect(n)
		n.absorb(m.ops)
	}
}

// read fills b with what is seen from off on, stores through mappings too.
func (n *node) read(b []byte, off int64) {
	n.seen.read(b, off)
	r := n.region
	if r == nil || r.writers == 0 {
		return
	}

	for u := off / unit; u < int64(len(r.may)) && u*unit < off+int64(len(b)); u++ {
		if lo := max(off, u*unit); r.may[u] != nothing {
			copy(b[lo-off:], r.bytes[lo:(u+1)*unit])
		}
	}
}
