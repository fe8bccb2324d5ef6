// Package onpostgres shares spaces among processes by a database of PostgreSQL.
//
//	cluster, err := onpostgres.Join(address, holdfast.Options{}, postgres.Self{Address: self, Protocol: nodes.Protocol})
//	n, err := nodes.New([]nodes.Cluster{cluster}, nodes.Options{Self: self, PeerToken: secret})
package onpostgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/server/nodes"
)

// Cluster is a process's part in the spaces of a database. It implements [nodes.Cluster], and is used as that asks for.
type Cluster struct{ nodes *postgres.Nodes }

// Join prepares a process for sharing the spaces of a database: see [postgres.Join]. Close ends it.
func Join(address string, o holdfast.Options, self postgres.Self, tune ...func(*pgx.ConnConfig)) (*Cluster, error) {
	joined, err := postgres.Join(address, o, self, tune...)
	if err != nil {
		return nil, err
	}

	return &Cluster{joined}, nil
}

// Look implements [nodes.Cluster].
func (c *Cluster) Look(ctx context.Context) (nodes.Seen, error) {
	in, err := c.nodes.Look(ctx)
	out := nodes.Seen{Marks: in.Marks}
	for _, n := range in.Nodes {
		out.Peers = append(out.Peers, nodes.Peer{Address: n.Address, Version: n.Version, Protocol: n.Protocol,
			Alive: n.Alive, Cluster: n.Cluster, Clusters: n.Clusters})
	}
	for _, r := range in.Spaces {
		out.Spaces = append(out.Spaces, nodes.Space{Number: r.Number, Owner: r.Owner, Host: r.Host, Epoch: r.Epoch,
			Seq: r.Seq, Free: r.Free, Still: r.Still, Handle: r})
	}

	return out, err
}

// Mark implements [nodes.Cluster].
func (c *Cluster) Mark(ctx context.Context, number int, server string) error {
	return c.nodes.Mark(ctx, number, server)
}

// String implements [nodes.Cluster].
func (c *Cluster) String() string { return c.nodes.String() }

// Open implements [nodes.Cluster].
func (c *Cluster) Open(space nodes.Space) (holdfast.Engine, error) {
	row, ok := space.Handle.(postgres.Space)
	if !ok { // it is new
		row.Number = space.Number
	}

	return c.nodes.Open(row)
}

// Leave implements [nodes.Cluster].
func (c *Cluster) Leave(ctx context.Context) error { return c.nodes.Leave(ctx) }

// Close ends the connection to the database. Spaces that are open stay so.
func (c *Cluster) Close() error { return c.nodes.Close() }
