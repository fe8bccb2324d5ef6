package kv

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/layers"
	"github.com/holdfastdb/holdfast/internal/receipts"
	"github.com/holdfastdb/holdfast/internal/txn"
)

// Update calls f, when it is its turn, and commits what it has written. It returns when all of that, and what f has
// seen, survives what ctx names or the database's level, whichever is stronger.
//
// An error of f is returned as it is, once what f has seen is durable: so a decision by it is sound. Then, and also if
// f panics, nothing was written. ctx is checked until the transaction has its place, and not after: what has its place
// cannot be taken back, so Update waits for the outcome. Errors of Update itself before that (ErrNested, ErrFull,
// ErrTooLarge, ErrLevel, ErrClosed, ctx's, a write or loop in f whose error f has ignored) mean that nothing was
// written. ErrPoisoned means that the outcome is unknown until the engine is opened again.
func (db *DB) Update(ctx context.Context, f func(tx *Tx) error) error {
	p, err := db.Submit(ctx, f)
	if err != nil {
		return txn.Seen(err, p.wait)
	}
	return p.Wait()
}

// Submit is Update without waiting: it returns when the transaction has its place. So one goroutine can keep many in
// flight. After an error of f, Submit does not wait for what f has seen.
func (db *DB) Submit(ctx context.Context, f func(tx *Tx) error) (Pending, error) {
	return submit(ctx, func(txs []*Tx) error { return f(txs[0]) }, db)
}

// UpdateAll is [DB.Update] over several databases of one engine: f gets a transaction of each, in the same order, and
// they are committed as one. It takes the turns of the databases in an order of its own, so that several UpdateAll do
// not wait for each other for ever.
func UpdateAll(ctx context.Context, databases []*DB, f func(txs []*Tx) error) error {
	p, err := submit(ctx, f, databases...)
	if err != nil {
		return txn.Seen(err, p.wait)
	}
	return p.Wait()
}

// Pending is a transaction that has its place. It may be copied, waited for many times, or dropped: then it becomes
// durable with the next one that is waited for, or when its engine says so ([holdfast.Engine].Apply).
type Pending struct{ wait txn.Wait }

// Wait returns when all that the transaction has written or seen survives what it named. It may be called by many
// goroutines at once. ErrPoisoned: the outcome is unknown until the engine is opened again.
func (p Pending) Wait() error { return p.wait.Wait() }

func submit(ctx context.Context, f func(txs []*Tx) error, databases ...*DB) (Pending, error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return Pending{}, err
	}
	txs, err := begin(ctx, databases)
	if err != nil {
		return Pending{}, err
	}
	// What the function has left behind is out before the transaction is written.
	called := func() error {
		defer func() {
			for _, tx := range txs {
				tx.end()
			}
		}()
		return f(txs)
	}
	wait, err := txs[0].shared.Run(func() error {
		err := called()
		for _, tx := range txs {
			err = cmp.Or(err, tx.err)
			err = cmp.Or(err, ctx.Err())
			if misused := tx.misused.Load(); misused != nil {
				err = cmp.Or(err, *misused)
			}
		}
		return err
	})
	return Pending{wait}, err
}

