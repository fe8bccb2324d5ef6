package postgres

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// pace tells for how long a connection has carried nothing. What is large and slow is waited for as long as it moves.
type pace struct{ moved atomic.Int64 } // since processBegan

var processBegan = time.Now()

func (p *pace) move() { p.moved.Store(int64(time.Since(processBegan))) }

func (p *pace) idle() time.Duration { return time.Since(processBegan) - time.Duration(p.moved.Load()) }

// paced returns config for connections that p follows, or each a pace of its own if p is nil: one that hangs must not
// be waited for because others move.
func paced(config *pgx.ConnConfig, p *pace) *pgx.ConnConfig {
	config = config.Copy()
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}

		if p == nil {
			return &pacedConn{conn, new(pace)}, nil
		}

		return &pacedConn{conn, p}, nil
	}

	return config
}

// paceOf returns the pace of a connection of paced.
func paceOf(conn *pgx.Conn) *pace {
	c := conn.PgConn().Conn()
	if secret, ok := c.(*tls.Conn); ok {
		c = secret.NetConn()
	}
	if c, ok := c.(*pacedConn); ok {
		return c.p
	}

	return new(pace) // that of a connection that never moves
}

// within returns a context that ends when nothing has moved for a while.
func (p *pace) within(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	p.move()
	var look func()
	look = func() {
		if left := patience - p.idle(); ctx.Err() == nil && left > 0 {
			time.AfterFunc(left, look)
			return
		}
		cancel()
	}
	first := time.AfterFunc(patience, look)

	return ctx, func() {
		first.Stop()
		cancel()
	}
}

type pacedConn struct {
	net.Conn
	p *pace
}

// onePiece is short enough to be sent by a slow network soon.
const onePiece = 64 << 10

func (c *pacedConn) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	if n > 0 {
		c.p.move()
	}

	return n, err
}

func (c *pacedConn) Write(b []byte) (n int, err error) {
	for {
		wrote, err := c.Conn.Write(b[n:min(len(b), n+onePiece)])
		if n += wrote; wrote > 0 {
			c.p.move()
		}
		if err != nil || n == len(b) {
			return n, err
		}
	}
}

// SetDeadline implements [net.Conn]. The only time to come that pgx sets is how long it drains a connection that it has
// given up: 15 s, for which closing the engine of a server that does not answer would wait.
func (c *pacedConn) SetDeadline(t time.Time) error {
	if most := time.Now().Add(lingers); t.After(most) {
		t = most
	}

	return c.Conn.SetDeadline(t)
}
