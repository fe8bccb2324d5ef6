package message

import (
	"context"
	"errors"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// ListTx is the list of a store's namespaces in a transaction of its database. Namespaces that the transaction makes
// can be used once it is durable, and not before.
type ListTx struct {
	s  *Store
	tx *kv.Tx
}

// In returns the list of namespaces as a part of a transaction. What the transaction survives is at least the store's
// level.
func (s *Store) In(tx *kv.Tx) ListTx { return ListTx{s, tx} }

// listPart is the list's part in a transaction. It has the list's turn: that of the database is given back before the
// part has noted what was committed.
type listPart struct {
	s       *Store
	batch   holdfast.Batch
	changed map[string]*description // what the transaction has made of namespaces, nil for those it has deleted
	next    uint64
	removed []*Deletion
}

// change calls f with the list in a transaction of its own.
func (s *Store) change(ctx context.Context, f func(t ListTx) error) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	return s.db.Update(ctx, func(tx *kv.Tx) error { return f(s.In(tx)) })
}

// enter returns the part. If that is no error, the caller calls Leave of the transaction.
func (t ListTx) enter() (*listPart, error) {
	shared, err := t.tx.Enter(t.s.db)
	if err != nil {
		return nil, err
	}
	p, err := t.s.takePart(t.tx.Context(), shared)
	if err != nil {
		t.tx.Leave()
	}
	return p, err
}

func (s *Store) takePart(ctx context.Context, shared *txn.Tx) (*listPart, error) {
	if p, ok := shared.Part(s).(*listPart); ok {
		return p, nil
	}
	if err := s.turn.Hold(ctx); err != nil {
		return nil, err
	}
	if err := s.life.Enter(); err != nil {
		s.turn.Release()
		return nil, err
	}
	if s.listed != nil && !s.lease.Caps.ShownAtApply { // the engine shows it when that is over
		if err := s.listed.Wait(); err != nil {
			s.life.Leave()
			s.turn.Release()
			return nil, err
		}
		s.listed = nil
	}
	p := &listPart{s: s, changed: map[string]*description{}, next: s.next}
	shared.Raise(s.o.Level)
	shared.Join(s, p)
	return p, nil
}

// describe describes a namespace as the transaction has left it.
func (p *listPart) describe(id string) (description, error) {
	d, ok := p.changed[id]
	switch {
	case !ok:
		return p.s.describe(id)
	case d == nil:
		return description{}, p.s.fail("namespace", ErrNoNamespace, nil, "", "%q", id)
	}
	return *d, nil
}

// take takes the number of the next namespace.
func (p *listPart) take() (number uint64) {
	number = p.next
	p.next++
	p.batch.Set(p.s.keys.Meta(), format.AppendNumber([]byte{format.Version}, p.next))
	return number
}

// Create is [Store.Create] in the transaction.
func (t ListTx) Create(o NamespaceOptions) (Info, error) {
	p, err := t.enter()
	if err != nil {
		return Info{}, err
	}
	defer t.tx.Leave()
	switch _, err := p.describe(o.ID); {
	case err == nil:
		return Info{}, p.s.fail("create namespace", ErrNamespaceExists, nil, "", "%q", o.ID)
	case !errors.Is(err, ErrNoNamespace):
		return Info{}, err
	}
	if err := p.s.Check(o); err != nil {
		return Info{}, err
	}
	d := description{Number: p.take(), Description: o.Description, Metadata: o.Metadata, Created: time.Now().UTC()}
	p.s.lease.Fresh(&p.batch, p.s.keys.Prefix)
	if err := p.s.addDescription(&p.batch, o.ID, d); err != nil {
		return Info{}, err
	}
	p.changed[o.ID] = &d
	return d.info(o.ID), nil
}

// Info is [Store.Info] in the transaction.
func (t ListTx) Info(id string) (Info, error) {
	p, err := t.enter()
	if err != nil {
		return Info{}, err
	}
	defer t.tx.Leave()
	d, err := p.describe(id)
	if err != nil {
		return Info{}, err
	}
	return d.info(id), nil
}

