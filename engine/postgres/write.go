package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfastdb/holdfast"
)

// writer is what belongs to the one connection that writes. Only the committer's leader touches it, and Open and Close.
type writer struct {
	conn *pgx.Conn
	seq  int64 // of the last transaction that is there
	kept int64 // of the last that survives what the strongest level survives

	guess guess
}

// guess is whether keys are new of which nothing is known. Where one is not, the transaction fails, and is made again
// without guessing, as are some that come after: twice as many as the last time.
type guess struct {
	careful int // groups that are still made without
	again   int // as many are the next time, less one for each that was guessed right
}

const (
	fewCareful  = 8
	mostCareful = 1 << 12
	// worthGuessing is from how many keys on right guesses save more than a wrong one costs, which is round trips.
	worthGuessing = 16
)

// next reports whether a group is guessed that sets so many keys of which nothing is known.
func (g *guess) next(unknown int) bool {
	if unknown < worthGuessing {
		return false
	}
	if g.careful > 0 {
		g.careful--
		return false
	}

	return true
}

func (g *guess) right() { g.again = max(g.again-1, fewCareful) }

func (g *guess) wrong() {
	g.again = min(2*max(g.again, fewCareful), mostCareful)
	g.careful = g.again
}

const (
	// No row: the division fails, and the transaction with it. The number is compared, too: a message that a broken
	// connection had in it may arrive when its group has been committed again.
	fence = "WITH mine AS (UPDATE holdfast_space SET seq = seq + 1 WHERE space = $1 AND epoch = $2 AND seq = $3 " +
		"RETURNING 1) SELECT 1 / count(*) FROM mine"
	waitForRow = "SET LOCAL lock_timeout = '1s'"
	barrier    = "UPDATE holdfast_space SET beat = beat + 1, holder = " + session +
		" || $3 WHERE space = $1 AND epoch = $2 RETURNING seq"
	epochThere = "SELECT coalesce(max(epoch), 0) FROM holdfast_space WHERE space = $1" // 0: a new space, or none

	// Half of what a row costs the server is that it may be there.
	insert = "INSERT INTO holdfast_kv SELECT $1, * FROM unnest($2::bytea[], $3::bytea[])"
	set    = insert + " ON CONFLICT (space, k) DO UPDATE SET v = excluded.v"
	// One by one, as getAll.
	remove = "DELETE FROM holdfast_kv WHERE ctid = ANY (ARRAY (SELECT at FROM unnest($2::bytea[]) AS gone (k), " +
		"LATERAL (SELECT ctid AS at FROM holdfast_kv WHERE space = $1 AND holdfast_kv.k = gone.k LIMIT 1) AS found))"
	removeRange = "DELETE FROM holdfast_kv WHERE space = $1 AND k >= $2 AND k < $3"
	removeFrom  = "DELETE FROM holdfast_kv WHERE space = $1 AND k >= $2"
)

// The errors of PostgreSQL that mean something to us.
const (
	stateDivision = "22012"
	stateTooMany  = "53300" // connections
	stateLocked   = "55P03"
	stateUnique   = "23505"
)

func sqlState(err error) string {
	if of := (*pgconn.PgError)(nil); errors.As(err, &of) {
		return of.Code
	}

	return ""
}

// write is a group that is written.
type write struct {
	*holdfast.Batch
	level  holdfast.Level
	known  map[string]bool // keys that are there
	guess  bool            // that others are not
	failed bool            // the connection is in a transaction that has
}

