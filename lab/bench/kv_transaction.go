package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/kv"
	"github.com/holdfastdb/holdfast/lab/contender"
)

// kvTransaction is transactions that read any of so many counters, count it up by one, and put a new key. All clients
// share the counters. The count of a counter is the version of its value, so that in the end it tells how often it was
// counted up, and each value that is read whether it is whole. The new keys are those of a queue of each client.
type kvTransaction struct{ keys int }

func (c kvTransaction) workload() Workload {
	return Workload{
		Name: "kv/transaction",
		About: "get a random key of 100,000, put it with its count raised by one, and put " +
			"a new key, in one serializable transaction",
		Unit:         "transactions",
		Stored:       "keys",
		Items:        1,
		ItemBytes:    kvKeySize + kvValueSize,
		Transactions: true,
		KeyOrder:     Random,
		Clients:      []int{1, 64},
		Loaded:       int64(c.keys) * (kvKeySize + kvValueSize),
		Overhead:     500 * time.Millisecond,
		Engine:       c.engine,
		Floor:        c.floor,
		Null:         c.null,
	}
}

// kvTransactions are a contender's.
type kvTransactions interface {
	// Update is that of [contender.TransactionsEngine].
	Update(f func(tx contender.Tx) error) error
	// all yields all keys, in order.
	all(yield func(key, value []byte) error) error
}

// openTransactions is on the engine itself if it is a peer, else on package kv over it.
func openTransactions(e holdfast.Engine, level holdfast.Level) (kvTransactions, error) {
	if peer, ok := e.(contender.TransactionsEngine); ok {
		return kvPeer{peer}, nil
	}
	db, err := kv.Open(e, kv.Options{Level: level})
	return kvOurs{db}, err
}

// kvPeer is a peer with transactions.
type kvPeer struct{ contender.TransactionsEngine }

func (p kvPeer) all(yield func(key, value []byte) error) error {
	it := p.Scan(holdfast.Range{})
	var err error
	for err == nil && it.Next() {
		err = yield(it.Key(), it.Value())
	}
	return errors.Join(err, wrong(it.Close()))
}

// kvOurs is one bucket in package kv.
type kvOurs struct{ db *kv.DB }

const kvBucket = "kv"

func (o kvOurs) Update(f func(tx contender.Tx) error) error {
	return o.db.Update(context.Background(), func(tx *kv.Tx) error { return f(kvOursTx{tx.Bucket(kvBucket)}) })
}

func (o kvOurs) all(yield func(key, value []byte) error) error {
	return o.db.View(context.Background(), func(tx *kv.Tx) error {
		c := tx.Bucket(kvBucket).Cursor()
		for key, value := c.First(); key != nil; key, value = c.Next() {
			if err := yield(key, value); err != nil {
				return err
			}
		}
		return wrong(c.Err())
	})
}

type kvOursTx struct{ bucket *kv.Bucket }

// Get implements [contender.Tx].
func (t kvOursTx) Get(dst, key []byte) ([]byte, error) {
	value, err := t.bucket.Get(key)
	if len(dst) == 0 {
		return value, err
	}
	return append(dst, value...), err
}

// Set implements [contender.Tx].
func (t kvOursTx) Set(key, value []byte) error { return t.bucket.Put(key, value) }

// kvCounters are the counters, and how many keys each client has put.
type kvCounters struct {
	kvStore
	values kvValues
	on     kvTransactions
	counts []kvCount
	put    []kvQueueEnds // by client: tail is how many
}

// kvCount is how often a counter was counted up: as far as a client has begun to, and as far as was acknowledged.
type kvCount struct{ begun, done atomic.Uint32 }

// kvFirst is the version of a counter that was never counted up.
const kvFirst = 1

func (c kvTransaction) counters(t Task) *kvCounters {
	return &kvCounters{
		kvStore: kvStore{task: t},
		values:  newKVValues(kvValueSize, t.Seed),
		counts:  make([]kvCount, c.keys),
		put:     make([]kvQueueEnds, t.Clients),
	}
}

