// Package db is the engine logtree without its directory's identity and lock: a log that
// is the database, and indexes of it that can be rebuilt.
//
// A commit is a frame in the log (package wal). Its operations are indexed in a memtable (memory.go), which a flush
// turns into tables of keys and places in the log (flush.go). Tables are kept in tiers, of which package tree makes
// versions. Compactions merge tiers (compactor.go, compaction.go), and move values out of segments that hold little
// else than garbage (move.go). What is compacted, when writers wait, and how large files are, package policy decides
// from numbers (numbers.go). The manifest says what is alive; opening reads it and replays the rest of the log
// (recover.go).
package db

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/crowded"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/driver/uses"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/vfs"
)

// Config is how a database is opened.
type Config struct {
	FS     vfs.FS
	Dir    string
	New    bool // make it; otherwise it must be there
	ID     [16]byte
	Memory int64 // bytes of memtables and caches
	Logger *slog.Logger

	// Check, if there is one, is asked between a sync of the log and acknowledging it.
	Check func() error

	// SyncEvery is the loss window; <= 0 means never.
	SyncEvery time.Duration

	// ReadOnly writes nothing. What only the log holds stays in memory, whatever Memory says, and is not made durable.
	ReadOnly bool

	// Manual leaves all background work to Work, so that what happens depends on the calls
	// alone. A writer that would have to wait for it does it.
	Manual bool

	// NoMapping reads and writes through file calls even where files can be mapped.
	NoMapping bool

	// Sizes are for tests, whose files are small.
	Sizes Sizes
}

// Sizes, in bytes, take the place of those that follow from the memory budget, except where they are 0.
type Sizes struct {
	Memtable, Segment, Table int64
	Files                    int // tables and segments that are open for reading, at most
}

// minMemory is the least budget of memory, in bytes.
const minMemory = 64 << 10

// DB is an open database. It implements [holdfast.Engine].
//
// Lock order, outermost first. A goroutine that holds a lock takes only locks below it:
//
//	flushing        one flush at a time
//	edit            one change of the version at a time, and what compactions plan
//	preparing       making the next segment, and the reserve
//	mu              the log's end, the memtable, the table of segments
//	obsolete        files to be removed: removing, then mu
//
// What a lock guards is a struct with it: d.mu.segs is used with d.mu held. The compactor's fields below edit and mu
// are guarded by the database's locks of these names.
//
// Under mu the log's queue may be locked too. Its lock for writing is taken with none of edit, preparing and mu held,
// and under it only obsolete.mu. Readers take no lock; see view.
type DB struct {
	driver.Engine[state]
	files    wal.Files // with the file system, the directory and its identity
	log      *wal.Log
	logger   *slog.Logger
	watch    *watch
	manual   bool
	readOnly bool
	replayed bool // the log has been read to its end; only Open is there before
	window   *losswindow.Window
	pool     *memtable.Pool
	tables   tree.Files

	memtableLimit int64 // bytes of a full memtable
	sizes         fileSizes
	leastLarge    int // average bytes of a batch's records from which on its values stay in the log

	slowRead time.Duration // where a compaction's reads take longer on average, values are left to readers goroutines

	visible atomic.Uint64 // the last operation that readers see
	view    atomic.Pointer[view]

	flushing sync.Mutex

	edit struct {
		sync.Mutex
		nextTier uint64
		from     format.Position // the log from here on is not in tables
		promised uint64          // lsn up to which the log is known to have been synced when it was opened
	}

	preparing struct {
		sync.Mutex
		reserve reserve
	}

	mu struct {
		crowded.Mutex
		changed  sync.Cond               // a memtable was flushed, or could not be, or the database failed
		stuck    error                   // why the last flush failed, nil if it did not
		next     *wal.Segment            // prepared to follow the log's present one
		lastSize int64                   // of the segment made last
		kept     bool                    // the log's present segment is for deletes and removals: see ladder
		removing int                     // batches of that kind for which room is being made
		segs     map[uint32]*wal.Segment // all that are alive, with a reference each
		feeds    []*Feed                 // that keep what the log leaves
		nextFile uint64
	}

	scarce     atomic.Bool  // a flush is given all the room there is
	passedOver atomic.Int64 // deleted keys of memtables that walks have passed over since a flush was due to them

	compactor compactor
	obsolete  obsoleteFiles
	troubles  [activities]atomic.Pointer[error] // why background work failed, nil once it has not

	// They wake the goroutines that flush, compact and prepare.
	work        chan struct{}
	compactions chan struct{}
	prepare     chan struct{}

	stop chan struct{}
	done sync.WaitGroup

	commits, stalls, torn atomic.Int64
	otherSyncs            atomic.Int64 // of tables, manifests, moved segments
	otherBytes            atomic.Int64
	syncedCommits         atomic.Int64 // Power commits in the present segment; says whether to fill segments with zeros
}

