package subjects

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/enginetest/commits"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/crash/internal/protocol"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/projection"
	"github.com/holdfastdb/holdfast/store/task"
)

// Transaction is package kv with all stores in one database: each transaction writes to a bucket, a message stream, an
// event log and tasks, and a projection follows the log. A crash leaves all of a transaction or nothing, in every one
// of them, and of the view what the events up to its position make.
var Transaction = Subject{
	Name: "transaction", About: "transactions over a bucket, a message stream, an event log and tasks, and a view",
	work: transactionWork, read: transactionRead, judge: transactionJudge,
}

const (
	// MessagesOfTransactions is the name of the message store, which is in its keys.
	MessagesOfTransactions = "orders"

	transactionBucket  = "transactions"
	transactionOffset  = "applied"
	transactionView    = "view"
	transactionStreams = 4
	transactionTasks   = 64 // the last ones are kept, each of which but the last one is cancelled
)

// transactionStores are the database and the stores in it.
type transactionStores struct {
	db    *kv.DB
	store *message.Store
	space *message.Namespace
	log   *event.Store
	tasks *task.Store
	view  *projection.Projection[event.Event]
}

// openTransactions opens the database and the stores in it. After an error what was opened is closed.
func openTransactions(e holdfast.Engine, level holdfast.Level) (s *transactionStores, err error) {
	s = &transactionStores{}
	if s.db, err = kv.Open(e, kv.Options{Level: level}); err != nil {
		return nil, err
	}
	s.store, err = message.Open(s.db, message.Options{Name: MessagesOfTransactions, RetainEvery: -1})
	if err == nil {
		s.space, err = s.store.Namespace(context.Background(), message.Default)
	}
	if err == nil {
		s.log, err = event.Open(s.db, event.Options{})
	}
	if err == nil {
		s.tasks, err = task.Open(s.db, task.Options{})
	}
	if err == nil {
		s.view, err = projection.New(projection.Events(s.log), projection.Options{Name: transactionView, Batch: 8,
			Retry: func(error) bool { return false }}, addToView)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// close closes the stores that are open. The engine stays open.
func (s *transactionStores) close() (err error) {
	if s.store != nil {
		err = s.store.Close()
	}
	if s.log != nil {
		err = errors.Join(err, s.log.Close())
	}
	if s.tasks != nil {
		err = errors.Join(err, s.tasks.Close())
	}
	return err
}

// viewed is what the projection has added up of the events.
type viewed struct{ Events, Sum uint64 }

// viewKey is the only one of the view.
const viewKey = "events"

// addToView is the function of the projection. It refuses an event that does not follow the one before.
func addToView(view *kv.Bucket, e event.Event) error {
	v, err := projection.Get[viewed](view, viewKey)
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return err
	}
	if e.Position != v.Events+1 {
		return fmt.Errorf("event %d is applied after %d others", e.Position, v.Events)
	}
	return projection.Set(view, viewKey, viewed{v.Events + 1, v.Sum + e.Position})
}

// checkView says what is wrong with the view: it is made of all events up to its position, of each once.
func (s *transactionStores) checkView(c *check) error {
	ctx := context.Background()
	progress, err := s.view.Progress(ctx)
	if errors.Is(err, holdfast.ErrCorrupt) || errors.Is(err, event.ErrAhead) {
		c.wrong("the position of the view: %v", err)
		return nil
	}
	if err != nil {
		return err
	}
	return s.db.View(ctx, func(tx *kv.Tx) error {
		v, err := projection.Get[viewed](s.view.View(tx), viewKey)
		if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
			return err
		}
		if last := max(progress.Next, 1) - 1; v.Events != last || v.Sum != last*(last+1)/2 {
			c.wrong("the view has %d events, of the sum %d, and its position is %d", v.Events, v.Sum, last)
		}
		return nil
	})
}

// follow runs the projection until stop is closed.
func (s *transactionStores) follow(w *worker, stop <-chan struct{}) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	for !stopped(stop) {
		if err := s.view.Run(ctx); err != nil && !w.refused(err) {
			return fmt.Errorf("the projection: %w", err)
		}
	}
	return nil
}

// What transaction n writes.

func transactionKey(n uint64) string    { return fmt.Sprintf("%016x", n) }
func transactionStream(n uint64) string { return fmt.Sprint("order-", n%transactionStreams) }
func transactionTask(n uint64) string   { return fmt.Sprint("task-", n) }

// value is what the transaction writes to one place.
func (p script) transaction(gen uint32, n uint64, place string) []byte {
	r := p.Random(gen, n)
	return p.Value(nil, place, commits.Written{N: n, Gen: gen, Size: commits.HeaderSize + r.IntN(100)})
}

// data is a value as a message has it.
func (p script) data(gen uint32, n uint64) []byte {
	return fmt.Appendf(nil, `{"value":"%x"}`, p.transaction(gen, n, "message"))
}

