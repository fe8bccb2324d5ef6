package message

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver/lifecycle"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/store/event"
	"github.com/holdfastdb/holdfast/store/internal/chunks"
	"github.com/holdfastdb/holdfast/store/message/internal/format"
)

// Namespace is an open namespace of a store: one log of messages with streams and categories. All methods may be
// called from many goroutines at once. It is closed with its store.
type Namespace struct {
	store   *Store
	db      *kv.DB // at the store's level
	id      string
	number  uint64
	keys    format.Namespace
	deleted atomic.Bool

	users int           // calls, followers and subscriptions that need the log; covered by Store.using, as is idle
	idle  *list.Element // in Store.idle, nil if it is not there

	loading  sync.Mutex                  // held while the log is opened or closed
	opened   atomic.Pointer[event.Store] // nil while the log is closed, which it is not while there are users
	closedAt atomic.Uint64               // the log's end, when it was closed
	life     lifecycle.Life              // entered by commits that are not the log's

	mu            sync.Mutex // covers what follows, for moments
	heads         heads
	tally         tally
	subscriptions map[string]*Subscription // those that are open
	edit          *edit                    // the commit of an import or removal that is under way

	removals atomic.Uint64 // how often messages have been removed

	counting sync.RWMutex     // held while counts are stored, read-locked while they are read
	storing  holdfast.Receipt // of the last counts that were stored; covered by counting
	editing  sync.Mutex       // held by imports and removals
	tail     dispatcher       // wakes followers
	stop     chan struct{}    // closed by close
}

func (s *Store) namespace(id string, d description) *Namespace {
	return &Namespace{store: s, db: s.db, id: id, number: d.Number, keys: s.keys.Of(d.Number), stop: make(chan struct{})}
}

// idWindow makes a log remember the ids of all its events.
const idWindow = 1 << 62

// load opens the log, if it is not open, and counts what has come since counts were stored.
func (n *Namespace) load() error {
	n.loading.Lock()
	defer n.loading.Unlock()
	select {
	case <-n.stop:
		return n.ended(holdfast.ErrClosed)
	default:
	}
	if n.opened.Load() != nil {
		return nil
	}
	log, err := event.Open(n.db, event.Options{
		Name: format.LogName(n.store.o.Name, n.number), Level: n.store.o.Level, IDWindow: idWindow,
		FoldIDs: true,
	})
	if err != nil {
		return err
	}

	// Counts are stored from time to time only. What was written since is counted again here, before anybody can see them.
	if err := n.recount(log); err != nil {
		return errors.Join(err, log.Close())
	}
	n.opened.Store(log)
	n.store.loaded.Add(1)
	return nil
}

// log is the namespace's log, for those who have entered.
func (n *Namespace) log() *event.Store { return n.opened.Load() }

// enter begins a call: it opens the log, if it is not open, and keeps it open until leave.
func (n *Namespace) enter(ctx context.Context) error {
	if err := holdfast.CheckContext(ctx); err != nil {
		return err
	}
	if n.deleted.Load() {
		return n.ended(holdfast.ErrClosed)
	}
	return n.use()
}

// use is enter, also of a namespace that is deleted.
func (n *Namespace) use() error {
	s := n.store

	// A user is counted before the log is opened: unload looks at the users with the same lock, and leaves the log open.
	s.using.Lock()
	n.users++
	s.using.Unlock()
	if n.opened.Load() != nil {
		return nil
	}
	err := n.load()
	if err != nil {
		n.leave()
	}
	return n.ended(err)
}

// leave ends what enter began. While there are too many open logs, it closes the one that has not been used the
// longest.
func (n *Namespace) leave() {
	s := n.store
	s.using.Lock()
	if n.users--; n.users == 0 && n.opened.Load() != nil && !n.life.Closed() {
		if n.idle == nil {
			n.idle = s.idle.PushBack(n)
		} else {
			s.idle.MoveToBack(n.idle)
		}
	}
	for s.loaded.Load() > int64(s.o.MaxOpen) && s.idle.Len() > 0 {
		// Closing a log waits for the disk, so using is given up meanwhile, and everything is looked at anew afterwards.
		oldest := s.idle.Front().Value.(*Namespace)
		s.busy(oldest)
		if oldest.users > 0 { // it comes back when they leave
			continue
		}
		s.using.Unlock()
		oldest.unload() // or another does, or it is in use again
		s.using.Lock()
	}
	s.using.Unlock()
}

