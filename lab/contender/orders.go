package contender

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// Order is what belongs together: a message, a task, and a row of the caller's own.
type Order struct {
	Stream   string
	Position int64  // of the message: how many its stream has before it, or nothing is written
	Message  []byte // a JSON document
	Task     TaskSpec
	Row      []byte // its key is the stream and the position
}

// OrdersEngine is a queue that has messages and rows beside its tasks.
type OrdersEngine interface {
	TasksEngine
	// Order writes an order in one transaction or, apart, in three, each when the one before survives what the queue's
	// level names. It returns the id of the task once all of it survives that.
	Order(ctx context.Context, o Order, apart bool) (id string, err error)
	// Orders yields messages and rows of a stream, in the order of their positions; a row that is missing is nil.
	Orders(ctx context.Context, stream string, yield func(message, row []byte) error) error
}

// riverOrders is River on Postgres beside the table of messages that [OpenPostgres] makes, and one of rows.
type riverOrders struct {
	*riverQueue[*riverpgxv5.Driver, pgx.Tx]
	pool   *pgxpool.Pool
	server *postgresNodes
}

const (
	riverRows    = "CREATE TABLE rows (stream text, position bigint, value bytea NOT NULL, PRIMARY KEY (stream, position))"
	riverMessage = "INSERT INTO messages (id, stream_name, type, position, data) " +
		"VALUES (gen_random_uuid(), $1, 'Placed', $2, $3)"
	riverRow   = "INSERT INTO rows VALUES ($1, $2, $3)"
	riverThere = "SELECT data, value FROM messages LEFT JOIN rows ON stream = stream_name AND rows.position = " +
		"messages.position WHERE stream_name = $1 ORDER BY messages.position"
)

// Order implements [OrdersEngine]. That a position is taken is found out by the table's constraint: no lock is needed.
func (q *riverOrders) Order(ctx context.Context, o Order, apart bool) (id string, err error) {
	ctx, end, err := q.use(ctx, "order")
	if err != nil {
		return "", err
	}
	defer end()

	if apart {
		if _, err := q.pool.Exec(ctx, riverMessage, o.Stream, o.Position, string(o.Message)); err != nil {
			return "", q.fail("order", err)
		}
		job, err := q.client.Insert(ctx, o.Task.river(), nil)
		if err == nil {
			_, err = q.pool.Exec(ctx, riverRow, o.Stream, o.Position, o.Row)
		}
		if err != nil {
			return "", q.fail("order", err)
		}
		_ = q.counts.commit(nil)

		return strconv.FormatInt(job.Job.ID, 10), nil
	}
	err = pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		both := &pgx.Batch{} // one round trip
		both.Queue(riverMessage, o.Stream, o.Position, string(o.Message))
		both.Queue(riverRow, o.Stream, o.Position, o.Row)
		if err := tx.SendBatch(ctx, both).Close(); err != nil {
			return err
		}
		job, err := q.client.InsertTx(ctx, tx, o.Task.river(), nil)
		if err == nil {
			id = strconv.FormatInt(job.Job.ID, 10)
		}

		return err
	})

	return id, q.fail("order", q.counts.commit(err))
}

// Orders implements [OrdersEngine].
func (q *riverOrders) Orders(ctx context.Context, stream string, yield func(message, row []byte) error) error {
	ctx, end, err := q.use(ctx, "orders")
	if err != nil {
		return err
	}
	defer end()

	rows, err := q.pool.Query(ctx, riverThere, stream)
	if err != nil {
		return q.fail("orders", err)
	}
	var message, row []byte
	_, err = pgx.ForEachRow(rows, []any{&message, &row}, func() error { return yield(message, row) })

	return q.fail("orders", errors.Join(err, rows.Err()))
}
