package format_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/internal/keyspace"
	"github.com/holdfastdb/holdfast/store/raftlog/internal/format"
)

const at = 258

var (
	prefix = format.NewPrefix("log")
	key    = prefix.Log(nil, at)
)

func samples() []raft.Log {
	return []raft.Log{
		{},
		{Term: 1, Data: []byte("data")},
		{Term: 127, Type: raft.LogNoop, Data: []byte{}},
		{Term: 128, Type: raft.LogConfiguration, Extensions: []byte{}},
		{Term: math.MaxUint64, Type: 255, Extensions: []byte("ext"), Data: []byte("data")},
		{Extensions: bytes.Repeat([]byte{4}, 300), AppendedAt: time.Unix(0, 1).UTC()},
		{Data: bytes.Repeat([]byte{5}, 1<<15), AppendedAt: time.Unix(1_700_000_000, 123_456_789).UTC()},
		{AppendedAt: time.Unix(0, 0).UTC()},
		{AppendedAt: time.Unix(-1, 999_999_999).UTC()},
		{AppendedAt: time.Time{}.Add(1)},
		{AppendedAt: time.Unix(0, math.MaxInt64).UTC()},
		{AppendedAt: time.Unix(0, math.MinInt64).UTC()},
		{AppendedAt: time.Unix(math.MaxInt64, 999_999_999).UTC()},
		{AppendedAt: time.Unix(math.MinInt64, 0).UTC()},
		{AppendedAt: time.Unix(-1<<63/1_000_000_000, 0).UTC()},
		{AppendedAt: time.Unix(-1<<63/1_000_000_000-1, 0).UTC()},
		{AppendedAt: time.Unix((1<<63-1)/1_000_000_000-1, 999_999_999).UTC()},
		{AppendedAt: time.Unix((1<<63-1)/1_000_000_000, 0).UTC()},
	}
}

func TestLog(t *testing.T) {
	for i, want := range samples() {
		want.Index = at
		value := format.AppendLog([]byte("before"), key, &want)[len("before"):]
		if size := format.LogSize(&want); int64(len(value)) != size {
			t.Errorf("entry %d: %d bytes, announced %d", i, len(value), size)
		}
		if over := len(value) - len(want.Extensions) - len(want.Data); over > format.MaxHeader {
			t.Errorf("entry %d: %d bytes in addition to the payload, announced %d at most", i, over, format.MaxHeader)
		}
		var got raft.Log
		if !format.DecodeLog(key, value, at, &got) {
			t.Errorf("entry %d does not come back", i)
		}
		if !got.AppendedAt.Equal(want.AppendedAt) || got.AppendedAt.Location() != time.UTC ||
			got.AppendedAt.IsZero() != want.AppendedAt.IsZero() {
			t.Errorf("entry %d: the time %v came back as %v", i, want.AppendedAt, got.AppendedAt)
		}
		if got.AppendedAt = want.AppendedAt; !reflect.DeepEqual(got, want) {
			t.Errorf("entry %d came back as %+v", i, got)
		}
		if cap(got.Data) != len(got.Data) || cap(got.Extensions) != len(got.Extensions) {
			t.Errorf("entry %d has room to grow into what is not its own", i)
		}
	}
}

// The zero time of another zone is the zero time.
func TestZeroTime(t *testing.T) {
	log := raft.Log{AppendedAt: time.Time{}.In(time.FixedZone("", 3600))}
	var got raft.Log
	if !format.DecodeLog(key, format.AppendLog(nil, key, &log), at, &got) || !got.AppendedAt.IsZero() {
		t.Fatal(got.AppendedAt)
	}
}

