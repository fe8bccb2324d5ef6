package message

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/txn"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// ErrLeaseLost: a delivery's lease ran out, and the message was delivered again, or the delivery is done with.
var ErrLeaseLost = errors.New("holdfast: lease lost")

// SavePosition stores how far a consumer has come: the last position that it has handled, in
// its stream or in the namespace; 0 for none. The last save wins. A position that readers do not see yet is
// [event.ErrAhead].
func (n *Namespace) SavePosition(ctx context.Context, consumer string, position int64) error {
	if position < 0 {
		return n.store.fail("save position", holdfast.ErrBadOption, nil, "", "position %d", position)
	}
	if err := n.enter(); err != nil {
		return n.ended(err)
	}
	defer n.leave()
	return n.ended(n.log().SaveOffset(ctx, consumer, uint64(position)))
}

// LoadPosition returns the position that SavePosition saved last, or ErrNotFound.
func (n *Namespace) LoadPosition(ctx context.Context, consumer string) (int64, error) {
	if err := n.enter(); err != nil {
		return 0, n.ended(err)
	}
	defer n.leave()
	position, err := n.log().LoadOffset(ctx, consumer)
	return int64(position), n.ended(err)
}

// DeletePosition removes a consumer's position. It is no error if there is none.
func (n *Namespace) DeletePosition(ctx context.Context, consumer string) error {
	if err := n.enter(); err != nil {
		return n.ended(err)
	}
	defer n.leave()
	return n.ended(n.log().DeleteOffset(ctx, consumer))
}

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

	turn    txn.Turn // of commits; its lock covers what follows
	items   map[uint64]*item
	done    map[uint64]bool // acknowledged, at or above floor
	floor   uint64          // all below is done, but for items
	next    uint64          // the first global position that has not been looked at
	token   uint64          // of the last delivery
	undo    []func()        // takes back what was changed for a commit that is not applied yet
	closed  bool
	changed chan struct{} // closed and replaced when a claim may succeed

	removals uint64 // how many removals the namespace had had when those who are leased were looked at

	loading sync.Mutex // held while messages are read
	loaded  atomic.Bool
}

// ClaimBytes is about how many bytes of data and metadata a call of [Subscription.Claim] or [Subscription.Parked]
// returns at most. One message is returned whatever its size.
const ClaimBytes = 8 << 20

func (m *Message) bytes() int { return len(m.Data) + len(m.Metadata) }

// item is a message that was looked at and is not done.
type item struct {
	delivery
	m     Message   // without a stream if it has to be read, again
	read  uint64    // how many removals the namespace had had when m was read
	token uint64    // of its delivery, 0 if it is not delivered
	until time.Time // the end of its lease, or when it is to be delivered again
}

// delivery is what is kept of a message that was delivered.
type delivery struct {
	Attempts int       `json:"attempts,omitempty"`
	Reason   string    `json:"reason,omitempty"` // of the last failure
	Done     bool      `json:"done,omitempty"`
	Parked   time.Time `json:"parked,omitzero"`
	Token    uint64    `json:"token,omitempty"` // of a lease that Close has found, which ends at Until
	Until    time.Time `json:"until,omitzero"`
}

