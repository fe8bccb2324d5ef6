package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// Compact implements [holdfast.Compactor]: it rewrites the database without free pages (VACUUM). Commits wait for
// that. Until it is done it takes room for what is stored in SQLite's directory for temporary files, and again in the
// log. What open snapshots and iterators see takes its room until they are closed. A part cannot be compacted:
// ErrUnavailable.
func (e *engine) Compact(ctx context.Context, r holdfast.Range) error {
	return e.CompactingAll(ctx, r, func(ctx context.Context) error {
		// Nothing commits meanwhile, so the writer's connection is ours.
		return e.committer.Exclusive(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := e.vacuum(ctx)
			code := 0
			if err != nil {
				code, _ = e.lib.code(err)
			}
			// What is refused with these codes was rolled back, before anything was synced.
			switch {
			case err == nil:
				return nil
			case code&0xff == codeInterrupt, ctx.Err() != nil && errors.Is(err, ctx.Err()):
				return ctx.Err()
			case code&0xff == codeFull:
				return datadir.Full(e.fail("compact", err))
			}

			// Anything else may have failed at a sync: nothing is acknowledged any more.
			return e.committer.Fail(e.fail("compact", err))
		})
	})
}

// vacuum rewrites the database, and shortens the files as far as readers let it. It is called by the committer's
// leader.
func (e *engine) vacuum(ctx context.Context) error {
	if err := e.datadir.Check(); err != nil {
		return err
	}

	// The whole database goes through the log, and is synced there before it counts.
	if err := e.synchronous(holdfast.Power); err != nil {
		return err
	}
	if _, err := e.w.conn.c.(sqldriver.ExecerContext).ExecContext(ctx, "VACUUM", nil); err != nil {
		return err
	}
	e.syncs.Add(1) // of the log, which has the whole database now

	// What weaker commits had left in the log before was synced with it.
	e.w.unsynced = false

	// Then the log is copied into the file. That needs readers out of the way: first those who do not see all of the log,
	// then those who read from it.
	pause, cancel := context.WithTimeout(ctx, e.w.pause)
	defer cancel()
	e.awaitReaders(pause.Done())
	if err := e.checkpoint(); err != nil {
		return err
	}
	e.awaitReaders(pause.Done())
	// Readers that are still there are not waited for again; commits copy the rest of the log later. A truncating
	// checkpoint would wait for them as long as busyTimeout says.
	if _, err := e.w.conn.exec("PRAGMA busy_timeout=0"); err != nil {
		return err
	}

	// The usual time-out is set again whether it worked or not: recovery relies on it.
	_, err := e.w.conn.exec("PRAGMA main.wal_checkpoint(truncate)")
	_, restored := e.w.conn.exec("PRAGMA " + busyTimeout)
	if err := errors.Join(err, restored, e.look()); err != nil {
		return err
	}

	// The log is as short as it can be, so the counts begin anew.
	e.w.tried, e.w.pauseAt = e.w.copied, pausePages

	return e.datadir.Check()
}
