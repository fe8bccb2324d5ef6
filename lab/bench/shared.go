package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfastdb/holdfast"
)

// sharedTable is records that all clients read and write, where kvTable gives each client keys of its own. For each
// record there is the version that was issued last and the last one that was acknowledged. A read is right if its
// version is not older than what was acknowledged before it began, nor newer than what was issued before it ended.
//
// Records are numbered from 0 on. Their keys are YCSB's: "user" and a hash of the number. So new ones are scattered.
type sharedTable struct {
	kvStore
	values  kvValues
	loaded  int                             // records that were there before clients began
	chunks  [1 << 16]atomic.Pointer[chunk]  // of records, by the upper half of their number
	locks   [1 << 10]sync.Mutex             // by the lower bits of the number; see put
	issued  atomic.Uint32                   // records
	order   []uint32                        // the loaded records by key, nil if nobody scans
	ranks   []uint32                        // by number, where the loaded record is in order
	between []atomic.Pointer[sharedBetween] // by rank, the acknowledged inserts behind that record and before the next

	mu           sync.Mutex    // of inserts that were acknowledged
	acknowledged atomic.Uint32 // all records below it are
}

// sharedBetween is a list of inserted records.
type sharedBetween struct {
	number uint32
	next   *sharedBetween
}

type chunk [1 << 16]sharedRecord

// sharedRecord has versions, counted from 1; 0 is none.
type sharedRecord struct{ issued, acknowledged atomic.Uint32 }

// acknowledge keeps the newest version.
func (r *sharedRecord) acknowledge(version uint32) {
	for old := r.acknowledged.Load(); old < version && !r.acknowledged.CompareAndSwap(old, version); {
		old = r.acknowledged.Load()
	}
}

// sharedKeySize is the length of the longest key, which most have.
const sharedKeySize = 4 + 19

// sharedKey appends the key of that record.
func sharedKey(dst []byte, number uint32) []byte {
	return strconv.AppendUint(append(dst, "user"...), fnv(uint64(number)), 10)
}

// newSharedTable has no engine yet. With scans it knows the order of the loaded keys.
func newSharedTable(t Task, records, value int, scans bool) *sharedTable {
	s := &sharedTable{kvStore: kvStore{task: t}, values: newKVValues(value, t.Seed), loaded: records}
	for number := range uint32(records) {
		s.made(number).issued.Store(1)
		s.record(number).acknowledged.Store(1)
	}
	s.issued.Store(uint32(records))
	s.acknowledged.Store(uint32(records))
	if !scans {
		return s
	}
	keys := make([]string, records)

	s.order, s.ranks = make([]uint32, records), make([]uint32, records)
	for i := range keys {
		keys[i], s.order[i] = string(sharedKey(nil, uint32(i))), uint32(i)
	}
	slices.SortFunc(s.order, func(a, b uint32) int { return strings.Compare(keys[a], keys[b]) })

	for rank, number := range s.order {
		s.ranks[number] = uint32(rank)
	}
	s.between = make([]atomic.Pointer[sharedBetween], records)

	return s
}

// newSharedLoaded has all records in its engine: put in large batches, and settled.
func newSharedLoaded(t Task, records, value int, scans bool) (*sharedTable, error) {
	s := newSharedTable(t, records, value, scans)
	if err := s.open(); err != nil {
		return nil, err
	}

	return s, s.settle(s.fill)
}

// fill puts the records.
func (s *sharedTable) fill(level holdfast.Level) error {
	w, each := s.writer(), max(kvPreloadBytes/s.values.size, 1)
	for first := 0; first < s.loaded; first += each {
		w.batch.Reset()

		for i := first; i < min(first+each, s.loaded); i++ {
			w.set(uint32(i), 1)
		}
		if err := holdfast.Commit(s.engine, &w.batch, level); err != nil {
			return err
		}
	}

	return nil
}

// record is nil if there was never one of that number, nor of those beside it.
func (s *sharedTable) record(number uint32) *sharedRecord {
	c := s.chunks[number>>16].Load()
	if c == nil {
		return nil
	}

	return &c[number&0xffff]
}

