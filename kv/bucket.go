package kv

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/holdfastdb/holdfast"
)

// Below the prefix of a bucket lie
//
//	a                          that it is there; the value is its sequence, a uvarint
//	b  name 0x00 0x01          the prefix of a bucket in it; a zero byte in the name is 0x00 0xff
//	k  key                     the value of a key, see appendValue
//
// and the database's own prefix is that of a bucket without the first and the last. Besides, it has
//
//	v                          the version of the format
//	x  time key                that the key expires then: nanoseconds since 1970, big-endian, and what follows the
//	                           database's prefix in the key
const (
	tableInfo    = 'a'
	tableBuckets = 'b'
	tableKeys    = 'k'
	tableVersion = 'v'
	tableExpiry  = 'x'
)

// version is that of the format.
const version = 1

// load reads what is known of the database before it is used.
func (c *core) load() error {
	value, err := c.engine.Get(nil, c.prefix.Key(nil, tableVersion, ""))
	if err != nil && err != holdfast.ErrNotFound {
		return err
	}
	if len(value) > 0 && value[0] > version {
		return c.fail("open", holdfast.ErrVersion, nil, "use a newer holdfast",
			"the database %q has format %d, this program knows %d", c.name, value[0], version)
	}

	// A database in which nothing expires must not look for expired keys in each Update. So it is remembered whether there
	// was one at the start; from then on, each Update that writes one says so.
	lo, hi := c.prefix.Table(tableExpiry)
	it := c.engine.Scan(holdfast.Range{Lo: lo, Hi: hi})
	c.expires = it.Next()
	return it.Close()
}

// Bucket is a bucket in a transaction, and is used as that is: by one goroutine, until the transaction's function
// returns. After that its methods return ErrTxDone, and those that write return ErrReadOnly in a View. A name that no
// bucket can have, or a path of names that leaves no room for a key, shows as ErrBadOption or ErrBadKey in each
// method. What a write returns as an error the transaction remembers, too: see [Tx.Err].
type Bucket struct {
	tx     *Tx
	prefix []byte // of what lies in it
	parent *Bucket
	err    error
}

// Tx is the transaction that the bucket is in.
func (b *Bucket) Tx() *Tx { return b.tx }

// Bucket returns a bucket in b, as [Tx.Bucket] does.
func (b *Bucket) Bucket(name string) *Bucket {
	in := &Bucket{tx: b.tx, parent: b, err: b.err}
	if b.err != nil {
		return in
	}
	if len(name) == 0 || len(name) > MaxNameSize {
		in.err = b.tx.core.fail("bucket", holdfast.ErrBadOption, nil, "", "the name has %d bytes, 1 to %d are allowed",
			len(name), MaxNameSize)
		return in
	}
	in.prefix = append(append(make([]byte, 0, len(b.prefix)+1+len(name)+2), b.prefix...), tableBuckets)
	in.prefix = appendName(in.prefix, name)
	if over := len(in.prefix) + 2 - int(b.tx.core.caps.MaxKeySize); over > 0 {
		in.err = b.tx.core.fail("bucket", holdfast.ErrBadKey, nil, "use shorter names, or fewer in each other",
			"the names leave no room for a key: they are %d bytes too long together", over)
	}
	return in
}

// appendName appends a name so that the order of names is kept and none begins with another.
func appendName(b []byte, name string) []byte {
	for i := range len(name) {
		if b = append(b, name[i]); name[i] == 0 {
			b = append(b, 0xff)
		}
	}
	return append(b, 0, 1)
}

// parseName takes a name off b.
func parseName(b []byte) (name string, ok bool) {
	var n []byte
	for i := 0; i < len(b); i++ {
		if b[i] != 0 {
			n = append(n, b[i])
			continue
		}
		if i++; i < len(b) && b[i] == 1 {
			return string(n), true
		}
		n = append(n, 0)
	}
	return "", false
}

