package db

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/vfs"
)

// Repaired is what a repair has salvaged, and what not.
type Repaired struct {
	// Source says what the new database was made from.
	Source string

	Values     int64 // taken over from runs, each with its checksum right
	Batches    int64 // taken over from frames of the log
	Operations int64 // in those batches
	Moved      int64 // frames of moved values that were taken over
	Keys       int64 // in the new database
	// behind the log's end, which opening would have cut off too; nothing that was acknowledged to survive
	TornBytes int64

	// Lost is what could not be read: stretches of files and, where its place is known, what they held.
	Lost []Loss
	// LostKeys is how many keys had a value that is damaged; they are in Lost too. Older values of theirs are not taken
	// over.
	LostKeys int64
	// Gone is how many operations of the log behind the runs are gone, as far as their number is known; Lost has their
	// numbers. Their keys are not known.
	Gone int64
	// Doubtful is how many keys of the new database may have an older value than they had, or may have been
	// deleted: what the log says of them later is gone, or may be, because operations are gone of which the keys
	// are not known. Keys that intact operations behind those are about are not among them. Examples are the first
	// of them.
	Doubtful int64
	Examples [][]byte
	// Unsure says what could not be found out; empty if all could.
	Unsure []string
}

// Loss is a stretch of a file that cannot be read.
type Loss struct {
	Path   string
	Offset int64
	Bytes  int64  // 0: not known
	Key    []byte // whose value it is, nil: not one value
	Why    string
	// Maybe are a few keys that the damaged bytes seem to be about. That is a hint: the checksum is
	// wrong, and any of it may be.
	Maybe [][]byte
	// Operations is how many of the log are gone; then it is about those, and not about a stretch.
	Operations int64
}

// Complete reports whether nothing was lost and nothing is in doubt.
func (r *Repaired) Complete() bool {
	return len(r.Lost) == 0 && r.Doubtful == 0 && len(r.Unsure) == 0
}

// Summary says in a few words what was lost, empty if nothing was.
func (r *Repaired) Summary() string {
	var parts []string
	add := func(n int64, one, more string) {
		if n == 1 {
			parts = append(parts, one)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf(more, n))
		}
	}
	add(r.LostKeys, "the value of a key", "the values of %d keys")
	add(r.Gone, "an operation on a key that is not known", "%d operations on keys that are not known")
	add(r.Doubtful, "perhaps the latest change of a key", "perhaps the latest changes of %d keys")
	if len(parts) == 0 {
		add(int64(len(r.Lost)), "what stood in a damaged place of a file", "what stood in %d damaged places of files")
	}
	if len(r.Unsure) > 0 {
		parts = append(parts, "perhaps more")
	}
	return strings.Join(parts, ", ")
}

// maxExamples bounds Repaired.Examples.
const maxExamples = 100

// Repair writes all that is intact in dir to the engine into, which must be empty, and syncs it. Nothing
// in dir is changed, and it must not be open elsewhere. An error means that into is of no use.
//
// Only bytes whose checksum is right are taken over, values only as values of their own key:
//
//   - What the manifest and intact runs say of a key is right, and is taken over as it is.
//   - Of keys where a run is damaged, or of all keys if there is no manifest, the log itself is read,
//     from its oldest segment to its newest. It may lack segments that held nothing but
//     garbage, deletes among it, so that a deleted key can come back, or an old value: those
//     keys are counted as doubtful.
//   - The log's tail follows. Behind damage in it whatever is whole is taken over too, so that later batches are
//     there without earlier ones. The keys of the operations that are gone are not known: all keys are doubtful
//     except those that the log names later.
//
// It reads one segment at a time into memory, and remembers 8 bytes or a little more for each key that it finds in
// the place of damaged runs, or in the log behind operations that are gone.
func Repair(fsys vfs.FS, dir string, into holdfast.Engine) (*Repaired, error) {
	k, err := readDisk(fsys, dir)
	if err != nil {
		return nil, err
	}
	r := &repairer{disk: k, into: into, open: map[uint32]*segment{}, seed: maphash.MakeSeed(), sure: map[uint64]struct{}{}}
	defer r.close()
	if err := r.all(); err != nil {
		return nil, err
	}
	return &r.out, nil
}

type repairer struct {
	*disk
	into  holdfast.Engine
	batch holdfast.Batch
	out   Repaired
	open  map[uint32]*segment
	files []*run.Reader
	tiers []layer
	log   []logPart
	stop  uint64 // lsn where the log ends in good order, or none
	end   uint64 // lsn where the last whole frame ends that was found
	named uint32 // the segment that it names as the next, or 0

	tornEnd     bool // it is followed by bytes that are no frame
	seed        maphash.Seed
	allDoubtful bool                // operations are gone that may have been about any key
	sure        map[uint64]struct{} // keys in holes, or all if allDoubtful, about which there is no doubt
}

