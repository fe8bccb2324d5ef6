package message

import (
	"context"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
)

// Tx is a namespace in a transaction of its database, and is used as that is. Its errors are ordinary ones:
// nothing was done, and the function decides whether it goes on.
type Tx struct {
	n  *Namespace
	tx *kv.Tx
}

// In returns the namespace as a part of a transaction. Until the function of that has returned, others who write to the
// namespace wait. What the transaction survives is at least the store's level.
func (n *Namespace) In(tx *kv.Tx) Tx { return Tx{n, tx} }

// part is a namespace's part in a transaction. It keeps what the namespace will be: that is changed once the
// transaction has its place.
type part struct {
	n      *Namespace
	log    *event.Part
	heads  few[head]   // of streams that it has written to
	blocks few[uint64] // the last that it has written to, by category

	written []written
	room    [1]written // of written, mostly
}

// few is a map that mostly has one key, for which it allocates nothing.
type few[V any] struct {
	has   bool
	key   string
	value V
	more  map[string]V
}

func (f *few[V]) get(key string) (value V, ok bool) {
	if f.has && f.key == key {
		return f.value, true
	}
	value, ok = f.more[key]
	return value, ok
}

func (f *few[V]) put(key string, value V) {
	if !f.has || f.key == key {
		f.has, f.key, f.value = true, key, value
		return
	}
	if f.more == nil {
		f.more = map[string]V{}
	}
	f.more[key] = value
}

// enter returns the part. If that is no error, the caller calls Leave of the transaction.
func (t Tx) enter() (p *part, err error) {
	n := t.n
	shared, err := t.tx.Enter(n.db)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p == nil { // also if the engine has panicked
			t.tx.Leave()
		}
	}()
	p, err = n.takePart(t.tx.Context(), shared)
	return p, n.ended(err)
}

func (n *Namespace) takePart(ctx context.Context, shared *txn.Tx) (*part, error) {
	if list, ok := shared.Part(n.store).(*listPart); ok {
		// The transaction may have deleted the namespace, and perhaps made another one of that name.
		if d, err := list.describe(n.id); err != nil {
			return nil, err
		} else if d.Number != n.number {
			return nil, n.store.fail("namespace", ErrNoNamespace, nil, "", "%q has been deleted", n.id)
		}
	}
	if p, ok := shared.Part(n).(*part); ok {
		return p, nil
	}
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	log, err := n.log().Part(ctx, shared)
	if err != nil {
		n.leave()
		return nil, err
	}
	p := &part{n: n, log: log}
	p.written = p.room[:0]
	shared.Join(n, p)
	return p, nil
}

// Write is [Namespace.Write] in the transaction: it gives the messages their places, and returns at once. Whether they
// are there is known when the transaction is. Messages whose ids are known are a repeat, as there: to compare them,
// Write waits until the first ones are durable. An id that the transaction has given already is ErrBadMessage.
func (t Tx) Write(stream string, messages ...Message) (Result, error) {
	return t.write(streamWrite{stream: stream, messages: messages})
}

// WriteAfter is Write if the stream has the version expected, with what the transaction has written, NoStream for one
// that has never had a message. Otherwise it is ErrConflict; errors.As finds a [*Conflict]. Readers may not see yet
// what it conflicts with.
func (t Tx) WriteAfter(stream string, expected int64, messages ...Message) (Result, error) {
	return t.write(streamWrite{stream, &expected, messages})
}

func (t Tx) write(w streamWrite) (Result, error) {
	p, err := t.enter()
	if err != nil {
		return Result{}, err
	}
	defer t.tx.Leave()
	r, err := p.write(t.tx.Context(), &w)
	return r, p.n.ended(err)
}

// Version is the version of a stream, with what the transaction has written: the position of its last message, NoStream
// if it has never had one. Readers may not see it yet.
func (t Tx) Version(stream string) (int64, error) {
	p, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.tx.Leave()
	if what := checkName(stream); what != "" {
		return 0, p.n.store.fail("version", ErrBadName, nil, "", "stream %.80q: %s", stream, what)
	}
	at, err := p.head(t.tx.Context(), stream)
	return at.version, p.n.ended(err)
}

// head returns the head of a stream, as the transaction has made it.
func (p *part) head(ctx context.Context, stream string) (head, error) {
	if at, ok := p.heads.get(stream); ok {
		return at, nil
	}
	at, err := p.n.headOf(stream)
	if err == nil && at.edit != nil { // an import or removal that has its place, and which the engine may not show
		if err = p.n.settled(ctx, at.edit); err == nil {
			at, err = p.n.headOf(stream)
		}
	}
	return at, err
}

func (p *part) write(ctx context.Context, w *streamWrite) (Result, error) {
	n := p.n
	events, err := n.check(w)
	if err != nil {
		return Result{}, err
	}
	placing := placing{n: n, ctx: ctx, write: *w, part: p}
	r, err := placing.answer(placing.run(p.log.Draft(events...)))
	if behind, ok := err.(*conflictAt); ok {
		err = behind.err
	}
	return r, err
}

// Prepare implements [txn.Part]: the log's part has all that is written.
func (p *part) Prepare(b *holdfast.Batch) error { return p.log.Prepare(b) }

// Commit implements [txn.Part].
func (p *part) Commit(receipt holdfast.Receipt, level holdfast.Level) func() error {
	n := p.n
	for _, w := range p.written { // while it is still the log's turn
		n.wrote(w)
	}
	wait := p.log.Commit(receipt, level)
	n.leave()
	return func() error {
		if err := wait(); err != nil {
			return err
		}
		if ctx := context.Background(); n.enter(ctx) == nil {
			n.storeSome(ctx)
			n.leave()
		}
		return nil
	}
}

// Rollback implements [txn.Part].
func (p *part) Rollback() func() error {
	wait := p.log.Rollback()
	p.n.leave()
	return wait
}

// SavePosition is [Namespace.SavePosition] in the transaction. The position may be one that the transaction has
// written.
func (t Tx) SavePosition(consumer string, position int64) error {
	p, err := t.enter()
	if err != nil {
		return err
	}
	defer t.tx.Leave()
	if position < 0 {
		return p.n.store.fail("save position", holdfast.ErrBadOption, nil, "", "position %d", position)
	}
	return p.n.ended(p.log.SaveOffset(consumer, uint64(position)))
}

// LoadPosition is [Namespace.LoadPosition] in the transaction: the latest one, whether it is durable or not.
func (t Tx) LoadPosition(consumer string) (int64, error) {
	p, err := t.enter()
	if err != nil {
		return 0, err
	}
	defer t.tx.Leave()
	position, err := p.log.LoadOffset(consumer)
	return int64(position), p.n.ended(err)
}