// Delivery is a message that a consumer has for the time of its lease.
//
// Its Global and its Token name it: a consumer in another process, which knows no more, acknowledges, extends, fails or
// parks it as Delivery{Message: Message{Global: global}, Token: token}.
type Delivery struct {
	Message
	Attempt int // from 1
	// Token identifies this delivery among all deliveries of the message, also across restarts. It is above 0 and below
	// 2^53. Tokens follow the clock in microseconds: if that is set back between two openings of the subscription, a
	// token could come again.
	Token uint64
	s     *Subscription // nil if it was named from elsewhere
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
	if err := n.enter(); err != nil { // until it is closed
		return nil, n.ended(err)
	}
	s := &Subscription{n: n, name: name, o: o, items: map[uint64]*item{}, done: map[uint64]bool{},
		changed: make(chan struct{})}
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
	if err := s.load(ctx); err != nil {
		s.release()
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
	eng := s.n.store.eng
	key := s.n.keys.Delivery(nil, s.name, 0)
	value, err := eng.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		if err := s.n.checkFrom(&s.o.Query); err != nil {
			return err
		}
		s.floor = uint64(max(s.o.Query.From, 1))
		s.next = s.floor
		var b holdfast.Batch
		b.Set(key, format.AppendNumber(nil, s.floor))
		return s.n.commit(ctx, &b)
	}
	if err != nil {
		return err
	}
	var ok bool
	if s.floor, ok = format.Number(value); !ok {
		return s.n.strange(key)
	}
	if err := s.n.checkFrom(&Query{From: int64(s.floor)}); err != nil {
		return err
	}
	s.next = s.floor
	kept := map[uint64]delivery{}
	err = s.n.each(format.TableDeliveries, s.name, 1, func(global uint64, key, value []byte) error {
		var d delivery
		if err := json.Unmarshal(value, &d); err != nil {
			return s.n.strange(key)
		}
		kept[global] = d
		return nil
	})
	if err != nil {
		return err
	}
	for global, d := range kept {
		if d.Done {
			s.done[global] = true
			continue
		}
		it := &item{delivery: d}
		if latest := time.Now().Add(s.o.Lease); d.Token != 0 && d.Until.After(time.Now()) {
			it.token, it.until = d.Token, d.Until
			if it.until.After(latest) { // the clock was ahead
				it.until = latest
			}
		}
		it.Token, it.Until = 0, time.Time{}
		s.items[global] = it
	}
	return nil
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

// Claim waits until there is a message to be delivered, and delivers up to most of them, which is at least 1, and no
// more than fit in [ClaimBytes]. They are the caller's until their leases end. The error is ctx's, ErrClosed after
// Close, or the failure that keeps messages from coming. What is delivered when ctx ends is returned, without an error.
func (s *Subscription) Claim(ctx context.Context, most int) ([]Delivery, error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return nil, err
	}
	if most < 1 {
		return nil, s.n.store.fail("claim", holdfast.ErrBadOption, nil, "claim at least one", "a claim of %d messages", most)
	}
	topic := ""
	if s.o.Query.Category != "" {
		topic = "c" + s.o.Query.Category
	}
	if err := s.n.enter(); err != nil {
		return nil, s.n.ended(err)
	}
	defer s.n.leave()
	news, err := s.n.tail.subscribe(s.n, topic)
	if err != nil {
		return nil, s.n.ended(err)
	}
	defer s.n.tail.unsubscribe(s.n, topic, news)
	for {
		// What was loaded before a failure, or before ctx ended, is delivered all the same.
		failed := s.fill(ctx, most)
		claimed, wait, changed, err := s.take(ctx, most)
		if len(claimed) > 0 && err == nil {
			return claimed, nil
		}
		if err = cmp.Or(err, failed); err != nil {
			return nil, s.n.ended(err)
		}
		again := time.NewTimer(cmp.Or(wait, time.Hour))
		select {
		case <-changed:
		case <-news.changed:
		case <-again.C:
		case <-news.ended:
			err = s.n.ended(news.err)
		case <-ctx.Done():
			err = ctx.Err()
		}
		again.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// fill looks at more messages, if there are fewer than most to be delivered.
func (s *Subscription) fill(ctx context.Context, most int) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.turn.Lock()
	room, from := min(s.o.Window-len(s.items), doneWindows*s.o.Window-len(s.done)), s.next
	now, held := time.Now(), 0
	for _, it := range s.items {
		if !it.until.After(now) {
			most--
		}
		held += it.m.bytes()
	}
	s.turn.Unlock()
	room = min(room, most)
	end := s.n.log().Last()
	if room <= 0 || from > end || held >= ClaimBytes {
		return nil
	}
	read := s.n.removals.Load()
	next, err := s.n.walk(ctx, &s.o.Query, from, end, func(m Message) bool {
		global := uint64(m.Global)
		s.turn.Lock()
		defer s.turn.Unlock()
		s.next = global + 1
		if s.items[global] == nil && !s.done[global] {
			s.items[global] = &item{m: m, read: read}
			room--
			held += m.bytes()
		}
		return room > 0 && held < ClaimBytes
	})
	s.turn.Lock()
	defer s.turn.Unlock()
	s.next = max(s.next, next) // also if ctx has ended: the next claim goes on there
	return err
}

const (
	doneWindows  = 16   // how many windows of messages that are done are remembered
	advanceEvery = 1024 // global positions that nobody wants, after which a restart does not begin with them again
)

// take delivers what can be delivered now, the oldest first. If there is nothing it returns how long to wait at most,
// 0 if forever, and what tells of a change.
func (s *Subscription) take(ctx context.Context, most int) (claimed []Delivery, wait time.Duration,
	changed <-chan struct{}, err error) {
	var b holdfast.Batch
	claimed, wait, changed, err = s.decide(ctx, &b, most)
	if err != nil {
		return nil, 0, nil, err
	}
	var receipt holdfast.Receipt
	if b.Len() > 0 {
		receipt, err = s.applyAt(&b, holdfast.LevelFrom(ctx, min(s.n.store.o.Level, holdfast.Process)))
	}
	s.turn.Give()
	if err == nil && b.Len() > 0 {
		// Waited for before a consumer sees a message: what that does to its process must not undo the attempt.
		err = receipt.Wait()
	}
	if err != nil {
		return nil, 0, nil, err
	}
	return claimed, wait, changed, nil
}

// decide is take up to what it adds to b. It returns with the turn taken, unless it fails.
func (s *Subscription) decide(ctx context.Context, b *holdfast.Batch, most int) (claimed []Delivery,
	wait time.Duration, changed <-chan struct{}, err error) {
	if err := s.turn.Take(ctx); err != nil {
		return nil, 0, nil, err
	}
	fail := func(err error) ([]Delivery, time.Duration, <-chan struct{}, error) {
		s.rollBack()
		s.turn.Give()
		return nil, 0, nil, err
	}
	if s.ended() {
		return fail(holdfast.ErrClosed)
	}
	now, size := time.Now(), 0
	changed = s.changed

	// Removed messages that consumers have are done: they would hold the window until their leases end.
	removals := s.n.removals.Load()
	gone := removals != s.removals

	for _, global := range slices.Sorted(maps.Keys(s.items)) {
		it := s.items[global]
		if left := it.until.Sub(now); left > 0 {
			if gone {
				if _, err := s.n.at(ctx, global); errors.Is(err, holdfast.ErrNotFound) {
					s.touch(global)
					s.finish(b, global)
					continue
				} else if err != nil {
					gone = false // looked at again by the next claim
				}
			}
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		if len(claimed) == most {
			break
		}
		if it.Attempts >= s.o.MaxAttempts {
			s.touch(global)
			it.Reason = cmp.Or(it.Reason, fmt.Sprintf("delivered %d times, and never acknowledged: its leases ran out, or its "+
				"consumers were gone", it.Attempts))
			s.park(b, global, it)
			continue
		}

		// It is read again if it may have been removed since it was loaded.
		if it.m.Stream == "" || it.read != removals {
			m, err := s.n.at(ctx, global)
			if errors.Is(err, holdfast.ErrNotFound) {
				s.touch(global)
				s.finish(b, global)
				continue
			}
			if err != nil {
				if len(claimed) > 0 {
					break // the next claim says so
				}
				return fail(err)
			}
			it.m, it.read = m, removals
		}
		if size += it.m.bytes(); size > ClaimBytes && len(claimed) > 0 {
			break
		}
		s.touch(global)
		s.token = max(s.token+1, uint64(max(now.UnixMicro(), 0)))
		it.Attempts++
		it.token, it.until = s.token, now.Add(s.o.Lease)
		s.keep(b, global, it.delivery)
		claimed = append(claimed, Delivery{it.m, it.Attempts, it.token, s})
		it.m = Message{} // the consumer has it
	}
	if gone {
		s.removals = removals
	}
	if s.low() >= s.floor+advanceEvery {
		s.advance(b)
	}
	return claimed, wait, changed, nil
}

func (s *Subscription) keep(b *holdfast.Batch, global uint64, d delivery) {
	value, _ := json.Marshal(d) // of numbers, strings and times
	b.Set(s.n.keys.Delivery(nil, s.name, global), value)
}

// touch remembers what an item is, before it is changed for a commit.
func (s *Subscription) touch(global uint64) {
	if it, ok := s.items[global]; ok {
		was := *it
		s.undo = append(s.undo, func() {
			*it = was
			s.items[global] = it
		})
	} else {
		s.undo = append(s.undo, func() { delete(s.items, global) })
	}
}

// setDone says whether the message at a global position at or above floor is done with.
func (s *Subscription) setDone(global uint64, done bool) {
	if done == s.done[global] {
		return
	}
	mark := func(done bool) {
		if done {
			s.done[global] = true
		} else {
			delete(s.done, global)
		}
	}
	mark(done)
	s.undo = append(s.undo, func() { mark(!done) })
}

// finish adds to b that a message is done with. It has been touched.
func (s *Subscription) finish(b *holdfast.Batch, global uint64) {
	delete(s.items, global)
	if global >= s.floor {
		s.setDone(global, true)
		s.keep(b, global, delivery{Done: true})
	} else { // it was parked once
		b.Delete(s.n.keys.Delivery(nil, s.name, global))
	}
	s.advance(b)
}

// low is the first global position that is not done.
func (s *Subscription) low() uint64 {
	low := s.next
	for at := range s.items {
		if at >= s.floor {
			low = min(low, at)
		}
	}
	return low
}

// advance adds to b that the floor rises as far as all is done.
func (s *Subscription) advance(b *holdfast.Batch) {
	low := s.low()
	if low <= s.floor {
		return
	}
	for at := range s.done {
		if at < low {
			b.Delete(s.n.keys.Delivery(nil, s.name, at))
			s.setDone(at, false)
		}
	}
	floor := s.floor
	s.undo = append(s.undo, func() { s.floor = floor })
	s.floor = low
	b.Set(s.n.keys.Delivery(nil, s.name, 0), format.AppendNumber(nil, low))
}

// settle ends deliveries in one commit: change is called for the item of each, with what the commit is to have.
func (s *Subscription) settle(ctx context.Context, deliveries []Delivery, change change) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	if err := s.turn.Take(ctx); err != nil {
		return err
	}
	if s.ended() {
		s.turn.Give()
		return s.n.ended(holdfast.ErrClosed)
	}
	var b holdfast.Batch
	var lost error
	for i := range deliveries {
		if err := s.held(&deliveries[i]); err != nil {
			lost = err
			continue
		}
		s.end(&b, &deliveries[i], change)
	}
	receipt, err := s.apply(ctx, &b)
	s.turn.Give()
	if err == nil {
		err = receipt.Wait()
	}
	return errors.Join(s.n.ended(err), lost)
}

// change changes the item of a delivery, and adds to b what is kept of it.
type change func(b *holdfast.Batch, global uint64, it *item)

// held returns ErrLeaseLost if a delivery is not the caller's any more.
func (s *Subscription) held(d *Delivery) error {
	it := s.items[uint64(d.Global)]
	other := d.s != nil && (d.s.name != s.name || d.s.n.number != s.n.number)
	if other || d.Token == 0 || it == nil || it.token != d.Token {
		return s.n.store.fail("acknowledge", ErrLeaseLost, nil, "", "global position %d, token %d", d.Global, d.Token)
	}
	return nil
}

func (s *Subscription) end(b *holdfast.Batch, d *Delivery, change change) {
	s.touch(uint64(d.Global))
	change(b, uint64(d.Global), s.items[uint64(d.Global)])
}

// apply applies b, and wakes consumers. If it is refused, nothing has changed.
func (s *Subscription) apply(ctx context.Context, b *holdfast.Batch) (holdfast.Receipt, error) {
	return s.applyAt(b, holdfast.LevelFrom(ctx, s.n.store.o.Level))
}

func (s *Subscription) applyAt(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	receipt, err := s.n.applyAt(b, level)
	if err != nil {
		s.rollBack()
	}
	clear(s.undo)
	s.undo = s.undo[:0]
	s.wakeLocked()
	return receipt, err
}

// wake makes those who wait look again whether there is something to be delivered.
func (s *Subscription) wake() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.wakeLocked()
}

