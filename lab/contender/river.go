package contender

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/store/task"
)

// The names of River, on PostgreSQL and on SQLite.
const (
	River       = "river"
	RiverSQLite = "river-sqlite"
)

const (
	riverModule      = "github.com/riverqueue/river"
	riverConnections = 32
	riverPage        = 5000 // jobs of one listing
)

// riverCaveats are those of River on any database.
var riverCaveats = []string{
	"River hands jobs to workers, which here hand them on to who claims, and wait until it is done. It fetches jobs at " +
		"most once in a millisecond, which is the shortest time that it takes.",
	"A job that stays is completed when its worker returns: River then writes completions together, some 50 ms later. A " +
		"crash before that has the job worked again. A job that is discarded is completed and deleted in a transaction " +
		"(JobCompleteTx and JobDeleteTx).",
	"Output is replaced by JobUpdate.",
}

// DescribeRiver says what River on Postgres gives.
func DescribeRiver() holdfast.Capabilities {
	c := DescribePostgres()
	c.Engine, c.Library = River, version(riverModule)+" on "+c.Library
	c.Caveats = append(
		[]string{"It holds tasks, in River's own tables, and beside them messages and rows for orders, on a " +
			"server that ends with the process that opened it.",
			"synchronous_commit off is Memory, and fsync off is Process: see postgres."},
		riverCaveats...)

	return c
}

// DescribeRiverSQLite says what River on SQLite gives.
func DescribeRiverSQLite() holdfast.Capabilities {
	c := sqliteCapabilities(RiverSQLite, "sqlite", "modernc.org/sqlite")
	c.Library = version(riverModule+"/riverdriver/riversqlite") + " on " + c.Library
	c.Caveats = append([]string{"It holds tasks only, in River's own tables, through one connection, as River asks for. " +
		"Its driver is in early testing, as its authors say, and completes jobs one row at a time.",
		"It looks for new jobs every 50 ms: SQLite has no notifications."}, riverCaveats...)

	return c
}

// riverQueue is a queue of River's, on a database with transactions of type T.
type riverQueue[D riverdriver.Driver[T], T any] struct {
	levelPeer
	driver D
	client *river.Client[T] // works once Work was called
	handed chan *riverClaim
	shutDB func() error
}

// riverArgs are the arguments of all jobs.
type riverArgs struct {
	Args    string `json:"args"` // a document would not be kept byte for byte
	Discard bool   `json:"discard,omitempty"`
}

// Kind implements [river.JobArgs].
func (riverArgs) Kind() string { return "example" }

// riverClaim is a job whose worker waits for its end.
type riverClaim struct {
	job  *river.Job[riverArgs]
	ctx  context.Context // the worker's
	done chan struct{}   // closed to end the worker
	over atomic.Bool     // the claim has ended
}

// OpenRiver makes or opens the files of a Postgres with River's tables in dir, starts its server, and connects to it.
func OpenRiver(dir string, o holdfast.Options) (holdfast.Engine, error) {
	return openRiver(DescribeRiver, dir, o)
}

// openRiver opens what describe describes.
func openRiver(describe func() holdfast.Capabilities, dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, o, err := begin(describe(), dir, o, true)
	if err != nil {
		return nil, err
	}
	q := &riverOrders{riverQueue: &riverQueue[*riverpgxv5.Driver, pgx.Tx]{}}
	q.init(onlyTasks, h, o.Level, func() holdfast.Capabilities {
		c := describe()
		if o.Level == holdfast.Process { // it does not sync at all
			c.LossWindow = 0
		}

		return c
	})
	q.settings = postgresSettings(o)

	_, err = q.open(func(ctx context.Context) error {
		server, conn, config, err := startPostgresIn(ctx, h, o.Level, q.settings)
		if err != nil {
			return err
		}
		config.MaxConns = riverConnections
		pool, err := pgxpool.NewWithConfig(ctx, config)
		if err != nil {
			server.Kill()
			return err
		}
		q.pool, q.driver, q.server = pool, riverpgxv5.New(pool), server
		q.shutDB = func() error {
			pool.Close()
			return server.Stop()
		}
		if h.New {
			if err := q.migrate(ctx); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, postgresSchema+riverRows); err != nil {
				return err
			}
			if err := postgresMade(ctx, h, conn); err != nil {
				return err
			}
		}

		return conn.Close(ctx)
	})
	if err != nil {
		return nil, err
	}

	return q, nil
}