// begin begins a call, and leave of the transaction ends it.
func (b *Bucket) begin(write bool) error {
	if err := b.tx.enter(write); err != nil {
		if write {
			return b.tx.lost(err)
		}
		return err
	}
	err := b.err
	if err == nil && write {
		err = b.tx.err
	}
	if err != nil {
		b.tx.leave()
		if write {
			b.tx.note(err)
		}
	}
	return err
}

// lost remembers the error of a write that has not even begun, unless the transaction has ended.
func (tx *Tx) lost(err error) error {
	if tx.using.Load() != 2 && tx.shared != nil {
		tx.misused.Store(&err)
	}
	return err
}

// of returns the key of the engine for one of the bucket. It is valid until the next call.
func (b *Bucket) of(key []byte) ([]byte, error) {
	tx := b.tx
	if most := int(tx.core.caps.MaxKeySize) - len(b.prefix) - 1; len(key) == 0 || len(key) > most {
		return nil, tx.core.fail(
			"key",
			holdfast.ErrBadKey,
			nil,
			"",
			"the key has %d bytes, 1 to %d are allowed here",
			len(key),
			most,
		)
	}
	tx.key = append(append(append(tx.key[:0], b.prefix...), tableKeys), key...)
	return tx.key, nil
}

// Values begin with what they are: 0, or 1 and the time when they expire, in nanoseconds since 1970, big-endian.
func appendValue(b, value []byte, expires int64) []byte {
	if expires == 0 {
		b = append(b, 0)
	} else {
		b = binary.BigEndian.AppendUint64(append(b, 1), uint64(expires))
	}
	return append(b, value...)
}

// value takes a value apart. there is false if it has expired; the error is ErrCorrupt.
func (tx *Tx) value(stored []byte) (value []byte, expires int64, there bool, err error) {
	switch {
	case len(stored) > 0 && stored[0] == 0:
		return stored[1:], 0, true, nil
	case len(stored) > 8 && stored[0] == 1:
		expires = int64(binary.BigEndian.Uint64(stored[1:]))
		return stored[9:], expires, tx.now.UnixNano() < expires, nil
	}
	return nil, 0, false, tx.core.fail("get", holdfast.ErrCorrupt, nil, "restore a backup",
		"a value of %d bytes is not as this package writes them", len(stored))
}