// made is record, which is made if there is none.
func (s *sharedTable) made(number uint32) *sharedRecord {
	if s.chunks[number>>16].Load() == nil {
		s.chunks[number>>16].CompareAndSwap(nil, new(chunk))
	}

	return s.record(number)
}

// check compares a value with that of the record, which must have a version from first on. The read must have ended.
// Its error wraps ErrWrong.
func (s *sharedTable) check(value []byte, number, first uint32) error {
	version := uint32(0)
	if len(value) == s.values.size {
		version = uint32(binary.LittleEndian.Uint64(value))
	}
	if last := s.record(number).issued.Load(); len(value) == s.values.size && (version < first || version > last) {
		return fmt.Errorf("%w: record %d is read in version %d, but %d was acknowledged before and %d issued until now",
			ErrWrong, number, version, first, last)
	}

	return s.values.check(value, number, version)
}

// sharedReader reads for one client.
type sharedReader struct {
	*sharedTable
	key, last, value []byte
}

func (s *sharedTable) reader() *sharedReader { return &sharedReader{sharedTable: s} }

// get reads a record that was acknowledged.
func (r *sharedReader) get(number uint32) error {
	first := r.record(number).acknowledged.Load()
	var err error
	r.key = sharedKey(r.key[:0], number)
	if r.value, err = r.engine.Get(r.value[:0], r.key); err != nil {
		if errors.Is(err, holdfast.ErrNotFound) {
			err = fmt.Errorf("%w: %s: %w", ErrWrong, r.key, err)
		}

		return err
	}

	return r.check(r.value, number, first)
}

// scan walks over n records, or over as many as there are, from a loaded one on. Records are not updated where
// there are scans. It must meet each loaded record, and each that was acknowledged before it began.
func (r *sharedReader) scan(number uint32, n int) (err error) {
	before, rank, met := r.acknowledged.Load(), int(r.ranks[number]), 0
	it := r.engine.Scan(holdfast.Range{Lo: sharedKey(nil, number)})
	defer func() { err = errors.Join(err, wrong(it.Close())) }()

	r.last = r.last[:0]
	for range n {
		if !it.Next() {
			if rank < r.loaded {
				return fmt.Errorf("%w: nothing behind %q, though record %d is", ErrWrong, r.last, r.order[rank])
			}

			return r.metAll(rank-1, met, before, nil)
		}

		// Every record has its first version: so nothing is looked up for each of them, which would take longer than some
		// engines do.
		found, err := r.at(it)
		if err == nil {
			err = r.values.check(it.Value(), found, 1)
		}
		switch {
		case err != nil:
			return err
		case int(found) >= r.loaded:
			if rank == int(r.ranks[number]) {
				return fmt.Errorf("%w: a scan from record %d on begins with %d", ErrWrong, number, found)
			}
			if found < before {
				met++
			}
			continue
		case rank >= r.loaded || found != r.order[rank]:
			return fmt.Errorf("%w: record %d, %q, where loaded record number %d of all should be", ErrWrong, found, it.Key(),
				rank)
		}
		if rank > int(r.ranks[number]) {
			if err := r.metAll(rank-1, met, before, nil); err != nil {
				return err
			}
		}
		rank, met = rank+1, 0
	}

	return r.metAll(rank-1, met, before, r.last)
}

// at returns the record that an iterator has reached by its value. It must have its key, and be behind the last one,
// which it makes the last. The rest of the value is for the caller to check.
func (r *sharedReader) at(it holdfast.Iterator) (number uint32, err error) {
	key, value := it.Key(), it.Value()
	if len(value) != r.values.size {
		return 0, fmt.Errorf("%w: %q has a value of %d bytes", ErrWrong, key, len(value))
	}
	number = uint32(binary.LittleEndian.Uint64(value) >> 32)
	r.key = sharedKey(r.key[:0], number)
	switch {
	case number >= r.issued.Load() || !bytes.Equal(key, r.key):
		return 0, fmt.Errorf("%w: %q has the value of record %d", ErrWrong, key, number)
	case len(r.last) > 0 && bytes.Compare(key, r.last) <= 0:
		return 0, fmt.Errorf("%w: %q behind %q", ErrWrong, key, r.last)
	}
	r.last = append(r.last[:0], key...)

	return number, nil
}

