package db

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/vfs"
)

// Inspection is what a database's directory holds. Sizes are in bytes.
type Inspection struct {
	Database string        `json:"database"` // its identity, hexadecimal
	Manifest *ManifestInfo `json:"manifest"` // nil if it cannot be read
	Segments []SegmentInfo `json:"segments"`
	Runs     []RunInfo     `json:"runs"`
	Log      LogInfo       `json:"log"`
	Files    []FileInfo    `json:"files"`
	Damage   []string      `json:"damage"` // that was met in passing; Verify looks for all of it
}

// ManifestInfo is what the manifest says.
type ManifestInfo struct {
	NextFile uint64       `json:"next_file"`
	NextTier uint64       `json:"next_tier"`
	From     PositionInfo `json:"from"`   // the log from here on is in no run
	Synced   uint64       `json:"synced"` // an lsn that the log had reached, durably
	Tiers    []TierInfo   `json:"tiers"`  // newest first
}

// PositionInfo is a point of the log.
type PositionInfo struct {
	Segment  uint32 `json:"segment"`
	Offset   int64  `json:"offset"`
	LSN      uint64 `json:"lsn"`      // bytes of log before it
	Sequence uint64 `json:"sequence"` // of the last operation before it
}

// TierInfo is a sequence of runs that do not overlap.
type TierInfo struct {
	ID   uint64    `json:"id"`
	Refs []RefInfo `json:"refs"`
}

// RefInfo is the part of a run that is alive: its keys in [Lo, Hi), where an empty bound cuts nothing.
type RefInfo struct {
	Run uint64 `json:"run"`
	Lo  []byte `json:"lo"`
	Hi  []byte `json:"hi"`
}

// SegmentInfo is one segment.
type SegmentInfo struct {
	ID      uint32 `json:"id"`
	Role    string `json:"role"`
	Bytes   int64  `json:"bytes"`   // of the file
	Used    int64  `json:"used"`    // of them in frames, as far as the manifest or the log's tail says; 0: not known
	Payload int64  `json:"payload"` // bytes of keys and values in those frames
	Live    int64  `json:"live"`    // of them those that runs refer to
	// Garbage is the share of Payload that no run refers to; 0 where the log itself still needs the segment.
	Garbage float64 `json:"garbage"`
}

// RunInfo is one run.
type RunInfo struct {
	ID         uint64 `json:"id"`
	Named      bool   `json:"named"` // by the manifest; otherwise it is left over
	Bytes      int64  `json:"bytes"`
	Entries    int64  `json:"entries"` // tombstones included
	Tombstones int64  `json:"tombstones"`
	Smallest   []byte `json:"smallest"`
	Largest    []byte `json:"largest"`
	Segments   int    `json:"segments"` // that its values are in
}

// LogInfo is the log's tail: what lies behind the manifest's position.
type LogInfo struct {
	Frames     int64        `json:"frames"`
	Batches    int64        `json:"batches"`
	Operations int64        `json:"operations"`
	Bytes      int64        `json:"bytes"`
	TornBytes  int64        `json:"torn_bytes"` // behind its end, that opening cuts off
	Segments   []uint32     `json:"segments"`
	End        PositionInfo `json:"end"`
}

// FileInfo is one file.
type FileInfo struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	Bytes int64  `json:"bytes"`
}

// The roles of files.
const (
	roleManifest = "manifest"
	roleLog      = "log"
	roleOldLog   = "log, left behind"
	roleMoved    = "moved values"
	roleRun      = "run"
	roleLeft     = "left over"
	roleHome     = "directory"
	roleForeign  = "not logtree's"
)