// update makes transaction n, which all before it were made for.
func (s *transactionStores) update(p script, gen uint32, n uint64) func(tx *kv.Tx) error {
	return func(tx *kv.Tx) error {
		b := tx.Bucket(transactionBucket)
		number, err := b.NextSequence()
		if err != nil {
			return err
		}

		// Transactions run one after another, in the order in which they were submitted: the number proves it.
		if number != n {
			return fmt.Errorf("transaction %d has number %d", n, number)
		}
		if err := b.Put([]byte(transactionKey(n)), p.transaction(gen, n, "bucket")); err != nil {
			return err
		}

		// Old keys go, so that the bucket does not grow with the history.
		if n > kept {
			if err := b.Delete([]byte(transactionKey(n - kept))); err != nil {
				return err
			}
		}

		stream := transactionStream(n)
		space := s.space.In(tx)

		// Read in the transaction, so it sees what all before it have written, durable or not.
		version, err := space.Version(stream)
		if err != nil {
			return err
		}
		if _, err := space.WriteAfter(stream, version, message.Message{Type: "order", Data: p.data(gen, n)}); err != nil {
			return err
		}

		log := s.log.In(tx)

		// The position of the event is the number of the transaction, or this fails.
		if _, err := log.AppendAfter(n-1, event.Event{Type: "order", Data: p.transaction(gen, n, "event")}); err != nil {
			return err
		}
		if err := log.SaveOffset(transactionOffset, n); err != nil {
			return err
		}

		tasks := s.tasks.In(tx)
		if _, err := tasks.Enqueue(task.Spec{Kind: "order", ID: transactionTask(n),
			Payload: p.transaction(gen, n, "task")}); err != nil {
			return err
		}

		// The task of the last transaction alone is waiting, which the judge checks.
		if n > 1 {
			err = tasks.Cancel(transactionTask(n - 1))
		}
		if err == nil && n > transactionTasks {
			err = tasks.Delete(transactionTask(n - transactionTasks))
		}
		return err
	}
}

// transactionWork submits transactions through several writers until stop is closed.
func transactionWork(w *worker, e holdfast.Engine, stop <-chan struct{}) (err error) {
	s, err := openTransactions(e, w.spec.Level)
	if err != nil {
		return w.failure(err, "opening the stores")
	}
	defer func() { err = errors.Join(err, w.failure(s.close(), "closing the stores")) }()
	if last := s.log.Last(); last+1 != w.next && !w.spec.Failing {
		// The stores are closed before they are opened again, or a check has seen what is there.
		w.wrong("the log ends with position %d, and the last transaction was %d", last, w.next-1)
		return nil
	}
	ctx := context.Background()
	given := e.Capabilities().Promise(w.spec.Level).Given
	p := scriptOf(w.spec.Seed)
	var group sync.WaitGroup
	for range w.spec.Writers {
		w.start(&group, func() error {
			for !stopped(stop) {
				w.pace()

				// The order of the numbers is that of the transactions, so number and submission are one step.
				w.mu.Lock()
				n := w.next
				w.report.Send(protocol.TellIssued, n, 0)
				pending, err := s.db.Submit(ctx, s.update(p, w.spec.Gen, n))
				if err == nil {
					w.next++
				}
				w.mu.Unlock()
				w.spent.Add(1500)
				if err == nil {
					// Some are not waited for. They may be lost, but only together with all behind them.
					if n%13 == 0 {
						continue
					}
					err = pending.Wait()
				}
				switch {
				case err == nil:
					w.acked(n, given)
				case !w.refused(err):
					return fmt.Errorf("transaction %d: %w", n, err)
				}
			}
			return nil
		})
	}
	w.start(&group, func() error { return s.follow(w, stop) })
	group.Wait()
	return nil
}

// The places of a transaction, in the words of their entries. "sequence" and "offset" are there once, and of the last
// one.
const (
	placeBucket   = "bucket"
	placeMessage  = "message"
	placeEvent    = "event"
	placeTask     = "task"
	placeSequence = "sequence"
	placeOffset   = "offset"
)

// transactionRead opens the stores and tells all that is in them.
func transactionRead(c *check, e holdfast.Engine, emit func(commits.Found)) error {
	s, err := openTransactions(e, c.spec.Level)
	if err != nil {
		return fmt.Errorf("opening the stores: %w", err)
	}
	return errors.Join(s.read(c, emit), s.close())
}

