package db

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/internal/losswindow"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/vfs"
)

type file = vfs.File

// Open opens or, with c.New, makes a database. It must not be open elsewhere.
func Open(c Config) (_ *DB, err error) {
	memory := max(c.Memory, minMemory)
	room := roomFor(c)
	d := &DB{
		fs: c.FS, dir: c.Dir, logger: c.Logger, manual: c.Manual || c.ReadOnly, readOnly: c.ReadOnly, noMap: c.NoMapping,
		tableLimit:   cmp.Or(c.Sizes.Table, min(memory/5, 256<<20, max(room/16, leastTable))),
		segmentLimit: cmp.Or(c.Sizes.Segment, min(memory/4, maxSegment, max(room/16, minSegment))),
		runLimit:     cmp.Or(c.Sizes.Run, min(memory/16, maxRun, max(room/64, leastStep))),
		segs:         map[uint32]*segment{},
		work:         make(chan struct{}, 1), merges: make(chan struct{}, 1),
		prepare: make(chan struct{}, 1), warm: make(chan struct{}, 1),
		stop: make(chan struct{}),
	}
	d.reclaim.d = d
	caps := Describe()
	caps.LossWindow = max(c.SyncEvery, 0)
	caps.Settings = append(d.settings(), holdfast.Setting{Name: "memory", Value: fmt.Sprint(c.Memory)})
	if c.ReadOnly {
		caps = caps.ForReading()
	}
	d.Init(d, caps, c.Dir)
	d.watch = newWatch(c.Logger)
	d.log.fs, d.log.dir, d.log.watch, d.log.check = c.FS, c.Dir, d.watch, c.Check
	d.log.onFail = func(error) {
		d.save()
		// Writers that wait for a flush must learn of it. The caller may hold the lock.
		go func() {
			d.mu.Lock()
			d.changed.Broadcast()
			d.mu.Unlock()
		}()
	}
	d.farLeast = int(min(max(d.tableLimit/farShare, 1), mostFar))
	d.changed.L = &d.mu
	d.pool = memtable.NewPool(int(min(max(d.tableLimit/16, 1<<10), 1<<20)), int(d.tableLimit/2))
	// It gets what the memtables leave, but for a quarter: merges and scans have buffers.
	d.cache = run.NewCache(max((memory-(maxImm+1)*d.tableLimit)*3/4, memory/8))
	m, err := d.load(c)
	if err != nil {
		return nil, err
	}
	d.window = losswindow.New(c.SyncEvery, func() error {
		if d.log.synced.Load() == d.log.appended.Load() {
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
		d.background(isMerging, d.merges, d.reclaim.mergeOnce)
		d.background(isPreparing, d.prepare, d.prepareNext)
		d.background(isReadingAhead, d.warm, d.warmAhead)
		d.mu.Lock()
		if d.view.Load().mem.deletes > 0 {
			d.reclaim.armTidy()
		}
		d.mu.Unlock()
		d.wake(d.work)
		d.wake(d.merges)
		d.wake(d.prepare)
	}
	return d, nil
}

// leastTable is the least memtable in bytes on a small disk.
const leastTable = 1 << 20

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
		v.release()
	}
	for _, id := range d.segmentIDs() { // in order: the same seed must do the same
		d.segs[id].release()
	}
}

// load reads the manifest, or writes the first one.
func (d *DB) load(c Config) (*manifest, error) {
	m, err := readManifest(c.FS, c.Dir)
	switch {
	case err != nil:
		return nil, err
	case m == nil && (!c.New || c.ReadOnly):
		return nil, corrupt(filepath.Join(c.Dir, manifestName), 0, "the file is missing", fs.ErrNotExist)
	case m == nil:
		m = &manifest{db: c.ID}
		if err := writeManifest(c.FS, c.Dir, m); err != nil {
			return nil, err
		}
	}
	d.id = m.db
	d.nextFile, d.nextTier, d.from = m.nextFile, m.nextTier, m.from
	d.promised = m.synced
	return m, nil
}

