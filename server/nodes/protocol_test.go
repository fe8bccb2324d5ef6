package nodes_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/mem"
	"github.com/holdfastdb/holdfast/server/nodes"
	"github.com/holdfastdb/holdfast/server/nodes/nodestest"
)

// beside is a cluster in which there is a process of another protocol, too.
type beside struct {
	nodes.Cluster
	protocol int
	alive    bool
}

func (b beside) Look(ctx context.Context) (nodes.Seen, error) {
	seen, err := b.Cluster.Look(ctx)
	seen.Peers = append(
		seen.Peers,
		nodes.Peer{Address: "http://b", Version: "other", Protocol: b.protocol, Alive: b.alive},
	)
	return seen, err
}

// unreachable are processes that cannot be reached.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("nobody is there")
}

// TestProtocol: a process works with those whose protocol is the next one or the one before, and does not begin beside
// others, unless those are dead.
func TestProtocol(t *testing.T) {
	for by := -3; by <= 3; by++ {
		for _, alive := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				cluster := nodestest.NewCluster(func() holdfast.Engine { return mem.New() })
				n, err := nodes.New([]nodes.Cluster{beside{cluster.Member("http://a"), nodes.Protocol + by, alive}},
					nodes.Options{Self: "http://a", Peers: unreachable{}, Level: holdfast.Memory,
						Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithTimeout(t.Context(), 250*time.Millisecond)
				err = n.Run(ctx)
				stop()
				if refused := errors.Is(err, holdfast.ErrVersion); refused != (alive && (by < -1 || by > 1)) {
					t.Errorf("beside a process whose protocol is %+d (alive: %v): %v", by, alive, err)
				}
			})
		}
	}
}
