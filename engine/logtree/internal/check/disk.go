package check

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/files"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/tree"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/vfs"
)

// disk is a database's directory as it lies there. It is never written to.
type disk struct {
	fs       vfs.FS
	dir      string
	id       format.DatabaseID
	m        *format.Manifest // nil: it is missing or damaged
	names    []string         // of everything in the directory
	segs     []uint32         // ascending
	tableIDs []uint64         // of the files that are there, ascending
	named    map[uint64]bool  // the tables of the manifest
	parts    map[uint32]*part

	files    tree.Files // keeps no chunks
	segments wal.Files
	tables   map[uint64]*tree.Table  // opened
	open     map[uint32]*wal.Segment // for values; nil if there is none
	buf      []byte                  // the last value

	lost    []Loss        // what was found to be damaged
	said    map[place]int // where in lost
	refused bool          // opening would refuse the log's tail
	short   error         // the first file that could not be read for a reason that passes: what was found is not all
}

// part is a segment's file.
type part struct {
	id        uint32
	name      string
	size      int64
	epoch     uint32
	head      format.SegmentHeader // what the header says, if headerErr is nil
	headerErr error
	begin     format.Begin
	begun     bool         // there is a whole begin frame
	first     format.Frame // the first whole one; kind 0: there is none
}

// moved reports whether the segment holds moved values. Where the header is damaged, a frame tells: of the log's, it
// would say how much was not synced when it was made.
func (p *part) moved() bool {
	if p.headerErr == nil {
		return p.head.Kind == format.SegmentMoved
	}

	return p.first.Kind != 0 && p.first.Seq == 0 && p.first.Unsynced == math.MaxUint32
}

// readDisk reads the names, the manifest and the beginnings of segments. Only what makes all
// else pointless is an error: the directory cannot be read, or has a newer format.
func readDisk(fsys vfs.FS, dir string) (*disk, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &holdfast.Error{Op: "read", Engine: format.Name, Path: dir, Detail: "there is no such directory",
			Cause: fs.ErrNotExist, Remedy: "name a directory that holdfast made"}
	} else if err != nil {
		return nil, format.IOError("read", dir, err)
	}

	var segs []uint32
	var tables []uint64
	for _, name := range names {
		if n, ok := format.Numbered(name, format.SegmentExt); ok && n <= math.MaxUint32 {
			segs = append(segs, uint32(n))
		}
		if n, ok := format.Numbered(name, format.TableExt); ok {
			tables = append(tables, n)
		}
	}
	slices.Sort(segs)
	slices.Sort(tables)

	// A damaged manifest is what repair is for. Only a newer format, or a failure that passes, ends everything.
	m, damage := readManifest(fsys, dir)
	if errors.Is(damage, holdfast.ErrVersion) || format.IsTransient(damage) {
		return nil, damage
	}
	k, err := newDisk(fsys, dir, m, segs)
	if err != nil {
		return nil, err
	}
	if k.names, k.tableIDs = names, tables; damage != nil {
		k.damage(damage, Loss{})
	}

	return k, nil
}

// readManifest reads the manifest. Unlike that of package db it takes a missing file for damage: a database has one.
func readManifest(fsys vfs.FS, dir string) (*format.Manifest, error) {
	name := filepath.Join(dir, format.ManifestName)
	b, err := vfs.ReadFile(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, format.Corrupt(name, 0, "the file is missing", nil)
	case err != nil:
		return nil, format.ReadError(name, 0, err)
	}

	return format.DecodeManifest(b, name)
}

// newDisk returns the directory with that manifest, nil if there is none, and those segments, of which it reads the
// beginnings.
func newDisk(fsys vfs.FS, dir string, m *format.Manifest, segs []uint32) (*disk, error) {
	k := &disk{fs: fsys, dir: dir, m: m, segs: segs, named: map[uint64]bool{}, parts: map[uint32]*part{},
		tables: map[uint64]*tree.Table{}, open: map[uint32]*wal.Segment{}, said: map[place]int{}}

	heads := map[uint32][]byte{}
	votes := map[format.DatabaseID]int{}
	for _, id := range segs {
		h, err := readHead(fsys, format.SegmentName(dir, id))
		if err != nil {
			return nil, err
		}

		if heads[id] = h; m != nil || len(h) < format.SegmentHeaderSize {
			continue
		}
		db := format.DatabaseID(h[16:32]) // without a manifest, the identity is that which most headers name
		if _, err := format.ParseSegmentHeader(h, db, id, ""); err == nil {
			if votes[db]++; votes[db] > votes[k.id] {
				k.id = db
			}
		}
	}
	if m != nil {
		k.id = m.DB
		for _, t := range m.Tiers {
			for _, r := range t.Refs {
				k.named[r.Table] = true
			}
		}
	}

	// Nothing is kept in memory: each chunk is to be read from the disk, where the damage is.
	set := files.NewSet(mostOpen)
	k.files = tree.Files{FS: fsys, Dir: dir, DB: k.id, Open: set, Cache: table.NewCache(0)}
	k.segments = wal.Files{FS: fsys, Set: set, Dir: dir, DB: k.id}

	for _, id := range segs {
		if err := k.addPart(id, heads[id]); err != nil {
			return nil, err
		}
	}

	return k, nil
}