// view is what a reader needs: the memtables and tables that together are the database. Each view
// holds references to all of its parts; the database holds one to the latest view.
type view struct {
	mem  *memTable
	imm  []*memTable // newest first
	ver  *tree.Version
	refs *uses.Count // by readers; it ends when there is a newer view, or none
}

// tryAcquire takes a reference, unless the view is not the latest any more.
func (v *view) tryAcquire() bool { return v.refs.Begin() }

// release gives up a reference. It takes no lock of the database, so it may be called under any.
func (v *view) release() { v.refs.Done() }

// free gives up the view's references to its parts, when nobody has the view. What this releases may make files
// obsolete, which are removed later, by removeObsolete.
func (v *view) free() {
	v.mem.release()

	for _, t := range v.imm {
		t.release()
	}
	v.ver.Release()
}

// publish makes a view of those parts the latest. It is called with mu held, or by Open.
func (d *DB) publish(mem *memTable, imm []*memTable, ver *tree.Version) {
	v := &view{mem: mem, imm: imm, ver: ver}
	v.refs = uses.New(v.free)

	// The view has references of its own to its parts, so that the caller may give up those that it has.
	mem.refs.Add(1)

	for _, t := range imm {
		t.refs.Add(1)
	}

	// The old view is given up after the swap: a reader that has just loaded it fails in tryAcquire, and finds the
	// new one there.
	ver.Acquire()
	if old := d.view.Swap(v); old != nil {
		old.refs.End()
	}
}

// state is one point of the database, for reading.
type state struct {
	view            *view
	seq             uint64
	rangeTombstones *tree.RangeTombstones // of view.mem, as they are at seq
}

// latest returns what is visible now; the caller releases the view.
func (d *DB) latest() state {
	for {
		v := d.view.Load()

		// Whoever replaces a view ends it: then there is a newer one to be loaded.
		if !v.tryAcquire() {
			continue
		}
		ts := v.mem.rangeTombstones.Load()
		seq := d.visible.Load()
		// A range delete is stored before it is visible, and a new view before anything in its
		// memtable is: if nothing has changed, all three belong together.
		if ts.Newest() <= seq && v.mem.rangeTombstones.Load() == ts && d.view.Load() == v {
			return state{v, seq, ts}
		}
		v.release()
		runtime.Gosched()
	}
}

// token packs the place and level of a receipt.
func token(lsn uint64, level holdfast.Level) uint64 { return lsn<<2 | uint64(level) }

// Wait implements [holdfast.Waiter].
func (d *DB) Wait(t uint64) error {
	lsn, level := t>>2, holdfast.Level(t&3)
	switch level {
	// At Memory nothing is to be done: the frame is in the log's image. What is left is that the log has not failed.
	case holdfast.Process:
		if err := d.log.Write(lsn); err != nil {
			return err
		}
	case holdfast.Power:
		return d.log.Sync(lsn)
	}

	return d.log.Acknowledge(lsn, level)
}

