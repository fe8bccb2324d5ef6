// Package fanout sends what many clients of a server follow: each message is read and encoded once, however many
// follow it, and the slowest follower holds back nobody.
package fanout

import (
	"context"
	"iter"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast/server/problem"
)

// Source is items in the order of their positions, which may be followed. Its functions are called at the same time.
type Source struct {
	// Next returns a position behind all items that are there when it is called.
	Next func(context.Context) (int64, error)
	// Follow yields the items from a position on, and then each new one. It ends with an error.
	Follow func(ctx context.Context, from int64) iter.Seq2[Item, error]
	// Read yields the existing items from a position on, up to a maximum number.
	Read func(ctx context.Context, from int64, limit int) iter.Seq2[Item, error]
}

// Item is one of a source, as it is sent. The text is valid until the next one is asked for.
type Item struct {
	Position int64
	Text     []byte
}

// Items yields what seq does as items. encode appends to b the text of one, and returns its position too.
func Items[T any](seq iter.Seq2[T, error], encode func(b []byte, v *T) ([]byte, int64, error)) iter.Seq2[Item, error] {
	// The text is the same memory for each item, so whoever keeps it copies it.
	return func(yield func(Item, error) bool) {
		var item Item
		for v, err := range seq {
			if err == nil {
				item.Text, item.Position, err = encode(item.Text[:0], &v)
			}
			if !yield(item, err) || err != nil {
				return
			}
		}
	}
}

// Hub has one topic for all that follow the same. The zero Hub is ready. Its methods may be called at the same time.
type Hub struct {
	mu        sync.Mutex
	topics    map[any]*topic
	followers atomic.Int64
}

// Followers is how many follow.
func (h *Hub) Followers() int64 { return h.followers.Load() }

// Output is how one client is sent what it follows.
type Output struct {
	// Send sends whole items, which it must not change.
	Send func(text []byte) error
	// Idle is called when there was nothing to send for so long.
	Idle      func() error
	IdleAfter time.Duration
	// Stopping is closed when following is to end. It may be nil.
	Stopping <-chan struct{}
}