// Get returns the value of a key, which is the caller's, or ErrNotFound: also if the bucket is not there, or the value
// has expired. It sees what the transaction has written. ErrBadKey: no key of the bucket can be empty, or so long.
// ErrCorrupt: this package has not written the value.
func (b *Bucket) Get(key []byte) ([]byte, error) {
	if err := b.begin(false); err != nil {
		return nil, err
	}
	defer b.tx.leave()
	at, err := b.of(key)
	if err != nil {
		return nil, err
	}
	stored, err := b.tx.get(at)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		return nil, holdfast.ErrNotFound
	}
	value, _, there, err := b.tx.value(stored)
	if err == nil && !there {
		err = holdfast.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Put stores a value under a key, of which both are copied, and makes the bucket if it is not there. ErrBadKey,
// ErrTooLarge: a limit of the engine, of one value or of all that the transaction writes.
func (b *Bucket) Put(key, value []byte) error { return b.put(key, value, 0) }

// PutUntil is Put of a value that is there until a moment, to the nanosecond: by the clock of this machine, which may
// be set. It costs a second key of the engine and two deletes, which later transactions make, some in each; until then
// the value takes room, but no reader sees it. ErrBadOption: a time before the year 1970 or after 2262.
func (b *Bucket) PutUntil(key, value []byte, expires time.Time) error {
	if expires.Unix() <= 0 || expires.Unix() > math.MaxInt64/int64(time.Second) {
		return b.tx.note(b.tx.core.fail("put", holdfast.ErrBadOption, nil, "use a time between the years 1970 and 2262",
			"the value expires %v", expires))
	}
	return b.put(key, value, expires.UnixNano())
}

func (b *Bucket) put(key, value []byte, expires int64) error {
	if err := b.begin(true); err != nil {
		return err
	}
	defer b.tx.leave()
	tx := b.tx
	if most := tx.core.caps.MaxValueSize - 9; int64(len(value)) > most {
		return tx.note(tx.core.fail("put", holdfast.ErrTooLarge, nil, "split it over several keys",
			"the value has %d bytes, the limit is %d", len(value), most))
	}
	if err := b.make(); err != nil {
		return tx.note(err)
	}
	at, err := b.of(key)
	if err != nil {
		return tx.note(err)
	}
	if expires != 0 {
		// Expired keys are found by this entry, and not by reading all values. If the value is replaced or deleted before,
		// its entry stays: removeExpired compares it with what is there then.
		tx.expires = true
		tx.write().Set(tx.core.expiry(expires, at), nil)
	}
	tx.val = appendValue(tx.val[:0], value, expires)
	tx.write().Set(at, tx.val)
	return tx.check()
}

// expiry is the key that says when a key of the engine expires.
func (c *core) expiry(expires int64, key []byte) []byte {
	at := binary.BigEndian.AppendUint64(c.prefix.Key(nil, tableExpiry, ""), uint64(expires))
	return append(at, key[len(c.prefix):]...)
}

// Delete deletes a key. It is no error if it is not there, nor if the bucket is not; neither is made. ErrBadKey is as
// in Get.
func (b *Bucket) Delete(key []byte) error {
	if err := b.begin(true); err != nil {
		return err
	}
	defer b.tx.leave()
	at, err := b.of(key)
	if err != nil {
		return b.tx.note(err)
	}
	b.tx.write().Delete(at)
	return b.tx.check()
}

// DeleteRange deletes the keys of the bucket in [lo, hi), where an empty bound is the first key or the last. Buckets in
// it stay.
func (b *Bucket) DeleteRange(lo, hi []byte) error {
	if err := b.begin(true); err != nil {
		return err
	}
	defer b.tx.leave()
	r, err := b.within(holdfast.Range{Lo: lo, Hi: hi})
	if err != nil {
		return b.tx.note(err)
	}
	b.tx.write().DeleteRange(r.Lo, r.Hi)
	return b.tx.check()
}

// within makes a range of the engine's keys of one of the bucket's.
func (b *Bucket) within(r holdfast.Range) (holdfast.Range, error) {
	most := int(b.tx.core.caps.MaxKeySize) - len(b.prefix) - 1
	if len(r.Lo) > most || len(r.Hi) > most {
		return r, b.tx.core.fail(
			"range",
			holdfast.ErrBadKey,
			nil,
			"",
			"the bounds have %d and %d bytes, at most %d are allowed",
			len(r.Lo),
			len(r.Hi),
			most,
		)
	}
	prefix := append(slices.Clip(b.prefix), tableKeys)
	lo := append(slices.Clip(prefix), r.Lo...)
	hi := append(slices.Clip(b.prefix), tableKeys+1)
	if len(r.Hi) > 0 {
		hi = append(slices.Clip(prefix), r.Hi...)
	}
	return holdfast.Range{Lo: lo, Hi: hi, Reverse: r.Reverse}, nil
}

// Exists reports whether the bucket is there: whether something was put into it or Create was called, even if it is
// empty again, and it was not deleted since.
func (b *Bucket) Exists() (bool, error) {
	if err := b.begin(false); err != nil {
		return false, err
	}
	defer b.tx.leave()
	return b.exists()
}

func (b *Bucket) info() []byte { return append(slices.Clip(b.prefix), tableInfo) }

func (b *Bucket) exists() (bool, error) {
	tx, c := b.tx, b.tx.core
	if tx.made[string(b.prefix)] {
		return true, nil
	}

	// What earlier transactions have found is true of the latest state, which an Update reads. A View reads an older one,
	// in which the bucket may not have been made, and it has not the turn that covers known.
	if tx.shared != nil && !tx.deleted && c.known[string(b.prefix)] {
		return true, nil
	}
	value, err := tx.get(b.info())
	if err != nil || value == nil {
		return false, err
	}
	tx.remember(b.prefix)
	return true, nil
}

// remember remembers that a bucket is there.
func (tx *Tx) remember(prefix []byte) {
	if tx.made == nil {
		tx.made = map[string]bool{}
	}
	tx.made[string(prefix)] = true
}

// Create makes the bucket, if it is not there, without anything in it.
func (b *Bucket) Create() error {
	if err := b.begin(true); err != nil {
		return err
	}
	defer b.tx.leave()
	if err := b.make(); err != nil {
		return b.tx.note(err)
	}
	return b.tx.check()
}

// make makes the bucket, and those that it is in, if they are not there.
func (b *Bucket) make() error {
	there, err := b.exists()
	if there || err != nil {
		return err
	}
	tx := b.tx
	if b.parent.parent != nil {
		if err := b.parent.make(); err != nil {
			return err
		}
	} else if len(tx.core.known) == 0 {
		// The first bucket that this process makes, or none is known any more: to write the version again costs less than
		// to look whether it is there.
		tx.write().Set(tx.core.prefix.Key(nil, tableVersion, ""), []byte{version})
	}
	tx.write().Set(b.info(), binary.AppendUvarint(nil, 0))
	tx.remember(b.prefix)
	return nil
}

// Sequence is the last number that NextSequence has returned, 0 if none, or what SetSequence has set.
func (b *Bucket) Sequence() (uint64, error) {
	if err := b.begin(false); err != nil {
		return 0, err
	}
	defer b.tx.leave()
	return b.sequence()
}

func (b *Bucket) sequence() (uint64, error) {
	value, err := b.tx.get(b.info())
	if err != nil || value == nil {
		return 0, err
	}
	n, size := binary.Uvarint(value)
	if size <= 0 {
		return 0, b.tx.core.fail("sequence", holdfast.ErrCorrupt, nil, "restore a backup", "the sequence cannot be read")
	}
	return n, nil
}

// NextSequence returns the next number of the bucket, from 1, and makes the bucket if it is not there. A transaction
// that fails gives its numbers back, and so others may get them. ErrCorrupt: what is stored is no number.
func (b *Bucket) NextSequence() (n uint64, err error) {
	if err := b.begin(true); err != nil {
		return 0, err
	}
	defer b.tx.leave()
	if n, err = b.sequence(); err != nil {
		return 0, b.tx.note(err)
	}
	n++
	return n, b.setSequence(n)
}

// SetSequence lets NextSequence go on behind n, which may be lower than before. It makes the bucket if it is not
// there.
func (b *Bucket) SetSequence(n uint64) error {
	if err := b.begin(true); err != nil {
		return err
	}
	defer b.tx.leave()
	return b.setSequence(n)
}

func (b *Bucket) setSequence(n uint64) error {
	if err := b.make(); err != nil {
		return b.tx.note(err)
	}
	b.tx.write().Set(b.info(), binary.AppendUvarint(nil, n))
	return b.tx.check()
}

// Buckets yields the names of the buckets in b, in the order of their bytes. It takes a seek for each.
func (b *Bucket) Buckets() iter.Seq[string] {
	return func(yield func(string) bool) {
		prefix := append(slices.Clip(b.prefix), tableBuckets)
		lo := prefix
		for {
			name, err := b.nextBucket(prefix, lo)
			if err != nil {
				b.tx.note(err)
				return
			}
			if name == "" || !yield(name) {
				return
			}
			lo = appendName(slices.Clip(prefix), name)
			lo[len(lo)-1]++ // behind all that is in it
		}
	}
}

func (b *Bucket) nextBucket(prefix, lo []byte) (name string, err error) {
	if err := b.begin(false); err != nil {
		return "", err
	}
	defer b.tx.leave()
	it := b.tx.scan(holdfast.Range{Lo: lo, Hi: append(slices.Clip(b.prefix), tableBuckets+1)})
	defer it.Close()
	if !it.Next() {
		return "", it.Err()
	}
	name, ok := parseName(it.Key()[len(prefix):])
	if !ok {
		return "", b.tx.core.fail("buckets", holdfast.ErrCorrupt, nil, "restore a backup", "the key %.40q is no bucket's",
			it.Key())
	}
	return name, nil
}

// DeleteBucket deletes a bucket in b, with all that is in it: one range delete, whose cost is the engine's.
// ErrNoBucket: it is not there.
func (b *Bucket) DeleteBucket(name string) error {
	if err := b.begin(true); err != nil {
		return err
	}
	defer b.tx.leave()
	tx, in := b.tx, b.Bucket(name)
	if in.err != nil {
		return tx.note(in.err)
	}
	there, err := in.exists()
	if err != nil {
		return tx.note(err)
	}
	if !there {
		return tx.core.fail("delete bucket", ErrNoBucket, nil, "", "%.80q", name)
	}
	end := bytes.Clone(in.prefix)
	end[len(end)-1]++
	tx.write().DeleteRange(in.prefix, end)
	if err := tx.forgetExpiry(); err != nil {
		return tx.note(err)
	}

	// What was remembered of buckets may lie in the one that is deleted.
	tx.made, tx.deleted = nil, true
	return tx.check()
}

// forgetExpiry deletes the entries of keys that expire, which have their names, if no bucket is left: an Update that
// finds these due may never come.
func (tx *Tx) forgetExpiry() error {
	c := tx.core
	if !c.expires && !tx.expires {
		return nil
	}
	lo, hi := c.prefix.Table(tableBuckets)
	it := tx.scan(holdfast.Range{Lo: lo, Hi: hi})
	some := it.Next()
	if err := it.Close(); err != nil || some {
		return err
	}
	lo, hi = c.prefix.Table(tableExpiry)
	tx.write().DeleteRange(lo, hi)
	return nil
}

// Count counts the keys of the bucket by going over them and their values: it takes as long as reading all.
func (b *Bucket) Count() (n int64, err error) {
	c := b.Cursor()
	for key, _ := c.First(); key != nil; key, _ = c.Next() {
		n++
	}
	return n, c.Err()
}

// removeExpired deletes up to so many keys that have expired.
func (tx *Tx) removeExpired(most int) error {
	c := tx.core
	if !c.expires && !tx.expires {
		return nil
	}
	var due [][]byte
	lo, _ := c.prefix.Table(tableExpiry)
	it := tx.scan(holdfast.Range{Lo: lo, Hi: binary.BigEndian.AppendUint64(slices.Clip(lo), uint64(tx.now.UnixNano()+1))})
	for len(due) < most && it.Next() {
		due = append(due, bytes.Clone(it.Key()))
	}
	if err := it.Close(); err != nil {
		return err
	}

	// They are collected first: an iterator must not see what this loop writes.
	for _, entry := range due {
		if len(entry) < len(lo)+8 {
			return c.fail("expire", holdfast.ErrCorrupt, nil, "restore a backup", "the key %.40q cannot be read", entry)
		}
		key := append(slices.Clip([]byte(c.prefix)), entry[len(lo)+8:]...)
		stored, err := tx.get(key)
		if err != nil {
			return err
		}
		// It may have been deleted since, or put anew.
		if _, expires, there, _ := tx.value(stored); stored != nil && !there && expires != 0 {
			tx.write().Delete(key)
		}
		tx.write().Delete(entry)
	}
	tx.removed = len(due)
	return nil
}
