package server

import (
	"net"
	"net/http"
	"sync"

	"golang.org/x/time/rate"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
)

// limit returns a listener with at most n open connections. More wait in the system's queue.
func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, free: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	free   chan struct{} // full when no connection may be added
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &counted{Conn: c, release: func() { <-l.free }}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type counted struct {
	net.Conn
	release func()
	once    sync.Once
}

func (c *counted) Close() error {
	defer c.once.Do(c.release)
	return c.Conn.Close()
}

// maxLimiters is how many limiters are kept. When there are more, all start afresh.
const maxLimiters = 1 << 16

// allow returns ErrTooMany if who makes a request has made too many of late.
func (s *Server) allow(r *http.Request, p auth.Principal) error {
	if s.o.Rate <= 0 {
		return nil
	}
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
