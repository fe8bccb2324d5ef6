package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
)

// PerCluster is how many spaces a cluster can have. Their numbers go on from one cluster of a server to the next, and
// are the same whatever comes behind it: space 1003 is the fourth one of the second cluster, which has the number 1.
const PerCluster = 1000

// Self is what a process tells others of itself.
type Self struct {
	Address  string // where they reach it; no two processes have the same
	Version  string
	Protocol int // of what processes say to each other

	Cluster  int    // the number that the process gives this database, from 0
	Clusters int    // how many databases the process has
	Run      string // tells this process from an earlier one at the same address; made if it is empty
}

// Node is a process that has joined, as another one sees it.
type Node struct {
	Self
	Alive bool // it has given a sign of life of late
}

// Space is one of the spaces that processes share.
type Space struct {
	Number int    // 0 is the space that the address names, in the cluster 0
	Owner  string // where the process that has it is reached; "" if nobody has it, or one that did not join
	Host   string // the owner's machine
	Epoch  int64
	Seq    int64
	Free   bool          // it may be taken
	Still  time.Duration // for how long nothing was heard of its owner, if that is long

	claim claim
}

// Seen is what a process sees in a database.
type Seen struct {
	Nodes  []Node
	Spaces []Space
	// Marks say which cluster of which server the database is, by its number, and in the first one of a server also which
	// others there are. There are none if the server has one cluster only.
	Marks map[int]string
}

// Nodes is a process's part among those that share the spaces of a database: the one that the address names, which has
// the number 0, and those with a dot and a number behind that name. Look, Mark and Leave are called by one goroutine at
// a time.
//
// A process is alive as long as the beat of its row in holdfast_node moves. Each measures that with its own clock.
//
// A server may have several databases, each in a cluster of PostgreSQL of its own, and each with its own rows. A mark
// is a row of holdfast_space without keys, NAME/cluster/NUMBER, which no space can be called: its holder is the server.
type Nodes struct {
	address string
	o       holdfast.Options
	self    Self
	base    string
	tune    []func(*pgx.ConnConfig)
	hosts   []*pgx.ConnConfig
	conn    *pgx.Conn
	made    bool
	left    bool
	beat    time.Time
	nodes   map[string]sight // by address
	spaces  map[int]sight
}

// sight is when something was seen to have changed.
type sight struct {
	state string
	since time.Time
}

const (
	// nodeBeat is how often a process gives a sign of life, and takeOver the time after which it counts as dead without.
	nodeBeat = time.Second
	// forgotten is how long the row of a process that gives none stays.
	forgotten = time.Minute

	nodeSchema = `CREATE TABLE IF NOT EXISTS holdfast_node (space text, address text, run text NOT NULL,
	process text NOT NULL, version text NOT NULL, protocol int NOT NULL, beat bigint NOT NULL,
	PRIMARY KEY (space, address)) WITH (fillfactor = 50)`

	join = "INSERT INTO holdfast_node VALUES ($1, $2, $3, $4, $5, $6, 0) ON CONFLICT (space, address) DO NOTHING"
	live = "UPDATE holdfast_node SET beat = beat + 1 WHERE space = $1 AND address = $2 AND run = $3"
	quit = "DELETE FROM holdfast_node WHERE space = $1 AND address = $2 AND run = $3"

	lookNodes = "SELECT address, run, process, version, protocol, run || '/' || beat FROM holdfast_node " +
		"WHERE space = $1 ORDER BY address"
	lookSpaces = "SELECT name, holder, epoch, seq, " + moves + ", " + ofSession +
		" FROM holdfast_space WHERE name = $1 OR starts_with(name, $1 || '.') OR starts_with(name, $1 || '" + marks +
		"') ORDER BY length(name), name"

	marks   = "/cluster/" // what is between the name of the space and the number of a cluster
	addMark = "INSERT INTO holdfast_space (name, format, epoch, seq, holder, beat) VALUES ($1 || '" + marks +
		"' || $2, $3, 0, 0, $4, 0)"
)

// Join prepares a process for sharing the spaces of a database; the first Look makes it known to the others. The
// options are those of the engines that it opens.
func Join(address string, o holdfast.Options, self Self, tune ...func(*pgx.ConnConfig)) (*Nodes, error) {
	e := &engine{address: WithoutPassword(address)}
	base, err := e.parse(address)
	if err != nil {
		return nil, err
	}
	most := maxSpaceName - len(fmt.Sprintf(".%d", max(self.Cluster, 1)*PerCluster))
	if len(base) > most {
		return nil, &holdfast.Error{Op: "join", Engine: Name, Path: e.address, Class: holdfast.ErrBadOption,
			Detail: "numbers have no room behind the name of the space",
			Remedy: fmt.Sprintf("use a name of at most %d bytes", most)}
	}
	self.Run, self.Clusters = cmp.Or(self.Run, rand.Text()), max(self.Clusters, 1)
	for _, config := range e.hosts {
		config.RuntimeParams["synchronous_commit"] = "off" // signs of life need not survive anything
		for _, f := range tune {
			f(config)
		}
	}

	return &Nodes{address: address, o: o, self: self, base: base, tune: tune, hosts: e.hosts,
		nodes: map[string]sight{}, spaces: map[int]sight{}}, nil
}

