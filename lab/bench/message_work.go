package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast/lab/contender"
	"github.com/holdfastdb/holdfast/store/message"
)

// messageWrite is writes of one message each, to streams at random.
type messageWrite struct {
	streams  int
	reads    bool // of the end of a stream, after every messageMixedReads writes
	anywhere bool // reads are anywhere in a stream instead
}

func (m messageWrite) client(t Task, i int, store contender.Messages, acked *messageAcks) func() error {
	ctx, random := context.Background(), rand.New(rand.NewPCG(t.Seed, uint64(i)))
	w := acked.writer(store, t.Seed, i)
	there := make([]int64, m.streams) // how many messages of each stream the client knows of
	stream, step := 0, 0
	return func() error {
		if m.reads && step == messageMixedReads {
			step = 0
			if s := random.IntN(m.streams); there[s] > 0 {
				stream = s
			}
			from := max(there[stream]-messageMixedReads, 0)
			if m.anywhere {
				from = random.Int64N(from + 1)
			}
			least := min(there[stream], messageMixedReads)
			return acked.readStream(store, stream, from, least, messageMixedReads, func(stamp) {})
		}
		step++
		stream = random.IntN(m.streams)
		position, err := w.write(ctx, stream)
		there[stream] = position + 1
		return err
	}
}

func (m messageWrite) engine(t Task) (Load, error) {
	table, err := openTable(t, openMessages)
	if err != nil {
		return Load{}, err
	}
	acked := newMessageAcks(m.streams)
	return table.load(func(i int) func() error { return m.client(t, i, table.store, acked) }, acked.verifier(t)), nil
}

func (m messageWrite) null(t Task) (Load, error) {
	acked := newMessageAcks(m.streams)
	null := newNullMessages(acked.messageStreams)
	return null.load(func(i int) func() error { return m.client(t, i, null, acked) }), nil
}

func (m messageWrite) floor(t Task) (Load, error) {
	written, err := newKVFloor(t, 1, messageRecord)
	if err != nil {
		return Load{}, err
	}
	if !m.reads {
		return written.load(written.appender), nil
	}
	const there = 1000
	read, err := newKVFloorLoaded(t, there, messageRecord)
	if err != nil {
		return Load{}, errors.Join(err, written.file.close())
	}
	load := written.load(func(i int) func() error {
		write, reader, random := written.appender(i), read.reader(), rand.New(rand.NewPCG(t.Seed, uint64(i)))
		step := 0
		return func() error {
			if step == messageMixedReads {
				step = 0
				return reader.read(random.IntN(there-messageMixedReads), messageMixedReads)
			}
			step++
			return write()
		}
	})
	return load.with(read.load(nil)), nil
}

// messageRead is reads of messages of a category, or of all, that are there: global position g is in stream (g-1) % n
// at position (g-1) / n, of n streams.
type messageRead struct {
	messageSizes
	whole      bool // the whole log, not a category of it
	categories int  // that the streams belong to in turn, 0 for one
	group      int  // members of the consumer group of which each client is one, 0 for none
}

// messageLayout is what reads must find.
type messageLayout struct {
	messageRead
	messageStreams
}

func (r messageRead) layout() messageLayout {
	return messageLayout{r, newMessageStreams(r.streams, r.categories)}
}

// fill writes what is there.
func (l messageLayout) fill(store contender.Messages) error {
	acked := newMessageAcks(l.streams)
	acked.messageStreams = l.messageStreams
	w := acked.writer(store, 0, 0)
	for i := range l.stored {
		if _, err := w.write(context.Background(), i%l.streams); err != nil {
			return err
		}
	}
	return nil
}

// check returns what reads for client i.
func (l messageLayout) check(i int) *messageCheck {
	category, group := messageCategory, message.Group{}
	if l.whole {
		category = ""
	}
	if l.group > 0 {
		group = message.Group{Member: i % l.group, Size: l.group}
	}
	return l.newCheck(category, group)
}

// client reads again and again, each time from a random position on.
func (c *messageCheck) client(t Task, i int, store contender.Messages) func() error {
	// The last position from which enough is there.
	last := c.stored - (c.messageRead.read+c.each-1)/max(c.each, 1)*c.streams
	random := rand.New(rand.NewPCG(t.Seed, uint64(i)))
	return func() error {
		return c.read(store, int64(1+random.IntN(max(last, 1))), c.messageRead.read)
	}
}

// messageCheck reads, and compares with the layout.
type messageCheck struct {
	messageLayout
	category string
	group    message.Group
	wanted   []bool // by stream
	each     int    // how many of the streams are wanted
}

