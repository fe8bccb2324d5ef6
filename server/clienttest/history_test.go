package clienttest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/client"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
)

// place is an address at which one server after the other is.
type place struct {
	t      *testing.T
	now    atomic.Pointer[server.Server] // nil while there is none
	data   *data.Data
	engine holdfast.Engine
	token  string
	c      *client.Client
}

func newPlace(t *testing.T) *place {
	p := &place{t: t, engine: mem.New(), token: auth.NewNamespaceSecret(message.Default)}
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := p.now.Load(); s != nil {
			s.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	var err error
	p.c, err = client.New(h.URL, client.Options{Token: p.token, Logger: quiet})
	check(t, err)
	t.Cleanup(func() {
		p.stop()
		p.c.CloseIdleConnections()
		h.Close()
	})
	p.start(nil)
	return p
}

// start starts a server of p.engine, once before has written to it.
func (p *place) start(before func(n *message.Namespace, log *event.Store)) {
	p.t.Helper()
	s, d, err := newServer(p.engine, holdfast.Memory, p.token)
	check(p.t, err)
	if before != nil {
		n, err := d.Messages().Namespace(ctx, message.Default)
		check(p.t, err)
		log, err := d.Log(ctx, message.Default, "log")
		check(p.t, err)
		before(n, log)
	}
	p.data = d
	p.now.Store(s)
}

func (p *place) stop() {
	p.t.Helper()
	s := p.now.Swap(nil)
	if s == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	check(p.t, errors.Join(s.Stop(limited), p.data.Close()))
}

// copied returns an engine with the same keys.
func copied(t *testing.T, from holdfast.Engine) holdfast.Engine {
	t.Helper()
	to := mem.New()
	var b holdfast.Batch
	it := from.Scan(holdfast.Range{})
	for it.Next() {
		b.Set(it.Key(), it.Value())
	}
	check(t, errors.Join(it.Close(), holdfast.Commit(to, &b, holdfast.Memory)))
	return to
}

// A follower of the client goes on when its server was started again, and ends with an error when the server has been
// put back to a copy meanwhile: if that is shorter than what was read, as long, or longer.
func TestFollowPutBack(t *testing.T) {
	const backup, read = 20, 30
	for _, written := range []int{0, 5, read - backup, read - backup + 1, 50, -1} {
		t.Run(fmt.Sprint(written), func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			write := func(n *message.Namespace, log *event.Store, count int) {
				for range count {
					for _, stream := range []string{"a-1", "b-1"} {
						_, err := n.Write(ctx, stream, message.Message{Type: "t", Data: []byte(`{}`)})
						check(t, err)
					}
					_, err := log.Append(ctx, event.Event{Type: "t"})
					check(t, err)
				}
			}
			p.stop()
			p.start(func(n *message.Namespace, log *event.Store) { write(n, log, backup) })
			old := copied(t, p.engine)
			p.stop()
			p.start(func(n *message.Namespace, log *event.Store) { write(n, log, read-backup) })

			n := p.c.Namespace(message.Default)
			following, stop := context.WithCancel(ctx)
			defer stop()
			type follower struct {
				want, got int
				here      chan struct{} // closed when it has read what there is
				ended     chan error
			}
			follow := func(want int, each func(yield func(error) bool)) *follower {
				f := &follower{want: want, here: make(chan struct{}), ended: make(chan error, 1)}
				go func() {
					each(func(err error) bool {
						if err != nil {
							f.ended <- err
							return false
						}
						if f.got++; f.got == f.want {
							close(f.here)
						}
						return true
					})
				}()
				return f
			}
			messages := func(q message.Query) func(yield func(error) bool) {
				return func(yield func(error) bool) {
					for _, err := range n.Follow(following, q) {
						if !yield(err) {
							return
						}
					}
				}
			}
			all := []*follower{
				follow(2*read, messages(message.Query{})),
				follow(read, messages(message.Query{Stream: "a-1"})),
				follow(read, messages(message.Query{Category: "b"})),
				follow(read, func(yield func(error) bool) {
					for _, err := range n.Log("log").Follow(following, 0) {
						if !yield(err) {
							return
						}
					}
				}),
			}
			for _, f := range all {
				<-f.here
			}
			history, err := n.History(ctx)
			check(t, err)
			ofLog, err := n.Log("log").History(ctx)
			check(t, err)
			p.stop()

			if written < 0 { // the server is only started again
				p.engine = copied(t, p.engine)
				for _, f := range all {
					f.want, f.here = f.want+f.want/read*5, make(chan struct{})
				}
				p.start(func(n *message.Namespace, log *event.Store) { write(n, log, 5) })
				for _, f := range all {
					select {
					case <-f.here:
					case err := <-f.ended:
						t.Error(err)
					}
				}
				for _, err := range n.Read(ctx, message.Query{From: 2*read + 1, History: history}) {
					check(t, err)
				}
				return
			}
			p.engine = old
			p.start(func(n *message.Namespace, log *event.Store) { write(n, log, written) })
			for i, f := range all {
				if err := <-f.ended; !errors.Is(err, event.ErrAhead) || f.got != f.want {
					t.Errorf("follower %d has %d of %d and ends with %v", i, f.got, f.want, err)
				}
			}
			// So is who comes with a position that it has kept, and with the history that it had.
			for _, q := range []message.Query{{From: 2*read + 1}, {Category: "a", From: 2*read + 1}, {Stream: "a-1",
				From: read}} {
				q.History = history
				for _, err := range n.Read(ctx, q) {
					if !errors.Is(err, message.ErrAhead) {
						t.Errorf("%+v: %v", q, err)
					}
					break
				}
				if err := firstOf(n.Follow(ctx, q)); !errors.Is(err, message.ErrAhead) {
					t.Errorf("%+v followed: %v", q, err)
				}
			}
			if err := firstOf(n.Log("log").FollowSince(ctx, ofLog, read+1)); !errors.Is(err, event.ErrAhead) {
				t.Error(err)
			}
		})
	}
}

