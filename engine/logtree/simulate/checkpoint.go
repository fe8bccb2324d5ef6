package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/db"
	"github.com/holdfastdb/holdfast/enginetest/commits"
)

// copied is a checkpoint: whatever is done to the database, and whatever crash comes, this is in it.
type copied struct {
	dir  string
	want state
}

// mostCopies is how many checkpoints a history has at a time.
const mostCopies = 3

// checkpoint makes a checkpoint, or does something with one that was made.
func (h *history) checkpoint() error {
	if n := len(h.copies); n > 0 && h.rnd.IntN(2) == 0 {
		return h.useCopy(h.rnd.IntN(n))
	}
	if len(h.copies) == mostCopies {
		h.copies = slices.Delete(h.copies, 0, 1)
	}

	return h.copy(h.db, h.ledger.now)
}

// copy makes a checkpoint of a database in which that state is visible.
func (h *history) copy(d *db.DB, now state) error {
	h.copiesMade++
	dir := fmt.Sprintf("copy%d", h.copiesMade)

	// The directory is made durable first: Checkpoint is responsible for what is in it only.
	if err := errors.Join(h.fs.MkdirAll(dir), h.fs.SyncDir("/")); err != nil {
		if !h.armed {
			return err
		}

		return nil
	}

	// As the engine calls it, so that Close ends it.
	err := d.Life.Long(context.Background(), func(ctx context.Context) error { return d.Checkpoint(ctx, dir) })
	h.note("checkpoint in %s: %v", dir, err)

	// After a fault the call may fail, and must then have left nothing that counts. Without one it must succeed.
	switch {
	case d == h.db && err == nil && h.poisoned:
		return h.refused("Checkpoint", err)
	case err == nil:
		h.stats.Checkpoints++
		h.copies = append(h.copies, copied{dir, slices.Clone(now)})

		return nil
	case !h.armed:
		return fmt.Errorf("db.Checkpoint fails without a reason: %w", err)

	case d != h.db || d.Metrics().Poison == nil:
		return nil
	}

	return h.failed("Checkpoint", err)
}

// useCopy opens a checkpoint, beside the database that it shares files with, compares what is in it, writes to it, and
// perhaps makes a checkpoint of it. It does so without faults, and with what they have left.
func (h *history) useCopy(i int) error {
	if h.armed || h.fs.Halted() {
		return nil // what a crash leaves of it is looked at later
	}
	x := h.copies[i]
	d, err := h.openCopy(x)
	if err != nil {
		return err
	}

	for range h.rnd.IntN(6) {
		list := h.traffic.batch()
		var b holdfast.Batch
		encode(&b, list)
		if err := holdfast.Commit(d, &b, holdfast.Power); err != nil {
			return fmt.Errorf("writing to a checkpoint: %w", err)
		}

		// The commit was at Power, so the change is in the copy whatever comes.
		x.want.Apply(list)
		if _, err := d.Work(h.rnd.IntN(20)); err != nil {
			return fmt.Errorf("work in a checkpoint: %w", err)
		}
	}
	h.copies[i] = x
	if h.rnd.IntN(3) == 0 {
		if err := h.copy(d, x.want); err != nil {
			return err
		}
	}
	if h.rnd.IntN(4) == 0 {
		// Compacting must not touch the files that are shared with the database.
		if err := d.Compact(context.Background(), holdfast.Range{}); err != nil {
			return fmt.Errorf("compacting a checkpoint: %w", err)
		}
	}

	if h.rnd.IntN(2) == 0 {
		return nil // it is killed
	}

	return d.Close()
}

// openCopy opens a checkpoint and compares what is in it.
func (h *history) openCopy(x copied) (*db.DB, error) {
	c := h.config
	c.FS, c.Dir = h.fs, x.dir

	// The copy is no new database: its manifest must be found, or this fails.
	d, err := db.Open(c)
	if err != nil {
		return nil, fmt.Errorf("opening a checkpoint: %w", err)
	}
	found, err := commits.Contents(d, holdfast.Range{})
	if err == nil {
		err = same(found, x.want)
	}
	if err != nil {
		return nil, fmt.Errorf("the checkpoint in %s: %w", x.dir, err)
	}

	return d, nil
}

// checkCopies opens all checkpoints on a copy of what a crash has left.
func (h *history) checkCopies() error {
	if len(h.copies) == 0 {
		return nil
	}

	// The copies are opened on a clone, because opening writes to them, and the history goes on from what the crash
	// left.
	was := h.fs
	h.fs = was.Clone()
	h.fs.SetCapacity(-1)
	defer func() {
		h.fs.Unmap()
		h.fs = was
	}()

	for _, x := range h.copies {
		if _, err := h.openCopy(x); err != nil {
			return err
		}
	}

	return nil
}
