// Package postgres is the engine "postgres": keys in a table of a PostgreSQL server, which many machines can reach and
// others can take over.
//
//	engine, err := postgres.Open("postgres://app@10.0.0.5/app?space=orders", holdfast.Options{})
//
// A space is what a directory is for other engines: the keys of one engine, which one process has open at a time. All
// spaces of a database share two tables, which the first Open makes:
//
//	holdfast_space(space, name, format, epoch, seq, holder, beat)    a row for each
//	holdfast_kv(space, k, v)                                         its keys
//
// # Who may write
//
// Open takes the space: it raises the row's epoch. Every transaction updates the row where it has that epoch, so that a
// process which lost the space, without knowing it yet, can never commit again: that is ErrFenced. seq counts the
// transactions. When a connection breaks while a commit is under way, it tells whether that was made: the server may
// have restarted meanwhile, and the commit is made again, or known to be there.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
	"github.com/holdfastdb/holdfast/driver/groupcommit"
	"github.com/holdfastdb/holdfast/driver/losswindow"
	"github.com/holdfastdb/holdfast/engine/internal/modversion"
)

// Name is the engine's name in engine/all.
const Name = "postgres"

const (
	format = 1

	// oldest is the oldest version of the server.
	oldest = 13

	// maxGroupSize bounds what one transaction merges.
	maxGroupSize = 8 << 20
	// maxKeySize is what a row of the table's index can hold, less the space.
	maxKeySize = 2600
	// maxBatchSize bounds what client and server have in memory of one transaction.
	maxBatchSize = 256 << 20
	// defaultPatience is how long commits and reads wait for a server that does not answer, as while another one takes
	// over: most managers need up to half a minute for that.
	defaultPatience = time.Minute
	// openFor is how long Open tries, and Close.
	openFor = 10*time.Second + takeOver
	// connections are for readers, of which maxStates are for snapshots and iterators.
	connections = 64
	maxStates   = 48
)

// engine is what Open opens.
type engine struct {
	driver.Engine[*view]
	address  string // without a password
	hosts    []*pgx.ConnConfig
	patience time.Duration
	level    holdfast.Level // the strongest that commits will ask for
	quorum   quorum
	server   atomic.Pointer[server]

	writing   pace // of the connection that writes
	lease     lease
	here      string // what others are told of this process
	cluster   string // identifies the one that has the space
	claim     claim  // what the process has seen of the space before
	stopBeats context.CancelFunc
	committer *groupcommit.Committer
	window    *losswindow.Window
	space     int32
	epoch     int64
	w         writer
	cache     *cache
	hold      func() // set by tests: called before a commit that is flushed; nil otherwise

	// Transactions that were begun, and of those the ones that have ended well. While they are the same, what was read
	// since begun last changed is still what there is.
	begun, ended atomic.Int64
	syncs        atomic.Int64

	gets    gatherer
	states  chan struct{} // one for each state that is read
	sharing sync.Mutex
	newest  *state // that snapshots may share; nil if there is none
}

var spaceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

const maxSpaceName = 63

// Open takes a space of a database, and makes it first if it is not there. The address is one of PostgreSQL, with the
// parameter space, which is "default" if it is missing; a password is in the environment or a file, as for other
// clients of PostgreSQL, or in the address. What is not in the address is taken from the environment, too.
//
// Errors: ErrBadOption for an address that cannot be read; ErrUnavailable if no server answers within 10 s, it is too
// old, or behind a pooler, or does not let the role do what it must; ErrLocked if a process has the space that may
// still be alive; ErrVersion if a newer program has written it; ErrForeign if the tables are not the engine's. A server
// that may lose what it has committed (fsync or full_page_writes is off) is opened, and refuses Power.
func Open(address string, o holdfast.Options) (holdfast.Engine, error) { return OpenWith(address, o) }