func (l messageLayout) newCheck(category string, group message.Group) *messageCheck {
	c := &messageCheck{messageLayout: l, category: category, group: group}
	for _, name := range l.names {
		wanted := (category == "" || message.Category(name) == category) && group.Has(name)
		c.wanted = append(c.wanted, wanted)
		if wanted {
			c.each++
		}
	}
	return c
}

// next is the first position from g on that is wanted.
func (c *messageCheck) next(g int64) int64 {
	for c.each > 0 && !c.wanted[(g-1)%int64(c.streams)] {
		g++
	}
	return g
}

// read reads that many messages from a position on, all if limit is 0.
func (c *messageCheck) read(store contender.Messages, from int64, limit int) error {
	want, n := c.next(from), 0
	err := store.ReadCategory(context.Background(), c.category, from, limit, c.group.Member, c.group.Size,
		func(global int64, stream string, data []byte) error {
			s, err := readStamp(data)
			if err != nil {
				return err
			}
			if at := (want - 1) % int64(c.streams); global != want || int64(s.stream) != at || s.number != want-1 ||
				stream != c.names[at] {
				return fmt.Errorf("%w: global position %d of stream %s holds %+v where position %d was read", ErrWrong, global,
					stream, s, want)
			}
			n++
			want = c.next(want + 1)
			return nil
		})
	if err == nil && (limit > 0 && n != limit || limit == 0 && want <= int64(c.stored)) {
		err = fmt.Errorf("%w: %d messages read from position %d on, position %d is not there", ErrWrong, n, from, want)
	}
	return err
}

func (r messageRead) engine(t Task) (Load, error) {
	l := r.layout()
	table, err := openTableLoaded(t, openMessages, l.fill)
	if err != nil {
		return Load{}, err
	}
	return table.load(func(i int) func() error { return l.check(i).client(t, i, table.store) },
		func(store contender.Messages) (int64, int64, error) {
			all := l.newCheck("", message.Group{})
			return int64(l.stored), int64(l.stored), all.read(store, 1, 0)
		}), nil
}

func (r messageRead) null(t Task) (Load, error) {
	l := r.layout()
	null := newNullMessages(l.messageStreams)
	return null.load(func(i int) func() error {
		c := l.check(i)
		return c.client(t, i, nullReads{null, c})
	}), nil
}

func (r messageRead) floor(t Task) (Load, error) {
	f, err := newKVFloorLoaded(t, r.stored, messageRecord)
	if err != nil {
		return Load{}, err
	}
	return f.load(func(i int) func() error {
		reader, random := f.reader(), rand.New(rand.NewPCG(t.Seed, uint64(i)))
		return func() error { return reader.read(random.IntN(r.stored-r.read+1), r.read) }
	}), nil
}

// messageFollow is writes that end when a follower has the message.
type messageFollow struct{ streams int }

// messageDelivery hands what a follower gets to the clients that wrote it.
type messageDelivery struct {
	to   []chan struct{} // by client, of capacity 1
	next []int64         // the number of each client's next message
	stop context.CancelFunc
	done chan struct{} // closed when the follower has ended
	err  error         // why, nil if it was stopped; set before
}

// follow starts a follower of the category. end must be called.
func (m messageFollow) follow(t Task, store contender.Messages) *messageDelivery {
	ctx, stop := context.WithCancel(context.Background())
	d := &messageDelivery{next: make([]int64, t.Clients), stop: stop, done: make(chan struct{})}
	for range t.Clients {
		d.to = append(d.to, make(chan struct{}, 1))
	}
	go func() {
		defer close(d.done)
		last, err := int64(0), error(nil)
		followErr := store.Follow(ctx, messageCategory, 1, func(global int64, data []byte) bool {
			if err = d.deliver(global, last, data); err != nil {
				return false
			}
			last = global
			return true
		})
		if d.err = errors.Join(err, followErr); ctx.Err() != nil && err == nil {
			d.err = nil
		} else if d.err == nil {
			d.err = fmt.Errorf("%w: it ended by itself", ErrWrong)
		}
	}()
	return d
}

func (d *messageDelivery) deliver(global, last int64, data []byte) error {
	s, err := readStamp(data)
	if err != nil {
		return err
	}
	if global <= last || s.client >= len(d.next) || s.number != d.next[s.client] {
		return fmt.Errorf("%w: a follower gets %+v at global position %d, after %d", ErrWrong, s, global, last)
	}
	d.next[s.client]++
	d.to[s.client] <- struct{}{} // a client waits for one message at a time
	return nil
}

// end stops the follower, and returns what went wrong.
func (d *messageDelivery) end() error {
	d.stop()
	<-d.done
	if d.err != nil {
		return fmt.Errorf("follower: %w", d.err)
	}
	return nil
}