// metAll checks that a scan which met so many of the inserts behind the loaded record of that rank, up to the key if it
// is not nil, has met all that were acknowledged: those below before.
func (r *sharedReader) metAll(rank, met int, before uint32, upTo []byte) error {
	must := 0
	for b := r.between[rank].Load(); b != nil; b = b.next {
		if b.number >= before {
			continue
		}
		if r.key = sharedKey(r.key[:0], b.number); upTo == nil || bytes.Compare(r.key, upTo) <= 0 {
			must++
		}
	}
	if met != must {
		return fmt.Errorf("%w: a scan met %d of the %d records that were inserted behind record %d", ErrWrong, met, must,
			r.order[rank])
	}

	return nil
}

// sharedWriter writes for one client.
type sharedWriter struct {
	*sharedTable
	batch      holdfast.Batch
	key, value []byte
}

func (s *sharedTable) writer() *sharedWriter {
	return &sharedWriter{sharedTable: s, value: s.values.lay(make([]byte, s.values.size))}
}

// set adds a version of a record to the batch.
func (w *sharedWriter) set(number, version uint32) {
	w.key = sharedKey(w.key[:0], number)
	w.values.fill(w.value, number, version)
	w.batch.Set(w.key, w.value)
}

// put writes the next version of a record.
func (w *sharedWriter) put(number uint32) error {
	version, err := w.write(number)
	if err == nil {
		w.record(number).acknowledge(version)
	}

	return err
}

// write is put without the note that it was acknowledged. The engine must order versions as they are issued, so a lock
// is held while it is given one, but not while it makes it durable. Engines order writes themselves, so the lock costs
// them nothing but where Apply takes long and two clients put one record.
func (w *sharedWriter) write(number uint32) (version uint32, err error) {
	record, lock := w.made(number), &w.locks[number%uint32(len(w.locks))]
	w.batch.Reset()
	lock.Lock()
	version = record.issued.Load() + 1
	w.set(number, version)
	record.issued.Store(version)
	var receipt holdfast.Receipt
	if w.engine != nil { // as it is for null
		receipt, err = w.engine.Apply(&w.batch, w.task.Level)
	}
	lock.Unlock()
	if err == nil {
		err = receipt.Wait()
	}
	w.bytes.Add(int64(len(w.key) + len(w.value)))

	return version, err
}

// insert puts a new record.
func (w *sharedWriter) insert() error {
	number := w.issued.Add(1) - 1
	version, err := w.write(number)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.order != nil {
		w.place(number)
	}
	w.record(number).acknowledge(version)

	all := w.acknowledged.Load()
	for r := w.record(all); r != nil && r.acknowledged.Load() > 0; r = w.record(all) {
		all++
	}
	w.acknowledged.Store(all)

	return nil
}

// place enters a record where it is among the loaded ones. What is before all of them no scan meets.
func (w *sharedWriter) place(number uint32) {
	key := sharedKey(nil, number)
	var other []byte
	behind, _ := slices.BinarySearchFunc(w.order, key, func(loaded uint32, key []byte) int {
		other = sharedKey(other[:0], loaded)
		return bytes.Compare(other, key)
	})
	if behind > 0 {
		list := &w.between[behind-1]
		list.Store(&sharedBetween{number, list.Load()})
	}
}

// load is a load on the table, which verifies all that is there.
func (s *sharedTable) load() Load {
	return s.kvStore.load(func() int64 { return int64(s.issued.Load()) }, s.compare)
}

// compare walks over all of from, which must hold each record in the version issued last, and nothing else. It returns
// how many it compared. No client may be at work.
func (s *sharedTable) compare(from holdfast.Reader) (n int64, err error) {
	r, it := s.reader(), from.Scan(holdfast.Range{})
	defer func() { err = errors.Join(err, wrong(it.Close())) }()

	for it.Next() {
		number, err := r.at(it)
		if err == nil {
			err = r.check(it.Value(), number, r.record(number).issued.Load())
		}
		if err != nil {
			return n, err
		}
		n++
	}
	if all := int64(s.issued.Load()); n != all {
		return n, fmt.Errorf("%w: %d records are there of %d", ErrWrong, n, all)
	}

	return n, nil
}
