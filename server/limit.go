package server

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/server/route"
)

// limit returns a listener with at most n open connections, any number if n is 0 or less. More wait in the system's
// queue. writes is how long a write may take.
func limit(l net.Listener, n int, writes time.Duration) net.Listener {
	limited := &limited{Listener: l, closed: make(chan struct{}), writes: writes}
	if n > 0 {
		limited.free = make(chan struct{}, n)
	}

	return limited
}

type limited struct {
	net.Listener
	free   chan struct{} // full when no connection may be added; nil if there is no limit
	closed chan struct{}
	once   sync.Once
	writes time.Duration
}

func (l *limited) Accept() (net.Conn, error) {
	if l.free != nil {
		select {
		case l.free <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		l.release()
		return nil, err
	}

	return &connection{Conn: c, l: l}, nil
}

func (l *limited) release() {
	if l.free != nil {
		<-l.free
	}
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// connection is a connection that is counted.
//
// net/http and this package move its deadlines a dozen times for each request, mostly while nobody reads or writes, and
// the runtime keeps timers for them. So a deadline of reads is passed on when there is a read, and one of writes if it
// is moved by more than a little.
type connection struct {
	net.Conn
	l    *limited
	once sync.Once

	mu      sync.Mutex // covers what follows
	reading int        // reads that are under way
	asked   time.Time  // the deadline of reads
	set     time.Time  // what was passed on of it
	writes  time.Time  // the deadline of writes, as it was passed on
}

// longAgo is later than the time that net/http gives to reads which are to end at once.
var longAgo = time.Unix(3600, 0)

// nearly is which part of a deadline of writes may be missing.
const nearly = 16

// Close implements [net.Conn].
func (c *connection) Close() error {
	defer c.once.Do(c.l.release)
	return c.Conn.Close()
}

// Read implements [net.Conn].
func (c *connection) Read(p []byte) (int, error) {
	c.mu.Lock()
	if !c.asked.IsZero() && c.asked.Before(longAgo) {
		// net/http ends its watch for a client that goes away so, mostly before that has begun to read.
		c.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	}
	err := c.pass()
	c.reading++
	c.mu.Unlock()
	n := 0
	if err == nil {
		n, err = c.Conn.Read(p)
	}
	c.mu.Lock()
	c.reading--
	c.mu.Unlock()

	return n, err
}

// pass passes the deadline of reads on. It is called with mu held.
func (c *connection) pass() error {
	if c.set == c.asked {
		return nil
	}
	c.set = c.asked

	return c.Conn.SetReadDeadline(c.set)
}

// SetReadDeadline implements [net.Conn].
func (c *connection) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked = t; c.reading > 0 {
		return c.pass()
	}

	return nil
}

// SetWriteDeadline implements [net.Conn].
func (c *connection) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if later := t.Sub(c.writes); !c.writes.IsZero() && later >= 0 && later < c.l.writes/nearly {
		return nil
	}
	c.writes = t

	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements [net.Conn].
func (c *connection) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// maxLimiters is how many limiters are kept. When there are more, all start afresh.
const maxLimiters = 1 << 16

// allow returns ErrTooMany if who makes a request has made too many of late.
func (s *Server) allow(r *http.Request, p auth.Principal) error {
	if s.o.Rate <= 0 {
		return nil
	}

	// A client behind a good token is that token, from wherever it comes.
	who := p.TokenID
	if who == "" {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		who = "address " + host
	}
	s.mu.Lock()
	l := s.limiters[who]
	if l == nil {
		if len(s.limiters) >= maxLimiters {
			clear(s.limiters)
		}
		l = rate.NewLimiter(rate.Limit(s.o.Rate), s.o.Burst)
		s.limiters[who] = l
	}
	s.mu.Unlock()
	if l.Allow() {
		return nil
	}

	return &holdfast.Error{Class: problem.ErrTooMany, Detail: "the limit is " + rateText(s.o), Remedy: "come again later"}
}

// maxHeavy is how many heavy requests are served at once, maxHeavyOf how many of those with tokens of one namespace: a
// client of it that sends slowly does not keep out the others.
const maxHeavy, maxHeavyOf = 4, 2

// begin returns ErrTooMany if a request is heavy and there are enough of these. done is called when it is answered.
func (s *Server) begin(rt *route.Route, p auth.Principal) (done func(), err error) {
	if !rt.Heavy {
		return func() {}, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	all := 0
	for _, n := range s.heavy {
		all += n
	}
	if all >= maxHeavy || p.Namespace != auth.Everywhere && s.heavy[p.Namespace] >= maxHeavyOf {
		return nil, &holdfast.Error{Class: problem.ErrTooMany,
			Detail: "of imports, backups, verifications and compactions " + strconv.Itoa(maxHeavy) +
				" are served at once, and " + strconv.Itoa(maxHeavyOf) + " with tokens of one namespace",
			Remedy: "come again when one is done"}
	}
	s.heavy[p.Namespace]++

	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.heavy[p.Namespace]--; s.heavy[p.Namespace] == 0 {
			delete(s.heavy, p.Namespace)
		}
	}, nil
}

// silent are connections on which nothing has come yet. Clients open some that they then do not need, and Shutdown
// would wait 5 seconds for a request on each.
type silent struct {
	mu    sync.Mutex
	since map[net.Conn]time.Time
}

// speaks is how long a connection may be silent before a server that stops closes it.
const speaks = 500 * time.Millisecond

// note is called when the state of a connection changes.
func (s *silent) note(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state != http.StateNew {
		delete(s.since, c)
		return
	}
	if s.since == nil {
		s.since = map[net.Conn]time.Time{}
	}
	s.since[c] = time.Now()
}

// end closes silent connections until the server has stopped.
func (s *silent) end(shut <-chan struct{}) {
	for {
		next, over := speaks, []net.Conn(nil)
		s.mu.Lock()
		for c, since := range s.since {
			if left := speaks - time.Since(since); left > 0 {
				next = min(next, left)
			} else {
				over = append(over, c)
			}
		}
		s.mu.Unlock()
		for _, c := range over {
			_ = c.Close()
		}
		select {
		case <-shut:
			return
		case <-time.After(next):
		}
	}
}
