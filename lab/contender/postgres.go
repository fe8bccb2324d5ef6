package contender

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/datadir"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/store/message"
)

// Postgres is the name of PostgreSQL with the tables of message-db.
const Postgres = "postgres"

// DescribePostgres says what Postgres gives.
func DescribePostgres() holdfast.Capabilities {
	c := holdfast.Capabilities{
		Engine: Postgres, Library: "PostgreSQL, " + version("github.com/jackc/pgx/v5"),
		AtomicBatches: true, Checksums: false,
		MaxKeySize: holdfast.MaxKeySize, MaxValueSize: holdfast.MaxValueSize, MaxBatchSize: holdfast.MaxBatchSize,
	}
	h, err := pgserver.Find()
	if err != nil {
		c.Memory = holdfast.Promise{Why: err.Error()}
		c.Process, c.Power = c.Memory, c.Memory

		return c
	}
	c.Library = h.Version + ", " + version("github.com/jackc/pgx/v5")
	c.Memory = holdfast.Promise{Given: holdfast.Memory,
		How: "synchronous_commit off: the WAL is in the server's memory, and written and synced within 0.6 s"}
	c.Process = holdfast.Promise{Given: holdfast.Process, CutMayCorrupt: true,
		How: "fsync off, synchronous_commit on: the WAL is written before a commit returns"}
	c.Power = holdfast.Promise{Given: holdfast.Power,
		How: "fsync on, synchronous_commit on: the WAL is written and synced (fdatasync) before a commit returns"}
	c.LossWindow = 3 * 200 * time.Millisecond // at Memory: three times wal_writer_delay
	c.Caveats = []string{
		"It holds messages only, as message-db has them: a table with an index by id, by stream and by category.",
		"It is a server, on a socket that only its user can reach; a client's end is not its end. Here it ends with the " +
			"process that opened it.",
		"Writes of all clients are merged into transactions by one goroutine, with two round trips each. Global positions " +
			"are in commit order because of a lock that each transaction takes, as in message-db; a transaction that fails " +
			"leaves a gap in them.",
		"synchronous_commit off is Memory, not Process: if any process of the server is killed, the others end too, and " +
			"what was acknowledged in the last 0.6 s is gone. A killed client loses nothing.",
		"Process is fsync off, which Postgres warns of: a power cut can then cost the whole database. There is no other " +
			"setting that writes before it acknowledges and does not sync.",
		"Ids are UUIDs. Data and metadata are of the type json: kept as they are, byte for byte.",
		"Checksums of pages are off, as initdb leaves them.",
	}

	return c
}

// postgresSchema makes the table and what its indexes and queries need.
//
//go:embed postgres.sql
var postgresSchema string

// postgresSettings are the server's. A machine for tests has no room for more; the sizes are those that guides name
// for a small server, with fewer checkpoints.
func postgresSettings(o holdfast.Options) []holdfast.Setting {
	buffers := int64(256 << 20)
	if o.MemoryBytes > 0 {
		buffers = o.MemoryBytes
	}
	on := func(b bool) string {
		if b {
			return "on"
		}

		return "off"
	}

	log, senders := "minimal", "0" // no replicas
	if o.Level == holdfast.Quorum {
		log, senders = "replica", "4"
	}

	return []holdfast.Setting{
		{Name: "fsync", Value: on(o.Level != holdfast.Process)},
		{Name: "synchronous_commit", Value: on(o.Level != holdfast.Memory)},
		{Name: "full_page_writes", Value: "on"},
		{Name: "shared_buffers", Value: strconv.FormatInt(buffers>>10, 10) + "kB"},
		{Name: "max_wal_size", Value: "4GB"},
		{Name: "checkpoint_timeout", Value: "15min"},
		{Name: "wal_level", Value: log},
		{Name: "max_wal_senders", Value: senders},
		{Name: "max_connections", Value: strconv.Itoa(postgresConnections + 60)},
		{Name: "random_page_cost", Value: "1.1"}, // no spinning disk
		{Name: "max_parallel_workers_per_gather", Value: "0"},
		{Name: "jit", Value: "off"},
	}
}

const (
	postgresConnections = 16      // of readers
	postgresGroup       = 512     // messages of one transaction
	postgresGroupBytes  = 4 << 20 // of their data, but for the last one
	postgresPage        = 1000    // messages that a follower reads at once
)