// doubtAll notes that operations are gone which may have been about any of the keys that were found up to now.
func (r *repairer) doubtAll() {
	r.allDoubtful = true
	clear(r.sure)
}

// trust notes that what was found of a key is the last that the log says of it, as far as was read.
func (r *repairer) trust(key []byte) { r.sure[maphash.Bytes(r.seed, key)] = struct{}{} }

func (r *repairer) close() {
	for _, s := range r.open {
		if s != nil {
			s.close()
		}
	}
	for _, f := range r.files {
		f.Close()
	}
}

func (r *repairer) all() error {
	upTo := uint64(math.MaxUint64)
	r.stop = math.MaxUint64
	r.log = r.logParts()
	var t tail
	if r.m == nil {
		r.out.Source = "the log alone, without the manifest"
		r.out.Unsure = append(r.out.Unsure, "without the manifest it is not known how far the log went")
		r.lose(r.manifestErr)
		r.tiers = []layer{{holes: []hole{{}}}}
	} else {
		r.out.Source = "the manifest, the runs it names and the log behind them"
		upTo = r.m.from.seq
		r.openTiers()
		if r.holed() {
			r.out.Source += "; where runs are damaged, the log before them too"
		}
		t = r.readTail(nil)
		if len(t.damage) == 0 {
			r.stop, r.out.TornBytes = t.end.lsn, t.info.TornBytes
		}
		for _, err := range t.damage {
			r.lose(err)
		}
	}
	if r.holed() {
		if err := r.fromTiers(false); err != nil {
			return err
		}
		if err := r.fromLog(0, upTo); err != nil {
			return err
		}
	}
	if err := r.fromTiers(true); err != nil {
		return err
	}
	if r.m != nil {
		r.end, r.named = r.m.from.lsn, 0
		if err := r.fromLog(upTo, math.MaxUint64); err != nil {
			return err
		}
	}
	if r.m == nil || len(t.damage) > 0 {
		r.weighEnd(t.end)
	}
	if err := r.flush(); err != nil {
		return err
	}
	if err := r.into.Sync(); err != nil {
		return err
	}
	return r.count()
}

// weighEnd finds out whether the log may have gone on behind the last of it that was found. Where there is a
// manifest, at is where opening would stop.
func (r *repairer) weighEnd(at position) {
	why := ""
	switch p := r.parts[at.seg]; {
	case r.named != 0:
		why = fmt.Sprintf("the log goes on in segment %d, of which nothing can be read", r.named)
	case r.m == nil && r.tornEnd:
		why = "the last whole frame is followed by other bytes, " +
			"and without the manifest it is not known whether they had been synced"
	case r.m != nil && r.end < r.m.synced:
		why = fmt.Sprintf("the last %d bytes of log that had been synced cannot be read", r.m.synced-r.end)
	case r.m != nil && r.end <= at.lsn && (p == nil || p.size < at.off || r.used(p, at.off)):
		why = "behind the damage in the log nothing can be read, and it is not known how much there was"
	default:
		id, moved := r.unplaced()
		if id == 0 {
			return
		}
		why = fmt.Sprintf("nothing can be read of segment %d, which may have been the log's last", id)
		if moved {
			why = fmt.Sprintf("the first frame of segment %d is damaged: how old the values in it are is not known", id)
		}
	}
	r.out.Unsure = append(r.out.Unsure, why)
	r.doubtAll()
}

// used reports whether there is anything in a segment from that offset on.
func (k *disk) used(p *part, off int64) bool {
	b, _ := k.read(p, off, p.size)
	return extent(b) > 0
}

// unplaced returns a segment behind the log's others that may belong to it and holds no whole frame, but something
// else; 0 if there is none. One that was being prepared may hold what a former use of its file left; its header is
// whole. Without the manifest, moved values whose age is not known belong nowhere either.
func (r *repairer) unplaced() (id uint32, moved bool) {
	last := r.from().seg
	if n := len(r.log); n > 0 {
		last = max(last, r.log[n-1].p.id)
	}
	for _, id := range r.segs {
		p := r.parts[id]
		if p.begun || r.m != nil && (p.headerErr == nil || r.behind(id) >= 0) {
			continue
		}
		if p.moved() {
			if r.m == nil {
				return id, true
			}
			continue
		}
		if id <= last {
			continue
		}
		if _, _, frames := r.extentOf(p); frames == 0 && r.used(p, 0) && (p.headerErr != nil || r.used(p, segmentHeader)) {
			return id, false
		}
	}
	return 0, false
}

