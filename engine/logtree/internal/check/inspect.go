// Package check looks at the files of a logtree that is not open: it says what they hold, verifies them, and salvages
// what is intact of damaged ones. It has the readers that opening has, and changes nothing in the directory.
package check

import (
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
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
	roles := map[string]string{format.ManifestName: roleManifest, "HOLDFAST": roleHome, "LOCK": roleHome}
	used := map[uint32]format.ManifestSegment{}
	named := map[uint64]bool{}
	ends := map[uint32]int64{} // where frames end in the tail's segments
	if k.m == nil {
		damaged(k.manifestErr)
	} else {
		in.Manifest = manifestInfo(k.m)
		for _, s := range k.m.Segments {
			used[s.ID] = s
		}
		for _, t := range k.m.Tiers {
			for _, r := range t.Refs {
				named[r.Table] = true
			}
		}
		t, info, err := k.readTail()
		if in.Log = info; err != nil {
			damaged(err)
		}
		for _, s := range t.Segments {
			ends[s.ID] = s.End
		}
	}
	live := map[uint32]int64{}
	for _, id := range k.runs {
		name := format.TableName(dir, id)
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
			si.Used, si.Payload = mine.Size, mine.Payload
			if mine.Payload > 0 {
				si.Garbage = max(0, 1-float64(si.Live)/float64(mine.Payload))
			}
		} else if si.Role == roleLog && k.m != nil {
			si.Used = ends[id]
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
			if name == format.ManifestName+".new" || name == "HOLDFAST.tmp" {
				f.Role = roleLeft
			}
		}
		f.Bytes, _ = fsys.Size(filepath.Join(dir, name)) // 0 for what is no file, or is just being removed
		in.Files = append(in.Files, f)
	}
	return in, nil
}

func positionInfo(p format.Position) PositionInfo {
	return PositionInfo{p.Segment, p.Offset, p.LSN, p.Seq}
}

func manifestInfo(m *format.Manifest) *ManifestInfo {
	mi := &ManifestInfo{NextFile: m.NextFile, NextTier: m.NextTier, From: positionInfo(m.From), Synced: m.Synced}
	for _, t := range m.Tiers {
		ti := TierInfo{ID: t.ID}
		for _, r := range t.Refs {
			ti.Refs = append(ti.Refs, RefInfo{r.Table, r.Lo, r.Hi})
		}
		mi.Tiers = append(mi.Tiers, ti)
	}
	return mi
}

// disk is a database's directory as it lies there. It is never written to.
type disk struct {
	fs          vfs.FS
	dir         string
	id          format.DatabaseID
	m           *format.Manifest // nil if it is missing or damaged; manifestErr says which
	manifestErr error
	names       []string // of everything in the directory
	segs        []uint32 // ascending
	runs        []uint64 // ascending
	parts       map[uint32]*part
	cache       *run.Cache              // keeps no chunks, only files open
	open        map[uint32]*wal.Segment // for values; nil if it cannot be opened
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
	begun     bool // there is a whole begin frame
	framed    bool // there is a whole frame; known if there is no begin frame
	alike     bool // and all look as those of moved values do
}

// moved reports whether the segment holds moved values. Where the header is damaged, the begin frame
// tells: one of the log with lsn 0 is the first, and nothing was before it.
func (p *part) moved() bool {
	if p.headerErr == nil {
		return p.head.Kind == format.SegmentMoved
	}
	return p.begun && p.begin.LSN == 0 && p.begin.Seq > 0 || p.framed && p.alike
}

func newDisk(fsys vfs.FS, dir string) *disk {
	return &disk{fs: fsys, dir: dir, parts: map[uint32]*part{}, cache: run.NewCache(0),
		open: map[uint32]*wal.Segment{}}
}

