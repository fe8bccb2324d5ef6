package message

import (
	"context"

	"github.com/holdfastdb/holdfast"
)

// Changes counts the changes of the list of namespaces and of their descriptions since the store was opened, from 1. As
// long as it is the same, [Store.Info] tells the same.
func (s *Store) Changes() uint64 { return s.changes.Load() + 1 }

// SetToken replaces the token of a namespace: once it returns, the old one is invalid. Only the SHA-256 of the new
// one is stored; "" means that it has none. ErrNoNamespace: there is no namespace of that id.
func (s *Store) SetToken(ctx context.Context, id, token string) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.life.Leave()
	s.listing.Lock()
	defer s.listing.Unlock()
	d, err := s.describe(id)
	if err != nil {
		return err
	}
	d.setToken(token)
	var b holdfast.Batch
	if err := s.addDescription(&b, id, d); err != nil {
		return err
	}
	err = holdfast.Commit(s.eng, &b, holdfast.LevelFrom(ctx, s.o.Level))
	s.changes.Add(1)
	return err
}
