package message

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// A namespace is moved from one store to another by copying its keys, which begin with its number: Parts tells how they
// begin here, and Reserve how they are to begin there. Adopt makes the copy a namespace.

// parts are what the keys of a namespace begin with, but for its entry in the list.
func (s *Store) parts(number uint64) [][]byte {
	all := [][]byte{keyspace.New(keyspace.Events, format.LogName(s.o.Name, number))}
	for _, table := range format.Tables {
		lo, _ := s.keys.Of(number).Bounds(table)
		all = append(all, lo)
	}
	return all
}

// PartsOf returns what the keys of a namespace begin with whose number Reserve has taken.
func (s *Store) PartsOf(number uint64) [][]byte { return s.parts(number) }

// Parts returns what the keys of a namespace begin with that is not written to, in the order in which PartsOf of
// another store returns it.
func (s *Store) Parts(ctx context.Context, id string) ([][]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.life.Leave()
	d, err := s.describe(id)
	if err != nil {
		return nil, err
	}
	return s.parts(d.Number), nil
}

// Reserve takes a number for a namespace whose keys are going to be copied here. What is not adopted when the store is
// opened the next time is removed then.
func (t ListTx) Reserve() (number uint64, err error) {
	p, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.tx.Leave()
	number = p.take()
	p.batch.Set(p.s.keys.Deleted(number), nil)
	return number, nil
}

// Adopt makes a namespace of what was copied under a number that Reserve has taken. ErrNamespaceExists: there is one of
// that id. ErrNotFound: the store was opened in between, and what was copied is gone.
func (t ListTx) Adopt(id string, number uint64, created time.Time) error {
	p, err := t.enter()
	if err != nil {
		return err
	}
	defer t.tx.Leave()
	switch _, err := p.describe(id); {
	case err == nil:
		return p.s.fail("create namespace", ErrNamespaceExists, nil, "", "%q", id)
	case !errors.Is(err, ErrNoNamespace):
		return err
	}
	if _, err := p.s.eng.Get(nil, p.s.keys.Deleted(number)); err != nil {
		return err
	}
	d := description{Number: number, Created: created}
	p.batch.Delete(p.s.keys.Deleted(number))
	if err := p.s.addDescription(&p.batch, id, d); err != nil {
		return err
	}
	p.changed[id] = &d
	return nil
}

// Discard removes what was copied under a number that Reserve has taken, and that was not adopted.
func (s *Store) Discard(ctx context.Context, number uint64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	if _, err := s.eng.Get(nil, s.keys.Deleted(number)); err != nil {
		if errors.Is(err, holdfast.ErrNotFound) {
			return nil
		}
		return err
	}
	return s.clear(ctx, number)
}
