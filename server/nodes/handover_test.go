package nodes_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/internal/inprocess"
	"github.com/holdfastdb/holdfast/server/nodes"
	"github.com/holdfastdb/holdfast/server/nodes/nodestest"
)

// between brings requests to processes by their addresses.
type between map[string]*nodes.Node

func (b between) RoundTrip(r *http.Request) (*http.Response, error) {
	return inprocess.Transport(b["http://"+r.URL.Host]).RoundTrip(r)
}

// TestHandOver: a process that gives a space up tells the others, so that none waits until it looks the next time.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := nodestest.NewCluster(func() holdfast.Engine { return mem.New() })
		all := between{}
		stop := map[string]func(){}
		var running sync.WaitGroup
		for _, self := range []string{"http://a", "http://b"} {
			n, err := nodes.New([]nodes.Cluster{c.Member(self)}, nodes.Options{Self: self, PeerToken: "of all", Peers: all,
				Level: holdfast.Memory, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			all[self] = n
			ctx, cancel := context.WithCancel(t.Context())
			stop[self] = cancel
			running.Go(func() {
				if err := n.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(25 * time.Millisecond) // they do not look at the same time
			synctest.Wait()
		}
		if all["http://a"].Show().Spaces[0].Owner != "http://a" {
			t.Fatal("the first process has not taken the space")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		began := time.Now()
		stop["http://a"]()
		synctest.Wait()
		if n := all["http://b"].Show(); n.Spaces[0].Owner != "http://b" || time.Since(began) > 0 {
			t.Errorf("after %v: %+v", time.Since(began), n)
		}
		stop["http://b"]()
		running.Wait()
	})
}