// Every damaged bit, every length but the right one and every other key is found out, for every
// kind of value.
func TestDamage(t *testing.T) {
	log := raft.Log{Term: 300, Extensions: []byte("ext"), Data: []byte("data"), AppendedAt: time.Unix(1, 2)}
	stable := prefix.Stable(nil, []byte("key"))
	meta := format.AppendMeta(nil, prefix.Meta(),
		format.Meta{Entries: true, First: 9, Dead: []format.Span{{Lo: 3, Hi: 5}}})
	for name, c := range map[string]struct {
		key, value []byte
		read       func(key, value []byte) bool
	}{
		"entry": {key, format.AppendLog(nil, key, &log), func(key, value []byte) bool {
			got := raft.Log{Index: 7}
			ok := format.DecodeLog(key, value, at, &got)
			if !ok && got.Index != 7 {
				t.Error("a damaged entry was stored into")
			}
			return ok
		}},
		"stable": {stable, format.AppendStable(nil, stable, []byte("value")), func(key, value []byte) bool {
			_, ok := format.DecodeStable(key, value)
			return ok
		}},
		"commit": {prefix.Commit(), format.AppendCommit(nil, prefix.Commit(), 7), func(key, value []byte) bool {
			_, ok := format.DecodeCommit(key, value)
			return ok
		}},
		"meta": {prefix.Meta(), meta, func(key, value []byte) bool {
			_, err := format.DecodeMeta(key, value)
			if err != nil && !errors.Is(err, holdfast.ErrCorrupt) {
				t.Error(err)
			}
			return err == nil
		}},
	} {
		if !c.read(c.key, c.value) {
			t.Errorf("%s cannot be read", name)
		}
		for i := range len(c.value) * 8 {
			bad := bytes.Clone(c.value)
			if bad[i/8] ^= 1 << (i % 8); c.read(c.key, bad) {
				t.Errorf("%s is read with bit %d wrong", name, i)
			}
		}
		for i := range len(c.key) * 8 {
			bad := bytes.Clone(c.key)
			if bad[i/8] ^= 1 << (i % 8); c.read(bad, c.value) {
				t.Errorf("%s is read under a key with bit %d wrong", name, i)
			}
		}
		for n := range c.value {
			if c.read(c.key, c.value[:n]) {
				t.Errorf("%s is read from its first %d bytes", name, n)
			}
		}
		if c.read(c.key, append(bytes.Clone(c.value), 0)) {
			t.Errorf("%s is read with a byte more", name)
		}
	}
}

// sealed is the value of that body, with a right sum.
func sealed(key []byte, body ...byte) []byte {
	sum := crc32.Checksum(append(bytes.Clone(key), body...), crc32.MakeTable(crc32.Castagnoli))
	return append(binary.BigEndian.AppendUint32(nil, sum), body...)
}

// The format does not change by accident.
func TestGolden(t *testing.T) {
	lo, hi := prefix.Logs()
	slo, shi := prefix.Stables()
	stable := prefix.Stable(nil, []byte("CurrentTerm"))
	for i, c := range []struct {
		got  []byte
		want string
	}{
		{key, "r\x03logl\x00\x00\x00\x00\x00\x00\x01\x02"},
		{lo, "r\x03logl"}, {hi, "r\x03logm"},
		{slo, "r\x03logs"}, {shi, "r\x03logt"},
		{stable, "r\x03logsCurrentTerm"},
		{prefix.Meta(), "r\x03logm"},
		{prefix.Commit(), "r\x03logc"},
		{format.AppendLog(nil, key, &raft.Log{Term: 300, Type: raft.LogConfiguration, Extensions: []byte("ext"),
			Data: []byte("data"), AppendedAt: time.Unix(1, 2)}),
			string(sealed(key, []byte("\x1d\x05\xac\x02\x00\x00\x00\x00\x3b\x9a\xca\x02\x03extdata")...))},
		{format.AppendLog(nil, key, &raft.Log{Term: 1, Data: []byte("data")}),
			string(sealed(key, []byte("\x18\x00\x01data")...))},
		{format.AppendLog(nil, key, &raft.Log{AppendedAt: time.Unix(1<<60, 3)}),
			string(sealed(key, []byte("\x12\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03")...))},
		{format.AppendStable(nil, stable, []byte("\x00\x00\x00\x00\x00\x00\x00\x07")),
			string(sealed(stable, []byte("\x10\x00\x00\x00\x00\x00\x00\x00\x07")...))},
		{format.AppendCommit(nil, prefix.Commit(), 7),
			string(sealed(prefix.Commit(), []byte("\x10\x00\x00\x00\x00\x00\x00\x00\x07")...))},
		{format.AppendMeta(nil, prefix.Meta(), format.Meta{}), string(sealed(prefix.Meta(), 0x10))},
		{format.AppendMeta(nil, prefix.Meta(), format.Meta{Entries: true, First: 9, Dead: []format.Span{{Lo: 3, Hi: 5}}}),
			string(sealed(prefix.Meta(), bytes.Join([][]byte{{0x13}, {9}, {3}, {5}}, make([]byte, 7))...))},
		{format.AppendMeta(nil, prefix.Meta(), format.Meta{Void: &format.Span{Lo: 7, Hi: 9},
			Dead: []format.Span{{Lo: 1, Hi: 1}, {Lo: 3, Hi: 3}}}),
			string(sealed(prefix.Meta(), bytes.Join([][]byte{{0x26}, {7}, {9}, {1}, {1}, {3}, {3}}, make([]byte, 7))...))},
	} {
		if string(c.got) != c.want {
			t.Errorf("%d:\n got %q\nwant %q", i, c.got, c.want)
		}
	}
}