// read tells all that is in the database and its stores.
func (s *transactionStores) read(c *check, emit func(commits.Found)) error {
	ctx := context.Background()
	tell := func(place string, n uint64, key string, value []byte) {
		found := commits.NewFound(key, value)
		found.Key, found.N = place+" "+key, n
		emit(found)
	}
	if err := s.db.View(ctx, func(tx *kv.Tx) error {
		b := tx.Bucket(transactionBucket)
		last, err := b.Sequence()
		tell(placeSequence, last, "", nil)
		for key, value := range b.All() {
			var n uint64
			if _, err := fmt.Sscanf(string(key), "%x", &n); err != nil {
				c.wrong("the key %q is no transaction's", key)
			}
			tell(placeBucket, n, string(key), value)
		}
		return err
	}); err != nil {
		return err
	}

	for i := range uint64(transactionStreams) {
		stream := transactionStream(i)
		position := int64(0)
		for m, err := range s.space.Read(ctx, message.Query{Stream: stream}) {
			if err != nil {
				return err
			}
			if m.Position != position {
				c.wrong("position %d of stream %s follows %d", m.Position, stream, position-1)
			}
			position = m.Position + 1
			tell(placeMessage, uint64(m.Global), fmt.Sprintf("%s/%d", stream, m.Position), m.Data)
		}
	}
	for e, err := range s.log.Events(ctx, 1, 0) {
		if err != nil {
			return err
		}
		tell(placeEvent, e.Position, "", e.Data)
	}
	offset, err := s.log.LoadOffset(ctx, transactionOffset)
	if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
		return err
	}
	tell(placeOffset, offset, "", nil)
	if err := s.checkView(c); err != nil {
		return err
	}
	tasks, _, err := s.tasks.List(ctx, task.Filter{Limit: 1000})
	for _, t := range tasks {
		var n uint64
		if _, err := fmt.Sscanf(t.ID, "task-%d", &n); err != nil {
			c.wrong("the task %q is no transaction's", t.ID)
		}
		tell(placeTask, n, t.State.String(), t.Payload)
	}
	return err
}

// transactionJudge compares what is found with what the transactions up to the last one have left, in all places.
func transactionJudge(h *protocol.History, found []commits.Found) protocol.Judgement {
	var j protocol.Judgement
	v := commits.Verdict{Missing: map[uint64]bool{}}
	p := scriptOf(h.Seed)
	there := map[string]commits.Found{}
	last := map[string]uint64{} // by place
	for _, f := range found {
		var place string
		_, _ = fmt.Sscan(f.Key, &place)
		at := fmt.Sprint(place, f.N)
		if _, twice := there[at]; twice {
			v.Find(commits.Wrong, "%v: it is there twice", f)
		}
		there[at] = f
		last[place] = max(last[place], f.N)
		v.Last = max(v.Last, f.N)
	}
	if v.Last > h.Issued {
		v.Find(commits.Wrong, "something of transaction %d is there, and %d was the last that was begun", v.Last, h.Issued)
	}

	// Each transaction must be there in all places, with what it wrote, up to what later ones have deleted.
	for n := uint64(1); n <= v.Last; n++ {
		gen := h.Generation(n)
		state := task.Cancelled
		if n == v.Last {
			state = task.Waiting
		}
		stream := transactionStream(n)
		gone, parts := "", 0
		for _, want := range []struct {
			place, key string
			value      []byte
			lasts      uint64 // for so many transactions, 0 for ever
		}{
			{placeBucket, transactionKey(n), p.transaction(gen, n, "bucket"), kept},
			{placeMessage, fmt.Sprintf("%s/%d", stream, positionInStream(n)), p.data(gen, n), 0},
			{placeEvent, "", p.transaction(gen, n, "event"), 0},
			{placeTask, state.String(), p.transaction(gen, n, "task"), transactionTasks},
		} {
			f, ok := there[fmt.Sprint(want.place, n)]
			if want.lasts > 0 && n+want.lasts <= v.Last { // a later one has deleted it
				if ok {
					v.Find(commits.Torn, "%v is there, and transaction %d has deleted it", f, n+want.lasts)
				}
				continue
			}
			if !ok {
				gone += " " + want.place
				continue
			}
			parts++
			same := commits.NewFound(want.key, want.value)
			same.Key, same.N = want.place+" "+want.key, n
			if f != same {
				v.Find(commits.Wrong, "transaction %d has left %v, want %v", n, f, same)
			}
		}
		if gone == "" {
			continue
		}
		v.Missing[n] = true
		if parts > 0 {
			v.Find(commits.Torn, "transaction %d is there in part, without its%s", n, gone)
		} else {
			v.Find(commits.OutOfOrder, "transaction %d is not there, and %d is", n, v.Last)
		}
	}

	// Both are written by every transaction, so they must be those of the last one.
	for _, place := range []string{placeSequence, placeOffset} {
		if last[place] != v.Last {
			v.Find(commits.Torn, "the %s is that of transaction %d, and %d is the last one", place, last[place], v.Last)
		}
	}
	j.Settle(h, v)
	return j
}

// positionInStream is where the message of a transaction is: each stream has those of one remainder.
func positionInStream(n uint64) uint64 {
	if n%transactionStreams == 0 {
		return n/transactionStreams - 1
	}
	return n / transactionStreams
}
