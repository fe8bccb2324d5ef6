package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
)

// writer is what belongs to the one connection that writes. Only the committer's leader
// touches it.
type writer struct {
	conn         *conn
	level        holdfast.Level // that synchronous is set for, 0 if not known
	unsynced     bool           // the log may have commits that no sync has covered
	version      int64          // PRAGMA user_version, see mark
	groups       int            // committed since the log was looked at
	bytes        int            // of batches committed since then
	pages        int64          // in the log when it was looked at last; current unless unsynced
	copied       int64          // of these, how many were in the database
	tried        int64          // pages in the log when it was copied last, as far as could be
	checkpointAt int64          // pages in the log from which it is copied
	pauseAt      int64          // pages in the log from which the next pause for readers is made
	pause        time.Duration  // how long that is at most
}

// commit makes one transaction of a group.
func (e *engine) commit(b *holdfast.Batch, level holdfast.Level) error {
	if e.hold != nil && level == holdfast.Power {
		e.hold()
	}

	// An empty batch stands for a sync: of everything before it, if that is wanted.
	if b.Len() == 0 {
		if level < holdfast.Power {
			return nil // all before it is committed
		}

		return e.syncLog()
	}

	// The group is one transaction, at the highest level that any of its batches needs.
	err := e.synchronous(level)
	if err == nil {
		err = e.w.conn.transact(b, e.mark(level))
	}
	if err != nil {
		return e.fail("commit", err)
	}
	e.saw(false)
	if level == holdfast.Power {
		if err := e.datadir.Check(); err != nil { // the open files may no longer be in the directory
			return err
		}
	}
	e.w.groups++
	e.w.bytes += b.Size()

	// tried keeps a log that readers hold back from being copied at every commit.
	if err = e.committed(level); err == nil && e.w.pages-e.w.tried >= e.w.checkpointAt {
		e.stalls.Add(1)
		err = e.shorten()
	}
	if err != nil {
		return e.fail("checkpoint", err)
	}

	return nil
}

// committed notes what a transaction leaves to be synced, and from time to time looks at the log.
func (e *engine) committed(level holdfast.Level) error {
	// A commit at Power syncs all of the log, weaker commits before it too.
	e.w.unsynced = level < holdfast.Power
	// That takes a microsecond, which is much only where nothing was synced. A log that was copied whole may have
	// restarted.
	if e.w.unsynced && e.w.groups < 16 && e.w.bytes < 256<<10 && e.w.copied < e.w.pages {
		return nil
	}
	e.w.groups, e.w.bytes = 0, 0

	// A log that grew from nothing has a new header, which SQLite has synced too: the syncs are counted as SQLite makes
	// them.
	pages, copied := e.w.pages, e.w.copied
	if err := e.look(); err != nil {
		return err
	}

	// The count of copied pages goes down only when the log begins anew.
	if e.w.copied < copied { // restarted
		e.w.tried, e.w.pauseAt = 0, pausePages
		pages = 0
	}
	if pages == 0 && e.w.pages > 0 {
		e.syncs.Add(1) // of the log's header
	}
	if level == holdfast.Power && e.w.pages > pages { // a transaction that changes nothing writes and syncs nothing
		e.syncs.Add(1)
	}

	return nil
}

// look finds out how long the log is.
func (e *engine) look() error {
	n, err := e.w.conn.ints(kindLogLength) // busy, pages in the log, pages copied
	if err == nil {
		// SQLite says -1 where there is no log.
		e.w.pages, e.w.copied = max(n[1], 0), max(n[2], 0)
		e.saw(true)
	}

	return err
}

// logState is the length of the log as it was seen last, in pages, and how many of these were in the database.
type logState struct {
	pages, copied int64
	exact         bool // nothing was committed since
}

// saw notes for readers what is known of the log's length, and whether that is all of it.
func (e *engine) saw(exact bool) {
	if last := e.log.Load(); exact || last != nil && last.exact {
		e.log.Store(&logState{e.w.pages, e.w.copied, exact})
	}
}

