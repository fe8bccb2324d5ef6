package v1

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/api"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/server/auth"
	"github.com/holdfastdb/holdfast/server/problem"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// maxOperations is how many operations a transaction may have: each may open a log.
const maxOperations = 1000

// remembered is for how long the results of a transaction are kept.
const remembered = 24 * time.Hour

// transactions declares the transaction over messages, logs and tasks.
func (s *service) transactions() {
	declare(s, operation{id: "commit-transaction", method: http.MethodPost, path: "/v1/transactions", role: auth.Write,
		namespace: own, tag: "transactions", write: true,
		summary: "Write messages, append events, enqueue and complete tasks, all or nothing",
		about: "The operations are done in their order, in one namespace or in several, and are one commit. If one of them " +
			"is refused, nothing is done, and the answer is that of its single call, with its number in operation. " +
			"A transaction with ids or leases that is sent again as it was, within a day, is answered with its first results; " +
			"in any other one, known ids of messages or events are 409 `id_taken`, unless all that it does is to repeat " +
			"writes and appends. The token must have the role in the namespace of each operation.",
		codes: []string{api.CodeNoNamespace, api.CodeConflict, api.CodeIDTaken, api.CodeEnded, api.CodeExists, api.CodeState,
			api.CodeNotFound, api.CodeLeaseLost, api.CodeCancelled}},
		func(c *call, in *struct{ Body api.Transaction }) (out api.TransactionResult, err error) {
			steps, key, err := c.steps(in.Body.Operations)
			if err == nil {
				out, err = c.transact(in.Body.Operations, steps, key)
			}

			// A namespace that was deleted closes its stores under the transaction. The client gets the answer of the single
			// call then.
			if errors.Is(err, holdfast.ErrClosed) { // the server stops, or a namespace was deleted meanwhile
				for i, o := range in.Body.Operations {
					if gone := c.data.Check(c.ctx, o.Namespace); gone != nil {
						return out, problem.InOperation(i, gone)
					}
				}
			}
			return out, err
		})
}

// step is an operation whose store is open.
type step struct {
	do  func(tx *kv.Tx) (r api.OperationResult, repeated bool, err error) // repeated: it was done before
	log *event.Store                                                      // that it appends to, or nil
}

// kept is what is remembered of a transaction: what it was answered, and for each of its operations that has appended
// events the history of the log in which they have their positions.
type kept struct {
	api.TransactionResult
	Histories []string `json:"histories,omitempty"`
}

// steps prepares operations: what takes time, or needs no transaction to be refused. The key is what a transaction is
// remembered by, nil if it is not: one that has neither ids nor leases is done as often as it is sent.
func (c *call) steps(operations []api.Operation) (steps []step, key []byte, err error) {
	switch n := len(operations); {
	case n == 0:
		return nil, nil, problem.BadRequest("a transaction has at least one operation")
	case n > maxOperations:
		return nil, nil, &holdfast.Error{Op: "transaction", Class: holdfast.ErrTooLarge,
			Detail: fmt.Sprintf("it has %d operations, the limit is %d", n, maxOperations)}
	}

	// All roles are checked before any store is opened: opening a log makes it.
	for i, o := range operations {
		if !c.req.Principal.May(auth.Write, o.Namespace) {
			return nil, nil, problem.InOperation(i, &holdfast.Error{Op: "transaction", Class: auth.ErrForbidden,
				Detail: fmt.Sprintf("this needs a token with role %v in namespace %.80q", auth.Write, o.Namespace)})
		}
	}

	// The key covers every operation as it was sent, so that a repeat must be the same in all of them.
	sum, known := sha256.New(), false
	for i := range operations {
		one, ids, err := c.step(&operations[i], sum)
		if err != nil {
			return nil, nil, problem.InOperation(i, err)
		}
		steps, known = append(steps, one), known || ids
		if err := json.NewEncoder(sum).Encode(&operations[i]); err != nil {
			return nil, nil, err
		}
	}
	if known {
		key = sum.Sum(nil)
	}
	return steps, key, nil
}