// OpenRiverSQLite makes or opens a database with River's tables in dir.
func OpenRiverSQLite(dir string, o holdfast.Options) (holdfast.Engine, error) {
	h, o, err := begin(DescribeRiverSQLite(), dir, o, true)
	if err != nil {
		return nil, err
	}
	q := &riverQueue[*riversqlite.Driver, *sql.Tx]{}
	q.init(onlyTasks, h, o.Level, DescribeRiverSQLite)
	q.settings = sqliteSettings(o)

	return q.open(func(ctx context.Context) error {
		pragmas := url.Values{}
		for _, s := range q.settings {
			pragmas.Add("_pragma", s.Name+"("+s.Value+")")
		}
		db, err := sql.Open("sqlite", sqliteURL(q.dir)+"?"+pragmas.Encode())
		if err != nil {
			return err
		}
		db.SetMaxOpenConns(1) // as River asks for
		q.driver, q.shutDB = riversqlite.New(db), db.Close
		if !h.New {
			return nil
		}
		if err := q.migrate(ctx); err != nil {
			return err
		}

		return h.Made()
	})
}

// open finishes an Open: connect sets driver and shutDB.
func (q *riverQueue[D, T]) open(connect func(context.Context) error) (holdfast.Engine, error) {
	ctx, cancel := context.WithTimeout(context.Background(), pgserver.Patience)
	defer cancel()
	q.handed, q.shut = make(chan *riverClaim), q.stop
	err := connect(ctx)
	if err == nil { // for enqueueing only
		q.client, err = river.NewClient(q.driver, &river.Config{Logger: slog.New(slog.DiscardHandler)})
	}
	if err == nil {
		return q, nil
	}
	if q.shutDB != nil {
		err = errors.Join(err, q.shutDB())
	}

	return nil, errors.Join(&holdfast.Error{Op: "open", Engine: q.name, Path: q.dir, Cause: err}, q.handle.Close())
}

// migrate makes River's tables.
func (q *riverQueue[D, T]) migrate(ctx context.Context) error {
	m, err := rivermigrate.New(q.driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}

	return err
}

func (q *riverQueue[D, T]) stop() error {
	q.beginClose()
	q.calls.Wait()

	ctx, cancel := context.WithTimeout(context.Background(), pgserver.Patience)
	defer cancel()
	// Jobs that are not completed are given back.
	return errors.Join(q.client.StopAndCancel(ctx), q.shutDB(), q.handle.Close())
}

// Enqueue implements [Tasks].
func (q *riverQueue[D, T]) Enqueue(ctx context.Context, specs ...TaskSpec) (ids []string, err error) {
	ctx, end, err := q.use(ctx, "enqueue")
	if err != nil {
		return nil, err
	}
	defer end()
	var results []*rivertype.JobInsertResult
	if len(specs) == 1 {
		var result *rivertype.JobInsertResult
		result, err = q.client.Insert(ctx, specs[0].river(), nil)
		results = append(results, result)
	} else {
		var params []river.InsertManyParams
		for _, s := range specs {
			params = append(params, river.InsertManyParams{Args: s.river()})
		}
		results, err = q.client.InsertMany(ctx, params)
	}
	if err != nil {
		return nil, q.fail("enqueue", err)
	}

	for _, r := range results {
		ids = append(ids, strconv.FormatInt(r.Job.ID, 10))
	}
	_ = q.counts.commit(nil)

	return ids, nil
}

func (s TaskSpec) river() riverArgs { return riverArgs{Args: string(s.Args), Discard: s.Discard} }

// Work implements [Tasks].
func (q *riverQueue[D, T]) Work(claims int) error {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(q.hand))
	client, err := river.NewClient(q.driver, &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: workers, FetchCooldown: river.FetchCooldownMin, JobTimeout: -1,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: claims}},
	})
	if err == nil {
		err = client.Start(context.Background())
	}
	if err != nil {
		return q.fail("work", err)
	}
	q.client = client

	return nil
}

