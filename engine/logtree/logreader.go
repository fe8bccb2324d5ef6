package logtree

import (
	"iter"
	"math"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
)

// LogReader finds the batches in what the log of a database has grown by, as a [Feed] has given it.
type LogReader struct {
	id   format.DatabaseID
	file string // that is being read
	seg  uint32
	at   int64  // in the file, where buf begins
	buf  []byte // a frame that is not complete
}

// ReadLog returns a reader of the log of the database that has such a manifest.
func ReadLog(manifest []byte) (*LogReader, error) {
	m, err := format.DecodeManifest(manifest, format.ManifestName)
	if err != nil {
		return nil, err
	}

	return &LogReader{id: m.DB}, nil
}

// Read goes on with bytes of a segment from an offset on, which must be where the bytes before end, or 0 in the next
// segment; the first are from where the log ended at some moment. It calls visit with each batch that is complete now,
// and where in the file it begins, which may be before these bytes, until that returns false. The operations are valid
// until visit returns. ErrCorrupt: it is no such log.
func (r *LogReader) Read(file string, from int64, b []byte,
	visit func(at int64, ops iter.Seq[holdfast.Op]) bool) error {
	if file != r.file {
		n, ok := format.Numbered(file, format.SegmentExt)
		if !ok || n > math.MaxUint32 {
			return format.Corrupt(file, 0, "it is no segment", nil)
		}
		r.file, r.seg, r.at, r.buf = file, uint32(n), from, nil
	}
	if from != r.at+int64(len(r.buf)) {
		return format.Corrupt(file, from, "the log has a gap before it", nil)
	}
	r.buf = append(r.buf, b...)
	if r.at < format.SegmentHeaderSize {
		if len(r.buf) < format.SegmentHeaderSize {
			return nil
		}
		r.skip(format.SegmentHeaderSize)
	}

	for {
		size, ok := format.FrameLength(r.buf)
		if !ok || size > len(r.buf) {
			return nil
		}
		f, ok := format.ParseFrame(r.buf[:size], r.id.Epoch(r.seg))
		if !ok {
			return format.Corrupt(file, r.at, "a frame is damaged", nil)
		}
		if f.Kind == format.KindBatch {
			if _, err := format.CheckBatch(f.Body); err != nil {
				return format.Corrupt(file, r.at, err.Error(), nil)
			}
			if !visit(r.at, operations(f.Body)) {
				return nil
			}
		}
		r.skip(size)
	}
}

func (r *LogReader) skip(n int) { r.buf, r.at = r.buf[n:], r.at+int64(n) }

// operations yields those of a batch's encoding, which was checked.
func operations(body []byte) iter.Seq[holdfast.Op] {
	return func(yield func(holdfast.Op) bool) {
		for len(body) > 0 {
			rec, _ := format.ParseRecord(body)
			if !yield(holdfast.Op{Kind: rec.Kind, Key: rec.Key, Value: rec.Value}) {
				return
			}
			body = body[rec.Size:]
		}
	}
}
