package bench

import (
	"errors"

	"github.com/holdfastdb/holdfast"
)

// opener opens a store of type S on an engine, at a level, and returns what closes it.
type opener[S any] func(e holdfast.Engine, level holdfast.Level) (store S, shut func() error, err error)

// table is a store under test, on an engine that is its own.
type table[S any] struct {
	task     Task
	open     opener[S]
	engine   holdfast.Engine
	store    S
	shut     func() error
	volatile bool // nothing is left after close
}

func openTable[S any](t Task, open opener[S]) (*table[S], error) {
	engine, err := t.Open()
	if err != nil {
		return nil, err
	}
	table := &table[S]{task: t, open: open, engine: engine,
		volatile: engine.Capabilities().Strongest() == holdfast.Memory}

	return table, table.openStore(t.Level)
}

// openStore opens the store on the open engine, which it closes on an error.
func (b *table[S]) openStore(level holdfast.Level) (err error) {
	if b.store, b.shut, err = b.open(b.engine, level); err != nil {
		return errors.Join(err, b.engine.Close())
	}

	return nil
}

// openTableLoaded is openTable with what fill puts there: at the weakest level, then synced, and the engine closed and
// opened again, so that no store reads from its write buffers what another reads from its files.
func openTableLoaded[S any](t Task, open opener[S], fill func(S) error) (*table[S], error) {
	engine, err := t.Open()
	if err != nil {
		return nil, err
	}
	table := &table[S]{task: t, open: open, engine: engine,
		volatile: engine.Capabilities().Strongest() == holdfast.Memory}
	if err := table.fill(fill); err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	if !table.volatile {
		if err := errors.Join(t.compact(engine), engine.Close()); err != nil {
			return nil, err
		}
		if err := t.cool(); err != nil {
			return nil, err
		}

		return openTable(t, open)
	}

	return table, table.openStore(t.Level)
}

func (b *table[S]) fill(fill func(S) error) (err error) {
	store, shut, err := b.open(b.engine, weakest(b.engine, b.task.Level))
	if err != nil {
		return err
	}
	if err := errors.Join(fill(store), shut()); err != nil {
		return err
	}
	if err := b.engine.Sync(); err != nil && !errors.Is(err, holdfast.ErrLevel) {
		return err
	}

	return nil
}

func (b *table[S]) close() error { return errors.Join(b.shut(), b.engine.Close()) }

// load is a load of these clients on the table. verify is given the store, opened again unless nothing is left of it,
// and returns what [Load.Verify] does.
func (b *table[S]) load(client func(i int) func() error, verify func(S) (items, checked int64, err error)) Load {
	return Load{
		Client:   client,
		Metrics:  b.engine.Metrics,
		Close:    b.close,
		Volatile: b.volatile,
		Verify: func() (items, checked int64, err error) {
			if b.volatile {
				items, checked, err = verify(b.store)
				return items, checked, wrong(err)
			}
			again, err := openTable(b.task, b.open)
			if err != nil {
				return 0, 0, wrong(err)
			}
			items, checked, err = verify(again.store)

			return items, checked, errors.Join(wrong(err), again.close())
		},
	}
}
