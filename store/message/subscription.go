package message

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// SubscriptionOptions are how competing consumers share messages. The zero value is useful.
type SubscriptionOptions struct {
	// Query says which messages; it has no Stream and no Limit. From is where a new subscription begins.
	Query Query
	// Lease is how long a consumer has for a message before it is delivered again; 0 means 30 seconds.
	Lease time.Duration
	// MaxAttempts is how often a message is delivered before it is parked; 0 means 10.
	MaxAttempts int
	// Backoff is how long a message waits after its attempt, from 1, has failed; nil means 1 second, doubled each time,
	// up to a minute.
	Backoff func(attempt int) time.Duration
	// Window is how many messages may be delivered and not done, or wait to be delivered again; 0 means 1,000. If the
	// oldest of them stays undone, others are delivered until 16 times as many are done behind it.
	Window int
}

// Subscription delivers each message of a query to one of the consumers that call Claim, in order, and again until
// one has acknowledged it: at least once. An acknowledged or parked message survives what its context named, or the
// store's level.
//
// That a message was delivered, and how often, survives the end of the process before Claim returns it, or its own
// level if that is weaker: a message that ends its consumer's process is parked like any other. Leases survive Close,
// and that of the store: consumers elsewhere keep what they have until their leases end. After a crash, what is not
// done is delivered again at once. A message that is removed is done, also while a consumer has it.
//
// All methods may be called from many goroutines at once.
type Subscription struct {
	n    *Namespace
	name string
	o    SubscriptionOptions

	turn txn.Turn // of changes; its lock covers what follows
	window
	token   uint64 // of the last delivery
	closed  bool
	changed chan struct{} // closed and replaced when a claim may succeed

	removals uint64 // how many removals the namespace had had when those who are leased were looked at

	loading sync.Mutex // held while messages are read
	loaded  atomic.Bool
}

// Subscribe opens the subscription of that name, and creates it if needed. It can be open only once at a time:
// consumers share it. ErrLocked: it is open. ErrAhead: it is to begin beyond the end of the namespace, or has come
// beyond that, because the end was lost.
func (n *Namespace) Subscribe(ctx context.Context, name string, o SubscriptionOptions) (*Subscription, error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return nil, err
	}
	if what := checkName(name); what != "" {
		return nil, n.store.fail("subscribe", ErrBadName, nil, "", "%.80q: %s", name, what)
	}
	if err := n.checkQuery(&o.Query); err != nil {
		return nil, err
	}
	if o.Query.Stream != "" || o.Query.Limit != 0 || o.Lease < 0 || o.MaxAttempts < 0 || o.Window < 0 {
		return nil, n.store.fail("subscribe", holdfast.ErrBadOption, nil, "",
			"a subscription has no stream and no limit, and no option below 0")
	}
	o.Lease, o.MaxAttempts = cmp.Or(o.Lease, 30*time.Second), cmp.Or(o.MaxAttempts, 10)
	o.Window = min(cmp.Or(o.Window, 1000), math.MaxInt/doneWindows) // what is done behind it is counted, too
	if o.Backoff == nil {
		o.Backoff = func(attempt int) time.Duration { return min(time.Second<<min(attempt-1, 10), time.Minute) }
	}
	if err := n.enter(ctx); err != nil { // until it is closed
		return nil, err
	}
	s := &Subscription{n: n, name: name, o: o, changed: make(chan struct{}),
		window: newWindow()}
	s.turn.Of(n.db.Turn())
	n.mu.Lock()
	if n.subscriptions[name] != nil {
		n.mu.Unlock()
		n.leave()
		return nil, n.store.fail("subscribe", holdfast.ErrLocked, nil, "share the subscription that is open, or close it",
			"the subscription %q is open", name)
	}
	if n.subscriptions == nil {
		n.subscriptions = map[string]*Subscription{}
	}
	n.subscriptions[name] = s
	n.mu.Unlock()
	defer func() {
		if !s.loaded.Load() { // also if the engine has panicked
			s.release()
		}
	}()
	if err := s.load(ctx); err != nil {
		return nil, n.ended(err)
	}
	s.loaded.Store(true)
	return s, nil
}

