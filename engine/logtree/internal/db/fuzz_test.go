package db

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/vfs"
)

// FuzzManifest decodes anything, and with a right checksum before it what then is a body.
func FuzzManifest(f *testing.F) {
	m := &manifest{db: dbID{1}, nextFile: 9, nextTier: 2, from: position{3, 164, 1000, 17}, synced: 1100,
		tiers: []manifestTier{{2, []manifestRef{{5, nil, []byte("k")}, {5, []byte("m"), nil}}},
			{1, []manifestRef{{4, nil, nil}}}},
		segs: []manifestSegment{{1, 4096, 3000}, {2, 8192, 8000}}}
	f.Add(m.encode())
	f.Add(m.encode()[manifestHeader:])
	f.Add((&manifest{}).encode()[manifestHeader:])
	f.Add(binary.AppendUvarint(make([]byte, 16+7), math.MaxUint64))
	f.Fuzz(func(t *testing.T, data []byte) {
		check := func(b []byte) {
			m, err := decodeManifest(b, "MANIFEST")
			if err != nil {
				if !errors.Is(err, holdfast.ErrCorrupt) && !errors.Is(err, holdfast.ErrVersion) {
					t.Fatal(err)
				}
				return
			}
			again, err := decodeManifest(m.encode(), "MANIFEST")
			if err != nil || !bytes.Equal(again.encode(), m.encode()) {
				t.Fatalf("what was decoded does not decode again: %v", err)
			}
		}
		check(data)
		b := append(make([]byte, manifestHeader), data...)
		copy(b, manifestMagic)
		binary.LittleEndian.PutUint32(b[8:], manifestVersion)
		binary.LittleEndian.PutUint32(b[12:], uint32(len(data)))
		binary.LittleEndian.PutUint32(b[16:], crcUpdate(checksum(b[:16]), data))
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
	whole := fuzzFrame(nil, epoch, frameBatch, b.Bytes(), 3, 40)
	var begun [beginBody]byte
	begin{1, 2, 3}.put(begun[:])
	whole = fuzzFrame(whole, epoch, frameBegin, begun[:], 0, 0)
	var ended [endBody]byte
	successor{7, true}.put(ended[:])
	whole = fuzzFrame(whole, epoch, frameEnd, ended[:], 0, math.MaxUint32)
	f.Add(whole, uint32(epoch))
	f.Add(whole[4:], uint32(epoch))
	f.Add(b.Bytes(), uint32(0))
	f.Add([]byte{1, 0x80, 0x80}, uint32(0))
	f.Fuzz(func(t *testing.T, data []byte, epoch uint32) {
		end := 0
		for _, x := range framesIn(data, 1<<40, epoch) {
			if x.at < end || x.at%frameAlign != 0 || x.at+frameHeader+len(x.body) > len(data) || x.kind == 0 {
				t.Fatalf("a frame at byte %d of %d, of %d bytes, behind one that ends at %d", x.at, len(data), x.size(), end)
			}
			end = x.at + x.size()
			if lsn := uint64(x.at); true {
				if synced, ok := x.synced(lsn); ok && synced > lsn {
					t.Fatalf("at %d, %d is synced", lsn, synced)
				}
			}
			parseBegin(x.frame)
			parseEnd(x.frame)
		}
		n, err := checkBody(data)
		if err != nil {
			return
		}
		// What is a batch reads as so many operations, which end where it ends.
		at := 0
		for range n {
			r, ok := parseRecord(data[at:])
			if !ok || r.kind != holdfast.KindDelete && !bytes.Equal(data[at+r.valueAt:at+r.valueAt+len(r.value)], r.value) {
				t.Fatalf("the record at byte %d: %v", at, ok)
			}
			at += r.size
		}
		if at != len(data) {
			t.Fatalf("%d operations end at byte %d of %d", n, at, len(data))
		}
	})
}

// fuzzFrame appends a frame with a right checksum.
func fuzzFrame(dst []byte, epoch uint32, kind frameKind, body []byte, seq, unsynced uint32) []byte {
	b := make([]byte, frameSize(len(body)))
	copy(b[frameHeader:], body)
	putFrameHeader(b, epoch, kind, len(body), checksum(body), seq, unsynced)
	return append(dst, b...)
}

// FuzzReplay opens a database whose log is anything: segments 1 to 3 as they are given, behind right headers,
// or, if framed, made of whole frames that data describes.
func FuzzReplay(f *testing.F) {
	var b holdfast.Batch
	b.Set([]byte("k"), []byte("v"))
	begun := make([]byte, beginBody)
	frame := func(kind frameKind, body []byte, seq byte) []byte {
		return append([]byte{byte(kind), seq, 0, byte(len(body))}, body...)
	}
	first := append(frame(frameBegin, begun, 0), frame(frameBatch, b.Bytes(), 0)...)
	first = append(first, frame(frameBatch, b.Bytes(), 1)...)
	var ended [endBody]byte
	successor{2, false}.put(ended[:])
	full := append(bytes.Clone(first), frame(frameEnd, ended[:], 2)...)
	begin{2, uint64(beginSize + 2*frameSize(b.Size()) + endSize), 1}.put(begun)
	second := append(frame(frameBegin, begun, 0), frame(frameBatch, b.Bytes(), 0)...)
	f.Add(true, first, []byte{}, []byte{})
	f.Add(true, full, second, []byte{})
	f.Add(true, full, []byte{}, second)
	f.Add(true, []byte{}, second, first)
	f.Add(true, frame(frameBatch, b.Bytes(), 0), second, first)
	f.Add(false, make([]byte, 100), bytes.Repeat([]byte{1}, 100), []byte{})
	f.Fuzz(func(t *testing.T, framed bool, one, two, three []byte) {
		fsys := vfs.NewMem()
		c := testConfig(fsys, "/")
		c.Manual, c.SyncEvery = true, -1
		d, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		id := d.id
		c.New = false
		for i, data := range [][]byte{one, two, three} {
			if len(data) == 0 {
				continue
			}
			s := &segment{id: uint32(i + 1), kind: kindLog, size: 1 << 16, epoch: id.epoch(uint32(i + 1))}
			file := s.header(id)
			if framed {
				for len(data) >= 4 && len(file) < 1<<16 {
					n := min(int(data[3]), len(data)-4)
					file = fuzzFrame(file, s.epoch, frameKind(data[0]&3), data[4:4+n], uint32(data[1]), uint32(data[2])<<2)
					data = data[4+n:]
				}
			} else {
				file = append(file, data...)
			}
			if err := writeFile(fsys, segmentName("/", s.id), file); err != nil {
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
