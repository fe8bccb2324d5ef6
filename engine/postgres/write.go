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
}

const (
	fence = "WITH mine AS (UPDATE holdfast_space SET seq = seq + 1 WHERE space = $1 AND epoch = $2 RETURNING 1) " +
		"SELECT 1 / count(*) FROM mine" // no row: the division fails, and the transaction with it
	barrier = "UPDATE holdfast_space SET beat = beat + 1 WHERE space = $1 AND epoch = $2 RETURNING seq"

	set = "INSERT INTO holdfast_kv SELECT $1, * FROM unnest($2::bytea[], $3::bytea[]) " +
		"ON CONFLICT (space, k) DO UPDATE SET v = excluded.v"
	remove      = "DELETE FROM holdfast_kv WHERE space = $1 AND k = ANY ($2::bytea[])"
	removeRange = "DELETE FROM holdfast_kv WHERE space = $1 AND k >= $2 AND k < $3"
	removeFrom  = "DELETE FROM holdfast_kv WHERE space = $1 AND k >= $2"
)

// The errors of PostgreSQL that mean something to us.
const (
	stateDivision = "22012"
)

func sqlState(err error) string {
	if of := (*pgconn.PgError)(nil); errors.As(err, &of) {
		return of.Code
	}

	return ""
}

// commit makes one transaction of a group.
func (e *engine) commit(b *holdfast.Batch, level holdfast.Level) error {
	if e.hold != nil && level > holdfast.Memory {
		e.hold()
	}
	if b.Len() == 0 && level == holdfast.Memory {
		return nil // all before it is committed
	}

	for {
		err := e.transact(b, level)
		if err == nil {
			e.w.seq++
			if level > holdfast.Memory {
				e.syncs.Add(1)
			}

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
		there, err := e.reconnect(err)
		if err != nil {
			return e.fail("commit", err)
		}
		if there {
			e.w.seq++
			return nil
		}
	}
}

func (e *engine) fenced() error {
	return &holdfast.Error{Op: "commit", Engine: Name, Path: e.address, Class: ErrFenced,
		Remedy: "open it again, when the other one has closed it"}
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
		keys, values = nil, nil
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
		last[string(op.Key)] = len(keys)
		keys, values = append(keys, op.Key), append(values, value)
	}
	flush()
}

// reconnect connects again after the connection broke, and reports whether the transaction is there that was under way.
func (e *engine) reconnect(cause error) (there bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		conn, err := pgx.ConnectConfig(ctx, e.config)
		if err != nil {
			cause = err
			time.Sleep(50 * time.Millisecond)
			continue
		}

		// What is seen once this is committed is on the server's disk, too.
		var seq int64
		switch err := conn.QueryRow(ctx, barrier, e.space, e.epoch).Scan(&seq); {
		case errors.Is(err, pgx.ErrNoRows):
			_ = conn.Close(ctx)
			return false, e.fenced()
		case err != nil:
			cause = err
			_ = conn.Close(ctx)
			continue
		}
		switch e.w.conn = conn; seq - e.w.seq {
		case 0, 1:
			return seq != e.w.seq, nil
		}

		return false, &holdfast.Error{Op: "commit", Engine: Name, Path: e.address, Class: holdfast.ErrCorrupt, Cause: cause,
			Detail: fmt.Sprintf("the server is at transaction %d, %d were acknowledged: it lost what was not flushed, or is "+
				"another one", seq, e.w.seq), Remedy: "open it again: what was acknowledged at memory may be gone"}
	}

	return false, unavailable(fmt.Errorf("no answer within %v: %w", patience, cause))
}
