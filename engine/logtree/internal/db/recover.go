package db

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/policy"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// Open opens or, with c.New, makes a database. It must not be open elsewhere.
func Open(c Config) (_ *DB, err error) {
	// Sizes follow from the memory budget and from the room on the disk.
	memory := max(c.Memory, minMemory)
	room := roomFor(c)
	d := &DB{
		logger: c.Logger, manual: c.Manual || c.ReadOnly, readOnly: c.ReadOnly, slowRead: slowRead,
		work: make(chan struct{}, 1), compactions: make(chan struct{}, 1), prepare: make(chan struct{}, 1),
		stop: make(chan struct{}),
	}
	d.mu.segs = map[uint32]*wal.Segment{}
	d.sizes.Budget = policy.Budget{Memory: memory, Room: room,
		Chosen: policy.Sizes{Memtable: c.Sizes.Memtable, Segment: c.Sizes.Segment, Table: c.Sizes.Table}}
	d.memtableLimit = d.sizes.Memtable()
	// The cache gets what the memtables leave, but for a quarter: compactions and scans have buffers.
	d.files.FS, d.files.Dir, d.files.NoMap, d.files.Logger = c.FS, c.Dir, c.NoMapping, c.Logger

	d.files.Free, d.files.Stop = d.freeSegment, d.stop
	d.files.Set = files.NewSet(cmp.Or(c.Sizes.Files, mostFiles()))
	d.tables = tree.Files{FS: c.FS, Open: d.files.Set, Dir: c.Dir,
		Cache:  table.NewCache(max((memory-(policy.MaxFull+1)*d.memtableLimit)*3/4, memory/8)),
		Number: d.newNumber, Return: d.returnNumber, Synced: d.synced, Remove: d.files.Remove, Free: d.freeTable,
		InTurn: c.Manual}
	d.resize(0, 0)

	d.compactor.d = d
	caps := Describe()
	caps.LossWindow = max(c.SyncEvery, 0)
	caps.Settings = append(d.settings(), holdfast.Setting{Name: "memory", Value: fmt.Sprint(c.Memory)})
	if c.ReadOnly {
		caps = caps.ForReading()
	}
	d.Init(d, caps, c.Dir)
	d.watch = newWatch(c.Logger)
	d.log = wal.New(wal.Config{Files: &d.files, Watch: d.watch, Check: c.Check, OnFail: func(err error) {
		d.Life.Poison(err)
		// Writers that wait for a flush must learn of it. The caller may hold the lock.
		go func() {
			d.mu.Lock()
			d.mu.changed.Broadcast()
			d.mu.Unlock()
		}()
	}})
	d.leastLarge = int(min(max(d.memtableLimit/largeShare, 1), mostLarge))

	d.mu.changed.L = &d.mu

	// While one memtable is filled another is flushed, and a third may wait for that.
	d.pool = memtable.NewPool(int(min(max(d.memtableLimit/16, 1<<10), 1<<20)), 2*d.memtableLimit,
		(policy.MaxFull+1)*d.memtableLimit)
	m, err := d.load(c)
	if err != nil {
		return nil, err
	}

	// The window has its own goroutine, which asks for a sync only if something was written since.
	d.window = losswindow.New(c.SyncEvery, func() error {
		if d.log.Synced() == d.log.Appended() {
			return nil
		}

		return d.Settle()
	})
	if err := d.recover(m); err != nil {
		d.abandon()
		return nil, err
	}
	if !d.manual {
		d.background(isFlushing, d.work, d.flushOnce)
		d.background(isCompacting, d.compactions, d.compactor.step)
		d.background(isPreparing, d.prepare, d.prepareNext)
		d.mu.Lock()

		// The replay may have brought deletes back. Their space is looked at as if they had just been made.
		if d.view.Load().mem.deletes > 0 {
			d.compactor.armTidy()
		}
		d.mu.Unlock()
		d.wake(d.work)
		d.wake(d.compactions)
		d.wake(d.prepare)
	}

	return d, nil
}

// roomFor is how many bytes a database can have on its disk: what it has, and what is free. Files are kept small
// compared with that, because emptying a segment takes as much room as is alive in it.
func roomFor(c Config) int64 {
	free := c.FS.Free(c.Dir)
	if free == math.MaxInt64 {
		return free
	}

	names, _ := c.FS.List(c.Dir) // what is wrong, recover tells
	for _, name := range names {
		size, _ := c.FS.Size(filepath.Join(c.Dir, name))
		free += size
	}

	return free
}

// abandon releases what a failed Open has opened.
func (d *DB) abandon() {
	d.window.Stop()
	if v := d.view.Load(); v != nil {
		v.refs.End()
	}

	for _, id := range d.segmentIDs() { // in order: the same seed must do the same
		d.mu.segs[id].Release()
	}
}

