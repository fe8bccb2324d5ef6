package migrate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	"go.etcd.io/bbolt"

	"github.com/holdfastdb/holdfast"
)

// readState reads the list of segments. raft-wal itself would take one whose name is damaged for an empty one.
func (s *source) readState(meta *bbolt.Bucket) error {
	return meta.ForEach(func(k, v []byte) error {
		d := json.NewDecoder(bytes.NewReader(v))
		d.DisallowUnknownFields()
		if err := d.Decode(&s.state); err != nil || string(k) != metadb.MetaKey {
			return s.corrupt("the list of segments, under key %+.40q: %v", k, err)
		}

		return nil
	})
}

// openWAL copies the segments of a raft-wal to where the copy of its metadata is, and opens that.
func (s *source) openWAL(drop bool, read reading) error {
	end := uint64(0)
	for i, info := range s.state.Segments {
		if info.BaseIndex == 0 || info.MinIndex < info.BaseIndex || i > 0 && info.MinIndex != end+1 {
			return s.corrupt("%s: segment %d cannot begin with index %d", metadb.FileName, info.ID, info.MinIndex)
		}
		if info.Codec != wal.CodecBinaryV1 {
			return s.fail(holdfast.ErrVersion, "copy it with the program that knows the codec",
				"segment %d has codec %d", info.ID, info.Codec)
		}
		var err error
		if end, err = s.copySegment(info, drop, read); err != nil {
			return err
		}
	}
	w, err := wal.Open(s.scratch, wal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return err
	}
	s.log, s.closer = w, w

	first, _ := w.FirstIndex() // they fail only once it is closed
	last, _ := w.LastIndex()
	for i := first; i > 0 && i <= last; i++ {
		s.indexes = append(s.indexes, i)
	}
	lost := len(s.indexes) == 0 && len(s.state.Segments) > 0 && end >= s.state.Segments[0].MinIndex
	if lost || len(s.indexes) > 0 && last != end {
		return s.corrupt("raft-wal finds the entries up to index %d, and should find them up to index %d", last, end)
	}

	return nil
}

// copySegment copies a segment, as far as its checksums are right, and returns the last index in it. raft-wal itself
// compares no checksum but that of the last batch, and the store would give a damaged entry a right one.
func (s *source) copySegment(info types.SegmentInfo, drop bool, read reading) (end uint64, err error) {
	name := segment.FileName(info)
	path := filepath.Join(s.path, name)
	b, err := os.ReadFile(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return 0, err
	}
	if err := read(int64(len(b)), int64(len(b))); err != nil {
		return 0, err
	}
	v := soundBatches(b, info.BaseIndex)
	bad := s.corrupt("index %d: the batch that begins with it is cut off or has a wrong checksum", v.last+1)
	bad.Path, bad.Offset = path, int64(v.stopped)
	if missing {
		bad.Detail = fmt.Sprintf("index %d: the segment that begins with it is not there", info.BaseIndex)
	}

	switch rest := b[v.end:]; {
	case !info.SealTime.IsZero():
		if v.last < info.MaxIndex || v.offsets != int(info.IndexStart) {
			return 0, bad
		}
		v.last = info.MaxIndex // what follows was truncated
	case v.last+1 < info.MinIndex, otherBatch(b, v):
		bad.Detail += "; other batches seem to follow it: it is damage, and no torn end"
		return 0, bad
	case missing || len(bytes.Trim(rest, "\x00")) > 0:
		if !drop {
			bad.Remedy = "if the machine stopped while it was written, this was never acknowledged, and raft-wal would leave " +
				"it out; to leave it out here too, import with DropTorn (--drop-torn); otherwise " + bad.Remedy
			return 0, bad
		}
		s.result.Dropped = fmt.Sprintf("everything after index %d: %s", v.last, bad.Detail)
	}
	if missing {
		return v.last, nil // raft-wal makes it anew
	}

	return v.last, os.WriteFile(filepath.Join(s.scratch, name), b[:v.end], 0o600)
}

// A segment is a header and then frames, padded to a multiple of 8 bytes. A frame begins with its type (4 bytes) and
// the length of what follows (4 bytes). Nothing follows a commit, which has in place of the length the CRC-32C of
// everything since the commit before.
const (
	walHeader   = 32
	walFrame    = 8
	frameEntry  = 1
	frameIndex  = 2
	frameCommit = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sound is what the checksums of a segment vouch for.
type sound struct {
	end     int    // of the last sound batch
	last    uint64 // index in it
	offsets int    // where the list of the entries' offsets begins in a sealed segment
	stopped int    // where the reading ended
}

func soundBatches(b []byte, base uint64) sound {
	v := sound{last: base - 1, stopped: walHeader}
	index, offsets := v.last, 0

	for v.stopped <= len(b)-walFrame {
		at := v.stopped
		n := binary.LittleEndian.Uint32(b[at+4:])
		switch typ := binary.LittleEndian.Uint32(b[at:]); {
		case typ == frameCommit && crc32.Checksum(b[v.end:at], castagnoli) == n:
			v = sound{at + walFrame, index, offsets, at + walFrame}
			continue
		case typ == frameEntry:
			index++
		case typ == frameIndex:
			offsets = at + walFrame
		default:
			return v
		}
		if int64(n) > int64(len(b)-at-walFrame) { // the file ends before
			return v
		}
		v.stopped = at + walFrame + (int(n)+walFrame-1)&^(walFrame-1)
	}

	return v
}

// otherBatch reports whether a batch seems to have been written after the one that is broken, which may have a commit
// of its own: there are two, or one whose checksum is that of everything behind the broken frame.
func otherBatch(b []byte, v sound) bool {
	n := 0
	for at := v.end; at <= len(b)-walFrame; at += walFrame {
		if binary.LittleEndian.Uint32(b[at:]) != frameCommit {
			continue
		}
		n++
		from := v.stopped + walFrame
		if n > 1 || at > from && crc32.Checksum(b[from:at], castagnoli) == binary.LittleEndian.Uint32(b[at+4:]) {
			return true
		}
	}

	return false
}