func (s *Subscription) release() {
	s.n.mu.Lock()
	delete(s.n.subscriptions, s.name)
	s.n.mu.Unlock()
	s.n.leave()
}

// load reads what is kept, or makes the subscription.
func (s *Subscription) load(ctx context.Context) error {
	key := s.n.keys.Delivery(nil, s.name, 0)
	floor, err := s.n.storedNumber(key)
	if errors.Is(err, holdfast.ErrNotFound) {
		if err := s.n.checkFrom(&s.o.Query); err != nil {
			return err
		}
		floor = uint64(max(s.o.Query.From, 1))
		s.floor, s.next = floor, floor
		var b holdfast.Batch
		b.Set(key, format.AppendNumber(nil, floor))
		return s.n.commit(ctx, &b)
	}
	if err != nil {
		return err
	}
	if err := s.n.checkFrom(&Query{From: int64(floor)}); err != nil {
		return err
	}
	s.floor, s.next = floor, floor
	now := time.Now()
	return s.n.deliveries(format.TableDeliveries, s.name, 1, func(global uint64, d *delivery) error {
		if d.Done {
			s.set(global, nil, true)
			return nil
		}
		d.lease = d.left(now, s.o.Lease)
		s.set(global, &item{delivery: *d}, false)
		return nil
	})
}

// deliveries calls f for what is kept under a name in a table, from a global position on.
func (n *Namespace) deliveries(table byte, name string, from uint64, f func(global uint64, d *delivery) error) error {
	return n.each(table, name, from, func(global uint64, key, value []byte) error {
		var d delivery
		if err := json.Unmarshal(value, &d); err != nil {
			return n.strange(key)
		}
		return f(global, &d)
	})
}

// each calls f for the keys of a name in a table, from a number on.
func (n *Namespace) each(table byte, name string, from uint64, f func(at uint64, key, value []byte) error) error {
	lo := n.keys.Delivery(nil, name, from)
	if table == format.TableParked {
		lo = n.keys.Parked(nil, name, from)
	}
	it := n.store.eng.Scan(holdfast.Range{Lo: lo, Hi: n.keys.AfterPlaced(table, name)})
	defer it.Close()
	for it.Next() {
		_, at, ok := n.keys.Placed(it.Key())
		if !ok {
			return n.strange(it.Key())
		}
		if err := f(at, it.Key(), it.Value()); err != nil {
			return err
		}
	}
	return it.Err()
}

// Close ends the subscription for all its consumers: their calls get ErrClosed. What they have is theirs until their
// leases end: they can acknowledge it once it is opened again, and then it is delivered to others. An error means that
// the leases are not kept, and what is not done is delivered again at once. Closing twice returns ErrClosed. In the
// function of a transaction, Close is [kv.ErrNested], and the subscription stays open.
func (s *Subscription) Close() error {
	shut, err := s.shut()
	if !shut {
		return err
	}
	s.release()
	return s.n.ended(err)
}

// shut ends the subscription, if it may and nobody has.
func (s *Subscription) shut() (shut bool, err error) {
	if err := s.turn.Take(context.Background()); err != nil { // a transaction that has it ends first
		return false, err
	}
	defer s.turn.Give()
	if s.closed {
		return false, holdfast.ErrClosed
	}
	if !s.ended() { // else the namespace has kept them
		err = s.keepLeases()
	}
	s.closed = true
	s.wakeLocked()
	return true, err
}

// DeleteSubscription removes what is kept of a subscription, and its parked messages. ErrLocked: it is open.
func (n *Namespace) DeleteSubscription(ctx context.Context, name string) error {
	n.mu.Lock()
	open := n.subscriptions[name] != nil
	n.mu.Unlock()
	if open {
		return n.store.fail("delete subscription", holdfast.ErrLocked, nil, "close it first", "the subscription %q is open",
			name)
	}
	if err := cmp.Or(holdfast.CheckContext(ctx), n.db.Turn().Outside()); err != nil {
		return err
	}
	var b holdfast.Batch
	b.DeleteRange(n.keys.Delivery(nil, name, 0), n.keys.AfterPlaced(format.TableDeliveries, name))
	b.DeleteRange(n.keys.Parked(nil, name, 0), n.keys.AfterPlaced(format.TableParked, name))
	return n.ended(n.commit(ctx, &b))
}
