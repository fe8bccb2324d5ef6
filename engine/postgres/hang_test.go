package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
)

// hangConn carries nothing more to the server once it was to carry hang.
type hangConn struct {
	net.Conn
	hung *atomic.Pointer[hangConn] // the one that hangs
}

var hang = []byte("this one hangs")

func (c *hangConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, hang) {
		c.hung.Store(c)
	}
	if c.hung.Load() == c {
		return len(b), nil
	}

	return c.Conn.Write(b)
}

// TestReadersHang: a read whose connection hangs ends after the patience, also while the server answers all others and
// commits.
func TestReadersHang(t *testing.T) {
	t.Parallel() // it waits
	needServer(t)
	var refuse atomic.Bool
	var hangs atomic.Pointer[hangConn]
	address := at(os.Getenv(variable), spaceOf(t)) + "&patience=1s"
	opened, err := OpenWith(address, holdfast.Options{}, func(c *pgx.ConnConfig) {
		dial := c.DialFunc
		c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if refuse.Load() {
				return nil, errors.New("no more connections")
			}
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}

			return &hangConn{conn, &hangs}, nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })

	hung := make(chan error, 1)
	go func() {
		_, err := opened.Get(nil, hang)
		hung <- err
	}()
	for i := 0; ; i++ {
		if _, err := opened.Get(nil, fmt.Appendf(nil, "other %d", i)); !errors.Is(err, holdfast.ErrNotFound) {
			t.Fatal(err)
		}
		var ended bool
		select {
		case err = <-hung:
			ended = true
		default:
		}
		if ended {
			break
		}
	}
	if !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("the one that hangs: %v", err)
	}
	_ = hangs.Load().Conn.Close() // or Close waits for its end

	// There is no connection for readers, and commits go on.
	refuse.Store(true)
	e := opened.(*engine)
	e.server.Load().pool.Reset()
	put(t, e, holdfast.Power, "key", "value")
	e.cache.drop()
	if _, err := e.Get(nil, []byte("key")); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("without a connection: %v", err)
	}
	refuse.Store(false)
	if got, err := e.Get(nil, []byte("key")); string(got) != "value" || err != nil {
		t.Errorf("afterwards: %q, %v", got, err)
	}
}