// What has a right sum and yet makes no sense.
func TestNonsense(t *testing.T) {
	for _, body := range []string{
		"",                     // nothing
		"\x08\x00\x01",         // version 0
		"\x28\x00\x01",         // version 2
		"\x10",                 // no type
		"\x10\x00",             // no term
		"\x10\x00\x80",         // half a term
		"\x10\x00\x80\x00",     // a term in more bytes than it needs
		"\x10\x00\x01x",        // data without the flag
		"\x13\x00\x0112345678", // no such kind of time
		"\x11\x00\x011234567",  // half a time
		"\x12\x00\x0112345678901",
		"\x12\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00", // a wide time that needs not be
		"\x12\x00\x01\x10\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", // more than a second
		"\x14\x00\x01\x05ext",
		"\x14\x00\x01",
	} {
		if format.DecodeLog(key, sealed(key, []byte(body)...), at, new(raft.Log)) {
			t.Errorf("%q is an entry", body)
		}
	}
	meta := prefix.Meta()
	for body, want := range map[string]error{
		"":                               holdfast.ErrCorrupt,
		"\x00":                           holdfast.ErrCorrupt,
		"\x30":                           holdfast.ErrVersion,
		"\x20":                           holdfast.ErrCorrupt, // nothing that needs version 2
		"\x24" + "87654321" + "12345678": holdfast.ErrCorrupt, // upside down
		"\x24" + "12345678":              holdfast.ErrCorrupt,
		"\x28":                           holdfast.ErrCorrupt,
		"\x22" + "12345678" + "12345678": holdfast.ErrCorrupt, // one dead span needs no version 2
		"\x12" + "12345671" + "12345671" + "12345673" + "12345673": holdfast.ErrCorrupt, // two do
		"\x22" + "12345671" + "12345671" + "12345672" + "12345672": holdfast.ErrCorrupt, // they touch
		"\x22" + "12345673" + "12345673" + "12345671" + "12345671": holdfast.ErrCorrupt, // not ascending
		"\x25" + "12345678" + "12345678" + "12345678":              holdfast.ErrCorrupt, // the first one is in the void
		"\xff and more":                  holdfast.ErrVersion,
		"\x14":                           holdfast.ErrCorrupt,
		"\x10x":                          holdfast.ErrCorrupt,
		"\x111234567":                    holdfast.ErrCorrupt,
		"\x121234567":                    holdfast.ErrCorrupt,
		"\x12" + "87654321" + "12345678": holdfast.ErrCorrupt, // upside down
		"\x13" + "12345678" + "12345678" + "12345678": holdfast.ErrCorrupt, // the first one is dead
	} {
		if _, err := format.DecodeMeta(meta, sealed(meta, []byte(body)...)); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", body, err, want)
		}
	}
}

func TestIndex(t *testing.T) {
	for _, index := range []uint64{0, 1, math.MaxUint64} {
		k := prefix.Log(nil, 5)
		keyspace.SetNumber(k, index)
		if got, ok := prefix.Number(k); !ok || got != index || !bytes.Equal(k, prefix.Log(nil, index)) {
			t.Error(got, ok)
		}
	}
	for _, k := range []string{"", "r\x03logl", "r\x03logl1234567", "r\x03logl123456789"} {
		if _, ok := prefix.Number([]byte(k)); ok {
			t.Errorf("%q is the key of an entry", k)
		}
	}
}