// readDisk reads the names, the manifest and the beginnings of segments. Only what makes all
// else pointless is an error: the directory cannot be read, or has a newer format.
func readDisk(fsys vfs.FS, dir string) (*disk, error) {
	k := newDisk(fsys, dir)
	var err error
	if k.names, err = fsys.List(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, &holdfast.Error{Op: "read", Engine: format.Name, Path: dir, Detail: "there is no such directory",
			Cause: fs.ErrNotExist, Remedy: "name a directory that holdfast made"}
	} else if err != nil {
		return nil, format.IOError("read", dir, err)
	}
	for _, name := range k.names {
		if n, ok := format.Numbered(name, ".seg"); ok && n <= math.MaxUint32 {
			k.segs = append(k.segs, uint32(n))
		}
		if n, ok := format.Numbered(name, ".run"); ok {
			k.runs = append(k.runs, n)
		}
	}
	slices.Sort(k.segs)
	slices.Sort(k.runs)
	name := filepath.Join(dir, format.ManifestName)
	b, err := vfs.ReadFile(fsys, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.manifestErr = format.Corrupt(name, 0, "the file is missing", nil)
	case err != nil:
		k.manifestErr = format.IOError("open", name, err)
	default:
		if k.m, err = format.DecodeManifest(b, name); errors.Is(err, holdfast.ErrVersion) {
			return nil, err
		}
		k.manifestErr = err
	}
	heads := map[uint32][]byte{}
	for _, id := range k.segs {
		heads[id] = readHead(fsys, format.SegmentName(dir, id))
	}
	if k.m != nil {
		k.id = k.m.DB
	} else {
		k.id = guessID(heads)
	}
	for _, id := range k.segs {
		if err := k.addPart(id, heads[id]); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// addPart adds the file of a segment with that head.
func (k *disk) addPart(id uint32, h []byte) (err error) {
	p := &part{id: id, name: format.SegmentName(k.dir, id), epoch: k.id.Epoch(id)}
	if p.size, err = k.fs.Size(p.name); err != nil {
		return format.IOError("read", p.name, err)
	}
	p.head, p.headerErr = format.ParseSegmentHeader(h, k.id, id, p.name)
	if errors.Is(p.headerErr, holdfast.ErrVersion) && k.m == nil {
		return p.headerErr
	}
	if len(h) >= format.SegmentHeaderSize {
		if f, ok := format.ParseFrame(h[format.SegmentHeaderSize:], p.epoch); ok {
			p.begin, p.begun = format.ParseBegin(f)
		}
	}
	if !p.begun {
		k.lookAt(p)
	}
	k.parts[id] = p
	return nil
}

// lookAt looks at the frames of a segment whose first one is damaged.
func (k *disk) lookAt(p *part) {
	data, _ := k.read(p, format.SegmentHeaderSize, p.size)
	p.alike = true
	for s := range stretches(data, format.SegmentHeaderSize, p.epoch) {
		p.framed = p.framed || s.Kind != 0
		p.alike = p.alike && (s.Kind == 0 || s.Seq == 0 && s.Unsynced == math.MaxUint32)
	}
}

// readHead reads a segment's header and first frame, as far as they are there.
func readHead(fsys vfs.FS, name string) []byte {
	f, err := fsys.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, format.SegmentHeaderSize+format.BeginSize)
	n, _ := f.ReadAt(b, 0)
	return b[:n]
}

// guessID is the identity that most whole headers name.
func guessID(heads map[uint32][]byte) (best format.DatabaseID) {
	votes := map[format.DatabaseID]int{}
	for id, h := range heads {
		if len(h) < format.SegmentHeaderSize {
			continue
		}
		db := format.DatabaseID(h[16:32])
		if _, err := format.ParseSegmentHeader(h, db, id, ""); err == nil {
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
	return run.Open(k.fs, format.TableName(k.dir, id), run.Identity{DB: k.id, ID: id}, k.cache)
}

// read returns what of a segment's file can be read, from off to end at most, and why it is not all.
func (k *disk) read(p *part, off, end int64) ([]byte, error) {
	f, err := k.fs.Open(p.name)
	if err != nil {
		return nil, format.ReadError(p.name, off, err)
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
	first := format.ReadError(p.name, off+int64(n), err)
	for at := n / sector * sector; at < len(b); at += sector {
		clear(b[at:min(at+sector, len(b))])
		f.ReadAt(b[at:min(at+sector, len(b))], off+int64(at))
	}
	return b, first
}

// stretch is a part of a segment: a whole frame, or bytes that belong to none.
type stretch struct {
	format.Frame        // kind 0: damaged
	off          int64  // in the file
	n            int64  // bytes
	ops          int    // of a batch
	next         uint32 // seq that the next frame of the log should have
	why          string // what is wrong with it
}

// stretches divides b, the bytes of a segment from offset off on, into whole frames and what lies
// between them. A last stretch that is no frame may be a torn end, or room that was never used.
func stretches(b []byte, off int64, epoch uint32) iter.Seq[stretch] {
	return func(yield func(stretch) bool) {
		least := uint32(0)
		search := format.Search{Bytes: b, Epoch: epoch}
		for at := 0; at < len(b); {
			f, ok := format.ParseFrame(b[at:], epoch)
			if !ok {
				n := search.Resync(at, least) - at
				if !yield(stretch{off: off + int64(at), n: int64(n), next: least, why: "there is no whole frame"}) {
					return
				}
				at += n
				continue
			}
			n := min(f.Size(), len(b)-at) // the file may end in a frame's padding
			s := stretch{Frame: f, off: off + int64(at), n: int64(n)}
			if f.Kind == format.KindBatch {
				var err error
				if s.ops, err = format.CheckBatch(f.Body); err != nil {
					s.Kind, s.why = 0, err.Error()
				}
			}
			least = max(least, f.Seq+uint32(s.ops))
			s.next = least
			if !yield(s) {
				return
			}
			at += n
		}
	}
}

// readTail reads the log's tail, as opening would. If that would refuse, damage says why, and the tail ends there.
func (k *disk) readTail() (t *wal.Tail, info LogInfo, damage error) {
	t, damage = wal.ReadTail(k.fs, k.dir, k.m, k.segs, wal.TailVisitor{})
	from := k.m.From
	info = LogInfo{Frames: t.Frames, Batches: t.Batches, Operations: int64(t.End.Seq - from.Seq),
		Bytes: int64(t.End.LSN - from.LSN), TornBytes: t.Torn, End: positionInfo(t.End)}
	if damage != nil {
		info.TornBytes = 0
	}
	for i := range t.Segments {
		s := &t.Segments[i]
		info.Segments = append(info.Segments, s.ID)
		if damage != nil && s.ID == t.End.Segment {
			s.End = t.End.Offset
		}
	}
	return t, info, damage
}

// IsDatabase reports whether dir holds files that only a logtree has, whatever else is damaged.
func IsDatabase(fsys vfs.FS, dir string) bool {
	names, err := fsys.List(dir)
	if err != nil {
		return false
	}
	for _, name := range names {
		if name != format.ManifestName && !strings.HasSuffix(name, ".seg") {
			continue
		}
		if h := readHead(fsys, filepath.Join(dir, name)); len(h) >= 8 &&
			(string(h[:8]) == format.ManifestMagic || string(h[:8]) == format.SegmentMagic) {
			return true
		}
	}
	return false
}
