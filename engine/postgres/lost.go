package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
)

// What is known of losses are rows of holdfast_kv, in a space that is no engine's: minus the number of the one that
// they are about. A program that knows nothing of them is not in their way.
const (
	identity = "SELECT system_identifier::text FROM pg_control_system()"
	// takeAway raises the epoch above that of the owner who has found the loss, and of one who has taken the space
	// since: nobody commits before opening it again, which reads what is noted.
	takeAway = "UPDATE holdfast_space SET epoch = greatest(epoch, $2) + 1, holder = '' WHERE space = $1"
	noteLoss = "INSERT INTO holdfast_kv VALUES (-$1::int, $2, $3) " +
		"ON CONFLICT (space, k) DO UPDATE SET v = excluded.v"
	forgetLoss = "DELETE FROM holdfast_kv k USING holdfast_space s " +
		"WHERE s.name = $1 AND k.space = -s.space AND k.k = $2 RETURNING s.space, v"
	losses = "SELECT k, v FROM holdfast_kv WHERE space = -$1::int"
)

var keyLost, keyAccepted = []byte("lost"), []byte("accepted")

// lost is what a failover means that went to a server without all that was acknowledged. The server is told, so that
// nobody who opens the space there takes it for whole: this process may be gone by then, or be asked to serve it again.
func (e *engine) lost(conn *pgx.Conn, format string, args ...any) *holdfast.Error {
	lost := &holdfast.Error{Op: "commit", Engine: Name, Path: e.address, Class: holdfast.ErrCorrupt,
		Detail: fmt.Sprintf(format, args...) + ": it has lost some, or is another one",
		Remedy: "find out which server has them before anything is written"}

	if err := e.note(conn, lost.Detail); err != nil {
		lost.Remedy += "; nothing keeps processes from writing there, because it could not be told: " + err.Error()
	}

	return lost
}

// note tells a server what it lacks. One of another cluster is left alone: what it has is somebody else's.
func (e *engine) note(conn *pgx.Conn, what string) error {
	ctx, cancel := context.WithTimeout(context.Background(), attempt)
	defer cancel()
	var there string
	if err := conn.QueryRow(ctx, identity).Scan(&there); err != nil {
		return err
	}
	if there != e.cluster {
		return fmt.Errorf("it is of cluster %q, and the space of cluster %q", there, e.cluster)
	}

	batch := &pgx.Batch{}
	batch.Queue("BEGIN")
	batch.Queue(waitForRow)
	batch.Queue(takeAway, e.space, e.epoch)
	batch.Queue(noteLoss, e.space, keyLost, []byte(what))
	batch.Queue("COMMIT")

	return conn.SendBatch(ctx, batch).Close()
}

// losses reads what is noted of the space.
func (e *engine) losses(ctx context.Context, conn *pgx.Conn, caps *holdfast.Capabilities) error {
	_ = conn.QueryRow(ctx, identity).Scan(&e.cluster) // "" where it is not told: no loss can be noted there
	rows, err := conn.Query(ctx, losses, e.space)
	if err != nil {
		return err
	}
	var key, value []byte
	_, err = pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		switch string(key) {
		case string(keyLost):
			caps.Lost = string(value)
		case string(keyAccepted):
			caps.Accepted = string(value)
		}

		return nil
	})

	return err
}

// AcceptLoss accepts that a failover has lost what was acknowledged: stores open in the space again. It returns what
// was noted of the loss, empty if nothing was. The address is that of [Open]. Who has the space open notices when it is
// opened again.
func AcceptLoss(address string) (lost string, err error) {
	e := &engine{address: WithoutPassword(address)}
	name, err := e.parse(address)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openFor)
	defer cancel()
	conn, err := primary(ctx, e.hosts)
	if err != nil {
		return "", e.fail("accept", err)
	}
	defer conn.Close(ctx)

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Where there are standbys, they have it then.
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
			return err
		}
		var space int
		var noted []byte
		err := tx.QueryRow(ctx, forgetLoss, name, keyLost).Scan(&space, &noted)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		lost = string(noted)
		_, err = tx.Exec(ctx, noteLoss, space, keyAccepted, []byte(rand.Text()))

		return err
	})
	if err != nil {
		return "", e.fail("accept", err)
	}

	return lost, nil
}
