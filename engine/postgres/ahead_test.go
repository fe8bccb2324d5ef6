package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// fill puts n keys into an engine.
func fill(t *testing.T, e holdfast.Engine, n int) {
	t.Helper()
	var b holdfast.Batch
	for i := range n {
		b.Set(fmt.Appendf(nil, "%06d", i), fmt.Appendf(nil, "value %d", i))
	}
	if err := holdfast.Commit(e, &b, holdfast.Memory); err != nil {
		t.Fatal(err)
	}
}

// idle waits until nothing is read, and nothing runs that reads ahead.
func idle(t *testing.T, e *engine) {
	t.Helper()
	testkit.Until(t, "no state is taken", func() bool { return len(e.states) == 0 })
	testkit.Until(t, "no goroutine reads ahead", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]

		return !strings.Contains(string(stacks), "(*iterator).fetch")
	})
}

// Iterators of every kind that are closed at any place have read what was there, and leave nothing behind.
func TestReadAhead(t *testing.T) {
	needServer(t)
	e := openSpace(t, os.Getenv(variable))
	const n = 12000
	fill(t, e, n)
	s, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var walks sync.WaitGroup
	for w := range 4 {
		walks.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 0))
			for _, most := range []int{0, 1, 63, 64, 65, 127, 128, 129, 640, 641, 3000, n, n + 1, r.IntN(n), r.IntN(n)} {
				from, reverse := holdfast.Reader(e), r.IntN(2) == 0
				if r.IntN(2) == 0 {
					from = s
				}
				it := from.Scan(holdfast.Range{Reverse: reverse})
				for i := range most {
					at := i
					if reverse {
						at = n - 1 - i
					}
					if !it.Next() {
						if i != n || it.Err() != nil {
							t.Errorf("it ends after %d keys: %v", i, it.Err())
						}
						break
					}
					if key := fmt.Sprintf("%06d", at); string(it.Key()) != key || string(it.Value()) != fmt.Sprintf("value %d", at) {
						t.Errorf("key %d is %q = %q", i, it.Key(), it.Value())
					}
				}
				if err := it.Close(); err != nil || it.Next() {
					t.Errorf("after Close: %v", err)
				}
			}
		})
	}
	walks.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	idle(t, e)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// silence is a server that gives no values for a while.
type silence struct{ sync.RWMutex }

func (h *silence) pass(answer []byte) []byte {
	if bytes.Contains(answer, []byte("value ")) {
		h.RLock()
		defer h.RUnlock()
	}

	return answer
}

// farthest is the longest time for which a connection is told to wait.
type farthest struct{ most atomic.Int64 }

func (f *farthest) watch(c *pgx.ConnConfig) {
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &timedConn{conn, f}, err
	}
}

type timedConn struct {
	net.Conn
	f *farthest
}

func (c *timedConn) SetDeadline(t time.Time) error {
	c.f.most.Store(max(c.f.most.Load(), int64(time.Until(t))))

	return c.Conn.SetDeadline(t)
}

// The next page is fetched while the caller has the one before. Close waits for none, and ends the fetch of a server
// that does not answer, but not the snapshot that others read.
func TestReadAheadOfAServerThatWaits(t *testing.T) {
	needServer(t)
	var h silence
	p := newProxy(t, os.Getenv(variable), h.pass)
	var ends farthest
	opened, err := OpenWith(at(p.dir, spaceOf(t)), holdfast.Options{}, ends.watch)
	testkit.Try(t, err)
	t.Cleanup(func() { _ = opened.Close() })
	e := opened.(*engine)
	fill(t, e, 2000)
	half := func(r holdfast.Reader) holdfast.Iterator {
		it := r.Scan(holdfast.Range{})
		for range firstPage/2 - 1 {
			it.Next()
		}

		return it
	}
	for range 2 {
		it := half(e)
		h.Lock()
		if !it.Next() || it.(*iterator).ahead == nil {
			t.Fatal("nothing is fetched at the half of the first page")
		}
		for range firstPage / 2 { // are there all the same
			if !it.Next() {
				t.Fatal(it.Err())
			}
		}
		h.Unlock()
		if !it.Next() || string(it.Key()) != fmt.Sprintf("%06d", firstPage) {
			t.Fatalf("behind the first page: %q, %v", it.Key(), it.Err())
		}
		if err := it.Close(); err != nil {
			t.Error(err)
		}
		idle(t, e)
	}

	it := half(e)
	h.Lock()
	it.Next()
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	idle(t, e) // though the server has not answered
	h.Unlock()

	s, err := e.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	it = half(s)
	h.Lock()
	it.Next()
	if err := it.Close(); err != nil {
		t.Error(err)
	}
	time.Sleep(lingers + 100*time.Millisecond) // it is not given up meanwhile
	h.Unlock()
	e.cache.drop()
	if value, err := s.Get(nil, []byte("001999")); err != nil || string(value) != "value 1999" {
		t.Errorf("a snapshot, after an iterator of it was closed: %q, %v", value, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	idle(t, e)

	// An engine is closed while a page is on its way that nobody waits for.
	if s, err = e.Snapshot(); err != nil {
		t.Fatal(err)
	}
	it = half(s)
	h.Lock()
	it.Next()
	if err := errors.Join(it.Close(), s.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	idle(t, e)
	h.Unlock()
	if most := time.Duration(ends.most.Load()); most == 0 || most > lingers { // pgx alone would wait for 15 s
		t.Errorf("for a connection that is given up, Close waits for %v", most)
	}
}

// A connection that breaks under a fetch is the error of the iterator, at its place.
func TestReadAheadOfABrokenConnection(t *testing.T) {
	needServer(t)
	p := newProxy(t, os.Getenv(variable), nil)
	e := openSpace(t, p.dir)
	fill(t, e, 20000)
	for _, most := range []int{10, firstPage / 2, 200, 5000, 10000} {
		it := e.Scan(holdfast.Range{})
		for i := range 20000 {
			if i == most {
				p.cut()
			}
			if !it.Next() {
				if i < most || !errors.Is(it.Err(), holdfast.ErrUnavailable) {
					t.Errorf("cut at key %d, it ends after %d keys: %v", most, i, it.Err())
				}
				break
			}
			if string(it.Key()) != fmt.Sprintf("%06d", i) {
				t.Fatalf("key %d is %q", i, it.Key())
			}
		}
		if err := it.Close(); !errors.Is(err, holdfast.ErrUnavailable) {
			t.Errorf("cut at key %d: %v", most, err)
		}
		idle(t, e)
		put(t, e, holdfast.Power, "k", "v")
	}
}
