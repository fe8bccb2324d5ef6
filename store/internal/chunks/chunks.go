// Package chunks says how much a store removes at a time where an engine removes the keys of a range one by one.
//
// Such an engine has one writer, for whom all others wait. So a store removes many keys in chunks, each a commit of its
// own, and others get their turn in between.
package chunks

import (
	"context"
	"errors"

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

// Remove removes all keys of r in commits of their own, and returns when they are gone at a level. An early end, by ctx
// or an error, leaves some.
func Remove(ctx context.Context, eng holdfast.Engine, level holdfast.Level, r holdfast.Range) error {
	var b holdfast.Batch
	if eng.Capabilities().NativeDeleteRange {
		b.DeleteRange(r.Lo, r.Hi)
		return holdfast.Commit(eng, &b, level)
	}
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
