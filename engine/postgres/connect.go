package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastdb/holdfast"
)

// attempt bounds how long one host is tried, so that one which is cut off does not keep the others waiting.
const attempt = 3 * time.Second

// server is where the space is: one of the hosts of the address. Each has connections of its own, so that no answer can
// come from one where the space was before.
type server struct {
	timeline string
	patience time.Duration   // for a reader's connection, and for its answer while nothing moves
	pool     *pgxpool.Pool   // of readers
	ctx      context.Context // ends when the space is elsewhere
	left     context.CancelFunc
}

// newServer returns one that has no connection yet.
func newServer(config *pgx.ConnConfig, patience time.Duration, timeline string) (*server, error) {
	c, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, err
	}
	c.ConnConfig, c.MaxConns, c.MaxConnIdleTime = paced(config, nil), connections, time.Minute
	s := &server{timeline: timeline, patience: patience}
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), c); err != nil {
		return nil, err
	}
	s.ctx, s.left = context.WithCancel(context.Background())

	return s, nil
}

// warm connects the first readers, at once and beside what else is to be done: connecting takes the server longer than
// all that is read when a space is opened.
func (s *server) warm() {
	for range 3 {
		go func() {
			if conn, err := s.acquire(s.ctx); err == nil {
				conn.Release()
			}
		}()
	}
}

// acquire returns a connection for a reader, who releases it.
func (s *server) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()

	return s.pool.Acquire(ctx)
}

// timeline is which history of the cluster a server writes: another one after each promotion.
const timeline = "left(pg_walfile_name(pg_current_wal_lsn()), 8)"

// hosts are the ways to connect that an address names, each alone.
func hosts(config *pgx.ConnConfig) (all []*pgx.ConnConfig) {
	one := config.Copy()
	one.Fallbacks = nil
	all = append(all, one)
	for _, f := range config.Fallbacks {
		one := config.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = f.Host, f.Port, f.TLSConfig, nil
		all = append(all, one)
	}

	return all
}

// primary connects to the one of some hosts that is the primary.
func primary(ctx context.Context, hosts []*pgx.ConnConfig) (conn *pgx.Conn, err error) {
	for _, config := range hosts {
		if conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			continue
		}
		var standby bool
		if err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err == nil && !standby {
			return conn, nil
		}
		_ = conn.Close(ctx)
		if err == nil {
			err = errStandby
		}
	}

	return nil, unavailable(err)
}

// connect tries the hosts until one is a primary and f accepts it. An error of f that names a class, but
// ErrUnavailable, ends it: it is the same everywhere.
func (e *engine) connect(ctx context.Context, f func(context.Context, *pgx.Conn) error) (*pgx.Conn, error) {
	var last error
	for _, config := range e.hosts {
		conn, err := e.try(ctx, config, f)
		if err == nil {
			return conn, nil
		}
		if last = err; final(err) || ctx.Err() != nil {
			break
		}
	}

	return nil, last
}

// try is connect for one host.
func (e *engine) try(ctx context.Context, config *pgx.ConnConfig, f func(context.Context, *pgx.Conn) error) (
	_ *pgx.Conn, err error) {
	short, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	conn, err := pgx.ConnectConfig(short, paced(config, &e.writing))
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() {
		if err != nil {
			_ = conn.Close(short)
		}
	}()

	var standby bool
	var history string
	if err = conn.QueryRow(short, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return nil, err
	}
	if standby {
		return nil, unavailable(errStandby)
	}
	if err = conn.QueryRow(short, "SELECT "+timeline).Scan(&history); err != nil {
		return nil, err
	}
	to, err := newServer(config, e.patience, history)
	if err != nil {
		return nil, err
	}
	to.warm()
	if err = f(ctx, conn); err != nil {
		to.left()
		go to.pool.Close()

		return nil, err
	}

	// Reads that have not had their answer go to the new server. What the old one had acknowledged may not be there.
	e.cache.drop()
	if from := e.server.Swap(to); from != nil {
		from.left()
		go from.pool.Close() // when the last has given up
		e.sharing.Lock()
		e.newest = nil
		e.sharing.Unlock()
	}

	return conn, nil
}

var errStandby = errors.New("it is a standby")

// final reports whether other hosts need not be tried after an error.
func final(err error) bool {
	var of *holdfast.Error
	return errors.As(err, &of) && of.Class != nil && of.Class != holdfast.ErrUnavailable
}

// broken reports whether err says that there is no connection, or that the server is about to end or to begin.
func broken(err error) bool {
	if err == nil || errors.Is(err, pgx.ErrNoRows) || final(err) {
		return false
	}
	state := sqlState(err)

	return state == "" || state == stateTooMany || strings.HasPrefix(state, "57P0") || strings.HasPrefix(state, "08")
}

// superseded reports whether another of the hosts is a primary of a later timeline: the present one is left behind. It
// also counts who keeps up with the present one, as no commit does that has no answer.
func (e *engine) superseded(ctx context.Context) bool {
	now, seen := e.server.Load(), false
	for _, config := range e.hosts {
		at, err := e.probe(ctx, config, now.timeline)
		if err == nil && at > now.timeline {
			return true
		}
		seen = seen || err == nil && at == now.timeline
	}
	if !seen {
		e.quorum.keeping.up.Store(0)
	}

	return false
}

// probe returns the timeline of a primary, and counts who keeps up with it if it is the present one.
func (e *engine) probe(ctx context.Context, config *pgx.ConnConfig, present string) (at string, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT "+timeline).Scan(&at) // an error on a standby
	if err == nil && at == present && e.quorum.need > 0 {
		_, _, err = e.quorum.scan(conn.QueryRow(ctx, counted, nil, e.quorum.keeping.due()))
	}

	return at, err
}