// String is the address as it may be shown: without a password.
func (n *Nodes) String() string { return WithoutPassword(n.address) }

// note notes what is seen of something, in the answer to what was asked at a time. It returns since when it is known to
// be so, and for how long it surely was.
func note[K comparable](seen map[K]sight, key K, state string, asked time.Time) (since time.Time, still time.Duration) {
	s, ok := seen[key]
	if !ok || s.state != state {
		s = sight{state, time.Now()}
		seen[key] = s
	}

	return s.since, max(asked.Sub(s.since), 0)
}

// Look gives a sign of life if it is time for one, and returns what there is. ErrLocked: another process that lives has
// the same address. ErrBadOption: the database is not the one that it was taken for.
func (n *Nodes) Look(ctx context.Context) (seen Seen, err error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	defer func() {
		if err != nil && n.conn != nil && n.conn.IsClosed() {
			n.conn = nil
		}
	}()
	if n.conn == nil {
		if n.conn, err = primary(ctx, n.hosts); err != nil {
			return Seen{}, err
		}
	}

	if n.made {
		if seen, err = n.look(ctx); err != nil || n.left || time.Since(n.beat) < nodeBeat {
			return seen, n.fail(err)
		}
	} else if err := n.make(ctx); err != nil {
		return Seen{}, n.fail(err)
	}
	began := time.Now()
	tag, err := n.conn.Exec(ctx, live, n.base, n.self.Address, n.self.Run)
	if err == nil && tag.RowsAffected() == 0 {
		err = n.enter(ctx)
	}
	if err != nil {
		return Seen{}, n.fail(err)
	}
	n.beat = began
	seen, err = n.look(ctx)

	return seen, n.fail(err)
}

// Mark notes, to be kept as a commit is, that a cluster is one of a server: in that cluster, or in the server's first
// one. ErrBadOption: it is another server's already, or has data of one that has no other cluster.
func (n *Nodes) Mark(ctx context.Context, cluster int, server string) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	if n.conn == nil {
		return unavailable(errNotConnected)
	}
	err := pgx.BeginFunc(ctx, n.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT set_config('synchronous_commit', 'on', true), "+
			"pg_advisory_xact_lock(hashtext('holdfast'))"); err != nil {
			return err
		}
		var before []string
		rows, err := tx.Query(ctx, "SELECT holder FROM holdfast_space WHERE starts_with(name, $1 || '"+marks+"')", n.base)
		if err == nil {
			before, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		var spaces bool
		if err == nil {
			err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM holdfast_space WHERE name = $1)", n.base).Scan(&spaces)
		}
		switch {
		case err != nil:
			return err
		case n.self.Cluster == 0 && cluster == 0 && len(before) > 0:
			return nil // another process was faster
		case slices.ContainsFunc(before, func(of string) bool { return of != server }):
			return n.wrong("it is a cluster of another server")
		case n.self.Cluster > 0 && spaces:
			return n.wrong("it has the first space of a server")
		case n.self.Cluster > 0 && len(before) > 0:
			return nil // another process was faster
		}
		_, err = tx.Exec(ctx, addMark+" ON CONFLICT (name) DO NOTHING", n.base, strconv.Itoa(cluster), format, server)

		return err
	})

	return n.fail(err)
}

var errNotConnected = errors.New("there is no connection")

// wrong is the error of a database that is not the cluster that it was taken for.
func (n *Nodes) wrong(detail string) error {
	return &holdfast.Error{Op: "join", Engine: Name, Path: n.String(), Class: holdfast.ErrBadOption,
		Detail: fmt.Sprintf("it cannot be cluster %d: %s", n.self.Cluster, detail),
		Remedy: "give all processes the same clusters in the same order, new ones behind the others; a database in which " +
			"something is already needs another name for the space there: ?space=NAME"}
}

func (n *Nodes) fail(err error) error {
	return (&engine{address: n.String()}).fail("look", err)
}

// make makes the tables, if they are not there.
func (n *Nodes) make(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, n.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('holdfast'))"); err != nil {
			return err
		}
		var there bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass('holdfast_node') IS NOT NULL AND "+
			"to_regclass('holdfast_space') IS NOT NULL").Scan(&there); err != nil || there {
			return err
		}
		_, err := tx.Exec(ctx, schema+";"+nodeSchema)

		return err
	})
	n.made = err == nil

	return err
}

