package check

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
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
	v := &verifier{disk: k, missing: map[uint32]bool{}, needed: map[uint32]bool{}}
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

// VerifyPinned is [Verify] of what p names, and of nothing else: writers go on, and what they write is not looked at.
// It ends with the first error that stop returns, which is asked again and again.
func VerifyPinned(p wal.Pinned, stop func() error) (*Verification, error) {
	k := newDisk(p.FS, p.Dir)
	k.m, k.id = p.Manifest, p.Manifest.DB
	v := &verifier{disk: k, missing: map[uint32]bool{}, needed: map[uint32]bool{}, stop: stop}
	defer v.close()
	for _, s := range slices.Concat(p.Manifest.Segments, p.Log) {
		name := format.SegmentName(p.Dir, s.ID)
		if err := k.addPart(s.ID, readHead(p.FS, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if b, err := vfs.ReadFile(p.FS, v.manifestPath()); err != nil {
		v.damage(format.ReadError(v.manifestPath(), 0, err))
	} else if _, err := format.DecodeManifest(b, v.manifestPath()); err != nil {
		v.damage(err)
	}
	v.structure()
	v.oldSegments()
	// The tail of a log that grows cannot be read to its end; how far it went is known.
	v.segments(p.Log)
	for i, s := range p.Log {
		if x := v.parts[s.ID]; x != nil && x.begun && i > 0 && x.begin.Prev != p.Log[i-1].ID {
			v.damage(format.Corrupt(x.name, 0, fmt.Sprintf("it does not follow segment %d of the log", p.Log[i-1].ID), nil))
		}
	}
	v.runs()
	if err := stop(); err != nil {
		return nil, err
	}
	return &v.out, nil
}

type verifier struct {
	*disk
	stop    func() error // asked whether to go on; nil: always
	out     Verification
	missing map[uint32]bool // cannot be opened; said already
	val     []byte
	needed  map[uint32]bool // segments that the manifest or the log's tail names
}

func (v *verifier) damage(err error) { v.out.Damage = append(v.out.Damage, err) }

func (v *verifier) notef(format string, args ...any) {
	v.out.Notes = append(v.out.Notes, fmt.Sprintf(format, args...))
}

func (v *verifier) stopped() error {
	if v.stop == nil {
		return nil
	}
	return v.stop()
}

func (v *verifier) manifestPath() string { return filepath.Join(v.dir, format.ManifestName) }

// structure checks what the manifest says against itself.
func (v *verifier) structure() {
	bad := func(detail string, args ...any) {
		v.damage(format.Corrupt(v.manifestPath(), 0, fmt.Sprintf(detail, args...), nil))
	}
	m := v.m
	for i, t := range m.Tiers {
		if i > 0 && t.ID >= m.Tiers[i-1].ID {
			bad("tier %d is listed after tier %d", t.ID, m.Tiers[i-1].ID)
		}
		if t.ID > m.NextTier {
			bad("tier %d is above the last number given, %d", t.ID, m.NextTier)
		}
		for _, r := range t.Refs {
			if r.Table > m.NextFile {
				bad("run %d is above the last number given, %d", r.Table, m.NextFile)
			}
			if len(r.Lo) > 0 && len(r.Hi) > 0 && bytes.Compare(r.Lo, r.Hi) >= 0 {
				bad("a part of run %d in tier %d is empty", r.Table, t.ID)
			}
		}
	}
	for i, s := range m.Segments {
		if i > 0 && s.ID <= m.Segments[i-1].ID {
			bad("segment %d is listed after segment %d", s.ID, m.Segments[i-1].ID)
		}
		if uint64(s.ID) > m.NextFile {
			bad("segment %d is above the last number given, %d", s.ID, m.NextFile)
		}
		if s.Size < format.SegmentHeaderSize || s.Payload < 0 || s.Payload > s.Size {
			bad("segment %d has %d bytes in frames, %d of them payload", s.ID, s.Size, s.Payload)
		}
	}
	if m.Synced < m.From.LSN {
		bad("the runs go further, to %d, than what had been synced, %d", m.From.LSN, m.Synced)
	}
}

// oldSegments checks the frames of the segments that the log has left behind.
func (v *verifier) oldSegments() {
	v.segments(v.m.Segments)
}

func (v *verifier) segments(all []format.ManifestSegment) {
	for _, s := range all {
		if v.stopped() != nil {
			return
		}
		v.needed[s.ID] = true
		if p := v.part(s.ID); p != nil {
			if p.size < s.Size {
				v.damage(format.Corrupt(p.name, p.size, fmt.Sprintf("the file has been cut short: it had %d bytes", s.Size), nil))
			}
			v.frames(p, s.Size)
		}
	}
}

// part returns a segment's file, nil if it is missing, which is said once.
func (v *verifier) part(id uint32) *part {
	p := v.parts[id]
	if p == nil && !v.missing[id] {
		v.missing[id] = true
		v.damage(format.Corrupt(format.SegmentName(v.dir, id), 0, "the file is missing", nil))
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
	data, err := v.read(p, format.SegmentHeaderSize, end)
	if err != nil {
		v.damage(err)
	}
	base, began := uint32(0), false
	for s := range stretches(data, format.SegmentHeaderSize, p.epoch) {
		bad := func(detail string) { v.damage(format.Corrupt(p.name, s.off, detail, nil)) }
		if s.Kind == 0 {
			bad(fmt.Sprintf("%d bytes are damaged: %s", s.n, s.why))
			began, base = true, math.MaxUint32
			continue
		}
		v.out.Frames++
		v.out.FrameBytes += s.n
		switch {
		case (s.Kind == format.KindBegin) != (s.off == format.SegmentHeaderSize):
			bad("a frame is not where it belongs")
		case s.Kind == format.KindBegin:
			if !p.begun {
				bad("the first frame makes no sense")
			}
		case s.Kind == format.KindEnd && (p.moved() || s.off+s.n != min(end, p.size)):
			bad("there is something behind the last frame")
		case !p.moved() && began && base != math.MaxUint32 && s.Seq != base, p.moved() && s.Seq != 0:
			bad("the frame does not follow the one before it")
		}
		began, base = true, s.Seq+uint32(s.ops)
		if s.Kind == format.KindBatch {
			v.out.Batches++
		}
	}
}

// log checks the log's tail as opening would, and the part before it of the segment in which it begins. If the
// tail is damaged, all that is damaged in its segments is looked for.
func (v *verifier) log() {
	from := v.m.From
	if from.Segment != 0 {
		v.needed[from.Segment] = true
		if p := v.part(from.Segment); p != nil && from.Offset > format.SegmentHeaderSize {
			v.frames(p, from.Offset)
		}
	}
	t, info, damage := v.readTail()
	for _, id := range info.Segments {
		v.needed[id] = true
		if id != from.Segment {
			v.out.Segments++
		}
	}
	v.out.Frames += info.Frames
	v.out.FrameBytes += info.Bytes
	v.out.Batches += info.Batches
	v.out.TornBytes = info.TornBytes
	if damage == nil {
		return
	}
	v.damage(damage)
	// The first of it is reported; more may follow.
	for _, x := range v.behind(t.End) {
		v.needed[x.p.id] = true
		data, _ := v.read(x.p, format.SegmentHeaderSize, x.to)
		for s := range stretches(data, format.SegmentHeaderSize, x.p.epoch) {
			first := x.p.id == t.End.Segment && s.off == t.End.Offset
			if s.Kind == 0 && !first && s.off >= x.from && format.Extent(data[s.off-format.SegmentHeaderSize:]) > 0 {
				v.damage(format.Corrupt(x.p.name, s.off, fmt.Sprintf("%d bytes are damaged: %s", s.n, s.why), nil))
			}
		}
	}
}

// runs checks every run that the manifest names, and every value that their entries name.
func (v *verifier) runs() {
	files := map[uint64]*run.Reader{}
	for _, t := range v.m.Tiers {
		var last *tree.Ref
		for _, mr := range t.Refs {
			if v.stopped() != nil {
				return
			}
			r, seen := files[mr.Table]
			if !seen {
				var err error
				if r, err = v.openRun(mr.Table); err != nil {
					v.damage(err)
				} else {
					defer r.Close()
					v.run(mr.Table, r)
				}
				files[mr.Table] = r
			}
			if r == nil {
				continue
			}
			info := r.Info()
			if info.Entries == 0 {
				v.damage(format.Corrupt(format.TableName(v.dir, mr.Table), 0, "it is empty", nil))
				continue
			}
			now := tree.NewRef(tree.NewTable(mr.Table, r, nil), mr.Lo, mr.Hi)
			if last != nil && !last.EndsBefore(now.Lo) {
				v.damage(format.Corrupt(v.manifestPath(), 0,
					fmt.Sprintf("runs %d and %d overlap in tier %d", last.Table.ID, mr.Table, t.ID), nil))
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
		is := func(s format.ManifestSegment) bool { return s.ID == u.ID }
		if u.ID != v.m.From.Segment && !slices.ContainsFunc(v.m.Segments, is) {
			v.damage(format.Corrupt(format.TableName(v.dir, id), 0,
				fmt.Sprintf("it names segment %d, which the manifest does not", u.ID), nil))
		}
	}
}

// values reads what the entries of a ref name. Verify has told what is wrong with the table itself.
func (v *verifier) values(r *tree.Ref) {
	skipped := map[uint32]int64{}
	entries(r, func(key []byte, e run.Entry) error {
		v.entry(key, e, skipped)
		if v.out.Entries%1024 == 0 {
			return v.stopped()
		}
		return nil
	})
	for id, n := range skipped {
		detail := fmt.Sprintf("%d of its values are in segment %d, which cannot be read", n, id)
		v.damage(format.Corrupt(format.TableName(v.dir, r.Table.ID), 0, detail, nil))
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
		v.part(id)
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

// others says what is there that nothing names.
func (v *verifier) others() {
	named := map[uint64]bool{}
	for _, t := range v.m.Tiers {
		for _, r := range t.Refs {
			named[r.Table] = true
		}
	}
	for _, id := range v.segs {
		if !v.needed[id] {
			v.notef("%s is needed by nothing; opening the database removes it", filepath.Base(format.SegmentName(v.dir, id)))
		}
	}
	for _, id := range v.disk.runs {
		if !named[id] {
			v.notef("%s is needed by nothing; opening the database removes it", filepath.Base(format.TableName(v.dir, id)))
		}
	}
	for _, name := range v.names {
		_, seg := format.Numbered(name, ".seg")
		_, run := format.Numbered(name, ".run")
		if !seg && !run && !slices.Contains([]string{format.ManifestName, format.ReserveName, "HOLDFAST", "LOCK"}, name) {
			v.notef("%s is not the database's", name)
		}
	}
}

// everything checks each file for itself.
func (v *verifier) everything() {
	for _, id := range v.segs {
		p := v.parts[id]
		data, _ := v.read(p, format.SegmentHeaderSize, p.size)
		end := int64(format.SegmentHeaderSize)
		for s := range stretches(data, format.SegmentHeaderSize, p.epoch) {
			if s.Kind != 0 {
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
