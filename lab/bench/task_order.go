package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/message"
	"github.com/holdfastdb/holdfast/store/task"
)

// taskOrder is orders: a message at the end of its client's stream, a task, and a row of the caller's own. Together
// they are one transaction; apart they are three, one after another, which is what the transaction's cost is compared
// with.
type taskOrder struct{ apart bool }

func taskOrderWorkloads() []Workload {
	workload := func(name, about string, apart bool) Workload {
		w := taskOrder{apart}
		return Workload{
			Name: name, About: about, Unit: "orders", Items: 1, Store: Tasks, Transactions: true, Clients: []int{1, 64},
			Overhead: 500 * time.Millisecond, Engine: w.engine, Floor: w.floor, Null: w.null,
		}
	}
	return []Workload{
		workload("task/order", "a message, a task and a row of one's own, in one transaction", false),
		workload("task/order-apart", "the same as task/order in three transactions, one after another", true),
	}
}

const (
	orderMessage = `{"client":%d,"number":%d,"what":"one of those that are sent to a customer"}`
	orderRow     = "row %09d of client %04d, in which is what the program itself keeps of an order"
	orderRecord  = 100 // bytes of a message or a row in the floor
)

// orders is what a queue does for this work.
type orders interface {
	contender.Tasks
	Order(ctx context.Context, o contender.Order, apart bool) (id string, err error)
	Orders(ctx context.Context, stream string, yield func(message, row []byte) error) error
}

// openOrders opens what is under test: the engine itself if it is a peer, else the stores and a bucket of ours.
func openOrders(e holdfast.Engine, level holdfast.Level) (orders, func() error, error) {
	if peer, ok := e.(contender.OrdersEngine); ok {
		return peer, func() error { return nil }, nil
	}
	db, err := kv.Open(e, kv.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}
	tasks, err := task.Open(db, task.Options{Level: level})
	if err != nil {
		return nil, nil, err
	}
	messages, err := message.Open(db, message.Options{Level: level})
	if err != nil {
		return nil, nil, errors.Join(err, tasks.Close())
	}
	shut := func() error { return errors.Join(messages.Close(), tasks.Close()) }
	space, err := messages.Namespace(context.Background(), message.Default)
	if err != nil {
		return nil, nil, errors.Join(err, shut())
	}
	return ourOrders{taskQueue{tasks}, db, space}, shut, nil
}

// ourOrders are orders in a database of package kv.
type ourOrders struct {
	taskQueue
	db    *kv.DB
	space *message.Namespace
}

// Order implements [contender.OrdersEngine].
func (q ourOrders) Order(ctx context.Context, o contender.Order, apart bool) (string, error) {
	placed := message.Message{Type: "Placed", Data: o.Message}
	spec := task.Spec{Kind: taskKind, Payload: o.Task.Args}
	row := fmt.Appendf(nil, "%s/%d", o.Stream, o.Position)
	if apart {
		if _, err := q.space.WriteAfter(ctx, o.Stream, o.Position-1, placed); err != nil {
			return "", err
		}
		results, err := q.Store.Enqueue(ctx, spec)
		if err == nil {
			err = q.db.Update(ctx, func(tx *kv.Tx) error { return tx.Bucket("rows").Put(row, o.Row) })
		}
		if err != nil {
			return "", err
		}
		return results[0].ID, nil
	}
	id := ""
	err := q.db.Update(ctx, func(tx *kv.Tx) error {
		if _, err := q.space.In(tx).WriteAfter(o.Stream, o.Position-1, placed); err != nil {
			return err
		}
		results, err := q.Store.In(tx).Enqueue(spec)
		if err != nil {
			return err
		}
		id = results[0].ID
		return tx.Bucket("rows").Put(row, o.Row)
	})
	return id, err
}

// Orders implements [contender.OrdersEngine].
func (q ourOrders) Orders(ctx context.Context, stream string, yield func(message, row []byte) error) error {
	return q.db.View(ctx, func(tx *kv.Tx) error {
		for m, err := range q.space.Read(ctx, message.Query{Stream: stream}) {
			if err != nil {
				return err
			}
			row, err := tx.Bucket("rows").Get(fmt.Appendf(nil, "%s/%d", stream, m.Position))
			if err != nil && !errors.Is(err, holdfast.ErrNotFound) {
				return err
			}
			if err := yield(m.Data, row); err != nil {
				return err
			}
		}
		return nil
	})
}

// orderBook is what was acknowledged: the tasks, and how many orders of each client.
type orderBook struct {
	*taskAcks
	placed []int64
	apart  bool
}

func (w taskOrder) book(clients int) *orderBook {
	return &orderBook{newTaskAcks(), make([]int64, clients), w.apart}
}

func orderStream(client int) string { return fmt.Sprintf("order-%d", client) }

// client places orders of client i.
func (b *orderBook) client(q orders, i int) func() error {
	ctx, stream := context.Background(), orderStream(i)
	return func() error {
		n := b.placed[i]
		o := contender.Order{
			Stream: stream, Position: n, Message: fmt.Appendf(nil, orderMessage, i, n),
			Task: contender.TaskSpec{Args: []byte(taskArgs)}, Row: fmt.Appendf(nil, orderRow, n, i),
		}
		id, err := q.Order(ctx, o, b.apart)
		if err != nil {
			return err
		}
		b.placed[i]++
		b.enqueuedOne(id)
		b.put.Add(int64(len(o.Message) + len(o.Row)))
		return nil
	}
}

// verify reads all messages, rows and tasks. An item is an order.
func (b *orderBook) verify(q orders) (items, checked int64, err error) {
	for i, want := range b.placed {
		n := int64(0)
		err := q.Orders(context.Background(), orderStream(i), func(message, row []byte) error {
			if !bytes.Equal(message, fmt.Appendf(nil, orderMessage, i, n)) ||
				!bytes.Equal(row, fmt.Appendf(nil, orderRow, n, i)) {
				return fmt.Errorf("%w: order %d of client %d has the message %q and the row %q", ErrWrong, n, i, message, row)
			}
			n++
			return nil
		})
		if err == nil && n != want {
			err = fmt.Errorf("%w: %d orders of client %d are there of %d", ErrWrong, n, i, want)
		}
		if err != nil {
			return items, items, err
		}
		items += n
	}
	_, _, err = b.taskAcks.verify(q, true, func(contender.Task) (bool, error) { return false, nil })
	return items, items, err
}

func (w taskOrder) engine(t Task) (Load, error) {
	table, err := openTable(t, openOrders)
	if err != nil {
		return Load{}, err
	}
	book := w.book(t.Clients)
	load := table.load(func(i int) func() error { return book.client(table.store, i) }, book.verify)
	load.Put = book.put.Load
	return load, nil
}

func (w taskOrder) null(t Task) (Load, error) {
	book, null := w.book(t.Clients), &nullOrders{}
	return null.load(func(i int) func() error { return book.client(null, i) }), nil
}

// nullOrders keeps nothing.
type nullOrders struct{ nullTasks }

// Order implements [contender.OrdersEngine].
func (n *nullOrders) Order(ctx context.Context, _ contender.Order, _ bool) (string, error) {
	ids, err := n.Enqueue(ctx)
	return ids[0], err
}

// Orders implements [contender.OrdersEngine].
func (n *nullOrders) Orders(context.Context, string, func(message, row []byte) error) error {
	return nil
}

// floor writes three records, at once or one after another.
func (w taskOrder) floor(t Task) (Load, error) {
	if w.apart {
		return taskFloor(t, 3)
	}
	return floorAppends(t, 3, orderRecord-kvKeySize)
}
