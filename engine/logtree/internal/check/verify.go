package check

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/vfs"
)

// Verification is what a look at every byte that matters has found.
type Verification struct {
	// Damage is all that was found, in no particular order. Each is a *holdfast.Error with the
	// file and, where it is known, the offset.
	Damage []error

	Tables, Entries int64
	Values          int64 // read, and found as their checksum has them
	ValueBytes      int64
	Segments        int64
	Frames          int64
	FrameBytes      int64
	Batches         int64 // in frames; moved ones count too
	TornBytes       int64 // behind the log's end, which opening cuts off
	Notes           []string
}

// Verify checks every checksum and every reference of the database in dir: the manifest, every block of every table,
// every value that an entry names and that it is the value of that key, every frame of every segment that is
// needed, the order of tables in tiers and of frames in the log, and that nothing needed is missing. It goes on after
// damage, and changes nothing. The database must not be open elsewhere. An error means that it could not be checked.
//
// It reads one segment at a time into memory.
func Verify(fsys vfs.FS, dir string) (*Verification, error) {
	k, err := readDisk(fsys, dir)
	if err != nil {
		return nil, err
	}
	v := &verifier{disk: k, stop: func() error { return nil }}
	if k.m == nil {
		v.notef("without the manifest it is not known which files matter: all were checked, but not what they mean together")

		for _, id := range k.segs {
			v.segment(k.whole(k.parts[id]))
		}

		return v.end(k.tableIDs)
	}

	// With a manifest it is known what counts: the segments that tables name, the log up to the manifest's position, and
	// the tail behind it.
	v.manifest()
	v.segments(k.m.Segments)

	// The segment of the position is checked up to there; behind it the tail is read as opening reads it.
	if p := k.parts[k.m.From.Segment]; p != nil && k.m.From.Offset > format.SegmentHeaderSize {
		v.segment(piece{p, format.SegmentHeaderSize, k.m.From.Offset, true})
	}
	t, err := k.tail(nil)
	if err != nil {
		return nil, err
	}
	v.out.Frames += t.Frames
	v.out.FrameBytes += int64(t.End.LSN - k.m.From.LSN)
	v.out.Batches += t.Batches
	v.out.TornBytes = t.Torn

	for _, s := range t.Segments {
		if s.ID != k.m.From.Segment {
			v.out.Segments++
		}
	}

	for _, name := range k.names {
		switch k.role(name, t) {
		case roleLeft:
			v.notef("%s is needed by nothing; opening the database removes it", name)
		case roleForeign:
			v.notef("%s is not the database's", name)
		}
	}

	return v.end(slices.Sorted(maps.Keys(k.named)))
}

// VerifyPinned is [Verify] of what p names, and of nothing else: writers go on, and what they write is not looked at.
// It ends with the first error that stop returns, which is asked again and again.
func VerifyPinned(p wal.Pinned, stop func() error) (*Verification, error) {
	var segs []uint32
	for _, s := range slices.Concat(p.Manifest.Segments, p.Log) {
		segs = append(segs, s.ID)
	}
	k, err := newDisk(p.FS, p.Dir, p.Manifest, segs)
	if err != nil {
		return nil, err
	}
	v := &verifier{disk: k, stop: stop}

	// The manifest in memory is known to be good. That on the disk may be damaged all the same, and the next opening
	// needs it.
	if _, err := readManifest(p.FS, p.Dir); err != nil {
		k.damage(err, Loss{})
	}
	v.manifest()
	v.segments(p.Manifest.Segments)
	// The tail of a log that grows cannot be read to its end; how far it went is known.
	v.segments(p.Log)

	for i, s := range p.Log {
		if x := k.parts[s.ID]; x != nil && x.begun && i > 0 && x.begin.Prev != p.Log[i-1].ID {
			k.damage(format.Corrupt(x.name, 0, fmt.Sprintf("it does not follow segment %d of the log", p.Log[i-1].ID), nil),
				Loss{})
		}
	}

	return v.end(slices.Sorted(maps.Keys(k.named)))
}

// verifier adds up what it has checked. Damage goes to the disk's list.
type verifier struct {
	*disk
	stop func() error // asked whether to go on
	out  Verification
}

// notef adds what is worth knowing and is no damage.
func (v *verifier) notef(format string, args ...any) {
	v.out.Notes = append(v.out.Notes, fmt.Sprintf(format, args...))
}