// OpenWith is [Open] with the way to each host of the address changed by tune, as by a dialer of one's own. The
// hosts and the settings of sessions are not for tune to change: the engine relies on them.
func OpenWith(address string, o holdfast.Options, tune ...func(*pgx.ConnConfig)) (holdfast.Engine, error) {
	e, err := open(address, "", claim{}, o, tune...)
	if err != nil {
		return nil, err // a nil *engine would be no nil Engine
	}

	return e, nil
}

// claim is what a process that waits for a space knows of it.
type claim struct {
	node  string    // where the process itself is reached, for others; "" if it is not
	seen  string    // the state of the space that was seen last, "" if none was
	since time.Time // since when
}

// open opens the space that the address names, with the suffix behind its name.
func open(address, suffix string, c claim, o holdfast.Options, tune ...func(*pgx.ConnConfig)) (_ *engine, err error) {
	if o, err = o.WithDefaults(); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		return nil, driver.NoReadOnly(Name, WithoutPassword(address))
	}
	e := &engine{address: WithoutPassword(address), level: o.Level, states: make(chan struct{}, maxStates),
		gets: gatherer{turns: make(chan struct{}, flights)}, here: here(), claim: c, lease: lease{began: time.Now()},
		cache: newCache(cmp.Or(o.MemoryBytes, defaultMemory))}
	if c.node != "" {
		e.here += "/" + url.PathEscape(c.node)
	}
	name, err := e.parse(address)
	if err != nil {
		return nil, err
	}

	for _, config := range e.hosts {
		for _, f := range tune {
			f(config)
		}
	}

	ctx, cancel := context.WithTimeout(context.Background(), openFor)
	defer cancel()
	caps := Describe()
	var began time.Time
	e.w.conn, err = e.connect(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		caps = Describe()
		began = time.Now()
		return e.take(ctx, conn, name+suffix, &caps)
	})
	if err != nil {
		return nil, e.fail("open", err)
	}
	e.w.kept = e.w.seq
	e.lease.extend(began)

	// From here on commits and readers may come.
	e.committer = groupcommit.New(Name, maxGroupSize, e.commit)
	e.committer.OnPoison(e.Life.Poison)
	e.window = losswindow.New(o.SyncEvery, e.Settle)
	caps.LossWindow = e.window.Every()
	caps.Settings = append(caps.Settings, holdfast.Setting{Name: "cache_bytes", Value: fmt.Sprint(e.cache.limit)})
	e.Init(e, caps, e.address)
	beating, stop := context.WithCancel(context.Background())
	e.stopBeats = stop
	go e.beats(beating)

	return e, nil
}

// parse reads the address, and returns the name of the space.
func (e *engine) parse(address string) (name string, err error) {
	bad := func(detail, remedy string) (string, error) {
		return "", &holdfast.Error{Op: "open", Engine: Name, Path: e.address, Class: holdfast.ErrBadOption, Detail: detail,
			Remedy: remedy}
	}
	if !strings.HasPrefix(address, "postgres://") && !strings.HasPrefix(address, "postgresql://") {
		return bad("it does not begin with postgres://", "write it as postgres://USER@HOST/DATABASE?space=NAME")
	}
	if e.address == "" {
		return bad("it is no address, or has an @ outside its user and password",
			"in a password write %40, %3A, %2F, %3F and %23 for @ : / ? and #")
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return bad("it is no address of PostgreSQL", "write it as postgres://USER@HOST/DATABASE?space=NAME")
	}
	own := func(name, otherwise string) string {
		given, ok := config.RuntimeParams[name]
		if !ok {
			return otherwise
		}
		delete(config.RuntimeParams, name)

		return given
	}

	name = own("space", "default")
	e.quorum.mode = own("quorum", modeAuto)
	if !slices.Contains([]string{modeAuto, modeDeclared, modeOff}, e.quorum.mode) {
		return bad(fmt.Sprintf("quorum=%.40q", e.quorum.mode), "it is auto, declared or off")
	}
	if e.patience, err = time.ParseDuration(own("patience", defaultPatience.String())); err != nil || e.patience <= 0 {
		return bad("its patience is no time", "write it as in patience=30s")
	}
	if !spaceName.MatchString(name) {
		return bad(fmt.Sprintf("%.80q cannot be the name of a space", name),
			"a name has up to 63 letters, digits, underscores, dots and hyphens")
	}
	// A session of ours depends on none of the defaults that an administrator may have changed.
	for name, value := range map[string]string{
		"application_name": "holdfast", "synchronous_commit": "local", "statement_timeout": "0", "lock_timeout": "0",
		"idle_in_transaction_session_timeout": "0", "default_transaction_isolation": "read committed",
		"client_min_messages": "warning", "enable_seqscan": "off", "jit": "off",
		// The session of a machine that has vanished is the space's lock, and ends after 6 s.
		"tcp_keepalives_idle": "3", "tcp_keepalives_interval": "1", "tcp_keepalives_count": "3",
	} {
		config.RuntimeParams[name] = value
	}
	config.ValidateConnect = nil // connect finds the primary
	config.DialFunc = (&net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 3 * time.Second, Interval: time.Second, Count: 3}}).DialContext
	e.hosts = hosts(config)

	return name, nil
}

