package db

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/vfs"
)

// Verification is what a look at every byte that matters has found.
type Verification struct {
	// Damage is all that was found, in no particular order. Each is a *holdfast.Error with the
	// file and, where it is known, the offset.
	Damage []error

	Runs, Entries int64
	Values        int64 // read, and found as their checksum has them
	ValueBytes    int64
	Segments      int64
	Frames        int64
	FrameBytes    int64
	Batches       int64 // in frames; moved ones count too
	TornBytes     int64 // behind the log's end, which opening cuts off
	Notes         []string
}

// Verify checks every checksum and every reference of the database in dir: the manifest, every block of every run,
// every value that an entry names and that it is the value of that key, every frame of every segment that is
// needed, the order of runs in tiers and of frames in the log, and that nothing needed is missing. It goes on after
// damage, and changes nothing. The database must not be open elsewhere. An error means that it could not be checked.
//
// It reads one segment at a time into memory.
func Verify(fsys vfs.FS, dir string) (*Verification, error) {
	k, err := readDisk(fsys, dir)
	if err != nil {
		return nil, err
	}
	v := &verifier{disk: k, open: map[uint32]*segment{}, missing: map[uint32]bool{}, listed: map[uint32]bool{}}
	defer v.close()
	if k.m == nil {
		v.damage(k.manifestErr)
		v.notef("without the manifest it is not known which files matter: all were checked, but not what they mean together")
		v.everything()
		return &v.out, nil
	}
	v.structure()
	v.oldSegments()
	v.log()
	v.runs()
	v.others()
	return &v.out, nil
}

type verifier struct {
	*disk
	out     Verification
	open    map[uint32]*segment // for values
	missing map[uint32]bool     // cannot be opened; said already
	val     []byte
	listed  map[uint32]bool // segments that the manifest or the log's tail names
}

func (v *verifier) damage(err error) { v.out.Damage = append(v.out.Damage, err) }

func (v *verifier) notef(format string, args ...any) {
	v.out.Notes = append(v.out.Notes, fmt.Sprintf(format, args...))
}

func (v *verifier) close() {
	for _, s := range v.open {
		s.close()
	}
}

func (v *verifier) manifestPath() string { return filepath.Join(v.dir, manifestName) }

// structure checks what the manifest says against itself.
func (v *verifier) structure() {
	bad := func(format string, args ...any) {
		v.damage(corrupt(v.manifestPath(), 0, fmt.Sprintf(format, args...), nil))
	}
	m := v.m
	for i, t := range m.tiers {
		if i > 0 && t.id >= m.tiers[i-1].id {
			bad("tier %d is listed after tier %d", t.id, m.tiers[i-1].id)
		}
		if t.id > m.nextTier {
			bad("tier %d is above the last number given, %d", t.id, m.nextTier)
		}
		for _, r := range t.refs {
			if r.run > m.nextFile {
				bad("run %d is above the last number given, %d", r.run, m.nextFile)
			}
			if len(r.lo) > 0 && len(r.hi) > 0 && bytes.Compare(r.lo, r.hi) >= 0 {
				bad("a part of run %d in tier %d is empty", r.run, t.id)
			}
		}
	}
	for i, s := range m.segs {
		if i > 0 && s.id <= m.segs[i-1].id {
			bad("segment %d is listed after segment %d", s.id, m.segs[i-1].id)
		}
		if uint64(s.id) > m.nextFile {
			bad("segment %d is above the last number given, %d", s.id, m.nextFile)
		}
		if s.size < segmentHeader || s.payload < 0 || s.payload > s.size {
			bad("segment %d has %d bytes in frames, %d of them payload", s.id, s.size, s.payload)
		}
	}
	if m.synced < m.from.lsn {
		bad("the runs go further, to %d, than what had been synced, %d", m.from.lsn, m.synced)
	}
}

// oldSegments checks the frames of the segments that the log has left behind.
func (v *verifier) oldSegments() {
	for _, s := range v.m.segs {
		v.listed[s.id] = true
		if p := v.part(s.id); p != nil {
			if p.size < s.size {
				v.damage(corrupt(p.name, p.size, fmt.Sprintf("the file has been cut short: it had %d bytes", s.size), nil))
			}
			v.frames(p, s.size)
		}
	}
}

// part returns a segment's file, nil if it is missing, which is said once.
func (v *verifier) part(id uint32) *part {
	p := v.parts[id]
	if p == nil && !v.missing[id] {
		v.missing[id] = true
		v.damage(corrupt(segmentName(v.dir, id), 0, "the file is missing", nil))
	}
	return p
}