// recover opens what the manifest names, replays the log behind it, and removes what belongs to
// neither: what was being made when the database was last open.
func (d *DB) recover(m *manifest) error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return ioError("open", d.dir, err)
	}
	segFiles, runFiles := map[uint32]bool{}, map[uint64]bool{}
	for _, name := range names {
		if name == reserveName {
			if d.reserve.size, err = d.fs.Size(filepath.Join(d.dir, name)); err != nil {
				return ioError("open", filepath.Join(d.dir, name), err)
			}
		}
		if n, ok := numbered(name, ".seg"); ok && n <= math.MaxUint32 {
			segFiles[uint32(n)] = true
			d.nextFile = max(d.nextFile, n)
		}
		if n, ok := numbered(name, ".run"); ok && n <= math.MaxUint32 { // no other file is ours
			runFiles[n] = true
			d.nextFile = max(d.nextFile, n)
		}
	}
	for _, s := range m.segs {
		seg, err := openSegment(d.fs, d.dir, d.id, s.id, d.noMap)
		if err != nil {
			return err
		}
		seg.free = d.freeSegment
		d.segs[s.id] = seg
		if seg.used.Load() < s.size {
			return corrupt(seg.file.Name(), seg.used.Load(),
				fmt.Sprintf("the file has been cut short: it had %d bytes", s.size), nil)
		}
		seg.used.Store(s.size)
		seg.payload.Store(s.payload)
	}
	files := map[uint64]*runFile{}
	fail := func(err error) error {
		for _, id := range slices.Sorted(maps.Keys(files)) {
			files[id].r.Close()
		}
		return err
	}
	var tiers []tier
	for _, mt := range m.tiers {
		t := tier{id: mt.id}
		for _, mr := range mt.refs {
			f := files[mr.run]
			if f == nil {
				if f, err = d.loadRun(mr.run); err != nil {
					return fail(err)
				}
				files[mr.run] = f
			}
			r := newRef(f, mr.lo, mr.hi)
			if len(t.refs) > 0 && !t.refs[len(t.refs)-1].endsBefore(r.lo) {
				return fail(corrupt(d.manifestPath(), 0, fmt.Sprintf("runs overlap in tier %d", t.id), nil))
			}
			t.refs = append(t.refs, r)
		}
		tiers = append(tiers, t)
	}
	// Runs may name the segment in which the replay begins.
	if m.from.seg != 0 && d.segs[m.from.seg] == nil {
		s, err := openSegment(d.fs, d.dir, d.id, m.from.seg, d.noMap)
		if err != nil {
			return fail(err)
		}
		s.free = d.freeSegment
		s.payload.Store(max(m.from.off-segmentHeader, 0))
		d.segs[s.id] = s
	}
	for _, f := range files {
		for _, u := range f.info.Segments {
			if d.segs[u.ID] == nil {
				return fail(corrupt(runName(d.dir, f.id), 0,
					fmt.Sprintf("it names segment %d, which the manifest does not", u.ID), nil))
			}
		}
	}
	ver := newVersion(tiers, func(id uint32) *segment { return d.segs[id] })
	defer ver.release()
	mem := newTable(d.pool, m.from)
	defer mem.release()
	d.publish(mem, nil, ver)

	// Until this manifest's name is durable, a power cut may bring back the one before it, which names files that this one
	// does not.
	if !d.readOnly {
		if err := d.fs.SyncDir(d.dir); err != nil {
			return ioError("sync", d.dir, err)
		}
	}
	// The replay may need the room that runs take which nothing names.
	for _, id := range slices.Sorted(maps.Keys(runFiles)) {
		if files[id] == nil && !d.readOnly {
			d.remove(runName(d.dir, id))
		}
	}
	if err := d.replay(m, segFiles); err != nil {
		return err
	}

	for _, id := range slices.Sorted(maps.Keys(segFiles)) {
		if d.segs[id] == nil && !d.readOnly {
			d.remove(segmentName(d.dir, id))
		}
	}
	return nil
}

func (d *DB) loadRun(id uint64) (*runFile, error) {
	r, err := d.openRun(id)
	if err != nil {
		return nil, err
	}
	info := r.Info()
	if info.Entries == 0 {
		r.Close()
		return nil, corrupt(runName(d.dir, id), 0, "it is empty", nil)
	}
	return &runFile{id: id, r: r, info: info, free: d.freeRun}, nil
}