// begin takes the turns of databases, and returns a transaction with a part of each.
func begin(ctx context.Context, databases []*DB) ([]*Tx, error) {
	if len(databases) == 0 || slices.Contains(databases, nil) {
		return nil, &holdfast.Error{Op: "kv update", Class: holdfast.ErrBadOption, Detail: "no database is given"}
	}
	first := databases[0]
	u := new(updating)
	shared := &u.shared
	shared.Begin(first.engine, &first.caps)
	for _, db := range databases {
		if db.err != nil {
			return nil, db.err
		}
		if db.engine != first.engine {
			return nil, db.fail("update", holdfast.ErrBadOption, nil, "put them into one engine",
				"the databases are in different engines: no commit can span them")
		}
		shared.Raise(max(db.level, holdfast.LevelFrom(ctx, db.level)))
	}
	if err := first.caps.CheckLevel(shared.Level()); err != nil {
		return nil, err
	}

	// Every UpdateAll takes turns in the order of the databases' numbers. If two took them in the order of their
	// arguments, each could hold the turn that the other waits for.
	inOrder := databases
	if len(databases) > 1 {
		inOrder = slices.SortedFunc(slices.Values(databases), func(a, b *DB) int { return cmp.Compare(a.number, b.number) })
	}
	for i, db := range inOrder {
		err := error(nil)
		if i > 0 && db.core == inOrder[i-1].core {
			err = db.fail("update", holdfast.ErrBadOption, nil, "", "the database %q is given twice", db.name)
		} else {
			err = db.turn.Begin(ctx)
		}
		if err != nil {
			for _, held := range inOrder[:i] {
				held.turn.Release()
			}
			return nil, err
		}
	}

	txs := u.room[:0]
	for i, db := range databases {
		tx := &u.first
		if i > 0 {
			tx = new(Tx)
		}
		db.begin(ctx, tx, shared)
		tx.state = layers.State{Below: db.engine}
		shared.Join(db.core, (*update)(tx))
		txs = append(txs, tx)
	}

	// Only now, with all turns held, the latest states are fixed: nobody can write to one of the databases after that of
	// another was taken.
	for i, db := range databases {
		if err := db.room(); err != nil {
			shared.Run(func() error { return err })
			return nil, err
		}
		txs[i].see()
	}
	return txs, nil
}

// updating is what an Update allocates: most often it is over one database.
type updating struct {
	shared txn.Tx
	first  Tx
	room   [1]*Tx
}

// begin begins a transaction, the zero Tx, that reads nothing yet.
func (db *DB) begin(ctx context.Context, tx *Tx, shared *txn.Tx) {
	tx.db, tx.core, tx.shared, tx.ctx, tx.now = db, db.core, shared, ctx, db.now()
	tx.root = Bucket{tx: tx, prefix: slices.Clip([]byte(db.prefix))}
	tx.memory = memories.Get().(*memory)
}

// room waits until not too much is applied that the engine does not show.
func (c *core) room() error {
	if c.caps.ShownAtApply {
		return nil
	}
	c.mu.Lock()
	full, tail, commit := c.pending.Full(), c.tail, c.commits
	c.mu.Unlock()
	if !full {
		return nil
	}
	return c.settle(tail.Wait(), commit)
}

// settle notes that everything up to a commit is durable, unless err says that it is not.
func (c *core) settle(err error, commit uint64) error {
	if err == nil && !c.caps.ShownAtApply {
		c.mu.Lock()
		c.pending.Settled(commit)
		c.mu.Unlock()
	}
	return err
}

// see lets the transaction read the latest state.
func (tx *Tx) see() {
	c := tx.core
	c.mu.Lock()
	defer c.mu.Unlock()
	tx.state.Layers = tx.layers[:1]
	if !c.caps.ShownAtApply { // or the engine has the latest state
		tx.state.Layers = c.pending.Above(tx.state.Layers)
	}
	tx.durable = durable{c.tail, c.commits}
}

// update is a transaction's part in a database.
type update Tx

// Prepare implements [txn.Part].
func (u *update) Prepare(b *holdfast.Batch) error {
	tx := (*Tx)(u)
	if err := tx.removeExpired(16); err != nil {
		return err
	}
	if tx.indexed > 0 { // it may have written some keys often
		if err := tx.batch.Err(); err != nil {
			return err
		}
		tx.index()
		tx.state.Layers[0].AppendTo(b)
	} else {
		b.Append(&tx.batch)
	}

	// Between the moment when an engine shows what is applied, at once or later, and the moment when it is pending and can
	// be waited for, nobody takes both: Latest would see a newer value below an older one, and View what nothing waits
	// for.
	tx.core.mu.Lock()
	tx.applying = true
	return nil
}