// frames checks a segment's header and frames up to the offset end, and reports each stretch that is
// none.
func (v *verifier) frames(p *part, end int64) {
	v.out.Segments++
	if p.headerErr != nil {
		v.damage(p.headerErr)
	}
	data, err := v.read(p, segmentHeader, end)
	if err != nil {
		v.damage(err)
	}
	base, began := uint32(0), false
	for s := range stretches(data, segmentHeader, p.epoch) {
		bad := func(detail string) { v.damage(corrupt(p.name, s.off, detail, nil)) }
		if s.kind == 0 {
			bad(fmt.Sprintf("%d bytes are damaged: %s", s.n, s.why))
			began, base = true, math.MaxUint32
			continue
		}
		v.out.Frames++
		v.out.FrameBytes += s.n
		switch {
		case (s.kind == frameBegin) != (s.off == segmentHeader):
			bad("a frame is not where it belongs")
		case s.kind == frameBegin:
			if !p.begun {
				bad("the first frame makes no sense")
			}
		case s.kind == frameEnd && (p.moved() || s.off+s.n != min(end, p.size)):
			bad("there is something behind the last frame")
		case !p.moved() && began && base != math.MaxUint32 && s.seq != base, p.moved() && s.seq != 0:
			bad("the frame does not follow the one before it")
		}
		began, base = true, s.seq+uint32(s.ops)
		if s.kind == frameBatch {
			v.out.Batches++
		}
	}
}

// log checks the log's tail as opening would, and the part before it of the segment in which it begins. If the
// tail is damaged, all that is damaged in its segments is looked for.
func (v *verifier) log() {
	from := v.m.from
	if from.seg != 0 {
		v.listed[from.seg] = true
		if p := v.part(from.seg); p != nil && from.off > segmentHeader {
			v.frames(p, from.off)
		}
	}
	t := v.readTail(nil)
	for _, id := range t.info.Segments {
		v.listed[id] = true
		if id != from.seg {
			v.out.Segments++
		}
	}
	v.out.Frames += t.info.Frames
	v.out.FrameBytes += t.info.Bytes
	v.out.Batches += t.info.Batches
	v.out.TornBytes = t.info.TornBytes
	if len(t.damage) == 0 {
		return
	}
	for _, err := range t.damage {
		v.damage(err)
	}
	// The first of it is reported; more may follow.
	for _, l := range v.logParts() {
		if l.lsn+uint64(l.size-segmentHeader) <= t.end.lsn || l.p.id < from.seg {
			continue
		}
		v.listed[l.p.id] = true
		data, _ := v.read(l.p, segmentHeader, l.size)
		for s := range stretches(data, segmentHeader, l.p.epoch) {
			at := l.lsn + uint64(s.off-segmentHeader)
			if s.kind == 0 && at > t.end.lsn && extent(data[s.off-segmentHeader:]) > 0 {
				v.damage(corrupt(l.p.name, s.off, fmt.Sprintf("%d bytes are damaged: %s", s.n, s.why), nil))
			}
		}
	}
}

// runs checks every run that the manifest names, and every value that their entries name.
func (v *verifier) runs() {
	files := map[uint64]*run.Reader{}
	for _, t := range v.m.tiers {
		var last *ref
		for _, mr := range t.refs {
			r, seen := files[mr.run]
			if !seen {
				var err error
				if r, err = v.openRun(mr.run); err != nil {
					v.damage(err)
				} else {
					defer r.Close()
					v.run(mr.run, r)
				}
				files[mr.run] = r
			}
			if r == nil {
				continue
			}
			info := r.Info()
			if info.Entries == 0 {
				v.damage(corrupt(runName(v.dir, mr.run), 0, "it is empty", nil))
				continue
			}
			now := newRef(&runFile{id: mr.run, r: r, info: info}, mr.lo, mr.hi)
			if last != nil && !last.endsBefore(now.lo) {
				v.damage(corrupt(v.manifestPath(), 0, fmt.Sprintf("runs %d and %d overlap in tier %d", last.file.id, mr.run,
					t.id), nil))
			}
			last = &now
			v.values(&now)
		}
	}
}

func (v *verifier) run(id uint64, r *run.Reader) {
	v.out.Runs++
	if err := r.Verify(); err != nil {
		v.damage(err)
	}
	for _, u := range r.Info().Segments {
		if u.ID != v.m.from.seg && !slices.ContainsFunc(v.m.segs, func(s manifestSegment) bool { return s.id == u.ID }) {
			v.damage(corrupt(runName(v.dir, id), 0, fmt.Sprintf("it names segment %d, which the manifest does not", u.ID), nil))
		}
	}
}

