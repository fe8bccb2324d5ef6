package db

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/memtable"
)

// A batch of large values is not copied into the memtable's image. Apply writes its frame to the log's
// file at once, whatever its level, and the index names the places of its values there, as runs do. It does so
// with the order's lock held, where else it would copy: so the values are in the file before
// they are visible, and the queue needs to know only that they are.
const (
	// mostFar is the size in bytes from which on values are large, and a memtable's farShare of values if
	// that is less.
	mostFar  = 4 << 10
	farShare = 64

	// farWeight is how many bytes of far frames count as one of memory in how full a memtable is: they
	// cost none, but have to be replayed.
	farWeight = 4

	// maxJoined is the size in bytes up to which a far frame is put together, to be written by one call.
	maxJoined = 64 << 10
)

// far is a batch of large values that is being written to the log.
type far struct {
	sums   []uint32 // of the values, in order; deletes have none
	sum    uint32   // of the body
	joined []byte   // the frame, its header still empty; empty if it is too large for that
	end    [frameHeader]byte
}

var fars = sync.Pool{New: func() any { return new(far) }}

// newFar returns nil if the body, of so many operations, is to be copied like any other: its values are small,
// or it deletes a range. It returns the body's checksum too.
func (d *DB) newFar(body []byte, ops int) (*far, uint32) {
	if len(body)/ops < d.farLeast {
		return nil, checksum(body)
	}
	f := fars.Get().(*far)
	if !f.measure(body) {
		f.recycle()
		return nil, checksum(body)
	}
	return f, f.sum
}

// recycle gives f back.
func (f *far) recycle() { fars.Put(f) }

// join puts the frame together if it is small enough.
func (f *far) join(body []byte) {
	f.joined = f.joined[:0]
	if n := frameSize(len(body)); n <= maxJoined {
		f.joined = slices.Grow(f.joined, n)[:n]
		copy(f.joined[frameHeader:], body)
		clear(f.joined[frameHeader+len(body):])
	}
}

// measure takes the checksums, reading every byte once. It returns false for a batch that deletes a range.
func (f *far) measure(body []byte) bool {
	f.sums, f.sum = f.sums[:0], 0
	for at := 0; at < len(body); {
		r, _ := parseRecord(body[at:])
		if r.kind == holdfast.KindDeleteRange {
			return false
		}
		if r.kind == holdfast.KindDelete {
			f.sum = crcUpdate(f.sum, body[at:at+r.size])
		} else {
			sum := checksum(r.value)
			f.sums = append(f.sums, sum)
			f.sum = crcJoin(crcUpdate(f.sum, body[at:at+r.valueAt]), sum, len(r.value))
		}
		at += r.size
	}
	return true
}

// appendFar writes a far frame to the log and indexes it. Room for it has been made. It returns false if the frame
// cannot be written. The log has failed then and the batch will not be acknowledged. It is to be copied after all,
// so that it is visible like any other that is applied and not written. It is called with mu held.
func (d *DB) appendFar(mem *table, f *far, body []byte) bool {
	n := frameSize(len(body))
	at := d.off
	var h [frameHeader]byte
	d.header(h[:], frameBatch, len(body), f.sum)
	start := time.Now()
	err := f.write(d.cur, at, h[:], body)
	if d.watch.long(start) {
		d.watch.waited(start, "writing to the log", "path", d.cur.file.Name(), "bytes", n)
	}
	if err != nil {
		d.log.fail(err)
		return false
	}
	mem.keep(d.cur)
	d.cur.reach.Store(at + int64(n))
	if d.log.err() != nil {
		return false // save may have missed it
	}
	d.lsn += uint64(n)
	d.off += int64(n)
	d.log.push(chunk{seg: d.cur, off: at, size: n, end: d.lsn})
	mem.far += int64(n)
	seq, payload := mem.addFar(d.cur, at+frameHeader, body, f.sums, d.seq+1)
	d.seq = seq
	d.cur.payload.Add(payload)
	return true
}

// write writes the frame. Its header goes last, so that what is cut short is no frame.
func (f *far) write(s *segment, off int64, h, body []byte) error {
	if len(f.joined) > 0 {
		copy(f.joined, h)
		return s.write(f.joined, off, false)
	}
	if err := s.write(body, off+frameHeader, false); err != nil {
		return err
	}
	clear(f.end[:])
	if pad := f.end[:frameSize(len(body))-frameHeader-len(body)]; len(pad) > 0 {
		if err := s.write(pad, off+frameHeader+int64(len(body)), false); err != nil {
			return err
		}
	}
	copy(f.end[:], h)
	return s.write(f.end[:], off, false)
}

// saved is a stretch of a segment's file as it was when the log failed.
type saved struct {
	from int64
	b    []byte
}