// postgresMessages is the store of messages in a Postgres.
type postgresMessages struct {
	levelPeer
	server *postgresNodes
	pool   *pgxpool.Pool // of readers
	writer *pgx.Conn     // used by the goroutine write alone
	writes chan *postgresWrite
	idle   chan struct{} // closed when the goroutine write has ended
	merged atomic.Int64
}

// postgresWrite is one Write that waits.
type postgresWrite struct {
	stream, typ, data string
	id, metadata      *string
	expected          *int64

	position int64
	err      error
	settled  chan struct{} // closed when position and err are set
}

// OpenPostgres makes or opens the files of a Postgres in dir, starts its server, and connects to it.
func OpenPostgres(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openPostgres(DescribePostgres, dir, o)
}

// openPostgres opens what describe describes.
func openPostgres(describe func() holdfast.Capabilities, dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, o, err := begin(describe(), dir, o, true)
	if err != nil {
		return nil, err
	}
	p := &postgresMessages{writes: make(chan *postgresWrite, postgresGroup), idle: make(chan struct{})}
	p.init(onlyMessages, h, o.Level, func() holdfast.Capabilities {
		c := describe()
		if o.Level == holdfast.Process { // it does not sync at all
			c.LossWindow = 0
		}

		return c
	})
	p.shut, p.groups, p.settings = p.stop, &p.merged, postgresSettings(o)
	if err := p.start(); err != nil {
		if p.pool != nil {
			p.pool.Close()
		}
		if p.server != nil {
			p.server.Kill()
		}

		return nil, errors.Join(&holdfast.Error{Op: "open", Engine: p.name, Path: dir, Cause: err}, h.Close())
	}
	go p.write()

	return p, nil
}

// PostgresTemplate is for tests, which open many servers. If it names a directory, the files of a new server are made
// there once, and copied for each. It is set before the first Open.
var PostgresTemplate string

// start starts the server and connects to it.
func (p *postgresMessages) start() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), pgserver.Patience)
	defer cancel()
	var config *pgxpool.Config
	if p.server, p.writer, config, err = startPostgresIn(ctx, p.handle, p.level, p.settings); err != nil {
		return err
	}
	config.MaxConns = postgresConnections
	if p.handle.New {
		if _, err := p.writer.Exec(ctx, postgresSchema); err != nil {
			return err
		}
		if err := postgresMade(ctx, p.handle, p.writer); err != nil {
			return err
		}
	}
	p.pool, err = pgxpool.NewWithConfig(ctx, config)

	return err
}

// postgresData is the directory of the server's files.
const postgresData = "data"

// startPostgresIn starts a server on the files in h, which it makes if h is new, at Quorum with two standbys, and
// returns the first connection, and what is needed for others.
func startPostgresIn(ctx context.Context, h *datadir.Handle, level holdfast.Level, settings []holdfast.Setting) (
	server *postgresNodes, conn *pgx.Conn, config *pgxpool.Config, err error) {
	if config, err = pgxpool.ParseConfig("host=/ user=postgres dbname=postgres sslmode=disable"); err != nil {
		return nil, nil, nil, err
	}
	// Other settings of the environment, which ParseConfig takes too, are not this server's.
	config.ConnConfig.Password, config.ConnConfig.RuntimeParams, config.ConnConfig.Fallbacks = "", nil, nil
	files := pgserver.Config{New: h.New, Template: PostgresTemplate}
	for _, s := range settings {
		files.Settings = append(files.Settings, s.Name+"="+s.Value)
	}
	if level == holdfast.Quorum {
		files.Synchronous = synchronousStandbys
	}
	for ; ; files.New = false {
		server = new(postgresNodes)
		if server.Server, err = pgserver.Open(filepath.Join(h.Dir, postgresData), files); err != nil {
			return nil, nil, nil, err
		}
		config.ConnConfig.DialFunc = server.Dial // pgx may still call that of a server that has failed
		err = server.Await(ctx, func() (err error) {
			conn, err = pgx.ConnectConfig(ctx, config.ConnConfig)
			return err
		})
		if err == nil && level == holdfast.Quorum {
			files.New = h.New
			err = server.follow(ctx, h, files)
		}
		if err == nil {
			return server, conn, config, nil
		}
		server.Kill()
		// Processes of a server that was killed a moment ago are still about to end.
		still := strings.Contains(err.Error(), "shared memory block") ||
			strings.Contains(err.Error(), `"postmaster.pid" already exists`)
		if !still || ctx.Err() != nil {
			return nil, nil, nil, err
		}
	}
}

