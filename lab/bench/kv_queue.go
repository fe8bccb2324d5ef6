package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/holdfastdb/holdfast"
)

// kvQueue is a table of constant size in which keys are put at one end and deleted at the other. Each client has a
// queue of its own, below a prefix: its keys ascend, and none comes again.
type kvQueue struct {
	live  int  // keys of all clients, one for each at least
	batch int  // keys that a transaction puts, and as many others that it deletes
	take  bool // puts and deletes take turns, and what is deleted is looked for, as the first key, and read
}

// Both are with keys of a queue's own size: the number of the client and that of the key, big endian.
type kvQueueKey [kvKeySize]byte

func (k *kvQueueKey) of(client, number uint32) []byte {
	binary.BigEndian.PutUint32(k[:], client)
	binary.BigEndian.PutUint64(k[4:], uint64(number))

	return k[:]
}

// kvQueueWorkloads are a table from which the oldest is removed, and queues.
func kvQueueWorkloads(oldest, queued int) []Workload {
	var list []Workload
	for _, w := range []struct {
		name, about string
		work        kvQueue
	}{
		{"kv/retention", "put 100 keys behind the last of 100,000 and delete the 100 first, in one transaction; " +
			"use a long --for", kvQueue{live: oldest, batch: kvBatch}},
		{"kv/queue", "put a key behind the last of 1,000, or look for the first, read and delete it, in turns, each a " +
			"transaction", kvQueue{live: queued, batch: 1, take: true}},
	} {
		list = append(list, Workload{Name: w.name, About: w.about, Unit: "keys", Items: w.work.batch,
			ItemBytes: kvKeySize + kvValueSize, OneKey: w.work.take, KeyOrder: Ascending, Overhead: 200 * time.Millisecond,
			Engine: w.work.engine, Floor: w.work.floor, Null: w.work.null})
	}

	return list
}

// kvQueues are the queues of all clients.
type kvQueues struct {
	kvStore
	values kvValues
	ends   []kvQueueEnds // by client
}

// kvQueueEnds are the numbers of the first key of a queue and of the one behind its last. Only its client changes them.
type kvQueueEnds struct {
	head, tail uint32
	_          [56]byte // no two clients write to one cache line
}

// queues are those that are there to begin with.
func (q kvQueue) queues(t Task) *kvQueues {
	s := &kvQueues{kvStore: kvStore{task: t}, values: newKVValues(kvValueSize, t.Seed),
		ends: make([]kvQueueEnds, t.Clients)}
	for i := range s.ends {
		s.ends[i].tail = q.each(t)
	}

	return s
}

// each is how many keys one queue has.
func (q kvQueue) each(t Task) uint32 { return uint32(max(q.live/t.Clients, q.batch)) }

// kinds are those of the operations, nil if all are of one.
func (q kvQueue) kinds() []string {
	if !q.take {
		return nil
	}

	return []string{"put", "take"}
}

// client is client i, with what reads its first key, and what keeps a batch.
func (q kvQueue) client(s *kvQueues, i int, first func() error, keep func(*holdfast.Batch) error) func() (int, error) {
	ends, value, turn, size := &s.ends[i], s.values.lay(make([]byte, s.values.size)), i, int64(0)
	var batch holdfast.Batch
	var key kvQueueKey
	put := func() {
		s.values.fill(value, uint32(i), ends.tail)
		batch.Set(key.of(uint32(i), ends.tail), value)
		ends.tail++
		size += kvKeySize + int64(len(value))
	}
	remove := func() {
		batch.Delete(key.of(uint32(i), ends.head))
		ends.head++
		size += kvKeySize
	}

	return func() (kind int, err error) {
		batch.Reset()

		switch turn++; {
		case !q.take:
			for range q.batch {
				put()
				remove()
			}
		case turn%2 == 1 || ends.head == ends.tail:
			put()
		default:
			if kind, err = 1, first(); err != nil {
				return kind, err
			}
			remove()
		}
		s.bytes.Add(size)
		size = 0

		return kind, keep(&batch)
	}
}

// load is a load of clients that keep batches so, and read first keys so.
func (q kvQueue) load(s *kvQueues, first func(i int) func() error, keep func(*holdfast.Batch) error) Load {
	return s.kvStore.load(s.items, s.compare).mix(q.kinds(), func(i int) func() (int, error) {
		return q.client(s, i, first(i), keep)
	})
}

