package tree

import (
	"slices"
	"time"

	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/table"
)

// note leaves the value of an item to resolve. If it is in memory, the processor loads it meanwhile: it waits for many
// at once, not for one after the other.
func (it *Iterator) note(e *table.Entry, item int) {
	w := it.w
	u := unread{Entry: *e, item: item, at: toRead}
	if w.enter(it.ver, e.Place) {
		u.mapped = w.seg.Mapped(int64(uint32(e.Place)), int(e.Len))
		format.IntoCache(u.mapped)
	}
	w.unread = append(w.unread, u)
	w.owed += int(e.Len)
}

// streamed returns the value of an entry, for checkAhead to check, if it lies in a stream that is read ahead, in memory
// that stays as it is until the walk asks for more. It returns nil if the value has to be read alone.
func (it *Iterator) streamed(e *table.Entry, item int) []byte {
	w := it.w
	if !w.enter(it.ver, e.Place) {
		return nil
	}
	b := w.ahead.read(it.ver, w.at, int64(uint32(e.Place)), int(e.Len), w.m.reverse)
	if b != nil {
		w.unchecked = append(w.unchecked, unchecked{place: e.Place, sum: e.Sum, item: int32(item)})
		w.lent += len(b)
	}

	return b
}

// checkAhead checks the values that streamed has found. Those that are not whole are read alone, which tells what is
// wrong with them.
func (it *Iterator) checkAhead() {
	w, whole := it.w, len(it.w.unread)
	for us := range slices.Chunk(w.unchecked, 4) {
		var values [4][]byte
		for i := range us {
			values[i] = w.items[us[i].item].Value
		}
		for i, sum := range format.Checksums(&values) {
			if i < len(us) && sum != us[i].sum {
				it.note(&table.Entry{Place: us[i].place, Len: uint32(len(values[i])), Sum: us[i].sum}, int(us[i].item))
			}
		}
	}
	w.unchecked = w.unchecked[:0]

	if len(w.unread) > whole {
		slices.SortFunc(w.unread, func(a, b unread) int { return a.item - b.item })
	}
}

// resolve reads the values that are left to it, and checks them.
func (it *Iterator) resolve() (err error) {
	w := it.w

	// Reads of this walk have waited for a disk: it gets all of them at a time.
	if w.slow >= manySlow {
		it.prefetch(w.unread)
	}

	// A mapping may fault in the middle. What was copied until then is dropped as a whole, and read by calls.
	before := len(w.arena)
	if format.Guarded(func() { w.arena = w.copyMapped(w.arena, w.unread) }) != nil {
		w.arena = w.arena[:before]
		for i := range w.unread {
			w.unread[i].mapped, w.unread[i].at = nil, toRead // the read calls say what is wrong
		}
	}

	for i := range w.unread {
		if w.unread[i].at == toRead {
			it.together(w.unread[i:])
		}
	}
	for us := range slices.Chunk(w.unread, 4) {
		w.check(us)
	}

	// What is not whole is read once more, alone: that tells what is wrong with it.
	for i := range w.unread {
		if u := &w.unread[i]; u.at == toRead {
			at := len(w.arena)
			if err = it.value(w.unread[i:]); err != nil {
				w.items = w.items[:u.item]
				break
			}
			w.items[u.item].Value = w.arena[at:len(w.arena):len(w.arena)]
		}
	}
	w.unread, w.owed = w.unread[:0], 0

	return err
}

// check gives up to four values to their items. Those that are not whole are to be read.
func (w *walk) check(us []unread) {
	for i, sum := range sums(w.arena, us) {
		if i == len(us) {
			break
		}
		switch u := &us[i]; {
		case u.at == toRead:
		case sum != u.Sum:
			u.at = toRead
		default:
			end := u.at + int(u.Len)
			w.items[u.item].Value = w.arena[u.at:end:end]
		}
	}
}

