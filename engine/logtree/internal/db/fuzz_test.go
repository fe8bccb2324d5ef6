package db

import (
	"bytes"
	"errors"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/format"
	"github.com/holdfastdb/holdfast/engine/logtree/internal/wal"
	"github.com/holdfastdb/holdfast/vfs"
)

// FuzzReplay opens a database whose log is anything: segments 1 to 3 as they are given, behind right headers,
// or, if framed, made of whole frames that data describes.
func FuzzReplay(f *testing.F) {
	var b holdfast.Batch
	b.Set([]byte("k"), []byte("v"))
	begun := make([]byte, format.BeginBody)
	frame := func(kind format.FrameKind, body []byte, seq byte) []byte {
		return append([]byte{byte(kind), seq, 0, byte(len(body))}, body...)
	}
	first := append(frame(format.KindBegin, begun, 0), frame(format.KindBatch, b.Bytes(), 0)...)
	first = append(first, frame(format.KindBatch, b.Bytes(), 1)...)
	var ended [format.EndBody]byte
	format.Successor{ID: 2}.Put(ended[:])
	full := append(bytes.Clone(first), frame(format.KindEnd, ended[:], 2)...)
	lsn := uint64(format.BeginSize + 2*format.FrameSize(b.Size()) + format.EndSize)
	format.Begin{Seq: 2, LSN: lsn, Prev: 1}.Put(begun)
	second := append(frame(format.KindBegin, begun, 0), frame(format.KindBatch, b.Bytes(), 0)...)
	f.Add(true, first, []byte{}, []byte{})
	f.Add(true, full, second, []byte{})
	f.Add(true, full, []byte{}, second)
	f.Add(true, []byte{}, second, first)
	f.Add(true, frame(format.KindBatch, b.Bytes(), 0), second, first)
	f.Add(false, make([]byte, 100), bytes.Repeat([]byte{1}, 100), []byte{})
	f.Fuzz(func(t *testing.T, framed bool, one, two, three []byte) {
		fsys := vfs.NewMem()
		c := testConfig(fsys, "/")
		c.Manual, c.SyncEvery = true, -1
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		id := d.files.DB
		c.New = false
		for i, data := range [][]byte{one, two, three} {
			if len(data) == 0 {
				continue
			}
			s := &wal.Segment{SegmentHeader: format.SegmentHeader{ID: uint32(i + 1), Kind: format.SegmentLog, Size: 1 << 16},
				Epoch: id.Epoch(uint32(i + 1))}
			file := s.Encode(id)
			if framed {
				for len(data) >= 4 && len(file) < 1<<16 {
					n := min(int(data[3]), len(data)-4)
					file = format.AppendFrame(file, s.Epoch, format.FrameKind(data[0]&3), data[4:4+n],
						uint32(data[1]), uint32(data[2])<<2)
					data = data[4+n:]
				}
			} else {
				file = append(file, data...)
			}
			if err := writeFile(fsys, format.SegmentName("/", s.ID), file); err != nil {
				t.Fatal(err)
			}
		}
		before, err := fuzzContents(c)
		if err != nil {
			// Or no number is left for a new segment.
			if !errors.Is(err, holdfast.ErrCorrupt) && !errors.Is(err, holdfast.ErrVersion) &&
				!errors.Is(err, holdfast.ErrTooLarge) {
				t.Fatal(err)
			}
			return
		}
		after, err := fuzzContents(c)
		if errors.Is(err, holdfast.ErrTooLarge) {
			return
		}
		if err != nil || !bytes.Equal(before, after) {
			t.Fatalf("opened again: %q, %v; before, %q", after, err, before)
		}
	})
}

// fuzzContents opens a database, reads all of it, writes something that changes nothing, and closes it.
func fuzzContents(c Config) ([]byte, error) {
	d, err := Open(c)
	if err != nil {
		return nil, err
	}
	var all []byte
	it := d.Scan(holdfast.Range{})
	for it.Next() {
		all = append(append(append(append(all, it.Key()...), 0), it.Value()...), 0)
	}
	err = it.Close()
	var b holdfast.Batch
	b.Delete([]byte("not there, and never will be"))
	return all, errors.Join(err, commit(d, &b, holdfast.Process), d.Close())
}