// Follow sends the items of a source from a position on, and then each new one: in order, none missing, none twice.
// Sources with the same key, which must be comparable, are the same. It returns the error of ctx, of out, with which
// the source has ended, or ErrStopping.
func (h *Hub) Follow(ctx context.Context, key any, source Source, from int64, out Output) error {
	t, since, err := h.join(ctx, key, source)
	if err != nil {
		return err
	}
	defer h.leave(t)

	timer := time.NewTimer(out.IdleAfter)
	defer timer.Stop()

	for {
		// Three cases: there is text, there is nothing yet, or the topic does not have what comes next, which is then read
		// from the store.
		text, next, wake, err := t.take(from, since)
		idle, after := text == nil, out.IdleAfter
		switch {
		case err != nil:
			h.failed(t)
			return err
		case text == nil && wake == nil:
			// The store is read without the topic's lock. What comes meanwhile is in the topic when this has caught up.
			if text, next, err = t.read(ctx, nil, from, since); err != nil {
				return err
			}
		}
		if len(text) > 0 {
			if err := out.Send(text); err != nil {
				return err
			}
		}

		if from = next; wake == nil {
			continue
		}
		if !idle {
			if after = t.pause(); after == 0 {
				continue
			}
		}

		// Something was sent, or there was nothing: in both cases silence begins anew.
		timer.Reset(after)

		select {
		case <-wake:
		case <-timer.C:
			if !idle {
				continue
			}
			if err := out.Idle(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-out.Stopping:
			return problem.ErrStopping
		}
	}
}

// A topic keeps the texts of the last items, for followers that keep up. Those that do not read the store until they
// have caught up: what is kept has a bound.
type topic struct {
	key       any
	source    Source
	stop      context.CancelFunc
	done      chan struct{} // closed when the topic reads no more
	joined    int           // covered by Hub.mu
	followers atomic.Int64  // the same number

	mu      sync.Mutex
	from    int64 // what is kept are the texts of all items from this position on
	kept    []kept
	text    []byte        // of them; never changed, only appended to or replaced
	changed chan struct{} // closed when there is more; nil while nobody waits
	much    chan struct{} // closed when there is much more, see pauseEach; nil while nobody waits
	more    int           // bytes that have come since it was last closed
	err     error         // why there will be no more
}

// kept is the position of an item, and where its text ends.
type kept struct {
	position int64
	end      int
}

// How many bytes a topic keeps: so many for each follower, within limits.
const (
	keepEach = 4 << 10
	keepMost = 256 << 10
)

// To wake a follower and write to it takes 7 us of a processor however little it gets, and as much on the other side.
// So where many follow, each pauses after it was sent something, for so long for each of them: 12 ms where 1,000 do.
// They do not pause at the same time, so that what comes is sent to some at once, and to the last a pause later. The
// first message after silence is sent to all at once, and few followers do not pause. Much text ends all pauses.
const (
	pauseEach = 12 * time.Microsecond
	pauseFrom = 100 // followers
)

// pause is how long a follower pauses.
func (t *topic) pause() time.Duration {
	followers := t.followers.Load()
	if followers < pauseFrom {
		return 0
	}

	return time.Duration(followers) * pauseEach
}

// How many items, and about how many bytes of them, a follower reads from the store at a time.
const (
	readItems = 1000
	readBytes = 32 << 10
)

// join returns the topic of what a follower wants, which begins now or has begun earlier, and counts the follower in.
// What lies before the position since is for the follower to read from the store: what a topic has of that may have
// been removed meanwhile, and what a new topic does not have can be read by now.
func (h *Hub) join(ctx context.Context, key any, source Source) (t *topic, since int64, err error) {
	// It is asked before the lock is taken, because it reads the store.
	since, err = source.Next(ctx)
	if err != nil {
		return nil, 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.topics[key]
	if t == nil {
		ctx, stop := context.WithCancel(context.Background())
		t = &topic{key: key, source: source, stop: stop, done: make(chan struct{}), from: since}
		if h.topics == nil {
			h.topics = map[any]*topic{}
		}

		h.topics[key] = t
		go t.run(ctx, since)
	}
	t.joined++
	t.followers.Add(1)
	h.followers.Add(1)

	return t, since, nil
}

// leave counts a follower out. The last one ends the topic.
func (h *Hub) leave(t *topic) {
	h.followers.Add(-1)
	h.mu.Lock()
	t.joined--
	t.followers.Add(-1)
	last := t.joined == 0
	if last && h.topics[t.key] == t {
		delete(h.topics, t.key)
	}
	h.mu.Unlock()

	// The topic's goroutine has ended when leave returns: nothing reads the store for it any more.
	if last {
		t.stop()
		<-t.done
	}
}

// failed takes a topic away that has ended, so that who comes now gets a new one.
func (h *Hub) failed(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.topics[t.key] == t {
		delete(h.topics, t.key)
	}
}

// run keeps the texts of what comes from a position on.
func (t *topic) run(ctx context.Context, from int64) {
	defer close(t.done)

	for item, err := range t.source.Follow(ctx, from) {
		t.add(item, err)
	}
}

// add keeps an item's text, or the error that ends the topic, and wakes all that wait.
func (t *topic) add(item Item, err error) {
	followers := t.followers.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	keep := int(min(max(followers, 1)*keepEach, keepMost))
	if err != nil {
		t.err = err
	} else {
		if len(t.text) > keep {
			t.drop()
		}

		// Followers that were given a part of the text keep it: bytes below its length do not change.
		t.text = append(t.text, item.Text...)
		t.kept = append(t.kept, kept{item.Position, len(t.text)})
		t.more += len(item.Text)
	}

	// Closing wakes all at once. The next one that waits makes a new channel.
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}

	// Who pauses for long would have to read from the store what is dropped meanwhile.
	if err != nil || t.more >= keep/4 {
		t.more = 0
		if t.much != nil {
			close(t.much)
			t.much = nil
		}
	}
}

// drop forgets the first half of what is kept. Who sends it has it still.
func (t *topic) drop() {
	// A new array, not the old one moved: followers may be sending what they were given.
	half := len(t.kept) / 2
	cut := t.kept[half].end
	t.from = t.kept[half].position + 1
	t.text = append(make([]byte, 0, len(t.text)), t.text[cut:]...)
	t.kept = slices.Delete(t.kept, 0, half+1)
	for i := range t.kept {
		t.kept[i].end -= cut
	}
}

// take returns the text of all kept items from a position on, the position behind them, and what is closed when there
// may be so much more that a pause is to end; nil if there is to be none. If there are no items, wake is closed when
// there may be. If neither text nor wake is returned, what comes next lies before since, or the topic has dropped it:
// it is to be read from the store, see read.
func (t *topic) take(from, since int64) (text []byte, next int64, wake <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from < max(t.from, since) {
		return nil, from, nil, nil
	}
	i := sort.Search(len(t.kept), func(i int) bool { return t.kept[i].position >= from })

	if i == len(t.kept) {
		if t.err != nil {
			return nil, from, nil, t.err
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}

		return nil, from, t.changed, nil
	}

	begin := 0
	if i > 0 {
		begin = t.kept[i-1].end
	}
	text, next = t.text[begin:], t.kept[len(t.kept)-1].position+1
	if t.err != nil {
		return text, next, nil, nil // no pause: the error comes next
	}
	if t.much == nil {
		t.much = make(chan struct{})
	}

	return text, next, t.much, nil
}

// read appends the texts of items from a position on, as the store has them, and returns the position behind them.
func (t *topic) read(ctx context.Context, text []byte, from, since int64) (_ []byte, next int64, err error) {
	t.mu.Lock()
	kept := max(t.from, since) // all before that can be read by now
	t.mu.Unlock()
	next = from

	count := 0
	for item, err := range t.source.Read(ctx, from, readItems) {
		if err != nil {
			return text, next, err
		}
		text, next = append(text, item.Text...), item.Position+1
		if count++; count == readItems || len(text) >= readBytes {
			return text, next, nil
		}
	}

	return text, max(next, kept), nil
}
