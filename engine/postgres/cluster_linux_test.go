package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/pgserver"
	"github.com/holdfastdb/holdfast/internal/testkit"
)

// cluster is a primary, a, with two synchronous standbys, b and c, in directories of a test.
type cluster struct {
	testing.TB
	dir     string
	servers map[string]*pgserver.Server
}

const anyOf = "ANY 1 (a, b, c)"

func newCluster(t testing.TB) *cluster {
	t.Helper()
	if _, err := pgserver.Find(); err != nil {
		t.Skip(err)
	}
	dir, err := os.MkdirTemp("", "hf-pg-") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t, dir, map[string]*pgserver.Server{}}
	t.Cleanup(func() {
		for name := range c.servers {
			c.kill(name)
		}
		os.RemoveAll(dir)
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.start("a", pgserver.Config{New: true, Synchronous: anyOf})
	c.standby("b", "a")
	c.standby("c", "a")
	c.until("two standbys", func() error {
		return c.want("a", "SELECT count(*)::text FROM pg_stat_replication WHERE sync_state = 'quorum'", "2")
	})

	return c
}

func (c *cluster) data(name string) string { return filepath.Join(c.dir, name) }

// start starts a server on what is in its directory.
func (c *cluster) start(name string, config pgserver.Config) {
	c.Helper()
	c.run(name, config, pgserver.Open)
}

// run starts a server by open, and waits until it answers.
func (c *cluster) run(name string, config pgserver.Config,
	open func(data string, config pgserver.Config) (*pgserver.Server, error)) {
	c.Helper()
	config.Settings = []string{"shared_buffers=32MB", "max_connections=50", "wal_receiver_timeout=2s",
		"wal_retrieve_retry_interval=200ms", "checkpoint_timeout=1h"}
	c.until("server "+name, func() error { // sessions of one that was killed may still be ending
		s, err := open(c.data(name), config)
		if err != nil {
			return err
		}
		config.New = false
		c.servers[name] = s
		ctx, cancel := context.WithTimeout(context.Background(), pgserver.Patience)
		defer cancel()

		return s.Await(ctx, func() error { return c.want(name, "SELECT 'yes'", "yes") })
	})
}

// standby makes a copy of a server's files, and starts a standby of it on them.
func (c *cluster) standby(name, of string) {
	c.Helper()
	c.followWith(name, of, pgserver.Config{New: true})
}

// follow starts a server as a standby of another one.
func (c *cluster) follow(name, of string) {
	c.Helper()
	c.followWith(name, of, pgserver.Config{})
}

func (c *cluster) followWith(name, of string, config pgserver.Config) {
	c.Helper()
	c.run(name, config, func(data string, config pgserver.Config) (*pgserver.Server, error) {
		return pgserver.OpenStandby(context.Background(), data, c.data(of), config)
	})
}

// kill ends a server as a crash does.
func (c *cluster) kill(name string) {
	if s := c.servers[name]; s != nil {
		s.Kill()
		delete(c.servers, name)
		os.Remove(filepath.Join(c.data(name), "postmaster.pid"))
	}
}

// sync sets which standbys commits wait for.
func (c *cluster) sync(name, names string) {
	c.Helper()
	c.exec(name, "ALTER SYSTEM SET synchronous_standby_names = '"+names+"'")
	c.exec(name, "SELECT pg_reload_conf()")
}

func (c *cluster) connect(name string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	return pgx.Connect(ctx, "host="+c.data(name)+" user=postgres dbname=postgres")
}

// query returns the only value of a query.
func (c *cluster) query(name, sql string) (out string, err error) {
	conn, err := c.connect(name)
	if err != nil {
		return "", err
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(context.Background(), sql).Scan(&out)

	return out, err
}

func (c *cluster) want(name, sql, want string) error {
	if out, err := c.query(name, sql); err != nil || out != want {
		return fmt.Errorf("%s on %s: %q, %v", sql, name, out, err)
	}

	return nil
}

func (c *cluster) exec(name, sql string) {
	c.Helper()
	conn, err := c.connect(name)
	if err == nil {
		defer conn.Close(context.Background())
		_, err = conn.Exec(context.Background(), sql)
	}
	if err != nil {
		c.Fatalf("%s on %s: %v", sql, name, err)
	}
}

// until waits for something that is sure to come.
func (c *cluster) until(what string, f func() error) {
	c.Helper()
	var err error
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	c.Fatalf("%s: %v", what, err)
}

// address names servers.
func (c *cluster) address(parameters string, names ...string) string {
	var hosts, ports []string
	for _, name := range names {
		hosts, ports = append(hosts, c.data(name)), append(ports, "5432")
	}

	return "postgres://postgres@/postgres?host=" + strings.Join(
		hosts,
		",",
	) + "&port=" + strings.Join(
		ports,
		",",
	) + parameters
}

func (c *cluster) open(address string) holdfast.Engine {
	c.Helper()
	e, err := Open(address, holdfast.Options{Level: holdfast.Quorum})
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = e.Close() })

	return e
}