// FuzzLog feeds anything, with a right sum, to the decoder: it never panics, and what it accepts is
// what is encoded.
func FuzzLog(f *testing.F) {
	for _, log := range samples() {
		f.Add(format.AppendLog(nil, key, &log)[4:])
	}
	f.Add([]byte{})
	f.Add([]byte("\x10\x00\x80\x00"))
	f.Add([]byte("\x14\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01ext"))
	f.Fuzz(func(t *testing.T, body []byte) {
		value := sealed(key, body...)
		var log raft.Log
		if !format.DecodeLog(key, value, at, &log) {
			return
		}
		if again := format.AppendLog(nil, key, &log); !bytes.Equal(again, value) {
			t.Fatalf("%q means %+v, which is encoded as %q", value, log, again)
		}
		if format.DecodeLog(prefix.Log(nil, at+1), value, at+1, &log) {
			t.Fatal("it is accepted under another index")
		}
	})
}

// FuzzEntry stores anything in an entry and gets it back.
func FuzzEntry(f *testing.F) {
	for _, l := range samples() {
		f.Add(l.Term, byte(l.Type), l.AppendedAt.Unix(), int64(l.AppendedAt.Nanosecond()), l.Extensions, l.Data)
	}
	f.Fuzz(func(t *testing.T, term uint64, typ byte, sec, nsec int64, extensions, data []byte) {
		want := raft.Log{Index: at, Term: term, Type: raft.LogType(typ), AppendedAt: time.Unix(sec, nsec),
			Extensions: extensions, Data: data}
		value := format.AppendLog(nil, key, &want)
		var got raft.Log
		if !format.DecodeLog(key, value, at, &got) || int64(len(value)) != format.LogSize(&want) {
			t.Fatalf("%+v is encoded as %q", want, value)
		}
		if !got.AppendedAt.Equal(want.AppendedAt) {
			t.Fatalf("%v came back as %v", want.AppendedAt, got.AppendedAt)
		}
		if got.AppendedAt = want.AppendedAt; fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
			t.Fatalf("%+v came back as %+v", want, got)
		}
	})
}

// FuzzOther feeds anything, with a right sum, to the other decoders.
func FuzzOther(f *testing.F) {
	meta, commit, stable := prefix.Meta(), prefix.Commit(), prefix.Stable(nil, []byte("k"))
	f.Add(format.AppendMeta(nil, meta, format.Meta{})[4:])
	f.Add(format.AppendMeta(nil, meta, format.Meta{Entries: true, First: 1})[4:])
	f.Add(format.AppendMeta(nil, meta, format.Meta{Entries: true, First: 1, Dead: []format.Span{{Lo: 2, Hi: 3}}})[4:])
	f.Add(format.AppendMeta(nil, meta, format.Meta{Dead: []format.Span{{Lo: 2, Hi: 3}}})[4:])
	f.Add(format.AppendCommit(nil, commit, 1)[4:])
	f.Add(format.AppendStable(nil, stable, []byte("v"))[4:])
	f.Add([]byte{})
	f.Add(format.AppendMeta(nil, meta, format.Meta{Void: &format.Span{Lo: 7, Hi: 9},
		Dead: []format.Span{{Lo: 1, Hi: 2}, {Lo: 4, Hi: 5}}})[4:])
	f.Add([]byte{0x30})
	f.Fuzz(func(t *testing.T, body []byte) {
		value := sealed(meta, body...)
		if m, err := format.DecodeMeta(meta, value); err == nil && !bytes.Equal(format.AppendMeta(nil, meta, m), value) {
			t.Errorf("%q means %+v", value, m)
		} else if err != nil && !errors.Is(err, holdfast.ErrCorrupt) && !errors.Is(err, holdfast.ErrVersion) {
			t.Error(err)
		}
		value = sealed(commit, body...)
		index, ok := format.DecodeCommit(commit, value)
		if ok && !bytes.Equal(format.AppendCommit(nil, commit, index), value) {
			t.Errorf("%q means %d", value, index)
		}
		value = sealed(stable, body...)
		if v, ok := format.DecodeStable(stable, value); ok && !bytes.Equal(format.AppendStable(nil, stable, v), value) {
			t.Errorf("%q means %q", value, v)
		}
	})
}
