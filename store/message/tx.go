package message

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Tx is a namespace in a transaction of its store's database, and is used as that is. Its errors are ordinary ones:
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
	heads  map[string]head   // of streams that it has written to
	blocks map[string]uint64 // of categories
}

// enter returns the part. If that is no error, the caller calls Leave of the transaction.
func (t Tx) enter() (*part, error) {
	n := t.n
	shared, err := t.tx.Enter(n.store.db)
	if err != nil {
		return nil, err
	}
	p, err := n.takePart(t.tx.Context(), shared)
	if err != nil {
		t.tx.Leave()
		return nil, n.ended(err)
	}
	return p, nil
}

func (n *Namespace) takePart(ctx context.Context, shared *txn.Tx) (*part, error) {
	if p, ok := shared.Part(n).(*part); ok {
		return p, nil
	}
	if err := n.enter(); err != nil {
		return nil, err
	}
	log, err := n.log().For(ctx, shared)
	if err != nil {
		n.leave()
		return nil, err
	}
	p := &part{n: n, log: log, heads: map[string]head{}, blocks: map[string]uint64{}}
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
	if at, ok := p.heads[stream]; ok {
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
	placing := placing{n: n, write: w, part: p, ctx: ctx}
	r, err := p.log.Append(events, placing.place)
	if known := (*event.Known)(nil); errors.As(err, &known) {
		r, err = known.Result, nil // with other bytes; perhaps it is the same JSON
	}
	switch behind := (*conflictAt)(nil); {
	case errors.As(err, &behind):
		return Result{}, behind.err
	case errors.Is(err, event.ErrBadEvent):
		return Result{}, n.store.fail("write", ErrBadMessage, err, "", "in namespace %q", n.id)
	case errors.Is(err, event.ErrPartialRepeat):
		return Result{}, n.store.fail("write", ErrIDTaken, err, "repeat a write with the same messages", "in namespace %q",
			n.id)
	case err != nil:
		return Result{}, err
	case r.Repeated:
		return n.repeated(ctx, r, w)
	}

	p.heads[w.stream] = placing.head
	p.blocks[Category(w.stream)] = placing.head.global / format.BlockSize
	return placing.result, nil
}

// Prepare implements [txn.Part]: the log's part has all that is written.
func (p *part) Prepare(*holdfast.Batch) error { return nil }

// Commit implements [txn.Part]. The log's part, which has joined before, waits for what is written.
func (p *part) Commit(holdfast.Receipt, holdfast.Level) func() error {
	n := p.n
	n.leave()
	return func() error {
		if n.enter() == nil {
			n.storeSome(context.Background())
			n.leave()
		}
		return nil
	}
}

// Rollback implements [txn.Part].
func (p *part) Rollback() func() error {
	p.n.leave()
	return nil
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

// SubscriptionTx is a subscription in a transaction of its store's database, and is used as that is. So what is done
// for a message, and that it is done, are one commit: exactly once, as far as it is in the database.
//
//	err := db.Update(ctx, func(tx *kv.Tx) error {
//		if err := tx.Bucket("seen").Put(key, value); err != nil {
//			return err
//		}
//		return mails.In(tx).Ack(delivery)
//	})
type SubscriptionTx struct {
	s  *Subscription
	tx *kv.Tx
}

// In returns the subscription as a part of a transaction. Until the function of that has returned, nothing else is
// claimed or acknowledged.
func (s *Subscription) In(tx *kv.Tx) SubscriptionTx { return SubscriptionTx{s, tx} }

// Ack is [Subscription.Ack] in the transaction. ErrLeaseLost: some of the deliveries are no longer the caller's; then
// none is done.
func (t SubscriptionTx) Ack(deliveries ...Delivery) error { return t.settle(deliveries, t.s.acked) }

// Fail is [Subscription.Fail] in the transaction. Errors are those of Ack.
func (t SubscriptionTx) Fail(reason string, deliveries ...Delivery) error {
	return t.settle(deliveries, t.s.failed(reason))
}

// Park is [Subscription.Park] in the transaction. Errors are those of Ack.
func (t SubscriptionTx) Park(reason string, deliveries ...Delivery) error {
	return t.settle(deliveries, t.s.parked(reason))
}

func (t SubscriptionTx) settle(deliveries []Delivery, change change) error {
	s := t.s
	shared, err := t.tx.Enter(s.n.store.db)
	if err != nil {
		return err
	}
	defer t.tx.Leave()
	p, err := s.takePart(t.tx.Context(), shared)
	if err != nil {
		return s.n.ended(err)
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.ended() {
		return s.n.ended(holdfast.ErrClosed)
	}
	for i := range deliveries {
		if err := s.held(&deliveries[i]); err != nil {
			return err
		}
		if slices.ContainsFunc(deliveries[:i], func(d Delivery) bool { return d.Global == deliveries[i].Global }) {
			return s.n.store.fail(
				"acknowledge",
				ErrLeaseLost,
				nil,
				"",
				"global position %d is given twice",
				deliveries[i].Global,
			)
		}
	}
	for i := range deliveries {
		s.end(&p.batch, &deliveries[i], change)
	}
	return nil
}

// settling is a subscription's part in a transaction. What it has changed in memory, s.undo takes back.
type settling struct {
	s     *Subscription
	batch holdfast.Batch
}

func (s *Subscription) takePart(ctx context.Context, shared *txn.Tx) (*settling, error) {
	if p, ok := shared.Part(s).(*settling); ok {
		return p, nil
	}
	if err := s.turn.Hold(ctx); err != nil {
		return nil, err
	}
	if err := s.n.life.Enter(); err != nil {
		s.turn.Release()
		return nil, err
	}
	p := &settling{s: s}
	shared.Raise(s.n.store.o.Level)
	shared.Join(s, p)
	return p, nil
}

// Prepare implements [txn.Part].
func (p *settling) Prepare(b *holdfast.Batch) error {
	b.Append(&p.batch)
	return nil
}

// Commit implements [txn.Part]. The transaction's database waits for what is written.
func (p *settling) Commit(holdfast.Receipt, holdfast.Level) func() error {
	p.end(func() {
		clear(p.s.undo)
		p.s.undo = p.s.undo[:0]
	})
	return nil
}

// Rollback implements [txn.Part].
func (p *settling) Rollback() func() error {
	p.end(p.s.rollBack)
	return nil
}

// end calls f with the lock, wakes consumers, and gives the turn back.
func (p *settling) end(f func()) {
	s := p.s
	s.turn.Lock()
	f()
	s.wakeLocked()
	s.turn.Unlock()
	s.turn.Release()
	s.n.life.Leave()
}
