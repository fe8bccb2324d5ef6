package wal

import (
	"bytes"
	"encoding/binary"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// PayloadIn returns how many bytes of keys and values of keys in [lo, hi), of which an empty hi is no bound, are in the
// segment's frames, whether they are still named or not. It is for choosing what to empty: nothing is checked, and what
// makes no sense ends the count. A segment of moved values has its keys in order, so little more is read of it than
// the stretch; of others everything is read but long values. stop is asked now and then.
func (s *Segment) PayloadIn(lo, hi []byte, stop func() error) (sum int64, err error) {
	r := &recordReader{s: s, end: s.Used.Load()}
	for off := int64(format.SegmentHeaderSize); off+format.FrameHeader < r.end; {
		if err := stop(); err != nil {
			return 0, err
		}
		kind, size, err := r.frame(off)
		if err != nil {
			return 0, err
		}
		at, next := off+format.FrameHeader, off+int64(format.FrameSize(int(size)))
		if kind == 0 || next > r.end {
			return sum, nil
		}

		// A record that makes no sense ends the count: this is an estimate, and verify finds the damage.
		for to := at + size; kind == format.KindBatch && at < to; {
			key, value, n, err := r.record(at, to)
			if err != nil || n == 0 {
				return sum, err
			}
			behind := len(hi) > 0 && bytes.Compare(key, hi) >= 0
			if bytes.Compare(key, lo) >= 0 && !behind {
				sum += int64(len(key)) + value
			}
			if s.Kind == format.SegmentMoved {
				if behind {
					return sum, nil
				}

				// Keys ascend. If the next frame begins with a key that is still before the range, this frame has nothing of it.
				if at == off+format.FrameHeader && r.nothingBefore(next, lo) {
					break
				}
			}
			at += n
		}
		off = next
	}

	return sum, nil
}

// recordReader reads frames and records of a segment up to their values, through a buffer.
type recordReader struct {
	s   *Segment
	end int64
	off int64 // of buf
	buf []byte
}

const (
	recordAhead = 64 << 10                 // bytes that are read at once
	recordHead  = holdfast.MaxKeySize + 16 // before a value there are no more
	peekHead    = 256                      // with a shorter key there are mostly no more than these
)

// at returns n bytes, or as many as there are, and reads more if it has to.
func (r *recordReader) at(off, n, ahead int64) ([]byte, error) {
	n = min(n, r.end-off)
	if off < r.off || off+n > r.off+int64(len(r.buf)) {
		b, err := r.s.Read(r.buf[:0], off, int(min(max(n, ahead), r.end-off)))
		if err != nil {
			r.buf = nil
			return nil, err
		}
		r.off, r.buf = off, b
	}

	return r.buf[off-r.off:][:n], nil
}

// frame reads the kind and the length of the frame at off, unchecked. Kind 0: there is none.
func (r *recordReader) frame(off int64) (kind format.FrameKind, size int64, err error) {
	b, err := r.at(off, format.FrameHeader, recordAhead)
	if err != nil || len(b) < format.FrameHeader {
		return 0, 0, err
	}
	word := binary.LittleEndian.Uint32(b[4:])

	return format.FrameKind(word & 3), int64(word >> 2), nil
}

// record returns the key of the record at off, how long its value is and the record, 0 if there is none.
func (r *recordReader) record(off, end int64) (key []byte, value, size int64, err error) {
	b, err := r.at(off, min(recordHead, end-off), recordAhead)
	if err != nil {
		return nil, 0, 0, err
	}
	key, value, size, ok := format.ParseRecordHead(b)
	if !ok || size > end-off {
		return nil, 0, 0, nil
	}

	return key, value, size, nil
}

// nothingBefore reports whether the frame at off begins with a key up to lo: then no record before it counts.
func (r *recordReader) nothingBefore(off int64, lo []byte) bool {
	// A reader of its own, so that a look ahead does not throw away the buffer of the walk.
	x := recordReader{s: r.s, end: r.end, buf: nil}
	b, err := x.at(off, format.FrameHeader+peekHead, 0)
	if err != nil || len(b) <= format.FrameHeader {
		return false
	}
	key, _, _, ok := format.ParseRecordHead(b[format.FrameHeader:])

	return ok && bytes.Compare(key, lo) <= 0
}