// synchronous sets what a commit at level needs, and reads it back.
func (e *engine) synchronous(level holdfast.Level) error {
	// Memory and Process need the same.
	level = max(level, holdfast.Process)
	if e.w.level == level {
		return nil
	}

	// Until it is read back, it is not known what is set.
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

// mark returns the statement that a transaction at level needs in addition to its batch to sync what weaker ones left
// unsynced, "" if none. A transaction that changes nothing (the values are there already, or the keys to delete are
// not) writes nothing, and then SQLite does not sync, not even under FULL. So mark changes the user version, a number
// that SQLite itself does not use.
func (e *engine) mark(level holdfast.Level) string {
	if level < holdfast.Power || !e.w.unsynced {
		return ""
	}

	// The number is stored in 32 bits with a sign, so it begins again at 0.
	e.w.version = (e.w.version + 1) & 0x7fffffff

	return fmt.Sprintf("PRAGMA user_version=%d", e.w.version)
}

// syncLog syncs the log if need be. SQLite has no call for that: a transaction must write.
func (e *engine) syncLog() error {
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
	if err := e.committed(holdfast.Power); err != nil {
		return e.fail("sync", err)
	}

	return e.datadir.Check()
}

// shorten copies the log into the database, as far as readers let it, so that the next write restarts the log.
//
// The log can be copied up to where the oldest reader is, and restarts when it is copied whole and has no readers.
// Where readers always overlap, that moment never comes by itself. So once the log is long, and here no commit makes it
// longer, shorten waits for readers twice: first for those that do not see all of the log, then for those that read
// from it although it is copied. New readers need not wait, and after the copying they read from the database alone. A
// long-lived snapshot makes that futile, so it is tried again only when the log has doubled.
func (e *engine) shorten() error {
	err := e.checkpoint()

	// Set also after a failure and with readers in the way: the next try comes after checkpointAt more pages.
	e.w.tried = e.w.pages
	if err != nil || e.w.pages < e.w.pauseAt {
		return err
	}

	// One time limit for both waits. No commit comes meanwhile, because the committer's leader is here.
	pause, cancel := context.WithTimeout(context.Background(), e.w.pause)
	defer cancel()
	e.awaitReaders(pause.Done())
	if err := e.checkpoint(); err != nil {
		return err
	}

	// Set before the second wait, whether that succeeds or not.
	e.w.pauseAt = 2 * e.w.pages
	if e.w.copied == e.w.pages {
		e.awaitReaders(pause.Done())
	}

	return nil
}

// checkpoint copies the log into the database, as far as open snapshots and iterators let it, and brings the log to the
// device before.
//
// If the database has no room to grow, that is trouble and no failure: the log, which has everything, stays as it is,
// and is copied another time. It ends writing only when the log has no room, either. A sync that fails is a failure,
// also for want of room: what it should have covered may be gone from the page cache.
func (e *engine) checkpoint() error {
	if err := e.look(); err != nil {
		return err
	}

	// SQLite does not say whether it has copied anything: the count before and after does.
	before := e.w.copied
	n, err := e.w.conn.ints(kindCheckpoint) // busy, pages in the log, pages copied
	if err != nil {
		failed := e.fail("checkpoint", err)
		if code, _ := e.lib.code(err); datadir.NoRoom(failed) && (code == codeFull || code == codeWrite) {
			failed = datadir.Full(failed)
			e.trouble.Store(&failed)

			return nil
		}

		return failed
	}
	e.trouble.Store(nil)
	if n[0] != 0 || n[2] <= before {
		return nil // not begun, or nothing to copy; the next look at the log comes back to it
	}
	e.w.pages, e.w.copied = n[1], n[2]
	e.saw(true)
	e.syncs.Add(1) // of the log

	// A log that was copied whole lets the next writer begin it anew, so SQLite syncs the database then.
	if n[1] == n[2] {
		e.syncs.Add(1) // of the database
		e.w.unsynced = false
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

	// A statement with 32 rows is worth preparing only where it is filled once at least.
	if b.Len() >= manyRows {
		if many, err = c.stmt(kindSetMany); err != nil {
			return err
		}
		defer c.done(many)
	}

	// The order of operations stays: rows that are held go before whatever is no set.
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