func (q kvQueue) engine(t Task) (Load, error) {
	s := q.queues(t)
	if err := s.open(); err != nil {
		return Load{}, err
	}
	if err := s.settle(s.fill); err != nil {
		return Load{}, err
	}

	return q.load(s, s.first, func(b *holdfast.Batch) error { return holdfast.Commit(s.engine, b, t.Level) }), nil
}

func (q kvQueue) null(t Task) (Load, error) {
	return q.load(q.queues(t), func(int) func() error { return func() error { return nil } },
		func(*holdfast.Batch) error { return nil }), nil
}

// floor appends what is put, and another record for each key that is taken, after reading one.
func (q kvQueue) floor(t Task) (Load, error) {
	if !q.take {
		return floorAppends(t, q.batch, kvValueSize)
	}
	written, err := newKVFloor(t, q.batch, kvValueSize)
	if err != nil {
		return Load{}, err
	}
	read, err := newKVFloorLoaded(t, int(q.each(t)), kvValueSize)
	if err != nil {
		return Load{}, errors.Join(err, written.file.close())
	}
	load := written.load(nil).mix(q.kinds(), func(i int) func() (int, error) {
		reader, write, turn, key := read.reader(), written.appender(i), i, uint32(0)

		return func() (kind int, err error) {
			if turn++; turn%2 == 0 {
				kind, err = 1, reader.get(key)
				key = (key + 1) % q.each(t)
			}

			return kind, errors.Join(err, write())
		}
	})

	return load.with(read.load(nil)), nil
}

// fill puts what is there to begin with.
func (s *kvQueues) fill(level holdfast.Level) error {
	value := s.values.lay(make([]byte, s.values.size))
	var batch holdfast.Batch
	var key kvQueueKey
	for i, ends := range s.ends {
		for number := ends.head; number < ends.tail; number++ {
			s.values.fill(value, uint32(i), number)
			if batch.Set(key.of(uint32(i), number), value); batch.Size() < kvPreloadBytes {
				continue
			}
			if err := holdfast.Commit(s.engine, &batch, level); err != nil {
				return err
			}
			batch.Reset()
		}
	}
	if batch.Len() == 0 {
		return nil
	}

	return holdfast.Commit(s.engine, &batch, level)
}

// first returns what reads the first key of a client's queue, which it looks for, and checks it.
func (s *kvQueues) first(i int) func() error {
	var begin, end, want kvQueueKey
	r := holdfast.Range{Lo: begin.of(uint32(i), 0), Hi: end.of(uint32(i)+1, 0)}

	return func() (err error) {
		it := s.engine.Scan(r)
		defer func() { err = errors.Join(err, wrong(it.Close())) }()

		return s.next(it, want.of(uint32(i), s.ends[i].head), uint32(i), s.ends[i].head)
	}
}

// next checks that an iterator comes to this key of a client.
func (s *kvQueues) next(it holdfast.Iterator, key []byte, client, number uint32) error {
	switch {
	case !it.Next():
		return fmt.Errorf("%w: key %d of client %d is not there, nor anything behind it", ErrWrong, number, client)
	case !bytes.Equal(it.Key(), key):
		return fmt.Errorf("%w: %x where key %d of client %d should be", ErrWrong, it.Key(), number, client)
	}

	return s.values.check(it.Value(), client, number)
}

// items is how many keys there should be.
func (s *kvQueues) items() (n int64) {
	for _, ends := range s.ends {
		n += int64(ends.tail - ends.head)
	}

	return n
}

// compare walks over all of r, which must hold what is in the queues, and nothing else. It returns how many keys it
// compared.
func (s *kvQueues) compare(r holdfast.Reader) (n int64, err error) {
	it := r.Scan(holdfast.Range{})
	defer func() { err = errors.Join(err, wrong(it.Close())) }()

	var key kvQueueKey
	for i, ends := range s.ends {
		for number := ends.head; number < ends.tail; number++ {
			if err := s.next(it, key.of(uint32(i), number), uint32(i), number); err != nil {
				return n, err
			}
			n++
		}
	}
	if it.Next() {
		return n, fmt.Errorf("%w: %x behind the last key", ErrWrong, it.Key())
	}

	return n, nil
}
