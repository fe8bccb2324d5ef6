package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// kvVersions is what there should be: for each key the version put last and whether it is alive. A key
// belongs to one client, which alone reads and writes its place here; all of it is read once they are done.
type kvVersions []uint32

// alive is the bit that a key has while it is there; the bits above are its version.
const alive = 1

// put returns the version that the key gets with its next value.
func (l kvVersions) put(key uint32) uint32 {
	l[key] = (l[key]>>1+1)<<1 | alive
	return l[key] >> 1
}

func (l kvVersions) delete(key uint32) { l[key] &^= alive }

// has returns the key's version, and whether it is there.
func (l kvVersions) has(key uint32) (version uint32, ok bool) { return l[key] >> 1, l[key]&alive != 0 }

// count returns how many keys there should be.
func (l kvVersions) count() int64 {
	n := int64(0)
	for _, state := range l {
		n += int64(state & alive)
	}

	return n
}

// compare walks over all of r, which must hold these keys with their values, and nothing else. It
// returns how many it compared.
func (l kvVersions) compare(r holdfast.Reader, values kvValues) (n int64, err error) {
	it := r.Scan(holdfast.Range{})
	defer func() { err = errors.Join(err, wrong(it.Close())) }()
	var key kvKey
	key.of(0)

	for i, state := range l {
		if state&alive != 0 {
			switch {
			case !it.Next():
				return n, fmt.Errorf("%w: %s is not there, nor anything behind it", ErrWrong, key)
			case !bytes.Equal(it.Key(), key[:]):
				return n, fmt.Errorf("%w: %q where %s should be", ErrWrong, it.Key(), key)
			}
			if err := values.check(it.Value(), uint32(i), state>>1); err != nil {
				return n, err
			}
			n++
		}
		key.next()
	}
	if it.Next() {
		return n, fmt.Errorf("%w: %q behind the last key", ErrWrong, it.Key())
	}

	return n, nil
}

// kvTable is the engine under test and what should be in it.
type kvTable struct {
	kvStore
	values   kvValues
	versions kvVersions
}

// newKVTable opens an engine for as many keys, of which none is there yet.
func newKVTable(t Task, keys, value int) (*kvTable, error) {
	if keys > kvMaxKeys {
		return nil, op.BadOption(fmt.Sprintf("%d keys", keys), "use fewer --clients")
	}
	table := &kvTable{kvStore: kvStore{task: t}, values: newKVValues(value, t.Seed), versions: make(kvVersions, keys)}

	return table, table.open()
}

// kvPreloadBytes is about what the values of one batch of the preload have.
const kvPreloadBytes = 2 << 20

// newKVLoaded is newKVTable with all keys there: put in large batches, and settled.
func newKVLoaded(t Task, keys, value int, fill kvFill) (*kvTable, error) {
	table, err := newKVTable(t, keys, value)
	if err != nil {
		return nil, err
	}

	return table, table.settle(func(level holdfast.Level) error { return table.fill(fill, level) })
}

// kvFill is how keys are put before the measurement: in random or in ascending order, and how often again, each time in
// another random order.
type kvFill struct {
	ascending bool
	again     int
}

func (f kvFill) keyOrder() KeyOrder {
	switch {
	case f.ascending:
		return Ascending
	case f.again > 0:
		return RandomAgain
	}

	return Random
}

// kvOrderOf returns the numbers below n in an order that follows from the seed.
func kvOrderOf(n int, seed uint64) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	rand.New(rand.NewPCG(seed, uint64(n))).Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })

	return order
}

