package db

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/vfs"
)

// log writes commits to segments and syncs them. Chunks are queued in order with the database's mu held. The first
// goroutine that needs them written, or synced, does it.
//
// Places in the log are lsns: bytes of frames since the log began. Three of them tell how
// far things are, always synced <= written <= appended.
type log struct {
	fs    vfs.FS
	dir   string
	watch *watch

	appended atomic.Uint64
	written  atomic.Uint64
	synced   atomic.Uint64

	queueMu sync.Mutex // guards queue; taken after the database's mu, never before
	queue   []chunk

	writeMu sync.Mutex // one writer at a time
	spare   []chunk
	dirty   []*segment // written to since they were last synced, in order; under writeMu
	last    *segment   // written to last; under writeMu

	syncs, bytes, groups atomic.Int64

	// The rest is for sharing syncs; see sync.
	mu      sync.Mutex
	busy    bool // a sync is being made
	called  bool // a waiter was called to sync and has not begun
	leaving int  // waiters that were told of success and are still waking up
	waiting []*syncWaiter
	took    syncTimes // by the last one
	pool    sync.Pool // of *syncWaiter

	// Lsns: all before them has been acknowledged at Memory, or at Process.
	acked  [2]atomic.Uint64
	failed atomic.Pointer[failure]
	onFail func(error)
	check  func() error // see Config.Check
}

type failure struct {
	err   error
	acked [2]uint64     // all before these lsns had been acknowledged; nothing else is any more
	fixed chan struct{} // closed when acked is
}

// Indexes of acked.
const (
	atMemory  = 0
	atProcess = 1
)

// chunk is a stretch of log that is not written yet.
type chunk struct {
	seg   *segment
	off   int64
	image *memtable.Image // nil: it is written, but not counted yet
	addr  memtable.Addr
	size  int
	end   uint64 // lsn
}

// maxStore is the largest chunk in bytes that is stored through the mapping: a page costs a fault, which
// a write call does not have. Nor is what is synced at once: a sync has to make the pages that
// were stored to read-only again, so that each commit would meet the fault once more.
const maxStore = 2 << 10

type syncWaiter struct {
	lsn  uint64
	call chan bool // true: the sync is yours to make; false: it is made, or has failed
}

// syncTimes is how long the parts of a sync took.
type syncTimes struct {
	write, sync time.Duration
	path        string // of the last file synced
}

// push queues a chunk. It is called with the database's mu held.
func (l *log) push(p chunk) {
	l.queueMu.Lock()
	if n := len(l.queue); n > 0 && l.queue[n-1].extends(p) {
		l.queue[n-1].size += p.size
		l.queue[n-1].end = p.end
	} else {
		l.queue = append(l.queue, p)
	}
	l.queueMu.Unlock()
	l.appended.Store(p.end)
}

// extends reports whether next goes on where p ends, in memory and in the file.
func (p *chunk) extends(next chunk) bool {
	return p.seg == next.seg && p.image == next.image && p.off+int64(p.size) == next.off &&
		(p.image == nil || p.addr+memtable.Addr(p.size) == next.addr)
}

// err is what stopped the log, nil while it works.
func (l *log) err() error {
	if f := l.failed.Load(); f != nil {
		return f.err
	}
	return nil
}

// fail stops the log; the first cause stays.
func (l *log) fail(err error) error {
	f := &failure{err: poisoned(err), fixed: make(chan struct{})}
	if l.failed.CompareAndSwap(nil, f) {
		f.acked[atProcess] = max(l.acked[atProcess].Load(), l.synced.Load())
		f.acked[atMemory] = max(l.acked[atMemory].Load(), f.acked[atProcess])
		close(f.fixed)
		l.onFail(l.err())
	}
	return l.err()
}

// acknowledge is called when all before lsn is as safe as its level asks, and returns nil if that may be
// acknowledged. Once the log has failed, only what had been acknowledged or synced is: after a failed sync the
// system may drop what it had taken, without a crash. Asked again, it gives the same answer.
func (l *log) acknowledge(lsn uint64, level int) error {
	for a := l.acked[level].Load(); a < lsn && !l.acked[level].CompareAndSwap(a, lsn); {
		a = l.acked[level].Load()
	}
	// If there is no failure here, acked was raised before a later failure reads it.
	if f := l.failed.Load(); f != nil {
		if <-f.fixed; lsn > f.acked[level] {
			return f.err
		}
	}
	return nil
}

// writeTo returns when everything up to lsn is in the operating system's hands.
func (l *log) writeTo(lsn uint64) error {
	if l.written.Load() >= lsn {
		return nil
	}
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	if l.written.Load() >= lsn {
		return nil
	}
	return l.write(false)
}

