package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// Tx is a transaction that is put together: what its parts are told to do is sent at the end. It is used by the
// function that it is passed to, by one goroutine at a time.
type Tx struct {
	c     *Client
	parts []part
	err   error // the first one
}

// part is an operation of a transaction.
type part struct {
	op     api.Operation
	done   func(r *api.OperationResult, sent *request) bool // takes the result; false if that is of another kind
	failed func(error) error                                // completes the error of the operation; nil if it is complete
}

// Update calls f, and then does what the parts of the transaction were told, in that order, as one commit: all of it,
// or nothing. They may be of several namespaces; the token must be one that may write to each.
//
//	var placed *message.Result
//	err := c.Update(ctx, func(tx *client.Tx) error {
//		placed = orders.In(tx).WriteAfter("order-17", 3, paid)
//		orders.Log("audit").In(tx).Append(event.Event{Type: "Paid"})
//		orders.Tasks().In(tx).Complete(lease, task.Spec{Kind: "mail"})
//		return nil
//	})
//
// The methods are those of the stores in a transaction of kv. But nothing is done, and nothing known, before f has
// returned: so they return no errors, and results that are filled in when Update returns nil. What a transaction
// depends on is read before it, and named: the version of a stream, the last position of a log, a lease.
//
// An error of f is returned as it is, and nothing was sent. If an operation is refused, the error is that of its single
// call, and [Error].Operation is its number. Update is tried again as any write, also if an answer is lost: the server
// remembers for a day what it has done.
func (c *Client) Update(ctx context.Context, f func(tx *Tx) error) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	tx := &Tx{c: c}
	if err := f(tx); err != nil {
		return err
	}
	if tx.err != nil || len(tx.parts) == 0 {
		return tx.err
	}
	body := api.Transaction{Operations: make([]api.Operation, len(tx.parts))}
	for i, p := range tx.parts {
		body.Operations[i] = p.op
	}
	space := segment(body.Operations[0].Namespace)
	r := &request{op: "transaction", method: "POST", path: "/v1/transactions", body: body, safe: true, space: &space}
	var done api.TransactionResult
	if err := c.call(ctx, r, &done); err != nil {
		var e *Error

		// The refused operation makes the error that its single call would return.
		if errors.As(err, &e) && e.Operation != nil {
			if at := *e.Operation; at >= 0 && at < len(tx.parts) && tx.parts[at].failed != nil {
				return tx.parts[at].failed(err)
			}
		}
		return err
	}

	// If one does not fit its operation, it is not known what the server has done.
	ok := len(done.Results) == len(tx.parts)
	for i := 0; ok && i < len(tx.parts); i++ {
		ok = tx.parts[i].done(&done.Results[i], r)
	}
	if !ok {
		return &Error{Op: r.op, Status: 200, Unknown: true, Detail: "the results are not those of the operations"}
	}
	return nil
}

// add adds an operation that store was told, unless there is an error.
func (tx *Tx) add(c *Client, err error, p part) {
	if err == nil && c != tx.c {
		err = &holdfast.Error{Op: "transaction", Class: holdfast.ErrBadOption, Detail: "it has parts of several clients",
			Remedy: "use the client whose Update it is"}
	}
	if err == nil {
		tx.parts = append(tx.parts, p)
	} else if tx.err == nil {
		tx.err = fmt.Errorf("operation %d: %w", len(tx.parts), err)
	}
}

// NamespaceTx are the messages of a namespace in a transaction.
type NamespaceTx struct {
	n  *Namespace
	tx *Tx
}

// In returns the messages of the namespace as a part of a transaction.
func (n *Namespace) In(tx *Tx) NamespaceTx { return NamespaceTx{n, tx} }

// Write is [Namespace.Write] in the transaction.
func (t NamespaceTx) Write(stream string, messages ...message.Message) *message.Result {
	return t.write(stream, nil, messages)
}

// WriteAfter is [Namespace.WriteAfter] in the transaction. The version is that with what the transaction has written.
func (t NamespaceTx) WriteAfter(stream string, expected int64, messages ...message.Message) *message.Result {
	return t.write(stream, &expected, messages)
}

// write adds a write to the transaction. The result is filled in when the transaction is done.
func (t NamespaceTx) write(stream string, expected *int64, messages []message.Message) *message.Result {
	result := new(message.Result)
	w, known, err := newWrite(stream, expected, messages)
	t.tx.add(t.n.c, err, part{op: api.Operation{Namespace: t.n.id, Write: w},
		done: func(r *api.OperationResult, sent *request) bool {
			if r.Written == nil {
				return false
			}
			*result = wrote(r.Written, known, sent)
			return true
		},
		failed: func(err error) error { return conflicted(err, stream) }})
	return result
}

// LogTx is a log in a transaction.
type LogTx struct {
	l  *Log
	tx *Tx
}

// In returns the log as a part of a transaction.
func (l *Log) In(tx *Tx) LogTx { return LogTx{l, tx} }

// Append is [Log.Append] in the transaction.
func (t LogTx) Append(events ...event.Event) *event.Result { return t.append(nil, events) }

// AppendAfter is [Log.AppendAfter] in the transaction. The last position is that with what the transaction has
// appended.
func (t LogTx) AppendAfter(last uint64, events ...event.Event) *event.Result {
	return t.append(&last, events)
}

// append adds an append to the transaction. The result is filled in when the transaction is done.
func (t LogTx) append(after *uint64, events []event.Event) *event.Result {
	result := new(event.Result)
	a, known, err := newAppend(after, events)
	t.tx.add(t.l.c, err, part{
		op: api.Operation{Namespace: t.l.namespace, Append: &api.LogAppend{Log: t.l.name, Append: a}},
		done: func(r *api.OperationResult, sent *request) bool {
			if r.Appended == nil {
				return false
			}
			*result = appended(r.Appended, known, sent)
			return true
		}, failed: displaced})
	return result
}

// TasksTx are the tasks of a namespace in a transaction.
type TasksTx struct {
	t  *Tasks
	tx *Tx
}

// In returns the tasks as a part of a transaction.
func (t *Tasks) In(tx *Tx) TasksTx { return TasksTx{t, tx} }

// Enqueue is [Tasks.Enqueue] in the transaction.
func (t TasksTx) Enqueue(specs ...task.Spec) []task.Result {
	specs = withIDs(specs)
	return t.add(specs, api.Operation{Enqueue: &api.Enqueue{Tasks: newTasks(specs)}})
}

// Complete is [Tasks.CompleteThen] in the transaction. task.ErrLeaseLost, task.ErrCancelled: the task is not the
// caller's any more, and nothing was done.
func (t TasksTx) Complete(l task.Lease, then ...task.Spec) []task.Result {
	then = withIDs(then)
	return t.add(then, api.Operation{Complete: &api.CompleteTask{LeaseRef: ref(l), Then: newTasks(then)}})
}

// add adds an operation on tasks. The results are filled in when the transaction is done.
func (t TasksTx) add(specs []task.Spec, op api.Operation) []task.Result {
	op.Namespace = t.t.namespace
	list := make([]task.Result, len(specs))
	t.tx.add(t.t.c, notSpecs(specs), part{op: op, done: func(r *api.OperationResult, _ *request) bool {
		for i := range r.Enqueued[:min(len(r.Enqueued), len(list))] {
			list[i] = task.Result(r.Enqueued[i])
		}
		return len(r.Enqueued) == len(list)
	}})
	return list
}
