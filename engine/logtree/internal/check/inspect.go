// Package check looks at the files of a logtree that is not open: it says what they hold, verifies them, and salvages
// what is intact of damaged ones. It has the readers that opening has, and changes nothing in the directory.
//
// All three go over a [disk], which notes the damage that it meets. Verify reads everything and returns that; Repair
// does the same and takes over what could be read.
package check

import (
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/vfs"
)

// Inspection is what a database's directory holds. Sizes are in bytes.
type Inspection struct {
	Database string        `json:"database"` // its identity, hexadecimal
	Manifest *ManifestInfo `json:"manifest"` // nil if it cannot be read
	Segments []SegmentInfo `json:"segments"`
	Tables   []TableInfo   `json:"tables"`
	Log      LogInfo       `json:"log"`
	Files    []FileInfo    `json:"files"`
	Damage   []string      `json:"damage"` // that was met in passing; Verify looks for all of it
}

// ManifestInfo is what the manifest says.
type ManifestInfo struct {
	NextFile uint64       `json:"next_file"`
	NextTier uint64       `json:"next_tier"`
	From     PositionInfo `json:"from"`   // the log from here on is in no table
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

// TierInfo is a sequence of tables that do not overlap.
type TierInfo struct {
	ID   uint64    `json:"id"`
	Refs []RefInfo `json:"refs"`
}

// RefInfo is the part of a table that is alive: its keys in [Lo, Hi), where an empty bound cuts nothing.
type RefInfo struct {
	Table uint64 `json:"table"`
	Lo    []byte `json:"lo"`
	Hi    []byte `json:"hi"`
}

// SegmentInfo is one segment.
type SegmentInfo struct {
	ID      uint32 `json:"id"`
	Role    string `json:"role"`
	Bytes   int64  `json:"bytes"`   // of the file
	Used    int64  `json:"used"`    // bytes of frames, as far as the manifest or the log's tail says; 0: not known
	Payload int64  `json:"payload"` // bytes of keys and values in the frames
	Live    int64  `json:"live"`    // bytes of keys and values that tables refer to
	// Garbage is the share of Payload that no table refers to; 0 where the log itself still needs the segment.
	Garbage float64 `json:"garbage"`
}

// TableInfo is one table.
type TableInfo struct {
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
	roleFlushed  = "moved values of a flush"
	roleTable    = "table"
	roleReserve  = "reserve of room"
	roleLeft     = "left over"
	roleDir      = "directory"
	roleForeign  = "not logtree's"
)

// role is that of a file, where the log's tail is t.
func (k *disk) role(name string, t *wal.Tail) string {
	switch name {
	case format.ManifestName:
		return roleManifest
	case format.ReserveName:
		return roleReserve
	case "HOLDFAST", "LOCK":
		return roleDir
	case format.ManifestName + ".new", "HOLDFAST.tmp", "TEMP":
		return roleLeft
	}
	if id, ok := format.Numbered(name, format.TableExt); ok {
		if k.m == nil || k.named[id] {
			return roleTable
		}

		return roleLeft
	}
	id, ok := format.Numbered(name, format.SegmentExt)
	p := k.parts[uint32(id)]
	if !ok || p == nil {
		return roleForeign
	}

	// The order decides: what the manifest lists has left the log, and what the tail has come through belongs to it.
	listed := k.listed(p.id) != nil
	is := func(s wal.TailSegment) bool { return s.ID == p.id }
	switch {
	case p.moved() && (listed || k.m == nil):
		if p.head.Flags&format.FlagFlushed != 0 {
			return roleFlushed
		}

		return roleMoved
	case listed:
		return roleOldLog
	case k.m == nil || slices.ContainsFunc(t.Segments, is) || k.refused && !p.moved() && p.id >= k.m.From.Segment:
		return roleLog
	}

	return roleLeft
}

// Inspect reads what is in dir, without opening it as a database and without changing a byte. It reads
// headers, the manifest and the log's tail, not all values. Damage is in the result; an error means that
// nothing could be said: ErrVersion, or the directory cannot be read. If the database is
// open, what is reported may belong to different moments.
func Inspect(fsys vfs.FS, dir string) (*Inspection, error) {
	k, err := readDisk(fsys, dir)
	if err != nil {
		return nil, err
	}
	defer k.close()
	in := &Inspection{Database: hex.EncodeToString(k.id[:])}
	var t *wal.Tail
	used := map[uint32]int64{} // of the tail's segments
	if k.m != nil {
		in.Manifest = manifestInfo(k.m)

		// The tail is read without a visitor: only its numbers are of interest.
		if t, err = k.tail(nil); err != nil {
			return nil, err
		}

		in.Log = LogInfo{Frames: t.Frames, Batches: t.Batches, Operations: int64(t.End.Seq - k.m.From.Seq),
			Bytes: int64(t.End.LSN - k.m.From.LSN), TornBytes: t.Torn, End: positionInfo(t.End)}
		for _, s := range t.Segments {
			in.Log.Segments = append(in.Log.Segments, s.ID)
			used[s.ID] = s.End
		}
		used[t.End.Segment] = t.End.Offset
	}

	live := map[uint32]int64{}
	for _, id := range k.tableIDs {
		// A table that nothing names may be damaged without harm: opening removes it.
		r := TableInfo{ID: id, Named: k.named[id]}
		if table, err := k.table(id); err == nil {
			i := table.Info
			r.Bytes, r.Entries, r.Tombstones = i.FileBytes, i.Entries, i.Tombstones
			r.Smallest, r.Largest, r.Segments = i.Smallest, i.Largest, len(i.Segments)
			for _, u := range i.Segments {
				if r.Named {
					live[u.ID] += u.Bytes
				}
			}
		} else if r.Named {
			k.damage(err, Loss{})
		}
		in.Tables = append(in.Tables, r)
	}

	for _, id := range k.segs {
		p := k.parts[id]
		if p == nil {
			continue // an open database has removed it since it was listed
		}
		s := SegmentInfo{ID: id, Bytes: p.size, Live: live[id], Role: k.role(filepath.Base(p.name), t), Used: used[id]}
		if mine := k.listed(id); mine != nil {
			s.Used, s.Payload = mine.Size, mine.Payload
			if s.Payload > 0 {
				s.Garbage = max(0, 1-float64(s.Live)/float64(s.Payload))
			}
		}
		if p.headerErr != nil && s.Role != roleLeft {
			k.damage(p.headerErr, Loss{})
		}
		in.Segments = append(in.Segments, s)
	}

	for _, name := range k.names {
		f := FileInfo{Name: name, Role: k.role(name, t)}
		f.Bytes, _ = fsys.Size(filepath.Join(dir, name)) // 0 for what is no file, or is just being removed
		in.Files = append(in.Files, f)
	}

	if k.short != nil {
		return nil, k.short
	}

	for _, l := range k.lost {
		in.Damage = append(in.Damage, l.err.Error())
	}

	return in, nil
}

// positionInfo is the form for JSON, as are those that follow.
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
		if h, _ := readHead(fsys, filepath.Join(dir, name)); len(h) >= 8 &&
			(string(h[:8]) == format.ManifestMagic || string(h[:8]) == format.SegmentMagic) {
			return true
		}
	}

	return false
}