// step prepares an operation, and reports whether it can be told from others like it: by ids or by a lease. It adds to
// sum what tells its stores from others of the same names that were there before.
func (c *call) step(o *api.Operation, sum hash.Hash) (do step, ids bool, err error) {
	fields := 0
	for _, there := range []bool{o.Write != nil, o.Append != nil, o.Enqueue != nil, o.Complete != nil} {
		if there {
			fields++
		}
	}
	if fields != 1 {
		return do, false, problem.BadRequest("an operation has write, append, enqueue or complete; this has %d of them",
			fields)
	}
	info, err := c.data.Messages().Info(c.ctx, o.Namespace)
	if err != nil {
		return do, false, err
	}

	// A namespace that was deleted and made anew has another history: its results are not those of the first.
	fmt.Fprintln(sum, info.Created.UnixNano())
	switch {
	case o.Write != nil:
		for _, m := range o.Write.Messages {
			ids = ids || m.ID != ""
		}
		do, err = c.writeStep(o.Namespace, o.Write)
	case o.Append != nil:
		for _, e := range o.Append.Events {
			ids = ids || e.ID != ""
		}
		do, err = c.appendStep(o.Namespace, o.Append)
	case o.Enqueue != nil:
		for _, t := range o.Enqueue.Tasks {
			ids = ids || t.ID != ""
		}
		do, err = c.taskStep(o.Namespace, func(tx task.Tx) ([]task.Result, error) {
			return tx.Enqueue(api.Specs(o.Enqueue.Tasks)...)
		})
	default:
		ids = true
		do, err = c.taskStep(o.Namespace, func(tx task.Tx) ([]task.Result, error) {
			return tx.Complete(o.Complete.LeaseRef.Store(), api.Specs(o.Complete.Then)...)
		})
	}
	return do, ids, err
}

// writeStep prepares a write to a stream.
func (c *call) writeStep(namespace string, w *api.Write) (do step, err error) {
	if err := expects(w); err != nil {
		return do, err
	}

	// Opened outside the transaction, which is to be short: those of a database run one after another.
	n, err := c.data.Messages().Namespace(c.ctx, namespace)
	if err != nil {
		return do, err
	}
	messages := w.Store()
	do.do = func(tx *kv.Tx) (api.OperationResult, bool, error) {
		var r message.Result
		var err error
		if w.Expected != nil {
			r, err = n.In(tx).WriteAfter(w.Stream, *w.Expected, messages...)
		} else {
			r, err = n.In(tx).Write(w.Stream, messages...)
		}
		done := written(w, r)
		return api.OperationResult{Written: &done}, r.Repeated, err
	}
	return do, nil
}

// appendStep prepares an append to a log, which is made if it is not there.
func (c *call) appendStep(namespace string, a *api.LogAppend) (do step, err error) {
	if err := comesAfter(&a.Append); err != nil {
		return do, err
	}
	log, err := c.data.Log(c.ctx, namespace, a.Log)
	if err != nil {
		return do, err
	}
	events := a.Store()
	do.log = log
	do.do = func(tx *kv.Tx) (api.OperationResult, bool, error) {
		var r event.Result
		var err error
		if a.After != nil {
			r, err = log.In(tx).AppendAfter(*a.After, events...)
		} else {
			r, err = log.In(tx).Append(events...)
		}
		done := api.Appended(r)
		return api.OperationResult{Appended: &done}, r.Repeated, err
	}
	return do, nil
}

// taskStep prepares what f does with the tasks of a namespace.
func (c *call) taskStep(namespace string, f func(task.Tx) ([]task.Result, error)) (do step, err error) {
	t, err := c.data.Tasks(c.ctx, namespace)
	if err != nil {
		return do, err
	}
	do.do = func(tx *kv.Tx) (api.OperationResult, bool, error) {
		results, err := f(t.In(tx))
		return api.OperationResult{Enqueued: enqueued(results).Results}, false, err
	}
	return do, nil
}

// transact does the steps of a transaction, or finds that it was done. It takes the turns of the databases of its
// namespaces, and of one for its results.
func (c *call) transact(operations []api.Operation, steps []step, key []byte) (out api.TransactionResult, err error) {
	var databases []*kv.DB
	at := map[string]int{}
	for _, o := range operations {
		if _, known := at[o.Namespace]; known {
			continue
		}
		db, err := c.data.Database(o.Namespace)
		if err != nil {
			return out, err
		}
		at[o.Namespace] = len(databases)
		databases = append(databases, db)
	}
	if key != nil {
		if out, done, err := c.before(steps, key); done || err != nil {
			return out, err
		}
		db, err := c.resultsOf(key)
		if err != nil {
			return out, err
		}
		databases = append(databases, db)
	}
	err = kv.UpdateAll(c.ctx, databases, func(txs []*kv.Tx) error {
		of := func(i int) *kv.Tx { return txs[at[operations[i].Namespace]] }
		out, err = decide(of, txs[len(txs)-1].Bucket(transactionResults...), steps, key)
		return err
	})
	return out, err
}