// postgresMade notes that the tables of a new server are complete. Those that are made while the commits are not
// synchronous must not be lost to the first kill.
func postgresMade(ctx context.Context, h *datadir.Handle, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}

	return h.Made()
}

// stop ends what uses the server, and then the server.
func (p *postgresMessages) stop() error {
	p.beginClose()
	<-p.idle
	p.calls.Wait()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = p.writer.Close(ctx)
	p.pool.Close()

	return errors.Join(p.server.Stop(), p.handle.Close())
}

// Write implements [Messages].
func (p *postgresMessages) Write(ctx context.Context, stream, id, typ string, data, metadata []byte, expected *int64) (
	int64, error) {
	if err := checkMessage(p.name, stream, typ, data, metadata); err != nil {
		return 0, err
	}
	w := &postgresWrite{stream: stream, typ: typ, data: string(data), settled: make(chan struct{})}
	if expected != nil {
		version := *expected
		w.expected = &version
	}
	if id != "" {
		if raw, err := hex.DecodeString(strings.ReplaceAll(id, "-", "")); err != nil || len(raw) != 16 || len(id) != 36 {
			return 0, &holdfast.Error{Op: "write", Engine: p.name, Class: message.ErrBadMessage,
				Detail: fmt.Sprintf("the id %q is no UUID", id)}
		}
		id = strings.ToLower(id)
		w.id = &id
	}
	if metadata != nil {
		text := string(metadata)
		w.metadata = &text
	}

	select {
	case p.writes <- w:
	case <-p.closing.Done():
		return 0, p.isClosed("write")
	case <-ctx.Done():
		return 0, ctx.Err()
	}

	select {
	case <-w.settled:
		return w.position, w.err
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-p.idle:
	}

	select {
	case <-w.settled:
		return w.position, w.err
	default:
		return 0, p.isClosed("write")
	}
}

// write merges the writes that wait into transactions, one after the other.
func (p *postgresMessages) write() {
	defer close(p.idle)

	var group []*postgresWrite
	for {
		group = group[:0]
		select {
		case w := <-p.writes:
			group = append(group, w)
		case <-p.closing.Done():
			return
		}
		size := len(group[0].data)

	more:
		for len(group) < postgresGroup && size < postgresGroupBytes {
			select {
			case w := <-p.writes:
				group = append(group, w)
				size += len(w.data)
			default:
				break more
			}
		}
		p.settle(group)

		for _, w := range group {
			if w.err == nil {
				p.counts.commits.Add(1)
			}
			close(w.settled)
		}
	}
}

// settle commits the writes and sets their results.
func (p *postgresMessages) settle(group []*postgresWrite) {
	err := p.commit(group)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return
	case p.writer.IsClosed():
		err = &holdfast.Error{Op: "write", Engine: p.name, Path: p.dir, Class: holdfast.ErrPoisoned, Cause: err,
			Remedy: "close it and open it again"}
	case errors.As(err, &refused) && len(group) > 1:
		// The server has rolled all of it back, for what may be wrong with one of them.
		for _, w := range group {
			w.err = nil
			p.settle([]*postgresWrite{w})
		}

		return
	default:
		err = p.fail("write", err)
	}

	for _, w := range group {
		w.err = err
	}
}

// The statements of a transaction. Each is prepared when it is used first.
const (
	// lockMessages makes positions be given in commit order, whoever else writes.
	lockMessages = `SELECT pg_advisory_xact_lock(1)`
	findVersions = `SELECT s.name, m.position FROM unnest($1::text[]) AS s (name), LATERAL (
		SELECT position FROM messages WHERE stream_name = s.name ORDER BY position DESC LIMIT 1) AS m`
	findIDs = `SELECT id::text, stream_name, position FROM messages WHERE id = ANY ($1::text[]::uuid[])`
	insert  = `INSERT INTO messages (id, stream_name, type, position, data, metadata)
		SELECT coalesce(m.id, gen_random_uuid()), m.stream_name, m.type, m.position, m.data, m.metadata
		FROM unnest($1::text[]::uuid[], $2::text[], $3::text[], $4::bigint[], $5::text[]::json[], $6::text[]::json[])
		WITH ORDINALITY AS m (id, stream_name, type, position, data, metadata, n) ORDER BY m.n`
	wakeFollowers = `SELECT pg_notify('messages', '')`
)