// readHead reads a segment's header and first frame, as far as they are there. An error is one that passes.
func readHead(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if format.IsTransient(err) {
		return nil, format.IOError("open", name, err)
	}
	if err != nil {
		return nil, nil
	}
	defer f.Close()

	// A file that is too short gives what it has. The header's parser says what is missing.
	b := make([]byte, format.SegmentHeaderSize+format.BeginSize)
	n, err := f.ReadAt(b, 0)
	if format.IsTransient(err) {
		return nil, format.IOError("read", name, err)
	}

	return b[:n], nil
}

// addPart adds the file of a segment with that head, if it is there.
func (k *disk) addPart(id uint32, h []byte) (err error) {
	p := &part{id: id, name: format.SegmentName(k.dir, id), epoch: k.id.Epoch(id)}

	// The directory may belong to an open database, which removes files meanwhile.
	if p.size, err = k.fs.Size(p.name); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return format.IOError("read", p.name, err)
	}
	p.head, p.headerErr = format.ParseSegmentHeader(h, k.id, id, p.name)

	// With a manifest a newer segment is damage to one file. Without one, it says that the whole directory has a newer
	// format.
	if errors.Is(p.headerErr, holdfast.ErrVersion) && k.m == nil {
		return p.headerErr
	}
	if f, ok := format.ParseFrame(h[min(format.SegmentHeaderSize, len(h)):], p.epoch); ok {
		p.first = f
		p.begin, p.begun = format.ParseBegin(f)
	} else {
		// Without a begin frame the first whole one tells of which kind the segment is.
		data, err := k.read(p, p.size)
		if format.IsTransient(err) {
			return err
		}

		for s := range format.Stretches(data, p.epoch, 0) {
			if p.first = s.Frame; s.Kind != 0 {
				break
			}
		}
	}
	k.parts[id] = p

	return nil
}

// close closes what was opened for reading values and tables.
func (k *disk) close() {
	for _, t := range k.tables {
		t.Close()
	}

	for _, s := range k.open {
		if s != nil {
			s.Close()
		}
	}
}

// damage notes what is wrong with a place of a file, once. An error says where and what, if l does not. One that passes
// says nothing of the file, and is kept in short.
func (k *disk) damage(err error, l Loss) {
	if format.IsTransient(err) {
		// The first one is enough: it makes the whole result incomplete.
		k.short = cmp.Or(k.short, err)
		return
	}
	var e *holdfast.Error
	if l.err = err; errors.As(err, &e) {
		l.Path, l.Offset = e.Path, e.Offset
	} else {
		e = &holdfast.Error{Detail: err.Error()}
	}
	if l.Why == "" {
		l.Why = e.Detail
	}
	at := place{l.Path, l.Offset, ""}
	if l.Offset == 0 { // of the file as a whole there is more to say
		at.why = l.Why
	}

	// One place may be met by several walks. What each knows of it is joined.
	if i, said := k.said[at]; said {
		o := &k.lost[i]
		if o.Bytes = max(o.Bytes, l.Bytes); len(o.Maybe) == 0 {
			o.Maybe = l.Maybe
		}

		return
	}
	k.said[at] = len(k.lost)
	k.lost = append(k.lost, l)
}

// place tells damages apart.
type place struct {
	path string
	off  int64
	why  string
}

