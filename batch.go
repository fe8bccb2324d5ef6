package holdfast

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// Kind is what one operation of a batch does.
type Kind byte

// The kinds, with the codes they have in LevelDB's, RocksDB's and Pebble's write
// batches.
const (
	KindDelete      Kind = 0
	KindSet         Kind = 1
	KindDeleteRange Kind = 15
)

// Op is one operation of a batch. For KindDeleteRange, Key is the lower bound and
// Value the upper one, as in [Range].
type Op struct {
	Kind       Kind
	Key, Value []byte
}

// Batch is a list of operations that take effect together, in their order: a later
// one wins over an earlier one. The zero Batch is empty and ready. A batch is used
// by one goroutine at a time and can be reused after Reset, without allocating.
//
// An operation that breaks a limit is remembered, and Apply returns its error; see
// Err.
//
// Invariant: buf holds count records, each
//
//	kind     1 byte
//	key      uvarint length, bytes
//	value    uvarint length, bytes      absent when kind is KindDelete
//
// which is the record format of LevelDB's write batch.
type Batch struct {
	buf    []byte
	count  int
	ranges int // how many of them are KindDeleteRange
	err    error
}

// Set stores value under key, replacing what was there.
func (b *Batch) Set(key, value []byte) {
	if err := CheckKey(key); err != nil {
		b.failHere(err)
		return
	}
	if len(value) > MaxValueSize {
		b.failHere(&Error{Op: "set", Class: ErrTooLarge, Detail: fmt.Sprintf("the value has %d bytes", len(value)),
			Remedy: "values have at most 67108864 bytes: split it over several keys"})
		return
	}
	b.add(KindSet, key, value)
}

// Delete removes key. It is no error if the key does not exist.
func (b *Batch) Delete(key []byte) {
	if err := CheckKey(key); err != nil {
		b.failHere(err)
		return
	}
	b.add(KindDelete, key, nil)
}

// DeleteRange removes every key in [lo, hi). Empty bounds mean the first key and the
// last, as in [Range].
func (b *Batch) DeleteRange(lo, hi []byte) {
	if err := CheckRange(Range{Lo: lo, Hi: hi}); err != nil {
		b.failHere(err)
		return
	}
	if b.add(KindDeleteRange, lo, hi); b.err == nil {
		b.ranges++
	}
}

func (b *Batch) add(kind Kind, key, value []byte) {
	if b.err != nil {
		return
	}
	if len(b.buf)+len(key)+len(value)+2*binary.MaxVarintLen64 > MaxBatchSize {
		b.fail(&Error{Op: "batch", Class: ErrTooLarge, Detail: fmt.Sprintf("it would have over %d bytes", MaxBatchSize),
			Remedy: "split it"})
		return
	}
	b.buf = append(b.buf, byte(kind))
	b.buf = binary.AppendUvarint(b.buf, uint64(len(key)))
	b.buf = append(b.buf, key...)
	if kind != KindDelete {
		b.buf = binary.AppendUvarint(b.buf, uint64(len(value)))
		b.buf = append(b.buf, value...)
	}
	b.count++
}

// failHere fails with a new error about the operation that would have been next.
func (b *Batch) failHere(err error) {
	if e, ok := err.(*Error); ok {
		e.Detail = fmt.Sprintf("at index %d of the batch: %s", b.count, e.Detail)
	}
	b.fail(err)
}

func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Append adds all operations of other, and its error if it has one.
func (b *Batch) Append(other *Batch) {
	if err := other.Err(); err != nil {
		b.fail(err)
	}
	if b.err != nil {
		return
	}
	if len(b.buf)+len(other.buf) > MaxBatchSize {
		b.fail(&Error{Op: "batch", Class: ErrTooLarge, Detail: fmt.Sprintf("it would have over %d bytes", MaxBatchSize),
			Remedy: "split it"})
		return
	}
	b.buf = append(b.buf, other.buf...)
	b.count += other.count
	b.ranges += other.ranges
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() { b.buf, b.count, b.ranges, b.err = b.buf[:0], 0, 0, nil }

// Len is the number of operations.
func (b *Batch) Len() int { return b.count }

// Size is the length in bytes of the encoded operations.
func (b *Batch) Size() int { return len(b.buf) }

// Err is the error of the first operation that broke a limit. An error about a key or value names the operation's
// index in its batch, from 0; an error about a batch over MaxBatchSize does not. From then on, operations are ignored
// until Reset.
//
// The error of a nil batch is ErrBadOption. Engines call Err first in Apply.
func (b *Batch) Err() error {
	if b == nil {
		return &Error{Op: "apply", Class: ErrBadOption, Detail: "the batch is nil",
			Remedy: "apply an empty one to wait for all before it"}
	}

	return b.err
}

// Bytes is the encoded form described at [Batch], for engines that can store it as it
// is. It is valid until the batch is changed and must not be written to.
func (b *Batch) Bytes() []byte { return b.buf }

// Ops yields the operations in order, without allocating. Their slices are valid until Reset.
func (b *Batch) Ops() iter.Seq[Op] { return b.OpsFrom(0) }

// OpsFrom is Ops without those that the batch already had when its Size was size.
func (b *Batch) OpsFrom(size int) iter.Seq[Op] {
	return func(yield func(Op) bool) {
		for rest := b.buf[size:]; len(rest) > 0; {
			var op Op
			op.Kind, rest = Kind(rest[0]), rest[1:]
			op.Key, rest = chunk(rest)
			if op.Kind != KindDelete {
				op.Value, rest = chunk(rest)
			}
			if !yield(op) {
				return
			}
		}
	}
}

// HasRange reports whether the batch has a DeleteRange, for engines that must
// treat one apart.
func (b *Batch) HasRange() bool { return b.ranges > 0 }

// chunk splits a length-prefixed string off b, which this package has encoded itself.
func chunk(b []byte) (head, rest []byte) {
	n, w := binary.Uvarint(b)
	return b[w : w+int(n) : w+int(n)], b[w+int(n):]
}