// commit makes one transaction of a group.
func (e *engine) commit(b *holdfast.Batch, level holdfast.Level) error {
	if e.hold != nil && level > holdfast.Memory {
		e.hold()
	}
	if b.Len() == 0 && level == holdfast.Memory {
		return nil // all before it is committed
	}

	e.begun.Add(1)
	known, others := e.cache.begin(b)
	w := &write{Batch: b, level: level, known: known, guess: e.w.guess.next(others)}
	for broke := (time.Time{}); ; {
		began := time.Now()
		err, there := e.transact(w), false
		if err == nil {
			if w.guess {
				e.w.guess.right()
			}
			e.committed(b, began, level)
			return nil
		}
		if !e.w.conn.IsClosed() { // the server has refused it
			if w.guess && sqlState(err) == stateUnique {
				e.w.guess.wrong()
				w.guess, w.failed = false, true
				continue
			}
			_, _ = e.w.conn.Exec(context.Background(), "ROLLBACK")
			if sqlState(err) == stateDivision {
				err = e.fenced()
			}

			return e.fail("commit", err)
		}

		// The connection broke: whether the transaction is there, the server has to say.
		if broke.IsZero() {
			broke = time.Now()
		}
		began = time.Now()
		if there, err = e.reconnect(broke.Add(e.patience)); err != nil {
			return e.fail("commit", err)
		}
		if there {
			e.committed(b, began, e.Caps.Strongest())
			return nil
		}
	}
}

// committed notes that the transaction of a group is there, which was begun at a time.
func (e *engine) committed(b *holdfast.Batch, began time.Time, level holdfast.Level) {
	if e.w.seq++; level > holdfast.Memory {
		e.syncs.Add(1)
	}
	if level >= holdfast.Power || !e.quorum.given() && level > holdfast.Memory {
		e.w.kept = e.w.seq
	}

	// On a server that is cut off from the others only what they have says anything about who has the space.
	if level >= holdfast.Power || !e.quorum.given() {
		e.lease.extend(began)
	}
	e.cache.settle(b)
	e.ended.Add(1)
}

func (e *engine) fenced() error {
	return &holdfast.Error{Op: "commit", Engine: Name, Path: e.address, Class: holdfast.ErrFenced,
		Remedy: "open it again, when the other one has closed it"}
}

// transact sends a transaction in one message, and returns when what the level asks for is so. The commit has no
// deadline, and is broken off only when another server has taken over or nothing can be hoped for any more: one that is
// interrupted may be there or not.
func (e *engine) transact(w *write) error {
	done := make(chan struct{})
	defer close(done)
	// The server has work with what it has got.
	conn, most, level := e.w.conn, e.patience+time.Duration(w.Size()>>20)*time.Second, w.level
	e.writing.move()
	defer time.AfterFunc(takeOver, func() { e.breakOff(conn, most, done) }).Stop()

	if w.failed { // the rest has to be prepared outside of it
		w.failed = false
		if _, err := conn.Exec(context.Background(), "ROLLBACK"); err != nil {
			return err
		}
	}
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	switch { // a session's default is local
	case level == holdfast.Memory:
		batch.Queue("SET LOCAL synchronous_commit = off")
	case level >= holdfast.Power && e.quorum.given():
		batch.Queue("SET LOCAL synchronous_commit = on")
	}
	batch.Queue(fence, e.space, e.epoch, e.w.seq)
	e.queue(batch, w)
	batch.Queue("COMMIT")
	if level < holdfast.Power || e.quorum.need == 0 {
		return e.w.conn.SendBatch(context.Background(), batch).Close()
	}

	// In the same message: who has it?
	var at string
	var have int
	batch.Queue(counted, nil, e.quorum.keeping.due()).QueryRow(func(row pgx.Row) (err error) {
		at, have, err = e.quorum.scan(row)
		return err
	})
	if err := e.w.conn.SendBatch(context.Background(), batch).Close(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.patience)
	defer cancel()

	return e.quorum.wait(ctx, e.w.conn, at, have)
}

// breakOff closes a connection on which a commit takes long: when another server has taken over, and in any case when
// nothing has moved for a while. It does nothing any more once done is closed.
func (e *engine) breakOff(conn *pgx.Conn, most time.Duration, done <-chan struct{}) {
	for e.writing.idle() < most && !e.superseded(context.Background()) {
		select {
		case <-done:
			return
		case <-time.After(time.Second):
		}
	}

	select {
	case <-done:
	default:
		_ = conn.PgConn().Conn().Close()
	}
}

