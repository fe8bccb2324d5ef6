// Package nodestest makes, for tests, a server of two processes within this one, and sends clients to the one that does
// not own the data.
package nodestest

import (
	"context"
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

// cluster has one space, which whoever comes first owns.
type cluster struct {
	engine holdfast.Engine
	mu     sync.Mutex
	peers  map[string]bool // whether they live, by address
	owner  string
}

// member is what one process sees of it.
type member struct {
	*cluster
	self string
}

func (m member) Look(context.Context) (peers []nodes.Peer, spaces []nodes.Space, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.peers[m.self]; !ok {
		m.peers[m.self] = true
	}
	for p, alive := range m.peers {
		peers = append(peers, nodes.Peer{Address: p, Protocol: nodes.Protocol, Alive: alive})
	}
	if m.owner != "" {
		spaces = append(spaces, nodes.Space{Owner: m.owner, Host: "localhost", Epoch: 1})
	}

	return peers, spaces, nil
}

func (m member) Open(nodes.Space) (holdfast.Engine, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owner != "" {
		return nil, &holdfast.Error{Op: "open", Class: holdfast.ErrLocked}
	}
	m.owner = m.self

	return m.engine, nil
}

func (m member) Leave(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peers[m.self] = false

	return nil
}

// Start starts the processes until the test ends, and returns the open data and the address of the process that does
// not own them. The owner closes data and engine. opened is called with the data before they are served.
func Start(t testing.TB, e holdfast.Engine, o server.Options, opened func(*data.Data) error) (d *data.Data,
	address string) {
	t.Helper()
	c := &cluster{engine: e, peers: map[string]bool{}}
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
func (c *cluster) start(t testing.TB, o server.Options, opened func(context.Context, *data.Data) error) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	self := "http://" + listener.Addr().String()
	n, err := nodes.New(member{c, self}, nodes.Options{Self: self, PeerToken: "a-secret-of-the-processes", Server: o,
		Level: holdfast.Memory, Opened: opened, StopTimeout: 10 * time.Second})
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
