package simulate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
)

// unread judges the error of a read.
func (h *history) unread(what string, err error) error {
	// Where reads may fail an error is right whatever it says; a wrong answer never is.
	if h.reads || h.unsaved || h.fs.Halted() {
		return nil
	}

	return fmt.Errorf("%s: %w", what, err)
}

// get compares the value of a key with the ledger's.
func (h *history) get() error {
	h.stats.Reads++
	return h.getFrom(h.db, h.ledger.now)
}

// getFrom compares a key's value.
func (h *history) getFrom(from holdfast.Reader, want state) error {
	key := h.traffic.key()

	// A key of the log, or one that is there, as often as any other: random keys alone would mostly be missing.
	switch {
	case h.rnd.IntN(4) == 0:
		key = logKey(h.traffic.first + h.rnd.IntN(h.traffic.next-h.traffic.first+2))
	case len(want) > 0 && h.rnd.IntN(2) == 0:
		key = want[h.rnd.IntN(len(want))].Key
	}

	return h.getKey(from, want, key)
}

// getKey compares one key's value, and that a missing key is ErrNotFound and nothing else.
func (h *history) getKey(from holdfast.Reader, want state, key string) error {
	got, err := from.Get(nil, []byte(key))
	value, there := want.Get(key)
	switch {
	case err == nil && there && string(got) == value:
		return nil
	case err == nil && !there:
		return fmt.Errorf("db.Get(%q) finds %v, which should not be", key, entry{Key: key, Value: string(got)})
	case err == nil:
		return fmt.Errorf("db.Get finds %v, which should be %v", entry{Key: key, Value: string(got)},
			entry{Key: key, Value: value})
	case errors.Is(err, holdfast.ErrNotFound) && !there:
		return nil
	case errors.Is(err, holdfast.ErrNotFound):
		return fmt.Errorf("db.Get does not find %v", entry{Key: key, Value: value})
	}

	return h.unread(fmt.Sprintf("Get(%q)", key), err)
}

// span chooses what to scan, and what of want is in it.
func (h *history) span(want state) (holdfast.Range, state) {
	lo, hi := "", ""
	if h.rnd.IntN(3) > 0 {
		lo, hi = h.traffic.bounds()
	}
	r := holdfast.Range{Lo: []byte(lo), Hi: []byte(hi), Reverse: h.rnd.IntN(2) == 0}
	part := want.Within(lo, hi)
	if r.Reverse {
		part = slices.Clone(part)
		slices.Reverse(part)
	}

	return r, part
}

// scan compares a range with the ledger.
func (h *history) scan() error {
	h.stats.Reads++
	return h.scanFrom(h.db, h.ledger.now)
}

// scanFrom compares a range entry by entry, so that the first that differs is named, and looks for more behind the
// last.
func (h *history) scanFrom(from holdfast.Reader, want state) error {
	r, part := h.span(want)
	it := from.Scan(r)
	defer it.Close()

	for i, w := range part {
		if !it.Next() {
			if err := it.Err(); err != nil {
				return h.unread("Scan", err)
			}

			return fmt.Errorf("db.Scan of [%q, %q), reverse %v, ends after %d of %d entries: %v is missing", r.Lo, r.Hi,
				r.Reverse, i, len(part), w)
		}
		if err := at(it, w); err != nil {
			return fmt.Errorf("db.Scan of [%q, %q), reverse %v, entry %d: %w", r.Lo, r.Hi, r.Reverse, i, err)
		}
	}
	if it.Next() {
		return fmt.Errorf("db.Scan of [%q, %q), reverse %v: there is %v, which should not be", r.Lo, r.Hi, r.Reverse,
			entry{Key: string(it.Key()), Value: string(it.Value())})
	}
	if err := it.Err(); err != nil {
		return h.unread("Scan", err)
	}

	return nil
}

