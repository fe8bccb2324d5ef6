package memtable

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"
)

// Addr is a place in an [Image]: chunk<<32 | offset in it.
type Addr uint64

// Pool keeps memory that images and tables gave back, for the next ones: fresh memory costs a
// page fault for every page of it. It may be used from many goroutines at once.
type Pool struct {
	chunkSize  int
	keep, most int64

	mu         sync.Mutex
	free, used int64 // bytes that it holds, and that others have of it
	chunks     [][]byte
	leaves     []*leafSlab
	inners     []*innerSlab

	looks bool // rest comes
	taken bool // something was taken since it came last
}

// restAfter is how long a pool keeps what nothing is taken of: the memory of a database that nobody writes to is the
// program's.
const restAfter = 10 * time.Second

// NewPool returns a pool of image chunks of chunkSize bytes, and of tree nodes. It holds keep bytes for later use at
// most, and no more than make it most bytes with what is in use, and nothing if it is not used for 10 to 20 seconds. A
// chunkSize below 1 means 1 MiB.
func NewPool(chunkSize int, keep, most int64) *Pool {
	if chunkSize < 1 {
		chunkSize = 1 << 20
	}

	return &Pool{chunkSize: chunkSize, keep: keep, most: most}
}

// Free is how many bytes the pool holds for later use.
func (p *Pool) Free() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()

	return p.free
}

// chunk returns memory of n bytes or more. Only chunks of the usual size are kept for later: a larger one is for one
// frame. It is one of many if others like it are in use with it: see [largePages].
func (p *Pool) chunk(n int, many bool) []byte {
	if n <= p.chunkSize {
		if c, ok := pop(p, &p.chunks, int64(p.chunkSize)); ok {
			return c
		}
		n = p.chunkSize
	} else {
		p.larger(int64(n))
	}
	c := make([]byte, n)
	if many {
		largePages(c)
	}

	return c
}

// putChunks takes back what is of the usual size, as far as the pool has room for it. The rest is the garbage
// collector's.
func (p *Pool) putChunks(chunks [][]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, c := range chunks {
		if len(c) == p.chunkSize {
			push(p, &p.chunks, c, int64(p.chunkSize))
		} else {
			p.used -= int64(len(c))
		}
	}
}

// leafSlab returns nodes that may hold anything: newLeaf fills each before it is reached. For many see chunk.
func (p *Pool) leafSlab(many bool) *leafSlab {
	if s, ok := pop(p, &p.leaves, leafSlabSize); ok {
		return s
	}

	s := new(leafSlab)
	if many {
		largePages(unsafe.Slice((*byte)(unsafe.Pointer(s)), leafSlabSize))
	}

	return s
}

// innerSlab is leafSlab for inner nodes, of which there are few.
func (p *Pool) innerSlab() *innerSlab {
	if s, ok := pop(p, &p.inners, innerSlabSize); ok {
		return s
	}

	return new(innerSlab)
}

// putNodes takes back nodes. Inner ones go first: they are few, and a table needs both.
func (p *Pool) putNodes(leaves []*leafSlab, inners []*innerSlab) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, s := range inners {
		push(p, &p.inners, s, innerSlabSize)
	}

	for _, s := range leaves {
		push(p, &p.leaves, s, leafSlabSize)
	}
}

// push takes back v, of that size, and keeps it if there is room for it. It is called with mu held.
func push[T any](p *Pool, list *[]T, v T, size int64) {
	p.used -= size
	if room := min(p.keep, p.most-p.used); p.free+size <= room {
		*list = append(*list, v)
		p.free += size
		if !p.looks {
			p.look()
		}
	}
}

// look has rest called after a while, if the pool is there by then. It is called with mu held.
func (p *Pool) look() {
	p.looks, p.taken = true, false
	w := weak.Make(p)
	time.AfterFunc(restAfter, func() {
		if p := w.Value(); p != nil {
			p.rest()
		}
	})
}

