package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
)

// quorum is what a space's commits at the level Quorum have to reach. It is fixed when the space is opened: a server
// whose settings are changed later, or another one that is promoted with other settings, has to keep what was promised.
type quorum struct {
	mode string // of the address: modeAuto, modeDeclared or modeOff
	need int    // how many standbys must have flushed a commit; 0 if none is counted
	why  string // the level is not given

	keeping *keeping
}

const (
	modeAuto     = "auto"
	modeDeclared = "declared"
	modeOff      = "off"
)

// given reports whether the level Quorum is given.
func (q *quorum) given() bool { return q.need > 0 || q.mode == modeDeclared }

// counted is a query for a place in the log ($1, or what the server has flushed by now), for how many synchronous
// standbys have flushed it, for how many have flushed an older place ($2), with those in reserve, and for how many
// bytes the one of these that is furthest behind has not flushed. PostgreSQL ends the wait of a commit for its standbys
// in several cases without having had an answer: when the wait is cancelled, when synchronous_standby_names is emptied,
// and when the server restarts. So commits are counted.
const counted = "SELECT at::text, count(*) FILTER (WHERE flush_lsn >= at AND sync_state <> 'potential'), " +
	"count(*) FILTER (WHERE flush_lsn >= $2::pg_lsn), " +
	"greatest(max(at - flush_lsn), 0)::bigint FROM " +
	"(SELECT coalesce($1::pg_lsn, pg_current_wal_flush_lsn()) AS at) AS now LEFT JOIN pg_stat_get_wal_senders() " +
	"ON sync_state IN ('sync', 'quorum', 'potential') GROUP BY at"

// keeping follows how many standbys keep up, which have what the server had flushed one to two seconds ago. One that is
// cut off may stay connected for a minute. It learns that from what is counted for commits.
type keeping struct {
	mu     sync.Mutex
	older  string // the place in the log that standbys should have
	newer  string // the one that comes next
	marked time.Time
	up     atomic.Int64
	behind atomic.Int64 // bytes
}

const (
	logBegin = "0/0"
	keepsUp  = time.Second // as long as a standby may be behind, or up to twice that
)

// reset forgets what another server had: none is known to keep up.
func (k *keeping) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.older, k.newer, k.marked = logBegin, logBegin, time.Time{}
	k.up.Store(0)
	k.behind.Store(0)
}

// due is the place that standbys should have.
func (k *keeping) due() string {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.older
}

// saw notes an answer to counted: the server was at that place, so many kept up, and one was so many bytes behind.
func (k *keeping) saw(at string, up, behind int64) {
	k.up.Store(up)
	k.behind.Store(behind)
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := time.Now(); now.Sub(k.marked) >= keepsUp {
		k.older, k.newer, k.marked = k.newer, at, now
	}
}

// scan reads an answer to counted.
func (q *quorum) scan(row pgx.Row) (at string, have int, err error) {
	var up, behind int64
	if err = row.Scan(&at, &have, &up, &behind); err == nil {
		q.keeping.saw(at, up, behind)
	}

	return at, have, err
}

// read finds out what the server gives.
func (q *quorum) read(ctx context.Context, conn *pgx.Conn) error {
	switch q.mode {
	case modeDeclared:
		return nil
	case modeOff:
		q.why = "quorum=off in the address"
		return nil
	}

	var names string
	var sees bool
	err := conn.QueryRow(ctx, "SELECT current_setting('synchronous_standby_names'), "+
		"pg_has_role('pg_read_all_stats', 'MEMBER')").Scan(&names, &sees)
	if err != nil {
		return err
	}
	n, ok := required(names)
	switch {
	case !ok:
		q.why = fmt.Sprintf("synchronous_standby_names is %.80q, which cannot be read", names)
	case n == 0:
		q.why = "the server has no synchronous standby: synchronous_standby_names is empty"
	case !sees:
		q.why = "the role cannot see what standbys have: it is no member of pg_read_all_stats"
	default:
		q.need = n
	}

	return nil
}

var namesForm = regexp.MustCompile(`(?is)^\s*(?:(?:any|first)\s+)?(\d+)\s*\(.*\)\s*$`)

// required is how many standbys a value of synchronous_standby_names makes a commit wait for.
func required(names string) (n int, ok bool) {
	if strings.TrimSpace(names) == "" {
		return 0, true
	}
	if m := namesForm.FindStringSubmatch(names); m != nil {
		n, err := strconv.Atoi(m[1])
		return n, err == nil && n > 0
	}

	return 1, !strings.ContainsAny(names, "()")
}

// wait returns when enough standbys have flushed the log up to a place, or an error when ctx ends first.
func (q *quorum) wait(ctx context.Context, conn *pgx.Conn, at string, have int) error {
	for have < q.need {
		select {
		case <-ctx.Done():
			return &holdfast.Error{Class: holdfast.ErrUnavailable,
				Detail: fmt.Sprintf("%d of %d synchronous standbys have the commit", have, q.need),
				Remedy: "look at pg_stat_replication and synchronous_standby_names of the server"}
		case <-time.After(2 * time.Millisecond):
		}
		var err error
		if _, have, err = q.scan(conn.QueryRow(ctx, counted, at, q.keeping.due())); err != nil {
			return err
		}
	}

	return nil
}

// settled returns when what conn's server has flushed by now is kept by a quorum, or an error after a few seconds: the
// server may be cut off. Where none is counted it returns at once.
func (q *quorum) settled(ctx context.Context, conn *pgx.Conn) error {
	if q.need == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	at, have, err := q.scan(conn.QueryRow(ctx, counted, nil, q.keeping.due()))
	if err != nil {
		return err
	}

	return q.wait(ctx, conn, at, have)
}

// describe says of the levels what they are here. A power cut of the primary is answered by a failover, so that what
// only the primary has does not survive it: Power is Quorum where there is one.
func (q *quorum) describe(caps *holdfast.Capabilities) {
	if caps.Power.Given == 0 { // a server that may lose what it has committed is worth nothing in a quorum
		q.mode, q.need, q.why = modeOff, 0, caps.Power.Why
	}
	if !q.given() {
		caps.Quorum = holdfast.Promise{Why: q.why}
		return
	}
	how := fmt.Sprintf(
		"synchronous_commit on, and acknowledged when %d synchronous standbys are seen to have flushed it",
		q.need,
	)
	if q.mode == modeDeclared {
		how = "declared by the operator: not counted"
	}
	caps.Process = holdfast.Promise{Given: holdfast.Process, How: "synchronous_commit local: the primary has flushed it"}
	caps.Power = holdfast.Promise{Given: holdfast.Quorum, How: how,
		Why: "a power cut of the primary is answered by a failover, which leaves behind what only the primary has"}
	caps.Quorum = holdfast.Promise{Given: holdfast.Quorum, How: how}
}