func (m messageFollow) client(t Task, i int, store contender.Messages, acked *messageAcks, d *messageDelivery) func() error {
	ctx, random := context.Background(), rand.New(rand.NewPCG(t.Seed, uint64(i)))
	w := acked.writer(store, t.Seed, i)
	return func() error {
		if _, err := w.write(ctx, random.IntN(m.streams)); err != nil {
			return err
		}
		select {
		case <-d.to[i]:
			return nil
		case <-d.done:
			return d.end()
		}
	}
}

func (m messageFollow) engine(t Task) (Load, error) {
	table, err := openTable(t, openMessages)
	if err != nil {
		return Load{}, err
	}
	acked := newMessageAcks(m.streams)
	d := m.follow(t, table.store)
	verify := acked.verifier(t)
	load := table.load(func(i int) func() error { return m.client(t, i, table.store, acked, d) },
		func(store contender.Messages) (int64, int64, error) {
			items, checked, err := verify(store)
			return items, checked, errors.Join(err, d.end())
		})
	load.Close = func() error { return errors.Join(d.end(), table.close()) }
	return load, nil
}

func (m messageFollow) null(t Task) (Load, error) {
	acked := newMessageAcks(m.streams)
	null := newNullMessages(acked.messageStreams)
	null.written = make(chan []byte, t.Clients)
	d := m.follow(t, null)
	load := null.load(func(i int) func() error { return m.client(t, i, null, acked, d) })
	load.Close = d.end
	return load, nil
}

// floor has a goroutine in the follower's place.
func (m messageFollow) floor(t Task) (Load, error) {
	f, err := newKVFloor(t, 1, messageRecord)
	if err != nil {
		return Load{}, err
	}
	written := make(chan chan struct{})
	var follower sync.WaitGroup
	follower.Go(func() {
		for to := range written {
			to <- struct{}{}
		}
	})
	load := f.load(func(i int) func() error {
		write, to := f.appender(i), make(chan struct{}, 1)
		return func() error {
			if err := write(); err != nil {
				return err
			}
			written <- to
			<-to
			return nil
		}
	})
	load.Close = func() error {
		close(written)
		follower.Wait()
		return f.file.close()
	}
	return load, nil
}

// nullMessages counts messages and keeps nothing. What is read from it is made up.
type nullMessages struct {
	messageStreams
	counts  []atomic.Int64
	written chan []byte // for a follower; nil if there is none
}

func newNullMessages(s messageStreams) *nullMessages {
	return &nullMessages{messageStreams: s, counts: make([]atomic.Int64, len(s.names))}
}

func (n *nullMessages) load(client func(int) func() error) Load {
	return Load{
		Client: client,
		Close:  func() error { return nil },
		Verify: func() (items, checked int64, err error) {
			for i := range n.counts {
				items += n.counts[i].Load()
			}
			return items, 0, nil
		},
	}
}

// Write implements [contender.Messages].
func (n *nullMessages) Write(_ context.Context, stream, _, _ string, data, _ []byte, _ *int64) (int64, error) {
	if n.written != nil {
		n.written <- bytes.Clone(data)
	}
	return n.counts[n.index[stream]].Add(1) - 1, nil
}

// ReadStream implements [contender.Messages].
func (n *nullMessages) ReadStream(_ context.Context, stream string, from int64, limit int,
	yield func(position int64, data []byte) error) error {
	data, i := layMessage(), n.index[stream]
	for at := from; at < min(from+int64(limit), n.counts[i].Load()); at++ {
		stamp{stream: i}.put(data)
		if err := yield(at, data); err != nil {
			return err
		}
	}
	return nil
}

// ReadCategory implements [contender.Messages].
func (n *nullMessages) ReadCategory(context.Context, string, int64, int, int, int,
	func(global int64, stream string, data []byte) error) error {
	return nil
}

// Follow implements [contender.Messages].
func (n *nullMessages) Follow(ctx context.Context, _ string, _ int64,
	yield func(global int64, data []byte) bool) error {
	for global := int64(1); ; global++ {
		select {
		case data := <-n.written:
			if !yield(global, data) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close implements [contender.Messages].
func (n *nullMessages) Close() error { return nil }

// nullReads makes up what its client expects of a category.
type nullReads struct {
	*nullMessages
	c *messageCheck
}

// ReadCategory implements [contender.Messages].
func (n nullReads) ReadCategory(_ context.Context, _ string, from int64, limit, _, _ int,
	yield func(global int64, stream string, data []byte) error) error {
	data := layMessage()
	for global := n.c.next(from); limit > 0; global = n.c.next(global + 1) {
		i := int(global-1) % len(n.names)
		stamp{stream: i, number: global - 1}.put(data)
		if err := yield(global, n.names[i], data); err != nil {
			return err
		}
		limit--
	}
	return nil
}