// fill puts the counters.
func (s *kvCounters) fill(level holdfast.Level) error {
	on, err := openTransactions(s.engine, level)
	if err != nil {
		return err
	}
	order, value := kvOrderOf(len(s.counts), s.task.Seed), s.values.lay(make([]byte, s.values.size))
	for each := kvPreloadBytes / kvValueSize; len(order) > 0; order = order[each:] {
		each = min(each, len(order))
		err := on.Update(func(tx contender.Tx) error {
			for _, number := range order[:each] {
				s.values.fill(value, number, kvFirst)
				if err := tx.Set(new(kvKey).of(number), bytes.Clone(value)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// client is client i.
func (s *kvCounters) client(i int) func() error {
	random := rand.New(rand.NewPCG(s.task.Seed, uint64(i)))
	var counter kvKey
	var fresh kvQueueKey
	var got []byte
	value, other := s.values.lay(make([]byte, s.values.size)), s.values.lay(make([]byte, s.values.size))
	return func() error {
		number := random.Uint32N(uint32(len(s.counts)))
		count, put := &s.counts[number], &s.put[i]
		least := count.done.Load() + kvFirst
		count.begun.Add(1)
		counter.of(number)
		s.values.fill(other, uint32(i), put.tail)
		fresh.of(uint32(i), put.tail)
		err := s.on.Update(func(tx contender.Tx) (err error) {
			if got, err = tx.Get(got[:0], counter[:]); err != nil {
				if errors.Is(err, holdfast.ErrNotFound) {
					err = fmt.Errorf("%w: %s: %w", ErrWrong, counter, err)
				}
				return err
			}
			version := uint32(0)
			if len(got) == s.values.size {
				version = uint32(binary.LittleEndian.Uint64(got))
			}
			if err := s.values.check(got, number, version); err != nil {
				return err
			}
			// It is that of a transaction which has begun, and is not this one.
			if most := count.begun.Load() + kvFirst - 1; version < least || version > most {
				return fmt.Errorf("%w: counter %d is read as %d, but %d was acknowledged before and %d can be there", ErrWrong,
					number, version, least, most)
			}
			s.values.fill(value, number, version+1)
			if err := tx.Set(counter[:], value); err != nil {
				return err
			}
			return tx.Set(fresh[:], other)
		})
		if err != nil {
			return err
		}
		count.done.Add(1)
		put.tail++
		s.bytes.Add(2 * int64(kvKeySize+len(value)))
		return nil
	}
}

// items are how many keys there should be.
func (s *kvCounters) items() int64 {
	n := int64(len(s.counts))
	for i := range s.put {
		n += int64(s.put[i].tail)
	}
	return n
}

// compare reads all keys: those that clients have put, which come first, and the counters, each counted up as often as
// was acknowledged. No client may be at work.
func (s *kvCounters) compare(from kvTransactions) (n int64, err error) {
	client, number, counter := 0, uint32(0), uint32(0)
	next := func() bool { // that a client has put
		for client < len(s.put) && number == s.put[client].tail {
			client, number = client+1, 0
		}
		return client < len(s.put)
	}
	err = from.all(func(key, value []byte) error {
		var want []byte
		of, version := counter, uint32(0)
		if next() {
			want, of, version = new(kvQueueKey).of(uint32(client), number), uint32(client), number
			number++
		} else if int(counter) < len(s.counts) {
			want, version = new(kvKey).of(counter), s.counts[counter].done.Load()+kvFirst
			counter++
		}
		if !bytes.Equal(key, want) {
			return fmt.Errorf("%w: %q where %q should be", ErrWrong, key, want)
		}
		n++
		return s.values.check(value, of, version)
	})
	if err == nil && n != s.items() {
		err = fmt.Errorf("%w: %d keys are there of %d", ErrWrong, n, s.items())
	}
	return n, err
}

// load is the load of all clients.
func (s *kvCounters) load() Load {
	load := s.kvStore.load(s.items, func(r holdfast.Reader) (int64, error) {
		on, err := openTransactions(r.(holdfast.Engine), s.task.Level)
		if err != nil {
			return 0, wrong(err)
		}
		return s.compare(on)
	})
	load.Client = s.client
	return load
}

func (c kvTransaction) engine(t Task) (Load, error) {
	s := c.counters(t)
	err := s.open()
	if err == nil {
		err = s.settle(s.fill)
	}
	if err != nil {
		return Load{}, err
	}
	if s.on, err = openTransactions(s.engine, t.Level); err != nil {
		return Load{}, errors.Join(err, s.engine.Close())
	}
	return s.load(), nil
}

func (c kvTransaction) null(t Task) (Load, error) {
	s := c.counters(t)
	s.on = kvNullTransactions{s}
	return s.load(), nil
}

// kvNullTransactions keep nothing, and read what was acknowledged.
type kvNullTransactions struct{ *kvCounters }

func (n kvNullTransactions) Update(f func(contender.Tx) error) error { return f(n) }

func (kvNullTransactions) all(func(key, value []byte) error) error { return nil }

// Get implements [contender.Tx].
func (n kvNullTransactions) Get(dst, key []byte) ([]byte, error) {
	number := uint32(0)
	for _, digit := range key[len("key_"):] {
		number = 10*number + uint32(digit-'0')
	}
	dst = append(dst, n.values.pool[:n.values.size]...)
	n.values.fill(dst, number, n.counts[number].done.Load()+kvFirst)
	return dst, nil
}

// Set implements [contender.Tx].
func (kvNullTransactions) Set([]byte, []byte) error { return nil }

// floor reads one record and appends two.
func (c kvTransaction) floor(t Task) (Load, error) {
	written, err := newKVFloor(t, 2, kvValueSize)
	if err != nil {
		return Load{}, err
	}
	read, err := newKVFloorLoaded(t, c.keys, kvValueSize)
	if err != nil {
		return Load{}, errors.Join(err, written.file.close())
	}
	return written.load(func(i int) func() error {
		random, reader, write := rand.New(rand.NewPCG(t.Seed, uint64(i))), read.reader(), written.appender(i)
		return func() error {
			if err := reader.get(random.Uint32N(uint32(c.keys))); err != nil {
				return err
			}
			return write()
		}
	}).with(read.load(nil)), nil
}