// Inspect reads what is in dir, without opening it as a database and without changing a byte. It reads
// headers, the manifest and the log's tail, not all values. Damage is in the result; an error means that
// nothing could be said: ErrVersion, or the directory cannot be read. If the database is
// open, what is reported may belong to different moments.
func Inspect(fsys vfs.FS, dir string) (*Inspection, error) {
	k, err := readDisk(fsys, dir)
	if err != nil {
		return nil, err
	}
	in := &Inspection{Database: hex.EncodeToString(k.id[:])}
	damaged := func(err error) { in.Damage = append(in.Damage, err.Error()) }
	roles := map[string]string{manifestName: roleManifest, "HOLDFAST": roleHome, "LOCK": roleHome}
	used := map[uint32]manifestSegment{}
	named := map[uint64]bool{}
	var t tail
	if k.m == nil {
		damaged(k.manifestErr)
	} else {
		in.Manifest = k.m.info()
		for _, s := range k.m.segs {
			used[s.id] = s
		}
		for _, t := range k.m.tiers {
			for _, r := range t.refs {
				named[r.run] = true
			}
		}
		t = k.readTail(nil)
		in.Log = t.info
		for _, err := range t.damage {
			damaged(err)
		}
	}
	live := map[uint32]int64{}
	for _, id := range k.runs {
		name := runName(dir, id)
		ri := RunInfo{ID: id, Named: named[id]}
		r, err := k.openRun(id)
		if err == nil {
			i := r.Info()
			ri.Bytes, ri.Entries, ri.Tombstones = i.FileBytes, i.Entries, i.Tombstones
			ri.Smallest, ri.Largest, ri.Segments = i.Smallest, i.Largest, len(i.Segments)
			for _, u := range i.Segments {
				if named[id] {
					live[u.ID] += u.Bytes
				}
			}
			r.Close()
		} else if named[id] {
			damaged(err)
		}
		roles[filepath.Base(name)] = roleLeft
		if named[id] || k.m == nil {
			roles[filepath.Base(name)] = roleRun
		}
		in.Runs = append(in.Runs, ri)
	}
	for _, id := range k.segs {
		p := k.parts[id]
		si := SegmentInfo{ID: id, Bytes: p.size, Live: live[id], Role: roleLeft}
		mine, ok := used[id]
		switch {
		case p.moved() && (ok || k.m == nil):
			si.Role = roleMoved
		case ok:
			si.Role = roleOldLog
		case k.m == nil || slices.Contains(in.Log.Segments, id):
			si.Role = roleLog
		}
		if ok {
			si.Used, si.Payload = mine.size, mine.payload
			if mine.payload > 0 {
				si.Garbage = max(0, 1-float64(si.Live)/float64(mine.payload))
			}
		} else if si.Role == roleLog && k.m != nil {
			si.Used = t.ends[id]
		}
		if p.headerErr != nil && si.Role != roleLeft {
			damaged(p.headerErr)
		}
		roles[filepath.Base(p.name)] = si.Role
		in.Segments = append(in.Segments, si)
	}
	for _, name := range k.names {
		f := FileInfo{Name: name, Role: roles[name]}
		if f.Role == "" {
			f.Role = roleForeign
			if name == manifestName+".new" || name == "HOLDFAST.tmp" {
				f.Role = roleLeft
			}
		}
		f.Bytes, _ = fsys.Size(filepath.Join(dir, name)) // 0 for what is no file, or is just being removed
		in.Files = append(in.Files, f)
	}
	return in, nil
}

func (p position) info() PositionInfo { return PositionInfo{p.seg, p.off, p.lsn, p.seq} }

func (m *manifest) info() *ManifestInfo {
	mi := &ManifestInfo{NextFile: m.nextFile, NextTier: m.nextTier, From: m.from.info(), Synced: m.synced}
	for _, t := range m.tiers {
		ti := TierInfo{ID: t.id}
		for _, r := range t.refs {
			ti.Refs = append(ti.Refs, RefInfo{r.run, r.lo, r.hi})
		}
		mi.Tiers = append(mi.Tiers, ti)
	}
	return mi
}

// disk is a database's directory as it lies there. It is never written to.
type disk struct {
	fs          vfs.FS
	dir         string
	id          dbID
	m           *manifest // nil if it is missing or damaged; manifestErr says which
	manifestErr error
	names       []string // of everything in the directory
	segs        []uint32 // ascending
	runs        []uint64 // ascending
	parts       map[uint32]*part
	cache       *run.Cache // keeps no chunks, only files open
}

// part is a segment's file.
type part struct {
	id        uint32
	name      string
	size      int64
	epoch     uint32
	head      segment // what the header says, if headerErr is nil
	headerErr error
	begin     begin
	begun     bool // there is a whole begin frame
	alike     bool // neither it nor the header is whole, and all frames that are look as those of moved values do
}

// moved reports whether the segment holds moved values. Where the header is damaged, the begin frame
// tells: one of the log with lsn 0 is the first, and nothing was before it.
func (p *part) moved() bool {
	if p.headerErr == nil {
		return p.head.kind == kindMoved
	}
	return p.begun && p.begin.lsn == 0 && p.begin.seq > 0 || p.alike
}

