package db

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
)

// flush turns the oldest full memtable into runs, and reports whether there was one. It is called
// from one goroutine at a time, but for databases opened with Config.Manual by any.
func (d *DB) flush() (bool, error) {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	v := d.latest().view
	defer v.release()
	if len(v.imm) == 0 {
		return false, nil
	}
	t := v.imm[len(v.imm)-1]
	// A run must not be in use that names what a power cut can take away. The log is synced while the
	// run is written.
	var syncing sync.WaitGroup
	var syncErr error
	if d.manual {
		syncErr = d.log.syncTo(t.end.lsn)
	} else {
		syncing.Go(func() { syncErr = d.log.syncTo(t.end.lsn) })
	}
	out := d.newOutput()
	err := d.writeTable(out, t, v.ver)
	syncing.Wait()
	if err = errors.Join(err, syncErr); err != nil {
		out.abandon()
		return false, d.roomless(err)
	}
	d.edit.Lock()
	defer d.edit.Unlock()
	tiers := d.view.Load().ver.copyTiers()
	if ts := t.tombs.Load(); !ts.empty() {
		tiers = deleteRanges(tiers, ts)
		if d.merging != nil {
			d.merging.tombs = append(d.merging.tombs, ts)
		}
	}
	for _, f := range out.files {
		if tiers, err = d.placeRun(tiers, newRef(f, nil, nil)); err != nil {
			return false, err
		}
	}
	if err := d.install(tiers, t.end, t, nil); err != nil {
		return false, err
	}
	d.wake(d.merges)
	return true, nil
}