// WithoutPassword is an address as it may be shown. It is empty if it is not known what of it is a password.
func WithoutPassword(address string) string {
	u, err := url.Parse(address)
	if err != nil || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") {
		return ""
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	u.RawQuery = strings.Join(slices.DeleteFunc(strings.Split(u.RawQuery, "&"), func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)

		return err != nil || strings.HasSuffix(strings.ToLower(name), "password") // sslpassword, too
	}), "&")

	return u.String()
}

const schema = `CREATE TABLE IF NOT EXISTS holdfast_space (
	space serial PRIMARY KEY, name text NOT NULL UNIQUE, format int NOT NULL, epoch bigint NOT NULL, seq bigint NOT NULL,
	holder text NOT NULL, beat bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS holdfast_kv (space int, k bytea, v bytea NOT NULL, PRIMARY KEY (space, k))
	WITH (autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE holdfast_kv ALTER v SET STORAGE EXTERNAL`

// shape is what the tables look like, in the order of their columns; it is empty where there are none.
const shape = "SELECT coalesce(string_agg(" +
	"attrelid::regclass || '.' || attname || ' ' || format_type(atttypid, NULL), ', ' " +
	"ORDER BY attrelid::regclass::text, attnum), '') FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped " +
	"AND attrelid IN (to_regclass('holdfast_space'), to_regclass('holdfast_kv'))"

const shaped = "holdfast_kv.space integer, holdfast_kv.k bytea, holdfast_kv.v bytea, holdfast_space.space integer, " +
	"holdfast_space.name text, holdfast_space.format integer, holdfast_space.epoch bigint, holdfast_space.seq bigint, " +
	"holdfast_space.holder text, holdfast_space.beat bigint"

