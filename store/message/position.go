package message

import (
	"context"

	"github.com/holdfastdb/holdfast"
)

// SavePosition stores how far a consumer has come: the last position that it has handled, in
// its stream or in the namespace; 0 for none. The last save wins. A position that readers do not see yet is
// [event.ErrAhead].
func (n *Namespace) SavePosition(ctx context.Context, consumer string, position int64) error {
	if position < 0 {
		return n.store.fail("save position", holdfast.ErrBadOption, nil, "", "position %d", position)
	}
	if err := n.enter(ctx); err != nil {
		return err
	}
	defer n.leave()
	return n.ended(n.log().SaveOffset(ctx, consumer, uint64(position)))
}

// LoadPosition returns the position that SavePosition saved last, or ErrNotFound. After a failed write it is as
// [event.Store.LoadOffset] says.
func (n *Namespace) LoadPosition(ctx context.Context, consumer string) (int64, error) {
	if err := n.enter(ctx); err != nil {
		return 0, err
	}
	defer n.leave()
	position, err := n.log().LoadOffset(ctx, consumer)
	return int64(position), n.ended(err)
}

// DeletePosition removes a consumer's position, and returns when that has reached the level of ctx or the store. It is
// no error if there is none.
func (n *Namespace) DeletePosition(ctx context.Context, consumer string) error {
	if err := n.enter(ctx); err != nil {
		return err
	}
	defer n.leave()
	return n.ended(n.log().DeleteOffset(ctx, consumer))
}