// enter makes the process's row. One that an earlier process has left is replaced when that is dead.
func (n *Nodes) enter(ctx context.Context) error {
	for {
		as := fmt.Sprintf("%s/%d of %d", here(), n.self.Cluster, n.self.Clusters)
		tag, err := n.conn.Exec(ctx, join, n.base, n.self.Address, n.self.Run, as, n.self.Version, n.self.Protocol)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		var run, process, state string
		asked := time.Now()
		err = n.conn.QueryRow(ctx, "SELECT run, process, run || '/' || beat FROM holdfast_node "+
			"WHERE space = $1 AND address = $2", n.base, n.self.Address).Scan(&run, &process, &state)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		if run == n.self.Run { // the database was given twice, which the one who looks sees
			return nil
		}
		_, still := note(n.nodes, n.self.Address, state, asked)
		if still < takeOver && !dead(held("///" + process)[4]) {
			return &holdfast.Error{Op: "join", Engine: Name, Path: n.String(), Class: holdfast.ErrLocked,
				Detail: fmt.Sprintf("a process on %s has the address %s, too", held("///" + process)[3], n.self.Address),
				Remedy: "give each process an address of its own; one that has ended is forgotten after some seconds"}
		}
		if _, err := n.conn.Exec(ctx, quit, n.base, n.self.Address, run); err != nil {
			return err
		}
	}
}

// look reads what there is.
func (n *Nodes) look(ctx context.Context) (seen Seen, err error) {
	asked := time.Now()
	var old [][2]string
	strays := false
	seen.Marks = map[int]string{}
	batch := &pgx.Batch{}
	batch.Queue(lookNodes, n.base).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var one Node
			var process, state string
			if err := rows.Scan(&one.Address, &one.Run, &process, &one.Version, &one.Protocol, &state); err != nil {
				return err
			}
			_, still := note(n.nodes, one.Address, state, asked)
			parts := held("///" + process)
			one.Alive = still < takeOver && !dead(parts[4])
			if _, err := fmt.Sscanf(parts[5], "%d of %d", &one.Cluster, &one.Clusters); err != nil {
				one.Cluster, one.Clusters = 0, 1 // it is of a version that knows of one
			}
			if seen.Nodes = append(seen.Nodes, one); still > forgotten {
				old = append(old, [2]string{one.Address, one.Run})
			}
		}

		return rows.Err()
	})
	batch.Queue(lookSpaces, n.base).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var one Space
			var name, holder, state string
			var local, there bool
			if err := rows.Scan(&name, &holder, &one.Epoch, &one.Seq, &state, &local, &there); err != nil {
				return err
			}
			if text, ok := strings.CutPrefix(name, n.base+marks); ok {
				if number, err := strconv.Atoi(text); err == nil {
					seen.Marks[number] = holder
				}
				continue
			}
			if name != n.base {
				number, err := strconv.Atoi(strings.TrimPrefix(name, n.base+"."))
				if err != nil || number <= 0 {
					continue // it is of others
				}
				one.Number = number
			}
			if one.Number/PerCluster != n.self.Cluster {
				strays = strays || one.Number == 0
				continue
			}
			since, still := note(n.spaces, one.Number, state, asked)
			if still > nodeBeat*3/2 {
				one.Still = still
			}
			one.claim = claim{seen: state, since: since}
			parts := held(holder)
			one.Host = parts[3]
			one.Owner, _ = url.PathUnescape(parts[5])
			one.Free = holder == "" || still >= takeOver || local && !there && dead(parts[4])
			seen.Spaces = append(seen.Spaces, one)
		}

		return rows.Err()
	})
	if err := n.conn.SendBatch(ctx, batch).Close(); err != nil {
		return Seen{}, err
	}

	// It is another cluster of a server, or all of one.
	_, first := seen.Marks[0]
	_, itself := seen.Marks[n.self.Cluster]
	switch {
	case n.self.Cluster > 0 && first:
		return Seen{}, n.wrong("it is the first one of a server")
	case len(seen.Marks) > 0 && !itself:
		return Seen{}, n.wrong(fmt.Sprintf("it is cluster %d of a server", slices.Min(slices.Collect(maps.Keys(seen.Marks)))))
	case strays:
		return Seen{}, n.wrong("it has the first space of a server")
	}
	for _, one := range old {
		if _, err := n.conn.Exec(ctx, quit, n.base, one[0], one[1]); err != nil {
			return Seen{}, err
		}
	}

	return seen, nil
}

// Open opens a space as Look has seen it, or one that is new and has only a number. A space that Look has seen to stand
// still for long enough is taken at once. It may be called from many goroutines at once.
func (n *Nodes) Open(s Space) (holdfast.Engine, error) {
	suffix := ""
	if s.Number > 0 {
		suffix = "." + strconv.Itoa(s.Number)
	}
	s.claim.node = n.self.Address
	e, err := open(n.address, suffix, s.claim, n.o, n.tune...)
	if err != nil {
		return nil, err
	}

	return e, nil
}

// Leave makes the process unknown to the others. Look goes on without a sign of life.
func (n *Nodes) Leave(ctx context.Context) error {
	n.left = true
	if n.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	_, err := n.conn.Exec(ctx, quit, n.base, n.self.Address, n.self.Run)

	return n.fail(err)
}

// Close ends the connection. Spaces that are open stay so.
func (n *Nodes) Close() error {
	if n.conn == nil {
		return nil
	}

	return n.conn.Close(context.Background())
}
