package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfastdb/holdfast"
)

// writer is what belongs to the one connection that writes. Only the committer's leader touches it, and Open and Close.
type writer struct {
	conn  *pgx.Conn
	seq   int64 // of the last transaction that is there
	power int64 // of the last one that was acknowledged at Power
}

const (
	fence = "WITH mine AS (UPDATE holdfast_space SET seq = seq + 1 WHERE space = $1 AND epoch = $2 RETURNING 1) " +
		"SELECT 1 / count(*) FROM mine" // no row: the division fails, and the transaction with it
	barrier = "UPDATE holdfast_space SET beat = beat + 1, holder = " + session +
		" || $3 WHERE space = $1 AND epoch = $2 RETURNING seq"

	set = "INSERT INTO holdfast_kv SELECT $1, * FROM unnest($2::bytea[], $3::bytea[]) " +
		"ON CONFLICT (space, k) DO UPDATE SET v = excluded.v"
	remove      = "DELETE FROM holdfast_kv WHERE space = $1 AND k = ANY ($2::bytea[])"
	removeRange = "DELETE FROM holdfast_kv WHERE space = $1 AND k >= $2 AND k < $3"
	removeFrom  = "DELETE FROM holdfast_kv WHERE space = $1 AND k >= $2"
)

// The errors of PostgreSQL that mean something to us.
const (
	stateDivision = "22012"
	stateTooMany  = "53300" // connections
)

func sqlState(err error) string {
	if of := (*pgconn.PgError)(nil); errors.As(err, &of) {
		return of.Code
	}

	return ""
}

var nothing holdfast.Batch // never changed

// commit makes one transaction of a group.
func (e *engine) commit(b *holdfast.Batch, level holdfast.Level) error {
	if e.hold != nil && level > holdfast.Memory {
		e.hold()
	}
	if b.Len() == 0 && level == holdfast.Memory {
		return nil // all before it is committed
	}

	return e.write(b, level)
}

// write makes one transaction, also where connections break.
func (e *engine) write(b *holdfast.Batch, level holdfast.Level) error {
	e.begun.Add(1)
	for broke := (time.Time{}); ; {
		err, there := e.transact(b, level), false
		if err == nil {
			e.acknowledge(level)
			return nil
		}
		if !e.w.conn.IsClosed() { // the server has refused it
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
		if there, err = e.reconnect(broke.Add(e.patience), err); err != nil {
			return e.fail("commit", err)
		}
		if there {
			e.acknowledge(level)
			return nil
		}
	}
}

// acknowledge notes that a transaction is there.
func (e *engine) acknowledge(level holdfast.Level) {
	if e.w.seq++; level > holdfast.Memory {
		e.w.power = e.w.seq
		e.syncs.Add(1)
	}
	e.ended.Add(1)
}

func (e *engine) fenced() error {
	return &holdfast.Error{Op: "commit", Engine: Name, Path: e.address, Class: ErrFenced,
		Remedy: "open it again, when the other one has closed it"}
}

// beats keeps the space moving while nobody writes, by transactions of nothing, and so connects again if the session
// has ended: others see that this process has the space. So it also learns when it has it no more.
func (e *engine) beats() {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for before := int64(0); ; {
		select {
		case <-e.released:
			return
		case <-ticker.C:
		}
		if begun := e.begun.Load(); begun != before { // somebody writes
			before = begun
			continue
		}
		before++ // the transaction that follows
		if err := e.committer.Exclusive(func() error { return e.write(&nothing, holdfast.Memory) }); err != nil {
			_ = e.committer.Fail(err)
			return
		}
	}
}

// transact sends a transaction in one message. It has no deadline: a commit that is interrupted may be there or not.
func (e *engine) transact(b *holdfast.Batch, level holdfast.Level) error {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	if level == holdfast.Memory {
		batch.Queue("SET LOCAL synchronous_commit = off")
	}
	batch.Queue(fence, e.space, e.epoch)
	e.queue(batch, b)
	batch.Queue("COMMIT")

	return e.w.conn.SendBatch(context.Background(), batch).Close()
}

// queue adds what a group writes. Of several operations on a key the last one counts, and operations before the
// deletion of a range are done before it.
func (e *engine) queue(batch *pgx.Batch, b *holdfast.Batch) {
	last := map[string]int{} // where a key is in keys
	var keys, values [][]byte
	size := 0
	flush := func() {
		var sets, vs, gone [][]byte
		for i, key := range keys {
			if values[i] == nil {
				gone = append(gone, key)
			} else {
				sets, vs = append(sets, key), append(vs, values[i])
			}
		}
		if len(gone) > 0 {
			batch.Queue(remove, e.space, gone)
		}
		if len(sets) > 0 {
			batch.Queue(set, e.space, sets, vs)
		}
		clear(last)
		keys, values, size = nil, nil, 0
	}

	for op := range b.Ops() {
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

// reconnect connects again after the connection broke, and reports whether the transaction is there that was under way.
func (e *engine) reconnect(end time.Time, cause error) (there bool, err error) {
	for ; time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		seq, err := e.settle()
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return false, e.fenced()
		case err != nil:
			cause = err
			continue
		case seq == e.w.seq || seq == e.w.seq+1:
			return seq != e.w.seq, nil
		}
		lost := &holdfast.Error{Op: "commit", Engine: Name, Path: e.address, Cause: cause,
			Detail: fmt.Sprintf("the server is at transaction %d, %d were acknowledged, and those up to %d survive its end", seq,
				e.w.seq, e.w.power), Remedy: "open it again: of what was acknowledged at memory, the last may be gone"}
		if seq < e.w.power || seq > e.w.seq+1 {
			lost.Class, lost.Remedy = holdfast.ErrCorrupt, "look whether this is the server that it was before"
		}

		return false, lost
	}

	return false, unavailable(fmt.Errorf("no answer within %v: %w", e.patience, cause))
}

// settle connects again, and returns the number of the last transaction that is there: once this is committed, it is on
// the server's disk.
func (e *engine) settle() (seq int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), e.patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, e.config)
	if err != nil {
		return 0, err
	}
	if err := conn.QueryRow(ctx, barrier, e.space, e.epoch, here()).Scan(&seq); err != nil {
		_ = conn.Close(ctx)
		return 0, err
	}
	e.w.conn = conn

	return seq, nil
}

// retry calls f, which reads, until it fails by something else than a broken connection, for as long as patience.
func (e *engine) retry(f func() error) error {
	for end := time.Now().Add(e.patience); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if !broken(err) {
			return err
		}
		if time.Now().After(end) {
			return unavailable(err)
		}
	}
}

// broken reports whether err says that there is no connection, or that the server is about to end or to begin.
func broken(err error) bool {
	if err == nil || errors.Is(err, pgx.ErrNoRows) {
		return false
	}
	state := sqlState(err)

	return state == "" || state == stateTooMany || strings.HasPrefix(state, "57P0") || strings.HasPrefix(state, "08")
}