// read returns what of a segment's frames can be read, up to the offset end in the file at most, and why not all.
func (k *disk) read(p *part, end int64) ([]byte, error) {
	f, err := k.segments.Set.Open(k.fs, p.name)
	if err != nil {
		return nil, format.ReadError(p.name, 0, err)
	}
	defer f.Close()
	const off = format.SegmentHeaderSize

	// The manifest may promise more bytes than the file has. The caller says that it was cut.
	if end = min(end, p.size); off >= end {
		return nil, nil
	}
	b := make([]byte, end-off)
	n, err := f.ReadAt(b, off)
	if n == len(b) || err == io.EOF {
		return b[:n], nil
	}

	// One bad sector does not make the others unreadable; what cannot be read stays zeros.
	first := format.ReadError(p.name, off+int64(n), err)
	const sector = 512
	for at := n / sector * sector; at < len(b); at += sector {
		part := b[at:min(at+sector, len(b))]
		clear(part)
		f.ReadAt(part, off+int64(at))
	}

	return b, first
}

// piece is a part of a segment, [from, to). That it holds frames up to there is known, or it is the file's end.
type piece struct {
	p        *part
	from, to int64
	known    bool
}

// listed is what the manifest says of a segment, nil if it is not among those that the log has left behind.
func (k *disk) listed(id uint32) *format.ManifestSegment {
	if k.m != nil {
		if i := slices.IndexFunc(k.m.Segments, func(s format.ManifestSegment) bool { return s.ID == id }); i >= 0 {
			return &k.m.Segments[i]
		}
	}

	return nil
}

// whole is the part of a segment that holds frames, as far as the manifest says it.
func (k *disk) whole(p *part) piece {
	if s := k.listed(p.id); s != nil {
		return piece{p, format.SegmentHeaderSize, s.Size, true}
	}

	return piece{p, format.SegmentHeaderSize, p.size, false}
}

// pieces are the log's segments in its order, which is that of their numbers. A later one begins where the log ended
// when it was made: what older ones hold beyond that had been cut off.
func (k *disk) pieces() (all []piece) {
	// From the newest to the oldest: each begin frame says up to where the segments before it count.
	least := uint64(math.MaxUint64)
	for _, id := range slices.Backward(k.segs) {
		p := k.parts[id]
		if p == nil || p.moved() || p.first.Kind == 0 && p.headerErr == nil { // the last is one that was never used
			continue
		}
		x := k.whole(p)
		if p.begun {
			if p.begin.LSN >= least {
				continue
			}

			// Frames behind the place where the next segment begins were cut off when that was made, and are of no account.
			if n := least - p.begin.LSN; n < uint64(x.to-x.from) {
				x.to = x.from + int64(n)
			}
			least = p.begin.LSN
		}
		all = append(all, x)
	}
	slices.Reverse(all)

	return all
}

// frames calls each with the whole frames of a piece, and their offsets in the file, and notes what is damaged.
func (k *disk) frames(x piece, each func(s format.Stretch, off int64) error) error {
	p := x.p
	if p.headerErr != nil {
		k.damage(p.headerErr, Loss{})
	}
	if p.size < x.to {
		k.damage(format.Corrupt(p.name, p.size, fmt.Sprintf("the file has been cut short: it had %d bytes", x.to), nil),
			Loss{Bytes: x.to - p.size})
	}
	// Of what was before it, the search for frames knows which can follow.
	data, err := k.read(p, x.to)
	if format.IsTransient(err) {
		k.damage(err, Loss{})
		return err
	}
	if err != nil {
		k.damage(err, Loss{})
	}

	for s := range format.Stretches(data, p.epoch, 0) {
		// A stretch is a frame, or damage. Where it is not known how far the frames go, zeros are room that was never used.
		off := format.SegmentHeaderSize + int64(s.At)
		switch n := int64(s.Len); {
		case off+n <= x.from:
		case s.Kind != 0:
			if err := each(s, off); err != nil {
				return err
			}
		case x.known || format.Extent(data[s.At:]) > 0:
			if !x.known {
				n = min(n, format.Extent(data[s.At:]))
			}
			k.damage(format.Corrupt(p.name, off, fmt.Sprintf("%d bytes are damaged: %s", n, s.Why), nil),
				Loss{Bytes: n, Why: s.Why, Maybe: mayBeKeys(data[s.At:][:s.Len])})
		}
	}

	return nil
}

// mayBeKeys are a few keys of a batch with which b seems to begin.
func mayBeKeys(b []byte) (keys [][]byte) {
	if len(b) < format.FrameHeader || format.FrameKind(b[4]&3) != format.KindBatch {
		return nil
	}
	body := b[format.FrameHeader:]

	// The length may be damaged like everything else, so it is cut to what is there.
	body = body[:min(int(binary.LittleEndian.Uint32(b[4:])>>2), len(body))]
	if _, err := format.CheckBatch(body); err != nil {
		return nil
	}

	for at := 0; at < len(body) && len(keys) < 10; {
		rec, _ := format.ParseRecord(body[at:])
		at += rec.Size
		keys = append(keys, bytes.Clone(rec.Key))
	}

	return keys
}