func (c *cluster) apply(e holdfast.Engine, key, value string, level holdfast.Level) holdfast.Receipt {
	c.Helper()
	var b holdfast.Batch
	b.Set([]byte(key), []byte(value))
	r, err := e.Apply(&b, level)
	if err != nil {
		c.Fatal(err)
	}

	return r
}

// held returns once a commit waits for standbys on a server.
func (c *cluster) held(name string) {
	c.Helper()
	c.until("a commit that waits for standbys", func() error {
		return c.want(name, "SELECT count(*)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'", "1")
	})
}

// wait waits for a receipt elsewhere.
func wait(r holdfast.Receipt) chan error {
	done := make(chan error, 1)
	go func() { done <- r.Wait() }()

	return done
}

// A commit at Quorum is acknowledged when a standby has it, and one that PostgreSQL acknowledges without that is not:
// its engine is poisoned, and whoever opens the space next finds it at a quorum or does not open it.
func TestQuorumIsCounted(t *testing.T) {
	t.Parallel() // it waits
	c := newCluster(t)
	address := c.address("&patience=2s", "a")
	e := c.open(address)
	if got := e.Capabilities().Promise(holdfast.Power).Given; got != holdfast.Quorum {
		t.Errorf("Power is given as %v", got)
	}
	if err := c.apply(e, "k", "1", holdfast.Quorum).Wait(); err != nil {
		t.Fatal(err)
	}
	c.until("the key on a standby", func() error { // it is flushed there, and shown a moment later
		on := "SELECT convert_from(v, 'UTF8') FROM holdfast_kv WHERE k = 'k'"
		return errors.Join(c.want("b", on, "1"), c.want("c", on, "1"))
	})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	for _, trap := range []struct {
		name string
		do   func()
	}{
		{"cancelled", func() {
			c.exec("a", "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		}},
		{"no names", func() { c.sync("a", "") }},
		{"restarted", func() {
			c.kill("a")
			c.start("a", pgserver.Config{})
		}},
	} {
		t.Run(trap.name, func(t *testing.T) {
			c := &cluster{t, c.dir, c.servers}
			e := c.open(address)
			quiet(e.(*engine)) // or a beat may be the commit that waits, and the key behind it
			testkit.Try(t, e.Sync())
			c.kill("b")
			c.kill("c")
			done := wait(c.apply(e, "k", trap.name, holdfast.Quorum))
			c.held("a")
			trap.do()
			c.until("what no standby has, on the primary", func() error {
				return c.want("a", "SELECT convert_from(v, 'UTF8') FROM holdfast_kv WHERE k = 'k'", trap.name)
			})
			if err := <-done; !errors.Is(err, holdfast.ErrPoisoned) {
				t.Errorf("a commit that no standby has: %v", err)
			}
			_ = e.Close()
			c.sync("a", anyOf)
			if e, err := Open(address, holdfast.Options{}); err == nil {
				t.Error("the space could be opened on a server that is alone")
				_ = e.Close()
			}

			c.follow("b", "a")
			c.follow("c", "a")
		})
	}
}

// failOver kills a server, and makes a standby of its primary, with the other one as a standby of it.
func (c *cluster) failOver(from, to, other string) {
	c.Helper()
	c.kill(from)
	c.exec(to, "SELECT pg_promote()")
	if other != "" {
		c.kill(other)
		c.follow(other, to)
	}
}

// While a standby is promoted commits and reads wait. Nothing that was acknowledged is lost, and nothing is an error.
func TestFailover(t *testing.T) {
	t.Parallel() // it waits
	c := newCluster(t)
	var dialed sync.Map // addresses
	e, err := OpenWith(c.address("", "a", "b", "c"), holdfast.Options{Level: holdfast.Quorum},
		func(config *pgx.ConnConfig) {
			dial := config.DialFunc
			config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Store(address, true)
				return dial(ctx, network, address)
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() // again, if the test ends early
	stop, acked := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		defer func() { acked <- n }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			key := fmt.Sprintf("%06d", n)
			if err := c.apply(e, key, key, holdfast.Quorum).Wait(); err != nil {
				t.Errorf("commit %d: %v", n, err)
				return
			}
			if got, err := e.Get(nil, []byte(key)); err != nil || string(got) != key {
				t.Errorf("read %d: %q, %v", n, got, err)
				return
			}
			n++
		}
	}()
	made := func(on string) func() error { // commits on a server, which is a primary
		from, _ := c.query(on, "SELECT seq::text FROM holdfast_space")
		return func() error {
			if now, err := c.query(on, "SELECT seq::text FROM holdfast_space"); err != nil || now == from {
				return fmt.Errorf("still %s: %v", from, err)
			}
			return nil
		}
	}

	c.until("commits on a", made("a"))
	c.failOver("a", "b", "c")
	c.until("commits on b", made("b"))
	c.standby("a", "b")
	c.failOver("b", "c", "a")
	c.until("commits on c", made("c"))
	close(stop)
	n := <-acked
	lost := fmt.Sprintf("SELECT count(*)::text FROM generate_series(0, %d) AS i WHERE NOT EXISTS "+
		"(SELECT FROM holdfast_kv WHERE k = convert_to(to_char(i, 'FM000000'), 'UTF8') AND v = k)", n-1)
	if err := c.want("c", lost, "0"); err != nil {
		t.Errorf("lost, of %d commits that were acknowledged: %v", n, err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if _, ok := dialed.Load(filepath.Join(c.data(name), ".s.PGSQL.5432")); !ok {
			t.Errorf("%s was not reached by the dialer", name)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A standby that is promoted without the setting is one machine alone: commits there are not acknowledged before it has
// a standby.
func TestPromotedWithoutStandbys(t *testing.T) {
	t.Parallel() // it waits
	c := newCluster(t)
	e := c.open(c.address("", "a", "b"))
	c.kill("c")
	c.kill("b")
	c.follow("b", "a") // and so b has what is to come
	if err := c.apply(e, "k", "1", holdfast.Quorum).Wait(); err != nil {
		t.Fatal(err)
	}
	c.kill("a")
	c.exec("b", "ALTER SYSTEM SET synchronous_standby_names = ''")
	c.exec("b", "SELECT pg_promote()")
	done := wait(c.apply(e, "k", "2", holdfast.Quorum))
	c.until("signs of life on b", func() error {
		if beat, err := c.query("b", "SELECT (beat > 1)::text FROM holdfast_space"); err != nil || beat != "true" {
			return fmt.Errorf("%s %w", beat, err)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Fatalf("a commit on one machine: %v", err)
	default:
	}
	c.standby("c", "b")
	c.sync("b", anyOf)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A failover to a standby that lacks what was acknowledged is told as what it is.
func TestPromotedTheWrongOne(t *testing.T) {
	t.Parallel() // it waits
	c := newCluster(t)
	e := c.open(c.address("", "a", "b"))
	c.kill("b") // c alone has what follows
	for range 3 {
		if err := c.apply(e, "k", "1", holdfast.Quorum).Wait(); err != nil {
			t.Fatal(err)
		}
	}
	c.kill("a")
	c.kill("c")
	c.follow("b", "a")
	c.exec("b", "SELECT pg_promote()")
	c.standby("c", "b")
	var b holdfast.Batch
	b.Set([]byte("k"), []byte("2"))
	r, err := e.Apply(&b, holdfast.Quorum)
	if err == nil { // otherwise a sign of life has found it already
		err = r.Wait()
	}
	if !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("after a failover that lost three commits: %v", err)
	}
	c.lossIsNoted(e, "transaction")
}

// A server that has not even heard of the owner is not taken for one where somebody has followed it.
func TestPromotedBeforeTheOwner(t *testing.T) {
	t.Parallel() // it waits
	c := newCluster(t)
	first := c.open(c.address("", "a", "b"))
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.until("b has what the first owner left", func() error {
		at, err := c.query("a", "SELECT pg_current_wal_flush_lsn()::text")
		if err != nil {
			return err
		}

		return c.want("b", "SELECT (pg_last_wal_replay_lsn() >= '"+at+"')::text", "true")
	})
	c.kill("b") // c alone has the next owner
	e := c.open(c.address("", "a", "b"))
	if err := c.apply(e, "k", "1", holdfast.Quorum).Wait(); err != nil {
		t.Fatal(err)
	}

	c.kill("a")
	c.kill("c")
	c.follow("b", "a")
	c.exec("b", "SELECT pg_promote()")
	c.standby("c", "b")
	<-e.Done() // a sign of life finds it
	if err := e.Err(); !errors.Is(err, holdfast.ErrPoisoned) || !errors.Is(err, holdfast.ErrCorrupt) {
		t.Errorf("after a failover to a server that does not know the owner: %v", err)
	}
	c.lossIsNoted(e, "owner")
}

// lossIsNoted sees that whoever opens the space next is told what an engine has found, until that is accepted.
func (c *cluster) lossIsNoted(found holdfast.Engine, says string) {
	c.Helper()
	if err := found.Close(); err != nil && !errors.Is(err, holdfast.ErrPoisoned) {
		c.Fatal(err)
	}
	address := c.address("", "a", "b")
	next := c.open(address)
	if lost := next.Capabilities().Lost; !strings.Contains(lost, says) {
		c.Fatalf("whoever opens it next is told of %q", lost)
	}
	if err := c.apply(next, "k", "3", holdfast.Quorum).Wait(); err != nil { // an engine does what it is told
		c.Fatal(err)
	}
	_ = next.Close()

	for _, want := range []bool{true, false} {
		if lost, err := AcceptLoss(address); strings.Contains(lost, says) != want || err != nil {
			c.Fatalf("accepted: %q, %v", lost, err)
		}
	}
	if caps := c.open(address).Capabilities(); caps.Lost != "" || caps.Accepted == "" {
		c.Fatalf("a loss that was accepted: %+v", caps)
	}
}

// An owner that another process has followed can commit nothing, and reads nothing any more, though it does not know.
func TestFenced(t *testing.T) {
	t.Parallel() // it waits
	c := newCluster(t)
	address := c.address("&patience=3s", "a")
	old := c.open(address)
	if err := c.apply(old, "k", "1", holdfast.Quorum).Wait(); err != nil {
		t.Fatal(err)
	}
	old.(*engine).window.Stop()
	before, err := old.Snapshot() // its state is one that others may share
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	old.(*engine).stopBeats()
	c.until("the space, from an owner that gives no sign of life", func() error {
		e, err := Open(address, holdfast.Options{Level: holdfast.Quorum})
		if err == nil {
			c.Cleanup(func() { _ = e.Close() })
			err = c.apply(e, "k", "2", holdfast.Quorum).Wait()
		}
		return err
	})
	if s, err := old.Snapshot(); err == nil {
		v, _ := s.Get(nil, []byte("k"))
		t.Errorf("the old owner has a new snapshot, and reads %q", v)
		_ = s.Close()
	}
	if v, err := old.Get(nil, []byte("k")); err == nil {
		t.Errorf("the old owner reads %q", v)
	}
	if err := c.apply(old, "k", "3", holdfast.Memory).Wait(); !errors.Is(err, holdfast.ErrPoisoned) ||
		!errors.Is(err, holdfast.ErrFenced) {
		t.Errorf("the old owner writes: %v", err)
	}
	if v, err := old.Get(nil, []byte("k")); !errors.Is(err, holdfast.ErrFenced) {
		t.Errorf("the old owner reads %q: %v", v, err)
	}
}

// What counting costs: the same commits, with and without it.
func BenchmarkCounting(b *testing.B) {
	c := newCluster(b)
	for _, writers := range []int{1, 64} {
		for _, mode := range []string{modeAuto, modeDeclared} {
			b.Run(fmt.Sprintf("%d-%s", writers, mode), func(b *testing.B) {
				e, err := Open(c.address("&quorum="+mode+"&space="+mode, "a"), holdfast.Options{Level: holdfast.Quorum})
				if err != nil {
					b.Fatal(err)
				}
				defer e.Close()
				var next atomic.Int64
				var group sync.WaitGroup
				b.ResetTimer()
				for range writers {
					group.Go(func() {
						for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
							if err := c.apply(e, fmt.Sprint(n), "a value", holdfast.Quorum).Wait(); err != nil {
								b.Error(err)
							}
						}
					})
				}
				group.Wait()
			})
		}
	}
}

// Metrics tell which standbys keep up, as commits come and without any: those that have ended, and those that are
// connected and do not answer.
func TestStandbysAreWatched(t *testing.T) {
	t.Parallel() // it waits
	c := newCluster(t)
	c.kill("c")
	e := c.open(c.address("&patience=1m", "a", "b"))
	told := func(standbys int64) {
		t.Helper()
		c.until(fmt.Sprint(standbys, " standbys"), func() error {
			m := e.Metrics()
			if m.Standbys != standbys || m.StandbysNeeded != 1 || (m.Trouble != nil) != (standbys < 1) {
				return fmt.Errorf("%d of %d, %w", m.Standbys, m.StandbysNeeded, m.Trouble)
			}
			return nil
		})
	}
	owner := func(want int64) {
		t.Helper()
		c.until(fmt.Sprint("owner ", want), func() error {
			if got := e.Metrics().Owner; got != want {
				return fmt.Errorf("it is %d", got)
			}
			return nil
		})
	}

	told(1)
	owner(1)
	c.follow("c", "a")
	told(2) // a sign of life has counted it
	c.kill("c")
	if err := c.apply(e, "k", "1", holdfast.Quorum).Wait(); err != nil {
		t.Fatal(err)
	}
	told(1)

	// A standby that is paused stays connected, and so does what waits for it.
	pids, err := c.query("a", "SELECT pid::text FROM pg_stat_get_wal_senders() WHERE state = 'streaming'")
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := c.query("b", "SELECT pid::text FROM pg_stat_get_wal_receiver()")
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(receiver, &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	done := wait(c.apply(e, "k", "2", holdfast.Quorum))
	told(0)
	owner(0)
	lags := func(want bool) {
		t.Helper()
		c.until(fmt.Sprint("a standby is behind: ", want), func() error {
			if got := e.Metrics().StandbyLag; (got > 0) != want {
				return fmt.Errorf("by %d bytes", got)
			}
			return nil
		})
	}
	lags(true)
	if now, err := c.query("a", "SELECT pid::text FROM pg_stat_get_wal_senders()"); err != nil || now != pids {
		t.Errorf("the standby is not connected any more: sender %s, was %s, %v", now, pids, err)
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	told(1)
	owner(1)
	lags(false)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	owner(0)
}