// transactionResults is the bucket of the results of transactions.
var transactionResults = []string{"holdfast", "transactions"}

// resultsOf is the database that has the results of a transaction, by its key: one of several, so that transactions of
// different namespaces seldom wait for each other there.
func (c *call) resultsOf(key []byte) (*kv.DB, error) {
	return kv.Open(c.data.Engine(), kv.Options{Name: fmt.Sprintf("results/%02x", key[0]%64), Level: c.data.Level()})
}

// before finds the results of a transaction where earlier versions kept them: in the database without a name.
func (c *call) before(steps []step, key []byte) (out api.TransactionResult, done bool, err error) {
	err = c.data.DB().Latest(c.ctx, func(tx *kv.Tx) error {
		out, done, err = remembrance(tx.Bucket(transactionResults...), steps, key)
		return err
	})
	return out, done, err
}

// remembrance finds the results of a transaction in a bucket.
func remembrance(results *kv.Bucket, steps []step, key []byte) (out api.TransactionResult, done bool, err error) {
	value, err := results.Get(key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	var was kept
	if err := json.Unmarshal(value, &was); err != nil {
		return out, false, &holdfast.Error{Op: "transaction", Class: holdfast.ErrCorrupt, Cause: err,
			Detail: "the results that are kept cannot be read"}
	}
	if there, err := was.stands(steps); !there || err != nil {
		return out, false, err
	}
	out = was.TransactionResult
	repeat(&out)
	return out, true, nil
}

// stands reports whether the events that a transaction has appended are those that are at their positions, or were
// before they were truncated: a log that was deleted and made anew has not had them. To be opened again makes no
// difference.
func (k *kept) stands(steps []step) (bool, error) {
	logs := 0
	for i, one := range steps {
		if one.log == nil {
			continue
		}
		if i >= len(k.Results) || k.Results[i].Appended == nil || logs >= len(k.Histories) {
			return false, nil
		}

		// In the present history nothing has changed, also where the events are still on their way to the disk.
		if h := k.Histories[logs]; h != one.log.History() {
			common, err := one.log.Common(h)
			if err != nil || k.Results[i].Appended.Last >= common {
				return false, err
			}
		}
		logs++
	}
	return true, nil
}

// decide is called in the transactions of databases: of is that of an operation, results the bucket of its results.
func decide(
	of func(i int) *kv.Tx,
	results *kv.Bucket,
	steps []step,
	key []byte,
) (out api.TransactionResult, err error) {
	if key != nil {
		// At the level of this transaction: it has seen the first one.
		if out, done, err := remembrance(results, steps, key); done || err != nil {
			return out, err
		}
	}

	first, repeats := 0, 0
	out.Results = make([]api.OperationResult, len(steps))

	// Every step is done before repeats are judged: each sees what those before it have written.
	for i, one := range steps {
		repeated := false
		if out.Results[i], repeated, err = one.do(of(i)); err != nil {
			return api.TransactionResult{}, problem.InOperation(i, err)
		}
		if repeated {
			if repeats == 0 {
				first = i
			}
			repeats++
		}
	}

	// Some ids are known and others new: this is no repeat of one transaction, and doing the rest would be half of two.
	if repeats > 0 && repeats < len(steps) {
		return api.TransactionResult{}, problem.InOperation(first, &holdfast.Error{Op: "transaction",
			Class: event.ErrPartialRepeat, Detail: "its ids are known, and what other operations do is new",
			Remedy: "repeat a transaction as it was, or give new ids"})
	}
	out.Repeated = repeats > 0
	if key == nil {
		return out, nil
	}
	k := kept{TransactionResult: out}
	for _, one := range steps {
		if one.log != nil {
			k.Histories = append(k.Histories, one.log.History()) // which begins with the first append, if not before
		}
	}
	value, err := json.Marshal(&k)
	if err != nil {
		return out, err
	}
	return out, results.PutUntil(key, value, of(0).Now().Add(remembered))
}

// repeat marks results as those of a transaction that was done before.
func repeat(out *api.TransactionResult) {
	out.Repeated = true
	for _, r := range out.Results {
		if r.Written != nil {
			r.Written.Repeated = true
		}
		if r.Appended != nil {
			r.Appended.Repeated = true
		}
	}
}
