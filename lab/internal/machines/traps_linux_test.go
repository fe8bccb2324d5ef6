package machines

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/testkit"
	"github.com/holdfastdb/holdfast/lab/blockdev"
)

// waitingCommit is a commit that waits for a standby that cannot be reached.
type waitingCommit struct {
	conn    *pgx.Conn
	notices *[]string
	done    chan error
}

// commitAndWait begins a commit of row n on an isolated primary, and returns when the server waits for its standbys.
func commitAndWait(t *testing.T, m *Machine, n int) *waitingCommit {
	t.Helper()
	conn, notices := connect(t, m)
	w := &waitingCommit{conn: conn, notices: notices, done: make(chan error, 1)}
	go func() {
		_, err := conn.Exec(context.Background(), "INSERT INTO t VALUES ($1)", n)
		w.done <- err
	}()
	testkit.Until(t, "the commit waits", func() bool {
		return get[bool](t, m, `SELECT EXISTS
			(SELECT FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep')`, conn.PgConn().PID())
	})

	return w
}

// TestTraps documents four ways in which PostgreSQL acknowledges, or shows, a commit that no other machine has. In each
// [CountFlushed] on the machine that acknowledged finds it out.
func TestTraps(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{Plain: true})
	ctx := t.Context()
	a, b, c := l.Machine(A), l.Machine(B), l.Machine(C)

	// found checks that the primary shows row n, that no standby has it, and that counting says so.
	found := func(t *testing.T, n int, primary *Machine, conn *pgx.Conn, standbys ...*Machine) {
		t.Helper()
		count, err := query[int](ctx, conn, CountFlushed)
		testkit.Try(t, err)
		if count != 0 {
			t.Errorf("%d standbys counted", count)
		}
		if !has(t, primary, n) {
			t.Error("the row is not visible")
		}
		for _, m := range standbys {
			if has(t, m, n) {
				t.Errorf("%s has the row", m.Name())
			}
		}
	}
	// healed checks that counting also says when the standbys have it.
	healed := func(t *testing.T, n int) {
		t.Helper()
		testkit.Try(t, l.Heal(ctx))
		testkit.Until(t, "a standby is counted", func() bool { return get[int](t, a, CountFlushed) > 0 })
		testkit.Until(t, "both have the row", func() bool { return has(t, b, n) && has(t, c, n) })
	}

	if err := l.PowerOff(ctx, blockdev.Nothing(), A); !errors.Is(err, holdfast.ErrUnavailable) {
		t.Errorf("cut the power of a directory: %v", err)
	}

	t.Run("a commit on the whole", func(t *testing.T) {
		conn, _ := connect(t, a)
		_, err := conn.Exec(ctx, "INSERT INTO t VALUES (0)")
		testkit.Try(t, err)
		if n, err := query[int](ctx, conn, CountFlushed); n < 1 || err != nil {
			t.Errorf("%d standbys have a commit that waited for one, %v", n, err)
		}
	})

	t.Run("a wait that is cancelled", func(t *testing.T) {
		testkit.Try(t, l.Isolate(ctx, A))
		w := commitAndWait(t, a, 1)
		if !get[bool](t, a, "SELECT pg_cancel_backend($1)", w.conn.PgConn().PID()) {
			t.Error("not cancelled")
		}
		if err := <-w.done; err != nil {
			t.Errorf("the commit failed: %v", err)
		}
		if said := strings.Join(*w.notices, "\n"); !strings.HasPrefix(said, "01000 canceling wait for synchronous") {
			t.Errorf("notices: %s", said)
		}
		found(t, 1, a, w.conn, b, c)
		healed(t, 1)
	})

	t.Run("a restart", func(t *testing.T) {
		testkit.Try(t, l.Isolate(ctx, A))
		w := commitAndWait(t, a, 2)
		testkit.Try(t, a.Kill())
		if err := <-w.done; err == nil {
			t.Error("the commit was acknowledged by a server that was killed")
		}
		testkit.Try(t, a.Start(ctx))
		conn, _ := connect(t, a)
		found(t, 2, a, conn, b, c)
		healed(t, 2)
	})

	t.Run("no standbys are named any more", func(t *testing.T) {
		testkit.Try(t, l.Isolate(ctx, A))
		w := commitAndWait(t, a, 3)
		do(t, a, "ALTER SYSTEM SET synchronous_standby_names = ''")
		do(t, a, "SELECT pg_reload_conf()")
		if err := <-w.done; err != nil || len(*w.notices) > 0 {
			t.Errorf("the commit: %v, notices %v", err, *w.notices)
		}
		found(t, 3, a, w.conn, b, c)
		do(t, a, "ALTER SYSTEM SET synchronous_standby_names = '"+standbyNames(A)+"'")
		do(t, a, "SELECT pg_reload_conf()")
		healed(t, 3)
	})

	t.Run("a promoted standby that names none", func(t *testing.T) {
		testkit.Try(t, l.Isolate(ctx, A))
		do(t, b, "ALTER SYSTEM SET synchronous_standby_names = ''")
		do(t, b, "SELECT pg_reload_conf()")
		testkit.Try(t, b.promote(ctx))
		testkit.Try(t, c.follow(ctx, b))
		testkit.Until(t, "c follows", func() bool {
			return get[bool](t, b, `SELECT EXISTS (SELECT FROM pg_stat_replication
				WHERE application_name = 'c' AND state = 'streaming' AND sync_state = 'async')`)
		})
		// The log goes to c, but nobody waits for it: cut off, c cannot have the row.
		testkit.Try(t, l.Partition(ctx, []Name{B}, []Name{C}))
		conn, notices := connect(t, b)
		if _, err := conn.Exec(ctx, "INSERT INTO t VALUES (4)"); err != nil || len(*notices) > 0 {
			t.Errorf("the commit: %v, notices %v", err, *notices)
		}
		found(t, 4, b, conn, c)
		testkit.Try(t, errors.Join(l.Heal(ctx), l.Isolate(ctx, A)))
		testkit.Until(t, "c has the row", func() bool { return has(t, c, 4) })
		if n := get[int](t, b, CountFlushed); n != 0 {
			t.Errorf("%d asynchronous standbys counted", n)
		}
	})

	testkit.Try(t, c.Lose(ctx)) // a directory can be lost
	testkit.Try(t, c.PowerOn(ctx))
	if err := c.Start(ctx); !errors.Is(err, holdfast.ErrBadOption) {
		t.Errorf("started without files: %v", err)
	}
}
