// Package enginecopy makes directories of engines with the contents of others.
package enginecopy

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// Opener opens the engine in a directory, which it makes if need be.
type Opener func(dir string) (holdfast.Engine, error)

// Make makes the directory dir, whole or not at all, as [datadir.Make] has it: open opens the engine in DIR.partial,
// which cannot be opened again until it is whole, and fill fills that. Meanwhile fill may make the directory temp, and
// removes it. What fill says is lost, in words, the new directory remembers. When ctx ends, fill gets its error from
// the next write.
func Make(ctx context.Context, op, dir string, open Opener,
	fill func(to holdfast.Engine, temp string) (loss datadir.Loss, err error)) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}

	return datadir.Make(op, dir, func(partial string) (loss datadir.Loss, err error) {
		e, err := open(partial)
		if err != nil {
			return loss, err
		}
		defer func() {
			if closed := e.Close(); err == nil {
				err = closed
			}
		}()
		if err := datadir.Hide(partial); err != nil {
			return loss, &holdfast.Error{Op: op, Path: partial, Cause: err}
		}
		to := &interruptible{Engine: e, ctx: ctx}
		if loss, err = fill(to, datadir.Temp(partial)); err == nil {
			// Damage to a log takes whole batches, and what follows them may be in doubt; in an index it has a key.
			err = to.Flush()
		}

		return loss, err
	})
}

// syncBytes is how much of a copy is written between two syncs. Without them the end of a context would have to wait
// for the device to take all that was written, for which closing an engine waits.
const syncBytes = 32 << 20

// interruptible is an engine that refuses writes when ctx has ended.
type interruptible struct {
	holdfast.Engine
	ctx     context.Context
	written int // bytes since the last sync
}

func (i *interruptible) Apply(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if i.written += b.Size(); i.written > syncBytes {
		i.written = 0
		if err := i.Engine.Sync(); err != nil && !errors.Is(err, holdfast.ErrLevel) {
			return holdfast.Receipt{}, err
		}
	}
	if err := i.ctx.Err(); err != nil {
		return holdfast.Receipt{}, err
	}

	return i.Engine.Apply(b, level)
}

// Flush writes to files what the engine has in memory, if it has a way to do that.
func (i *interruptible) Flush() error {
	if err := i.ctx.Err(); err != nil {
		return err
	}
	if f, ok := i.Engine.(interface{ Flush() error }); ok {
		return f.Flush()
	}

	return nil
}

// Lost joins what earlier and later repairs could not salvage.
func Lost(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), "; and ")
}

// LossOf is what the directory of an engine remembers.
func LossOf(e holdfast.Engine) datadir.Loss {
	c := e.Capabilities()
	return datadir.Loss{Lost: c.Lost, Accepted: c.Accepted}
}

// batchBytes is the size of the batches in which a copy is written to an engine that makes a transaction of each.
const batchBytes = 1 << 20

// Writer writes keys to an engine at the weakest level it gives; to sync or close the engine makes them
// durable. The batches are large only where each is a transaction on disk. Elsewhere each key has its own: damage
// takes whole batches.
type Writer struct {
	Keys, Bytes int64 // set so far; the bytes are of keys and values

	into  holdfast.Engine
	level holdfast.Level
	limit int
	batch holdfast.Batch
}

// NewWriter returns a writer to that engine.
func NewWriter(into holdfast.Engine) *Writer {
	level, limit := Batches(into.Capabilities())
	return &Writer{into: into, level: level, limit: limit}
}

// Batches is at which level a copy is written to an engine with these capabilities, and how many bytes make a batch.
func Batches(c holdfast.Capabilities) (level holdfast.Level, limit int) {
	if levels := c.Levels(); len(levels) > 0 {
		level = levels[0]
	}
	if c.Promise(level).Given == holdfast.Memory {
		return level, 0
	}
	return level, int(min(batchBytes, c.MaxBatchSize/2))
}

// Set writes one key.
func (w *Writer) Set(key, value []byte) error {
	w.batch.Set(key, value)
	w.Keys++
	w.Bytes += int64(len(key) + len(value))
	if w.batch.Size() >= w.limit || w.batch.Err() != nil {
		return w.Flush()
	}

	return nil
}

// Flush writes what is left.
func (w *Writer) Flush() error {
	if w.batch.Len() == 0 && w.batch.Err() == nil {
		return nil
	}
	err := holdfast.Commit(w.into, &w.batch, w.level)
	w.batch.Reset()

	return err
}

// Keys copies everything that from shows, and returns how many keys that were.
func Keys(into holdfast.Engine, from holdfast.Reader) (int64, error) {
	w := NewWriter(into)
	it := from.Scan(holdfast.Range{})
	defer it.Close()

	for it.Next() {
		if err := w.Set(it.Key(), it.Value()); err != nil {
			return w.Keys, err
		}
	}
	if err := it.Err(); err != nil {
		return w.Keys, err
	}

	return w.Keys, w.Flush()
}

// Backup copies the current state of e to the new directory dir, while others continue to write to e, and returns the
// number of keys that were.
func Backup(ctx context.Context, e holdfast.Engine, dir string, open Opener) (keys int64, err error) {
	s, err := e.Snapshot()
	if err != nil {
		return 0, err
	}
	defer s.Close()
	err = Make(ctx, "backup", dir, open, func(into holdfast.Engine, _ string) (_ datadir.Loss, err error) {
		keys, err = Keys(into, s)
		return LossOf(e), err
	})

	return keys, err
}
