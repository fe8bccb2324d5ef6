package db

import (
	"cmp"
	"slices"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
)

// Pin returns this moment of the database. All of it is in the files, and no file of it is removed until release, which
// is called once.
func (d *DB) Pin() (p wal.Pinned, release func(), err error) {
	d.edit.Lock()

	// With edit held neither a flush nor a compaction can install: the manifest, the view and the segments are of one
	// moment.
	v := d.latest().view
	p = wal.Pinned{FS: d.files.FS, Dir: d.files.Dir, Manifest: d.manifest(v.ver, d.edit.from)}
	var held []*wal.Segment
	d.mu.Lock()
	p.End = d.log.End()
	p.Growing = map[uint32]bool{p.End.Segment: true}

	// The version holds references to the segments that its tables name. Those that only the log has get one each here.
	for _, s := range d.mu.segs {
		if s.Open.Load() {
			p.Growing[s.ID] = true
		}
		if s.Kind == format.SegmentLog && s.ID >= d.edit.from.Segment {
			// Used of the present segment counts what is written, and End what is appended. The latter is what the moment
			// has.
			x := format.ManifestSegment{ID: s.ID, Size: s.Used.Load(), Payload: s.Payload.Load()}
			if s == d.log.Current() {
				x.Size = p.End.Offset
			}
			s.Acquire()
			held, p.Log = append(held, s), append(p.Log, x)
		}
	}
	d.mu.Unlock()
	d.edit.Unlock()
	slices.SortFunc(p.Log, func(a, b format.ManifestSegment) int { return cmp.Compare(a.ID, b.ID) })
	release = func() {
		v.release()

		for _, s := range held {
			s.Release()
		}
		d.removeObsolete()
	}

	// Frames that are still in memory alone are written, so that the files have everything that the moment had.
	if !d.readOnly {
		err = d.log.Write(p.End.LSN)
	}
	if err != nil {
		release()
		return p, nil, err
	}

	return p, release, nil
}
