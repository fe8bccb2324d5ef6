// Package chunks says how much a store removes at a time where an engine removes the keys of a range one by one.
//
// Such an engine has one writer, for whom all others wait. So a store removes many keys in chunks, each a commit of its
// own, and others get their turn in between.
package chunks

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfastdb/holdfast"
)

// A chunk is bounded by both: some engines take time for each key, some for each page of a value. See decision 20 for
// what was measured.
const (
	Keys  = 512
	Bytes = 1 << 20
)

// Few is how many keys are removed one by one where a range costs the same for any number of them: what is left of
// the range is in the way of later walks, and many small ones add up.
const Few = 16

// Notes says that b, which notes what is removed then, is a part of removing it: it deletes a key that b sets next.
// On a full disk an engine may admit such a commit where it refuses others, if what it sets is small.
func Notes(b *holdfast.Batch, key []byte) { b.Delete(key) }

// Cut walks over the keys of r, from its end if r.Reverse, until there are that many or their values take that many
// bytes, but over one at least. It returns the key that it came to, nil if there is none in r, and whether others
// follow it. It adds to b, unless that is nil, the deletion of each key that it walks over. Keys are named one by one
// because an engine that expands ranges must commit all that was applied before it can, while others wait.
//
// A value that cannot be read ends the walk early without an error, unless it is that of the first key: removing what
// is damaged must be possible. Cut has no state: it may be called from many goroutines at once.
func Cut(b *holdfast.Batch, reader holdfast.Reader, r holdfast.Range, keys int,
	bytes int64) (last []byte, more bool, err error) {
	it := reader.Scan(r)
	defer it.Close()

	for n, size := 0, int64(0); it.Next(); n++ {
		if n > 0 && (n >= keys || size >= bytes) {
			return last, true, nil
		}
		last = append(last[:0], it.Key()...)
		if b != nil {
			b.Delete(last)
		}
		size += int64(len(it.Value()))
	}
	if err := it.Err(); err != nil && last == nil {
		return nil, false, err
	}

	return last, it.Err() != nil, nil
}

// Remove removes all keys of ranges in commits of their own, one range after the other, and returns when they are gone
// at a level, and so is what was applied before. An early end, by ctx or an error, leaves some. Where a range costs the
// same for any number of keys, all is one commit.
func Remove(ctx context.Context, eng holdfast.Engine, level holdfast.Level, ranges ...holdfast.Range) error {
	var b holdfast.Batch
	if err := holdfast.Commit(eng, &b, level); err != nil { // what was applied can be seen from here on
		return err
	}
	if !eng.Capabilities().NativeDeleteRange {
		for _, r := range ranges {
			if err := removeSingly(ctx, eng, level, r); err != nil {
				return err
			}
		}

		return nil
	}

	for _, r := range ranges {
		var few holdfast.Batch
		if _, more, err := Cut(&few, eng, r, Few, Bytes); more || err != nil {
			b.DeleteRange(r.Lo, r.Hi)
		} else {
			b.Append(&few)
		}
	}

	return holdfast.Commit(eng, &b, level)
}

// RemoveStore is Remove of a store: of its keys from lo to before hi, the one that describes it last. So what an early
// end leaves is never taken for a store that has lost its description.
func RemoveStore(ctx context.Context, eng holdfast.Engine, level holdfast.Level, lo, hi, meta []byte) error {
	if eng.Capabilities().NativeDeleteRange { // one commit, which does not end early
		return Remove(ctx, eng, level, holdfast.Range{Lo: lo, Hi: hi})
	}
	next := append(slices.Clone(meta), 0)

	return Remove(ctx, eng, level, holdfast.Range{Lo: lo, Hi: meta}, holdfast.Range{Lo: next, Hi: hi},
		holdfast.Range{Lo: meta, Hi: next})
}

func removeSingly(ctx context.Context, eng holdfast.Engine, level holdfast.Level, r holdfast.Range) error {
	var b holdfast.Batch
	for keys, more := Keys, true; more; {
		if err := holdfast.CheckContext(ctx); err != nil {
			return err
		}
		b.Reset()
		last, left, err := Cut(&b, eng, r, keys, Bytes)
		if err != nil {
			return err
		}

		switch err := holdfast.Commit(eng, &b, level); {
		case err == nil:
			r.Lo, more = last, left
		case errors.Is(err, holdfast.ErrTooLarge) && keys > 1: // the engine has a limit of its own
			keys /= 2
		default:
			return err
		}
	}

	return nil
}

// Each calls f for the keys from lo to before hi and their values, and done, if it is not nil, after each chunk of
// them. No iterator is open meanwhile; f may keep what it gets. It ends with the first error, ctx's among them.
func Each(ctx context.Context, r holdfast.Reader, lo, hi []byte, f func(key, value []byte) error,
	done func() error) error {
	for more := true; more; {
		if err := holdfast.CheckContext(ctx); err != nil {
			return err
		}

		var keys, values [][]byte
		it := r.Scan(holdfast.Range{Lo: lo, Hi: hi})
		for size := 0; len(keys) < Keys && size < Bytes && it.Next(); size += len(it.Value()) {
			keys, values = append(keys, slices.Clone(it.Key())), append(values, slices.Clone(it.Value()))
		}
		if err := it.Close(); err != nil {
			return err
		}

		for i, key := range keys {
			if err := f(key, values[i]); err != nil {
				return err
			}
		}
		if done != nil {
			if err := done(); err != nil {
				return err
			}
		}
		if more = len(keys) > 0; more {
			lo = append(keys[len(keys)-1], 0)
		}
	}

	return nil
}