// take makes the space this process's. It sets what the server's settings say of levels in caps.
func (e *engine) take(ctx context.Context, conn *pgx.Conn, name string, caps *holdfast.Capabilities) error {
	if err := e.checkServer(ctx, conn, caps); err != nil {
		return err
	}
	e.quorum = quorum{mode: e.quorum.mode, keeping: &keeping{}}
	e.quorum.keeping.reset()
	if err := e.quorum.read(ctx, conn); err != nil {
		return err
	}
	e.quorum.describe(caps)
	if err := driver.CheckLevel(*caps, e.address, e.level); err != nil {
		return err
	}

	// Two who open the first space at once would both make the tables.
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('holdfast'))"); err != nil {
			return err
		}
		// Making them takes locks for which open snapshots of other spaces are in the way.
		var found string
		if err := tx.QueryRow(ctx, shape).Scan(&found); err != nil {
			return err
		}
		switch found {
		case "":
			if _, err := tx.Exec(ctx, schema); err != nil {
				return err
			}
		case shaped:
		default:
			return &holdfast.Error{Class: holdfast.ErrForeign, Remedy: "use another database, or another search_path",
				Detail: "the tables holdfast_space and holdfast_kv are not those of this engine: " + found}
		}
		_, err := tx.Exec(ctx, "INSERT INTO holdfast_space (name, format, epoch, seq, holder, beat) "+
			"VALUES ($1, $2, 0, 0, '', 0) ON CONFLICT (name) DO NOTHING", name, format)
		return err
	})
	if err != nil {
		return err
	}

	// On a server that is cut off nothing is taken: when it is not any more, its owner would find the space taken.
	if err := e.quorum.settled(ctx, conn); err != nil {
		return err
	}

	// A holder is gone if it was a process of this machine that has ended, and with it its session. Of another one it is
	// not known whether it lives: its space must stand still for a while, by this process's clock.
	for seen, since := e.claim.seen, e.claim.since; ; time.Sleep(20 * time.Millisecond) {
		var now, holder string
		var version int
		var local, there bool
		asked := time.Now()
		err := conn.QueryRow(ctx, look, name).
			Scan(&e.space, &version, &e.epoch, &e.w.seq, &holder, &now, &local, &there)
		switch {
		case err != nil:
			return err
		case version > format:
			return &holdfast.Error{Op: "open", Engine: Name, Path: e.address, Class: holdfast.ErrVersion,
				Detail: fmt.Sprintf("space %s has format %d, this program knows %d", name, version, format)}
		}

		switch {
		case holder == "" || local && !there && dead(held(holder)[4]):
		case now != seen:
			if seen != "" { // it lives
				return e.locked(name, holder)
			}
			seen, since = now, time.Now()
			continue
		case asked.Sub(since) < takeOver:
			continue
		}
		taken, err := e.takeFrom(ctx, conn, now)
		if err != nil {
			return err
		}
		if taken {
			e.epoch++
			e.w.seq++

			if err := e.losses(ctx, conn, caps); err != nil {
				return err
			}

			// What an isolated server shows may be gone when it is isolated no more: it is not read before a quorum has it.
			return e.quorum.settled(ctx, conn)
		}
		if end, _ := ctx.Deadline(); time.Until(end) < 2*rowPatience { // others are faster, again and again
			return e.locked(name, holder)
		}
	}
}

// rowPatience is how long the space's row is waited for at a time. Its holder has it while it commits.
const rowPatience = time.Second // as in waitForRow

// takeFrom takes the space if its row is what it was. A large commit of its holder may have the row for long: the space
// stands still meanwhile, and is not free.
func (e *engine) takeFrom(ctx context.Context, conn *pgx.Conn, was string) (taken bool, err error) {
	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(waitForRow)
	batch.Queue("UPDATE holdfast_space SET epoch = epoch + 1, seq = seq + 1, holder = "+session+
		" || $3 WHERE space = $1 AND "+moves+" = $2", e.space, was, e.here).Exec(func(tag pgconn.CommandTag) error {
		taken = tag.RowsAffected() == 1
		return nil
	})
	batch.Queue("COMMIT")
	if err = conn.SendBatch(ctx, batch).Close(); sqlState(err) == stateLocked {
		_, err = conn.Exec(ctx, "ROLLBACK")
		return false, err
	}

	return taken, err
}

const (
	// started is when a session began, in a form that no setting changes.
	started = "(extract(epoch FROM backend_start) * 1000000)::bigint::text"
	// session is the session that asks: no other one is named so. A machine's name follows.
	session = timeline + " || '/' || pg_backend_pid() || '/' || (SELECT " + started +
		" FROM pg_stat_activity WHERE pid = pg_backend_pid()) || '/'"

	// moves is what a sign of life changes.
	moves = "epoch || '/' || seq || '/' || beat"

	// look reads a space, whether its holder's session is of this server, and whether it is there. A role may not see
	// when sessions of other roles began, and then the number is believed.
	look = "SELECT space, format, epoch, seq, holder, " + moves + ", " + ofSession + " FROM holdfast_space WHERE name = $1"
	// ofSession says whether a space's holder has its session on this server, and whether that is there.
	ofSession = "split_part(holder, '/', 1) = " + timeline + ", EXISTS (SELECT FROM pg_stat_activity " +
		"WHERE pid::text = split_part(holder, '/', 2) AND coalesce(" + started + ", split_part(holder, '/', 3)) = " +
		"split_part(holder, '/', 3))"
)

