package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/store/message"
)

// cutter is a proxy that cuts connections on which nothing has come for a while. It never cuts one on which an answer
// is awaited: on a busy machine that takes long, and whether a request without an id was served could not be told.
type cutter struct {
	network string // tcp, or unix
	to, url string
	idle    time.Duration
	cuts    atomic.Int64
	trips   atomic.Int64 // how often the side that began spoke first, or after the other one had
}

func cutting(t *testing.T, network, to string, idle time.Duration) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(t, err)
	c := &cutter{network: network, to: to, url: "http://" + l.Addr().String(), idle: idle}
	t.Cleanup(func() { try(t, l.Close()) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(conn)
		}
	}()
	return c
}

func (c *cutter) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial(c.network, c.to)
	if err != nil {
		return
	}
	defer out.Close()
	var asked atomic.Bool // the side that began spoke last
	var idle *time.Timer
	idle = time.AfterFunc(time.Hour, func() {
		if asked.Load() {
			idle.Reset(c.idle)
			return
		}
		c.cuts.Add(1)
		_ = in.Close()
		_ = out.Close()
	})
	idle.Reset(c.idle) // only now, as the function uses the timer
	defer idle.Stop()
	defer asked.Store(false) // or the function, if it runs just now, sets the timer for ever
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			b := make([]byte, 32<<10)
			for {
				n, err := way[0].Read(b)
				idle.Reset(c.idle)
				if way[0] == out {
					asked.Store(false)
				} else if n > 0 && !asked.Swap(true) {
					c.trips.Add(1)
				}
				if _, failed := way[1].Write(b[:n]); err != nil || failed != nil {
					_ = way[1].(interface{ CloseWrite() error }).CloseWrite()
					return
				}
			}
		})
	}
	both.Wait()
}

// TestNodesCut: what stands between clients and processes, and between processes, cuts connections that are idle. Each
// write is made once, and followers see each message once, in order; EventoDB's go on where they were.
func TestNodesCut(t *testing.T) {
	t.Parallel() // it waits
	address := shared(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a free port
	try(t, err)
	listen := l.Addr().String()
	try(t, l.Close())
	const idle = 300 * time.Millisecond
	inner := cutting(t, "tcp", listen, idle)
	owner := serveNode(t, address("a"), "", "--listen", listen, "--advertise", inner.url)
	owner.eventually("owns", func() bool { return owner.nodes().Spaces[0].Owner == inner.url })
	other := serveNode(t, address("a"), "")
	outer := cutting(t, "tcp", strings.TrimPrefix(other.url, "http://"), idle)

	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	behind := *other
	behind.url = outer.url
	ns := behind.api(client.Options{}).Namespace(message.Default)
	const messages = 8
	followed := make(chan string, 2*messages)
	go func() {
		for m, err := range ns.Follow(ctx, message.Query{Category: "s"}) {
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("following has ended: %v", err)
				}
				stop()
				return
			}
			followed <- string(m.Data)
		}
	}()
	poked := make(chan string, 2*messages)
	go func() {
		for next := int64(0); ctx.Err() == nil; {
			next = subscribe(ctx, outer.url, next, poked)
		}
	}()
	for i := range messages {
		text := fmt.Sprintf(`{"n":%d}`, i)
		if i%2 == 0 {
			_, err = ns.Write(ctx, "s-1", message.Message{Type: "T", Data: []byte(text)})
			try(t, err)
		} else {
			writeOnce(t, other, ns, int64(i), text)
		}
		if got := testkit.Receive(t, "a message for the follower", followed); got != text {
			t.Errorf("the follower got %s, not %s", got, text)
		}
		if got := testkit.Receive(t, "a message for EventoDB's follower", poked); got != fmt.Sprint(i) {
			t.Errorf("EventoDB's follower got %s, not %d", got, i)
		}
		cuts, far := inner.cuts.Load(), outer.cuts.Load()
		testkit.Until(t, "cut", func() bool { return inner.cuts.Load() > cuts && outer.cuts.Load() > far }, other.log)
	}
	if n, err := ns.Count(ctx, "s"); err != nil || n.Messages != messages {
		t.Error(n, err)
	}
}

