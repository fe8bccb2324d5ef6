package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/holdfastdb/holdfast"
)

// partial is behind the name of a space that is being filled. No address can name it.
const partial = "~partial"

const (
	hasKeys = "SELECT EXISTS (SELECT FROM holdfast_kv WHERE space = " +
		"(SELECT space FROM holdfast_space WHERE name = $1))"
	dropEmpty = "DELETE FROM holdfast_space s WHERE name = $1 AND holder = '' " +
		"AND NOT EXISTS (SELECT FROM holdfast_kv k WHERE k.space = s.space)"
	dropOwn = "DELETE FROM holdfast_space WHERE space = $1 AND epoch = $2"
	rename  = "UPDATE holdfast_space SET name = $3 WHERE space = $1 AND epoch = $2"
)

// Fill makes a space with what fill writes to an engine that it is given: all of it, on the server's disk, or nothing.
// The address is that of [Open], and the space must be new or empty, and open nowhere: otherwise ErrBadOption. What
// fill returns of losses is what [holdfast.Capabilities] say of the space then.
func Fill(address string, o holdfast.Options,
	fill func(holdfast.Engine) (lost, accepted string, err error)) (err error) {
	e, err := open(address, partial, claim{}, o)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // nobody sees what is left if this fails, and the next one removes it
			_ = e.clear()
			_, _ = e.server.Load().pool.Exec(context.Background(), dropOwn, e.space, e.epoch)
		}
		if closed := e.Close(); err == nil {
			err = closed
		}
	}()
	name, err := e.parse(address)
	if err != nil {
		return err
	}
	used := &holdfast.Error{Op: "fill", Engine: Name, Path: e.address, Class: holdfast.ErrBadOption,
		Detail: "space " + name + " has keys, or is open", Remedy: "name a space that is new or empty"}
	var has bool
	if err := e.server.Load().pool.QueryRow(context.Background(), hasKeys, name).Scan(&has); err != nil {
		return e.fail("fill", err)
	}
	if has {
		return used
	}
	if err := e.clear(); err != nil { // of what was interrupted
		return err
	}
	lost, accepted, err := fill(e)
	if err != nil {
		return err
	}
	if err := e.Sync(); err != nil && !errors.Is(err, holdfast.ErrLevel) {
		return err
	}
	err = pgx.BeginFunc(context.Background(), e.server.Load().pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), dropEmpty, name); err != nil {
			return err
		}
		for _, known := range []struct {
			key  []byte
			text string
		}{{keyLost, lost}, {keyAccepted, accepted}} {
			if known.text == "" {
				continue
			}
			if _, err := tx.Exec(context.Background(), noteLoss, e.space, known.key, []byte(known.text)); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(context.Background(), rename, e.space, e.epoch, name)
		if err == nil && tag.RowsAffected() == 0 {
			err = e.fenced()
		}

		return err
	})
	switch {
	case sqlState(err) == stateUnique:
		return used
	case err != nil:
		return e.fail("fill", err)
	}

	return e.Settle() // the name survives what the keys do
}

// clear removes every key.
func (e *engine) clear() error {
	var b holdfast.Batch
	b.DeleteRange(nil, nil)

	return holdfast.Commit(e, &b, holdfast.Memory)
}