// busy takes a namespace out of those that are idle. It is called with using held.
func (s *Store) busy(n *Namespace) {
	if n.idle != nil {
		s.idle.Remove(n.idle)
		n.idle = nil
	}
}

// unload closes the log if nobody uses it.
func (n *Namespace) unload() {
	n.loading.Lock()
	defer n.loading.Unlock()
	n.store.using.Lock()
	log := n.opened.Load()
	if n.users > 0 || log == nil || n.life.Closed() {
		n.store.using.Unlock()
		return
	}
	n.store.busy(n)

	// Last answers from here while the log is closed. It is stored before opened is cleared, so that nobody sees neither.
	n.closedAt.Store(log.Last())
	n.opened.Store(nil)
	n.store.using.Unlock()
	// Whoever comes now waits for loading.
	n.counting.Lock()
	_ = n.storeCountsLocked(context.Background(), false) // opening counts again what is not stored
	n.counting.Unlock()
	_ = log.Close() // writes have waited for what was to be durable
	n.mu.Lock()
	n.heads, n.tally = heads{}, tally{}
	n.mu.Unlock()
	n.store.loaded.Add(-1)
}

// apply applies a batch that is not the log's, at the level that ctx names or the store has, unless the namespace is
// closed: what is applied after that, nobody would remove.
func (n *Namespace) apply(ctx context.Context, b *holdfast.Batch) (holdfast.Receipt, error) {
	return n.applyAt(b, holdfast.LevelFrom(ctx, n.store.o.Level))
}

func (n *Namespace) applyAt(b *holdfast.Batch, level holdfast.Level) (holdfast.Receipt, error) {
	if err := n.life.Enter(); err != nil {
		return holdfast.Receipt{}, err
	}
	defer n.life.Leave()
	return n.store.eng.Apply(b, level)
}

// commit is apply and waiting.
func (n *Namespace) commit(ctx context.Context, b *holdfast.Batch) error {
	receipt, err := n.apply(ctx, b)
	if err != nil {
		return err
	}
	return receipt.Wait()
}

// ID is what the namespace is called.
func (n *Namespace) ID() string { return n.id }

// DB is the database that the namespace is in, at the store's level.
func (n *Namespace) DB() *kv.DB { return n.db }

// Last is the highest global position that readers see, 0 if there is none.
func (n *Namespace) Last() int64 {
	if log := n.opened.Load(); log != nil {
		return int64(log.Last())
	}
	return int64(n.closedAt.Load())
}

func (n *Namespace) close() error {
	n.loading.Lock()
	defer n.loading.Unlock()
	select {
	case <-n.stop:
		return holdfast.ErrClosed
	default:
		close(n.stop)
	}
	n.mu.Lock()
	open := slices.Collect(maps.Values(n.subscriptions))
	n.mu.Unlock()
	for _, s := range open {
		if s.turn.Take(context.Background()) == nil { // a transaction that has it ends first
			_ = s.keepLeases() // what is not kept is delivered again at once
			s.turn.Give()
		}
	}
	n.life.Shut()
	n.life.Wait()
	n.store.using.Lock()
	n.store.busy(n)
	n.store.using.Unlock()
	n.tail.shut()
	log := n.opened.Load()
	if log == nil {
		return nil
	}
	n.store.loaded.Add(-1)
	err := log.Close()
	n.tail.wait()
	return err
}

// ended replaces the error of a log that was closed because its namespace was deleted.
func (n *Namespace) ended(err error) error {
	if errors.Is(err, holdfast.ErrClosed) && n.deleted.Load() {
		return n.store.fail("namespace", ErrNoNamespace, nil, "", "%q has been deleted", n.id)
	}
	return err
}

// head is the end of a stream, and what is special about it.
type head struct {
	version int64  // NoStream if it has never had a message
	top     int64  // the highest position of a message that is there, NoStream if there is none
	global  uint64 // when the log is durable up to here, readers see what made the head so
	ended   bool
	edit    *edit // that has made it so and is under way: the engine may not show it
}

// edit is a commit of an import or removal, one at a time in a namespace.
type edit struct {
	done  chan struct{} // closed when it is durable or has failed
	shown bool          // readers do not see before that what it makes of a stream's head
}

// beginEdit begins an edit, and endEdit ends it, now that the engine shows the heads of the streams.
func (n *Namespace) beginEdit(shown bool) *edit {
	e := &edit{make(chan struct{}), shown}
	n.mu.Lock()
	n.edit = e
	n.mu.Unlock()
	return e
}