// flushIfRoom is flush, but where there is no room it does nothing: as long as no writer needs the memory, there may be some later.
func (d *DB) flushIfRoom() (bool, error) {
	did, err := d.flush()
	if err != nil && !noRoom(err) {
		return did, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck = err
	if err != nil {
		d.logger.Warn("no room to flush a memtable", "error", err)
		d.changed.Broadcast()
	}
	return did, nil
}

// roomError is the error of work that found no room and has undone what it did: it can be tried again.
type roomError struct{ error }

func (e *roomError) Unwrap() error { return e.error }

// roomless makes a roomError of err if it says that the disk is full, or the user's share of it.
func (d *DB) roomless(err error) error {
	if (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && d.log.err() == nil {
		return &roomError{err}
	}
	return err
}

func noRoom(err error) bool {
	_, ok := err.(*roomError)
	return ok
}

// writeTable writes the newest versions of a memtable's keys. What a range delete of the same
// memtable covers is left out, and so are tombstones of keys that no run can have.
//
// Keys that lie where no run has any go to files of their own, so that they can be linked to the
// oldest tier: that is how ascending keys are never rewritten.
func (d *DB) writeTable(out *output, t *table, ver *version) error {
	ts := t.tombs.Load()
	border := borders{ver: ver}
	at := placer{t: t}
	it := t.index.Iter(math.MaxUint64)
	for ok := it.First(); ok; ok = it.Next() {
		v := it.Version()
		if ts.covers(v.Key) > v.Seq {
			continue
		}
		inside, crossed, err := border.pass(v.Key)
		if err != nil {
			return err
		}
		if crossed && out.size() >= minPiece {
			if err := out.finish(); err != nil {
				return err
			}
		}
		var e run.Entry
		if v.Kind == holdfast.KindDelete {
			if !inside {
				continue
			}
			e.Tombstone = true
		} else if v.Far {
			e = run.Entry{Place: v.Place.At, Len: v.Place.Len, Sum: v.Place.Sum}
		} else {
			e = run.Entry{Place: at.of(v.ValueAddr), Len: uint32(len(v.Value)), Sum: checksum(v.Value)}
		}
		if err := out.add(v.Key, e); err != nil {
			return err
		}
	}
	return out.close()
}

// minPiece is the least size in bytes of a run that is made only to be linked.
const minPiece = 16 << 10

// borders follows ascending keys through the refs of a version.
type borders struct {
	ver    *version
	began  bool
	inside bool   // the last key lies among keys of a ref
	next   []byte // where that can change, nil: nowhere
	after  bool   // it changes after next, not at it
	keys   int    // passed
	probes int    // of runs
}

// A key between the first and the last of a run may still lie in a gap that many keys fit in: that
// of a sequence, say, beside one key of another kind behind it. Looking into the run tells; it is
// done for one key in maxProbes, besides the first few.
const (
	freeProbes = 32
	maxProbes  = 64
)

// pass goes on to key. It reports whether key lies among the keys of a ref of any tier, and whether
// a run from the last key to this one should be split: because they lie on both sides of a border
// between refs and free space, or in free space with a ref between them.
func (b *borders) pass(key []byte) (inside, crossed bool, err error) {
	b.keys++
	if b.began {
		if b.next == nil {
			return b.inside, false, nil
		}
		if c := bytes.Compare(key, b.next); c < 0 || c == 0 && b.after {
			return b.inside, false, nil
		}
	}
	began, was := b.began, b.inside
	b.began, b.inside, b.next, b.after = true, false, nil, false
	for i := range b.ver.tiers {
		t := &b.ver.tiers[i]
		k := t.find(key)
		if k == len(t.refs) {
			continue
		}
		r := &t.refs[k]
		in := bytes.Compare(r.lo, key) <= 0
		border, after := r.lo, false
		if in {
			border, after = r.last, !r.cutHi
			if b.probes < freeProbes+b.keys/maxProbes {
				b.probes++
				next, ok, err := r.firstFrom(key)
				if err != nil {
					return false, false, err
				}
				if in = ok && bytes.Equal(next, key); !in && ok {
					border, after = next, false
				}
			}
		}
		b.inside = b.inside || in
		if c := bytes.Compare(border, b.next); b.next == nil || c < 0 || c == 0 && !after {
			b.next, b.after = border, after
		}
	}
	return b.inside, began && !(was && b.inside), nil
}

// output writes entries to runs of limited size.
type output struct {
	d     *DB
	w     *run.Writer
	file  *runFile // of w
	name  string
	files []*runFile
	maxed int64
}

func (d *DB) newOutput() *output { return &output{d: d, maxed: d.runLimit} }

func (o *output) size() int64 {
	if o.w == nil {
		return 0
	}
	return o.w.Size()
}

func (o *output) add(key []byte, e run.Entry) error {
	if o.w != nil && o.w.Size() >= o.maxed {
		if err := o.finish(); err != nil {
			return err
		}
	}
	if o.w == nil {
		d := o.d
		d.mu.Lock()
		n, err := d.number()
		d.mu.Unlock()
		if err != nil {
			return err
		}
		id := uint64(n)
		name := runName(d.dir, id)
		d.fs.Remove(name)
		f, err := d.fs.Create(name)
		if err != nil {
			return ioError("create", name, err)
		}
		o.name = name
		o.file = &runFile{id: id, raw: f, free: d.freeRun}
		o.w = run.NewWriter(f, run.Identity{DB: d.id, ID: id})
	}
	if err := o.w.Add(key, e); err != nil {
		return ioError("write", o.name, err)
	}
	return nil
}

// finish completes the present run.
func (o *output) finish() error {
	if o.w == nil {
		return nil
	}
	info, err := o.w.Finish(0)
	if err != nil {
		return ioError("write", o.name, err)
	}
	o.d.otherSyncs.Add(1)
	o.d.otherBytes.Add(info.FileBytes)
	f := o.file
	r, err := o.d.openRun(f.id)
	if err != nil {
		return err
	}
	_ = f.raw.Close() // what was written is synced
	f.r, f.info, f.raw = r, r.Info(), nil
	o.files = append(o.files, f)
	o.w, o.file = nil, nil
	return nil
}

// close completes the last run and makes the names durable.
func (o *output) close() error {
	if err := o.finish(); err != nil {
		return err
	}
	if len(o.files) == 0 {
		return nil
	}
	o.d.otherSyncs.Add(1)
	if err := o.d.fs.SyncDir(o.d.dir); err != nil {
		return ioError("sync", o.d.dir, err)
	}
	return nil
}

// abandon removes what was written, after a failure.
func (o *output) abandon() {
	if o.file != nil {
		o.file.raw.Close()
		o.d.remove(o.name)
	}
	for _, f := range o.files {
		f.r.Close()
		o.d.remove(runName(o.d.dir, f.id))
	}
}

func (d *DB) openRun(id uint64) (*run.Reader, error) {
	return run.Open(d.fs, runName(d.dir, id), run.Identity{DB: d.id, ID: id}, d.cache)
}

// placeRun adds a run to the oldest tier that it fits in: it must have no key among those of that tier
// or a newer one, nor lie where a merge in progress may put something. A ref that has keys on both
// sides of it, but none between, is split.
func (d *DB) placeRun(tiers []tier, r ref) ([]tier, error) {
	s := r.span()
	at := -1
	for i := range tiers {
		if d.merging.occupies(tiers[i].id, s) {
			break
		}
		free, err := tiers[i].free(s)
		if err != nil {
			return nil, err
		}
		if !free {
			break
		}
		at = i
	}
	if at < 0 {
		d.nextTier++
		return slices.Insert(tiers, 0, tier{d.nextTier, []ref{r}}), nil
	}
	if err := tiers[at].split(s); err != nil {
		return nil, err
	}
	tiers[at].insert(r)
	return tiers, nil
}

// install makes tiers the present version, with the log from there on beside them: it writes the
// manifest, publishes a view without the memtable flushed, if any, and gives up what is not
// needed any more. moved are new segments that the tiers refer to. It is called with edit held.
func (d *DB) install(tiers []tier, from position, flushed *table, moved []*segment) error {
	if t := overlapping(tiers); t != nil {
		// Nobody could open what such a manifest describes.
		return fmt.Errorf("runs overlap in tier %d: this is a bug in %s", t.id, Name)
	}
	old := d.view.Load().ver // only we replace it
	d.mu.Lock()
	for _, s := range moved {
		d.segs[s.id] = s
	}
	d.mu.Unlock()
	ver := newVersion(tiers, func(id uint32) *segment {
		if s := old.segment(id); s != nil {
			return s
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.segs[id]
	})
	defer ver.release() // the view has it
	if err := d.saveManifest(tiers, from); err != nil {
		return err
	}
	d.from = from
	live := map[*runFile]bool{}
	for _, f := range ver.files {
		live[f] = true
	}
	for _, f := range old.files {
		if !live[f] {
			f.dead.Store(true)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	imm := v.imm
	if flushed != nil {
		imm = imm[: len(imm)-1 : len(imm)-1]
	}
	d.publish(v.mem, imm, ver)
	for _, id := range d.segmentIDs() {
		s := d.segs[id]
		// A merge may write runs with values in segments that nothing else needs any more.
		if ver.segment(id) == nil && (s.kind == kindMoved || id < from.seg) && !d.merging.reads(id) {
			delete(d.segs, id)
			s.dead.Store(true)
			s.release()
		}
	}
	d.debt.Store(d.measureDebt(ver))
	d.changed.Broadcast()
	return nil
}

// measureDebt says how far reclaim is behind: for each paceBytes of log, by how many milliseconds
// writers are to be slowed down. What is alive is estimated by what the oldest tier names.
func (d *DB) measureDebt(ver *version) int64 {
	if len(ver.tiers) == 0 {
		return 0
	}
	var segs, live int64
	for _, s := range ver.segs {
		segs += s.used.Load()
	}
	t := &ver.tiers[len(ver.tiers)-1]
	seen := map[*runFile]bool{}
	for i := range t.refs {
		if f := t.refs[i].file; !seen[f] {
			seen[f] = true
			live += valueBytes(f)
		}
	}
	over := float64(segs-2*d.segmentLimit)/float64(max(live, 1)) - startPacing
	return int64(min(max(over*pacing, 0), maxPause))
}

// A log of startPacing times what is alive is as much as reclaim is happy with; writers are slowed
// down more the longer it is.
const (
	startPacing = 1.28
	pacing      = 20 // milliseconds per paceBytes for each time that the log is longer
	maxPause    = 10 // milliseconds
	paceBytes   = 64 << 10
)

// saveManifest writes the manifest for those tiers. It is called with edit held.
func (d *DB) saveManifest(tiers []tier, from position) error {
	m := &manifest{db: d.id, nextTier: d.nextTier, from: from}
	need := map[uint32]bool{}
	for _, t := range tiers {
		mt := manifestTier{id: t.id}
		for i := range t.refs {
			r := &t.refs[i]
			for _, u := range r.file.info.Segments {
				need[u.ID] = true
			}
			mr := manifestRef{run: r.file.id, hi: r.hi}
			if !bytes.Equal(r.lo, r.file.info.Smallest) {
				mr.lo = r.lo
			}
			mt.refs = append(mt.refs, mr)
		}
		m.tiers = append(m.tiers, mt)
	}
	d.mu.Lock()
	m.nextFile = d.nextFile
	for id, s := range d.segs {
		// What is not needed any more is removed once the manifest does not name it.
		if need[id] && (s.kind == kindMoved || id < from.seg) {
			m.segs = append(m.segs, manifestSegment{id: id, size: s.used.Load(), payload: s.payload.Load()})
		}
	}
	d.mu.Unlock()
	slices.SortFunc(m.segs, func(a, b manifestSegment) int { return int(int64(a.id) - int64(b.id)) })
	m.synced = max(d.log.synced.Load(), d.promised) // a replay may stop short of it yet
	d.otherSyncs.Add(2)
	if err := writeManifest(d.fs, d.dir, m); err != nil {
		return err
	}
	return nil
}

// manifestPath is for errors.
func (d *DB) manifestPath() string { return filepath.Join(d.dir, manifestName) }