// load reads the manifest, or writes the first one.
func (d *DB) load(c Config) (*format.Manifest, error) {
	m, err := readManifest(c.FS, c.Dir)
	switch {
	case err != nil:
		return nil, err
	case m == nil && (!c.New || c.ReadOnly):
		return nil, format.Corrupt(filepath.Join(c.Dir, format.ManifestName), 0, "the file is missing", fs.ErrNotExist)

	// A new database is there once its first manifest has its name.
	case m == nil:
		m = &format.Manifest{DB: c.ID}
		if err := writeManifest(c.FS, c.Dir, m); err != nil {
			return nil, err
		}
	}
	d.files.DB, d.tables.DB = m.DB, m.DB
	d.mu.nextFile, d.edit.nextTier, d.edit.from = m.NextFile, m.NextTier, m.From

	d.edit.promised = m.Synced

	return m, nil
}

// recover opens what the manifest names, replays the log behind it, and removes what belongs to
// neither: what was being made when the database was last open.
func (d *DB) recover(m *format.Manifest) error {
	names, err := d.files.FS.List(d.files.Dir)
	if err != nil {
		return format.IOError("open", d.files.Dir, err)
	}

	segFiles, tableFiles := map[uint32]bool{}, map[uint64]bool{}

	// No number that a file has is given out again, even if the file is removed below.
	for _, name := range names {
		if name == format.ReserveName {
			size, err := d.files.FS.Size(filepath.Join(d.files.Dir, name))
			if err != nil {
				return format.IOError("open", filepath.Join(d.files.Dir, name), err)
			}
			d.preparing.reserve = reserve{size: size, full: size}
		}
		if n, ok := format.Numbered(name, ".seg"); ok && n <= math.MaxUint32 {
			// Files may have higher numbers than the manifest knows: they were made after it was written.
			segFiles[uint32(n)] = true
			d.mu.nextFile = max(d.mu.nextFile, n)
		}
		if n, ok := format.Numbered(name, ".run"); ok && n <= math.MaxUint32 { // no other file is ours
			tableFiles[n] = true
			d.mu.nextFile = max(d.mu.nextFile, n)
		}
	}

	for _, s := range m.Segments {
		// Segments that tables name: the manifest says how many bytes of each hold something. A longer file is no damage,
		// what lies behind was never named.
		seg, err := d.files.Open(s.ID)
		if err != nil {
			return err
		}
		d.mu.segs[s.ID] = seg
		if seg.Used.Load() < s.Size {
			return format.Corrupt(seg.File.Name(), seg.Used.Load(),
				fmt.Sprintf("the file has been cut short: it had %d bytes", s.Size), nil)
		}
		seg.Used.Store(s.Size)
		seg.Payload.Store(s.Payload)
	}

	// A table has a ref for each stretch that range deletes have left of it: it is opened once.
	files := map[uint64]*tree.Table{}
	fail := func(err error) error {
		for _, id := range slices.Sorted(maps.Keys(files)) {
			files[id].Close()
		}

		return err
	}

	var tiers []tree.Tier
	for _, mt := range m.Tiers {
		t := tree.Tier{ID: mt.ID}
		for _, mr := range mt.Refs {
			f := files[mr.Table]
			if f == nil {
				if f, err = d.tables.OpenTable(mr.Table); err != nil {
					return fail(err)
				}
				files[mr.Table] = f
			}
			t.Refs = append(t.Refs, tree.NewRef(f, mr.Lo, mr.Hi))
		}
		tiers = append(tiers, t)
	}
	if t := tree.Overlapping(tiers); t != nil {
		return fail(format.Corrupt(d.manifestPath(), 0, fmt.Sprintf("tables overlap in tier %d", t.ID), nil))
	}
	// Tables may name the segment in which the replay begins. It is not in the manifest's list, because the log still
	// goes on in it, or did when the manifest was written.
	if m.From.Segment != 0 && d.mu.segs[m.From.Segment] == nil {
		s, err := d.files.Open(m.From.Segment)
		if err != nil {
			return fail(err)
		}
		s.Payload.Store(max(m.From.Offset-format.SegmentHeaderSize, 0))
		d.mu.segs[s.ID] = s
	}

	// A table whose segment is missing would fail at a read, perhaps years later. So it is found out here.
	for _, f := range files {
		for _, u := range f.Info.Segments {
			if d.mu.segs[u.ID] == nil {
				return fail(format.Corrupt(format.TableName(d.files.Dir, f.ID), 0,
					fmt.Sprintf("it names segment %d, which the manifest does not", u.ID), nil))
			}
		}
	}

	d.resizeFor(tiersOf(tiers))

	ver := tree.NewVersion(tiers, func(id uint32) tree.Segment { return d.mu.segs[id] })
	defer ver.Release()
	ver.Wear(manifestsAtOpen)

	mem := newMemTable(d.pool, m.From)
	defer mem.release()
	d.publish(mem, nil, ver)

	// Until this manifest's name is durable, a power cut may bring back the one before it, which names files that this one
	// does not.
	if !d.readOnly {
		if err := d.files.FS.SyncDir(d.files.Dir); err != nil {
			return format.IOError("sync", d.files.Dir, err)
		}
	}
	// The replay may need the room that tables take which nothing names.
	for _, id := range slices.Sorted(maps.Keys(tableFiles)) {
		if files[id] == nil && !d.readOnly {
			d.files.Remove(format.TableName(d.files.Dir, id))
		}
	}
	if err := d.replay(m, segFiles); err != nil {
		return err
	}

	for _, id := range slices.Sorted(maps.Keys(segFiles)) {
		if d.mu.segs[id] == nil && !d.readOnly {
			d.files.Remove(format.SegmentName(d.files.Dir, id))
		}
	}

	return nil
}

