package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"
)

// getAll is get for several keys: it returns their places among those that are asked for. A planner that knows nothing
// of the table yet, or takes a space for small, would read all of it for k = ANY ($2).
const getAll = "SELECT n - 1, v FROM unnest($2::bytea[]) WITH ORDINALITY AS wanted (k, n), LATERAL (SELECT v " +
	"FROM holdfast_kv WHERE space = $1 AND holdfast_kv.k = wanted.k LIMIT 1) AS found"

// flights is how many messages with Gets are under way at a time.
const flights = 4

// gatherer reads the keys of many Gets with few messages: those that are asked for while flights are under way wait
// for the next, and go together. Each is read after it was asked for.
type gatherer struct {
	turns chan struct{} // one for each flight

	mu   sync.Mutex
	next *gathering // nil if none waits
}

// gathering is keys that are read with one message.
type gathering struct {
	keys   [][]byte
	done   chan struct{} // closed when what follows is set
	values [][]byte      // of keys; nil for one that is absent
	since  int64         // what the cache calls their state, at least
	err    error
}

// get reads a value in the latest state. It is nil if the key is absent.
func (e *engine) get(key []byte) (value []byte, since int64, err error) {
	e.gets.mu.Lock()
	g := e.gets.next
	if g == nil {
		g = &gathering{done: make(chan struct{})}
		e.gets.next = g
	}
	at := len(g.keys)
	g.keys = append(g.keys, key)
	e.gets.mu.Unlock()

	select {
	case <-g.done:
	case e.gets.turns <- struct{}{}:
		e.gets.mu.Lock()
		mine := e.gets.next == g
		if mine {
			e.gets.next = nil
		}
		e.gets.mu.Unlock()
		if mine {
			g.err = e.gather(g)
			close(g.done)
		}
		<-e.gets.turns
		<-g.done // it may be in the flight of another one
	}

	if g.err != nil {
		return nil, 0, g.err
	}

	return g.values[at], g.since, nil
}

// gather reads what is gathered.
func (e *engine) gather(g *gathering) error {
	return e.fresh(func(ctx context.Context, from *server) error {
		g.since = e.cache.now()
		return g.read(ctx, from, e.space)
	})
}

// read asks the server.
func (g *gathering) read(ctx context.Context, from *server, space int32) error {
	g.values = make([][]byte, len(g.keys))
	conn, err := from.acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ctx, cancel := paceOf(conn.Conn()).within(ctx, from.patience)
	defer cancel()
	if len(g.keys) == 1 {
		err := conn.QueryRow(ctx, get, space, g.keys[0]).Scan(&g.values[0])
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}

		return err
	}

	rows, err := conn.Query(ctx, getAll, space, g.keys)
	if err != nil {
		return err
	}
	var at int
	var value []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &value}, func() error {
		g.values[at] = value
		return nil
	})

	return err
}
