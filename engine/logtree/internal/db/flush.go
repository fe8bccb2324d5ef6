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

// flush turns the oldest full memtable into runs, and reports whether there was one. After an error, unless it is
// fatal, everything is as it was before. It is called from one goroutine at a time, but for databases opened with
// Config.Manual by any.
func (d *DB) flush() (bool, error) {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	v := d.latest().view
	defer v.release()
	if len(v.imm) == 0 {
		return false, nil
	}
	t := v.imm[len(v.imm)-1]
	// Range deletes of newer memtables cover what is flushed, too. They have to be as durable as the run is.
	newer, upto := []*rangeTombstones{v.mem.rangeTombstones.Load()}, t.end.lsn
	for _, x := range v.imm[:len(v.imm)-1] {
		newer = append(newer, x.rangeTombstones.Load())
	}
	if newer = slices.DeleteFunc(newer, (*rangeTombstones).empty); len(newer) > 0 {
		upto = d.log.appended.Load()
	}
	// A run must not be in use that names what a power cut can take away. The log is synced while the run is written.
	var syncing sync.WaitGroup
	var syncErr error
	if d.manual {
		syncErr = d.log.syncTo(upto)
	} else {
		syncing.Go(func() { syncErr = d.log.syncTo(upto) })
	}
	out := d.newOutput()
	err := d.writeTable(out, t, newer, v.ver)
	syncing.Wait()
	if err = errors.Join(err, syncErr); err != nil {
		out.abandon()
		return false, err
	}
	d.edit.Lock()
	defer d.edit.Unlock()
	tiers := d.view.Load().ver.copyTiers()
	nextTier := d.nextTier
	if ts := t.rangeTombstones.Load(); !ts.empty() {
		tiers = deleteRanges(tiers, ts)
		if d.reclaim.step != nil {
			d.reclaim.step.rangeTombstones = append(d.reclaim.step.rangeTombstones, ts)
		}
	}
	for _, f := range out.files {
		tiers = d.placeRun(tiers, newRef(f, nil, nil))
	}
	if err := d.install(tiers, t.end, t, nil); err != nil {
		if !isFatal(err) {
			d.nextTier = nextTier
			out.abandon()
		}
		return false, err
	}
	d.wake(d.merges)
	return true, nil
}

// flushOnce is flush in the background. If it cannot be done now, writers that wait for its memory learn of it: they
// are refused, and it is tried again.
func (d *DB) flushOnce() (did bool, err error) {
	for did, err = d.flush(); noRoom(err) && d.giveRoom(d.deletes()); {
		did, err = d.flush()
	}
	if isFatal(err) {
		return did, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stuck = err
	if err != nil {
		d.changed.Broadcast()
	}
	return did, err
}

// deletes reports whether a memtable holds deletes.
func (d *DB) deletes() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.view.Load()
	return v.mem.deletes > 0 || slices.ContainsFunc(v.imm, func(t *table) bool { return t.deletes > 0 })
}