// end checks the tables of those ids and all that the tiers name, and returns what was found.
func (v *verifier) end(tables []uint64) (*Verification, error) {
	defer v.close()
	if v.m != nil {
		for _, t := range v.m.Tiers {
			if _, err := v.tier(t, v.entry); err != nil {
				return nil, err
			}
		}
	}

	// The tables themselves come after the tiers: those that no tier names are checked too.
	for _, id := range tables {
		if err := v.stop(); err != nil {
			return nil, err
		}
		t, err := v.table(id)
		if err == nil {
			v.out.Tables++
			v.names(t)
			err = t.Reader.Verify()
		}
		if err != nil {
			v.damage(err, Loss{})
		}
	}

	for _, l := range v.lost {
		v.out.Damage = append(v.out.Damage, l.err)
	}
	if err := v.stop(); err != nil {
		return nil, err
	}
	if v.short != nil {
		return nil, v.short
	}

	return &v.out, nil
}

// manifest checks what the manifest says against itself.
func (v *verifier) manifest() {
	m := v.m
	bad := m.Synced < m.From.LSN

	for i, t := range m.Tiers {
		bad = bad || t.ID > m.NextTier || i > 0 && t.ID >= m.Tiers[i-1].ID
		for _, r := range t.Refs {
			bad = bad || r.Table > m.NextFile || len(r.Lo) > 0 && len(r.Hi) > 0 && bytes.Compare(r.Lo, r.Hi) >= 0
		}
	}

	for i, s := range m.Segments {
		bad = bad || uint64(s.ID) > m.NextFile || i > 0 && s.ID <= m.Segments[i-1].ID ||
			s.Size < format.SegmentHeaderSize || s.Payload < 0 || s.Payload > s.Size
	}
	if bad {
		v.damage(format.Corrupt(v.manifestPath(), 0,
			"its checksum is right, but numbers or tiers contradict each other", nil),
			Loss{})
	}
}

// segments checks the frames of segments up to where they are said to go.
func (v *verifier) segments(all []format.ManifestSegment) {
	for _, s := range all {
		if v.stop() != nil {
			return // end says so
		}
		if p := v.parts[s.ID]; p != nil {
			v.segment(piece{p, format.SegmentHeaderSize, s.Size, true})
		} else {
			v.damage(format.Corrupt(format.SegmentName(v.dir, s.ID), 0, "the file is missing", nil), Loss{})
		}
	}
}

// segment checks frames, and that each follows the one before it.
func (v *verifier) segment(x piece) {
	v.out.Segments++
	next, end := uint32(0), int64(format.SegmentHeaderSize)

	// An error is one that passes. It is in short, and end returns it.
	_ = v.frames(x, func(s format.Stretch, off int64) error {
		v.out.Frames++
		v.out.FrameBytes += int64(s.Len)
		if s.Kind == format.KindBatch {
			v.out.Batches++
		}

		// A begin frame stands first and nowhere else, an end frame last and only in the log, and the numbers of operations
		// go on from frame to frame. Behind damage the numbers start anew.
		begins, ends := s.Kind == format.KindBegin, s.Kind == format.KindEnd
		if begins != (off == format.SegmentHeaderSize) || begins && !x.p.begun ||
			ends && (x.p.moved() || x.known && off+int64(s.Len) != min(x.to, x.p.size)) ||
			off == end && s.Seq != next || x.p.moved() && s.Seq != 0 {
			v.damage(format.Corrupt(x.p.name, off, "the frame is not where it belongs", nil), Loss{})
		}
		if end = off + int64(s.Len); !x.p.moved() {
			next = s.Next
		}

		return nil
	})
}

// names checks that the segments that a table names are there.
func (v *verifier) names(t *tree.Table) {
	for _, u := range t.Info.Segments {
		why := ""
		switch {
		case v.m == nil:
		case u.ID != v.m.From.Segment && v.listed(u.ID) == nil:
			why = fmt.Sprintf("it names segment %d, which the manifest does not", u.ID)
		case v.disk.segment(u.ID) == nil:
			why = fmt.Sprintf("%d of its values are in segment %d, which cannot be read", u.Entries, u.ID)
		}
		if why != "" {
			v.damage(format.Corrupt(format.TableName(v.dir, t.ID), 0, why, nil), Loss{})
		}
	}
}

// entry reads the value that an entry names.
func (v *verifier) entry(key []byte, e table.Entry) error {
	if v.out.Entries++; !e.Tombstone {
		val, err := v.value(key, e)
		if format.IsTransient(err) {
			return err
		}
		if err != nil {
			v.damage(err, Loss{})
			return nil
		}
		v.out.Values++
		v.out.ValueBytes += int64(len(val))
	}
	if v.out.Entries%1024 == 0 {
		return v.stop()
	}

	return nil
}