// Write implements [driver.Core]. The batch is visible when it returns.
func (d *DB) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if b.Len() == 0 {
		// An empty batch takes no place. Its receipt stands for everything applied before it.
		if err := d.log.Err(); err != nil {
			return holdfast.Receipt{}, err
		}

		return holdfast.NewReceipt(d, token(d.log.Appended(), level)), nil
	}

	// The checksums of the body take long, so they are made before the lock. Whoever is to be slowed down waits here too,
	// and keeps nobody else waiting.
	body := b.Bytes()
	large, sum := d.large(body, b.Len()), format.Checksum(body)
	d.compactor.pace(len(body))

	// After an error nothing of the batch is in the log, and no number was given out.
	lsn, err := d.place(b, body, sum, large)
	if err != nil {
		return holdfast.Receipt{}, err
	}
	d.commits.Add(1)
	if level == holdfast.Power {
		d.syncedCommits.Add(1)
	}
	d.window.Dirty() // at Power too: the receipt may be dropped

	// Nobody may ever wait for this receipt. The queue stays bounded because the writer itself then writes what is queued.
	if lsn-d.log.Written() > maxUnwritten {
		d.log.Write(lsn) // an error shows at the next commit
	}

	return holdfast.NewReceipt(d, token(lsn, level)), nil
}

// place gives the batch its place in the log, where it is visible, and returns the lsn of its end. A panic, which may
// leave half a commit, stops the log.
func (d *DB) place(b *holdfast.Batch, body []byte, sum uint32, large bool) (lsn uint64, err error) {
	d.mu.Enter()

	// A panic between the place in the log and the index would leave a frame that readers do not see, and that the next
	// ones follow. So it stops the log, and lets go of the lock.
	returned := false
	defer func() {
		if !returned {
			_ = d.log.Fail(errPanic)
		}
		d.mu.Leave()
	}()
	if err = d.room(format.FrameSize(len(body)), b.Len(), large, body); err == nil {
		mem := d.view.Load().mem

		// The frame comes before the index. The other way round a reader could see an operation that the log does not
		// have.
		d.add(mem, body, sum, b.Len(), large)
		if mem.deletes > 0 {
			d.compactor.armTidy()
		}
		end := d.log.End()
		lsn = end.LSN

		// Readers take the memtable's content up to this number: everything of the batch is indexed before.
		d.visible.Store(end.Seq)
		if b.HasRange() {
			d.freeEarly()
		}
	}
	returned = true

	return lsn, err
}

var errPanic = errors.New("a commit has panicked")

// unlocked calls f without mu, which is held before and after, also if f panics.
func (d *DB) unlocked(f func()) {
	d.mu.Unlock()
	defer d.mu.Lock()
	f()
}

// freeEarly ends the memtable when its range deletes cover so much, table by table, that the space is
// worth more than the flush. It is called with mu held.
func (d *DB) freeEarly() {
	v := d.view.Load()
	ts := v.mem.rangeTombstones.Load()
	if len(v.imm) >= policy.MaxFull || ts.Len() > policy.EarlyRanges {
		return
	}

	var covered int64
	for r := range ts.Ranges() {
		for i := range v.ver.Tiers {
			covered += v.ver.Tiers[i].Covered(r.Lo, r.Hi)
		}
	}
	if d.full().FlushesEarly(covered) {
		d.rotateMemtable()
	}
}

// maxUnwritten bounds what commits without a waiter leave in the program's own memory.
const maxUnwritten = 256 << 10

// add adds a batch of so many operations to the log and indexes it. Room for it has been made. A large one is
// written to the log at once. Where that fails, the log has failed and the batch will not be acknowledged: it is copied
// after all, so that it is visible like any other that is applied and not written. It is called with mu held.
func (d *DB) add(mem *memTable, body []byte, sum uint32, ops int, large bool) {
	s, at, n := d.log.Current(), d.log.End(), format.FrameSize(len(body))
	if large && d.log.AppendLarge(body, sum, ops) {
		mem.addLarge(s, at.Offset, body, at.Seq+1)
		return
	}
	addr, buf := mem.reserve(s.ID, at.Offset, n)
	clear(buf[format.FrameHeader+copy(buf[format.FrameHeader:], body) : n])
	d.log.Append(buf, len(body), sum, ops)
	mem.add(s, addr+format.FrameHeader, buf[format.FrameHeader:format.FrameHeader+len(body)], at.Seq+1)
}

