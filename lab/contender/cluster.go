package contender

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/engine/all"
	"github.com/holdfastdb/holdfast/engine/postgres"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/internal/wrapped"
)

// onThree is what the names of what is on three nodes end with.
const onThree = ":3"

// The peers on three nodes.
const (
	HoldfastPostgres3 = "holdfast-postgres" + onThree
	MessageDB3        = "message-db" + onThree
	NATS3             = NATS + onThree
	River3            = River + onThree
)

// Cluster is a line of the table of what runs on three nodes, all of them processes of this machine.
type Cluster struct {
	all.Entry
	Messages, Tasks bool // what it holds; neither: keys
	// WritesOnly is true for one whose reads may be answered by a node that does not have all yet what was acknowledged.
	WritesOnly bool
}

// Clusters returns what runs on three nodes, in the order in which it is shown: our engine in front of PostgreSQL, and
// what others use. They give the level Quorum alone. The nodes end with the process that opened them.
func Clusters() []Cluster {
	return []Cluster{
		{Entry: all.Entry{Name: HoldfastPostgres3, Open: openHoldfastPostgres, Describe: describeHoldfastPostgres}},
		{Entry: all.Entry{Name: MessageDB3, Open: openMessageDB3, Describe: describeMessageDB3}, Messages: true},
		{Entry: all.Entry{Name: NATS3, Open: openNATS3, Describe: describeNATS3}, Messages: true, WritesOnly: true},
		{Entry: all.Entry{Name: River3, Open: openRiver3, Describe: describeRiver3}, Tasks: true},
	}
}

// onlyQuorum makes c what a peer on three nodes gives. If how is empty, it gives nothing here, for the reason that c
// has at Power.
func onlyQuorum(c holdfast.Capabilities, name, how string, caveats ...string) holdfast.Capabilities {
	c.Engine, c.Caveats, c.LossWindow = name, caveats, 0
	if c.Power.Given == 0 {
		c.Quorum = holdfast.Promise{Why: c.Power.Why}
	} else {
		c.Quorum = holdfast.Promise{Given: holdfast.Quorum, How: how}
	}
	c.Memory = holdfast.Promise{Why: "it is on three nodes, and measured at quorum"}
	c.Process, c.Power = c.Memory, c.Memory

	return c
}

// ofPostgres is how a commit is kept by PostgreSQL on three nodes.
const ofPostgres = "PostgreSQL with two synchronous standbys (ANY 1), synchronous_commit on: the primary has flushed " +
	"a commit, and then one of the standbys, before it returns"

const postgresNodesCaveat = "Its nodes and their client are processes of one machine, connected by its sockets."

func describeHoldfastPostgres() holdfast.Capabilities {
	c := postgres.Describe()
	if _, err := pgserver.Find(); err != nil {
		c.Power = holdfast.Promise{Why: err.Error()}
	}

	return onlyQuorum(c, HoldfastPostgres3, ofPostgres+"; each commit is counted", postgresNodesCaveat,
		"It is our engine in front of PostgreSQL, with our stores on it.")
}

func describeMessageDB3() holdfast.Capabilities {
	c := DescribePostgres()

	return onlyQuorum(c, MessageDB3, ofPostgres+"; not counted", postgresNodesCaveat,
		"Its tables and calls are those of "+Postgres+".")
}

func describeRiver3() holdfast.Capabilities {
	c := DescribeRiver()

	return onlyQuorum(c, River3, ofPostgres+"; not counted", postgresNodesCaveat,
		"Its tables and calls are those of "+River+".")
}

func describeNATS3() holdfast.Capabilities {
	return onlyQuorum(DescribeNATS(), NATS3, "JetStream with three replicas and sync_interval always: a majority, the "+
		"leader and one other, has written and synced its Raft log before a message is acknowledged",
		"Its nodes and their client are processes of one machine, connected over loopback. The client is connected to the "+
			"stream's leader.",
		"Reads are answered by any replica (allow_direct), which may not have all yet that was acknowledged: only writes "+
			"and following are measured.",
		"Its calls are those of "+NATS+".")
}

func openNATS3(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openNATS(describeNATS3, dir, o)
}

func openMessageDB3(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openPostgres(describeMessageDB3, dir, o)
}

func openRiver3(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openRiver(describeRiver3, dir, o)
}

// holdfastPostgres is engine/postgres on three nodes, which it ends with.
type holdfastPostgres struct {
	wrapped.Engine
	nodes  *postgresNodes
	handle *datadir.Handle
	about  []holdfast.Setting // of the nodes
}

func openHoldfastPostgres(dir string, o holdfast.Options) (_ holdfast.Engine, err error) {
	h, o, err := begin(describeHoldfastPostgres(), dir, o, true)
	if err != nil {
		return nil, err
	}
	p := &holdfastPostgres{handle: h, about: postgresSettings(o)}
	ctx, cancel := context.WithTimeout(context.Background(), pgserver.Patience)
	defer cancel()
	var conn *pgx.Conn
	if p.nodes, conn, _, err = startPostgresIn(ctx, h, o.Level, p.about); err != nil {
		return nil, errors.Join(&holdfast.Error{Op: "open", Engine: HoldfastPostgres3, Path: dir, Cause: err}, h.Close())
	}
	err = conn.Close(ctx)
	if err == nil {
		p.Engine.Engine, err = postgres.OpenWith("postgres://postgres@/postgres?host=/&space=bench", o,
			func(c *pgx.ConnConfig) { c.DialFunc = p.nodes.Dial })
	}
	if err == nil && h.New {
		err = h.Made()
	}
	if err != nil {
		return nil, errors.Join(err, p.end())
	}

	return p, nil
}

// end ends the nodes.
func (p *holdfastPostgres) end() error { return errors.Join(p.nodes.Stop(), p.handle.Close()) }

// Capabilities implements [holdfast.Engine].
func (p *holdfastPostgres) Capabilities() holdfast.Capabilities {
	c := p.Engine.Capabilities()
	same := describeHoldfastPostgres()
	c.Engine, c.Memory, c.Process, c.Power = same.Engine, same.Memory, same.Process, same.Power
	c.Settings = append(c.Settings, p.about...)

	return c
}

// Close implements [holdfast.Engine].
func (p *holdfastPostgres) Close() error {
	err := p.Engine.Close()
	if errors.Is(err, holdfast.ErrClosed) {
		return err
	}

	return errors.Join(err, p.end())
}

// postgresNodes are the servers of a Postgres: one, or at Quorum a primary and its standbys.
type postgresNodes struct {
	*pgserver.Server
	standbys []*pgserver.Server
}

// standbyNames are also those of their directories.
var standbyNames = []string{"standby1", "standby2"}

const synchronousStandbys = "ANY 1 (standby1, standby2)"

// follow starts the standbys of a primary that runs.
func (n *postgresNodes) follow(ctx context.Context, h *datadir.Handle, files pgserver.Config) error {
	for _, name := range standbyNames {
		s, err := pgserver.OpenStandby(ctx, filepath.Join(h.Dir, name), filepath.Join(h.Dir, postgresData), files)
		if err == nil {
			n.standbys = append(n.standbys, s)
			err = s.Ready(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}

	return nil
}

// Stop ends the servers: the primary first, so that its standbys have all that it has.
func (n *postgresNodes) Stop() error {
	err := n.Server.Stop()
	for _, s := range n.standbys {
		err = errors.Join(err, s.Stop())
	}

	return err
}

// Kill ends the servers at once.
func (n *postgresNodes) Kill() {
	n.Server.Kill()
	for _, s := range n.standbys {
		s.Kill()
	}
}