func (s *Subscription) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// rollBack takes back what was changed for a commit that is not applied.
func (s *Subscription) rollBack() {
	for _, undo := range slices.Backward(s.undo) {
		undo()
	}
	clear(s.undo)
	s.undo = s.undo[:0]
}

// ended reports whether the subscription or its namespace is closed.
func (s *Subscription) ended() bool {
	select {
	case <-s.n.stop:
		return true
	default:
		return s.closed
	}
}

// Ack says that messages are done, and returns when that has reached its level: they are never delivered again.
// ErrLeaseLost: some of them are no longer the caller's; the others are done.
func (s *Subscription) Ack(ctx context.Context, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, s.acked)
}

func (s *Subscription) acked(b *holdfast.Batch, global uint64, _ *item) { s.finish(b, global) }

// Fail says that messages could not be handled, and why. They are delivered again after a while, or parked if this was
// the last attempt. Errors are those of Ack.
func (s *Subscription) Fail(ctx context.Context, reason string, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, s.failed(reason))
}

func (s *Subscription) failed(reason string) change {
	return func(b *holdfast.Batch, global uint64, it *item) {
		it.Reason = reason
		if it.Attempts >= s.o.MaxAttempts {
			s.park(b, global, it)
			return
		}
		it.token, it.until = 0, time.Now().Add(s.o.Backoff(it.Attempts))
		s.keep(b, global, it.delivery)
	}
}