// queue adds what a group writes. Of several operations on a key the last one counts, and operations before the
// deletion of a range are done before it.
func (e *engine) queue(batch *pgx.Batch, w *write) {
	last := map[string]int{} // where a key is in keys
	var keys, values [][]byte
	size, guess := 0, w.guess
	flush := func() {
		var gone [][]byte
		var added, put struct{ keys, values [][]byte }
		for i, key := range keys {
			to := &put
			if values[i] == nil {
				gone = append(gone, key)
				continue
			}
			if guess && !w.known[string(key)] {
				to = &added
			}
			to.keys, to.values = append(to.keys, key), append(to.values, values[i])
		}
		if len(gone) > 0 {
			batch.Queue(remove, e.space, gone)
		}
		if len(added.keys) > 0 {
			batch.Queue(insert, e.space, added.keys, added.values)
		}
		if len(put.keys) > 0 {
			batch.Queue(set, e.space, put.keys, put.values)
		}
		clear(last)
		keys, values, size = nil, nil, 0
		guess = false // what comes may be of keys that the group has written
	}

	for op := range w.Ops() {
		value := op.Value
		switch op.Kind {
		case holdfast.KindDeleteRange:
			if flush(); len(op.Value) > 0 {
				batch.Queue(removeRange, e.space, op.Key, op.Value)
			} else {
				batch.Queue(removeFrom, e.space, op.Key)
			}
			continue
		case holdfast.KindDelete:
			value = nil
		default:
			if value == nil {
				value = []byte{}
			}
		}
		if at, ok := last[string(op.Key)]; ok {
			values[at] = value
			continue
		}
		// What a statement has is in the server's memory several times.
		if size += len(op.Key) + len(value); size > maxGroupSize {
			flush()
		}
		last[string(op.Key)] = len(keys)
		keys, values = append(keys, op.Key), append(values, value)
	}
	flush()
}

// reconnect connects again after the connection broke, to whatever server is the primary by now, and reports whether
// the transaction is there that was under way. When it returns, everything that is there survives what the strongest
// level survives.
func (e *engine) reconnect(end time.Time) (there bool, err error) {
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	e.quorum.keeping.reset()
	var seq int64
	for {
		conn, err := e.connect(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			seq, err = e.settle(ctx, conn)
			return err
		})
		switch {
		case err == nil:
			e.w.conn = conn
			return e.resolve(seq)
		case final(err):
			return false, err
		}

		select {
		case <-ctx.Done():
			return false, unavailable(fmt.Errorf("no answer within %v: %w", e.patience, err))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// settle returns the number of the last transaction that is on a server, once that survives what the strongest level
// survives. A server that is cut off from the others cannot bring it there, and is no answer.
func (e *engine) settle(ctx context.Context, conn *pgx.Conn) (seq int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()

	// A backend that still has the row, as one that waits for standbys, is not waited for.
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(waitForRow)
	rows, epoch := 0, int64(0)
	batch.Queue(barrier, e.space, e.epoch, e.here).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&seq)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		rows++

		return err
	})
	batch.Queue(epochThere, e.space).QueryRow(func(row pgx.Row) error { return row.Scan(&epoch) })
	batch.Queue("COMMIT")
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return 0, err
	}

	// That another process has the space counts only where it is the truth.
	if err := e.quorum.settled(ctx, conn); err != nil {
		return 0, err
	}
	switch {
	case rows > 0:
		return seq, nil
	case epoch < e.epoch: // nobody has followed: the server does not even know this owner
		return 0, e.lost(
			conn,
			"the server is at owner %d of the space, and owner %d has had commits acknowledged",
			epoch,
			e.epoch,
		)
	default:
		return 0, e.fenced()
	}
}

// resolve compares what a server has with what was acknowledged.
func (e *engine) resolve(seq int64) (there bool, err error) {
	switch seq - e.w.seq {
	case 0, 1:
		return seq != e.w.seq, nil
	}
	if seq >= e.w.kept && seq < e.w.seq {
		return false, &holdfast.Error{Op: "commit", Engine: Name, Path: e.address, Class: holdfast.ErrUnavailable,
			Detail: fmt.Sprintf("the server is at transaction %d, and %d were acknowledged, but only %d at the strongest level",
				seq, e.w.seq, e.w.kept),
			Remedy: "open it again: only what was acknowledged at weaker levels is gone"}
	}

	return false, e.lost(
		e.w.conn,
		"the server is at transaction %d, %d were acknowledged, and %d of them at the strongest level",
		seq,
		e.w.seq,
		e.w.kept,
	)
}