// replay reads the log from where the runs end, and makes sure that what it found survives power
// loss, as everything that is read must before more is built on it.
//
// The log goes from segment to segment: a full one ends with a frame that names the next. One that
// was the last when the program stopped has none, and the next says that it goes on from there. The
// first frame that is not whole ends the log. It was torn off by a crash, unless something says
// that it had been synced: the manifest, or a later frame.
func (d *DB) replay(m *manifest, segFiles map[uint32]bool) error {
	at := m.from
	d.lsn, d.seq = at.lsn, at.seq
	d.prev = at.seg
	var replayed []*segment
	var torn *tear
	var later []uint32 // segments that may follow, in order
	for id := range segFiles {
		if id > at.seg && (d.segs[id] == nil) {
			later = append(later, id)
		}
	}
	slices.Sort(later)

	seg := d.segs[at.seg]
	if at.seg == 0 {
		seg = nil
	}
	var named successor // what the last frame said comes next
	for {
		if seg == nil {
			next, err := d.follows(later, at, named)
			if err != nil {
				return err
			}
			if next == nil {
				break
			}
			seg = next
			d.segs[seg.id] = seg
			at.seg, at.off = seg.id, segmentHeader
			seg.start, seg.baseSeq = at.lsn, at.seq
		} else {
			seg.start = at.lsn - uint64(max(at.off-segmentHeader, 0))
		}
		replayed = append(replayed, seg)
		d.prev = seg.id
		var err error
		if named, torn, err = d.replaySegment(seg, &at, &replayed); err != nil {
			return err
		}
		for len(later) > 0 && later[0] <= seg.id {
			later = later[1:]
		}
		d.lastSize = min(seg.used.Load(), d.segmentLimit)
		seg = nil
		if named.id != 0 {
			continue // a replay that began behind the last frame would not know what it names
		}
		if err := d.spill(&at, &replayed); err != nil {
			return err
		}
	}
	if at.lsn < m.synced {
		return endsEarly(d.dir, at, m.synced, torn)
	}
	if err := d.checkTear(torn, at, later); err != nil {
		return err
	}
	if err := d.syncReplayed(replayed, at); err != nil {
		return err
	}
	if s := d.segs[at.seg]; s != nil {
		s.used.Store(max(at.off, segmentHeader))
	}
	if !d.readOnly {
		if err := d.trim(m.from); err != nil {
			return err
		}
	}
	d.visible.Store(d.seq)
	// Each time that a database is opened and written to, its log gets another segment. If many are to be read, those in
	// runs need not be read again.
	if len(replayed) > maxReplayedSegments && !d.view.Load().mem.empty() {
		d.mu.Lock()
		d.rotateTable()
		d.mu.Unlock()
	}
	return nil
}

// maxReplayedSegments is how many segments of the log are read at opening before the memtable is flushed for their
// sake.
const maxReplayedSegments = 8

// syncReplayed makes durable what was read. A sync alone would not do: after one that failed, the
// system may show what is not on the disk, and not write it at the next.
func (d *DB) syncReplayed(replayed []*segment, at position) error {
	if d.readOnly {
		return nil
	}
	for _, s := range replayed {
		if err := d.writeAgain(s); err != nil {
			return err
		}
	}
	if err := d.fs.SyncDir(d.dir); err != nil {
		return ioError("sync", d.dir, err)
	}
	d.log.appended.Store(at.lsn)
	d.log.written.Store(at.lsn)
	d.log.synced.Store(at.lsn)
	return nil
}

// trim gives back what was reserved for the last segment of a program that was killed, or of several: nothing will
// ever be written there. What a crash tore stays. It is called when nothing behind the frames is looked at any
// more.
func (d *DB) trim(from position) error {
	for _, id := range d.segmentIDs() {
		s := d.segs[id]
		end := s.used.Load() + s.torn
		size, err := s.file.Size()
		if err != nil {
			return ioError("read", s.file.Name(), err)
		}
		// A file that was cut in the padding of its last frame is lengthened: its frames are said to reach to there.
		if s.kind != kindLog || id < from.seg || size >= end && size-end < leastTrim {
			continue
		}
		f, err := d.fs.OpenWrite(s.file.Name())
		if err != nil {
			return ioError("open", s.file.Name(), err)
		}
		if err := errors.Join(f.Truncate(end), f.Close()); err != nil {
			return ioError("truncate", s.file.Name(), err)
		}
	}
	return nil
}

// leastTrim is what is worth it, in bytes. A full segment has less left, and its file can be used again as it is.
const leastTrim = 64 << 10