// sums returns the checksums of up to four values in b.
func sums(b []byte, us []unread) [4]uint32 {
	var values [4][]byte
	for i := range us {
		if u := &us[i]; u.at != toRead {
			values[i] = b[u.at : u.at+int(u.Len)]
		}
	}

	return format.Checksums(&values)
}

// atHand is an iterator as [table.Values]: it has values that are known to be in the system's memory.
type atHand Iterator

// Values implements [table.Values].
func (a *atHand) Values(entries []table.Entry, bytes int) []byte {
	w, n := a.w, len(a.w.unread)
	defer func() { w.unread = w.unread[:n] }()
	for _, e := range entries {
		u := unread{Entry: e}
		if e.Len > 0 {
			if !w.enter(a.ver, e.Place) {
				return nil
			}
			if u.mapped = w.seg.Mapped(int64(uint32(e.Place)), int(e.Len)); u.mapped == nil {
				return nil
			}
			format.IntoCache(u.mapped)
		}
		w.unread = append(w.unread, u)
	}
	us, b := w.unread[n:], slices.Grow([]byte(nil), bytes)

	// What is wrong with one of them, a read of it alone says.
	if format.Guarded(func() { b = w.copyMapped(b, us) }) != nil {
		return nil
	}

	for us := range slices.Chunk(us, 4) {
		for i, sum := range sums(b, us) {
			if i < len(us) && !us[i].Tombstone && sum != us[i].Sum {
				return nil
			}
		}
	}

	return b
}

// copyMapped appends the values that are in memory to dst, and notes where they are in it.
func (w *walk) copyMapped(dst []byte, us []unread) []byte {
	for i := range us {
		if u := &us[i]; u.mapped != nil {
			u.at = len(dst)
			dst = append(dst, u.mapped...)
		}
	}

	return dst
}

// together reads the first of values that a call has to read, and those that follow it, by one call, if they lie behind
// each other in the file, as those of keys do that were written in their order. It does nothing if there is only one,
// or if they cannot be read: what is wrong, a single value tells.
func (it *Iterator) together(us []unread) {
	w, e := it.w, &us[0].Entry
	lo := int64(uint32(e.Place))
	hi, n := lo+int64(e.Len), 1
	for ; n < len(us) && us[n].Place>>32 == e.Place>>32; n++ {
		// Between two values there are a key and a few bytes. Where there is more, what lies between is not wanted.
		from, to := int64(uint32(us[n].Place)), int64(uint32(us[n].Place))+int64(us[n].Len)
		gap := from - hi
		if w.m.reverse {
			gap = lo - to
		}
		if gap < 0 || gap > mostBetween || max(hi, to)-min(lo, from) > mostTogether {
			break
		}
		lo, hi = min(lo, from), max(hi, to)
	}
	if n == 1 || !w.enter(it.ver, e.Place) {
		return
	}

	start, at := w.clock(), len(w.arena)
	arena, err := w.seg.Read(w.arena, lo, int(hi-lo))
	if err != nil {
		return
	}
	w.arena = arena
	for i := range us[:n] {
		if u := &us[i]; u.at == toRead {
			u.at = at + int(int64(uint32(u.Place))-lo)
		}
	}
	it.waited(start, us[n:])
}

const (
	mostBetween  = 4 << 10  // bytes between two values that are read by one call
	mostTogether = 31 << 10 // bytes of such a call: a longer one would not be noted as having brought its pages to memory
)

// value appends the first of values that a call has to read to the arena.
func (it *Iterator) value(us []unread) (err error) {
	w, e := it.w, us[0].Entry
	start := w.clock()
	if w.enter(it.ver, e.Place) {
		w.arena, err = w.seg.Value(w.arena, int64(uint32(e.Place)), int(e.Len), e.Sum)
	} else {
		w.arena, err = it.ver.Value(w.arena, e)
	}
	it.waited(start, us[1:])

	return err
}