// rest gives up all that is kept, if nothing was taken of it for a while.
func (p *Pool) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.looks = false
	switch {
	case p.free == 0:
	case p.taken:
		p.look()
	default:
		p.chunks, p.leaves, p.inners, p.free = nil, nil, nil, 0
	}
}

// pop counts what has that size as used, and takes it from a list if there is something in it.
func pop[T any](p *Pool, list *[]T, size int64) (v T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.used += size
	if n := len(*list) - 1; n >= 0 {
		v, p.taken = (*list)[n], true
		drop(p, list, size)

		return v, true
	}
	p.trim()

	return v, false
}

// larger counts a chunk of more than the usual size as used.
func (p *Pool) larger(size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.used += size
	p.trim()
}

// trim gives up what is kept of other kinds than what is to be made now, as far as there is no room for both: nodes
// after large values, or chunks after small ones. It is called with mu held.
func (p *Pool) trim() {
	for p.free > 0 && p.free > p.most-p.used {
		switch {
		case len(p.chunks) > 0:
			drop(p, &p.chunks, int64(p.chunkSize))
		case len(p.leaves) > 0:
			drop(p, &p.leaves, leafSlabSize)
		default:
			drop(p, &p.inners, innerSlabSize)
		}
	}
}

// drop takes the last from a list. Nothing is left in its place that could keep memory alive.
func drop[T any](p *Pool, list *[]T, size int64) {
	var none T
	n := len(*list) - 1
	(*list)[n] = none
	*list = (*list)[:n]
	p.free -= size
}

// Image is append-only memory in chunks that never move: the bytes of a stretch of the log. One
// goroutine appends at a time (Reserve); any number may read, at the same time, what was
// filled before they were told of it.
type Image struct {
	pool   *Pool
	chunks atomic.Pointer[[][]byte] // for readers; appended to, never changed below its length
	bytes  atomic.Int64

	free []byte // the writer's: what is left of the last chunk
	next Addr   // where free begins
}

// NewImage returns an empty image whose chunks come from pool.
func NewImage(pool *Pool) *Image {
	im := &Image{pool: pool}
	im.chunks.Store(new([][]byte))

	return im
}

// Reserve returns n bytes in one piece, and their place. The caller fills them; until it has,
// they hold anything. Where the last chunk lacks room, a new one begins. n is at most 1<<32 - 1. Their capacity goes on
// to the chunk's end: what is beyond n is that of later calls.
func (im *Image) Reserve(n int) (Addr, []byte) {
	if n > len(im.free) {
		im.grow(n)
	}
	a, b := im.next, im.free[:n]
	im.free, im.next = im.free[n:], im.next+Addr(n)

	return a, b
}

// grow begins a chunk that has room for n bytes. What is left of the last one is lost. The list is stored before any
// address in the chunk is known.
func (im *Image) grow(n int) {
	old := *im.chunks.Load()
	c := im.pool.chunk(n, im.Bytes() >= fewSlabs*leafSlabSize)
	chunks := append(old, c) // readers of old never look beyond its length
	im.chunks.Store(&chunks)
	im.bytes.Add(int64(len(c)))
	im.free, im.next = c, Addr(len(old))<<32
}

// At returns the n bytes at a, which must lie within what one Reserve returned. They are valid
// until Release and must not be changed.
func (im *Image) At(a Addr, n int) []byte {
	return im.from(a)[:n:n]
}

// from is the rest of a's chunk, beginning at a.
func (im *Image) from(a Addr) []byte { return (*im.chunks.Load())[a>>32][uint32(a):] }

// Bytes is the memory held, in bytes. It may be called from any goroutine.
func (im *Image) Bytes() int64 { return im.bytes.Load() }

// Release gives the memory back to the pool and empties the image. It must not be read any more, nor may readers hold
// slices of it, from then on.
func (im *Image) Release() {
	im.pool.putChunks(*im.chunks.Load())
	im.chunks.Store(new([][]byte))
	im.bytes.Store(0)
	im.free, im.next = nil, 0
}