// readDisk reads the names, the manifest and the beginnings of segments. Only what makes all
// else pointless is an error: the directory cannot be read, or has a newer format.
func readDisk(fsys vfs.FS, dir string) (*disk, error) {
	k := &disk{fs: fsys, dir: dir, parts: map[uint32]*part{}, cache: run.NewCache(0)}
	var err error
	if k.names, err = fsys.List(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, &holdfast.Error{Op: "read", Engine: Name, Path: dir, Detail: "there is no such directory",
			Cause: fs.ErrNotExist, Remedy: "name a directory that holdfast made"}
	} else if err != nil {
		return nil, ioError("read", dir, err)
	}
	for _, name := range k.names {
		if n, ok := numbered(name, ".seg"); ok && n <= math.MaxUint32 {
			k.segs = append(k.segs, uint32(n))
		}
		if n, ok := numbered(name, ".run"); ok {
			k.runs = append(k.runs, n)
		}
	}
	slices.Sort(k.segs)
	slices.Sort(k.runs)
	k.m, err = readManifest(fsys, dir)
	switch {
	case errors.Is(err, holdfast.ErrVersion):
		return nil, err
	case err != nil:
		k.m, k.manifestErr = nil, err
	case k.m == nil:
		k.manifestErr = corrupt(filepath.Join(dir, manifestName), 0, "the file is missing", nil)
	}
	heads := map[uint32][]byte{}
	for _, id := range k.segs {
		heads[id] = readHead(fsys, segmentName(dir, id))
	}
	if k.m != nil {
		k.id = k.m.db
	} else {
		k.id = guessID(heads)
	}
	for _, id := range k.segs {
		p := &part{id: id, name: segmentName(dir, id), epoch: k.id.epoch(id)}
		if p.size, err = fsys.Size(p.name); err != nil {
			return nil, ioError("read", p.name, err)
		}
		h := heads[id]
		p.headerErr = p.head.parseHeader(h, k.id, id, p.name)
		if errors.Is(p.headerErr, holdfast.ErrVersion) && k.m == nil {
			return nil, p.headerErr
		}
		if len(h) >= segmentHeader {
			if f, ok := parseFrame(h[segmentHeader:], p.epoch); ok {
				p.begin, p.begun = parseBegin(f)
			}
		}
		if !p.begun && p.headerErr != nil {
			p.alike = k.looksMoved(p)
		}
		k.parts[id] = p
	}
	return k, nil
}

// looksMoved reports whether a segment has whole frames, and all are like those of moved values.
func (k *disk) looksMoved(p *part) (moved bool) {
	data, _ := k.read(p, segmentHeader, p.size)
	for s := range stretches(data, segmentHeader, p.epoch) {
		if s.kind == 0 {
			continue
		}
		if s.seq != 0 || s.unsynced != math.MaxUint32 {
			return false
		}
		moved = true
	}
	return moved
}

// readHead reads a segment's header and first frame, as far as they are there.
func readHead(fsys vfs.FS, name string) []byte {
	f, err := fsys.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, segmentHeader+beginSize)
	n, _ := f.ReadAt(b, 0)
	return b[:n]
}

// guessID is the identity that most whole headers name.
func guessID(heads map[uint32][]byte) (best dbID) {
	votes := map[dbID]int{}
	for id, h := range heads {
		if len(h) < segmentHeader {
			continue
		}
		db := dbID(h[16:32])
		if s := new(segment); s.parseHeader(h, db, id, "") == nil {
			votes[db]++
		}
		if n := votes[db]; n > votes[best] || n == votes[best] && string(db[:]) < string(best[:]) {
			best = db
		}
	}
	return best
}

// openRun opens a run.
func (k *disk) openRun(id uint64) (*run.Reader, error) {
	return run.Open(k.fs, runName(k.dir, id), run.Identity{DB: k.id, ID: id}, k.cache)
}

// read returns what of a segment's file can be read, from off to end at most, and why it is not all.
func (k *disk) read(p *part, off, end int64) ([]byte, error) {
	f, err := k.fs.Open(p.name)
	if err != nil {
		return nil, readError(p.name, off, err)
	}
	defer f.Close()
	if end = min(end, p.size); off >= end {
		return nil, nil
	}
	b := make([]byte, end-off)
	n, err := f.ReadAt(b, off)
	if n == len(b) || err == io.EOF {
		return b[:n], nil
	}
	// One bad sector does not make the others unreadable; what cannot be read stays zeros.
	const sector = 512
	first := readError(p.name, off+int64(n), err)
	for at := n / sector * sector; at < len(b); at += sector {
		clear(b[at:min(at+sector, len(b))])
		f.ReadAt(b[at:min(at+sector, len(b))], off+int64(at))
	}
	return b, first
}