// write writes what is queued, to be synced at once or not. It is called with writeMu held.
func (l *log) write(toSync bool) error {
	if err := l.err(); err != nil {
		return err
	}
	l.queueMu.Lock()
	todo := l.queue
	l.queue = l.spare[:0]
	l.queueMu.Unlock()
	for i := range todo {
		p := &todo[i]
		if p.image != nil {
			if err := l.writeChunk(p, !toSync && p.size <= maxStore); err != nil {
				return l.fail(err)
			}
		}
		p.seg.used.Store(p.off + int64(p.size))
		l.bytes.Add(int64(p.size))
		if l.last != p.seg {
			if l.last != nil {
				l.last.unmapOut() // it is full
			}
			l.last = p.seg
		}
		if n := len(l.dirty); n == 0 || l.dirty[n-1] != p.seg {
			l.dirty = append(l.dirty, p.seg)
		}
		l.written.Store(p.end)
	}
	if len(todo) > 0 {
		l.groups.Add(1)
	}
	clear(todo)
	l.spare = todo[:0]
	return nil
}

// writeChunk writes one, by a store to the mapping if that is wanted and there is one.
func (l *log) writeChunk(p *chunk, store bool) error {
	b := p.image.At(p.addr, p.size)
	if store {
		return p.seg.write(b, p.off, true)
	}
	start := time.Now()
	err := p.seg.write(b, p.off, false)
	if l.watch.long(start) {
		l.watch.waited(start, "writing to the log", "path", p.seg.file.Name(), "bytes", p.size)
	}
	return err
}

// settle returns when no write is in progress any more. The log must have failed, or have nothing to write.
func (l *log) settle() {
	l.writeMu.Lock()
	defer l.writeMu.Unlock()
	l.last = nil
}

// syncNow writes and syncs everything queued so far. One goroutine at a time calls it.
func (l *log) syncNow() (took syncTimes, err error) {
	start := time.Now()
	l.writeMu.Lock()
	if err := l.write(true); err != nil {
		l.writeMu.Unlock()
		return took, err
	}
	files, target := l.dirty, l.written.Load()
	l.dirty = nil
	l.writeMu.Unlock()
	written := time.Now()
	for _, seg := range files {
		took.path = seg.file.Name()
		if err := l.syncSegment(seg); err != nil {
			return took, l.fail(err)
		}
	}
	if l.check != nil {
		if err := l.check(); err != nil {
			return took, l.fail(err)
		}
	}
	took.write, took.sync = written.Sub(start), time.Since(written)
	l.synced.Store(target)
	return took, nil
}

// syncSegment makes durable what is written to seg, and its name.
func (l *log) syncSegment(seg *segment) error {
	l.syncs.Add(1)
	if seg.durable {
		if err := seg.file.Datasync(); err != nil {
			return ioError("sync", seg.file.Name(), err)
		}
		return nil
	}
	if err := seg.file.Sync(); err != nil {
		return ioError("sync", seg.file.Name(), err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return ioError("sync", l.dir, err)
	}
	seg.durable = true
	return nil
}

// syncTo returns when everything up to lsn survives power loss. The first waiter becomes the leader and syncs for
// the group; a lone caller syncs without meeting another goroutine.
//
// When a sync is done, the last of its waiters to wake up calls one of those that still wait
// to make the next. By then most have appended again, and so share it; otherwise small and
// large groups would take turns.
func (l *log) syncTo(lsn uint64) error {
	if l.synced.Load() >= lsn {
		return nil
	}
	start := time.Now()
	l.mu.Lock()
	if l.synced.Load() >= lsn {
		l.mu.Unlock()
		return nil
	}
	if l.busy || l.called || l.leaving > 0 {
		w, ok := l.pool.Get().(*syncWaiter)
		if !ok {
			w = &syncWaiter{call: make(chan bool, 1)}
		}
		w.lsn = lsn
		l.waiting = append(l.waiting, w)
		l.mu.Unlock()
		mine := <-w.call
		l.pool.Put(w)
		l.mu.Lock()
		if !mine {
			l.leaving--
			l.handOver()
			took := l.took
			l.mu.Unlock()
			if l.watch.long(start) {
				l.watch.waited(start, "syncs by others", "path", took.path, "last_write", took.write, "last_sync", took.sync)
			}
			if l.synced.Load() >= lsn {
				return nil
			}
			return l.err()
		}
		l.called = false
	}
	l.busy = true
	l.mu.Unlock()
	took, err := l.syncNow()
	if l.watch.long(start) {
		l.watch.waited(start, "a sync of the log", "path", took.path, "write", took.write, "sync", took.sync)
	}
	l.mu.Lock()
	l.busy, l.took = false, took
	synced := l.synced.Load()
	keep := l.waiting[:0]
	for _, w := range l.waiting {
		if err == nil && w.lsn > synced {
			keep = append(keep, w)
			continue
		}
		l.leaving++
		w.call <- false
	}
	clear(l.waiting[len(keep):])
	l.waiting = keep
	l.handOver()
	l.mu.Unlock()
	return err
}

// handOver calls one of those who wait to make the next sync. It is called with mu held.
func (l *log) handOver() {
	if l.busy || l.called || l.leaving > 0 || len(l.waiting) == 0 {
		return
	}
	w := l.waiting[0]
	l.waiting = append(l.waiting[:0], l.waiting[1:]...)
	l.called = true
	w.call <- true
}
