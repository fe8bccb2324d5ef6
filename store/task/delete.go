package task

import (
	"context"
	"errors"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/registry"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/task/internal/format"
)

// Keys are the keys of the task store of that name.
func Keys(name string) holdfast.Range { return holdfast.Prefix(format.New(name).Prefix) }

// Exists reports whether r, an engine or a snapshot of one, has a task store of that name, open or not.
func Exists(r holdfast.Reader, name string) (bool, error) {
	if len(name) > MaxNameSize { // no store can have it
		return false, nil
	}
	_, err := r.Get(nil, format.New(name).Meta())
	if errors.Is(err, holdfast.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Delete removes the task store of that name from an engine, with all its tasks and queues, and returns when the
// removal survives what level names; 0 means Power. It is no error if there is none. If it ends early, by ctx or an
// error, a part of the store can be left: delete it again. ErrLocked: the store is open.
func Delete(ctx context.Context, eng holdfast.Engine, name string, level holdfast.Level) error {
	keys := format.New(name)
	lease, err := registry.Claim(eng, registry.Request{
		Kind: "task", Thing: "task store", Name: name, MaxName: MaxNameSize, Level: level, Prefix: string(keys.Prefix),
		AnyName: true,
	})
	if err != nil {
		return err
	}
	defer lease.Release()
	lo, hi := keys.Bounds()
	return chunks.RemoveStore(ctx, eng, lease.Level, lo, hi, keys.Meta())
}