// commit does the writes of a group in one transaction: it looks up the streams and ids, decides here, and inserts.
func (p *postgresMessages) commit(group []*postgresWrite) (err error) {
	// A server that hangs must not keep everybody for ever.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	defer func() {
		if err != nil && !p.writer.IsClosed() {
			if _, failed := p.writer.Exec(ctx, "ROLLBACK"); failed != nil {
				_ = p.writer.Close(ctx)
			}
		}
	}()

	// First everything that the group must know is asked for in one round trip: the lock, the versions of its streams, and
	// which ids are there.
	versions := make(map[string]int64, len(group))
	var streams, ids []string
	for _, w := range group {
		if _, ok := versions[w.stream]; !ok {
			versions[w.stream] = message.NoStream
			streams = append(streams, w.stream)
		}
		if w.id != nil {
			ids = append(ids, *w.id)
		}
	}
	type place struct {
		stream   string
		position int64
	}
	known := make(map[string]place, len(ids))
	var look pgx.Batch
	look.Queue("BEGIN")
	look.Queue(lockMessages)
	look.Queue(findVersions, streams).Query(func(rows pgx.Rows) error {
		var stream string
		var position int64
		_, err := pgx.ForEachRow(rows, []any{&stream, &position}, func() error {
			versions[stream] = position
			return nil
		})

		return err
	})
	if len(ids) > 0 {
		look.Queue(findIDs, ids).Query(func(rows pgx.Rows) error {
			var id string
			var at place
			_, err := pgx.ForEachRow(rows, []any{&id, &at.stream, &at.position}, func() error {
				known[id] = at
				return nil
			})

			return err
		})
	}
	if err := p.writer.SendBatch(ctx, &look).Close(); err != nil {
		return err
	}

	// Then each write is decided in the order in which it came, as if those before it were there already. One that is
	// refused has its own error, and the others go on.
	var add struct {
		ids, metadata        []*string
		streams, types, data []string
		positions            []int64
	}
	for _, w := range group {
		if w.id != nil {
			if at, ok := known[*w.id]; ok {
				if w.position = at.position; at.stream != w.stream {
					w.err = &holdfast.Error{Op: "write", Engine: p.name, Class: message.ErrIDTaken,
						Detail: fmt.Sprintf("message %s is in stream %q", *w.id, at.stream)}
				}
				continue
			}
		}
		version := versions[w.stream]
		if w.expected != nil && *w.expected != version {
			w.err = &holdfast.Error{Op: "write", Engine: p.name, Class: message.ErrConflict,
				Cause: &message.Conflict{Stream: w.stream, Expected: *w.expected, Actual: version}}
			continue
		}
		w.position = version + 1
		versions[w.stream] = w.position
		if w.id != nil {
			known[*w.id] = place{w.stream, w.position}
		}
		add.ids, add.metadata = append(add.ids, w.id), append(add.metadata, w.metadata)
		add.streams, add.types = append(add.streams, w.stream), append(add.types, w.typ)
		add.data, add.positions = append(add.data, w.data), append(add.positions, w.position)
	}
	var finish pgx.Batch
	if len(add.ids) > 0 {
		finish.Queue(insert, add.ids, add.streams, add.types, add.positions, add.data, add.metadata)
		finish.Queue(wakeFollowers)
	}
	// What is found, another writer may have committed a moment ago: it is on the disk as well.
	finish.Queue("COMMIT")
	if err := p.writer.SendBatch(ctx, &finish).Close(); err != nil {
		return err
	}
	if len(add.ids) > 0 {
		p.merged.Add(1)
	}

	return nil
}