// manifestsAtOpen is how many manifests the cuts that an opened database has are taken to have cost already: a program
// that never runs for long would keep them for ever otherwise.
const manifestsAtOpen = 16

// replay reads the log from where the tables end, and makes sure that what it found survives power loss, as everything
// that is read must before more is built on it.
func (d *DB) replay(m *format.Manifest, segFiles map[uint32]bool) error {
	d.log.Resume(m.From)
	var replayed []*wal.Segment
	var s *wal.Segment // the last of them
	met := func(t *wal.Tail) {
		d.log.Resume(t.End)
		d.edit.promised = max(d.edit.promised, t.Synced)
	}

	// The log is told how far it goes at each step, because spill may flush in between.
	t, err := wal.ReadTail(d.files.FS, d.files.Dir, m, slices.Collect(maps.Keys(segFiles)), wal.TailVisitor{
		Begin: func(t *wal.Tail) (err error) {
			last := t.Last()
			if s = d.mu.segs[last.ID]; s == nil {
				if s, err = d.files.Open(last.ID); err != nil {
					return err
				}
				d.mu.segs[last.ID] = s
			}
			s.Start, s.BaseSeq = last.Start, last.Base
			replayed = append(replayed, s)
			met(t) // what comes next follows this segment, even if it has no frame

			return nil
		},
		Batch: func(t *wal.Tail, at format.Position, body []byte, ops int) error {
			met(t)
			d.indexReplayed(d.view.Load().mem, s, &at, body, ops)
			s.Used.Store(t.End.Offset)

			return d.spill(t.End, &replayed)
		},
		End: func(t *wal.Tail) error {
			met(t)
			last := t.Last()
			s.Used.Store(last.End)
			s.Torn, s.Ended = last.Torn, last.Next != 0
			d.mu.lastSize = min(last.End, d.sizes.segment.Load())
			// Even if that segment is lost: another of this number would be taken for it.
			d.mu.nextFile = max(d.mu.nextFile, uint64(last.Next))

			return nil
		},
	})
	if err != nil {
		return err
	}

	d.torn.Store(t.Torn)
	d.replayed = true

	// What was found is made durable before anything is visible: what a reader has seen must not be taken back.
	at := t.End
	if err := d.syncReplayed(replayed, at); err != nil {
		return err
	}
	if s := d.mu.segs[at.Segment]; s != nil {
		s.Used.Store(max(at.Offset, format.SegmentHeaderSize))
	}
	if !d.readOnly {
		if err := d.trim(m.From); err != nil {
			return err
		}
	}

	// From here on a reader sees it.
	d.visible.Store(at.Seq)
	// What was read is not read again once it is in tables, and where keys are scattered, scans are quicker there. It is
	// worth a flush if it is much, or if it is in many segments: each time that a database is opened and written to, its
	// log gets another one.
	mem := d.view.Load().mem
	if mem.weight() >= d.memtableLimit/replayedShare || len(replayed) > maxReplayedSegments && !mem.empty() {
		d.mu.Lock()
		d.rotateMemtable()
		d.mu.Unlock()
	}

	return nil
}

// replayedShare is the share of a full memtable that is flushed if an opening has read it from the log.
const replayedShare = 4

// maxReplayedSegments is how many segments of the log are read at opening before the memtable is flushed for their
// sake.
const maxReplayedSegments = 8

// syncReplayed makes durable what was read. A sync alone would not do: after one that failed, the
// system may show what is not on the disk, and not write it at the next.
func (d *DB) syncReplayed(replayed []*wal.Segment, at format.Position) error {
	if d.readOnly {
		return nil
	}

	for _, s := range replayed {
		if err := d.writeAgain(s); err != nil {
			return err
		}
	}
	if err := d.files.FS.SyncDir(d.files.Dir); err != nil {
		return format.IOError("sync", d.files.Dir, err)
	}
	d.log.Durable(at.LSN)

	return nil
}