// held takes a holder apart: the history of its server, its session there and when that began, its machine, its
// process, and where that is reached.
func held(holder string) []string {
	return append(strings.Split(holder, "/"), make([]string, 6)...)[:6]
}

func (e *engine) locked(name, holder string) error {
	return &holdfast.Error{Op: "open", Engine: Name, Path: e.address, Class: holdfast.ErrLocked,
		Detail: fmt.Sprintf(
			"a process on %s has space %s open: session %s of the server",
			held(holder)[3],
			name,
			held(holder)[1],
		),
		Remedy: "close it there first"}
}

// settings names those that are off.
func settings(names, values []string) string {
	var off []string
	for i, name := range names {
		if values[i] != "on" {
			off = append(off, name)
		}
	}

	return strings.Join(off, " and ")
}

// checkServer refuses a server on which nothing can be promised, and takes from caps what it does not give.
func (e *engine) checkServer(ctx context.Context, conn *pgx.Conn, caps *holdfast.Capabilities) error {
	want := []string{"server_version_num", "fsync", "full_page_writes", "data_checksums", "server_version"}
	var have []string
	rows, err := conn.Query(ctx, "SELECT current_setting(name) FROM unnest($1::text[]) name", want)
	if err == nil {
		have, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return err
	}
	refuse := func(detail, remedy string) error {
		return &holdfast.Error{Class: holdfast.ErrUnavailable, Detail: detail, Remedy: remedy}
	}
	var pid uint32
	if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		return err
	}
	n, _ := strconv.Atoi(have[0])
	switch missing := settings(want[1:3], have[1:3]); {
	case n < oldest*10000:
		return refuse("the server is PostgreSQL "+have[4], fmt.Sprintf("use version %d or newer", oldest))
	case pid != conn.PgConn().PID():
		return refuse("there is a pooler in front of the server: a session there does not end with this process, which "+
			"others have to see", "give the address of the server itself")
	case missing != "":
		caps.Process = holdfast.Promise{Given: holdfast.Process, CutMayCorrupt: true,
			How: "a transaction for each group, synchronous_commit on: the server writes its log before it answers"}
		caps.Power = holdfast.Promise{Why: "the server can lose what it has committed: " + missing + " is off"}
	}
	caps.Checksums = have[3] == "on"
	caps.Library = "PostgreSQL " + strings.Fields(have[4])[0] + ", " + caps.Library
	for i, name := range want[1:4] {
		caps.Settings = append(caps.Settings, holdfast.Setting{Name: name, Value: have[i+1]})
	}

	return nil
}

// unavailable is the error of a server that cannot be reached.
func unavailable(err error) error {
	return &holdfast.Error{Class: holdfast.ErrUnavailable, Cause: err, Remedy: "start the server, or correct the address"}
}

// Describe says what the engine gives.
func Describe() holdfast.Capabilities {
	const flushed = "a transaction for each group, synchronous_commit on: the server flushes its log before it answers"

	return holdfast.Capabilities{
		Engine: Name, Library: modversion.Version("github.com/jackc/pgx/v5"),
		Memory: holdfast.Promise{Given: holdfast.Memory,
			How: "a transaction for each group, synchronous_commit off: the server writes it to its log within 0.6 s"},
		Process: holdfast.Promise{Given: holdfast.Power, How: flushed,
			Why: "the server has no level between its own memory and the disk"},
		Power:         holdfast.Promise{Given: holdfast.Power, How: flushed},
		AtomicBatches: true,
		MaxKeySize:    maxKeySize, MaxValueSize: holdfast.MaxValueSize, MaxBatchSize: maxBatchSize,
		Caveats: []string{
			"It is a server: a Get takes a round trip, unless its key is in the cache, and what its disk promises is for its " +
				"administrator to see to.",
			"At Memory, what was acknowledged in the last 0.6 s is lost when the server is killed.",
			"Every open snapshot and iterator that did not end with its first page has a connection of the server, of which " +
				"there are 64, and keeps it from removing what was replaced meanwhile.",
			"Keys have up to 2,600 bytes, values 64 MiB, batches 256 MiB. The process has up to six times as much in memory " +
				"as the batch that it commits.",
		},
	}
}