// noRoom reports whether an error says that the disk is full, or the user's share of it, and nothing worse.
func noRoom(err error) bool {
	return (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && !isFatal(err)
}

// isTransient reports whether an error says that the process or the system is short of something, which passes.
func isTransient(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// isShortage reports whether an error says that there is not enough of something for now, and nothing worse.
func isShortage(err error) bool { return noRoom(err) || isTransient(err) && !isFatal(err) }

// fatal is an error after which it is not known which of two manifests is the durable one.
type fatal struct{ error }

func (e *fatal) Unwrap() error { return e.error }

func isFatal(err error) bool {
	var f *fatal
	return errors.As(err, &f)
}

// writeTable writes the newest versions of a memtable's keys. What a range delete of the same
// memtable or a newer one covers is left out, and so are tombstones of keys that no run can have.
//
// Keys that lie where no run has any go to files of their own, so that they can be linked to the
// oldest tier: that is how ascending keys are never rewritten.
func (d *DB) writeTable(out *output, t *table, newer []*rangeTombstones, ver *version) error {
	ts := t.rangeTombstones.Load()
	border := borders{ver: ver}
	at := placer{t: t}
	it := t.index.Iter(math.MaxUint64)
	for ok := it.First(); ok; ok = it.Next() {
		v := it.Version()
		if ts.covers(v.Key) > v.Seq ||
			slices.ContainsFunc(newer, func(ts *rangeTombstones) bool { return ts.find(v.Key) != nil }) {
			continue
		}
		inside, crossed := border.pass(v.Key)
		if crossed && out.size() >= minLinkedRun {
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

// minLinkedRun is the least size in bytes of a run that is made only to be linked.
const minLinkedRun = 16 << 10

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
// for example of a sequence that one key of another kind follows. Looking into the run tells; it is
// done for the first few keys, and then for one in maxProbes.
const (
	freeProbes = 32
	maxProbes  = 64
)

// pass goes on to key. It reports whether key lies among the keys of a ref of any tier, and whether
// a run from the last key to this one should be split: because they lie on both sides of a border
// between refs and free space, or in free space with a ref between them.
func (b *borders) pass(key []byte) (inside, crossed bool) {
	b.keys++
	if b.began {
		if b.next == nil {
			return b.inside, false
		}
		if c := bytes.Compare(key, b.next); c < 0 || c == 0 && b.after {
			return b.inside, false
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
				// What cannot be read may have the key.
				if next, ok, err := r.firstFrom(key); err == nil {
					if in = ok && bytes.Equal(next, key); !in && ok {
						border, after = next, false
					}
				}
			}
		}
		b.inside = b.inside || in
		if c := bytes.Compare(border, b.next); b.next == nil || c < 0 || c == 0 && !after {
			b.next, b.after = border, after
		}
	}
	return b.inside, began && !(was && b.inside)
}

// output writes entries to runs of limited size.
type output struct {
	d     *DB
	w     *run.Writer
	file  *runFile // of w
	name  string
	files []*runFile
	done  int64 // bytes of files
	maxed int64
}

func (d *DB) newOutput() *output { return &output{d: d, maxed: d.runLimit} }

// written is how many bytes of runs were written.
func (o *output) written() int64 { return o.done + o.size() }

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
	o.done += info.FileBytes
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
// sides of it, but none between, is split. A ref that cannot be read has keys everywhere.
func (d *DB) placeRun(tiers []tier, r ref) []tier {
	s := r.span()
	at := -1
	for i := range tiers {
		if d.reclaim.step.occupies(d.reclaim.stepPass, tiers[i].id, s) || !tiers[i].free(s) {
			break
		}
		at = i
	}
	if at < 0 || !tiers[at].split(s) {
		d.nextTier++
		return slices.Insert(tiers, 0, tier{d.nextTier, []ref{r}})
	}
	tiers[at].insert(r)
	return tiers
}

// install makes tiers the present version, which the log completes from that position on: it writes the
// manifest, publishes a view without the memtable flushed, if any, and gives up what is not
// needed any more. moved are new segments that the tiers refer to. It is called with edit held.
func (d *DB) install(tiers []tier, from position, flushed *table, moved []*segment) error {
	if t := overlapping(tiers); t != nil {
		// A directory with such a manifest could not be opened.
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
		d.mu.Lock()
		for _, s := range moved {
			delete(d.segs, s.id)
		}
		d.mu.Unlock()
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
		if ver.segment(id) == nil && (s.kind == kindMoved && !s.open.Load() || s.kind == kindLog && id < from.seg) &&
			!d.reclaim.step.reads(id) {
			delete(d.segs, id)
			s.dead.Store(true)
			s.release()
		}
	}
	d.reclaim.measureDebt(ver)
	d.reclaim.installs++
	d.changed.Broadcast()
	return nil
}

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