// stretch is a part of a segment: a whole frame, or bytes that belong to none.
type stretch struct {
	frame        // kind 0: damaged
	off   int64  // in the file
	n     int64  // bytes
	ops   int    // of a batch
	next  uint32 // seq that the next frame of the log should have
	why   string // what is wrong with it
}

// stretches divides b, the bytes of a segment from offset off on, into whole frames and what lies
// between them. A last stretch that is no frame may be a torn end, or room that was never used.
func stretches(b []byte, off int64, epoch uint32) iter.Seq[stretch] {
	return func(yield func(stretch) bool) {
		least := uint32(0)
		search := frameSearch{b: b, epoch: epoch}
		for at := 0; at < len(b); {
			f, ok := parseFrame(b[at:], epoch)
			if !ok {
				n := search.resync(at, least) - at
				if !yield(stretch{off: off + int64(at), n: int64(n), next: least, why: "there is no whole frame"}) {
					return
				}
				at += n
				continue
			}
			n := min(f.size(), len(b)-at) // the file may end in a frame's padding
			s := stretch{frame: f, off: off + int64(at), n: int64(n)}
			if f.kind == frameBatch {
				var err error
				if s.ops, err = checkBody(f.body); err != nil {
					s.kind, s.why = 0, err.Error()
				}
			}
			least = max(least, f.seq+uint32(s.ops))
			s.next = least
			if !yield(s) {
				return
			}
			at += n
		}
	}
}

// resync returns the offset of the next whole frame behind from, the length of the text if there is none. least is the
// least seq that it can have in the log.
func (s *frameSearch) resync(from int, least uint32) int {
	for at := from + frameAlign; at+frameHeader <= len(s.b); at += frameAlign {
		if s.b[at+4]&3 == 0 {
			continue
		}
		// Operations have at least three bytes. In a moved segment all seqs are 0.
		if seq := binary.LittleEndian.Uint32(s.b[at+8:]); seq != 0 && (seq < least || int64(seq-least) > int64(at-from)/3) {
			continue
		}
		if _, ok := s.at(at); ok {
			return at
		}
	}
	return len(s.b)
}

// tail is what the log holds behind the manifest's position, found as opening finds it.
type tail struct {
	info   LogInfo
	end    position
	ends   map[uint32]int64 // where the frames end in each of its segments, as far as they were read
	damage []error          // if opening would refuse
}

// readTail goes through the log's tail and calls visit, if it is not nil, with each batch and the number of
// the operation before it. It follows the same rules as DB.replay, and stops where that would.
func (k *disk) readTail(visit func(p *part, s stretch, seq uint64)) (t tail) {
	d := &DB{fs: k.fs, dir: k.dir, id: k.id, noMap: true, segs: map[uint32]*segment{}}
	at := k.m.from
	t.ends = map[uint32]int64{}
	fail := func(err error) tail {
		t.damage = append(t.damage, err)
		t.end, t.info.End = at, at.info()
		return t
	}
	behind := map[uint32]bool{}
	for _, s := range k.m.segs {
		behind[s.id] = true
	}
	var later []uint32
	for _, id := range k.segs {
		if id > at.seg && !behind[id] {
			later = append(later, id)
		}
	}
	var named successor
	var torn *tear
	for cur := at.seg; ; cur = 0 {
		if cur == 0 {
			s, err := d.follows(later, at, named)
			if err != nil {
				return fail(err)
			}
			if s == nil {
				break
			}
			cur = s.id
			s.file.Close()
			at.seg, at.off = cur, segmentHeader
		}
		p := k.parts[cur]
		if p == nil {
			return fail(corrupt(segmentName(k.dir, cur), 0, "the file is missing", nil))
		}
		if p.headerErr != nil {
			return fail(p.headerErr)
		}
		t.info.Segments = append(t.info.Segments, cur)
		for len(later) > 0 && later[0] <= cur {
			later = later[1:]
		}
		var err error
		named, torn, err = k.readTailSegment(p, &at, &t, visit)
		if t.ends[cur] = at.off; err != nil {
			return fail(err)
		}
	}
	t.end, t.info.End = at, at.info()
	if at.lsn < k.m.synced {
		return fail(endsEarly(k.dir, at, k.m.synced, torn))
	}
	if torn != nil {
		t.info.TornBytes = extent(torn.rest)
	}
	if err := d.checkTear(torn, at, later); err != nil {
		return fail(err)
	}
	return t
}