// fill puts all keys.
func (t *kvTable) fill(how kvFill, level holdfast.Level) error {
	w := t.writerTo(func(b *holdfast.Batch) error { return holdfast.Commit(t.engine, b, level) })
	batch := max(kvPreloadBytes/t.values.size, 1)

	for round := range how.again + 1 {
		var order []uint32
		if !how.ascending {
			order = kvOrderOf(len(t.versions), t.task.Seed+uint64(round))
		}

		for i := range t.versions {
			key := uint32(i)
			if order != nil {
				key = order[i]
			}
			w.put(key)
			if (i+1)%batch == 0 || i == len(t.versions)-1 {
				if err := w.commit(); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// load is a load of these clients on the table, which verifies all that is there.
func (t *kvTable) load(client func(i int) func() error) Load {
	l := t.kvStore.load(t.versions.count, func(r holdfast.Reader) (int64, error) {
		return t.versions.compare(r, t.values)
	})
	l.Client = client

	return l
}

// scan walks over n keys, all of which are there, from first on, and compares them.
func (t *kvTable) scan(first uint32, n int) (err error) {
	var key kvKey
	var r holdfast.Range
	if key.of(first); first > 0 {
		r.Lo = key[:]
	}

	it := t.engine.Scan(r)
	defer func() { err = errors.Join(err, wrong(it.Close())) }()

	for i := first; i < first+uint32(n); i++ {
		if !it.Next() || !bytes.Equal(it.Key(), key[:]) {
			return fmt.Errorf("%w: %q where %s should be", ErrWrong, it.Key(), key)
		}
		version, _ := t.versions.has(i)
		if err := t.values.check(it.Value(), i, version); err != nil {
			return err
		}
		key.next()
	}
	if int(first)+n == len(t.versions) && it.Next() {
		return fmt.Errorf("%w: %q behind the last key", ErrWrong, it.Key())
	}

	return nil
}

// writer returns a client's writer, which commits at the task's level.
func (t *kvTable) writer() *kvWriter {
	return t.counted(t.writerTo(func(b *holdfast.Batch) error { return holdfast.Commit(t.engine, b, t.task.Level) }))
}

// counted is a client's writer, whose bytes count.
func (t *kvTable) counted(w *kvWriter) *kvWriter {
	w.all = &t.bytes
	return w
}

// writerTo returns a client's writer, which gives its batches to keep.
func (t *kvTable) writerTo(keep func(*holdfast.Batch) error) *kvWriter {
	return &kvWriter{values: t.values, versions: t.versions, value: t.values.lay(make([]byte, t.values.size)), keep: keep}
}

// kvWriter makes the transactions of one client. What it puts is in the versions before it is acknowledged: a commit
// that fails voids the run.
type kvWriter struct {
	values   kvValues
	versions kvVersions
	keep     func(*holdfast.Batch) error
	batch    holdfast.Batch
	key      kvKey
	value    []byte
	bytes    int64         // of keys and values in the batch
	all      *atomic.Int64 // of keys and values in all batches; nil if nobody asks
}

func (w *kvWriter) put(key uint32) {
	w.bytes += kvKeySize + int64(len(w.value))
	w.values.fill(w.value, key, w.versions.put(key))
	w.batch.Set(w.key.of(key), w.value)
}

func (w *kvWriter) delete(key uint32) {
	w.bytes += kvKeySize
	w.versions.delete(key)
	w.batch.Delete(w.key.of(key))
}

func (w *kvWriter) commit() error {
	err := w.keep(&w.batch)
	w.batch.Reset()
	if w.all != nil {
		w.all.Add(w.bytes)
	}
	w.bytes = 0

	return err
}

// putOne puts a key in a transaction of its own.
func (w *kvWriter) putOne(key uint32) error {
	w.put(key)
	return w.commit()
}

// reader returns a client's reader.
func (t *kvTable) reader() *kvReader { return &kvReader{table: t} }

// kvReader gets keys for one client, and checks what it gets.
type kvReader struct {
	table *kvTable
	key   kvKey
	value []byte
}

// get reads a key that must be there.
func (r *kvReader) get(key uint32) error {
	version, _ := r.table.versions.has(key)
	var err error
	if r.value, err = r.table.engine.Get(r.value[:0], r.key.of(key)); err != nil {
		if errors.Is(err, holdfast.ErrNotFound) {
			err = fmt.Errorf("%w: %s: %w", ErrWrong, r.key, err)
		}

		return err
	}

	return r.table.values.check(r.value, key, version)
}