// Park parks messages at once, whatever attempt it is. Errors are those of Ack.
func (s *Subscription) Park(ctx context.Context, reason string, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, s.parked(reason))
}

func (s *Subscription) parked(reason string) change {
	return func(b *holdfast.Batch, global uint64, it *item) {
		it.Reason = reason
		s.park(b, global, it)
	}
}

// Extend restarts the leases of deliveries. Errors are those of Ack.
func (s *Subscription) Extend(ctx context.Context, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, func(_ *holdfast.Batch, _ uint64, it *item) { it.until = time.Now().Add(s.o.Lease) })
}

// Return gives back deliveries that no consumer has seen: it is as if they had not been delivered, and they are again
// at once. Errors are those of Ack.
func (s *Subscription) Return(ctx context.Context, deliveries ...Delivery) error {
	return s.settle(ctx, deliveries, func(b *holdfast.Batch, global uint64, it *item) {
		it.token, it.until = 0, time.Time{}
		if it.Attempts--; it.Attempts == 0 && it.Reason == "" {
			b.Delete(s.n.keys.Delivery(nil, s.name, global))
			return
		}
		s.keep(b, global, it.delivery)
	})
}

// SubscriptionInfo is the progress of a subscription.
type SubscriptionInfo struct {
	Done    int64 // all messages up to this global position are done, but for those that were replayed
	Behind  int64 // global positions from there to the last
	Pending int   // messages that are delivered, or wait to be delivered again
}