// save copies far frames that are not known to be synced back to memory. It is called when the log has failed, with any
// lock held: after a failed sync the system may drop pages that it shows, and reads must go on.
func (d *DB) save() {
	v := d.view.Load()
	for v != nil && !v.tryAcquire() {
		old := v
		if v = d.view.Load(); v == old {
			return // the database is closed
		}
	}
	if v == nil {
		return
	}
	defer v.release()
	for _, t := range append([]*table{v.mem}, v.imm...) {
		if p := t.segs.Load(); p != nil {
			for _, s := range *p {
				s.save(d.log.synced.Load())
			}
		}
	}
}

// save keeps what lies behind the lsn synced. What cannot be read is read again, and checked, when it is asked for.
func (s *segment) save(synced uint64) {
	from, to := int64(segmentHeader), s.reach.Load()
	if synced > s.start {
		from += int64(synced - s.start)
	}
	if from >= to || s.saved.Load() != nil {
		return
	}
	b := make([]byte, to-from)
	n, _ := s.file.ReadAt(b, from)
	s.saved.Store(&saved{from, b[:n]})
}

// addFar is add for a batch whose encoding is at off in segment s and not in the image.
func (t *table) addFar(s *segment, off int64, body []byte, sums []uint32, seq uint64) (uint64, int64) {
	t.keep(s)
	seq--
	payload := int64(0)
	for at := 0; at < len(body); {
		r, _ := parseRecord(body[at:])
		seq++
		payload += int64(len(r.key) + len(r.value))
		if r.kind == holdfast.KindDelete {
			t.deletes++
			addr, own := t.image.Reserve(r.size)
			copy(own, body[at:])
			t.index.Add(addr, own[r.size-len(r.key):], seq)
		} else {
			place := uint64(s.id)<<32 | uint64(off+int64(at+r.valueAt))
			t.index.AddFar(r.key, memtable.Place{At: place, Len: uint32(len(r.value)), Sum: sums[0]}, seq)
			sums = sums[1:]
		}
		at += r.size
	}
	return seq, payload
}

// keep makes the table hold a reference to s, from before anything in it is indexed.
func (t *table) keep(s *segment) {
	var old []*segment
	if p := t.segs.Load(); p != nil {
		old = *p
	}
	if n := len(old); n > 0 && old[n-1] == s {
		return
	}
	s.acquire()
	segs := append(slices.Clip(old), s)
	t.segs.Store(&segs)
}

// value appends a version's value to dst. The caller guards against memory faults.
func (t *table) value(dst []byte, v *memtable.Version) ([]byte, error) {
	if !v.Far {
		return append(dst, v.Value...), nil
	}
	if p := t.segs.Load(); p != nil {
		segs := *p
		for i := len(segs) - 1; i >= 0; i-- {
			if segs[i].id == uint32(v.Place.At>>32) {
				return segs[i].far(dst, int64(uint32(v.Place.At)), int(v.Place.Len), v.Place.Sum)
			}
		}
	}
	return dst, corrupt("", 0, fmt.Sprintf("the memtable names segment %d, which it does not hold", v.Place.At>>32), nil)
}

// getFar is value for callers that have not guarded against memory faults.
func (t *table) getFar(dst []byte, v *memtable.Version) (_ []byte, err error) {
	defer unguard(guard(), &err)
	return t.value(dst, v)
}

// far is value for what no run names yet: used may not have come to it.
func (s *segment) far(dst []byte, off int64, n int, sum uint32) ([]byte, error) {
	old := len(dst)
	dst, err := s.readTo(dst, off, n, s.size)
	if err != nil {
		return dst, err
	}
	return s.checked(dst, old, off, sum)
}

// checked returns dst if its bytes from old on, which are from off, have that checksum.
func (s *segment) checked(dst []byte, old int, off int64, sum uint32) ([]byte, error) {
	if checksum(dst[old:]) != sum {
		return dst[:old], corrupt(s.file.Name(), off,
			fmt.Sprintf("the checksum of a value of %d bytes is wrong", len(dst)-old), nil)
	}
	return dst, nil
}

// crcJoin returns the checksum of two stretches that have checksums a and b, the second of n bytes.
//
// A checksum is the remainder of a polynomial whose coefficients are bits, modulo the Castagnoli polynomial: the
// first stretch stands 8n places higher than the second, so its remainder counts x^8n times.
func crcJoin(a, b uint32, n int) uint32 {
	shift := uint32(crcOne)
	for k, e := 0, uint64(n)*8; e > 0; k, e = k+1, e>>1 {
		if e&1 != 0 {
			shift = crcMul(crcPowers[k], shift)
		}
	}
	return crcMul(a, shift) ^ b
}

// A remainder's highest bit is its lowest coefficient.
const (
	crcOne  = 1 << 31
	crcPoly = 0x82f63b78
)

// crcPowers has x^(2^k).
var crcPowers = func() (p [40]uint32) {
	p[0] = crcOne >> 1
	for k := 1; k < len(p); k++ {
		p[k] = crcMul(p[k-1], p[k-1])
	}
	return p
}()

// crcMul multiplies remainders.
func crcMul(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		if a&crcOne != 0 {
			product ^= b
		}
		b = b>>1 ^ crcPoly&-(b&1)
	}
	return product
}
