package check

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
	"github.com/holdfastdb/holdfast/vfs"
)

// Repaired is what a repair has salvaged, and what not.
type Repaired struct {
	Source     string // what the new database was made from
	Keys       int64  // in the new database
	Values     int64  // read for entries of tables, each with its checksum right
	Operations int64  // taken over from frames of the log, moved values included
	TornBytes  int64  // behind the log's end, which opening would have cut off too; nothing that had been synced

	// Lost is what could not be read: damaged places of files, and values of keys.
	Lost []Loss
	// LostKeys is how many keys have no value now because theirs is damaged; they are in Lost. Older values of theirs
	// are not taken over.
	LostKeys int64
	// Doubt says why keys that Lost does not name may have older values than they had, may be missing, or may be back
	// though they had been deleted. It is empty if none can.
	Doubt string
}

// Loss is what could not be read.
type Loss struct {
	Path   string
	Offset int64
	Bytes  int64  // 0: not known
	Key    []byte // whose value it is, nil: not one value
	Why    string
	// Maybe are keys that a damaged frame seems to be about. That is a hint: the checksum is wrong.
	Maybe [][]byte

	err error // that says so too
}

// Complete reports whether nothing was lost and nothing is in doubt.
func (r *Repaired) Complete() bool { return len(r.Lost) == 0 && r.Doubt == "" }

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
	add(int64(len(r.Lost))-r.LostKeys, "what stood in a damaged place of a file",
		"what stood in %d damaged places of files")
	if r.Doubt != "" {
		parts = append(parts, "perhaps the latest changes of other keys")
	}

	return strings.Join(parts, ", ")
}

// Repair writes all that is intact in dir to the engine into, which must be empty, and syncs it. Nothing
// in dir is changed, and it must not be open elsewhere. An error means that into is of no use.
//
// Only bytes whose checksum is right are taken over, values only as values of their own key:
//
//   - What the manifest and intact tables say is exact, but for damaged values. Their keys are in Repaired.Lost.
//   - Of keys where a table is damaged, or of all keys if there is no manifest, the log itself is read from its oldest
//     segment to its newest. Segments that held nothing but garbage are gone, deletes among it.
//   - The log's tail follows. Behind damage in it whatever is whole is taken over too: later batches are there without
//     earlier ones.
//
// In the last two cases Repaired.Doubt says so. It reads one segment at a time into memory, and the log once for each
// tier with damaged tables.
func Repair(fsys vfs.FS, dir string, into holdfast.Engine) (*Repaired, error) {
	k, err := readDisk(fsys, dir)
	if err != nil {
		return nil, err
	}

	r := &repairer{disk: k, into: into, lostKeys: map[string]Loss{}}
	defer r.close()
	if r.m == nil {
		r.out.Source = "the log alone, without the manifest"

		// An interval without bounds is all keys.
		r.doubt("there is no manifest that can be read")
		err = r.fromLog([]interval{{}})
	} else {
		r.out.Source = "the tables that the manifest names and the log behind them"
		if err = r.fromTiers(); err == nil {
			err = r.fromTail()
		}
	}

	// A failure that passes, such as too many open files, hid a part of the directory. The result would look complete.
	if err == nil {
		err = r.short
	}
	if err == nil {
		err = into.Sync()
	}
	if err != nil {
		return nil, err
	}

	return r.result()
}

// repairer takes over what is intact, operation by operation, in the order in which it was written: the last word
// wins.
type repairer struct {
	*disk
	into     holdfast.Engine
	batch    holdfast.Batch
	out      Repaired
	lostKeys map[string]Loss // keys whose last value that was met is damaged
	doubts   []string
}

// result counts the keys, and says what is lost in the end.
func (r *repairer) result() (*Repaired, error) {
	r.out.Lost = r.lost
	for _, key := range slices.Sorted(maps.Keys(r.lostKeys)) {
		r.out.Lost = append(r.out.Lost, r.lostKeys[key])
	}
	r.out.LostKeys = int64(len(r.lostKeys))
	if len(r.doubts) > 0 {
		r.out.Doubt = strings.Join(r.doubts, ", and ") + ": keys may have older values than they had, deleted keys may be " +
			"back, and changes may be missing"
	}

	// The keys are counted in the new database: what was overwritten or deleted on the way does not count.
	it := r.into.Scan(holdfast.Range{})
	defer it.Close()

	for it.Next() {
		r.out.Keys++
	}

	return &r.out, it.Err()
}

