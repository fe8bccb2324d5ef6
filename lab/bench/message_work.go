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

// kinds are those of the operations, nil if all are writes.
func (m messageWrite) kinds() []string {
	if !m.reads {
		return nil
	}

	return []string{"write", "read"}
}

// client returns the operation of client i, and that the kind that it was of.
func (m messageWrite) client(t Task, i int, store contender.Messages, acked *messageAcks) func() (int, error) {
	ctx, random := context.Background(), rand.New(rand.NewPCG(t.Seed, uint64(i)))
	w := acked.writer(store, t.Seed, i)
	there := make([]int64, m.streams) // how many messages of each stream the client knows of
	stream, step := 0, 0

	return func() (int, error) {
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

			return 1, acked.readStream(store, stream, from, least, messageMixedReads, func(stamp) {})
		}
		step++
		stream = random.IntN(m.streams)
		position, err := w.write(ctx, stream)
		there[stream] = position + 1

		return 0, err
	}
}

func (m messageWrite) engine(t Task) (Load, error) {
	table, err := openTable(t, openMessages)
	if err != nil {
		return Load{}, err
	}
	acked := newMessageAcks(m.streams)
	load := table.load(nil, acked.verifier(t)).mix(m.kinds(), func(i int) func() (int, error) {
		return m.client(t, i, table.store, acked)
	})
	load.Put = acked.put.Load

	return load, nil
}

func (m messageWrite) null(t Task) (Load, error) {
	acked := newMessageAcks(m.streams)
	null := newNullMessages(acked.messageStreams)

	return null.load(nil).mix(m.kinds(), func(i int) func() (int, error) { return m.client(t, i, null, acked) }), nil
}

func (m messageWrite) floor(t Task) (Load, error) {
	if !m.reads {
		return floorAppends(t, 1, messageRecord)
	}
	written, err := newKVFloor(t, 1, messageRecord)
	if err != nil {
		return Load{}, err
	}
	const there = 1000
	read, err := newKVFloorLoaded(t, there, messageRecord)
	if err != nil {
		return Load{}, errors.Join(err, written.file.close())
	}
	load := written.load(nil).mix(m.kinds(), func(i int) func() (int, error) {
		write, reader, random := written.appender(i), read.reader(), rand.New(rand.NewPCG(t.Seed, uint64(i)))
		step := 0

		return func() (int, error) {
			if step == messageMixedReads {
				step = 0
				return 1, reader.read(random.IntN(there-messageMixedReads), messageMixedReads)
			}
			step++

			return 0, write()
		}
	})

	return load.with(read.load(nil)), nil
}

// messageRead is reads of messages of a category, or of all, that are there. Of n streams, each has one among the first
// n global positions, one among the next n, and so on: a round is n positions.
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

// fill writes what is there, a round at a time: a server that syncs is slow for one client alone.
func (l messageLayout) fill(store contender.Messages) error {
	acked := newMessageAcks(l.streams)
	acked.messageStreams = l.messageStreams

	var writers []*messageWriter
	for i := range l.streams {
		writers = append(writers, acked.writer(store, 0, i))
	}

	errs := make([]error, l.streams)
	for range l.stored / l.streams {
		var round sync.WaitGroup
		for i, w := range writers {
			round.Go(func() { _, errs[i] = w.write(context.Background(), i) })
		}
		round.Wait()
		if err := errors.Join(errs...); err != nil {
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
	rounds := (c.messageRead.read+c.each-1)/max(c.each, 1) + 1
	last := c.stored - rounds*c.streams + 1
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
	wanted   []bool  // by stream
	each     int     // how many of the streams are wanted
	seen     []int64 // by stream, the round in which the read has had it last, from 1
}

func (l messageLayout) newCheck(category string, group message.Group) *messageCheck {
	c := &messageCheck{messageLayout: l, category: category, group: group, seen: make([]int64, l.streams)}
	for _, name := range l.names {
		wanted := (category == "" || message.Category(name) == category) && group.Has(name)
		c.wanted = append(c.wanted, wanted)
		if wanted {
			c.each++
		}
	}

	return c
}

// read reads that many messages from a position on, all if limit is 0. Of each round but the first and the last it must
// have all that are wanted.
func (c *messageCheck) read(store contender.Messages, from int64, limit int) error {
	clear(c.seen)
	streams := int64(c.streams)
	first := (from-1)/streams + 1
	last, round, inRound, n := from-1, first, 0, 0
	err := store.ReadCategory(context.Background(), c.category, from, limit, c.group.Member, c.group.Size,
		func(global int64, stream string, data []byte) error {
			s, err := readStamp(data)
			if err != nil {
				return err
			}
			if at := (global-1)/streams + 1; at != round {
				if at != round+1 || inRound != c.each && round != first {
					return fmt.Errorf("%w: after global position %d comes %d, which leaves messages out", ErrWrong, last, global)
				}
				round, inRound = at, 0
			}
			if global <= last || s.stream >= c.streams || stream != c.names[s.stream] || !c.wanted[s.stream] ||
				s.number != round-1 || c.seen[s.stream] == round {
				return fmt.Errorf("%w: global position %d of stream %s, read after %d, holds %+v", ErrWrong, global, stream,
					last, s)
			}
			c.seen[s.stream] = round
			last = global
			inRound++
			n++

			return nil
		})
	if err == nil && limit == 0 {
		limit = c.stored / c.streams * c.each
	}
	if err == nil && n != limit {
		err = fmt.Errorf("%w: %d messages read from position %d on, of %d", ErrWrong, n, from, limit)
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
	return floorReads(t, r.stored, messageRecord, func(i int, f *kvFloorReader) func() error {
		random := rand.New(rand.NewPCG(t.Seed, uint64(i)))
		return func() error { return f.read(random.IntN(r.stored-r.read+1), r.read) }
	})
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

func (m messageFollow) client(t Task, i int, store contender.Messages, acked *messageAcks,
	d *messageDelivery) func() error {
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
	load.Put = acked.put.Load
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
	return nullLoad(client, func() (items int64) {
		for i := range n.counts {
			items += n.counts[i].Load()
		}

		return items
	})
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
	data, streams := layMessage(), int64(len(n.names))
	for global := from; limit > 0; global++ {
		i := int((global - 1) % streams)
		if !n.c.wanted[i] {
			continue
		}
		stamp{stream: i, number: (global - 1) / streams}.put(data)
		if err := yield(global, n.names[i], data); err != nil {
			return err
		}
		limit--
	}

	return nil
}