// behind is the place of a segment among those that the manifest says the log has left behind, -1 if it is not
// among them.
func (k *disk) behind(id uint32) int {
	if k.m == nil {
		return -1
	}
	return slices.IndexFunc(k.m.segs, func(s manifestSegment) bool { return s.id == id })
}

// lose notes a loss that an error describes.
func (r *repairer) lose(err error) {
	l := Loss{Why: err.Error()}
	if e, ok := err.(*holdfast.Error); ok {
		l.Path, l.Offset, l.Why = e.Path, e.Offset, e.Detail
	}
	r.lost(l)
}

func (r *repairer) lost(l Loss) {
	same := func(o Loss) bool {
		return o.Path == l.Path && o.Offset == l.Offset && o.Key == nil && l.Key == nil && o.Operations == 0
	}
	if i := slices.IndexFunc(r.out.Lost, same); i >= 0 && l.Key == nil {
		o := &r.out.Lost[i]
		if o.Bytes = max(o.Bytes, l.Bytes); len(o.Maybe) == 0 {
			o.Maybe = l.Maybe
		}
		return
	}
	r.out.Lost = append(r.out.Lost, l)
}

// flush writes what was taken over from one frame, or entry: damage to the new database is to take no more at once
// than damage to the old one.
func (r *repairer) flush() error {
	if err := r.batch.Err(); err != nil {
		return err
	}
	if r.batch.Len() == 0 {
		return nil
	}
	level := holdfast.Memory
	if r.into.Capabilities().Memory.Given == 0 {
		level = r.into.Capabilities().Strongest()
	}
	if err := holdfast.Commit(r.into, &r.batch, level); err != nil {
		return err
	}
	r.batch.Reset()
	return nil
}

// hole is an interval of keys, [lo, hi), of which a tier's runs do not tell any more; an empty hi is the end.
type hole struct{ lo, hi []byte }

func (h hole) has(key []byte) bool {
	return bytes.Compare(h.lo, key) <= 0 && (len(h.hi) == 0 || bytes.Compare(key, h.hi) < 0)
}

// layer is a tier, as far as it can be read.
type layer struct {
	runs  []intact // in order
	holes []hole   // in order
}

// intact is a sequence of entries of one run without damage between them: from the first key to
// the last, both included. Behind the last nothing must be read.
type intact struct {
	r           *run.Reader
	first, last []byte
}

func (l *layer) hole(key []byte) bool {
	i, ok := slices.BinarySearchFunc(l.holes, key, func(h hole, key []byte) int { return bytes.Compare(h.lo, key) })
	if !ok {
		i--
	}
	return i >= 0 && l.holes[i].has(key)
}

func (r *repairer) holed() bool {
	return slices.ContainsFunc(r.tiers, func(l layer) bool { return len(l.holes) > 0 })
}

func (r *repairer) inHole(key []byte) bool {
	for i := range r.tiers {
		if r.tiers[i].hole(key) {
			return true
		}
	}
	return false
}

// openTiers opens the runs and looks for what of them can be read.
func (r *repairer) openTiers() {
	opened := map[uint64]*run.Reader{}
	for _, t := range r.m.tiers {
		var l layer
		var end []byte // of the ref before
		for i, mr := range t.refs {
			f, seen := opened[mr.run]
			if !seen {
				var err error
				if f, err = r.openRun(mr.run); err != nil {
					r.lose(err)
				} else {
					r.files = append(r.files, f)
				}
				opened[mr.run] = f
			}
			h := hole{mr.lo, mr.hi}
			if i+1 < len(t.refs) && len(h.hi) == 0 {
				h.hi = t.refs[i+1].lo // if that is not known either, the hole is larger than it must be
			}
			if len(h.lo) == 0 {
				h.lo = end
			}
			if f == nil || f.Info().Entries == 0 {
				l.holes = append(l.holes, h)
				continue
			}
			info := f.Info()
			now := newRef(&runFile{r: f, info: info}, mr.lo, mr.hi)
			h.lo = now.lo
			if h.hi = now.hi; !now.cutHi {
				h.hi = after(info.Largest)
			}
			end = h.hi
			if n := len(l.holes); n > 0 && (len(l.holes[n-1].hi) == 0 || bytes.Compare(l.holes[n-1].hi, h.lo) > 0) {
				l.holes[n-1].hi = h.lo
			}
			r.examine(&l, f, h)
		}
		r.tiers = append(r.tiers, l)
	}
}