// SubscriptionState is a subscription of a namespace, open or not.
type SubscriptionState struct {
	Name string
	Open bool
	// Of one that is not open, Pending are those that will be delivered again at once.
	SubscriptionInfo
	Parked int
}

// Subscriptions describes up to limit subscriptions, in the order of their names' bytes, from the first that comes
// after the name after on. A limit of 0 means all. It opens none, and takes time in proportion to the messages that are
// pending and parked. What is applied and not durable yet counts.
func (n *Namespace) Subscriptions(ctx context.Context, after string, limit int) (list []SubscriptionState, err error) {
	if err := n.enter(); err != nil {
		return nil, n.ended(err)
	}
	defer n.leave()
	lo, hi := n.keys.Bounds(format.TableDeliveries)
	if after != "" {
		lo = n.keys.AfterPlaced(format.TableDeliveries, after)
	}
	for limit <= 0 || len(list) < limit {
		if err := holdfast.CheckContext(ctx); err != nil {
			return nil, err
		}
		name, err := n.nextName(lo, hi)
		if err != nil || name == "" {
			return list, n.ended(err)
		}
		state, err := n.subscription(name)
		if err == nil {
			list = append(list, state)
		} else if !errors.Is(err, holdfast.ErrNotFound) { // or it has been deleted meanwhile
			return nil, n.ended(err)
		}
		lo = n.keys.AfterPlaced(format.TableDeliveries, name)
	}
	return list, nil
}

