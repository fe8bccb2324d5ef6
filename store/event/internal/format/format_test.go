package format_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/event/internal/format"
)

type record struct {
	Time                             int64
	Type, ID, Origin, Metadata, Data []byte
}

func samples() []record {
	return []record{
		{},
		{Time: 1, Type: []byte("placed"), Data: []byte(`{"index": 1}`)},
		{Time: -1, Type: []byte("t"), ID: []byte("id"), Origin: []byte("o"), Metadata: []byte{1}, Data: []byte{2}},
		{Time: math.MaxInt64, Metadata: bytes.Repeat([]byte{3}, 127)},
		{Time: math.MinInt64, Metadata: bytes.Repeat([]byte{3}, 128)},
		{ID: bytes.Repeat([]byte{4}, 1024), Data: bytes.Repeat([]byte{5}, 1<<15)},
	}
}

func decode(b []byte) (record, bool) {
	time, typ, id, origin, metadata, f, ok := format.SplitRecord(b)
	if !ok {
		return record{}, false
	}
	return record{time, f[:typ], f[typ:id], f[id:origin], f[origin:metadata], f[metadata:]}, true
}

func encode(r record) []byte {
	return format.AppendRecord(nil, r.Time, string(r.Type), string(r.ID), string(r.Origin), r.Metadata, r.Data)
}

func equal(a, b record) bool {
	return a.Time == b.Time && bytes.Equal(a.Type, b.Type) && bytes.Equal(a.ID, b.ID) && bytes.Equal(a.Origin, b.Origin) &&
		bytes.Equal(a.Metadata, b.Metadata) && bytes.Equal(a.Data, b.Data)
}

func TestRecord(t *testing.T) {
	for i, r := range samples() {
		b := encode(r)
		if size := format.RecordSize(len(r.Type), len(r.ID), len(r.Origin), len(r.Metadata),
			len(r.Data)); int64(len(b)) != size {
			t.Errorf("record %d: %d bytes, announced %d", i, len(b), size)
		}
		if got, ok := decode(b); !ok || !equal(got, r) {
			t.Errorf("record %d came back as %+v", i, got)
		}
		for n := range len(b) - len(r.Data) {
			if _, ok := decode(b[:n]); ok {
				t.Errorf("record %d can be read from its first %d bytes", i, n)
			}
		}
	}
}

// pack encodes events whose first is at start.
func pack(start int64, records ...record) []byte {
	b := format.BeginPack([]byte("before"), start)
	for _, r := range records {
		b = format.AppendEntry(b, r.Time-start, string(r.Type), string(r.ID), string(r.Origin), r.Metadata, r.Data)
	}
	b = b[len("before"):]
	format.EndPack(b, len(records))
	return b
}

func unpack(b []byte) (records []record, ok bool) {
	start, rest, ok := format.SplitPack(b)
	if !ok {
		return nil, false
	}
	for range format.Count(b) {
		head, after, typ, id, origin, metadata, data := format.SplitEntry(rest)
		if head == 0 {
			return records, false
		}
		f := rest[head:]
		records = append(records, record{start + after, f[:typ], f[typ:id], f[id:origin], f[origin:metadata],
			f[metadata:data]})
		rest = f[data:]
	}
	return records, len(rest) == 0
}

// packs are samples, among them one of each kind of length.
func packs() (all [][]record) {
	all = append(all, samples())
	for _, n := range []int{0, 1, 2, 127, 128, 16383, 16384, 1 << 21} {
		b := bytes.Repeat([]byte{byte(n)}, n)
		one := []byte{1}
		for i := range 5 {
			fields := [5][]byte{one, one, one, one, one}
			fields[i] = b
			r := record{int64(n), fields[0], fields[1], fields[2], fields[3], fields[4]}
			all = append(all, []record{r, r}, []record{{Time: math.MaxInt64 - int64(n)}, r, {}})
		}
	}
	return append(all, slices.Repeat([]record{{Time: 1}}, format.MaxPack))
}

func TestPack(t *testing.T) {
	for i, records := range packs() {
		b := pack(records[0].Time, records...)
		if n := format.Count(b); n != uint64(len(records)) {
			t.Errorf("pack %d of %d holds %d", i, len(records), n)
		}
		got, ok := unpack(b)
		if !ok || !slices.EqualFunc(got, records, equal) {
			t.Errorf("pack %d did not come back", i)
		}
		if _, ok := unpack(append(b, 0)); ok {
			t.Errorf("pack %d can be read with a byte more", i)
		}
		for n := range len(b) {
			if n > 1000 && n < len(b)-1000 {
				continue
			}
			if _, ok := unpack(b[:n]); ok {
				t.Errorf("pack %d can be read from its first %d bytes", i, n)
			}
		}
	}
	for _, r := range samples() {
		if n := format.Count(encode(r)); n != 1 {
			t.Errorf("a record holds %d", n)
		}
	}
}

