package eventodb

import (
	"context"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast/store/message"
)

// hub has one topic for all that follow the same messages, so that each message is read and encoded once, however
// many follow it.
type hub struct {
	mu        sync.Mutex
	topics    map[topicKey]*topic
	followers atomic.Int64
}

// topicKey says which messages a topic has: those of a stream or a category, or with neither of the namespace.
type topicKey struct {
	namespace        *message.Namespace
	stream, category string
	group            message.Group
}

// A topic keeps the notes of the last messages, for followers that keep up. Those that do not read the store until they
// have caught up: what is kept has a bound, and the slowest follower holds back nobody.
type topic struct {
	key       topicKey
	stop      context.CancelFunc
	done      chan struct{} // closed when the topic reads no more
	joined    int           // covered by hub.mu
	followers atomic.Int64  // the same number

	mu      sync.Mutex
	from    int64 // what is kept are the notes of all messages from this position on
	notes   []note
	text    []byte        // of the notes; never changed, only appended to or replaced
	changed chan struct{} // closed when there is more; nil while nobody waits
	err     error         // why there will be no more
}

// note is the position of a message, in the order of the topic, and where the text of its note ends.
type note struct {
	position int64
	end      int
}

// How many bytes of notes a topic keeps: so many for each follower, within limits.
const (
	keepEach = 4 << 10
	keepMost = 256 << 10
)

// join returns the topic of what a follower wants, which begins now or has begun earlier, and counts the follower in.
func (h *hub) join(ctx context.Context, key topicKey) (*topic, error) {
	// What a new topic does not have can be read by now.
	from := key.namespace.Last() + 1
	if key.stream != "" {
		version, ok, err := key.namespace.Version(ctx, key.stream)
		if err != nil {
			return nil, err
		}
		if from = 0; ok {
			from = version + 1
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[key]
	if t == nil {
		ctx, stop := context.WithCancel(context.Background())
		t = &topic{key: key, stop: stop, done: make(chan struct{}), from: from}
		h.topics[key] = t
		go t.run(ctx, from)
	}
	t.joined++
	t.followers.Add(1)
	h.followers.Add(1)
	return t, nil
}

// leave counts a follower out. The last one ends the topic.
func (h *hub) leave(t *topic) {
	h.followers.Add(-1)
	h.mu.Lock()
	t.joined--
	t.followers.Add(-1)
	last := t.joined == 0
	if last && h.topics[t.key] == t {
		delete(h.topics, t.key)
	}
	h.mu.Unlock()
	if last {
		t.stop()
		<-t.done
	}
}

// failed takes a topic away that has ended, so that who comes now gets a new one.
func (h *hub) failed(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.topics[t.key] == t {
		delete(h.topics, t.key)
	}
}

func (t *topic) query(from int64) message.Query {
	return message.Query{Stream: t.key.stream, Category: t.key.category, Group: t.key.group, From: from}
}

// run keeps the notes of what comes from a position on.
func (t *topic) run(ctx context.Context, from int64) {
	defer close(t.done)
	for m, err := range t.key.namespace.Follow(ctx, t.query(from)) {
		t.add(&m, err)
	}
}

func (t *topic) add(m *message.Message, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.err = err
	} else {
		if len(t.text) > int(min(max(t.followers.Load(), 1)*keepEach, keepMost)) {
			t.drop()
		}
		t.text = appendNote(t.text, m)
		t.notes = append(t.notes, note{t.position(m), len(t.text)})
	}
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// drop forgets the first half of the notes. Who sends them has them still.
func (t *topic) drop() {
	half := len(t.notes) / 2
	cut := t.notes[half].end
	t.from = t.notes[half].position + 1
	t.text = append(make([]byte, 0, len(t.text)), t.text[cut:]...)
	t.notes = slices.Delete(t.notes, 0, half+1)
	for i := range t.notes {
		t.notes[i].end -= cut
	}
}

// position is that in the order of the topic.
func (t *topic) position(m *message.Message) int64 {
	if t.key.stream != "" {
		return m.Position
	}
	return m.Global
}

// take returns the text of the notes of all messages from a position on, and the position behind them. If there are
// none, changed is closed when there may be. If neither is returned, the topic has dropped what comes next: it is to be
// read from the store, see read.
func (t *topic) take(from int64) (text []byte, next int64, changed <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if from < t.from {
		return nil, from, nil, nil
	}
	i := sort.Search(len(t.notes), func(i int) bool { return t.notes[i].position >= from })
	if i == len(t.notes) {
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
		begin = t.notes[i-1].end
	}
	return t.text[begin:], t.notes[len(t.notes)-1].position + 1, nil, nil
}

// readEach is how many messages are read from the store at a time.
const readEach = 1000

// read appends the notes of messages from a position on, as the store has them, and returns the position behind them.
func (t *topic) read(ctx context.Context, text []byte, from int64) (_ []byte, next int64, err error) {
	t.mu.Lock()
	kept := t.from // all before that can be read by now
	t.mu.Unlock()
	q := t.query(from)
	q.Limit = readEach
	next = from
	count := 0
	for m, err := range t.key.namespace.Read(ctx, q) {
		if err != nil {
			return text, next, err
		}
		text = appendNote(text, &m)
		next = t.position(&m) + 1
		count++
	}
	if count < readEach {
		next = max(next, kept)
	}
	return text, next, nil
}

// appendNote appends the event that tells of a message.
func appendNote(b []byte, m *message.Message) []byte {
	b = appendText(append(b, "event: poke\ndata: {\"stream\":"...), m.Stream)
	b = strconv.AppendInt(append(b, `,"position":`...), m.Position, 10)
	b = strconv.AppendInt(append(b, `,"globalPosition":`...), m.Global, 10)
	return append(b, "}\n\n"...)
}