// writeOnce writes a message without an id, after n others. A connection between processes may be cut just while the
// request goes into it. The answer then says that the write may have been made, and the client looks whether it was.
func writeOnce(t *testing.T, p *process, ns *client.Namespace, n int64, text string) {
	t.Helper()
	for range 100 {
		status, answer := p.rpc(nodesToken, `["stream.write","s-1",{"type":"T","data":`+text+`}]`)
		if status == http.StatusOK {
			return
		}
		count, err := ns.Count(t.Context(), "s")
		switch {
		case status != http.StatusBadGateway || err != nil:
			t.Fatal(status, answer, err)
		case count.Messages > n:
			return
		}
	}
	t.Fatal("each try was cut")
}

// before puts a proxy before a server of PostgreSQL, and returns the addresses of spaces behind it.
func before(t *testing.T, address func(string) string, idle time.Duration) (proxy *cutter,
	through func(string) string) {
	t.Helper()
	dir := dirOf(address)
	proxy = cutting(t, "unix", filepath.Join(dir, pgserver.Socket), idle)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(proxy.url, "http://"))
	try(t, err)
	return proxy, func(space string) string {
		return strings.Replace(address(space), "host="+dir, "host="+host+"&port="+port+"&sslmode=disable", 1)
	}
}

// dirOf is where the files of a server are whose addresses are these.
func dirOf(address func(string) string) string {
	dir, _, _ := strings.Cut(strings.SplitAfter(address("x"), "host=")[1], "&")
	return dir
}

// TestDatabaseCut: what stands between processes and PostgreSQL cuts connections that are idle, also those on which the
// owner gives signs of life. Nobody notices: writes and reads succeed, and the space stays with its owner.
func TestDatabaseCut(t *testing.T) {
	for name, idle := range map[string]time.Duration{"Often": 300 * time.Millisecond,
		"BetweenWrites": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits
			address := shared(t)
			proxy, through := before(t, address, idle)
			at := through("a")
			owner := serveNode(t, at, "")
			owner.eventually("owns", func() bool { return owner.nodes().Spaces[0].Owner == owner.url })
			other := serveNode(t, at, "")
			ns := other.api(client.Options{Retry: -1}).Namespace(message.Default)

			// A machine that is too busy for signs of life may give the space to the other process now and then. A cut that
			// costs the space its owner does so each time.
			quiet, written, epoch := 0, int64(0), owner.nodes().Spaces[0].Epoch
			testkit.Until(t, "six cuts that nobody notices, one after another", func() bool {
				_, failed := ns.Write(t.Context(), "s-1", message.Message{Type: "T", Data: []byte(`{}`)})
				n, err := ns.Count(t.Context(), "s")
				failed = errors.Join(failed, err)
				cuts := proxy.cuts.Load()
				testkit.Until(t, "cut", func() bool { return proxy.cuts.Load() > cuts }, owner.log)
				space := owner.nodes().Spaces[0]
				if quiet++; space.Epoch != epoch || other.nodes().Spaces[0].Epoch != epoch {
					quiet = 0
				} else if failed != nil || quiet > 1 && n.Messages != written+1 || space.Owner == "" {
					t.Fatalf("%d messages, and %d before; %v; %+v", n.Messages, written, failed, space)
				}
				written, epoch = n.Messages, space.Epoch
				return quiet == 6
			}, owner.log)
		})
	}
}

// subscribe follows s-1 as clients of EventoDB do, from a position on, until the connection is cut. It returns where to
// go on.
func subscribe(ctx context.Context, url string, next int64, to chan<- string) int64 {
	req, err := http.NewRequestWithContext(ctx, "GET",
		fmt.Sprintf("%s/subscribe?stream=s-1&position=%d&token=%s", url, next, nodesToken), nil)
	if err != nil {
		panic(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return next
	}
	defer res.Body.Close()
	for in := bufio.NewReader(res.Body); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return next
		}
		text, ok := strings.CutPrefix(line, "data: ")
		var poke struct{ Position int64 }
		if ok && json.Unmarshal([]byte(text), &poke) == nil {
			to <- fmt.Sprint(poke.Position)
			next = poke.Position + 1
		}
	}
}