// FuzzPack feeds anything to the decoder: it never panics, and what it accepts means the same when it
// is encoded again.
func FuzzPack(f *testing.F) {
	for _, records := range packs()[:20] {
		f.Add(pack(records[0].Time, records...))
	}
	f.Add([]byte{2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	// lengths in more bytes than they need
	f.Add(append([]byte{2, 2, 0, 0, 0, 0, 0, 0, 0, 0}, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x80, 0))
	f.Add(append([]byte{2, 2, 0, 0, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 70)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, ok := unpack(b)
		if !ok {
			return
		}
		start, _, _ := format.SplitPack(b)
		encoded := pack(start, records...)
		if again, ok := unpack(encoded); !ok || len(encoded) > len(b) || !slices.EqualFunc(records, again, equal) {
			t.Fatalf("%q means %+v, then %+v", b, records, again)
		}
	})
}

// The format does not change by accident.
func TestGolden(t *testing.T) {
	p := format.NewPrefix("log")
	lo, hi := p.Events()
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{format.AppendRecord(nil, 1_000_000_002, "type", "id", "o", []byte("meta"), []byte("data")),
			"\x01\x00\x00\x00\x00\x3b\x9a\xca\x02\x04\x02\x01\x04typeidometadata"},
		{p.Event(nil, 258), "e\x03loge\x00\x00\x00\x00\x00\x00\x01\x02"},
		{lo, "e\x03loge"},
		{hi, "e\x03logf"},
		{format.AppendHole(nil, 258), "\x03\x00\x00\x00\x00\x00\x00\x01\x02"},
		{format.AppendStamp(nil, 258), "\x04\x00\x00\x00\x00\x00\x00\x01\x02"},
		{format.AppendStamp(nil, 0), "\x04\x00\x00\x00\x00\x00\x00\x00\x01"}, // 0 is for none
		{format.AppendMark(nil, 1, 2), "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02"},
		{p.ID(nil, 1, "id"), "e\x03logi\x00\x00\x00\x00\x00\x00\x00\x01id"},
		{format.AppendPosition(nil, 259), "\x00\x00\x00\x00\x00\x00\x01\x03"},
		{p.Meta(), "e\x03logm"},
		{pack(1_000_000_002, record{Time: 1_000_000_002, Type: []byte("type"), ID: []byte("id"), Origin: []byte("o"),
			Metadata: []byte("meta"), Data: []byte("data")},
			record{Time: 1_000_000_001, Data: bytes.Repeat([]byte("d"), 130)}),
			"\x02\x02\x00\x00\x00\x00\x3b\x9a\xca\x02" + "\x00\x04\x02\x01\x04\x04typeidometadata" +
				"\x01\x00\x00\x00\x00\x82\x01" + strings.Repeat("d", 130)},
		{format.Meta{Window: 1 << 20, First: 3, Removed: 2}.Encode(), "\x03\x00\x00\x00\x00\x00\x10\x00\x00" +
			"\x00\x00\x00\x00\x00\x00\x00\x03" + "\x00\x00\x00\x00\x00\x00\x00\x02" + "\x00\x00\x00\x00\x00\x00\x00\x00"},
		{format.Meta{Window: 1, First: 1, IDs: p.Rest(p.ID(nil, 1, "id"))}.Encode(), "\x03\x00\x00\x00\x00\x00\x00\x00\x01" +
			"\x00\x00\x00\x00\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x01id"},
		{format.Meta{Window: 1, First: 1, Holes: true}.Encode()[:1], "\x04"},
		{format.Meta{Window: 1, First: 1, Holes: true, Folded: true, IDs: []byte("12345678id")}.Encode(),
			"\x05\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00" +
				"\x0512345678id"},
		{format.Meta{Window: 1, First: 1, Stamps: true}.Encode()[25:], "\x02\x00\x00\x00\x00\x00\x00\x00\x00"},
		{p.FromID([]byte("\x00\x00\x00\x00\x00\x00\x00\x01id")), "e\x03logi\x00\x00\x00\x00\x00\x00\x00\x01id"},
		{p.FromID(nil), "e\x03logi\x00\x00\x00\x00\x00\x00\x00\x00"},
		{p.Offset("sub"), "e\x03logosub"},
		{p.Snapshot("pro"), "e\x03logspro"},
		{format.AppendCursor(nil, 7), "\x01\x00\x00\x00\x00\x00\x00\x00\x07"},
	} {
		if string(c.got) != c.want {
			t.Errorf("\n got %q\nwant %q", c.got, c.want)
		}
	}
}

func TestBadMeta(t *testing.T) {
	good := format.Meta{Window: 5, First: 9, Removed: 9, IDs: []byte("generation")}.Encode()
	if m, err := format.DecodeMeta(good); err != nil || m.Window != 5 || m.First != 9 || m.Removed != 9 ||
		string(m.IDs) != "generation" {
		t.Fatal(m, err)
	}
	for version := byte(1); version < 3; version++ {
		old := append([]byte{version}, good[1:17]...)
		if m, err := format.DecodeMeta(old); err != nil || m.Window != 5 || m.First != 9 || m.Removed != 0 || m.IDs != nil {
			t.Fatal(m, err)
		}
	}
	for _, c := range []struct {
		b    []byte
		want error
	}{
		{nil, holdfast.ErrCorrupt},
		{good[:16], holdfast.ErrCorrupt},
		{good[:32], holdfast.ErrCorrupt},
		{append([]byte{2}, good[1:]...), holdfast.ErrCorrupt},
		{append([]byte{0}, good[1:]...), holdfast.ErrCorrupt},
		{append([]byte{6}, good[1:]...), holdfast.ErrVersion},
		{format.Meta{Window: 0, First: 1}.Encode(), holdfast.ErrCorrupt},
		{format.Meta{Window: 1, First: 0}.Encode(), holdfast.ErrCorrupt},
		{format.Meta{Window: 1, First: 1, Removed: 2}.Encode(), holdfast.ErrCorrupt},
	} {
		if _, err := format.DecodeMeta(c.b); !errors.Is(err, c.want) {
			t.Errorf("%q: %v", c.b, err)
		}
	}
}

// FuzzRecord feeds anything to the decoder: it never panics, and what it accepts means the
// same when it is encoded again.
func FuzzRecord(f *testing.F) {
	for _, r := range samples() {
		f.Add(encode(r))
	}
	f.Add([]byte{})
	f.Add([]byte{2})
	f.Add(append(make([]byte, 9), 0, 0x80, 0, 0, 0)) // a length in more bytes than it needs
	f.Add(append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, 0, 0x80, 0, 0, 0))
	f.Add(append(bytes.Repeat([]byte{1}, 9), bytes.Repeat([]byte{0xff}, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := decode(b)
		if !ok {
			return
		}
		encoded := encode(r)
		if again, ok := decode(encoded); !ok || len(encoded) > len(b) || !equal(r, again) {
			t.Fatalf("%q means %+v, then %+v", b, r, again)
		}
	})
}

// FuzzOther feeds anything to the other decoders: what they accept is what is encoded.
func FuzzOther(f *testing.F) {
	f.Add(format.Meta{Window: 1, First: 1}.Encode())
	f.Add(format.AppendCursor(nil, 1))
	f.Add(format.NewPrefix("log").Event(nil, 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := format.DecodeMeta(b); err == nil && !bytes.Equal(m.Encode(), b) && b[0] >= 3 {
			t.Errorf("%q means %+v", b, m)
		}
		if pos, state, ok := format.DecodeCursor(b); ok && !bytes.Equal(append(format.AppendCursor(nil, pos), state...), b) {
			t.Errorf("%q means %d and %q", b, pos, state)
		}
		if pos, ok := keyspace.Number(b); ok && !bytes.Equal(format.AppendPosition(nil, pos), b) {
			t.Errorf("%q means %d", b, pos)
		}
		p := format.NewPrefix("log")
		if pos, ok := p.Number(b); ok && !bytes.Equal(p.Event(nil, pos)[len(p.Prefix)+1:], b[len(b)-8:]) {
			t.Errorf("%q means %d", b, pos)
		}
	})
}

// A stamp is taken off, whatever is behind it, and nothing else is taken for one.
func TestStamp(t *testing.T) {
	record := format.AppendRecord(nil, 7, "t", "", "", nil, nil)
	for _, value := range append([][]byte{record, pack(7, samples()[:2]...)}, []byte{0}) {
		for _, at := range []int64{1, -1, 1 << 62, -1 << 63} {
			stamped := append(format.AppendStamp(nil, at), value...)
			written, rest := format.SplitStamp(stamped)
			if written != at || !bytes.Equal(rest, value) || format.Count(stamped) != format.Count(value) ||
				format.IsHole(stamped) {
				t.Fatalf("%q: %d, %q, %d events", stamped, written, rest, format.Count(stamped))
			}
		}
		if written, rest := format.SplitStamp(value); written != 0 || !bytes.Equal(rest, value) {
			t.Fatalf("%q: %d, %q", value, written, rest)
		}
	}
	hole := format.AppendHole(format.AppendStamp(nil, 1), 9) // which nobody writes
	if format.Count(hole) != 1 || format.IsHole(hole) {
		t.Fatal(format.Count(hole))
	}
	for _, m := range []format.Meta{{Stamps: true}, {Folded: true}, {Stamps: true, Folded: true, Holes: true},
		{Holes: true},
		{}} {
		m.Window, m.First, m.IDs = 3, 2, []byte("12345678id")
		got, err := format.DecodeMeta(m.Encode())
		if err != nil || got.Stamps != m.Stamps || got.Folded != m.Folded || got.Holes != m.Holes ||
			!bytes.Equal(got.IDs, m.IDs) || got.Window != 3 || got.First != 2 {
			t.Fatalf("%+v: %+v, %v", m, got, err)
		}
	}
	unknown := format.Meta{Window: 1, First: 1, Stamps: true}.Encode()
	unknown[25] |= 8
	if _, err := format.DecodeMeta(unknown); !errors.Is(err, holdfast.ErrVersion) {
		t.Fatal(err)
	}
}
