package bench

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/holdfastdb/holdfast"
)

// kvNull takes what clients put and keeps nothing; what they get is of a few values that are there already. It shows
// what making the batches, and checking what was read, take.
type kvNull struct {
	kvTable
	sample [][]byte
}

// nullSample is how many values are there to be read: they fit into the processor's caches.
const nullSample = 512

func newKVNull(t Task, keys, value int) *kvNull {
	n := &kvNull{kvTable: kvTable{kvStore: kvStore{task: t}, values: newKVValues(value, t.Seed),
		versions: make(kvVersions, keys)}}
	for key := range uint32(min(nullSample, kvPreloadBytes/value)) {
		v := n.values.lay(make([]byte, value))
		n.values.fill(v, key, 1)
		n.sample = append(n.sample, v)
	}

	return n
}

func (n *kvNull) writer() *kvWriter {
	return n.counted(n.writerTo(func(*holdfast.Batch) error { return nil }))
}

func (n *kvNull) get(key uint32) error {
	key %= uint32(len(n.sample))
	return n.values.check(n.sample[key], key, 1)
}

func (n *kvNull) scan(first uint32, count int) error {
	for key := first; key < first+uint32(count); key++ {
		if err := n.get(key); err != nil {
			return err
		}
	}

	return nil
}

// kvFloor is a floorFile of keys with their values, each a record: key, value, and zeros up to a multiple of 8. Record
// number n is of key n % kvMaxKeys in version n / kvMaxKeys.
type kvFloor struct {
	task   Task
	file   *floorFile
	values kvValues
	record int // bytes
	batch  int // records of one append
}

func kvRecordSize(value int) int { return (kvKeySize + value + 7) / 8 * 8 }

// newKVFloor is a file for appends of batch records.
func newKVFloor(t Task, batch, value int) (*kvFloor, error) {
	record := kvRecordSize(value)
	slots := int64(max(floorBytes/record, t.Clients*batch))
	file, err := appendFile(t, record, slots)
	if err != nil {
		return nil, err
	}

	return &kvFloor{task: t, file: file, values: newKVValues(value, t.Seed), record: record, batch: batch}, nil
}

// floorChunk is how many records are written or read by one call where all are.
const floorChunk = 8192

// newKVFloorLoaded is a file of that many keys, of which all are there.
func newKVFloorLoaded(t Task, keys, value int) (_ *kvFloor, err error) {
	record := kvRecordSize(value)
	file, err := newFloorFile(filepath.Join(t.Dir, "floor-read"), record, int64(keys), false)
	if err != nil {
		return nil, err
	}
	f := &kvFloor{task: t, file: file, values: newKVValues(value, t.Seed), record: record, batch: keys}
	buf := f.lay(min(floorChunk, keys))

	for first := 0; first < keys && err == nil; first += floorChunk {
		n := min(floorChunk, keys-first)
		f.fill(buf[:n*record], uint32(first))
		err = file.append(buf[:n*record], first)
	}
	if err == nil {
		err = t.cool() // though it is open: nothing is mapped
	}
	if err != nil {
		return nil, errors.Join(err, file.close())
	}

	return f, nil
}

// floorAppends is a load of appends of batch records, whose values have that size.
func floorAppends(t Task, batch, value int) (Load, error) {
	f, err := newKVFloor(t, batch, value)
	if err != nil {
		return Load{}, err
	}

	return f.load(f.appender), nil
}

// nullLoad is a load on what keeps nothing. items says how many it was given.
func nullLoad(client func(i int) func() error, items func() int64) Load {
	return Load{Client: client, Close: func() error { return nil },
		Verify: func() (int64, int64, error) { return items(), 0, nil }}
}

// floorReads is a load of reads of a file of that many keys.
func floorReads(t Task, keys, value int, client func(i int, r *kvFloorReader) func() error) (Load, error) {
	f, err := newKVFloorLoaded(t, keys, value)
	if err != nil {
		return Load{}, err
	}

	return f.load(func(i int) func() error { return client(i, f.reader()) }), nil
}

// lay returns memory for n records, ready for fill.
func (f *kvFloor) lay(n int) []byte {
	buf := make([]byte, n*f.record)
	for at := 0; at < len(buf); at += f.record {
		f.values.lay(f.value(buf[at:]))
	}

	return buf
}

// value is that of the record which buf begins with.
func (f *kvFloor) value(buf []byte) []byte { return buf[kvKeySize:][:f.values.size] }

// fill makes buf the records from index on.
func (f *kvFloor) fill(buf []byte, index uint32) {
	var key kvKey
	for ; len(buf) > 0; buf = buf[f.record:] {
		copy(buf, key.of(index%kvMaxKeys))
		f.values.fill(f.value(buf), index%kvMaxKeys, index/kvMaxKeys)
		index++
	}
}

// appender returns the operation of client i: appending records that were not appended before, until after
// billions the numbers begin again.
func (f *kvFloor) appender(i int) func() error {
	buf := f.lay(f.batch)
	turns := math.MaxUint32 / f.batch

	return func() error {
		first := i % turns * f.batch
		i += f.task.Clients
		f.fill(buf, uint32(first))

		return f.file.append(buf, first)
	}
}

func (f *kvFloor) load(client func(int) func() error) Load {
	there := f.file.next
	put := func() int64 { return (f.file.next - there) * int64(kvKeySize+f.values.size) } // once the clients are done

	return Load{Client: client, Put: put, Close: f.file.close, Verify: f.verify}
}

func (f *kvFloor) verify() (items, checked int64, err error) {
	buf := f.lay(1)

	return f.file.verify(func(index uint32) []byte {
		f.fill(buf, index)
		return buf
	})
}

// kvFloorReader reads for one client.
type kvFloorReader struct {
	*kvFloor
	buf []byte
}

func (f *kvFloor) reader() *kvFloorReader {
	return &kvFloorReader{f, make([]byte, min(floorChunk, f.batch)*f.record)}
}

// get reads the record of a key by one call.
func (r *kvFloorReader) get(key uint32) error { return r.read(int(key), 1) }

// scan reads n records by few calls.
func (r *kvFloorReader) scan(from uint32, n int) error {
	for first, end := int(from), int(from)+n; first < end; first += floorChunk {
		if err := r.read(first, min(floorChunk, end-first)); err != nil {
			return err
		}
	}

	return nil
}

// read reads n records from first on, and checks them.
func (r *kvFloorReader) read(first, n int) error {
	buf := r.buf[:n*r.record]
	if err := r.file.read(buf, int64(first)); err != nil {
		return err
	}
	var key kvKey
	key.of(uint32(first))

	for ; len(buf) > 0; buf = buf[r.record:] {
		if !bytes.Equal(buf[:kvKeySize], key[:]) {
			return fmt.Errorf("%w: record %d is of key %q", ErrWrong, first, buf[:kvKeySize])
		}
		if err := r.values.check(r.value(buf), uint32(first), 0); err != nil {
			return err
		}
		key.next()
		first++
	}

	return nil
}

// with is a load that closes and verifies another one too, which has no clients and whose items do not count.
func (l Load) with(other Load) Load {
	closes, verifies := l.Close, l.Verify
	l.Close = func() error { return errors.Join(closes(), other.Close()) }
	l.Verify = func() (items, checked int64, err error) {
		items, checked, err = verifies()
		_, _, otherErr := other.Verify()

		return items, checked, errors.Join(err, otherErr)
	}

	return l
}
