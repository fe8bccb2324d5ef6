package sqlite

import (
	"fmt"

	"github.com/holdfastdb/holdfast"
)

// writer is what belongs to the one connection that writes. Only the committer's leader, or
// whoever is Exclusive, touches it.
type writer struct {
	conn     *conn
	level    holdfast.Level // that synchronous is set for, 0 if not known
	unsynced bool           // the log may have commits that no sync has covered
	version  int64          // PRAGMA user_version, see mark
	groups   int            // committed since the log was looked at
	bytes    int            // of batches committed since then
	restart  bool           // the log was copied whole: the next write begins it anew, with a sync
}

// commit makes one transaction of a group.
func (e *Engine) commit(b *holdfast.Batch, level holdfast.Level) error {
	if e.hold != nil && level == holdfast.Power {
		e.hold()
	}
	if b.Len() == 0 {
		if level < holdfast.Power {
			return nil // all before it is committed
		}
		return e.syncLog()
	}
	err := e.synchronous(level)
	if err == nil {
		err = e.w.conn.transact(b, e.mark(level))
	}
	if err != nil {
		return e.fail("commit", err)
	}
	e.committed(level)
	e.w.groups++
	e.w.bytes += b.Size()
	if e.w.groups < 16 && e.w.bytes < 256<<10 {
		return nil
	}
	// Looking at the log takes a microsecond, so not every commit does.
	e.w.groups, e.w.bytes = 0, 0
	n, err := e.w.conn.ints(kindLogLength)
	if err == nil && n[1] >= checkpointPages {
		e.stalls.Add(1)
		err = e.checkpoint()
	}
	if err != nil {
		return e.fail("checkpoint", err)
	}
	return nil
}

// committed counts the syncs of a transaction and notes what it leaves to be synced.
func (e *Engine) committed(level holdfast.Level) {
	if e.w.restart {
		e.w.restart = false
		e.syncs.Add(1)
	}
	if level == holdfast.Power {
		e.syncs.Add(1)
	}
	e.w.unsynced = level < holdfast.Power
}

// synchronous sets what a commit at level needs, and reads it back.
func (e *Engine) synchronous(level holdfast.Level) error {
	level = max(level, holdfast.Process)
	if e.w.level == level {
		return nil
	}
	e.w.level = 0
	name, want := "NORMAL", "1"
	if level == holdfast.Power {
		name, want = "FULL", "2"
	}
	if _, err := e.w.conn.exec("PRAGMA synchronous=" + name); err != nil {
		return err
	}
	got, err := e.w.conn.text("PRAGMA synchronous")
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("synchronous was set to %s and reads back as %s, not %s", name, got, want)
	}
	e.w.level = level
	return nil
}

// mark returns what a transaction at level must do beside its batch so that it syncs what
// weaker ones have left, "" if nothing. A transaction that changes nothing, since the values are
// there already or the keys to delete are not, writes nothing, and SQLite does not sync then, not
// even under FULL. So it changes the user version, a number that SQLite itself does not use.
func (e *Engine) mark(level holdfast.Level) string {
	if level < holdfast.Power || !e.w.unsynced {
		return ""
	}
	e.w.version = (e.w.version + 1) & 0x7fffffff
	return fmt.Sprintf("PRAGMA user_version=%d", e.w.version)
}

// syncLog syncs the log if need be. SQLite has no call for that: a transaction must write.
func (e *Engine) syncLog() error {
	if !e.w.unsynced {
		return nil
	}
	err := e.synchronous(holdfast.Power)
	if err == nil {
		_, err = e.w.conn.exec(e.mark(holdfast.Power))
	}
	if err != nil {
		return e.fail("sync", err)
	}
	e.committed(holdfast.Power)
	return nil
}

// checkpoint copies the log into the database, as far as open snapshots and iterators let it.
func (e *Engine) checkpoint() error {
	n, err := e.w.conn.ints(kindCheckpoint) // busy, pages in the log, pages copied
	if err != nil {
		return err
	}
	if n[0] != 0 || n[1] < 0 {
		return nil // not begun; the next look at the log comes back to it
	}
	e.syncs.Add(1) // of the log
	if n[1] == n[2] {
		e.syncs.Add(1) // of the database
		e.w.unsynced = false
		e.w.restart = true
	}
	return nil
}

// transact makes one transaction of b, and of mark if there is one.
func (c *conn) transact(b *holdfast.Batch, mark string) error {
	if b.Len() == 1 && mark == "" { // it is a transaction by itself
		return c.change(b)
	}
	if err := c.run(kindBegin); err != nil {
		return err
	}
	err := c.change(b)
	if err == nil && mark != "" {
		_, err = c.exec(mark)
	}
	if err == nil {
		err = c.run(kindCommit)
	}
	if err != nil {
		_, _ = c.exec("ROLLBACK") // an error if SQLite has done it already
	}
	return err
}

// change carries out b's operations. Sets that follow each other share a statement.
func (c *conn) change(b *holdfast.Batch) (err error) {
	var many *stmt
	if b.Len() >= manyRows {
		if many, err = c.stmt(kindSetMany); err != nil {
			return err
		}
		defer c.done(many)
	}
	held := 0 // rows in many's arguments
	for op := range b.Ops() {
		if op.Kind == holdfast.KindSet && many != nil {
			many.args[2*held].Value, many.args[2*held+1].Value = op.Key, op.Value
			if held++; held == manyRows {
				held = 0
				err = many.exec()
			}
		} else if err = c.single(many, held); err == nil {
			held = 0
			switch {
			case op.Kind == holdfast.KindSet:
				err = c.run(kindSet, op.Key, op.Value)
			case op.Kind == holdfast.KindDelete:
				err = c.run(kindDelete, op.Key)
			case len(op.Value) > 0:
				err = c.run(kindDeleteRange, op.Key, op.Value)
			default:
				err = c.run(kindDeleteFrom, op.Key)
			}
		}
		if err != nil {
			return err
		}
	}
	return c.single(many, held)
}

// single sets the first rows of many's arguments one by one.
func (c *conn) single(many *stmt, rows int) error {
	for i := range rows {
		if err := c.run(kindSet, many.args[2*i].Value.([]byte), many.args[2*i+1].Value.([]byte)); err != nil {
			return err
		}
	}
	return nil
}