// Commit implements [txn.Part].
func (u *update) Commit(receipt holdfast.Receipt, level holdfast.Level) func() error {
	tx, c := (*Tx)(u), u.core
	if tx.deleted {
		c.known = nil
	}

	// Only when the transaction has its place, what it has made is known to the next ones. The map is emptied when it gets
	// too large: what is forgotten is looked up again.
	for prefix := range tx.made {
		if c.known == nil || len(c.known) > maxKnown {
			c.known = map[string]bool{}
		}
		c.known[prefix] = true
	}
	c.expires = tx.expires || c.expires

	c.commits++
	c.tail.Add(receipt, level)
	if !c.caps.ShownAtApply {
		c.pending.Add(c.commits, &tx.batch)
		tx.batch = holdfast.Batch{}
	}
	tx.durable = durable{c.tail, c.commits}
	c.mu.Unlock()
	c.turn.Release()
	tx.free()
	return tx.wait
}

// wait waits until what the transaction has written or seen is durable.
func (tx *Tx) wait() error { return tx.core.settle(tx.durable.tail.Wait(), tx.durable.commit) }

// maxKnown is of how many buckets it is remembered that they are there.
const maxKnown = 1 << 12

// Rollback implements [txn.Part].
func (u *update) Rollback() func() error {
	tx, c := (*Tx)(u), u.core
	if tx.applying {
		c.mu.Unlock()
	}

	// Nothing is written, but what the function has seen may have been a reason for its error. The caller waits for that.
	err := tx.durable.tail.Raise(c.engine, tx.shared.Level())
	c.turn.Release()
	tx.free()
	if err != nil {
		return func() error { return err }
	}
	return tx.wait
}

// View calls f with a transaction that reads one fixed state: all that was acknowledged when View was called, and
// nothing that a crash can take back. It waits for what was being written at that moment, or until ctx ends; it keeps
// nobody waiting. What the state needs is not reclaimed before f returns. The error is f's, or that of a loop in f that
// has ended early. ErrPoisoned: it cannot be told which of the last writes survive; Latest reads on.
func (db *DB) View(ctx context.Context, f func(tx *Tx) error) error {
	return db.read(ctx, true, f)
}

// Latest is View of the latest state, and does not wait: a crash can take back some of what f sees.
func (db *DB) Latest(ctx context.Context, f func(tx *Tx) error) error {
	return db.read(ctx, false, f)
}

func (db *DB) read(ctx context.Context, safe bool, f func(tx *Tx) error) (err error) {
	if err := cmp.Or(db.err, holdfast.CheckContext(ctx)); err != nil {
		return err
	}
	c := db.core
	tx := new(Tx)
	db.begin(ctx, tx, nil)

	snapshot, d, err := holdfast.Snapshot(nil), durable{}, error(nil)
	switch {
	case safe:
		// What a snapshot shows has been applied before, so that what is waited for may be taken later. No Update waits
		// for an engine that is slow to give one.
		snapshot, err = c.engine.Snapshot()
		c.mu.Lock()
		d = durable{c.tail, c.commits}
		c.mu.Unlock()
	case c.caps.ShownAtApply: // the engine has all, and there is nothing to wait for
		snapshot, err = c.engine.Snapshot()
	default:
		// The snapshot and what lies above it are of one moment, or one would have what the other lacks.
		c.mu.Lock()
		snapshot, err = c.engine.Snapshot()
		tx.state.Layers = c.pending.Above(nil)
		c.mu.Unlock()
	}
	tx.state.Below = snapshot
	if err != nil {
		return err
	}
	defer func() {
		tx.end()
		tx.free()
		if closed := snapshot.Close(); err == nil {
			err = closed
		}
	}()

	if safe {
		if err := receipts.WaitFor(ctx, func() error { return c.settle(d.tail.Wait(), d.commit) }); err != nil {
			return err
		}
	}

	// Not by txn.Call, which marks who would wait for the own transaction: a function that only reads has no turn.
	if err := f(tx); err != nil {
		return err
	}
	return tx.err
}

// RemoveExpired deletes all keys that have expired, and returns how many, and the entries that were left of others.
// Every Update deletes some, so that it is only needed where nothing else is written.
func (db *DB) RemoveExpired(ctx context.Context) (n int, err error) {
	for {
		removed := 0
		err := db.Update(ctx, func(tx *Tx) error {
			err := tx.removeExpired(1024)
			removed = tx.removed
			return err
		})
		n += removed
		if err != nil || removed == 0 {
			return n, err
		}
	}
}
