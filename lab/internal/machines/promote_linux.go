package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
)

// position is how far a standby's log goes.
type position struct {
	timeline int64
	log      int64 // bytes
}

// Failover promotes one of the two machines that are not the primary and makes the other one follow it. It does
// nothing to the primary: that may be dead, cut off or well, and finds that nobody follows it. Both others must have
// power, or nobody knows which has more: the error is ErrUnavailable then, and nothing is promoted.
//
// A manager decides for itself: then this waits until it has.
//
// The promoter is deterministic: both standbys are restarted without anybody to follow, so that their logs do not
// grow; they are compared when each has replayed all that it has; of equal ones the first is taken.
func (l *Lab) Failover(ctx context.Context, rule Rule) (*Machine, error) {
	l.promoting.Lock()
	defer l.promoting.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	if l.manager != "" {
		return l.promoted(ctx)
	}

	first, second := l.machines[others(l.primary)[0]], l.machines[others(l.primary)[1]]
	var has [2]position
	for i, m := range []*Machine{first, second} {
		var err error
		if has[i], err = m.detach(ctx); err != nil {
			return nil, failure("fail over", fmt.Sprintf("what %s has is not known", m.name), err)
		}
	}
	order := cmp.Or(cmp.Compare(has[0].timeline, has[1].timeline), cmp.Compare(has[0].log, has[1].log))
	ahead := order < 0 && rule == Shortest || order > 0 && rule == Longest // which is not the second
	chosen, other := first, second
	if order != 0 && !ahead {
		chosen, other = second, first
	}

	if err := chosen.promote(ctx); err != nil {
		return nil, failure("promote", string(chosen.name), err)
	}
	l.primary = chosen.name
	// One that has more than the new primary cannot follow it.
	follow := other.follow
	if order != 0 && rule == Shortest {
		follow = other.replace
	}
	if err := follow(ctx, chosen); err != nil {
		return nil, failure("follow", string(other.name), err)
	}

	return chosen, l.follows(ctx, chosen, other.name)
}

// Rejoin makes a machine a standby of the primary, with a base backup in place of what it has. What only it had is
// gone.
func (l *Lab) Rejoin(ctx context.Context, name Name) error {
	l.promoting.Lock()
	defer l.promoting.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	primary, m := l.machines[l.primary], l.machines[name]
	if m == nil || m == primary {
		return refused("rejoin", fmt.Sprintf("%q is the primary, or no machine", name), "name another machine")
	}
	join := func() error { return m.replace(ctx, primary) }
	if l.manager != "" {
		join = func() error { return m.Start(ctx) }
	}
	if err := join(); err != nil {
		return failure("rejoin", string(name), err)
	}

	return l.follows(ctx, primary, name)
}

// detach restarts a standby with nobody to follow and returns what it has.
func (m *Machine) detach(ctx context.Context) (position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power != on {
		return position{}, refused("detach", fmt.Sprintf("machine %s has no power", m.name), "call PowerOn first")
	}
	if err := m.restart(ctx, role{standby: true}); err != nil {
		return position{}, err
	}

	var p position
	err := m.with(ctx, func(conn *pgx.Conn) error {
		// It asks for a stream when it has replayed all files, and only then there is a position from which it asked.
		if err := Until(ctx, "replay", func() (bool, error) {
			return query[bool](ctx, conn, "SELECT pg_last_wal_receive_lsn() IS NOT NULL")
		}); err != nil {
			return err
		}
		// A restart point, which writes the timeline down.
		if _, err := conn.Exec(ctx, "CHECKPOINT"); err != nil {
			return err
		}

		return conn.QueryRow(ctx, `SELECT greatest(c.timeline_id, r.min_recovery_end_timeline),
			(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0')::bigint
			FROM pg_control_checkpoint() c, pg_control_recovery() r`).Scan(&p.timeline, &p.log)
	})

	return p, err
}

// restart starts the server in another role; the caller has m.mu.
func (m *Machine) restart(ctx context.Context, r role) error {
	if err := m.stop(ctx); err != nil {
		return err
	}
	if err := m.assume(r); err != nil {
		return err
	}

	return m.start(ctx)
}

// with connects for the length of f.
func (m *Machine) with(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := m.Connect(ctx)
	if err != nil {
		return err
	}

	return errors.Join(f(conn), conn.Close(ctx))
}

// promote makes a standby that is detached the primary. It has its synchronous standbys already. The checkpoint writes
// the new timeline down: pg_rewind would not see it before.
func (m *Machine) promote(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.with(ctx, func(conn *pgx.Conn) error {
		promoted, err := query[bool](ctx, conn, "SELECT pg_promote(true, $1)", int(patience/time.Second))
		if err == nil && !promoted {
			err = fmt.Errorf("it was not promoted within %v", patience)
		}
		if err == nil {
			_, err = conn.Exec(ctx, "CHECKPOINT")
		}

		return err
	})
}

// follow makes a standby follow another primary with the log that it has.
func (m *Machine) follow(ctx context.Context, primary *Machine) error {
	m.mu.Lock()
	defer m.mu.Unlock()

	return m.restart(ctx, role{standby: true, upstream: primary.Address()})
}

// replace makes a machine a standby with a base backup.
func (m *Machine) replace(ctx context.Context, primary *Machine) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.power != on {
		return refused("replace", fmt.Sprintf("machine %s has no power", m.name), "call PowerOn first")
	}
	if err := m.kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(m.data()); err != nil {
		return err
	}
	if err := m.lab.home.mkdir(m.data()); err != nil {
		return err
	}
	err := m.space().run(m.lab.home.command(ctx, "pg_basebackup", "-D", m.data(), "-h", primary.Address(), "-U", superuser,
		"-X", "stream", "-c", "fast", "--no-manifest", "--no-sync"))
	if err != nil {
		return err
	}
	if err := m.assume(role{standby: true, upstream: primary.Address()}); err != nil {
		return err
	}
	if err := m.sync(); err != nil {
		return err
	}

	return m.start(ctx)
}

// follows waits until a standby streams from the primary, as a synchronous one.
func (l *Lab) follows(ctx context.Context, primary *Machine, name Name) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	states := []string{"quorum"}
	if l.manager != "" {
		states = []string{"sync", "async", "potential"} // one of two is enough
	}
	err := primary.with(ctx, func(conn *pgx.Conn) error {
		return Until(ctx, "stream", func() (bool, error) {
			return query[bool](ctx, conn, `SELECT count(*) > 0 FROM pg_stat_replication
				WHERE application_name = $1 AND state = 'streaming' AND sync_state = ANY ($2)`, string(name), states)
		})
	})
	if err != nil {
		return &holdfast.Error{Op: "follow", Class: holdfast.ErrUnavailable, Cause: err,
			Detail: fmt.Sprintf("%s does not follow %s", name, primary.name) + l.said()}
	}

	return nil
}