// doubt notes a reason why keys that are not named may be wrong, once.
func (r *repairer) doubt(why string) {
	if !slices.Contains(r.doubts, why) {
		r.doubts = append(r.doubts, why)
	}
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

	// One sync at the end makes all of it durable.
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

// fromTiers takes over what the tiers say, the oldest first, so that newer ones have the last word. Where tables of a
// tier are damaged the log takes their place.
func (r *repairer) fromTiers() error {
	for _, t := range slices.Backward(r.m.Tiers) {
		gaps, err := r.tier(t, r.takeEntry)

		// For keys in the gaps the log is read, after this tier and before newer ones, which have the last word.
		if err == nil && len(gaps) > 0 {
			r.doubt("a table is damaged")
			err = r.fromLog(gaps)
		}
		if err != nil {
			return err
		}
	}

	return nil
}

// takeEntry takes over one entry.
func (r *repairer) takeEntry(key []byte, e table.Entry) error {
	// What an older tier had lost does not matter any more: this entry is newer.
	delete(r.lostKeys, string(key))
	if e.Tombstone {
		r.batch.Delete(key)
		return r.flush()
	}

	val, err := r.value(key, e)
	switch {
	case format.IsTransient(err):
		return err
	case err == nil:
		r.out.Values++
		r.batch.Set(key, val)

		return r.flush()
	}

	// An older value must not come back in place of the damaged one, so the key is deleted, and named.
	id, why := uint32(e.Place>>32), "the value is damaged"
	if r.segment(id) == nil {
		why = "the file is missing"
	}
	r.lostKeys[string(key)] = Loss{Path: format.SegmentName(r.dir, id), Offset: int64(uint32(e.Place)),
		Bytes: int64(e.Len), Key: bytes.Clone(key), Why: why}
	r.batch.Delete(key)

	return r.flush()
}

// fromLog takes over what the log before the manifest's position says of keys in gaps. Moved values take their place
// at the operation that their segment names.
func (r *repairer) fromLog(gaps []interval) error {
	take := func(s format.Stretch) error {
		if s.Kind != format.KindBatch {
			return nil
		}

		return r.take(s.Body, gaps)
	}

	// A segment of moved values says how new they can be: after which operation of the log it is to be taken over.
	var moved []*part
	for _, id := range r.segs {
		if p := r.parts[id]; p.moved() && (r.m == nil || r.listed(id) != nil) {
			moved = append(moved, p)
		}
	}
	slices.SortStableFunc(moved, func(a, b *part) int { return cmp.Compare(a.begin.Seq, b.begin.Seq) })
	movedUpTo := func(seq uint64) (err error) {
		for len(moved) > 0 && moved[0].begin.Seq <= seq && err == nil {
			p := moved[0]
			moved = moved[1:]
			err = r.frames(r.whole(p), func(s format.Stretch, _ int64) error { return take(s) })
		}

		return err
	}

	last := uint64(0) // operation
	for _, x := range r.pieces() {
		// From the manifest's position on it is the tail, which fromTail takes over.
		if r.m != nil && x.p.id >= r.m.From.Segment {
			if x.p.id > r.m.From.Segment {
				break
			}
			x.to, x.known = min(x.to, r.m.From.Offset), true
		}

		// A segment whose begin frame is damaged goes on from the last operation that was met.
		base := last
		if x.p.begun {
			base = x.p.begin.Seq
		}
		err := r.frames(x, func(s format.Stretch, _ int64) error {
			if err := movedUpTo(base + uint64(s.Seq)); err != nil {
				return err
			}
			last = base + uint64(s.Next)

			return take(s)
		})
		if err != nil {
			return err
		}
	}

	if r.m != nil {
		for _, s := range r.m.Segments {
			if r.parts[s.ID] == nil {
				r.damage(format.Corrupt(format.SegmentName(r.dir, s.ID), 0, "the file is missing", nil), Loss{})
			}
		}
	}

	return movedUpTo(math.MaxUint64)
}

// fromTail takes over the log behind the manifest's position: what opening would read, and if it would refuse, all
// that is whole behind that.
func (r *repairer) fromTail() error {
	t, err := r.tail(func(body []byte) error { return r.take(body, []interval{{}}) })
	if r.out.TornBytes = t.Torn; r.refused {
		r.doubt("frames of the log are gone")
	}

	return err
}

// take takes over the operations of a batch about keys in the intervals.
func (r *repairer) take(body []byte, within []interval) error {
	for at := 0; at < len(body); {
		rec, _ := format.ParseRecord(body[at:])
		at += rec.Size

		// A range delete is cut to the intervals: outside of them the intact tables have the last word.
		if rec.Kind == holdfast.KindDeleteRange {
			for _, h := range within {
				if cut := h.and(rec.Key, rec.Value); !cut.empty() {
					r.batch.DeleteRange(cut.lo, cut.hi)
					maps.DeleteFunc(r.lostKeys, func(key string, _ Loss) bool { return cut.has([]byte(key)) })
				}
			}
			continue
		}
		if !slices.ContainsFunc(within, func(h interval) bool { return h.has(rec.Key) }) {
			continue
		}
		r.out.Operations++

		// A newer operation on the key makes the loss of the older value meaningless.
		delete(r.lostKeys, string(rec.Key))
		if rec.Kind == holdfast.KindSet {
			r.batch.Set(rec.Key, rec.Value)
		} else {
			r.batch.Delete(rec.Key)
		}
	}

	return r.flush()
}