// tail reads the log behind the manifest's position as opening would, and calls batch, if there is one, with what
// batches hold, or returns its error. If opening would refuse the tail, that is noted, the tail ends there, and all
// that is whole behind is read too.
func (k *disk) tail(batch func(body []byte) error) (*wal.Tail, error) {
	var v wal.TailVisitor
	var failed error
	if batch == nil {
		batch = func([]byte) error { return nil }
	}
	v.Batch = func(_ *wal.Tail, _ format.Position, body []byte, _ int) error {
		failed = batch(body)
		return failed
	}

	t, err := wal.ReadTail(k.fs, k.dir, k.m, k.segs, v)
	if err == nil || failed != nil {
		return t, failed
	}
	if format.IsTransient(err) {
		return t, err
	}
	k.damage(err, Loss{})

	// Opening ends at the damage, and refuses. Repair goes on with everything that is whole behind it.
	k.refused, t.Torn = true, 0
	for _, x := range k.pieces() {
		if x.p.id == t.End.Segment {
			x.from = max(x.from, t.End.Offset)
		}

		// Pieces before the end were read, and what the manifest lists is in tables, except for the segment in which the
		// tail begins.
		if x.p.id < t.End.Segment || x.from >= x.to || x.p.id != k.m.From.Segment && k.listed(x.p.id) != nil {
			continue
		}
		err := k.frames(x, func(s format.Stretch, _ int64) error {
			if s.Kind == format.KindBatch {
				return batch(s.Body)
			}

			return nil
		})
		if err != nil {
			return t, err
		}
	}

	return t, nil
}

// interval is the keys in [lo, hi); an empty hi is the end.
type interval struct{ lo, hi []byte }

// has reports whether the key lies in the interval.
func (i interval) has(key []byte) bool {
	return bytes.Compare(i.lo, key) <= 0 && (len(i.hi) == 0 || bytes.Compare(key, i.hi) < 0)
}

// String names the interval in messages, with the bounds cut to a readable length.
func (i interval) String() string {
	s := "any keys"
	if len(i.lo) > 0 {
		s += fmt.Sprintf(" from %.40q on", i.lo)
	}
	if len(i.hi) > 0 {
		s += fmt.Sprintf(" before %.40q", i.hi)
	}

	return s
}

// empty reports whether no key can lie in the interval.
func (i interval) empty() bool { return len(i.hi) > 0 && bytes.Compare(i.lo, i.hi) >= 0 }

// and is what lies in [lo, hi) too.
func (i interval) and(lo, hi []byte) interval {
	if bytes.Compare(i.lo, lo) < 0 {
		i.lo = lo
	}
	if len(i.hi) == 0 || len(hi) > 0 && bytes.Compare(hi, i.hi) < 0 {
		i.hi = hi
	}

	return i
}

// table opens a table, once.
func (k *disk) table(id uint64) (*tree.Table, error) {
	t := k.tables[id]
	if t != nil {
		return t, nil
	}
	t, err := k.files.OpenTable(id)

	// A table that cannot be opened is tried again each time, and the same damage is noted once.
	if err == nil {
		k.tables[id] = t
	}

	return t, err
}

// tier calls visit with the entries of a tier that can be read, and returns where there may have been others, because
// tables are damaged, which it notes.
func (k *disk) tier(t format.ManifestTier, visit func(key []byte, e table.Entry) error) (gaps []interval, err error) {
	var damages []error
	var before []byte // where the tables before end

	for _, mr := range t.Refs {
		gap := interval{mr.Lo, mr.Hi}

		// Without the table, all that is known of its keys are the manifest's bounds, and its neighbours.
		table, damage := k.table(mr.Table)
		var ref tree.Ref
		if damage == nil {
			ref = tree.NewRef(table, mr.Lo, mr.Hi)
			gap = interval{ref.Lo, ref.Span().Exclusive()}
			if bytes.Compare(gap.lo, before) < 0 {
				k.damage(format.Corrupt(k.manifestPath(), 0, fmt.Sprintf("table %d overlaps the one before it in tier %d",
					mr.Table, t.ID), nil), Loss{})
			}
		}

		for i := range gaps { // they end where this begins
			if g := &gaps[i]; len(gap.lo) > 0 && (len(g.hi) == 0 || bytes.Compare(g.hi, gap.lo) > 0) {
				g.hi = gap.lo
			}
		}

		if len(gap.lo) == 0 {
			gap.lo = before
		}
		if damage == nil {
			before = gap.hi
			if gap, damage, err = entries(&ref, gap, visit); err != nil {
				return nil, err
			}
		}
		if format.IsTransient(damage) {
			return nil, damage
		}
		if damage != nil {
			gaps, damages = append(gaps, gap), append(damages, damage)
		}
	}

	// The gaps are complete only now: the end of each is where the next table that can be read begins.
	for i, gap := range gaps {
		var e *holdfast.Error
		if errors.As(damages[i], &e) {
			more := *e
			more.Detail += "; it may have had " + gap.String()
			damages[i] = &more
		}
		k.damage(damages[i], Loss{})
	}

	return gaps, nil
}

