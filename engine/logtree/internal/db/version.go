package db

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/run"
)

func runName(dir string, id uint64) string { return filepath.Join(dir, fmt.Sprintf("%08d.run", id)) }

// runFile is an open run. Versions that have it count as references.
type runFile struct {
	id   uint64
	r    *run.Reader
	raw  file // while it is written
	info run.Info
	refs atomic.Int32
	dead atomic.Bool
	free func(*runFile)

	damaged atomic.Bool // a part of it cannot be read: merges leave it alone
}

func (f *runFile) release() {
	if f.refs.Add(-1) > 0 {
		return
	}
	f.r.Close()
	if f.dead.Load() {
		f.free(f)
	}
}

// ref is the part of a run that is alive: its keys in [lo, hi). Range deletes cut runs
// without rewriting them; a run that is cut in the middle has two refs.
type ref struct {
	file   *runFile
	lo, hi []byte // empty: not cut on that side
	last   []byte // the greatest key that can be in it; not a key of it where hi cuts
	cutHi  bool   // last is hi itself, which is outside
	cut    *cutUse
}

func newRef(f *runFile, lo, hi []byte) ref {
	r := ref{file: f, lo: f.info.Smallest, last: f.info.Largest}
	if len(lo) > 0 && bytes.Compare(lo, r.lo) > 0 {
		r.lo, r.cut = lo, new(cutUse)
	}
	if len(hi) > 0 && bytes.Compare(hi, r.last) <= 0 {
		r.hi, r.last, r.cutHi, r.cut = hi, hi, true, new(cutUse)
	}
	return r
}

// empty reports whether nothing can be left of the run.
func (r *ref) empty() bool {
	c := bytes.Compare(r.lo, r.last)
	return c > 0 || c == 0 && r.cutHi
}

// endsBefore reports whether all of the ref lies before key.
func (r *ref) endsBefore(key []byte) bool {
	c := bytes.Compare(r.last, key)
	return c < 0 || c == 0 && r.cutHi
}

// span is an interval of keys; hi is in it unless open.
type span struct {
	lo, hi []byte
	open   bool
}

func (r *ref) span() span { return span{r.lo, r.last, r.cutHi} }

func (s span) endsBefore(key []byte) bool {
	c := bytes.Compare(s.hi, key)
	return c < 0 || c == 0 && s.open
}

func (s span) overlaps(o span) bool { return !s.endsBefore(o.lo) && !o.endsBefore(s.lo) }

// extend makes the span reach as far as o.
func (s *span) extend(o span) {
	if c := bytes.Compare(o.hi, s.hi); c > 0 || c == 0 && !o.open {
		s.hi, s.open = o.hi, o.open
	}
}

// firstFrom returns the first key of the ref that is not below key.
func (r *ref) firstFrom(key []byte) (first []byte, ok bool, err error) {
	if bytes.Compare(key, r.lo) < 0 {
		key = r.lo
	}
	it := r.file.r.Iter()
	if !it.SeekGE(key) {
		return nil, false, it.Err()
	}
	if len(r.hi) > 0 && bytes.Compare(it.Key(), r.hi) >= 0 {
		return nil, false, nil
	}
	return bytes.Clone(it.Key()), true, nil
}

// without returns what is left of r when [lo, hi) is deleted.
func (r ref) without(lo, hi []byte) []ref {
	if r.endsBefore(lo) || len(hi) > 0 && bytes.Compare(hi, r.lo) <= 0 {
		return []ref{r}
	}
	var left []ref
	if bytes.Compare(r.lo, lo) < 0 {
		a := newRef(r.file, r.lo, lo)
		if !a.empty() {
			left = append(left, a)
		}
	}
	if len(hi) > 0 && !r.endsBefore(hi) {
		b := newRef(r.file, hi, r.hi)
		if !b.empty() {
			left = append(left, b)
		}
	}
	return left
}

// within returns what of r lies in [lo, hi).
func (r ref) within(lo, hi []byte) ref {
	if bytes.Compare(lo, r.lo) < 0 {
		lo = r.lo
	}
	if len(r.hi) > 0 && (len(hi) == 0 || bytes.Compare(r.hi, hi) < 0) {
		hi = r.hi
	}
	return newRef(r.file, lo, hi)
}

// tier is a sequence of refs that do not overlap, in order of keys. A tier is newer than those
// with smaller ids: where two have the same key, the newer one is right.
type tier struct {
	id   uint64
	refs []ref
}

func (t *tier) bytes() (n int64) {
	seen := map[*runFile]bool{}
	for i := range t.refs {
		if f := t.refs[i].file; !seen[f] {
			seen[f] = true
			n += f.info.FileBytes
		}
	}
	return n
}

// overlapping returns the first tier in which refs overlap, which none may.
func overlapping(tiers []tier) *tier {
	for i := range tiers {
		for j := 1; j < len(tiers[i].refs); j++ {
			if !tiers[i].refs[j-1].endsBefore(tiers[i].refs[j].lo) {
				return &tiers[i]
			}
		}
	}
	return nil
}