func (k *disk) readTailSegment(p *part, at *position, t *tail,
	visit func(p *part, s stretch, seq uint64)) (named successor, torn *tear, err error) {
	if at.off == 0 {
		at.off = segmentHeader
	}
	if at.off > p.size {
		return named, nil, corrupt(p.name, p.size, "the file has been cut short", nil)
	}
	start, base := at.lsn-uint64(at.off-segmentHeader), at.seq
	if at.off > segmentHeader {
		if !p.begun {
			return named, nil, corrupt(p.name, segmentHeader, "the first frame is damaged", nil)
		}
		if base = p.begin.seq; p.begin.lsn != start || base > at.seq {
			return named, nil, corrupt(p.name, segmentHeader, "the segment does not go with the manifest", nil)
		}
	}
	data, err := k.read(p, at.off, p.size)
	if err != nil {
		return named, nil, err
	}
	from := at.off
	for s := range stretches(data, from, p.epoch) {
		bad := func(detail string) (successor, *tear, error) { return named, nil, corrupt(p.name, s.off, detail, nil) }
		switch s.kind {
		case 0:
			if s.size() > frameHeader { // it is whole, but its records are not
				return bad(s.why)
			}
			return named, &tear{seg: &segment{file: nameOnly{name: p.name}, epoch: p.epoch}, off: at.off, start: start,
				rest: data[at.off-from:]}, nil
		case frameBegin:
			b, ok := parseBegin(s.frame)
			if !ok || s.off != segmentHeader || b.seq != at.seq || b.lsn != at.lsn {
				return bad("the segment does not follow the one before it")
			}
			base = b.seq
		case frameEnd:
			var ok bool
			if named, ok = parseEnd(s.frame); !ok {
				return bad("the last frame makes no sense")
			}
		default:
			if s.off == segmentHeader || base+uint64(s.seq) != at.seq {
				return bad("the frame does not follow the one before it")
			}
			if visit != nil {
				visit(p, s, at.seq)
			}
			t.info.Batches++
			t.info.Operations += int64(s.ops)
		}
		t.info.Frames++
		n := int64(s.size())
		t.info.Bytes += n
		at.off += n
		at.lsn += uint64(n)
		at.seq += uint64(s.ops)
		if named.id != 0 {
			return named, nil, nil
		}
	}
	return named, &tear{seg: &segment{file: nameOnly{name: p.name}, epoch: p.epoch}, off: at.off, start: start}, nil
}

// endsEarly is the error of a log of which whole frames were found up to at only, though it had been synced up to
// that lsn. torn is what was found there, nil if that is not known.
func endsEarly(dir string, at position, synced uint64, torn *tear) error {
	n := synced - at.lsn
	detail := fmt.Sprintf("the log ends %d bytes before what had been synced", n)
	if torn != nil && extent(torn.rest) > 0 {
		detail = fmt.Sprintf("the frame is damaged; from it on, %d bytes of log had been synced", n)
		search := frameSearch{b: torn.rest, epoch: torn.seg.epoch}
		for i := frameAlign; i+frameHeader <= len(torn.rest); i += frameAlign {
			if !mayBeFrame(torn.rest[i:], at.off-segmentHeader+int64(i)) {
				continue
			}
			if _, ok := search.at(i); ok {
				detail += fmt.Sprintf(", and sound frames follow it, the first at byte %d", at.off+int64(i))
				break
			}
		}
	}
	return corrupt(segmentName(dir, max(at.seg, 1)), at.off, detail, nil)
}

// nameOnly is a file of which nothing but the name is needed.
type nameOnly struct {
	vfs.File
	name string
}

func (n nameOnly) Name() string { return n.name }

// IsDatabase reports whether dir holds files that only a logtree has, whatever else is damaged.
func IsDatabase(fsys vfs.FS, dir string) bool {
	names, err := fsys.List(dir)
	if err != nil {
		return false
	}
	for _, name := range names {
		if name != manifestName && !strings.HasSuffix(name, ".seg") {
			continue
		}
		if h := readHead(fsys, filepath.Join(dir, name)); len(h) >= 8 &&
			(string(h[:8]) == manifestMagic || string(h[:8]) == segmentMagic) {
			return true
		}
	}
	return false
}