// hand is River's worker: it hands a job to who claims.
func (q *riverQueue[D, T]) hand(ctx context.Context, job *river.Job[riverArgs]) error {
	c := &riverClaim{job: job, ctx: ctx, done: make(chan struct{})}
	select {
	case q.handed <- c:
	case <-ctx.Done():
		return ctx.Err()
	}

	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	// A job that is completed stays so, even if the client was stopped before this goroutine heard of it.
	for !c.over.CompareAndSwap(false, true) {
		select {
		case <-c.done:
			return nil
		case <-time.After(time.Millisecond): // its completion is under way, or is failing
		}
	}

	return ctx.Err()
}

// Claim implements [Tasks]. The lease is a *riverClaim.
func (q *riverQueue[D, T]) Claim(ctx context.Context) (TaskClaim, error) {
	ctx, end, err := q.use(ctx, "claim")
	if err != nil {
		return TaskClaim{}, err
	}
	defer end()

	select {
	case c := <-q.handed:
		return TaskClaim{ID: strconv.FormatInt(c.job.ID, 10), Args: []byte(c.job.Args.Args), Lease: c}, nil
	case <-ctx.Done():
		return TaskClaim{}, q.fail("claim", ctx.Err())
	}
}

// SetOutput implements [Tasks].
func (q *riverQueue[D, T]) SetOutput(ctx context.Context, c TaskClaim, output []byte) error {
	ctx, end, err := q.use(ctx, "set output")
	if err != nil {
		return err
	}
	defer end()
	_, err = q.client.JobUpdate(ctx, c.Lease.(*riverClaim).job.ID, &river.JobUpdateParams{Output: string(output)})

	return q.fail("set output", q.counts.commit(err))
}

// Complete implements [Tasks].
func (q *riverQueue[D, T]) Complete(ctx context.Context, c TaskClaim) error {
	ctx, end, err := q.use(ctx, "complete")
	if err != nil {
		return err
	}
	defer end()
	claim := c.Lease.(*riverClaim)
	if !claim.over.CompareAndSwap(false, true) {
		return lostClaim("complete", q.name)
	}
	if claim.job.Args.Discard {
		if err := q.discard(ctx, claim); err != nil {
			claim.over.Store(false)
			return q.fail("complete", err)
		}
	}
	close(claim.done)

	return q.counts.commit(nil)
}

// discard completes and deletes a job in one transaction.
func (q *riverQueue[D, T]) discard(ctx context.Context, c *riverClaim) error {
	exec, err := q.driver.GetExecutor().Begin(ctx)
	if err != nil {
		return err
	}
	tx := q.driver.UnwrapTx(exec)
	_, err = river.JobCompleteTx[D](c.ctx, tx, c.job)
	if err == nil {
		_, err = q.client.JobDeleteTx(ctx, tx, c.job.ID)
	}
	if err == nil {
		return exec.Commit(ctx)
	}

	return errors.Join(err, exec.Rollback(ctx))
}

// List implements [Tasks].
func (q *riverQueue[D, T]) List(ctx context.Context, yield func(Task) error) error {
	ctx, end, err := q.use(ctx, "list")
	if err != nil {
		return err
	}
	defer end()

	params := river.NewJobListParams().First(riverPage).OrderBy(river.JobListOrderByID, river.SortOrderAsc)
	for {
		page, err := q.client.JobList(ctx, params)
		if err != nil {
			return q.fail("list", err)
		}

		for _, job := range page.Jobs {
			t, err := riverTask(job)
			if err == nil {
				err = yield(t)
			}
			if err != nil {
				return err
			}
		}
		if len(page.Jobs) < riverPage {
			return nil
		}
		params = params.After(page.LastCursor)
	}
}

// riverTask is the task that a job is.
func riverTask(job *rivertype.JobRow) (Task, error) {
	t := Task{ID: strconv.FormatInt(job.ID, 10)}
	var args riverArgs
	if err := json.Unmarshal(job.EncodedArgs, &args); err != nil {
		return t, err
	}
	t.Args = []byte(args.Args)
	if text := job.Output(); text != nil {
		var output string
		if err := json.Unmarshal(text, &output); err != nil {
			return t, err
		}
		t.Output = []byte(output)
	}

	switch job.State {
	case rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateScheduled:
		t.State = task.Waiting
	case rivertype.JobStateRunning:
		t.State = task.Running
	case rivertype.JobStateCompleted:
		t.State = task.Completed
	default:
		return t, fmt.Errorf("job %d is %s", job.ID, job.State)
	}

	return t, nil
}