// Delete is [Store.Delete] in the transaction, as far as that has to be one commit: the namespace is not there any
// more. When the transaction has returned, the caller calls Finish of the deletion.
func (t ListTx) Delete(id string) (*Deletion, error) { return t.empty(id, false) }

func (t ListTx) clear(id string) (*Deletion, error) { return t.empty(id, true) }

// empty takes away what describes a namespace, or gives the description to an empty one.
func (t ListTx) empty(id string, keep bool) (*Deletion, error) {
	p, err := t.enter()
	if err != nil {
		return nil, err
	}
	defer t.tx.Leave()
	d, err := p.describe(id)
	if err != nil {
		return nil, err
	}
	s := p.s
	chunks.Notes(&p.batch, s.keys.Deleted(d.Number))
	if keep {
		fresh := d
		fresh.Number = p.take()
		if err := s.addDescription(&p.batch, id, fresh); err != nil {
			return nil, err
		}
		p.changed[id] = &fresh
	} else {
		p.batch.Delete(s.keys.Namespace(id))
		p.changed[id] = nil
	}
	p.batch.Set(s.keys.Deleted(d.Number), nil)
	deletion := &Deletion{s: s, id: id, d: d}
	p.removed = append(p.removed, deletion)
	return deletion, nil
}

// Prepare implements [txn.Part].
func (p *listPart) Prepare(b *holdfast.Batch) error {
	b.Append(&p.batch)
	if p.next != p.s.next {
		p.s.next = p.next // even if the commit fails, whose outcome is not known then
	}
	return nil
}

// Commit implements [txn.Part]. The transaction's database waits for what is written.
func (p *listPart) Commit(receipt holdfast.Receipt, _ holdfast.Level) func() error {
	s := p.s
	s.listed = &receipt
	s.mu.Lock()
	for _, d := range p.removed {
		d.placed = true
		s.gone[d.d.Number] = nil
		if n := s.open[d.id]; n != nil && n.number == d.d.Number {
			n.deleted.Store(true) // a write that is acknowledged from here on would be removed
			s.gone[d.d.Number] = n
			delete(s.open, d.id)
		}
	}
	s.mu.Unlock()
	s.life.Leave()
	s.turn.Release()
	return nil
}

// Rollback implements [txn.Part].
func (p *listPart) Rollback() func() error {
	p.s.life.Leave()
	p.s.turn.Release()
	return nil
}

// Deletion is a namespace that a transaction has deleted, with what is still in it.
type Deletion struct {
	s      *Store
	id     string
	d      description
	placed bool // the transaction has its place
}

// Finish removes what was in the namespace, and returns how many messages that were. It is called when the transaction
// has returned without an error; before, and if it has failed, Finish is ErrBadOption. In the function of another one
// it is [kv.ErrNested]. What Finish does not do, by an error or because the process ends, is done when the store is
// opened the next time.
func (d *Deletion) Finish(ctx context.Context) (messages int64, err error) {
	s := d.s
	if !d.placed {
		return 0, s.fail("delete namespace", holdfast.ErrBadOption, nil, "call Finish when the transaction has succeeded",
			"the transaction that deletes %q has not", d.id)
	}
	if err := s.life.Enter(); err != nil {
		return 0, err
	}
	defer s.life.Leave()
	s.mu.Lock()
	n := s.gone[d.d.Number]
	s.mu.Unlock()
	if n == nil {
		n = s.namespace(d.id, d.d)
	}

	// It would wait for the parts of that transaction, which waits for its function.
	if err := n.db.Turn().Outside(); err != nil {
		return 0, err
	}

	// The engine shows the deletion by now, but a Close in such a function has to know of it as long as this waits.
	defer func() {
		s.mu.Lock()
		delete(s.gone, d.d.Number)
		s.mu.Unlock()
	}()

	// Whatever comes, no write goes to the namespace from here on.
	err = n.use()
	if err == nil {
		defer n.leave()
	}
	n.deleted.Store(true)
	if err := n.close(); err != nil && !errors.Is(err, holdfast.ErrClosed) {
		return 0, err
	}
	if err == nil {
		c, err := n.count("")
		if err != nil {
			return 0, err
		}
		messages = c.messages
	}
	return messages, s.clear(ctx, d.d.Number)
}