// rotateMemtable begins a new memtable. It is called with mu held.
func (d *DB) rotateMemtable() {
	v := d.view.Load()

	// The old memtable ends, and the new one begins, at the same place of the log. A flush of the old one moves the
	// position from which opening replays to exactly there.
	at := d.log.End()
	v.mem.end = at
	mem := newMemTable(d.pool, at)
	d.publish(mem, append([]*memTable{v.mem}, v.imm...), v.ver)
	mem.release() // the view has it
	d.wake(d.work)
}

// wake tells the goroutine behind c that there may be something to do. It never blocks, so it may be called under any
// lock.
func (d *DB) wake(c chan struct{}) {
	select {
	// The channel holds one token. If there is one already, its goroutine has not looked yet, and will see this change
	// too.
	case c <- struct{}{}:
	default:
	}
}

// Settle implements [driver.Core].
func (d *DB) Settle() error {
	// A failed log must not say that all is well, even where nothing is left to be synced.
	if err := d.log.Err(); err != nil {
		return err
	}

	return d.log.Sync(d.log.Appended())
}

// Release implements [driver.Core].
func (d *DB) Release(err error) error {
	// First everything that works in the background ends: from here on the database changes only by what follows.
	close(d.stop)
	d.done.Wait()
	d.window.Stop()
	if err == nil && !d.readOnly {
		// What was deleted gives its space back also to programs that never run for long: a flush frees the log that only
		// the memtables need.
		if d.endMemtable() || d.deletes() {
			err = d.flushAll()
		}
		if err == nil && d.compactor.tidy(true) {
			err = d.flushAll()
		}
	}

	return errors.Join(err, d.shut(err == nil && !d.readOnly))
}

// endMemtable ends the memtable at closing if the next opening would flush it as soon as it had read it from the log:
// then that has nothing to read. It reports whether there is so much to flush.
func (d *DB) endMemtable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	least := max(d.memtableLimit/replayedShare, leastEnded)
	if d.log.Err() == nil && d.view.Load().mem.weight() >= least {
		d.rotateMemtable()
	}

	return slices.ContainsFunc(d.view.Load().imm, func(t *memTable) bool { return t.weight() >= least })
}

// leastEnded is how many bytes a memtable has at least that is flushed at closing: less is read in a few milliseconds.
const leastEnded = 1 << 20

// flushAll flushes the full memtables, as far as there is room and what else it takes.
func (d *DB) flushAll() error {
	for {
		more, err := d.flushOnce()
		if format.IsShortage(err) {
			return nil // the log has it
		}
		if err != nil || !more {
			return err
		}
	}
}

// saveAtEnd writes the manifest as it is, with how far the log was synced.
func (d *DB) saveAtEnd() error {
	d.edit.Lock()
	defer d.edit.Unlock()

	return d.saveManifest(d.view.Load().ver, d.edit.from)
}