// after is the least key above key.
func after(key []byte) []byte { return append(bytes.Clone(key), 0) }

// examine divides the part of a run that lies in all into what can be read and a hole. If the run is damaged
// in several places, what lies between them is in the hole too.
func (r *repairer) examine(l *layer, f *run.Reader, all hole) {
	var it run.Iter
	f.Init(&it)
	ok := it.SeekGE(all.lo)
	var first, last []byte
	for ; ok && all.has(it.Key()); ok = it.Next() {
		if first == nil {
			first = bytes.Clone(it.Key())
		}
		last = append(last[:0], it.Key()...)
	}
	if first != nil {
		l.runs = append(l.runs, intact{f, first, last})
	}
	if ok || it.Err() == nil {
		return
	}
	r.lose(it.Err())
	h := all
	if first != nil {
		h.lo = after(last)
	}
	first, last = nil, nil
	f.Init(&it)
	for ok := it.SeekLT(all.hi); ok && h.has(it.Key()); ok = it.Prev() {
		if last == nil {
			last = bytes.Clone(it.Key())
		}
		first = append(first[:0], it.Key()...)
	}
	if last != nil {
		h.hi = first
		l.runs = append(l.runs, intact{f, first, last})
	}
	l.holes = append(l.holes, h)
}

// cursor walks over the intact entries of a layer.
type cursor struct {
	l    *layer
	next int // run
	it   run.Iter
	end  []byte // last key of the present run
	ok   bool
	err  error
}

func (c *cursor) move() {
	if c.ok && !bytes.Equal(c.it.Key(), c.end) {
		if c.ok = c.it.Next(); !c.ok {
			c.err = c.it.Err()
		}
		return
	}
	if c.ok = c.next < len(c.l.runs); !c.ok {
		return
	}
	p := &c.l.runs[c.next]
	c.next++
	p.r.Init(&c.it)
	c.end = p.last
	if c.ok = c.it.SeekGE(p.first); !c.ok {
		c.err = c.it.Err()
	}
}

// fromTiers takes over what the tiers say: the keys about which they say the last word, if exact, or those about
// which a hole in a newer tier might have said more.
func (r *repairer) fromTiers(exact bool) error {
	cursors := make([]cursor, len(r.tiers))
	for i := range cursors {
		cursors[i].l = &r.tiers[i]
		cursors[i].move()
	}
	holed := r.holed()
	var key []byte
	for {
		newest := -1
		for i := range cursors {
			c := &cursors[i]
			if c.err != nil { // it could be read a moment ago
				return c.err
			}
			if c.ok && (newest < 0 || bytes.Compare(c.it.Key(), cursors[newest].it.Key()) < 0) {
				newest = i
			}
		}
		if newest < 0 {
			return nil
		}
		key = append(key[:0], cursors[newest].it.Key()...)
		hidden, within := false, false
		if holed {
			within = r.inHole(key)
			for i := 0; i < newest && within; i++ {
				hidden = hidden || r.tiers[i].hole(key)
			}
		}
		if hidden != exact {
			if err := r.takeEntry(key, cursors[newest].it.Entry(), exact, within); err != nil {
				return err
			}
		}
		for i := range cursors {
			if c := &cursors[i]; c.ok && bytes.Equal(c.it.Key(), key) {
				c.move()
			}
		}
	}
}

// takeEntry takes over one entry. within says that a hole has the key too, so that something may be there already.
func (r *repairer) takeEntry(key []byte, e run.Entry, exact, within bool) error {
	if within && exact {
		r.trust(key)
	}
	if e.Tombstone {
		if within {
			r.batch.Delete(key)
		}
		return r.flush()
	}
	id := uint32(e.Place >> 32)
	s, ok := r.open[id]
	if !ok {
		s = r.openForValues(id)
		r.open[id] = s
	}
	why := error(corrupt(segmentName(r.dir, id), int64(uint32(e.Place)), "the file is missing", nil))
	var val []byte
	if s != nil {
		val, why = r.value(nil, s, key, e)
	}
	if why != nil {
		if !exact {
			return nil
		}
		l := Loss{Path: segmentName(r.dir, id), Offset: int64(uint32(e.Place)), Bytes: int64(e.Len),
			Key: bytes.Clone(key), Why: "the value is damaged"}
		if s == nil {
			l.Why = "the file is missing"
		}
		r.lost(l)
		r.out.LostKeys++
		if within {
			r.batch.Delete(key)
		}
		return r.flush()
	}
	r.batch.Set(key, val)
	if exact {
		r.out.Values++
	}
	return r.flush()
}
