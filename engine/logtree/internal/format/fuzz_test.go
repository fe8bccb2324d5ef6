package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/holdfastdb/holdfast"
)

// FuzzManifest decodes anything, and with a right checksum before it what then is a body.
func FuzzManifest(f *testing.F) {
	m := &Manifest{DB: DatabaseID{1}, NextFile: 9, NextTier: 2, From: Position{3, 164, 1000, 17}, Synced: 1100,
		Tiers: []ManifestTier{{2, []ManifestRef{{5, nil, []byte("k")}, {5, []byte("m"), nil}}},
			{1, []ManifestRef{{4, nil, nil}}}},
		Segments: []ManifestSegment{{1, 4096, 3000}, {2, 8192, 8000}}}
	f.Add(m.Encode())
	f.Add(m.Encode()[ManifestHeader:])
	f.Add((&Manifest{}).Encode()[ManifestHeader:])
	f.Add(binary.AppendUvarint(make([]byte, 16+7), math.MaxUint64))
	f.Fuzz(func(t *testing.T, data []byte) {
		check := func(b []byte) {
			m, err := DecodeManifest(b, "MANIFEST")
			if err != nil {
				if !errors.Is(err, holdfast.ErrCorrupt) && !errors.Is(err, holdfast.ErrVersion) {
					t.Fatal(err)
				}
				return
			}
			again, err := DecodeManifest(m.Encode(), "MANIFEST")
			if err != nil || !bytes.Equal(again.Encode(), m.Encode()) {
				t.Fatalf("what was decoded does not decode again: %v", err)
			}
		}
		check(data)
		b := append(make([]byte, ManifestHeader), data...)
		copy(b, ManifestMagic)
		binary.LittleEndian.PutUint32(b[8:], ManifestVersion)
		binary.LittleEndian.PutUint32(b[12:], uint32(len(data)))
		binary.LittleEndian.PutUint32(b[16:], UpdateChecksum(Checksum(b[:16]), data))
		check(b)
	})
}

// FuzzFrames looks for frames anywhere, and takes them and batches apart.
func FuzzFrames(f *testing.F) {
	const epoch = 77
	var b holdfast.Batch
	b.Set([]byte("key"), []byte("value"))
	b.Delete([]byte("key"))
	b.DeleteRange([]byte("a"), nil)
	whole := AppendFrame(nil, epoch, KindBatch, b.Bytes(), 3, 40)
	var begun [BeginBody]byte
	Begin{1, 2, 3}.Put(begun[:])
	whole = AppendFrame(whole, epoch, KindBegin, begun[:], 0, 0)
	var ended [EndBody]byte
	Successor{7, true}.Put(ended[:])
	whole = AppendFrame(whole, epoch, KindEnd, ended[:], 0, math.MaxUint32)
	f.Add(whole, uint32(epoch))
	f.Add(whole[4:], uint32(epoch))
	f.Add(b.Bytes(), uint32(0))
	f.Add([]byte{1, 0x80, 0x80}, uint32(0))
	f.Fuzz(func(t *testing.T, data []byte, epoch uint32) {
		end := 0
		for x := range Stretches(data, epoch, 0) {
			if x.At != end || x.At%FrameAlign != 0 || x.Len <= 0 || x.At+x.Len > len(data) ||
				x.Kind != 0 && x.At+FrameHeader+len(x.Body) > len(data) {
				t.Fatalf("a stretch at byte %d of %d, of %d bytes, behind one that ends at %d", x.At, len(data), x.Len, end)
			}
			if end = x.At + x.Len; x.Kind == 0 {
				continue
			}
			if lsn := uint64(x.At); true {
				if synced, ok := x.Synced(lsn); ok && synced > lsn {
					t.Fatalf("at %d, %d is synced", lsn, synced)
				}
			}
			ParseBegin(x.Frame)
			ParseEnd(x.Frame)
		}
		n, err := CheckBatch(data)
		if err != nil {
			return
		}
		// What is a batch reads as so many operations, which end where it ends.
		at := 0
		for range n {
			r, ok := ParseRecord(data[at:])
			if !ok || r.Kind != holdfast.KindDelete && !bytes.Equal(data[at+r.ValueAt:at+r.ValueAt+len(r.Value)], r.Value) {
				t.Fatalf("the record at byte %d: %v", at, ok)
			}
			at += r.Size
		}
		if at != len(data) {
			t.Fatalf("%d operations end at byte %d of %d", n, at, len(data))
		}
	})
}
