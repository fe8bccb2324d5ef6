// Package fleet is several processes that are one server, and clients that go on through whatever becomes of them: what
// they were told, and whether that is so.
//
// It knows nothing of how processes and machines are lost.
package fleet

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/lab/internal/clock"
	"github.com/holdfastdb/holdfast/server"
	"github.com/holdfastdb/holdfast/server/data"
	"github.com/holdfastdb/holdfast/server/nodes"
	"github.com/holdfastdb/holdfast/server/nodes/onpostgres"
	"github.com/holdfastdb/holdfast/store/message"
)

const (
	// token is that of the default namespace, and good everywhere.
	token     = "ns_ZGVmYXVsdA_0000000000000000000000000000000000000000000000000000000000000000"
	peerToken = "the-processes-of-the-lab"
)

// Serve is one of several processes, as holdfast serve is with --advertise, until SIGTERM. It says on standard error
// what it does.
func Serve(s protocol.Spec, t *protocol.Reporter) (err error) {
	if err := clock.Move(s.Node.Ahead, max(s.Node.Slow, 1)); err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	listener, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	self := "http://" + s.Listen
	cluster, err := onpostgres.Join(s.Address, holdfast.Options{Level: s.Level},
		postgres.Self{Address: self, Version: "lab", Protocol: nodes.Protocol})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	n, err := nodes.New([]nodes.Cluster{cluster}, nodes.Options{Self: self, PeerToken: peerToken,
		Spaces: s.Node.Spaces, Level: s.Level,
		Server: server.Options{Logger: logger}, Logger: logger,
		Opened: func(ctx context.Context, d *data.Data) error {
			has, err := d.Tokens().HasOwn(ctx, message.Default)
			if err != nil || has {
				return err
			}

			return d.Tokens().SetOwn(ctx, message.Default, token)
		}})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	served := make(chan error, 1)
	go func() {
		served <- n.Serve(listener)
		stop()
	}()
	t.Serving(self)

	return errors.Join(n.Run(ctx), <-served)
}