// at returns an error unless an iterator is at w.
func at(it holdfast.Iterator, w entry) error {
	if string(it.Key()) != w.Key || string(it.Value()) != w.Value {
		return fmt.Errorf("there is %v, which should be %v", entry{Key: string(it.Key()), Value: string(it.Value())}, w)
	}

	return nil
}

// walk opens an iterator that stays open, or moves an open one.
func (h *history) walk() error {
	if len(h.walks) < 3 && h.rnd.IntN(2) == 0 {
		var from holdfast.Reader = h.db
		want, of := h.ledger.now, -1
		if len(h.views) > 0 && h.rnd.IntN(2) == 0 {
			of = h.rnd.IntN(len(h.views))
			from, want = h.views[of], h.views[of].want
		}

		r, part := h.span(want)
		if len(part) > 0 && !r.Reverse {
			part = slices.Clone(part)
		}
		h.walks = append(h.walks, walk{from.Scan(r), part, of, h.reads || h.unsaved})

		return nil
	}
	if len(h.walks) == 0 {
		return nil
	}

	i := h.rnd.IntN(len(h.walks))
	w := &h.walks[i]

	for range h.rnd.IntN(40) {
		if len(w.want) == 0 {
			return h.endWalk(i)
		}
		if !w.Next() {
			if err := w.Err(); err != nil {
				// A weak iterator may still report a read that failed before the faults ended.
				if err := h.unread("an open iterator", err); err != nil && !w.weak {
					return err
				}
				w.Close()
				h.walks = slices.Delete(h.walks, i, i+1)

				return nil
			}

			return fmt.Errorf("an open iterator ends before %v", w.want[0])
		}
		if err := at(w, w.want[0]); err != nil {
			return fmt.Errorf("an open iterator: %w", err)
		}
		w.want = w.want[1:]
	}

	return nil
}

// endWalk closes an iterator, after a check that it is at its end if it should be.
func (h *history) endWalk(i int) error {
	w := h.walks[i]
	h.walks = slices.Delete(h.walks, i, i+1)
	if len(w.want) == 0 && w.Next() {
		return fmt.Errorf("an open iterator goes on with %v after the end",
			entry{Key: string(w.Key()), Value: string(w.Value())})
	}
	if err := w.Close(); err != nil && !w.weak {
		return h.unread("an open iterator", err)
	}

	return nil
}

// snapshot opens a snapshot with a copy of what must be seen through it, or closes one if there are many.
func (h *history) snapshot() error {
	if len(h.views) >= 4 {
		return h.dropView(h.rnd.IntN(len(h.views)))
	}
	s, err := h.db.Snapshot()
	if err != nil {
		return h.unread("Snapshot", err)
	}
	h.views = append(h.views, view{s, slices.Clone(h.ledger.now)})

	return nil
}

// dropView closes a snapshot, and before it the iterators over it.
func (h *history) dropView(i int) error {
	for k := len(h.walks) - 1; k >= 0; k-- {
		if h.walks[k].of == i {
			if err := h.endWalk(k); err != nil {
				return err
			}
		}
	}

	// The views behind it move up by one.
	for k := range h.walks {
		if h.walks[k].of > i {
			h.walks[k].of--
		}
	}
	v := h.views[i]
	h.views = slices.Delete(h.views, i, i+1)
	if err := v.Close(); err != nil {
		return h.unread("a snapshot's Close", err)
	}

	if _, err := v.Get(nil, []byte("k")); !errors.Is(err, holdfast.ErrClosed) {
		return fmt.Errorf("a closed snapshot's Get: %w", err)
	}

	return nil
}

// look reads through a snapshot.
func (h *history) look() error {
	if len(h.views) == 0 {
		return nil
	}
	h.stats.Reads++
	v := h.views[h.rnd.IntN(len(h.views))]
	if h.rnd.IntN(2) == 0 {
		return h.getFrom(v, v.want)
	}

	return h.scanFrom(v, v.want)
}