// find returns the index of the first ref that does not end before key.
func (t *tier) find(key []byte) int {
	lo, hi := 0, len(t.refs)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if t.refs[m].endsBefore(key) {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// free reports whether the tier has no key in s, as far as it can be read.
func (t *tier) free(s span) bool {
	for i := t.find(s.lo); i < len(t.refs) && t.refs[i].span().overlaps(s); i++ {
		if key, ok, err := t.refs[i].firstFrom(s.lo); err != nil || ok && bytes.Compare(key, s.hi) <= 0 {
			return false
		}
	}
	return true
}

// split cuts s, in which the tier has no key, out of the refs around it. It returns false, and has done nothing, if
// one of them cannot be read.
func (t *tier) split(s span) bool {
	from := t.find(s.lo)
	to := from
	var out []ref
	for ; to < len(t.refs) && t.refs[to].span().overlaps(s); to++ {
		r := t.refs[to]
		if bytes.Compare(r.lo, s.lo) < 0 {
			out = append(out, newRef(r.file, r.lo, s.lo))
		}
		key, ok, err := r.firstFrom(s.lo)
		if err != nil {
			return false
		}
		if ok {
			out = append(out, newRef(r.file, key, r.hi))
		}
	}
	t.refs = slices.Replace(t.refs, from, to, out...)
	return true
}

// covered is how many bytes of values the refs name that lie wholly in [lo, hi), and half of what they name that lie
// there in part.
func (t *tier) covered(lo, hi []byte) (n int64) {
	for i := t.find(lo); i < len(t.refs); i++ {
		r := &t.refs[i]
		if len(hi) > 0 && bytes.Compare(r.lo, hi) >= 0 {
			break
		}
		var bytesOf int64
		for u := range liveIn(t.refs[i : i+1]) {
			bytesOf += u.Bytes
		}
		if bytes.Compare(r.lo, lo) < 0 || len(hi) > 0 && !r.endsBefore(hi) {
			bytesOf /= 2
		}
		n += bytesOf
	}
	return n
}

func (t *tier) insert(r ref) {
	t.refs = slices.Insert(t.refs, t.find(r.lo), r)
}

// version is the runs of a moment, and the segments they need. A version is never changed.
type version struct {
	tiers []tier     // newest first
	segs  []*segment // by id
	files []*runFile // each once
	refs  atomic.Int32
}

// newVersion returns a version of those tiers, with a reference of the caller's. It counts itself
// at its runs, and at the segments that find returns.
func newVersion(tiers []tier, find func(uint32) *segment) *version {
	v := &version{tiers: tiers}
	v.refs.Store(1)
	seen := map[*runFile]bool{}
	need := map[uint32]bool{}
	for _, t := range tiers {
		for i := range t.refs {
			f := t.refs[i].file
			if seen[f] {
				continue
			}
			seen[f] = true
			v.files = append(v.files, f)
			f.refs.Add(1)
			for _, u := range f.info.Segments {
				need[u.ID] = true
			}
		}
	}
	for id := range need {
		s := find(id)
		s.acquire()
		v.segs = append(v.segs, s)
	}
	slices.SortFunc(v.segs, func(a, b *segment) int { return int(int64(a.id) - int64(b.id)) })
	return v
}

func (v *version) release() {
	if v.refs.Add(-1) > 0 {
		return
	}
	for _, f := range v.files {
		f.release()
	}
	for _, s := range v.segs {
		s.release()
	}
}

// segment returns the open segment of that id, nil if the version has none.
func (v *version) segment(id uint32) *segment {
	lo, hi := 0, len(v.segs)
	for lo < hi {
		m := int(uint(lo+hi) >> 1)
		if v.segs[m].id < id {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(v.segs) && v.segs[lo].id == id {
		return v.segs[lo]
	}
	return nil
}

// value appends the value that a run's entry names to dst.
func (v *version) value(dst []byte, e run.Entry) ([]byte, error) {
	s := v.segment(uint32(e.Place >> 32))
	if s == nil {
		return dst, corrupt("", 0, fmt.Sprintf("a run names segment %d, which it does not list", e.Place>>32), nil)
	}
	return s.value(dst, int64(uint32(e.Place)), int(e.Len), e.Sum)
}

// copyTiers returns tiers that can be changed without changing v.
func (v *version) copyTiers() []tier {
	tiers := make([]tier, len(v.tiers))
	for i, t := range v.tiers {
		tiers[i] = tier{t.id, slices.Clone(t.refs)}
	}
	return tiers
}

// deleteRanges cuts the ranges out of all refs.
func deleteRanges(tiers []tier, ts *rangeTombstones) []tier {
	if ts.empty() {
		return tiers
	}
	for i := range tiers {
		for _, d := range ts.list {
			var out []ref
			from := tiers[i].find(d.lo)
			to := from
			for to < len(tiers[i].refs) && (len(d.hi) == 0 || bytes.Compare(tiers[i].refs[to].lo, d.hi) < 0) {
				out = append(out, tiers[i].refs[to].without(d.lo, d.hi)...)
				to++
			}
			if to > from {
				tiers[i].refs = slices.Replace(tiers[i].refs, from, to, out...)
			}
		}
	}
	return dropEmpty(tiers)
}

func dropEmpty(tiers []tier) []tier {
	return slices.DeleteFunc(tiers, func(t tier) bool { return len(t.refs) == 0 })
}