// entries calls visit with the entries of a ref, whose keys are in gap, that can be read: up to damage, and from the
// end back to it. It returns where others may be, and what is wrong there, or visit's error. What lies between
// several damaged places is not read.
func entries(r *tree.Ref, gap interval, visit func(key []byte, e table.Entry) error) (_ interval, damage, err error) {
	gap = interval{bytes.Clone(gap.lo), gap.hi}
	var it table.Iter
	r.Table.Reader.Init(&it)

	for ok := it.SeekGE(gap.lo); ok && gap.has(it.Key()); ok = it.Next() {
		// What was visited is out of the gap: a zero behind the key is the least key above it.
		gap.lo = append(append(gap.lo[:0], it.Key()...), 0)
		if err := visit(it.Key(), it.Entry()); err != nil {
			return gap, nil, err
		}
	}

	// The walk ended at damage, or where the ref does.
	if damage = it.Err(); damage == nil {
		return gap, nil, nil
	}
	r.Table.Reader.Init(&it)

	// The walk back from the end stops at damage too, or at a key that the first walk has visited.
	for ok := it.SeekLT(gap.hi); ok && gap.has(it.Key()); ok = it.Prev() {
		gap.hi = append([]byte(nil), it.Key()...)
		if err := visit(it.Key(), it.Entry()); err != nil {
			return gap, damage, err
		}
	}

	return gap, damage, nil
}

// manifestPath is for errors.
func (k *disk) manifestPath() string { return filepath.Join(k.dir, format.ManifestName) }

// segment returns a segment for reading values, and nil if there is none. A damaged header does not matter for that.
func (k *disk) segment(id uint32) *wal.Segment {
	s, ok := k.open[id]
	if p := k.parts[id]; !ok && p != nil {
		s = k.segments.Reading(format.SegmentHeader{ID: id}, p.name, p.size)
	}

	// A segment that is missing is remembered too, as nil.
	k.open[id] = s

	return s
}

// mostOpen is how many files are open at a time.
const mostOpen = 64

// value returns the value that an entry names, valid until the next call, if it has the right checksum and stands in
// the log as the value of that key.
func (k *disk) value(key []byte, e table.Entry) ([]byte, error) {
	// An empty value has no byte in the log that could be damaged or missing. Its place proves nothing either: databases
	// of earlier versions name places at which another batch begins.
	if e.Len == 0 && e.Sum == format.Checksum(nil) {
		return nil, nil
	}

	s, p, off := k.segment(uint32(e.Place>>32)), k.parts[uint32(e.Place>>32)], int64(uint32(e.Place))
	if s == nil {
		return nil, format.Corrupt(format.SegmentName(k.dir, uint32(e.Place>>32)), 0, "the file is missing", nil)
	}

	// The record in the log has the key and the length before the value: a place that belongs to another key is found out,
	// even if the checksum is right by chance.
	head := binary.AppendUvarint(bytes.Clone(key), uint64(e.Len))
	var err error
	if k.buf, err = s.Read(k.buf[:0], off-int64(len(head)), len(head)+int(e.Len)); format.IsTransient(err) {
		return nil, err // that says nothing of the value
	} else if err != nil {
		return nil, format.Corrupt(p.name, off, fmt.Sprintf("the value of key %.40q cannot be read", key), err)
	}
	val := k.buf[len(head):]
	if !bytes.Equal(k.buf[:len(head)], head) {
		detail := fmt.Sprintf("there is no value of %d bytes of key %.40q", e.Len, key)
		return nil, format.Corrupt(p.name, off, detail, nil)
	}
	if format.Checksum(val) != e.Sum {
		return nil, format.Corrupt(p.name, off,
			fmt.Sprintf("the checksum of the value of key %.40q, %d bytes, is wrong", key, e.Len), nil)
	}

	return val, nil
}