// values reads what the entries of a ref name, from both ends if the run is damaged between. Verify has told what is
// wrong with the run itself.
func (v *verifier) values(r *ref) {
	skipped := map[uint32]int64{}
	var it run.Iter
	r.file.r.Init(&it)
	var last []byte
	for ok := it.SeekGE(r.lo); ok && (len(r.hi) == 0 || bytes.Compare(it.Key(), r.hi) < 0); ok = it.Next() {
		last = append(last[:0], it.Key()...)
		v.entry(it.Key(), it.Entry(), skipped)
	}
	if it.Err() != nil {
		above := max(string(r.lo), string(last))
		end := r.hi
		if len(end) == 0 {
			end = after(r.file.info.Largest)
		}
		r.file.r.Init(&it)
		for ok := it.SeekLT(end); ok && string(it.Key()) >= above && !bytes.Equal(it.Key(), last); ok = it.Prev() {
			v.entry(it.Key(), it.Entry(), skipped)
		}
	}
	for id, n := range skipped {
		detail := fmt.Sprintf("%d of its values are in segment %d, which cannot be read", n, id)
		v.damage(corrupt(runName(v.dir, r.file.id), 0, detail, nil))
	}
}

// entry reads the value that an entry names. It counts those of segments that cannot be read.
func (v *verifier) entry(key []byte, e run.Entry, skipped map[uint32]int64) {
	v.out.Entries++
	if e.Tombstone {
		return
	}
	id := uint32(e.Place >> 32)
	s := v.segment(id)
	if s == nil {
		skipped[id]++
		return
	}
	var err error
	if v.val, err = v.value(v.val[:0], s, key, e); err != nil {
		v.damage(err)
		return
	}
	v.out.Values++
	v.out.ValueBytes += int64(len(v.val))
}

// openForValues opens a segment for reading values, and returns nil if it cannot. A damaged header
// does not matter for that.
func (k *disk) openForValues(id uint32) *segment {
	p := k.parts[id]
	if p == nil {
		return nil
	}
	f, err := k.fs.Open(p.name)
	if err != nil {
		return nil
	}
	s := &segment{id: id, file: f}
	s.used.Store(p.size)
	s.mapIn(p.size)
	return s
}

func (v *verifier) segment(id uint32) *segment {
	s, ok := v.open[id]
	if !ok {
		if s = v.openForValues(id); s == nil {
			v.part(id)
			return nil
		}
		v.open[id] = s
	}
	return s
}

// value appends to dst the value that an entry names, if it has the right checksum and stands
// in the log as the value of that key.
func (k *disk) value(dst []byte, s *segment, key []byte, e run.Entry) ([]byte, error) {
	off := int64(uint32(e.Place))
	head := append(bytes.Clone(key), binary.AppendUvarint(nil, uint64(e.Len))...)
	old, err := len(dst), error(nil)
	fault := guarded(func() {
		if dst, err = s.read(dst, off-int64(len(head)), len(head)+int(e.Len)); err != nil {
			return
		}
		if got := dst[old:]; !bytes.Equal(got[:len(head)], head) {
			err = corrupt(s.file.Name(), off, fmt.Sprintf("there is no value of %d bytes of key %.40q", e.Len, key), nil)
		} else if checksum(got[len(head):]) != e.Sum {
			err = corrupt(s.file.Name(), off,
				fmt.Sprintf("the checksum of the value of key %.40q, %d bytes, is wrong", key, e.Len), nil)
		}
	})
	if fault != nil {
		err = corrupt(s.file.Name(), off, fmt.Sprintf("the value of key %.40q cannot be read", key), fault)
	}
	if err != nil {
		return dst[:old], err
	}
	n := copy(dst[old:], dst[old+len(head):])
	return dst[:old+n], nil
}

// others says what is there that nothing names.
func (v *verifier) others() {
	named := map[uint64]bool{}
	for _, t := range v.m.tiers {
		for _, r := range t.refs {
			named[r.run] = true
		}
	}
	for _, id := range v.segs {
		if !v.listed[id] {
			v.notef("%s is needed by nothing; opening the database removes it", filepath.Base(segmentName(v.dir, id)))
		}
	}
	for _, id := range v.disk.runs {
		if !named[id] {
			v.notef("%s is needed by nothing; opening the database removes it", filepath.Base(runName(v.dir, id)))
		}
	}
	for _, name := range v.names {
		_, seg := numbered(name, ".seg")
		_, run := numbered(name, ".run")
		if !seg && !run && !slices.Contains([]string{manifestName, reserveName, "HOLDFAST", "LOCK"}, name) {
			v.notef("%s is not the database's", name)
		}
	}
}

// everything checks each file for itself.
func (v *verifier) everything() {
	for _, id := range v.segs {
		p := v.parts[id]
		data, _ := v.read(p, segmentHeader, p.size)
		end := int64(segmentHeader)
		for s := range stretches(data, segmentHeader, p.epoch) {
			if s.kind != 0 {
				end = s.off + s.n
			}
		}
		v.frames(p, end)
	}
	for _, id := range v.disk.runs {
		if r, err := v.openRun(id); err != nil {
			v.damage(err)
		} else {
			v.out.Runs++
			if err := r.Verify(); err != nil {
				v.damage(err)
			}
			r.Close()
		}
	}
}
