package postgres

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/internal/pgserver"
)

// proxy stands between the engine and the server, and does to connections what networks and poolers do.
type proxy struct {
	dir     string // where its socket is
	answers func([]byte) []byte
	mu      sync.Mutex
	open    map[net.Conn]bool

	rate atomic.Int64 // bytes a second in each direction; 0 for no limit

	// If it is above 0: how many messages pass until one is lost with its connection, in turn before the server gets it
	// and after it has answered.
	every atomic.Int64
	seen  atomic.Int64
	lost  atomic.Int64
}

// newProxy starts one in front of the server whose files are in data. What the server says passes answers, if any.
func newProxy(t *testing.T, data string, answers func([]byte) []byte) *proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "holdfast-proxy-") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{dir: dir, answers: answers, open: map[net.Conn]bool{}}
	listener, err := net.Listen("unix", filepath.Join(dir, pgserver.Socket))
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		serving.Wait()
		_ = os.RemoveAll(dir)
	})
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", filepath.Join(data, pgserver.Socket))
			if err != nil {
				_ = client.Close()
				continue
			}
			p.mu.Lock()
			p.open[client], p.open[server] = true, true
			p.mu.Unlock()
			serving.Go(func() { p.serve(client, server) })
		}
	})

	return p
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		_ = conn.Close()
	}
	clear(p.open)
}

// slow takes as long as so many bytes do.
func (p *proxy) slow(n int) {
	if rate := p.rate.Load(); rate > 0 {
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
	}
}

func (p *proxy) serve(client, server net.Conn) {
	var silent atomic.Bool // the next answer is lost, with the connection
	var both sync.WaitGroup
	both.Go(func() {
		defer client.Close()
		defer server.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if every := p.every.Load(); every > 0 && p.seen.Add(1)%every == 0 {
				if p.lost.Add(1)%2 == 0 {
					return
				}
				silent.Store(true)
			}
			p.slow(n)
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer client.Close()
		defer server.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil || silent.Load() {
				return
			}
			answer := buf[:n]
			if p.answers != nil {
				answer = p.answers(answer)
			}
			p.slow(n)
			if _, err := client.Write(answer); err != nil {
				return
			}
		}
	})
	both.Wait()
}