// The statements of readers. A limit of NULL is none.
const (
	readStream = `SELECT position, data::text FROM messages WHERE stream_name = $1 AND position >= $2
		ORDER BY position LIMIT $3`
	selectGlobal = `SELECT global_position, stream_name, data::text FROM messages WHERE global_position >= $1`
	inCategory   = ` AND category(stream_name) = $3`
	inOrder      = ` ORDER BY global_position LIMIT $2`
	// The planner does not know how many streams are a member's, takes them for few, and would sort the whole category
	// rather than read it in order up to the limit. OFFSET 0 keeps it from that.
	selectGroup = `SELECT global_position, stream_name, data::text FROM (SELECT * FROM messages
		WHERE global_position >= $1`
	inGroup = ` ORDER BY global_position OFFSET 0) AS m WHERE group_hash % $4 = $5 LIMIT $2`
)

func limited(limit int) *int {
	if limit <= 0 {
		return nil
	}

	return &limit
}

// ReadStream implements [Messages].
func (p *postgresMessages) ReadStream(ctx context.Context, stream string, from int64, limit int,
	yield func(position int64, data []byte) error) error {
	ctx, end, err := p.use(ctx, "read")
	if err != nil {
		return err
	}
	defer end()
	rows, err := p.pool.Query(ctx, readStream, stream, from, limited(limit))
	if err != nil {
		return p.fail("read", err)
	}
	defer rows.Close()

	for rows.Next() {
		raw := rows.RawValues()
		position, err := binaryInt64(raw[0])
		if err != nil {
			return p.fail("read", err)
		}
		if err := yield(position, raw[1]); err != nil {
			return err
		}
	}

	return p.fail("read", rows.Err())
}

// ReadCategory implements [Messages].
func (p *postgresMessages) ReadCategory(ctx context.Context, category string, from int64, limit int, member, size int,
	yield func(global int64, stream string, data []byte) error) error {
	ctx, end, err := p.use(ctx, "read")
	if err != nil {
		return err
	}
	defer end()

	return p.readCategory(ctx, p.pool, category, from, limit, member, size, yield)
}

// querier is a connection, or a pool of them.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (p *postgresMessages) readCategory(ctx context.Context, on querier, category string, from int64, limit int,
	member, size int, yield func(global int64, stream string, data []byte) error) error {
	query, end, args := selectGlobal, inOrder, []any{from, limited(limit)}
	if size > 0 {
		query, end = selectGroup, inGroup
	}
	if category != "" {
		query, args = query+inCategory, append(args, category)
	} else {
		end = strings.NewReplacer("$4", "$3", "$5", "$4").Replace(end)
	}
	if size > 0 {
		args = append(args, size, member)
	}
	rows, err := on.Query(ctx, query+end, args...)
	if err != nil {
		return p.fail("read", err)
	}
	defer rows.Close()

	for rows.Next() {
		raw := rows.RawValues()
		global, err := binaryInt64(raw[0])
		if err != nil {
			return p.fail("read", err)
		}
		if err := yield(global, string(raw[1]), raw[2]); err != nil {
			return err
		}
	}

	return p.fail("read", rows.Err())
}

// binaryInt64 reads a bigint as the server sends it.
func binaryInt64(raw []byte) (int64, error) {
	if len(raw) != 8 {
		return 0, fmt.Errorf("a bigint of %d bytes", len(raw))
	}

	return int64(binary.BigEndian.Uint64(raw)), nil
}

// errStopped ends a read whose reader has enough.
var errStopped = errors.New("stopped")

// Follow implements [Messages]. The server notifies the follower of each transaction.
func (p *postgresMessages) Follow(ctx context.Context, category string, from int64,
	yield func(global int64, data []byte) bool) error {
	ctx, end, err := p.use(ctx, "follow")
	if err != nil {
		return err
	}
	defer end()
	conn, err := pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
	if err != nil {
		return p.fail("follow", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN messages"); err != nil {
		return p.fail("follow", err)
	}

	for {
		n := 0
		err := p.readCategory(ctx, conn, category, from, postgresPage, 0, 0, func(global int64, _ string, data []byte) error {
			from = global + 1
			n++
			if !yield(global, data) {
				return errStopped
			}

			return nil
		})
		switch {
		case errors.Is(err, errStopped):
			return nil
		case err != nil:
			return err
		case n == postgresPage:
			continue
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return p.fail("follow", err)
		}
	}
}