func firstOf[T any](seq func(yield func(T, error) bool)) (err error) {
	seq(func(_ T, e error) bool {
		err = e
		return false
	})
	return err
}

// A position that was never reached is an error of each call.
func TestAhead(t *testing.T) {
	c, _ := serve(t)
	n := c.Namespace(message.Default)
	_, err := n.Write(ctx, "a-1", message.Message{Type: "t", Data: []byte(`{}`)})
	check(t, err)
	_, err = n.Log("log").Append(ctx, event.Event{Type: "t"})
	check(t, err)
	for _, q := range []message.Query{{From: 5001}, {From: 3}, {Stream: "a-1", From: 2}, {Category: "a", From: 3},
		{Stream: "none", From: 1}} {
		if err := firstOf(n.Follow(ctx, q)); !errors.Is(err, message.ErrAhead) {
			t.Errorf("%+v followed: %v", q, err)
		}
		if err := firstOf(n.Read(ctx, q)); !errors.Is(err, message.ErrAhead) {
			t.Errorf("%+v read: %v", q, err)
		}
	}
	for _, q := range []message.Query{{From: 2}, {Stream: "a-1", From: 1}, {Category: "b", From: 2}, {Stream: "none"}} {
		if err := firstOf(n.Read(ctx, q)); err != nil {
			t.Errorf("%+v read: %v", q, err)
		}
	}
	if err := firstOf(n.Log("log").Follow(ctx, 3)); !errors.Is(err, event.ErrAhead) {
		t.Error(err)
	}
	_, err = n.Subscribe(ctx, "s", message.SubscriptionOptions{Query: message.Query{From: 5001}})
	if !errors.Is(err, event.ErrAhead) {
		t.Errorf("subscribed: %v", err)
	}
	if _, err := n.Subscription("s").Info(ctx); !errors.Is(err, holdfast.ErrNotFound) {
		t.Errorf("it was made all the same: %v", err)
	}
}