// clock returns the time, if it is to be known how long a read call takes.
func (w *walk) clock() (start time.Time) {
	if w.slow < manySlow {
		start = time.Now()
	}

	return start
}

// waited notes that a read call has ended. If such calls take long, what is still to be read is prefetched.
func (it *Iterator) waited(start time.Time, rest []unread) {
	w := it.w
	if w.slow < manySlow && time.Since(start) > slowRead {
		if w.slow++; w.slow == manySlow {
			it.prefetch(rest)
		}
	}
}

// Once manySlow reads have taken longer than slowRead, they are taken to wait for a disk. A single one may have waited
// for a processor.
const (
	slowRead = 20 * time.Microsecond
	manySlow = 2
)

// prefetch has values read from the disk that are not known to be in memory, all of them at once.
func (it *Iterator) prefetch(us []unread) {
	for i := range us {
		if u := &us[i]; u.at == toRead && u.mapped == nil && it.w.enter(it.ver, u.Place) {
			it.w.seg.Prefetch(int64(uint32(u.Place)), int(u.Len))
		}
	}
}

// takeSpan is takeNear for entries whose values lie close to each other in a segment, one behind the other, as
// those of keys do that were written in their order: keys and values are then copied, or read, at once. It returns
// false, and has done nothing, if they do not, or if one of them is not in order.
func (it *Iterator) takeSpan(near table.Near) bool {
	w, n := it.w, len(near.Entries)
	if n < 2 {
		return false
	}

	// The places of the first and the last entry give the stretch. Whether those between lie in it, in order, and are
	// whole, shows only when it has been read.
	first, last := &near.Entries[0], &near.Entries[n-1]
	lo, hi := uint64(uint32(first.Place)), uint64(uint32(last.Place))+uint64(last.Len)
	begin := near.Begin[0]
	keys := near.Keys[begin:near.Begin[n]]
	// Between two values there are a key and a few bytes; twice as much is still less work than one at a time.
	most := min(w.bytes-len(w.arena)-w.owed, 2*(len(keys)+n*(8+int(max(first.Len, last.Len)))))

	if hi <= lo || hi-lo > uint64(max(most, 0)) || !w.enter(it.ver, first.Place) {
		return false
	}
	size := int(hi - lo)

	at := len(w.arena)
	w.arena = slices.Grow(w.arena, len(keys)+size)
	own := w.arena[at : at+len(keys)+size]
	values := own[len(keys):]

	// They are copied before they are checked: what is mapped may change.
	if b, err := w.seg.Read(values[:0], int64(lo), size); err != nil || len(b) != size || &b[0] != &values[0] {
		return false // what is wrong, a single value tells
	}
	w.items = slices.Grow(w.items, n)

	items := w.items[len(w.items) : len(w.items)+n]
	taken := 0
	for k := range n {
		i := k
		if w.m.reverse {
			i = n - 1 - k
		}
		e := &near.Entries[i]
		if e.Tombstone {
			continue
		}
		lo := e.Place - first.Place // far beyond if it is in another segment, or before the first
		hi := lo + uint64(e.Len)
		if lo > uint64(size) || hi > uint64(size) || format.Checksum(values[lo:hi]) != e.Sum {
			return false
		}
		key, end := near.Begin[i]-begin, near.Begin[i+1]-begin
		items[taken] = item{Key: own[key:end:end], Value: values[lo:hi:hi]}
		taken++
	}

	// All were in order. Only now does the walk change, so that a false before leaves it as it was.
	copy(own, keys)
	w.arena, w.items = w.arena[:at+len(own)], w.items[:len(w.items)+taken]

	return true
}

// enter goes to the segment of a place. It returns false if the version has none such.
func (w *walk) enter(ver *Version, place uint64) bool {
	at := ver.find(uint32(place >> 32))
	if at < 0 {
		return false
	}
	w.seg, w.at = &ver.segments[at], at

	return true
}