// noteInLog adds an empty batch to the log where the manifest cannot be replaced. It says that everything before it
// had been synced, so that damage to that is not taken for a torn tail. It fits into the file's last block, unless that
// is full.
func (d *DB) noteInLog() (err error) {
	d.mu.Lock()
	p, started := d.log.End(), d.log.Current() != nil
	s := d.mu.segs[p.Segment]
	d.mu.Unlock()
	// Behind a torn frame nothing is written, and behind an end frame nothing is read. If there is no more than the last
	// note behind promised, that was enough.
	if s == nil || s.Torn > 0 || s.Ended || p.Offset <= format.SegmentHeaderSize ||
		p.LSN-d.edit.promised <= format.FrameHeader {
		return nil
	}
	name, f := s.File.Name(), s.File
	if !started { // it is one that Open has read
		if f, err = d.files.FS.OpenWrite(name); err != nil {
			return format.IOError("open", name, err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
	}

	// The frame goes behind the last one. Until it is synced it may be torn, which takes nothing away: it is empty.
	var b [format.FrameHeader]byte
	format.PutFrameHeader(b[:], s.Epoch, format.KindBatch, 0, format.Checksum(nil), uint32(p.Seq-s.BaseSeq), 0)
	if _, err := f.WriteAt(b[:], p.Offset); err != nil {
		return format.IOError("write", name, err)
	}
	if err := f.Datasync(); err != nil {
		return format.IOError("sync", name, err)
	}

	return nil
}

// shut releases everything. In good order it also notes in the manifest how far the log goes, so
// that a log cut short is found out, and gives back what the last segment does not use.
func (d *DB) shut(orderly bool) (err error) {
	// A write for a receipt may still be in progress, though the database has failed meanwhile. A later one sees
	// that it has, or finds nothing to write.
	d.log.Settle()
	d.mu.Lock()
	cur, off := d.log.Current(), d.log.End().Offset
	d.mu.Unlock()

	// Only a database in order may write: a failed one leaves the files as they are for the next opening, which finds out
	// what is whole.
	if orderly {
		if cur != nil && off < cur.Size {
			// The mapping keeps its length, but nothing is read beyond off.
			if f, e := d.files.FS.OpenWrite(cur.File.Name()); e == nil {
				err = errors.Join(f.Truncate(off), f.Datasync(), f.Close())
			} else if !format.IsTransient(e) {
				err = e
			}
		}
		if err == nil {
			// The segment is cut before the manifest says how far the log goes. A crash between the two leaves the older
			// manifest, to which a shorter file is no contradiction: its frames are all there.
			if err = d.saveAtEnd(); format.IsNoRoom(err) && d.giveRoom(deletes) {
				err = d.saveAtEnd()
				d.restoreReserve()
			}
			if format.IsShortage(err) {
				d.logger.Warn("cannot note in the manifest how far the log goes", "path", d.files.Dir, "error", err)
				if err = d.noteInLog(); format.IsShortage(err) {
					err = nil // the log has everything
				}
			}
		}
		if err != nil {
			err = format.IOError("close", d.files.Dir, err)
		}
	}
	d.mu.Lock()

	// The segment prepared for later holds nothing, and no manifest names it.
	next := d.mu.next
	d.mu.Unlock()
	if next != nil {
		d.files.Undo(next)
	}
	d.view.Load().refs.End()

	// The view goes first: its tables and memtables hold references to segments. Those that follow are the database's own.
	for _, id := range d.segmentIDs() {
		d.mu.segs[id].Release()
	}
	d.removeObsolete()

	return err
}

// Measure implements [driver.Core].
func (d *DB) Measure(m *holdfast.Metrics) {
	m.Commits, m.Stalls, m.TornBytes = d.commits.Load(), d.stalls.Load(), d.torn.Load()
	m.Syncs, m.BytesWritten, m.Trouble = d.otherSyncs.Load(), d.otherBytes.Load(), d.trouble()
	d.log.Fill(m)
	m.MemoryBytes = d.tables.Cache.Bytes() + d.pool.Free()
	if d.Life.Enter() == nil {
		v := d.latest().view
		m.MemoryBytes += v.mem.bytes()

		for _, t := range v.imm {
			m.MemoryBytes += t.bytes()
		}
		v.release()
		d.Life.Leave()
	}
}

// trouble is what background work could not do and goes on without.
func (d *DB) trouble() error {
	var all []error
	for i := range d.troubles {
		if p := d.troubles[i].Load(); p != nil {
			all = append(all, *p)
		}
	}
	if p := d.compactor.damage.Load(); p != nil {
		all = append(all, *p)
	}

	return errors.Join(all...)
}

// settings are the sizes that follow from the memory budget.
func (d *DB) settings() []holdfast.Setting {
	return []holdfast.Setting{
		{Name: "memtable", Value: fmt.Sprint(d.memtableLimit)},
		{Name: "files", Value: fmt.Sprint(d.files.Set.Most())},
		{Name: "segment", Value: fmt.Sprint(d.sizes.segment.Load())},
		{Name: "table", Value: fmt.Sprint(d.tables.Limit.Load())},
	}
}