func (n *Namespace) endEdit(e *edit, streams ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, stream := range streams {
		if at, ok := n.heads.get(stream); ok && at.edit == e {
			at.edit = nil
			n.heads.put(stream, at, n.log().Last(), n.store.headsEach())
		}
	}
	n.edit = nil
	close(e.done)
}

// settled returns when an edit is done, or the present one if e is nil.
func (n *Namespace) settled(ctx context.Context, e *edit) error {
	if e == nil {
		n.mu.Lock()
		e = n.edit
		n.mu.Unlock()
		if e == nil {
			return nil
		}
	}
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// heads remembers the heads of streams that were lately written to. It is covered by mu.
type heads struct {
	young, old map[string]head
	carried    int    // heads that young had from the beginning, because they had to be kept
	dropped    uint64 // what was dropped is visible in the engine when the log is durable up to here
	edits      uint64 // removals, which no global position shows
}

// A store remembers about maxHeads heads, twice, in all its namespaces that are open, but minHeads for each. Tests
// change them.
var maxHeads, minHeads = 1 << 16, 1 << 7

// headsEach is how many heads each of the two generations of a namespace has.
func (s *Store) headsEach() int { return max(maxHeads/max(int(s.loaded.Load()), 1), minHeads) }

func (h *heads) get(stream string) (head, bool) {
	if at, ok := h.young[stream]; ok {
		return at, true
	}
	at, ok := h.old[stream]
	return at, ok
}

// put remembers a head. The engine shows those up to durable, of which each generation has about most.
func (h *heads) put(stream string, at head, durable uint64, most int) {
	if len(h.young) >= max(most, 2*h.carried) {
		young := map[string]head{}
		for stream, at := range h.old {
			if _, newer := h.young[stream]; newer {
				continue
			}
			if at.global > durable || at.edit != nil {
				young[stream] = at
			} else {
				h.dropped = max(h.dropped, at.global)
			}
		}
		h.old, h.young, h.carried = h.young, young, len(young)
	}
	if h.young == nil {
		h.young = map[string]head{}
	}
	h.young[stream] = at
}

// fetch remembers the head of a stream before a write has its turn, so that it does not have to read then.
func (n *Namespace) fetch(stream string) error {
	n.mu.Lock()
	_, known := n.heads.get(stream)
	edits := n.heads.edits
	n.mu.Unlock()
	if known {
		return nil
	}
	seen := n.log().Last()
	at, err := n.readHead(stream)
	if err != nil {
		return err
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.heads.get(stream); !known && n.heads.dropped <= seen && n.heads.edits == edits {
		at.global = seen
		n.heads.put(stream, at, seen, n.store.headsEach())
	}
	return nil
}

// headOf returns the head of a stream for a write whose turn it is.
func (n *Namespace) headOf(stream string) (head, error) {
	n.mu.Lock()
	at, known := n.heads.get(stream)
	n.mu.Unlock()
	if known {
		return at, nil
	}
	return n.readHead(stream)
}

// readHead reads a stream's head from the engine, which shows at least what is durable.
func (n *Namespace) readHead(stream string) (at head, err error) {
	at.version, at.top = NoStream, NoStream
	special, err := n.special(stream)
	if err != nil {
		return at, err
	}
	if special != nil {
		at.version, at.ended = special.Version, special.Ended
	}
	it := n.store.eng.Scan(holdfast.Range{
		Lo: n.keys.Stream(nil, stream, 0), Hi: n.keys.AfterStream(nil, stream), Reverse: true,
	})
	defer it.Close()
	if it.Next() {
		_, position, ok := n.keys.Placed(it.Key())
		if !ok {
			return at, n.strange(it.Key())
		}
		at.top = int64(position)
		at.version = max(at.version, at.top)
	}
	return at, it.Err()
}

func (n *Namespace) strange(key []byte) error {
	return n.store.fail("read", holdfast.ErrCorrupt, nil, "check the engine's files, or restore a backup",
		"the key %.80q, or its value, cannot be read", key)
}

// counts are what a category, or the namespace, has.
type counts struct{ messages, streams int64 }

func (c counts) plus(d counts) counts { return counts{c.messages + d.messages, c.streams + d.streams} }

// tally counts what has been written since counts were last stored, by category. It is covered by mu.
type tally struct {
	since   map[string]counts
	last    uint64            // the global position that it reaches up to
	counted uint64            // the one that stored counts reach up to
	blocks  map[string]uint64 // the last block that the index has of a category, for some
}

// maxBlocks is how many categories' last blocks are remembered.
const maxBlocks = 4096

func (t *tally) block(category string, block uint64) {
	if t.blocks == nil || len(t.blocks) >= maxBlocks {
		t.blocks = map[string]uint64{}
	}
	t.blocks[category] = block
}

// storeEvery is how many global positions counts may fall behind, which opening has to read.
const storeEvery = 4096

func (t *tally) add(category string, c counts) {
	if t.since == nil {
		t.since = map[string]counts{}
	}
	t.since[category] = t.since[category].plus(c)
}

// count is what a category, or the namespace, has in the tally.
func (t *tally) count(category string) (c counts) {
	if category != "" {
		return t.since[category]
	}
	for _, one := range t.since {
		c = c.plus(one)
	}
	return c
}

// recount makes the tally of what came after counts were stored.
func (n *Namespace) recount(log *event.Store) error {
	var err error
	if n.tally.counted, err = n.storedCounted(); err != nil {
		return err
	}
	n.tally.last = max(log.Last(), n.tally.counted)
	for r, err := range log.Records(context.Background(), n.tally.counted+1, 0) {
		if err != nil {
			return err
		}
		stream, _, first, ok := format.Place(r.Origin)
		if !ok {
			return n.foreign(r.Position)
		}
		c := counts{messages: 1}
		if first {
			c.streams = 1
		}
		n.tally.add(Category(string(stream)), c)
	}
	return nil
}

// storedCounted is the position that stored counts reach up to.
func (n *Namespace) storedCounted() (uint64, error) {
	counted, err := n.storedNumber(n.keys.Counted())
	if errors.Is(err, holdfast.ErrNotFound) {
		err = nil
	}
	return counted, err
}

// storedNumber reads a key whose value is a number.
func (n *Namespace) storedNumber(key []byte) (uint64, error) {
	value, err := n.store.eng.Get(nil, key)
	if err != nil {
		return 0, err
	}
	number, ok := format.Number(value)
	if !ok {
		return 0, n.strange(key)
	}
	return number, nil
}

func (n *Namespace) foreign(global uint64) error {
	return n.store.fail("read", holdfast.ErrCorrupt, nil, "", "the event at global position %d is no message", global)
}

// storeCounts stores the counts of all that has its place, so that opening need not count it again.
func (n *Namespace) storeCounts() error {
	n.counting.Lock()
	defer n.counting.Unlock()
	return n.storeCountsLocked(context.Background(), true)
}

// storeCountsLocked is called with counting held, and only ctx's level counts. Without wait it does not wait until
// they are durable.
func (n *Namespace) storeCountsLocked(ctx context.Context, wait bool) error {
	n.mu.Lock()
	since, last := n.tally.since, n.tally.last
	if last == n.tally.counted {
		n.mu.Unlock()
		return nil
	}
	n.tally.since = nil
	n.mu.Unlock()
	var b holdfast.Batch
	if wait { // for a removal
		chunks.Notes(&b, n.keys.Counted())
	}
	b.Set(n.keys.Counted(), format.AppendNumber(nil, last))
	err := n.addStored(&b, since)
	if err == nil {
		// The engine keeps the order: the counts survive only with the messages counted.
		var receipt holdfast.Receipt
		if receipt, err = n.apply(ctx, &b); err == nil {
			n.storing = receipt
		}
		if err == nil && wait {
			err = receipt.Wait()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		for category, c := range since {
			n.tally.add(category, c)
		}
		return err
	}
	n.tally.counted = last
	return nil
}

func (n *Namespace) storedCounts(category string) (c counts, err error) {
	key := n.keys.Count(category)
	value, err := n.store.eng.Get(nil, key)
	if errors.Is(err, holdfast.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	messages, streams, ok := format.Counts(value)
	if !ok {
		return c, n.strange(key)
	}
	return counts{int64(messages), int64(streams)}, nil
}

// Counts are how many messages and streams a category or namespace has. Those whose write is not durable yet count.
type Counts struct{ Messages, Streams int64 }

// Count returns the counts of a category, or of the namespace if it is "". They are kept, and not counted: it costs a
// read or two, and is zero for a category that has no messages.
func (n *Namespace) Count(ctx context.Context, category string) (Counts, error) {
	if err := n.enter(ctx); err != nil {
		return Counts{}, err
	}
	defer n.leave()
	c, err := n.count(category)
	return Counts{c.messages, c.streams}, n.ended(err)
}

func (n *Namespace) count(category string) (counts, error) {
	n.counting.RLock()
	defer n.counting.RUnlock()
	c, err := n.storedCounts(category)
	if err != nil {
		return counts{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return c.plus(n.tally.count(category)), nil
}