// Subscription describes the subscription of that name without opening it. ErrNotFound: there is none.
func (n *Namespace) Subscription(ctx context.Context, name string) (SubscriptionState, error) {
	if err := holdfast.CheckContext(ctx); err != nil {
		return SubscriptionState{}, err
	}
	if err := n.enter(); err != nil {
		return SubscriptionState{}, n.ended(err)
	}
	defer n.leave()
	state, err := n.subscription(name)
	return state, n.ended(err)
}

func (n *Namespace) subscription(name string) (state SubscriptionState, err error) {
	state.Name = name
	key := n.keys.Delivery(nil, name, 0)
	value, err := n.store.eng.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return state, n.store.fail("subscription", holdfast.ErrNotFound, nil, "", "there is none of the name %.80q", name)
	}
	if err != nil {
		return state, err
	}
	floor, ok := format.Number(value)
	if !ok {
		return state, n.strange(key)
	}
	state.Done, state.Behind = int64(floor)-1, max(n.Last()-int64(floor)+1, 0)
	n.mu.Lock()
	open := n.subscriptions[name]
	n.mu.Unlock()
	if open != nil && open.loaded.Load() {
		state.Open, state.SubscriptionInfo = true, open.Info()
	} else if err := n.each(format.TableDeliveries, name, 1, func(_ uint64, key, value []byte) error {
		var d delivery
		if err := json.Unmarshal(value, &d); err != nil {
			return n.strange(key)
		}
		if !d.Done {
			state.Pending++
		}
		return nil
	}); err != nil {
		return state, err
	}
	return state, n.each(format.TableParked, name, 0, func(uint64, []byte, []byte) error {
		state.Parked++
		return nil
	})
}

// Info returns the progress of the subscription.
func (s *Subscription) Info() SubscriptionInfo {
	s.turn.Lock()
	defer s.turn.Unlock()
	pending := 0
	for _, it := range s.items {
		if it.Attempts > 0 {
			pending++
		}
	}
	low := s.low()
	return SubscriptionInfo{Done: int64(low) - 1, Behind: max(s.n.Last()-int64(low)+1, 0), Pending: pending}
}

// Close ends the subscription for all its consumers: their calls get ErrClosed. What they have is theirs until their
// leases end: they can acknowledge it once it is opened again, and then it is delivered to others. An error means that
// the leases are not kept, and what is not done is delivered again at once. Closing twice returns ErrClosed.
func (s *Subscription) Close() error {
	_ = s.turn.Take(context.Background()) // a transaction that has it ends first
	if s.closed {
		s.turn.Give()
		return holdfast.ErrClosed
	}
	var err error
	if !s.ended() { // else the namespace has kept them
		err = s.keepLeases()
	}
	s.closed = true
	s.wakeLocked()
	s.turn.Give()
	s.release()
	return s.n.ended(err)
}

// keepLeases stores which messages consumers have, and until when. It is called with the turn taken.
func (s *Subscription) keepLeases() error {
	var b holdfast.Batch
	now := time.Now()
	for global, it := range s.items {
		if d := it.delivery; it.token != 0 && it.until.After(now) {
			d.Token, d.Until = it.token, it.until.UTC()
			s.keep(&b, global, d)
		}
	}
	if b.Len() == 0 {
		return nil
	}
	receipt, err := s.n.applyAt(&b, min(s.n.store.o.Level, holdfast.Process))
	if err != nil {
		return err
	}
	return receipt.Wait()
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
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	var b holdfast.Batch
	b.DeleteRange(n.keys.Delivery(nil, name, 0), n.keys.AfterPlaced(format.TableDeliveries, name))
	b.DeleteRange(n.keys.Parked(nil, name, 0), n.keys.AfterPlaced(format.TableParked, name))
	return n.ended(n.commit(ctx, &b))
}