// writeAgain writes again what a segment's file shows, but for what is known to have been synced, and syncs it.
// Where an acknowledged frame is among it, each byte is overwritten with itself: whether a power cut then
// leaves the old bytes or the new ones, they are the same.
func (d *DB) writeAgain(s *segment) (err error) {
	name := s.file.Name()
	f, err := d.fs.OpenWrite(name) // s has it open for reading, which is not enough to sync it everywhere
	if err != nil {
		return ioError("open", name, err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = ioError("close", name, e)
		}
	}()
	off, end := int64(0), s.used.Load()
	if s.start < d.promised {
		off = segmentHeader + int64(d.promised-s.start)
	}
	b := make([]byte, min(max(end-off, 0), 1<<20))
	for off < end {
		n, err := f.ReadAt(b[:min(end-off, int64(len(b)))], off)
		if n == 0 && err == io.EOF {
			break // the file was cut in the padding of its last frame
		}
		if n == 0 {
			return ioError("read", name, err)
		}
		if _, err := f.WriteAt(b[:n], off); err != nil {
			return ioError("write", name, err)
		}
		off += int64(n)
	}
	d.otherSyncs.Add(1)
	if err := f.Sync(); err != nil {
		return ioError("sync", name, err)
	}
	return nil
}

// spill flushes the memtable that the replay fills when it is full.
func (d *DB) spill(at *position, replayed *[]*segment) error {
	v := d.view.Load()
	if v.mem.weight() < d.tableLimit {
		return nil
	}
	if err := d.syncReplayed(*replayed, *at); err != nil {
		return err
	}
	*replayed = (*replayed)[len(*replayed)-1:] // there may be more in it
	d.promised = max(d.promised, at.lsn)
	d.mu.Lock()
	d.visible.Store(d.seq)
	d.rotateTable()
	d.mu.Unlock()
	if d.readOnly {
		return nil
	}
	_, err := d.flush()
	if noRoom(err) {
		// It was in memory when it was written, so it can be again; once Open has removed what is left over, there
		// may be room.
		d.logger.Warn("no room to flush what the log holds", "error", err)
		return nil
	}
	return err
}

