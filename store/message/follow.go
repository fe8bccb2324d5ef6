package message

import (
	"context"
	"iter"
	"sync"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Follow yields the messages of a query, and then each new one as soon as it has reached the store's level: in order,
// none missing, none twice. The loop ends with an error: ctx's, ErrClosed after Close, ErrNoNamespace after Delete,
// ErrAhead if the query begins beyond the end, or in another history, or the failure that keeps new messages from
// arriving. Any number of followers may run; one that waits costs nothing when messages of other streams or categories
// arrive. It is not told of messages that are imported or removed behind it.
func (n *Namespace) Follow(ctx context.Context, q Query) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if err := n.checkQuery(&q); err != nil {
			yield(Message{}, err)
			return
		}
		err := n.enter(ctx)
		if err == nil {
			defer n.leave()
			if err = n.checkFrom(&q); err == nil {
				err = n.follow(ctx, &q, yield)
			}
		}
		if err != nil {
			yield(Message{}, n.ended(err))
		}
	}
}

func (n *Namespace) follow(ctx context.Context, q *Query, yield func(Message, error) bool) error {
	topic := ""
	switch {
	case q.Stream != "":
		topic = "s" + q.Stream
	case q.Category != "":
		topic = "c" + q.Category
	}
	s, err := n.tail.subscribe(n, topic)
	if err != nil {
		return err
	}
	defer n.tail.unsubscribe(n, topic, s)
	on := true
	for from := uint64(max(q.From, 0)); ; {
		// What comes after this is told by the signal.
		end := n.log().Last()
		from, err = n.walk(ctx, q, from, end, func(m Message) bool {
			on = yield(m, nil)
			return on
		})
		if err != nil || !on {
			return err
		}
		select {
		case <-s.changed:
		case <-s.ended:
			return s.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// dispatcher reads what is new in a namespace once for all its followers, and wakes those whom it concerns. It runs
// while there are any.
type dispatcher struct {
	mu      sync.Mutex
	topics  map[string]map[*subscriber]struct{} // a stream's or category's, or all
	stop    context.CancelFunc                  // of the goroutine that runs, if one does
	running sync.WaitGroup
	closed  bool // no goroutine is started any more
}

// subscriber is a follower as the dispatcher knows it.
type subscriber struct {
	changed chan struct{} // of capacity 1: there are new messages
	ended   chan struct{} // closed when there will be no more
	err     error         // why; set before
}

// subscribe registers a follower. What is durable by the time it returns it reads itself.
func (d *dispatcher) subscribe(n *Namespace, topic string) (*subscriber, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, holdfast.ErrClosed
	}
	s := &subscriber{changed: make(chan struct{}, 1), ended: make(chan struct{})}
	if d.topics == nil {
		d.topics = map[string]map[*subscriber]struct{}{}
	}
	if d.topics[topic] == nil {
		d.topics[topic] = map[*subscriber]struct{}{}
	}
	d.topics[topic][s] = struct{}{}
	if d.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		d.stop = stop
		log := n.log()
		from := log.Last() + 1
		d.running.Go(func() { d.run(ctx, n, log, from) })
	}
	return s, nil
}

func (d *dispatcher) unsubscribe(n *Namespace, topic string, s *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.topics[topic], s)
	if len(d.topics[topic]) == 0 {
		delete(d.topics, topic)
	}
	if len(d.topics) == 0 && d.stop != nil {
		d.stop()
		d.stop = nil
	}
}

// run wakes followers of what comes from a global position on, until ctx ends.
func (d *dispatcher) run(ctx context.Context, n *Namespace, log *event.Store, from uint64) {
	for r, err := range log.FollowRecords(ctx, from) {
		if err == nil {
			if stream, _, _, ok := format.Place(r.Origin); ok {
				d.wake(string(stream))
				continue
			}
			err = n.foreign(r.Position)
		}
		d.mu.Lock()
		if ctx.Err() == nil {
			for topic, all := range d.topics {
				for s := range all {
					s.err = err
					close(s.ended)
				}
				delete(d.topics, topic)
			}
			d.stop = nil
		}
		d.mu.Unlock()
		return
	}
}

func (d *dispatcher) wake(stream string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, topic := range [...]string{"", "s" + stream, "c" + Category(stream)} {
		for s := range d.topics[topic] {
			select {
			case s.changed <- struct{}{}:
			default:
			}
		}
	}
}

// shut takes no followers from now on.
func (d *dispatcher) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
}

// wait returns when the dispatcher has ended, after it was shut and the log closed.
func (d *dispatcher) wait() { d.running.Wait() }