// Write implements [driver.Core].
func (e *engine) Write(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	r, err := e.committer.Apply(b, level)
	if err == nil {
		e.window.Dirty() // also at Power: the receipt may never be waited for
	}

	return r, err
}

// Sync implements [holdfast.Engine].
func (e *engine) Sync() error {
	if err := e.Engine.Sync(); err != nil {
		return err
	}

	return e.Caps.CheckLevel(holdfast.Power) // the server may have it off
}

// Settle implements [driver.Core].
func (e *engine) Settle() error { return e.committer.Sync() }

// Measure implements [driver.Core].
func (e *engine) Measure(m *holdfast.Metrics) {
	e.committer.Fill(m)
	m.Syncs, m.MemoryBytes, m.Owner = e.syncs.Load(), e.cache.used(), 0
	if e.lease.holds() && e.Err() == nil {
		m.Owner = 1
	}
	if e.quorum.need == 0 {
		return
	}

	m.Standbys, m.StandbysNeeded = e.quorum.keeping.up.Load(), int64(e.quorum.need)
	m.StandbyLag = e.quorum.keeping.behind.Load()
	if m.Standbys < m.StandbysNeeded {
		m.Trouble = &holdfast.Error{Engine: Name, Path: e.address, Class: holdfast.ErrUnavailable,
			Detail: fmt.Sprintf("%d synchronous standbys keep up, commits wait for %d", m.Standbys, m.StandbysNeeded),
			Remedy: "look at pg_stat_replication of the server"}
	}
}

// Release implements [driver.Core].
func (e *engine) Release(err error) error {
	e.window.Stop()
	e.stopBeats()
	_ = e.committer.Close() // the poison is in err
	server := e.server.Load()
	time.AfterFunc(lingers, server.left)
	server.pool.Close()
	server.left()

	return errors.Join(err, e.leave())
}

// leave gives the space up, if it is still this process's.
func (e *engine) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), openFor)
	defer cancel()
	conn := e.w.conn
	if conn.IsClosed() {
		return nil // the session has ended, which says the same
	}
	_, _ = conn.Exec(ctx, "UPDATE holdfast_space SET holder = '' WHERE space = $1 AND epoch = $2", e.space, e.epoch)

	return conn.Close(ctx)
}

// fail is the error of an operation.
func (e *engine) fail(op string, err error) error {
	var known *holdfast.Error
	switch {
	case err == nil || errors.As(err, &known) && known.Op != "":
		return err
	case known != nil:
		same := *known
		same.Op, same.Engine, same.Path = op, Name, e.address

		return &same
	}
	class, remedy := error(nil), ""
	switch {
	case sqlState(err) == "42501":
		class = holdfast.ErrUnavailable
		remedy = "let the role select, insert, update and delete in holdfast_space and holdfast_kv, and use the sequence " +
			"holdfast_space_space_seq; where they are missing, let it create in the schema, or make them: " +
			strings.Join(strings.Fields(schema), " ")
	case slices.Contains([]string{"53100", "53200"}, sqlState(err)): // disk full, out of memory
		class = holdfast.ErrFull
	case broken(err):
		class = holdfast.ErrUnavailable
	}

	return &holdfast.Error{Op: op, Engine: Name, Path: e.address, Class: class, Cause: err, Remedy: remedy}
}