// follows opens the segment that the log goes on in, nil if there is none.
func (d *DB) follows(later []uint32, at position, named successor) (*segment, error) {
	if named.id != 0 {
		s, err := openSegment(d.fs, d.dir, d.id, named.id, d.noMap)
		if err == nil {
			s.free = d.freeSegment
			return s, nil
		}
		if named.durable || !errors.Is(err, holdfast.ErrCorrupt) {
			return nil, err
		}
		// It did not come to be synced; checkTear looks at what is left of it. If the log has been opened
		// since, it went on in another one.
	}
	for _, id := range later {
		s, err := openSegment(d.fs, d.dir, d.id, id, d.noMap)
		if errors.Is(err, holdfast.ErrCorrupt) {
			continue // checkTear looks at it
		}
		if err != nil {
			return nil, err
		}
		s.free = d.freeSegment
		b, ok, err := s.readBegin()
		if ok && s.kind == kindLog && b.prev == at.seg && b.lsn == at.lsn && b.seq == at.seq {
			return s, nil
		}
		s.release()
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// readBegin reads a segment's first frame; it returns false if there is no whole one.
func (s *segment) readBegin() (_ begin, ok bool, err error) {
	b := make([]byte, beginSize)
	if n, err := s.file.ReadAt(b, segmentHeader); n < len(b) {
		if err != io.EOF {
			return begin{}, false, ioError("read", s.file.Name(), err)
		}
		return begin{}, false, nil
	}
	f, ok := parseFrame(b, s.epoch)
	if !ok {
		return begin{}, false, nil
	}
	first, ok := parseBegin(f)
	return first, ok, nil
}

// tear is where a segment's frames end, and what follows.
type tear struct {
	seg   *segment
	off   int64
	start uint64
	rest  []byte
}

// replaySegment reads the frames of a segment from at on. It returns the segment that the last of
// them names, or what follows where there is no whole frame.
func (d *DB) replaySegment(s *segment, at *position, replayed *[]*segment) (named successor, torn *tear, err error) {
	size, err := s.file.Size()
	if err != nil {
		return named, nil, ioError("read", s.file.Name(), err)
	}
	name := s.file.Name()
	if at.off > size {
		return named, nil, corrupt(name, size, "the file has been cut short", nil)
	}
	from := at.off
	if from == 0 {
		from, at.off = segmentHeader, segmentHeader
	}
	if from > segmentHeader {
		b, ok, err := s.readBegin()
		if err != nil {
			return named, nil, err
		}
		if !ok {
			return named, nil, corrupt(name, segmentHeader, "the first frame is damaged", nil)
		}
		s.baseSeq = b.seq
	}
	data := make([]byte, size-from)
	if n, err := s.file.ReadAt(data, from); err != nil && (err != io.EOF || n < len(data)) {
		return named, nil, readError(name, from+int64(n), err)
	}
	mem := d.view.Load().mem
	for pos := 0; ; {
		f, ok := parseFrame(data[pos:], s.epoch)
		if !ok {
			s.used.Store(at.off)
			s.torn = tornBytes(data[pos:], at.off-segmentHeader, s.epoch)
			d.torn.Store(s.torn)
			return named, &tear{s, at.off, s.start, data[pos:]}, nil
		}
		n := f.size() // the file may have been cut in its padding
		bad := func(detail string) (successor, *tear, error) {
			return named, nil, corrupt(name, at.off, detail, nil)
		}
		ops := 0
		switch f.kind {
		case frameBegin:
			b, ok := parseBegin(f)
			if !ok || at.off != segmentHeader || b.seq != at.seq || b.lsn != at.lsn {
				return bad("the segment does not follow the one before it")
			}
			s.baseSeq, s.start = b.seq, b.lsn
		case frameEnd:
			if named, ok = parseEnd(f); !ok {
				return bad("the last frame makes no sense")
			}
			// Even if that segment is lost: another of this number would be taken for it.
			d.nextFile = max(d.nextFile, uint64(named.id))
		default:
			if at.off == segmentHeader || s.baseSeq+uint64(f.seq) != at.seq {
				return bad("the frame does not follow the one before it")
			}
			if ops, err = checkBody(f.body); err != nil {
				return bad(err.Error())
			}
		}
		if synced, ok := f.synced(at.lsn); ok {
			d.promised = max(d.promised, synced)
		}
		if f.kind == frameBatch && ops > 0 {
			d.indexReplayed(mem, s, at, f.body, ops)
		}
		pos = min(pos+n, len(data))
		at.off += int64(n)
		at.lsn += uint64(n)
		at.seq += uint64(ops)
		d.lsn, d.seq = at.lsn, at.seq
		if named.id != 0 {
			s.ended = true
			s.used.Store(min(at.off, size))
			return named, nil, nil
		}
		if mem.weight() > d.tableLimit && f.kind == frameBatch {
			s.used.Store(at.off)
			if err := d.spill(at, replayed); err != nil {
				return named, nil, err
			}
			mem = d.view.Load().mem
		}
	}
}

// indexReplayed puts a batch that has been read from position at into the memtable: large values stay in the log, the
// others are copied.
func (d *DB) indexReplayed(mem *table, s *segment, at *position, body []byte, ops int) {
	if f, _ := d.newFar(body, ops); f != nil {
		mem.far += int64(frameSize(len(body)))
		_, payload := mem.addFar(s, at.off+frameHeader, body, f.sums, at.seq+1)
		s.payload.Add(payload)
		f.recycle()
		return
	}
	addr, own := mem.reserve(s.id, at.off+frameHeader, len(body))
	copy(own, body)
	_, payload := mem.add(addr, own, at.seq+1)
	s.payload.Add(payload)
}

// tornBytes is how much of b, which does not begin with a whole frame, may be frames that a crash tore. What else is
// there belongs to an earlier life of the file.
func tornBytes(b []byte, before int64, epoch uint32) int64 {
	if len(b) < frameHeader {
		return extent(b)
	}
	torn := int64(0)
	if word := binary.LittleEndian.Uint32(b[4:]); word&3 != 0 {
		torn = min(int64(frameSize(int(word>>2))), extent(b))
	}
	for _, f := range framesIn(b, before, epoch) {
		torn = max(torn, int64(f.at+f.size()))
	}
	return torn
}

// extent is the length of b without the zeros at its end.
func extent(b []byte) int64 { return int64(len(bytes.TrimRight(b, "\x00"))) }

// checkTear returns ErrCorrupt if something behind the end of the log says that more than was found
// had been synced.
func (d *DB) checkTear(t *tear, at position, later []uint32) error {
	if t != nil {
		end := t.start + uint64(t.off-segmentHeader)
		for _, f := range framesIn(t.rest, t.off-segmentHeader, t.seg.epoch) {
			lsn := end + uint64(f.at)
			if synced, ok := f.synced(lsn); ok && synced > end {
				return corrupt(t.seg.file.Name(), t.off,
					fmt.Sprintf("a frame is damaged that had been synced: one at byte %d says so", t.off+int64(f.at)), nil)
			}
		}
	}
	for _, id := range later {
		name := segmentName(d.dir, id)
		b, err := readFile(d.fs, name)
		if err != nil {
			return readError(name, 0, err)
		}
		s := &segment{epoch: d.id.epoch(id)}
		if len(b) < segmentHeader {
			continue
		}
		if err := s.parseHeader(b, d.id, id, name); err == nil && s.kind != kindLog {
			continue // moved values that no run came to name
		}
		begins, start := false, uint64(0) // where in the log, if its first frame is whole
		for _, f := range framesIn(b[segmentHeader:], 0, s.epoch) {
			if g, ok := parseBegin(f.frame); ok && f.at == 0 {
				begins, start = true, g.lsn
			}
			// A sync that was under way when the segment was begun is known to its later frames only.
			if synced, ok := f.synced(start + uint64(f.at)); ok && begins && synced > at.lsn {
				return corrupt(segmentName(d.dir, max(at.seg, 1)), at.off,
					fmt.Sprintf("the log ends before what segment %d says had been synced", id), nil)
			}
			if own, ok := f.synced(uint64(f.at)); ok && own > 0 {
				return corrupt(name, segmentHeader,
					fmt.Sprintf("a frame at byte %d says that the segment had been synced, but the log does not reach it",
						segmentHeader+f.at), nil)
			}
		}
	}
	return nil
}

// found is a frame and its offset in what was searched.
type found struct {
	frame
	at int
}

// mayBeFrame reports whether b, before which its segment has so many bytes of frames, can begin with a frame. Bytes of
// values look like the header of a long one often enough for summing them all up to take minutes; few have a
// number of operations that fits into what is before them, with three bytes or more each.
func mayBeFrame(b []byte, before int64) bool {
	return b[4]&3 != 0 && int64(binary.LittleEndian.Uint32(b[8:])) <= before/3
}

// framesIn looks for whole frames anywhere in b, before which the segment has so many bytes of frames.
func framesIn(b []byte, before int64, epoch uint32) (all []found) {
	search := frameSearch{b: b, epoch: epoch}
	for at := 0; at+frameHeader <= len(b); {
		if mayBeFrame(b[at:], before+int64(at)) {
			if f, ok := search.at(at); ok {
				all = append(all, found{f, at})
				at += f.size()
				continue
			}
		}
		at += frameAlign
	}
	return all
}

// frameSearch parses frames at many places of one text. Bytes of values can look like the headers of long frames at
// all of them (numbers of 8 bytes do), and summing up what each would hold could take hours. So sums of what is
// before every sumEvery-th byte are kept, of which that of any stretch follows.
type frameSearch struct {
	b     []byte
	epoch uint32
	sums  []uint32 // sums[i] is that of the first i*sumEvery bytes; nil until it is needed
}

const sumEvery = 64

// at returns the whole frame that begins at an offset, if one does.
func (s *frameSearch) at(off int) (frame, bool) {
	from := off + frameHeader
	if from > len(s.b) {
		return frame{}, false
	}
	n := int(binary.LittleEndian.Uint32(s.b[off+4:]) >> 2)
	if n > len(s.b)-from {
		return frame{}, false
	}
	if n > 16*sumEvery {
		// Joining is its own inverse.
		sum := crcJoin(s.before(from), s.before(from+n), n)
		if crcUpdate(sum, s.b[off+4:from])^s.epoch != binary.LittleEndian.Uint32(s.b[off:]) {
			return frame{}, false
		}
	}
	return parseFrame(s.b[off:], s.epoch)
}

// before returns the sum of the first n bytes.
func (s *frameSearch) before(n int) uint32 {
	if s.sums == nil {
		s.sums = make([]uint32, 1, len(s.b)/sumEvery+1)
		for i := 0; i+sumEvery <= len(s.b); i += sumEvery {
			s.sums = append(s.sums, crcUpdate(s.sums[len(s.sums)-1], s.b[i:i+sumEvery]))
		}
	}
	i := n / sumEvery
	return crcUpdate(s.sums[i], s.b[i*sumEvery:n])
}

// segmentIDs are those of all open segments, in order.
func (d *DB) segmentIDs() []uint32 { return slices.Sorted(maps.Keys(d.segs)) }