// trim gives back what was reserved for the last segment of a program that was killed, or of several: nothing will
// ever be written there. What a crash tore stays. It is called when nothing behind the frames is looked at any
// more.
func (d *DB) trim(from format.Position) error {
	// Segments that tables name have their length in the manifest. Only those of the replayed log can have room reserved
	// behind them.
	for _, id := range d.segmentIDs() {
		s := d.mu.segs[id]
		end := s.Used.Load() + s.Torn
		if s.Kind != format.SegmentLog || id < from.Segment {
			continue
		}
		size, err := d.files.FS.Size(s.File.Name())
		if err != nil {
			return format.IOError("read", s.File.Name(), err)
		}
		// A file that was cut in the padding of its last frame is lengthened: its frames are said to reach to there.
		if size >= end && size-end < leastTrim {
			continue
		}
		f, err := d.files.FS.OpenWrite(s.File.Name())
		if err != nil {
			return format.IOError("open", s.File.Name(), err)
		}
		if err := errors.Join(f.Truncate(end), f.Close()); err != nil {
			return format.IOError("truncate", s.File.Name(), err)
		}
	}

	return nil
}

// leastTrim is what is worth it, in bytes.
const leastTrim = 64 << 10

// writeAgain writes again what a segment's file shows, but for what is known to have been synced, and syncs it.
// Where an acknowledged frame is among it, each byte is overwritten with itself: whether a power cut then
// leaves the old bytes or the new ones, they are the same.
func (d *DB) writeAgain(s *wal.Segment) (err error) {
	name := s.File.Name()
	f, err := d.files.FS.OpenWrite(name) // s has it open for reading, which is not enough to sync it everywhere
	if err != nil {
		return format.IOError("open", name, err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = format.IOError("close", name, e)
		}
	}()

	// What the manifest or a later frame says to be synced is left alone.
	off, end := int64(0), s.Used.Load()
	if s.Start < d.edit.promised {
		off = format.SegmentHeaderSize + int64(d.edit.promised-s.Start)
	}

	b := make([]byte, min(max(end-off, 0), 1<<20))
	for off < end {
		n, err := f.ReadAt(b[:min(end-off, int64(len(b)))], off)
		if n == 0 && err == io.EOF {
			break // the file was cut in the padding of its last frame
		}
		if n == 0 {
			return format.IOError("read", name, err)
		}
		if _, err := f.WriteAt(b[:n], off); err != nil {
			return format.IOError("write", name, err)
		}
		off += int64(n)
	}
	d.otherSyncs.Add(1)
	if err := f.Sync(); err != nil {
		return format.IOError("sync", name, err)
	}

	return nil
}

// spill flushes the memtable that the replay fills when it is full. It is called by Open only, so nobody else commits,
// and readers see nothing before replay has come to its end.
func (d *DB) spill(at format.Position, replayed *[]*wal.Segment) error {
	v := d.view.Load()
	if v.mem.weight() < d.memtableLimit {
		return nil
	}

	// A table must not name what a power cut can take away. So the log is durable first, as in every flush.
	if err := d.syncReplayed(*replayed, at); err != nil {
		return err
	}

	*replayed = (*replayed)[len(*replayed)-1:] // there may be more in it
	d.edit.promised = max(d.edit.promised, at.LSN)
	d.mu.Lock()

	// No reader is there yet, so visible may be raised before the replay has ended.
	d.visible.Store(d.log.End().Seq)
	d.rotateMemtable()
	d.mu.Unlock()
	if d.readOnly {
		return nil
	}
	_, err := d.flush()
	if format.IsNoRoom(err) {
		// It was in memory when it was written, so it can be again; once Open has removed what is left over, there
		// may be room.
		d.logger.Warn("no room to flush what the log holds", "error", err)
		return nil
	}

	return err
}

// indexReplayed puts a batch that has been read from position at into the memtable: large values stay in the log, the
// others are copied.
func (d *DB) indexReplayed(mem *memTable, s *wal.Segment, at *format.Position, body []byte, ops int) {
	if d.large(body, ops) {
		mem.addLarge(s, at.Offset, body, at.Seq+1)
		return
	}
	addr, own := mem.reserve(s.ID, at.Offset+format.FrameHeader, len(body))
	copy(own, body)
	mem.add(s, addr, own, at.Seq+1)
}

// segmentIDs are those of all open segments, in order.
func (d *DB) segmentIDs() []uint32 { return slices.Sorted(maps.Keys(d.mu.segs)) }
