// Package nodestest makes, for tests, a server of two processes within this one, and sends clients to the one that does
// not own the data.
package nodestest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/nodes"
)

// Cluster has one space, which the processes give each other.
type Cluster struct {
	open  func() holdfast.Engine
	mu    sync.Mutex
	alive map[string]bool // of those that were seen, by address
	owner string
	epoch int64
}

// NewCluster makes a cluster whose space is what open opens.
func NewCluster(open func() holdfast.Engine) *Cluster {
	return &Cluster{open: open, alive: map[string]bool{}}
}

// Member is what the process at an address sees of it.
func (c *Cluster) Member(self string) nodes.Cluster { return member{c, self} }

type member struct {
	*Cluster
	self string
}

func (m member) Look(context.Context) (seen nodes.Seen, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, left := m.alive[m.self]; !left {
		m.alive[m.self] = true
	}
	for p, alive := range m.alive {
		seen.Peers = append(seen.Peers, nodes.Peer{Address: p, Protocol: nodes.Protocol, Alive: alive, Clusters: 1})
	}

	seen.Spaces = []nodes.Space{{Owner: m.owner, Epoch: m.epoch, Free: m.owner == ""}}

	return seen, nil
}

// Mark is not called where there is one cluster.
func (m member) Mark(context.Context, int, string) error { return errors.ErrUnsupported }

func (m member) String() string { return "in memory" }

func (m member) Open(nodes.Space) (holdfast.Engine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owner != "" {
		return nil, &holdfast.Error{Op: "open", Class: holdfast.ErrLocked}
	}
	m.owner = m.self
	m.epoch++

	return opened{m.open(), m}, nil
}

func (m member) Leave(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alive[m.self] = false

	return nil
}

// opened is an engine that gives the space up when it is closed.
type opened struct {
	holdfast.Engine
	m member
}

func (o opened) Close() error {
	err := o.Engine.Close()
	o.m.mu.Lock()
	defer o.m.mu.Unlock()
	o.m.owner = ""

	return err
}

// Start starts the processes until the test ends, and returns the open data and the address of the process that does
// not own them. The owner closes data and engine. opened is called with the data before they are served.
func Start(t testing.TB, e holdfast.Engine, o server.Options, opened func(*data.Data) error) (d *data.Data,
	address string) {
	t.Helper()
	c := NewCluster(func() holdfast.Engine { return e })
	has := make(chan struct{})
	c.start(t, o, func(_ context.Context, got *data.Data) error {
		d = got
		defer close(has)

		return opened(d)
	})
	select {
	case <-has:
	case <-time.After(time.Minute):
		t.Fatal("no process has opened the data")
	}

	return d, c.start(t, o, nil)
}

// start starts a process that is ready.
func (c *Cluster) start(t testing.TB, o server.Options, opened func(context.Context, *data.Data) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	self := "http://" + listener.Addr().String()
	n, err := nodes.New(
		[]nodes.Cluster{c.Member(self)},
		nodes.Options{Self: self, PeerToken: "a-secret-of-the-processes", Server: o,
			Level: holdfast.Memory, Opened: opened, StopTimeout: 10 * time.Second},
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var ends sync.WaitGroup
	ends.Go(func() {
		if err := n.Serve(listener); err != nil {
			t.Error(err)
		}
	})
	ends.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		ends.Wait()
	})
	for {
		res, err := http.Get(self + "/ready")
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return self
		}
		time.Sleep(10 * time.Millisecond)
	}
}
